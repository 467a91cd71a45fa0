"""The lab's publications, the log of their deliveries, and the metrics computed from it.

The payload of every publication has a marker, the topic, the sequence number and the time of publication. All processes
of the lab read the same monotonic clock, so the difference between two times is the exact delay. The emulated links use
the marker to count the packets that carry publications.
"""

import struct
from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np

from wend.drivers.arrivals import find_best_deliveries
from wend.drivers.world import World
from wend.lab.emulator_control import MARKER
from wend.model.events import PeerId
from wend.model.units import MS, Nanos

_HEAD = struct.Struct("!8sHIq")
MIN_BYTES = _HEAD.size
WARMUP = 1 << 31
"""Sequence numbers from here on belong to the warm-up. Metrics exclude them."""


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """The identity of a publication, and its time."""

    topic: int
    sequence: int
    time_ns: Nanos


def make_payload(stamp: Stamp, size: int) -> bytes:
    return _HEAD.pack(MARKER, stamp.topic, stamp.sequence, stamp.time_ns).ljust(size, b".")


def read_stamp(data: bytes) -> Stamp | None:
    """The stamp of a payload; None if the bench did not make the payload."""
    if len(data) < _HEAD.size or not data.startswith(MARKER):
        return None
    return Stamp(*_HEAD.unpack_from(data)[1:])


class LateDelivery(msgspec.Struct, frozen=True):
    """A publication that a subscriber received late or never. It helps to explain a metric."""

    topic: int
    sequence: int
    subscriber: PeerId
    published_ns: Nanos
    delay_ns: Nanos | None
    deadline_ns: Nanos


class DeliveryMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of one window. They count (publication, subscriber) pairs, except `publications`."""

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


class DeliveryLog:
    """The publications of one system in one window, and their deliveries."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.published: dict[tuple[int, int], Nanos] = {}
        self._arrived: dict[tuple[int, int], dict[PeerId, Nanos]] = {}
        self._counts: Counter[str] = Counter()

    def record_publication(self, stamp: Stamp) -> None:
        self.published[stamp.topic, stamp.sequence] = stamp.time_ns

    def record_delivery(self, subscriber: PeerId, data: bytes, now: Nanos) -> None:
        stamp = read_stamp(data)
        if stamp is None or subscriber not in self._world.topics[stamp.topic].subscribers:
            self._counts["strays"] += 1
            return
        arrived = self._arrived.setdefault((stamp.topic, stamp.sequence), {})
        if subscriber in arrived:
            self._counts["duplicates"] += stamp.sequence < WARMUP
        else:
            arrived[subscriber] = now

    def subscribers_reached(self, topic: int, sequence: int) -> set[PeerId]:
        return set(self._arrived.get((topic, sequence), ()))

    def expected_deliveries(self) -> Iterator[tuple[int, int, PeerId, Nanos, Nanos | None]]:
        """(topic, sequence, subscriber, publication time, delay) of every expected delivery."""
        for (topic, sequence), time in sorted(self.published.items()):
            arrived = self._arrived.get((topic, sequence), {})
            for subscriber in self._world.topics[topic].subscribers:
                at = arrived.get(subscriber)
                yield topic, sequence, subscriber, time, None if at is None else at - time

    def compute_metrics(self, cutoff_ns: Nanos) -> DeliveryMetrics:
        rows = [
            (delay, self._world.deadline_ns(self._world.topics[topic].publisher, subscriber))
            for topic, _, subscriber, _, delay in self.expected_deliveries()
        ]
        delays = [(delay, deadline) for delay, deadline in rows if delay is not None and delay <= cutoff_ns]
        return _make_metrics(len(self.published), len(rows), delays, self._counts)

    def late_deliveries(self, cutoff_ns: Nanos) -> list[LateDelivery]:
        deliveries = []
        for topic, sequence, subscriber, time, delay in self.expected_deliveries():
            deadline = self._world.deadline_ns(self._world.topics[topic].publisher, subscriber)
            if delay is None or delay > deadline:
                shown = None if delay is None or delay > cutoff_ns else delay
                deliveries.append(LateDelivery(topic, sequence, subscriber, time, shown, deadline))
        return deliveries


def compute_best_metrics(
    world: World, published: dict[tuple[int, int], Nanos], cutoff_ns: Nanos
) -> tuple[DeliveryMetrics, int]:
    """The best possible metrics of these publications under the failures in `world.faults`, and the packets needed.

    Times of publications are times of the world: 0 is the start of its run.
    """
    delays: list[tuple[Nanos, Nanos]] = []
    expected = packets = 0
    for (number, _), time in sorted(published.items()):
        topic = world.topics[number]
        expected += len(topic.subscribers)
        best, used, _ = find_best_deliveries(world, topic.publisher, time, topic.subscribers, cutoff_ns)
        delays += [(delay, world.deadline_ns(topic.publisher, subscriber)) for subscriber, delay in best.items()]
        packets += used
    return _make_metrics(len(published), expected, delays, Counter()), packets


def _make_metrics(
    publications: int, expected: int, delays: list[tuple[Nanos, Nanos]], counts: Counter[str]
) -> DeliveryMetrics:
    p50, p99 = np.percentile([delay for delay, _ in delays], [50, 99]) if delays else (0.0, 0.0)
    return DeliveryMetrics(
        publications=publications,
        expected=expected,
        delivered=len(delays),
        on_time=sum(delay <= deadline for delay, deadline in delays),
        p50_ms=float(p50) / MS,
        p99_ms=float(p99) / MS,
        duplicates=counts["duplicates"],
        strays=counts["strays"],
    )
