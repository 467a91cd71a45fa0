"""The walk of one event: every file of Wend that it passes from `client.publish` to the subscriber at another peer.

Two live peers and two clients run in this process; a profiler notes which functions run while one event travels. The
list between the two marks in docs/ARCHITECTURE.md is what it found:

    python scripts/walk.py           # print it
    python scripts/walk.py --write   # and put it into the page
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "wend"
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN, END = "<!-- walk:begin -->\n", "<!-- walk:end -->"
STRATEGY = "dcrd"
PAYLOAD = b"an event on its walk"

Visits = dict[str, dict[str, int]]
"""By file, in the order of their first visit: its functions, likewise, with the line at which each begins."""


async def walk() -> Visits:
    """An event between two peers that know each other, once everything else is quiet."""
    from wend.drivers.live.broker.broker import Broker
    from wend.drivers.live.broker.listener import TcpListener
    from wend.drivers.live.client.client import connect
    from wend.drivers.live.peer import LivePeer
    from wend.model.units import MS
    from wend.protocol.config import PeerConfig
    from wend.protocol.ports import Neighbour, Started

    peers = [LivePeer(PeerConfig(peer=number, strategy=STRATEGY, margin_ns=1000 * MS)) for number in (0, 1)]
    listeners = [TcpListener(Broker(peer)) for peer in peers]
    for here, there in ((0, 1), (1, 0)):
        await listeners[here].start()
        peers[here].add_peer(there, peers[there].address)
        peers[here].start(Started((Neighbour(there, 10 * MS),)))
    urls = [f"wend://127.0.0.1:{listener.address[1]}" for listener in listeners]
    async with (
        connect(urls[0]) as publisher,
        connect(urls[1]) as subscriber,
        subscriber.subscribe("topic = 'a'") as events,
    ):
        while not (await publisher.publish({"topic": "a"})).targets:  # until the subscription is known there
            await asyncio.sleep(0.01)
        await anext(events)
        await publisher.publish({"topic": "a"})  # so that caches are as in the middle of a run
        await anext(events)
        # a packet that waits in a queue on a busy machine passes one file more, so the shortest walk counts
        walks = [await _profiled(publisher.publish({"topic": "a"}, PAYLOAD), lambda: anext(events)) for _ in range(5)]
        visits = min([each for each in walks if each], key=len)
    for listener, peer in zip(listeners, peers, strict=True):
        await listener.stop()
        peer.close()
    return visits


async def _profiled(publish: Any, receive: Callable[[], Any]) -> Visits:
    visits: Visits = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)) and _carries(frame):
            file = Path(code.co_filename).relative_to(SOURCE)
            # What an event is, not a place that it passes; and a busy machine makes a message older.
            if file.parts[0] == "model" or file.name == "messages.py":
                return
            functions = visits.setdefault(str(file), {})
            functions.setdefault(code.co_qualname, code.co_firstlineno)

    sys.setprofile(note)
    try:
        await publish
        await receive()
    finally:
        sys.setprofile(None)
    return visits


def _carries(frame: FrameType) -> bool:
    """Whether the function is handed the event, in whatever form."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return any(_holds(frame.f_locals[name], 5) for name in names if name != "self" and name in frame.f_locals)


def _holds(value: object, depth: int) -> bool:
    if isinstance(value, bytes | bytearray | memoryview):
        return PAYLOAD in bytes(value)
    if depth == 0:
        return False
    if isinstance(value, msgspec.Struct):
        return any(_holds(getattr(value, field), depth - 1) for field in value.__struct_fields__)
    if isinstance(value, list | tuple):
        return any(_holds(each, depth - 1) for each in value)
    return False


def table(visits: Visits) -> str:
    """The files as a Markdown table, each with the functions that the event passes there."""
    rows = ["| | file | functions, with their lines |", "| --- | --- | --- |"]
    for number, (file, functions) in enumerate(visits.items(), 1):
        where = ", ".join(f"`{name}` {line}" for name, line in functions.items())
        rows.append(f"| {number} | [`{file}`](../src/wend/{file}) | {where} |")
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
