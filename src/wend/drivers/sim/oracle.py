"""ORACLE: the best possible delivery, with knowledge of every past and future failure of links and peers.

It computes the earliest arrival of each publication at every subscriber (`drivers/arrivals.py`). No peer can know the
future, so this is a computation beside the simulator, not a strategy. It ignores packet loss and other disturbances on
links that are up, and the time that a peer takes to find its neighbours after a restart.
"""

from collections import Counter

from wend.drivers.arrivals import find_best_deliveries
from wend.drivers.world import World
from wend.model.errors import ConfigError
from wend.model.events import EventId, PeerId
from wend.model.trace import Trace
from wend.model.units import Nanos
from wend.protocol.config import DeliverySettings


class Oracle:
    """Plays the workload of a world and fills the same trace and counters as the engine."""

    def __init__(self, world: World) -> None:
        if world.scenario.churn is not None:
            raise ConfigError("oracle knows links and peers that fail, not peers that leave: leave churn out")
        if world.has_capacities:
            raise ConfigError("oracle knows no capacities: leave capacity and peer_capacity out")
        self.world = world
        self.trace = Trace()
        self.control: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self.notices: Counter[str] = Counter()
        self.transmissions = 0
        self.transmissions_unicast = 0
        self.expected: dict[EventId, tuple[Nanos, tuple[PeerId, ...]]] = {}
        self._stores = world.scenario.of(DeliverySettings).persistence
        self._sequence: Counter[tuple[PeerId, int]] = Counter()
        """By publisher and incarnation: the number of its last event."""

    def run(self) -> None:
        world = self.world
        when = [
            (time, number)
            for number, topic in enumerate(world.topics)
            for time in topic.publication_times(world.begin_ns, world.stop_ns)
        ]
        for peer, start, until in world.peer_faults.outages():
            self.trace.faults.add(start, "peer", peer, peer, until)
        for index, start, until in world.faults.outages():
            link = world.overlay.links[index]
            self.trace.faults.add(start, "link", link.a, link.b, until)
        for now, number in sorted(when):
            self._publish(now, number)

    def _publish(self, now: Nanos, number: int) -> None:
        topic = self.world.topics[number]
        publisher = topic.publisher
        if not self.world.peer_faults.is_up(publisher, now):
            self.notices["publisher-down"] += 1
            return
        incarnation = sum(start <= now for start, _ in self.world.incarnations[publisher])
        self._sequence[publisher, incarnation] += 1
        id_ = EventId(publisher, incarnation, self._sequence[publisher, incarnation])
        event = self.world.make_event(topic, now)
        is_up = self.world.peer_faults.is_up
        subscribers = tuple(peer for peer in event.subscribers if self._stores or is_up(peer, now))
        self.expected[id_] = (now, subscribers)
        self.trace.publications.add(now, *id_, event.name, len(subscribers))
        if not subscribers:
            return
        delays, shared, unicast = find_best_deliveries(self.world, publisher, now, subscribers)
        self.transmissions += shared
        self.transmissions_unicast += unicast
        for subscriber in subscribers:
            if subscriber in delays:
                delay, deadline = delays[subscriber], self.world.deadline_ns(publisher, subscriber)
                self.trace.deliveries.add(now + delay, *id_, subscriber, event.number, delay, deadline)
            else:
                self.drops["no route in time"] += 1
                self.trace.drops.add(now, publisher, *id_, subscriber, "no route in time")
