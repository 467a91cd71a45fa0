"""`wend link`: the links of a running peer, listed and changed without a restart.

A change holds until the peer restarts; its file says what it starts with.
"""

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console.clients import DEFAULT_PEER, Json, Keys, Peer, RootFile, TokenFile, key_options
from wend.console.status import as_object, links_table

if TYPE_CHECKING:
    from wend.drivers.live.client import Client
    from wend.drivers.live.status import StatusSnapshot

Neighbour = Annotated[int, typer.Argument(metavar="ID", help="The id of the neighbour.", min=0)]


def register(app: typer.Typer) -> None:
    links = typer.Typer(no_args_is_help=True, help="List, add and remove the links of a running peer.")
    links.command("list")(list_)
    links.command("add")(add)
    links.command("remove")(remove)
    app.add_typer(links, name="link")


def list_(
    peer: Peer = DEFAULT_PEER,
    keys: Keys = None,
    root: RootFile = None,
    token: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Print the links of a peer: address, state, round trip, loss and last change."""
    found = _ask(peer, key_options(keys, root, token), _nothing)
    if as_json:
        for link in as_object(found)["links"]:
            print(json.dumps(link))
    elif found.links:
        print("\n".join(links_table(found.links)))


def add(
    neighbour: Neighbour,
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where it listens for peers.")],
    delay: Annotated[str, typer.Option(help="The expected one-way delay; measurements correct it.")] = "20ms",
    peer: Peer = DEFAULT_PEER,
    keys: Keys = None,
    root: RootFile = None,
    token: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Link a peer with one more neighbour. The neighbour makes the link, too, unless its file says admit = false."""

    async def change(client: "Client") -> None:
        await client.add_link(neighbour, address, delay=delay)

    found = _ask(peer, key_options(keys, root, token), change)
    link = {"peer": found.peer, "neighbour": neighbour, "address": address}
    print(json.dumps(link) if as_json else f"peer {found.peer} has a link with peer {neighbour} at {address}")


def remove(
    neighbour: Neighbour,
    peer: Peer = DEFAULT_PEER,
    keys: Keys = None,
    root: RootFile = None,
    token: TokenFile = None,
    as_json: Json = False,
) -> None:
    """End the link of a peer with a neighbour. Events in flight over it take other routes."""

    async def change(client: "Client") -> None:
        await client.remove_link(neighbour)

    found = _ask(peer, key_options(keys, root, token), change)
    link = {"peer": found.peer, "neighbour": neighbour}
    print(json.dumps(link) if as_json else f"peer {found.peer} has no link with peer {neighbour} any more")


async def _nothing(client: "Client") -> None:
    pass


def _ask(peer: str, opened: dict[str, Any], change: "Callable[[Client], Awaitable[None]]") -> "StatusSnapshot":
    """Have a peer change something; its status afterwards."""
    import uvloop

    async def ask() -> "StatusSnapshot":
        import wend

        async with wend.connect(peer, **opened) as client:
            await change(client)
            return await client.status()

    return uvloop.run(ask())
