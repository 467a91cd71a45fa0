"""The walk of one event: every file of Wend that it passes from `client.publish` to the subscriber at another peer.

Two live peers and two clients run in this process, as most do in production: with the default strategy, with keys, with
grants, and with clients over TLS. A profiler notes which functions get the event while it travels. The list between the
two marks in docs/ARCHITECTURE.md is the result:

    python scripts/walk.py           # print it
    python scripts/walk.py --write   # and put it into the page
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "wend"
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN, END = "<!-- walk:begin -->\n", "<!-- walk:end -->"
STRATEGY = "adaptive"
PAYLOAD = b"an event on its walk" * 50
"""So long that no other datagram or frame is as long: then bytes of this length hold it, even if they are sealed."""

Visits = dict[str, list[str]]
"""By file, in the order of their first visit: its functions, likewise."""


async def walk() -> Visits:
    """Follow one event between two linked peers that have nothing else to do."""
    with TemporaryDirectory() as folder:
        return await _walk(Path(folder))


async def _walk(folder: Path) -> Visits:
    from wend.drivers.live.access.throwaway_keys import ThrowawayRoot
    from wend.drivers.live.addressing.addresses import format_address
    from wend.drivers.live.client.connect import connect
    from wend.drivers.live.config import NeighbourEntry, PeerFile
    from wend.drivers.live.process import PeerProcess

    root = ThrowawayRoot()
    keys = [str(root.write_folder(folder / f"peer-{number}", f"peer-{number}", number)) for number in (0, 1)]
    client = root.write_folder(folder / "client", "client", groups=("sensors",))
    grant = {"publish": "topic = 'a'", "subscribe": "topic = 'a'"}
    places: dict[str, Any] = {"listen": "127.0.0.1:0", "clients": "127.0.0.1:0", "tls": True}
    service = PeerProcess(PeerFile(id=0, keys=keys[0], grants={"sensors": grant}, strategy=STRATEGY, **places))
    other = PeerProcess(
        PeerFile(
            id=1,
            keys=keys[1],
            grants={"sensors": grant},
            strategy=STRATEGY,
            neighbours=(NeighbourEntry(0, format_address(service.peer.address)),),
            **places,
        )
    )
    services = (service, other)
    for each in services:
        await each.start()
    service.links.add(NeighbourEntry(1, format_address(other.peer.address)))
    urls = [f"wends://127.0.0.1:{each.listener.address[1]}" for each in services]
    async with (
        connect(urls[0], keys=client) as publisher,
        connect(urls[1], keys=client) as subscriber,
        subscriber.subscribe("topic = 'a'") as events,
    ):
        while not (await publisher.publish({"topic": "a"})).targets:  # until the subscription is known there
            await asyncio.sleep(0.01)
        await anext(events)
        await asyncio.sleep(1)
        await publisher.publish({"topic": "a"})  # so that caches are as in the middle of a run
        await anext(events)
        # a packet that waits in a queue on a busy machine passes one file more, so the shortest walk counts
        walks = [await _profile(publisher.publish({"topic": "a"}, PAYLOAD), lambda: anext(events)) for _ in range(5)]
        visits = min([each for each in walks if each], key=len)
    for each in services:
        await each.abort()
    return visits


async def _profile(publish: Any, receive: Callable[[], Any]) -> Visits:
    visits: Visits = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)) and _has_event(frame):
            file = Path(code.co_filename).relative_to(SOURCE)
            # These declare events and messages; an event does not pass them.
            if file.parts[0] == "model" or file.name == "messages.py":
                return
            functions = visits.setdefault(str(file), [])
            if code.co_qualname not in functions:
                functions.append(code.co_qualname)

    sys.setprofile(note)
    try:
        await publish
        await receive()
    finally:
        sys.setprofile(None)
    return visits


def _has_event(frame: FrameType) -> bool:
    """Whether an argument of the function holds the event, in any form. The returning ACK is not part of the walk."""
    code = frame.f_code
    if frame.f_back is not None and frame.f_back.f_code.co_name == "answered":
        return False
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return any(_holds(frame.f_locals[name], 5) for name in names if name != "self" and name in frame.f_locals)


def _holds(value: object, depth: int) -> bool:
    if isinstance(value, bytes | bytearray | memoryview):
        return len(value) >= len(PAYLOAD)
    if depth == 0:
        return False
    if isinstance(value, msgspec.Struct):
        return any(_holds(getattr(value, field), depth - 1) for field in value.__struct_fields__)
    if isinstance(value, list | tuple):
        return any(_holds(each, depth - 1) for each in value)
    return False


def table(visits: Visits) -> str:
    """The files as a Markdown table, each with the functions that the event passes there."""
    rows = ["| | file | functions |", "| --- | --- | --- |"]
    for number, (file, functions) in enumerate(visits.items(), 1):
        rows.append(f"| {number} | [`{file}`](../src/wend/{file}) | {', '.join(f'`{name}`' for name in functions)} |")
    return "\n".join(rows) + "\n"


def page_with(listing: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{listing}{END}{after}"


def main() -> None:
    listing = table(asyncio.run(walk()))
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page_with(listing), encoding="utf-8")
    else:
        print(listing, end="")


if __name__ == "__main__":
    main()
