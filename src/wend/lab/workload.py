"""What the lab publishes, and what became of it.

Every publication carries a marker, its topic, its number and the moment at which it was handed over. All
processes of the lab share one monotonic clock, so a delay is one subtraction, and exact. The marker lets
the emulated links tell packets that hold publications from all others.
"""

import struct
from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np

from wend.drivers.arrivals import earliest_arrivals
from wend.drivers.world import World
from wend.lab.control import MARKER
from wend.model.events import PeerId
from wend.model.units import MS, Nanos

_HEAD = struct.Struct("!8sHIq")
MIN_BYTES = _HEAD.size
WARMUP = 1 << 31
"""Numbers from here on belong to the warm-up and are counted nowhere."""


class Stamp(msgspec.Struct, frozen=True, gc=False):
    topic: int
    sequence: int
    time_ns: Nanos


def payload(stamp: Stamp, size: int) -> bytes:
    return _HEAD.pack(MARKER, stamp.topic, stamp.sequence, stamp.time_ns).ljust(size, b".")


def read(data: bytes) -> Stamp | None:
    """None where this is no payload of ours."""
    if len(data) < _HEAD.size or not data.startswith(MARKER):
        return None
    return Stamp(*_HEAD.unpack_from(data)[1:])


class Late(msgspec.Struct, frozen=True):
    """A publication that a subscriber got too late, or not at all: where to look when figures surprise."""

    topic: int
    sequence: int
    subscriber: PeerId
    published_ns: Nanos
    delay_ns: Nanos | None
    deadline_ns: Nanos


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Counts are of (publication, subscriber) pairs."""

    publications: int
    expected: int
    delivered: int
    on_time: int
    p50_ms: float
    p99_ms: float
    duplicates: int = 0
    strays: int = 0

    @property
    def delivery_ratio(self) -> float:
        return self.delivered / max(1, self.expected)

    @property
    def on_time_ratio(self) -> float:
        return self.on_time / max(1, self.expected)


class Book:
    """Publications and their arrivals, of one system in one window."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.published: dict[tuple[int, int], Nanos] = {}
        self._arrived: dict[tuple[int, int], dict[PeerId, Nanos]] = {}
        self._counts: Counter[str] = Counter()

    def publish(self, stamp: Stamp) -> None:
        self.published[stamp.topic, stamp.sequence] = stamp.time_ns

    def arrive(self, subscriber: PeerId, data: bytes, now: Nanos) -> None:
        stamp = read(data)
        if stamp is None or subscriber not in self._world.topics[stamp.topic].subscribers:
            self._counts["strays"] += 1
            return
        arrived = self._arrived.setdefault((stamp.topic, stamp.sequence), {})
        if subscriber in arrived:
            self._counts["duplicates"] += stamp.sequence < WARMUP
        else:
            arrived[subscriber] = now

    def reached(self, topic: int, sequence: int) -> set[PeerId]:
        return set(self._arrived.get((topic, sequence), ()))

    def pairs(self) -> Iterator[tuple[int, int, PeerId, Nanos, Nanos | None]]:
        """Topic, number, subscriber, publication time and delay, of the window's publications."""
        for (topic, sequence), time in sorted(self.published.items()):
            arrived = self._arrived.get((topic, sequence), {})
            for subscriber in self._world.topics[topic].subscribers:
                at = arrived.get(subscriber)
                yield topic, sequence, subscriber, time, None if at is None else at - time

    def figures(self, cutoff_ns: Nanos) -> Figures:
        rows = [
            (delay, self._world.deadline_ns(self._world.topics[topic].publisher, subscriber))
            for topic, _, subscriber, _, delay in self.pairs()
        ]
        delays = [(delay, deadline) for delay, deadline in rows if delay is not None and delay <= cutoff_ns]
        return _figures(len(self.published), len(rows), delays, self._counts)

    def late(self, cutoff_ns: Nanos) -> list[Late]:
        found = []
        for topic, sequence, subscriber, time, delay in self.pairs():
            deadline = self._world.deadline_ns(self._world.topics[topic].publisher, subscriber)
            if delay is None or delay > deadline:
                shown = None if delay is None or delay > cutoff_ns else delay
                found.append(Late(topic, sequence, subscriber, time, shown, deadline))
        return found


def oracle(world: World, published: dict[tuple[int, int], Nanos], cutoff_ns: Nanos) -> tuple[Figures, int]:
    """What was possible for these publications, given the failures that `world.faults` holds; and its packets.

    Times of publications are those of the world: 0 is the start of its run.
    """
    delays: list[tuple[Nanos, Nanos]] = []
    expected = packets = 0
    for (number, _), time in sorted(published.items()):
        topic = world.topics[number]
        expected += len(topic.subscribers)
        arrival, parent = earliest_arrivals(world, topic.publisher, time, set(topic.subscribers))
        used: set[PeerId] = set()
        for subscriber in topic.subscribers:
            if subscriber not in arrival or arrival[subscriber] - time > cutoff_ns:
                continue
            delays.append((arrival[subscriber] - time, world.deadline_ns(topic.publisher, subscriber)))
            hop = subscriber
            while hop != topic.publisher:
                used.add(hop)
                hop = parent[hop]
        packets += len(used)
    return _figures(len(published), expected, delays, Counter()), packets


def _figures(publications: int, expected: int, delays: list[tuple[Nanos, Nanos]], counts: Counter[str]) -> Figures:
    p50, p99 = np.percentile([delay for delay, _ in delays], [50, 99]) if delays else (0.0, 0.0)
    return Figures(
        publications=publications,
        expected=expected,
        delivered=len(delays),
        on_time=sum(delay <= deadline for delay, deadline in delays),
        p50_ms=float(p50) / MS,
        p99_ms=float(p99) / MS,
        duplicates=counts["duplicates"],
        strays=counts["strays"],
    )
