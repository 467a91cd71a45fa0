"""Random worlds with capacities and overload: links and peers fail, queues drop, and other traffic takes its share.

`python -m tests.drivers.sim.overloaded_worlds 1000` plays so many worlds, prints the seeds that fail and what happened
by strategy. A second number is the first seed.

A world is wrong if a strategy breaks what it promises there (`drivers/sim/checks.py`), or if a send queue holds more
bytes than it may. Not lost are events that a peer still retries at the end, and those whose publisher had not heard of
the subscription: links may be too slow for either. Every fourth world is one link between two peers without failures.
Its controller has to use the link, and to leave the queue of the link short.
"""

from collections import Counter
from typing import Any

import numpy as np

from tests import world_command
from tests.drivers.sim import many_worlds
from tests.drivers.sim.many_worlds import WorldTable
from tests.scenarios import random_scenario
from wend.drivers.scenarios import Scenario, make_scenario
from wend.drivers.sim.capacity import CapacityNetwork, LimitedPeer
from wend.drivers.sim.checks import ONCE_HEALED, Violation, check
from wend.drivers.sim.engine import Engine
from wend.drivers.sim.managed_network import ManagedNetwork
from wend.drivers.sim.network import FAULT
from wend.drivers.sim.run import Outcome, summarise_run
from wend.drivers.world import World, build_world
from wend.model.events import EventId, PeerId
from wend.model.random_stream import peer_stream
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import LinkSettings
from wend.protocol.link.link import Link
from wend.strategies.registry import ROUTING, linked_strategies

STRATEGIES = tuple(sorted(linked_strategies()))
CONTROLLED = tuple(name for name in STRATEGIES if ROUTING[name].needs.congestion_control)
"""The strategies with congestion control."""
LOOK_NS: Nanos = 20 * MS
LOOK = "look"
"""The entry of the agenda at which an engine looks at its queues."""
SETTLED_NS: Nanos = 2 * SECOND
"""When a controller has found the capacity of its link, after the first publication."""
MIN_USED, MIN_USED_WITH_LOSS = 0.9, 0.6
"""The share of its capacity that a single overloaded link must carry."""
LONGEST_QUEUE_NS: Nanos = 60 * MS
LONGEST_QUEUE_PACKETS = 4
"""How long a packet may wait in the queue of such a link, in the median; the longer one of the two counts."""


