"""Esposito's properties (section 2.1) as checks on a trace.

    safety      a subscriber is notified only of events that were published earlier and match its subscription
    integrity   a subscription is notified at most once of an event
    liveness    a subscriber is notified of at least one matching event, if there is one
    agreement   if one subscriber of an event is notified, all are
    validity    at least one subscriber of every event is notified (the print says "exactly one")

The sixth, timeliness (subscribers are notified before the deadline), is counted (`Summary.on_time`), never guaranteed.

Every strategy guarantees safety and integrity always, and the next three with persistence, once every fault has healed.
Events that a full retry queue or a plan reported as dropped are excused. The guarantees concern active subscriptions,
so an event is also excused at a peer that leaves later, is away, or has just joined again. docs/guarantees.md states
the limits of integrity. A violation names the seed that replays it.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Literal

import msgspec

from wend.drivers.sim.missing import REJOIN_NS
from wend.drivers.sim.run import Outcome
from wend.drivers.workload import WorkloadEvent
from wend.drivers.world import World
from wend.model.events import EventId, PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.config import DeliverySettings
from wend.protocol.notices import NO_ROOM, REFUSED

Property = Literal["safety", "integrity", "liveness", "agreement", "validity"]

ALWAYS: tuple[Property, ...] = ("safety", "integrity")
ONCE_HEALED: tuple[Property, ...] = ("liveness", "agreement", "validity")
"""Guaranteed if persistence is on and every fault has healed."""
SETTLE_NS: Nanos = 20 * SECOND
"""How long a run must continue after its last fault and publication; otherwise these properties are not checked."""
FAIR_LOSS = 0.2
"""A link that loses a greater share does not count as healed; nor does a route of links that a strategy uses as a
link."""


class Violation(msgspec.Struct, frozen=True):
    """A property that does not hold in a run."""

    property: Property
    event: EventId | None
    """None if the property concerns a subscription, not one event."""
    peer: PeerId
    time_ns: Nanos
    why: str
    strategy: str
    seed: int

    def __str__(self) -> str:
        event = "" if self.event is None else f" of event {self.event}"
        return (
            f"{self.property}{event} is broken at peer {self.peer}, {self.time_ns / SECOND:.6f} s: {self.why} "
            f"({self.strategy}, seed {self.seed})"
        )


class TraceFacts:
    """The publications and notifications of a trace, by event."""

    def __init__(self, outcome: Outcome) -> None:
        self.world: World = outcome.world
        topics = {topic.name: topic for topic in self.world.topics}
        self._outcome = outcome
        self.published: dict[EventId, tuple[Nanos, WorkloadEvent]] = {
            EventId(publisher, incarnation, sequence): (time, self.world.make_event(topics[topic], time))
            for time, publisher, incarnation, sequence, topic, _ in outcome.trace.publications.rows()
        }
        self.notified: list[tuple[Nanos, EventId, PeerId, int]] = [
            (time, EventId(publisher, incarnation, sequence), subscriber, subscription)
            for time, publisher, incarnation, sequence, subscriber, subscription, _, _ in (
                outcome.trace.deliveries.rows()
            )
        ]

    @cached_property
    def notified_subscribers(self) -> dict[EventId, dict[PeerId, Nanos]]:
        """By event: the notified subscribers, each with the time of its first notification."""
        reached: dict[EventId, dict[PeerId, Nanos]] = {id_: {} for id_ in self.published}
        for time, id_, subscriber, _ in self.notified:
            reached.setdefault(id_, {}).setdefault(subscriber, time)
        return reached

    @cached_property
    def evicted_deliveries(self) -> set[tuple[EventId, PeerId]]:
        return {
            (EventId(publisher, incarnation, sequence), dest)
            for _, _, publisher, incarnation, sequence, dest, reason in self._outcome.trace.drops.rows()
            if reason in (NO_ROOM, REFUSED)
        }

    @cached_property
    def settled_ns(self) -> dict[PeerId, Nanos]:
        """By peer that ever left: the time from which its subscriptions stay active."""
        settled: dict[PeerId, Nanos] = {}
        for peer, _, until in self.world.churn.outages():
            settled[peer] = max(settled.get(peer, 0), until + REJOIN_NS)
        return settled

    def due_subscribers(self, id_: EventId) -> tuple[PeerId, ...]:
        """The subscribers that must be notified of an event."""
        time, event = self.published[id_]
        return tuple(
            s
            for s in event.subscribers
            if (id_, s) not in self.evicted_deliveries and time >= self.settled_ns.get(s, 0)
        )


Finding = tuple[EventId | None, PeerId, Nanos, str]


def _check_safety(facts: TraceFacts) -> Iterator[Finding]:
    for time, id_, subscriber, subscription in facts.notified:
        if id_ not in facts.published:
            yield id_, subscriber, time, "notified of an event that nobody published"
            continue
        published, event = facts.published[id_]
        if published > time:
            yield id_, subscriber, time, "notified before it was published"
        if subscriber not in event.subscribers or subscription != event.number:
            yield id_, subscriber, time, f"notified of {event.name}, to which it did not subscribe"


def _check_integrity(facts: TraceFacts) -> Iterator[Finding]:
    seen: set[tuple[EventId, PeerId, int]] = set()
    for time, id_, subscriber, subscription in facts.notified:
        key = (id_, subscriber, subscription)
        if key in seen:
            yield id_, subscriber, time, "notified again"
        seen.add(key)


def _check_liveness(facts: TraceFacts) -> Iterator[Finding]:
    waiting: dict[tuple[str, PeerId], Nanos] = {}
    notified: set[tuple[str, PeerId]] = set()
    for id_, (time, topic) in facts.published.items():
        for subscriber in facts.due_subscribers(id_):
            waiting.setdefault((topic.name, subscriber), time)
            if subscriber in facts.notified_subscribers[id_]:
                notified.add((topic.name, subscriber))
    for (name, subscriber), time in waiting.items():
        if (name, subscriber) not in notified:
            yield None, subscriber, time, f"never notified of anything in {name}"


def _check_agreement(facts: TraceFacts) -> Iterator[Finding]:
    for id_ in facts.published:
        if reached := facts.notified_subscribers[id_]:
            first = min(reached, key=lambda peer: (reached[peer], peer))
            for subscriber in facts.due_subscribers(id_):
                if subscriber not in reached:
                    yield id_, subscriber, reached[first], f"peer {first} was notified, this one never"


def _check_validity(facts: TraceFacts) -> Iterator[Finding]:
    for id_, (time, _) in facts.published.items():
        if facts.due_subscribers(id_) and not facts.notified_subscribers[id_]:
            yield id_, id_.publisher, time, "published here, and nobody was notified"


CHECKS: dict[Property, Callable[[TraceFacts], Iterator[Finding]]] = {
    "safety": _check_safety,
    "integrity": _check_integrity,
    "liveness": _check_liveness,
    "agreement": _check_agreement,
    "validity": _check_validity,
}


def check(outcome: Outcome) -> list[Violation]:
    """The violations of the properties that the strategy guarantees for such a run."""
    return check_properties(outcome, promised_properties(outcome.world))


def check_properties(outcome: Outcome, properties: tuple[Property, ...]) -> list[Violation]:
    """The violations of these properties, guaranteed or not."""
    facts, scenario = TraceFacts(outcome), outcome.world.scenario
    return [
        Violation(name, event, peer, time, why, scenario.strategy, scenario.seed)
        for name in properties
        for event, peer, time, why in CHECKS[name](facts)
    ]


def promised_properties(world: World) -> tuple[Property, ...]:
    """The properties that the strategy guarantees for a run in this world.

    Without persistence, a peer that restarts tells by an event's age whether it may already have delivered the event.
    It cannot know how long a link held the packet back."""
    if world.scenario.of(DeliverySettings).persistence:
        return (*ALWAYS, *ONCE_HEALED) if is_healed(world) else ALWAYS
    restarts = any(True for what in (world.peer_faults, world.churn) for _ in what.outages())
    holds = world.disturbances is not None and any(what != "corruption" for what, _ in world.disturbances.periods())
    return ("safety",) if restarts and holds else ALWAYS


def is_healed(world: World) -> bool:
    """Whether all faults end early enough before the end of the run."""
    kinds = (world.faults, world.peer_faults, world.churn)
    last = max([world.stop_ns, *(until for what in kinds for *_, until in what.outages())])
    if world.disturbances is not None:
        periods = world.disturbances.periods()
        last = max([last, *(until for what, (*_, until) in periods if what in ("delay", "congestion"))])
    return last + SETTLE_NS <= world.end_ns and _worst_loss(world.for_strategy(world.scenario.strategy)) <= FAIR_LOSS


def _worst_loss(world: World) -> float:
    """The share of packets that the worst link, or route of links, loses or corrupts."""
    lost = [link.loss for link in world.overlay.links]
    if world.disturbances is not None:
        pairs = zip(lost, world.disturbances.links, strict=True)
        lost = [1 - (1 - loss) * (1 - conditions.corruption) for loss, conditions in pairs]
    return max(lost, default=0.0)
