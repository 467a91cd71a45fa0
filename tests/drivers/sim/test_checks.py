"""Each property on traces written by hand: what breaks it, and what does not."""

from collections.abc import Callable

import pytest

from wend.drivers.scenarios import Scenario
from wend.drivers.sim import Outcome, checks, simulate
from wend.drivers.sim.checks import (
    Violation,
    check,
    check_properties,
    is_healed,
    promised_properties,
)
from wend.drivers.world import World, build_world
from wend.model.events import EventId
from wend.model.trace import Trace
from wend.model.units import SECOND
from wend.protocol.notices import NO_ROOM
from wend.strategies.registry import linked_strategies

CALM = Scenario(
    seed=3, topology="full-mesh", peers=6, topics=2, popularity=(1.0, 1.0), pf=0.0, persistence=True, duration="2s",
    drain="21s",
)  # fmt: skip


def world() -> World:
    made = build_world(CALM)
    assert all(len(topic.subscribers) >= 2 for topic in made.topics)
    return made


def outcome(write: Callable[[Trace, World], None], made: World | None = None) -> Outcome:
    made = made or world()
    trace = Trace()
    write(trace, made)
    return Outcome(simulate(CALM).summary, trace, made)


def publish(trace: Trace, made: World, time: int = 10, sequence: int = 1, topic: int = 0) -> EventId:
    id_ = EventId(made.topics[topic].publisher, 1, sequence)
    trace.publications.add(time, *id_, made.topics[topic].name, len(made.topics[topic].subscribers))
    return id_


def notify(trace: Trace, id_: EventId, peer: int, time: int = 20, number: int = 0) -> None:
    trace.deliveries.add(time, *id_, peer, number, time - 10, 100)


def everybody(trace: Trace, made: World) -> None:
    id_ = publish(trace, made)
    for subscriber in made.topics[0].subscribers:
        notify(trace, id_, subscriber)


def broken(write: Callable[[Trace, World], None]) -> list[str]:
    return sorted({v.property for v in check(outcome(write))})


def test_all_is_well() -> None:
    assert broken(everybody) == []
    assert check(simulate(CALM)) == []


def test_safety_a_notification_of_nothing() -> None:
    def write(trace: Trace, made: World) -> None:
        everybody(trace, made)
        notify(trace, EventId(made.topics[0].publisher, 1, 77), made.topics[0].subscribers[0])

    (found,) = check(outcome(write))
    subscriber = world().topics[0].subscribers[0]
    publisher = world().topics[0].publisher
    assert found == Violation(
        "safety",
        EventId(publisher, 1, 77),
        subscriber,
        20,
        "notified of an event that nobody published",
        CALM.strategy,
        3,
    )
    assert str(found) == (
        f"safety of event {publisher}.1.77 is broken at peer {subscriber}, 0.000000 s: "
        f"notified of an event that nobody published ({CALM.strategy}, seed 3)"
    )


def test_safety_a_notification_before_the_publication() -> None:
    def write(trace: Trace, made: World) -> None:
        id_ = publish(trace, made, time=30)
        for subscriber in made.topics[0].subscribers:
            notify(trace, id_, subscriber, time=29)

    assert broken(write) == ["safety"]


def test_safety_a_notification_of_who_did_not_ask() -> None:
    def write(trace: Trace, made: World) -> None:
        everybody(trace, made)
        notify(trace, EventId(made.topics[0].publisher, 1, 1), made.topics[0].publisher)

    assert broken(write) == ["safety"]


def test_safety_a_notification_of_another_subscription() -> None:
    def write(trace: Trace, made: World) -> None:
        id_ = publish(trace, made)
        for subscriber in made.topics[0].subscribers:
            notify(trace, id_, subscriber, number=1)

    assert broken(write) == ["safety"]


def test_integrity() -> None:
    def write(trace: Trace, made: World) -> None:
        everybody(trace, made)
        notify(trace, EventId(made.topics[0].publisher, 1, 1), made.topics[0].subscribers[0], time=44)

    (found,) = check(outcome(write))
    assert (found.property, found.time_ns, found.peer) == ("integrity", 44, world().topics[0].subscribers[0])


def test_validity_and_liveness_when_nobody_is_notified() -> None:
    def write(trace: Trace, made: World) -> None:
        publish(trace, made)

    assert broken(write) == ["liveness", "validity"]


def test_one_of_many_events_lost_for_all_breaks_validity_alone() -> None:
    def write(trace: Trace, made: World) -> None:
        everybody(trace, made)
        publish(trace, made, time=15, sequence=2)

    (found,) = check(outcome(write))
    assert (found.property, found.event, found.time_ns) == ("validity", EventId(world().topics[0].publisher, 1, 2), 15)


def test_one_of_many_subscribers_forgotten_once_breaks_agreement_alone() -> None:
    def write(trace: Trace, made: World) -> None:
        everybody(trace, made)
        id_ = publish(trace, made, time=15, sequence=2)
        for subscriber in made.topics[0].subscribers[1:]:
            notify(trace, id_, subscriber, time=25)

    (found,) = check(outcome(write))
    assert (found.property, found.peer, found.time_ns) == ("agreement", world().topics[0].subscribers[0], 25)


def test_a_subscriber_forgotten_always_breaks_liveness_too() -> None:
    def write(trace: Trace, made: World) -> None:
        id_ = publish(trace, made)
        for subscriber in made.topics[0].subscribers[1:]:
            notify(trace, id_, subscriber)

    assert broken(write) == ["agreement", "liveness"]


def test_what_was_evicted_aloud_is_excused_and_other_drops_are_not() -> None:
    def write(reason: str) -> Callable[[Trace, World], None]:
        def written(trace: Trace, made: World) -> None:
            id_ = publish(trace, made)
            first, *rest = made.topics[0].subscribers
            for subscriber in rest:
                notify(trace, id_, subscriber)
            trace.drops.add(15, 0, *id_, first, reason)

        return written

    assert broken(write(NO_ROOM)) == []
    assert broken(write("no-route-left")) == ["agreement", "liveness"]


# ---------------------------------------------------------------- what is promised when


@pytest.mark.parametrize("strategy", [*linked_strategies(), "oracle"])
def test_every_strategy_promises_safety_and_integrity_always_and_the_rest_when_all_has_healed(strategy: str) -> None:
    def word(**changes: object) -> tuple[str, ...]:
        return promised_properties(build_world(CALM.with_(strategy=strategy, **changes)))

    everything = ("safety", "integrity", "liveness", "agreement", "validity")
    assert word() == everything
    assert word(persistence=False) == everything[:2]
    assert word(pf=0.5) == everything[:2]
    assert word(pf=0.5, heal="2s") == everything
    assert word(drain="19s") == everything[:2]
    assert word(pl=0.5) == everything[:2]


def test_a_fault_that_ends_late_is_not_healed() -> None:
    made = build_world(CALM.with_(pf=0.5, heal="2s"))
    assert is_healed(made)
    assert max(until for *_, until in made.faults.outages()) <= made.begin_ns + 2 * SECOND
    assert not is_healed(build_world(CALM.with_(pf=0.5, heal="8s")))


def test_properties_can_be_asked_for_without_a_promise() -> None:
    lossy = simulate(CALM.with_(pf=0.5, strategy="d-tree", persistence=False))
    assert check(lossy) == []
    assert {v.property for v in check_properties(lossy, ("agreement", "validity"))} <= {"agreement", "validity"}
    assert check_properties(lossy, ("agreement",))
    assert set(checks.CHECKS) | {"timeliness"} == {*promised_properties(world()), "timeliness"}
