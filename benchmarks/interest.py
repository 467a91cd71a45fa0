"""Very many subscriptions at one peer: how fast they come and go, what memory they take, how fast events are matched.

Clients of a broker subscribe to 100 000 distinct filters of three kinds, one after the other, and end them again. Bytes
are counted by tracemalloc in a process that does nothing else, for peer and broker together, with the texts of the
filters. The reference for matching is the compiled index of the same filters, all events in one batch.

`python -m benchmarks.interest [count]`
"""

import asyncio
import gc
import sys
import time
import tracemalloc
from typing import NamedTuple

from benchmarks.rows import Row
from wend.drivers.live.broker.broker import Broker
from wend.drivers.live.peer import LivePeer
from wend.matching.batch import Batch
from wend.matching.batch_index import BatchIndex
from wend.matching.filters import parse
from wend.model.events import Attributes, Event, EventId, Qos
from wend.model.randomness import stream
from wend.protocol.config import PeerConfig
from wend.protocol.notices import MissedCode
from wend.protocol.ports import Deliver, Started

COUNT = 100_000
EVENTS = 200
SPAN = 1_000_000
SEED = 7


class IdleClient:
    """A client that gets nothing, because nobody publishes."""

    is_stalled = False

    def deliver(self, handle: int, effect: Deliver) -> None:
        raise NotImplementedError

    def on_missed(self, handle: int, counts: dict[MissedCode, int]) -> None:
        raise NotImplementedError

    def on_replaced(self, handle: int) -> None:
        raise NotImplementedError


def filter_texts(kind: str, count: int) -> list[str]:
    """Distinct filters of one kind."""
    rng = stream(SEED, "interest", kind)
    lows = rng.integers(0, SPAN, (count, 2)).tolist()
    if kind == "topic":
        return [f"topic = 'site/{n % 97}/sensor/{n}'" for n in range(count)]
    if kind == "topic and range":
        return [f"topic = 'site/{n % 1000}' and x in [{a}, {a + 100 + n}]" for n, (a, _) in enumerate(lows)]
    return [f"x in [{a}, {a + 1000 + n % 1000}] and y in [{b}, {b + 10_000}]" for n, (a, b) in enumerate(lows)]


def draw_events(kind: str, count: int) -> list[Attributes]:
    rng = stream(SEED, "interest", kind, "events")
    drawn = rng.integers(0, SPAN, (EVENTS, 3)).tolist()
    if kind == "topic":
        return [{"topic": f"site/{n % 97}/sensor/{n % count}", "x": x} for n, x, _ in drawn]
    return [{"topic": f"site/{n % 1000}", "x": x, "y": y} for n, x, y in drawn]


KINDS = ("topic", "topic and range", "two ranges")


class Metrics(NamedTuple):
    adds: float
    """Per CPU second, like the other rates."""
    removes: float
    matched: float
    index: float
    """Events that the compiled index matches."""
    slowest_ms: float
    """The longest time that one subscription took."""


def start_broker() -> tuple[Broker, IdleClient]:
    peer = LivePeer(PeerConfig(peer=0))
    peer.start(Started(()))
    return Broker(peer), IdleClient()


async def measure(kind: str, count: int) -> Metrics:
    broker, client = start_broker()
    wanted = filter_texts(kind, count)
    slowest, last = 0.0, time.thread_time()
    began = last
    for handle, text in enumerate(wanted, 1):
        broker.subscribe(client, handle, text, Qos())
        now = time.thread_time()
        slowest, last = max(slowest, now - last), now
    adds = count / (time.thread_time() - began)
    interest, view = broker.peer.peer.interest, broker.peer.peer.view
    drawn = [Event(EventId(1, 1, n), attributes) for n, attributes in enumerate(draw_events(kind, count))]
    for event in drawn:  # the index arranges new filters when the first event comes
        interest.table.local(Event(EventId(2, 1, event.id.sequence), event.attributes), view)
    began = time.thread_time()
    found = [len(interest.table.local(event, view)) for event in drawn]
    matched = len(drawn) / (time.thread_time() - began)
    index = BatchIndex(parse(text) for text in wanted)
    batch = Batch.of([event.attributes for event in drawn])
    index.match_batch(batch)
    began = time.thread_time()
    assert found == index.count_batch(batch)[0].tolist()
    reference = len(drawn) / (time.thread_time() - began)
    began = time.thread_time()
    for handle in range(1, count + 1):
        broker.unsubscribe(client, handle)
    removes = count / (time.thread_time() - began)
    assert not broker.subscriptions
    broker.peer.close()
    return Metrics(adds, removes, matched, reference, slowest * 1000)


async def bytes_per_subscription(kind: str, count: int, lines: int = 0) -> float:
    """The memory of peer and broker for one subscription."""
    broker, client = start_broker()
    wanted = filter_texts(kind, count)
    gc.collect()
    tracemalloc.start()
    for handle in range(1, count + 1):
        broker.subscribe(client, handle, f"{wanted[handle - 1]} ", Qos())  # a text of its own, as from a connection
    gc.collect()
    total = tracemalloc.get_traced_memory()[0]
    if lines:
        for line in tracemalloc.take_snapshot().statistics("lineno")[:lines]:
            print(f"{line.size / count:9.0f} B  {line.traceback}")
    tracemalloc.stop()
    broker.peer.close()
    return total / count


def rows(count: int = COUNT) -> list[Row]:
    found = []
    for kind in KINDS:
        one, each = asyncio.run(measure(kind, count)), asyncio.run(bytes_per_subscription(kind, count))
        name = f"interest.{kind.replace(' ', '_')}"
        found += [
            Row(f"{name}.adds_per_s", f"subscriptions added/s, {count:,} of {kind}", one.adds),
            Row(f"{name}.removes_per_s", "  removed/s", one.removes),
            Row(f"{name}.slowest_ms", "  the slowest of them, ms", one.slowest_ms, None, True),
            Row(f"{name}.bytes", "  bytes each, peer and broker", each, None, True),
            Row(f"{name}.events_per_s", "  events matched/s (compiled index, in one batch)", one.matched, one.index),
        ]
    return found


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    if "--lines" in sys.argv:
        for kind in KINDS:
            print(kind, asyncio.run(bytes_per_subscription(kind, count, 25)))
        return
    for row in rows(count):
        print("  ".join(row.shown()))


if __name__ == "__main__":
    main()
