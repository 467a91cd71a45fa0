"""ORACLE: the best possible delivery, with knowledge of every past and future failure.

It computes the earliest arrival of each publication at every subscriber (`drivers/arrivals.py`). No peer can know the
future, so this is a computation beside the simulator, not a strategy. It ignores packet loss and other disturbances on
links that are up.
"""

from collections import Counter

from wend.drivers.arrivals import earliest_arrivals
from wend.drivers.world import World
from wend.model.errors import ConfigError
from wend.model.events import EventId, PeerId
from wend.model.trace import Trace
from wend.model.units import Nanos


class Oracle:
    """Plays the workload of a world and fills the same trace and counters as the engine."""

    def __init__(self, world: World) -> None:
        for name, given in (("peer_outages", world.scenario.peer_outages), ("churn", world.scenario.churn)):
            if given is not None:
                raise ConfigError(f"oracle knows failing links, not failing peers: leave {name} out")
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

    def run(self) -> None:
        world = self.world
        when = [
            (time, number)
            for number, topic in enumerate(world.topics)
            for time in topic.moments(world.begin_ns, world.stop_ns)
        ]
        for index, start, until in world.faults.outages():
            link = world.overlay.links[index]
            self.trace.faults.add(start, "link", link.a, link.b, until)
        sequence: Counter[PeerId] = Counter()
        for now, number in sorted(when):
            topic = world.topics[number]
            sequence[topic.publisher] += 1
            self._publish(now, number, EventId(topic.publisher, 1, sequence[topic.publisher]))

    def _publish(self, now: Nanos, number: int, id_: EventId) -> None:
        topic = self.world.topics[number]
        event = self.world.publication(topic, now)
        self.expected[id_] = (now, event.subscribers)
        self.trace.publications.add(now, *id_, event.name, len(event.subscribers))
        if not event.subscribers:
            return
        arrival, parent = earliest_arrivals(self.world, topic.publisher, now, set(event.subscribers))
        used: set[PeerId] = set()
        for subscriber in event.subscribers:
            if subscriber not in arrival:
                self.drops["no route in time"] += 1
                self.trace.drops.add(now, topic.publisher, *id_, subscriber, "no route in time")
                continue
            hop = subscriber
            while hop != topic.publisher:
                used.add(hop)
                self.transmissions_unicast += 1
                hop = parent[hop]
            delay, deadline = arrival[subscriber] - now, self.world.deadline_ns(topic.publisher, subscriber)
            self.trace.deliveries.add(arrival[subscriber], *id_, subscriber, event.number, delay, deadline)
        self.transmissions += len(used)
