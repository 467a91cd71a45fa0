"""The options of commands that ask a running peer: its address, and the keys of the client.

A command takes them as one parameter of type `PeerOptions`:

    @asks_peer
    def status(at: PeerOptions = LOCAL_PEER, as_json: Json = False) -> None: ...
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

if TYPE_CHECKING:
    from wend.drivers.live.client.client import Client

T = TypeVar("T")
Peer = Annotated[
    str,
    typer.Option(metavar="URL", help="The peer to connect to, or several separated by commas: wend://a:7700,b:7700."),
]
Keys = Annotated[
    Path | None,
    typer.Option("--keys", metavar="DIR", help="For wends://: the folder with this client's keys (wend key new)."),
]
RootFile = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="FILE",
        help="For wends://: the certificate of the root, if the folder of keys does not have it.",
    ),
]
TokenFile = Annotated[
    Path | None, typer.Option("--token", metavar="FILE", help="For wends://: a file with a token (wend key token).")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


def key_options(keys: Path | None, root: Path | None, token: Path | None) -> dict[str, Any]:
    """The options of `wend.connect` for these flags."""
    return {"keys": keys, "root": root, "token": token}


class PeerOptions(NamedTuple):
    """Which peer to connect to, and how."""

    peer: str
    keys: Path | None
    root: Path | None
    token: Path | None

    def ask(self, question: "Callable[[Client], Awaitable[T]]") -> T:
        """Connect, ask, and close the connection."""
        import uvloop

        async def ask() -> T:
            import wend

            async with wend.connect(self.peer, **key_options(self.keys, self.root, self.token)) as client:
                return await question(client)

        return uvloop.run(ask())


LOCAL_PEER = PeerOptions("wend://127.0.0.1:7700", None, None, None)
_HINTS = {"peer": Peer, "keys": Keys, "root": RootFile, "token": TokenFile}


def with_peer_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of `PeerOptions`, in the place of its parameter of that type."""
    parameters: list[inspect.Parameter] = []
    taken = ""
    for parameter in inspect.signature(command).parameters.values():
        if parameter.annotation is PeerOptions:
            taken = parameter.name
            parameters += [
                parameter.replace(name=name, annotation=hint, default=getattr(LOCAL_PEER, name))
                for name, hint in _HINTS.items()
            ]
        else:
            parameters.append(parameter)

    @wraps(command)
    def called(**values: Any) -> None:
        at = PeerOptions(*(values.pop(name) for name in _HINTS))
        command(**{**values, taken: at})

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called
