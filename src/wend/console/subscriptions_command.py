"""`wend subscriptions`: the durable subscriptions of a running peer."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from wend.console.peer_options import LOCAL_PEER, Json, PeerOptions, asks_peer

if TYPE_CHECKING:
    from wend.drivers.live.client.client import Client
    from wend.drivers.live.frames import DurableStatus


def register(app: typer.Typer) -> None:
    app.command("subscriptions")(subscriptions)


@asks_peer
def subscriptions(
    remove: Annotated[
        str | None, typer.Option(metavar="NAME", help="Remove this one, with the events that wait for it.")
    ] = None,
    at: PeerOptions = LOCAL_PEER,
    as_json: Json = False,
) -> None:
    """List the durable subscriptions of a running peer, or remove one."""
    import msgspec

    async def ask(client: "Client") -> "tuple[DurableStatus, ...]":
        if remove is not None:
            await client.remove_subscription(remove)
        return await client.subscriptions()

    found = at.ask(ask)
    if as_json:
        for one in found:
            print(json.dumps(msgspec.to_builtins(one)))
    else:
        print(_table(found) if found else "no durable subscriptions")


def _table(found: "tuple[DurableStatus, ...]") -> str:
    rows = [("name", "events", "kB", "client", "missed", "filter")]
    for one in found:
        here = "attached" if one.attached else "away"
        missed = str(sum(one.missed.values()))
        rows.append((one.name, str(one.events), f"{one.bytes / 1000:.1f}", here, missed, one.filter))
    wide = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        f"{name:{wide[0]}}  {events:>{wide[1]}}  {size:>{wide[2]}}  {client:{wide[3]}}  {missed:>{wide[4]}}  {filter_}"
        for name, events, size, client, missed, filter_ in rows
    )
