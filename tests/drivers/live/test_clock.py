"""The clock that stops while the event loop stalls, and metrics of events that had time to arrive."""

import pytest

from wend.drivers.live import clock as clocks
from wend.drivers.live.clock import BEAT_NS, STRIDE_NS, SteadyClock
from wend.drivers.live.comparison.meter import Meter, OracleMeter, TrackedPublication
from wend.drivers.scenarios import Scenario
from wend.drivers.world import build_world
from wend.model.events import EventId
from wend.model.units import MS, SECOND


class Machine:
    """The machine's monotonic time, set by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000 * SECOND
        monkeypatch.setattr(clocks, "monotonic", lambda: self.now)


def test_the_clock_follows_the_machine_while_the_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    clock = SteadyClock()
    for _ in range(100):
        machine.now += BEAT_NS
        clock.advance()
    assert clock() == machine.now
    assert clock.stalled_ns == 0


def test_the_clock_stops_while_the_loop_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    clock = SteadyClock()
    begin = clock()
    machine.now += 500 * MS
    assert clock() == begin + STRIDE_NS
    clock.advance()
    assert clock() == begin + STRIDE_NS
    assert clock.stalled_ns == 500 * MS - STRIDE_NS
    machine.now += 1 * MS
    assert clock() == begin + STRIDE_NS + 1 * MS


def test_metrics_count_events_that_had_time_to_arrive() -> None:
    world = build_world(Scenario(peers=6, degree=3, topics=1, popularity=(1.0, 1.0), pf=0.0))
    (topic,) = world.topics
    meter = Meter(world)
    old, new = EventId(topic.publisher, 1, 1), EventId(topic.publisher, 1, 2)
    meter.on_published(old, TrackedPublication(0, topic))
    meter.on_published(new, TrackedPublication(10 * SECOND, topic))
    meter.count_data(old, 2)
    meter.count_data(new, 1)
    meter.count_control("acks")
    first, second, *_ = topic.subscribers
    meter.on_delivered(old, first, world.deadline_ns(topic.publisher, first))
    meter.on_delivered(old, first, 1)
    meter.on_delivered(old, second, 60 * SECOND)
    meter.settle(5 * SECOND)
    shown = meter.summary(2 * SECOND)
    assert (shown.publications, shown.expected) == (1, 5)
    assert (shown.delivered, shown.delivered_on_time) == (2, 1)
    assert (shown.data_packets, shown.data_packets_unicast) == (1, 2)
    assert shown.control["acks"] == 1
    assert shown.notices == {"delivered-twice": 1}
    meter.on_delivered(old, second, 61 * SECOND)
    assert meter.notices["after-settling"] == 1


def test_without_failures_the_oracle_takes_shortest_paths() -> None:
    world = build_world(Scenario(peers=6, degree=3, topics=1, popularity=(1.0, 1.0), pf=0.0))
    (topic,) = world.topics
    oracle = OracleMeter(world)
    flight = TrackedPublication(0, topic)
    oracle.on_published(flight, world.begin_ns)
    oracle.settle(1)
    assert flight.arrived == {s: world.shortest_ns[topic.publisher][s] for s in topic.subscribers}
    assert oracle.summary(SECOND).on_time == 1.0
