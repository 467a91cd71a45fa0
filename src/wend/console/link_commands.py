"""`wend link`: the links of a running peer, listed and changed without a restart.

A change lasts until the peer restarts; its file names the links that it starts with.
"""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from wend.console.peer_options import LOCAL_PEER, Json, PeerOptions, with_peer_options
from wend.console.status_command import link_lines, status_fields

if TYPE_CHECKING:
    from wend.drivers.live.client.client import Client
    from wend.drivers.live.status import StatusSnapshot

Neighbour = Annotated[int, typer.Argument(metavar="ID", help="The id of the neighbour.", min=0)]


def register(app: typer.Typer) -> None:
    links = typer.Typer(no_args_is_help=True, help="List, add and remove the links of a running peer.")
    links.command("list")(list_)
    links.command("add")(add)
    links.command("remove")(remove)
    app.add_typer(links, name="link")


@with_peer_options
def list_(at: PeerOptions = LOCAL_PEER, as_json: Json = False) -> None:
    """Print the links of a peer: address, state, round trip, loss and last change."""
    status = at.ask(lambda client: client.status())
    if as_json:
        for link in status_fields(status)["links"]:
            print(json.dumps(link))
    elif status.links:
        print("\n".join(link_lines(status.links)))


@with_peer_options
def add(
    neighbour: Neighbour,
    address: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="The address at which the neighbour listens for peers.")
    ],
    delay: Annotated[str, typer.Option(help="The expected one-way delay; measurements correct it.")] = "20ms",
    at: PeerOptions = LOCAL_PEER,
    as_json: Json = False,
) -> None:
    """Make a link to another neighbour. The neighbour makes the link, too, unless its file says admit = false."""

    async def change(client: "Client") -> "StatusSnapshot":
        await client.add_link(neighbour, address, delay=delay)
        return await client.status()

    status = at.ask(change)
    link = {"peer": status.peer, "neighbour": neighbour, "address": address}
    print(json.dumps(link) if as_json else f"peer {status.peer} has a link to peer {neighbour} at {address}")


@with_peer_options
def remove(neighbour: Neighbour, at: PeerOptions = LOCAL_PEER, as_json: Json = False) -> None:
    """Remove the link to a neighbour. Events in flight over it take other routes."""

    async def change(client: "Client") -> "StatusSnapshot":
        await client.remove_link(neighbour)
        return await client.status()

    status = at.ask(change)
    link = {"peer": status.peer, "neighbour": neighbour}
    print(json.dumps(link) if as_json else f"peer {status.peer} no longer has a link to peer {neighbour}")
