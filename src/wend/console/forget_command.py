"""`wend forget`: drop what the peers of an overlay store for a peer that never returns."""

import json
from typing import Annotated

import typer

from wend.console.peer_options import LOCAL_PEER, Json, PeerOptions, with_peer_options


def register(app: typer.Typer) -> None:
    app.command("forget")(forget)


@with_peer_options
def forget(
    gone: Annotated[int, typer.Argument(metavar="ID", help="The id of the peer that is gone for good.", min=0)],
    at: PeerOptions = LOCAL_PEER,
    as_json: Json = False,
) -> None:
    """Drop what all peers store for a peer that is gone for good.

    Its subscriptions end. If it runs after all, it announces them again."""
    at.ask(lambda client: client.forget_peer(gone))
    print(json.dumps({"forgotten": gone}) if as_json else f"peers store no more events for peer {gone}")
