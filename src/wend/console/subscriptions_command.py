"""`wend subscriptions`: the durable subscriptions of a running peer."""

import json
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from wend.console.peer_options import LOCAL_PEER, Json, PeerOptions, with_peer_options
from wend.console.terminal import align_columns

if TYPE_CHECKING:
    from wend.drivers.live.client.client import Client
    from wend.drivers.live.frames import DurableStatus


def register(app: typer.Typer) -> None:
    app.command("subscriptions")(subscriptions)


@with_peer_options
def subscriptions(
    remove: Annotated[
        str | None, typer.Option(metavar="NAME", help="Remove this subscription, with the events that wait for it.")
    ] = None,
    at: PeerOptions = LOCAL_PEER,
    as_json: Json = False,
) -> None:
    """List the durable subscriptions of a running peer, or remove one."""

    async def ask(client: "Client") -> "tuple[DurableStatus, ...]":
        if remove is not None:
            await client.remove_subscription(remove)
        return await client.subscriptions()

    durable = at.ask(ask)
    if as_json:
        for one in durable:
            print(json.dumps(msgspec.to_builtins(one)))
    else:
        print(_format_durable(durable) if durable else "no durable subscriptions")


def _format_durable(durable: "tuple[DurableStatus, ...]") -> str:
    rows = [("name", "events", "kB", "client", "missed", "filter")]
    for one in durable:
        here = "attached" if one.attached else "away"
        missed = str(sum(one.missed.values()))
        rows.append((one.name, str(one.events), f"{one.bytes / 1000:.1f}", here, missed, one.filter))
    return "\n".join(align_columns(rows, right=(1, 2, 4)))