class ObservedEngine(Engine):
    """An engine that looks at all send queues, and at the queues of links, every few milliseconds."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.wrong: list[str] = []
        self.waits_ns: list[Nanos] = []
        """At each look: how long the next packet would wait in the queue of the busiest link."""
        self.most_queued = 0
        """The most bytes that any send queue held."""

    def schedule_all(self) -> None:
        super().schedule_all()
        for at in range(self.world.begin_ns, self.world.stop_ns, LOOK_NS):
            self.agenda.push(at, FAULT, 0, LOOK)

    def apply_fault(self, now: Nanos, peer: PeerId, what: Any) -> Any:
        if what != LOOK:
            return super().apply_fault(now, peer, what)
        limit = self.scenario.of(LinkSettings).send_queue_limit
        for number, target in enumerate(self.peers):
            alive = target.peer if isinstance(target, LimitedPeer) else target
            for link in () if alive is None else alive.links.values():
                self._check(number, link, limit)
        assert isinstance(self.network, CapacityNetwork | ManagedNetwork)
        self.waits_ns.append(max(self.network.waits_ns(now), default=0))
        return []

    def _check(self, peer: PeerId, link: Link, limit: int) -> None:
        if link.sender is None:
            return
        held = link.sender.queued_bytes
        self.most_queued = max(self.most_queued, held)
        if not 0 <= held <= limit:
            self.wrong.append(f"the send queue from {peer} to {link.peer} holds {held} bytes, {limit} may wait")
        if link.sender.flight_bytes < 0:
            self.wrong.append(f"{link.sender.flight_bytes} bytes are in flight from {peer} to {link.peer}")


def world_of(seed: int, strategies: tuple[str, ...] = STRATEGIES) -> ObservedEngine:
    """The world of a seed. Strategies without congestion control have no use for a single link."""
    controlled = tuple(name for name in strategies if name in CONTROLLED)
    scenario = single_link(seed, controlled) if seed % 4 == 0 and controlled else _overlay(seed, strategies)
    return ObservedEngine(build_world(scenario))


def single_link(seed: int, strategies: tuple[str, ...]) -> Scenario:
    """Two peers, a link with a long queue, and more events than it can carry."""
    draw = peer_stream(seed, "single link")
    capacity = draw.choice([40.0, 100.0, 250.0])
    delay_ms = draw.choice([2.0, 10.0, 40.0, 80.0])
    return make_scenario(
        {
            "seed": seed,
            "strategy": draw.choice(strategies),
            "peers": 2,
            "degree": 1,
            "topics": 1,
            "popularity": (1.0, 1.0),
            "delay": (f"{delay_ms}ms", f"{delay_ms}ms"),
            "pf": 0.0,
            "pl": draw.choice([0.0, 0.0, 0.01]),
            "rate": capacity * draw.choice([1.3, 2.0, 3.0]),
            "link_capacity": f"{capacity}msg/s",
            "queue": int(capacity * draw.choice([0.5, 1.0])),
            "factor": draw.choice([150.0, 300.0, 1000.0]) / delay_ms,
            "duration": "5s",
            "warmup": "2s",
            "drain": "1s",
        }
    )


def _overlay(seed: int, strategies: tuple[str, ...]) -> Scenario:
    """A small overlay whose links or peers are offered between a fraction and a multiple of their capacity."""
    draw = peer_stream(seed, "overloaded world")
    scenario = random_scenario(seed, strategies)
    payload = draw.choice([0, 0, 200, 3000])
    rate = draw.choice([4.0, 8.0, 15.0])
    topics = scenario.topics
    load = draw.choice([0.5, 1.0, 2.0, 5.0])
    msgs = rate * topics / load
    fields: dict[str, Any] = {
        "rate": rate,
        "payload_bytes": payload,
        "link_capacity": f"{msgs * 8 * payload}bit/s" if payload and draw.random() < 0.5 else f"{msgs}msg/s",
        "peer_capacity": draw.choice([None, None, "links", f"{2 * msgs}msg/s"]),
        "queue": draw.choice([2, 10, 64]),
        "charge": draw.choice(["data", "data", "all"]),
        "queue_discipline": draw.choice(["drop-tail", "drop-tail", "codel"]),
        "send_queue_limit": draw.choice([64 * 1024, 4 * 1024 * 1024]),
    }
    if draw.random() < 0.2:
        fields["background_flows"] = {"share": 0.3, "flows": draw.randint(1, 2)}
    return scenario.with_(**fields)


def wrong_in(engine: ObservedEngine) -> list[str]:
    """Play a world. Returns what is wrong."""
    engine.run()
    outcome = Outcome(summarise_run(engine, 0.0), engine.trace, engine.world)
    pending = {event for target in engine.peers if target is not None for event in target.unfinished()}
    broken = [found for found in check(outcome) if not _is_slow(found, pending | engine.unknown.keys())]
    wrong = [*engine.wrong, *map(str, broken)]
    if engine.world.overlay.peers == 2:
        wrong += _controller(engine)
    return wrong


def _is_slow(found: Violation, excused: set[EventId]) -> bool:
    """Whether something is not delivered because links are too slow."""
    return found.property in ONCE_HEALED and (bool(excused) if found.event is None else found.event in excused)


def _controller(engine: ObservedEngine) -> list[str]:
    """What the controller of a single overloaded link does wrong."""
    world = engine.world
    begin = world.begin_ns + SETTLED_NS
    capacity = world.overlay.links[0].capacity_msgs
    came = sum(begin <= row[0] < world.stop_ns for row in engine.trace.deliveries.rows())
    used = came * SECOND / (world.stop_ns - begin) / capacity
    waited = float(np.median(engine.waits_ns[SETTLED_NS // LOOK_NS :]))
    wrong = []
    least = MIN_USED_WITH_LOSS if world.scenario.pl else MIN_USED
    if used < least:
        wrong.append(f"the link carries {used:.2f} of its capacity, {least} is the least")
    longest = max(LONGEST_QUEUE_NS, LONGEST_QUEUE_PACKETS * SECOND / capacity)
    if waited > longest:
        wrong.append(f"packets wait for {waited / MS:.0f} ms at the link, {longest / MS:.0f} ms is the longest")
    return wrong


COLUMNS = ("published", "due", "delivered", "dropped by queues", "congested", "link-down", "most bytes in a send queue")


def play(seeds: range) -> int:
    """How many of these worlds are not as they should be."""
    return many_worlds.play(seeds, WorldTable(STRATEGIES, COLUMNS, summed=False), world_of, wrong_in, _count)


def _count(engine: ObservedEngine, found: Counter[str]) -> None:
    found["published"] += len(engine.expected)
    found["due"] += sum(len(subscribers) for _, subscribers in engine.expected.values())
    found["delivered"] += len(engine.trace.deliveries)
    found["dropped by queues"] += sum(engine.drops[reason] for reason in ("queue-full", "peer-queue-full"))
    found["congested"] += engine.notices["congested"]
    found["link-down"] += engine.notices["link-down"]
    found["most bytes in a send queue"] = max(found["most bytes in a send queue"], engine.most_queued)


if __name__ == "__main__":
    world_command.main(play, __doc__)
