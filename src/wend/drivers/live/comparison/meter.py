"""Metrics of a live overlay, counted while it runs.

The meter counts every packet and delivery for the publication that caused it. A publication enters the metrics only
when it is old enough to have arrived; otherwise events in transit would count as lost. All peers of an overlay share
one meter and one clock, so delays are exact.
"""

import random
from array import array
from collections import Counter, deque

from wend.drivers.arrivals import find_best_deliveries
from wend.drivers.live.counters import Counters
from wend.drivers.summaries import DeliveryCounts, make_summary
from wend.drivers.workload import Topic
from wend.drivers.world import World
from wend.model.events import EventId, PeerId
from wend.model.summary import LATE, Summary
from wend.model.units import SECOND, Nanos

SAMPLE = 50_000
"""Percentiles are computed from so many deliveries, drawn evenly from all. They are exact until there are more."""


class TrackedPublication:
    """One publication, its packets and its deliveries so far."""

    __slots__ = ("arrived", "packets", "time_ns", "topic", "unicast")

    def __init__(self, time_ns: Nanos, topic: Topic) -> None:
        self.time_ns = time_ns
        self.topic = topic
        self.packets = 0
        self.unicast = 0
        self.arrived: dict[PeerId, Nanos] = {}


class SettledTotals:
    """The metrics of all settled publications."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.publications = 0
        self.expected = 0
        self.on_time = 0
        self.packets = 0
        self.unicast = 0
        self.delivered = 0
        self._delay_sum_ns = 0
        self._within = [0] * len(LATE)
        self._sample = array("q")
        self._random = random.Random("sample of delays")

    @property
    def sample_size(self) -> int:
        return len(self._sample)

    def add(self, flight: TrackedPublication) -> None:
        topic = flight.topic
        self.publications += 1
        self.expected += len(topic.subscribers)
        self.packets += flight.packets
        self.unicast += flight.unicast
        for subscriber, delay in flight.arrived.items():
            deadline = self.world.deadline_ns(topic.publisher, subscriber)
            self._count_arrival(delay, deadline)

    def _count_arrival(self, delay: Nanos, deadline: Nanos) -> None:
        self.delivered += 1
        self._delay_sum_ns += delay
        if delay <= deadline:
            self.on_time += 1
        else:
            for place, bound in enumerate(LATE):
                self._within[place] += delay <= bound * deadline
        if len(self._sample) < SAMPLE:
            self._sample.append(delay)
        elif (place := self._random.randrange(self.delivered)) < SAMPLE:
            self._sample[place] = delay

    def summary(self, control: Counter[str], drops: Counter[str], notices: Counter[str], elapsed_ns: Nanos) -> Summary:
        mean_ns = self._delay_sum_ns / max(1, self.delivered)
        return make_summary(
            DeliveryCounts(self.delivered, self.on_time, tuple(self._within), mean_ns, self._sample),
            publications=self.publications,
            expected=self.expected,
            data_packets=self.packets,
            data_packets_unicast=self.unicast,
            control=control,
            drops=drops,
            notices=notices,
            wall_s=elapsed_ns / SECOND,
        )


class Meter(Counters):
    """The counters of all peers of an overlay, which also count the data packets of each publication."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.totals = SettledTotals(world)
        self._flights: dict[EventId, TrackedPublication] = {}
        """The publications that are not in the totals yet, in their order."""

    def begin(self) -> None:
        """Forget the control packets of the start: the next ones are the cost of running."""
        self.control.clear()
        self.notices.clear()

    def on_published(self, id_: EventId, flight: TrackedPublication) -> None:
        self._flights[id_] = flight

    def count_data(self, id_: EventId, destinations: int) -> None:
        super().count_data(id_, destinations)
        flight = self._flights.get(id_)
        if flight is not None:
            flight.packets += 1
            flight.unicast += destinations

    def on_delivered(self, id_: EventId, subscriber: PeerId, now: Nanos) -> None:
        flight = self._flights.get(id_)
        if flight is None:
            self.notices["after-settling"] += 1
        elif subscriber in flight.arrived:
            self.notices["delivered-twice"] += 1
        else:
            flight.arrived[subscriber] = now - flight.time_ns

    def is_complete(self) -> bool:
        """Whether every publication has arrived at all its subscribers."""
        return all(len(each.arrived) >= len(each.topic.subscribers) for each in self._flights.values())

    def settle(self, before_ns: Nanos) -> None:
        """Add the publications before this time to the totals."""
        for id_ in [id_ for id_, flight in self._flights.items() if flight.time_ns < before_ns]:
            self.totals.add(self._flights.pop(id_))

    def summary(self, elapsed_ns: Nanos) -> Summary:
        return self.totals.summary(self.control, self.drops, self.notices, elapsed_ns)


class OracleMeter:
    """The best possible results under the same failures, computed once they are in the past."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.totals = SettledTotals(world)
        self._waiting: deque[tuple[TrackedPublication, Nanos]] = deque()

    def on_published(self, flight: TrackedPublication, since_start_ns: Nanos) -> None:
        self._waiting.append((flight, since_start_ns))

    def is_complete(self) -> bool:
        """Always: the oracle computes arrivals, and waits for none."""
        return True

    def settle(self, before_ns: Nanos) -> None:
        while self._waiting and self._waiting[0][0].time_ns < before_ns:
            flight, now = self._waiting.popleft()
            topic = flight.topic
            flight.arrived, flight.packets, flight.unicast = find_best_deliveries(
                self.world, topic.publisher, now, topic.subscribers
            )
            self.totals.add(flight)

    def summary(self, elapsed_ns: Nanos) -> Summary:
        return self.totals.summary(Counter(), Counter(), Counter(), elapsed_ns)
