"""The figures of a live overlay stay exact, and their price stays bounded."""

import pytest

from wend.drivers.live import comparison, meter
from wend.drivers.live.meter import Flight, Totals
from wend.drivers.world import build
from wend.model.scenario import make_scenario
from wend.model.units import MS


def test_counts_are_exact_and_percentiles_come_from_a_bounded_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "SAMPLE", 500)
    world = build(make_scenario({"peers": 6, "degree": 3, "topics": 1, "duration_s": 5, "interest": (1.0, 1.0)}))
    topic = world.topics[0]
    one = topic.subscribers[0]
    deadline = world.deadline_ns(topic.publisher, one)
    totals = Totals(world)
    for number in range(2000):
        flight = Flight(0, topic)
        flight.arrived[one] = deadline * (number + 1) // 1000  # half of them late, up to twice the deadline
        totals.add(flight)
    summary = totals.summary(*[meter.Counter() for _ in range(3)], 1)
    assert (summary.delivered, summary.delivered_on_time) == (2000, 1000)
    assert summary.late_within == {"1.25": 0.25, "1.5": 0.5, "1.75": 0.75}
    assert summary.delay_ms["mean"] * MS == pytest.approx(deadline, rel=0.01)
    assert len(totals._sample) == 500
    assert summary.delay_ms["p50"] * MS == pytest.approx(deadline, rel=0.15)
    assert summary.delay_ms["p99"] * MS == pytest.approx(2 * deadline, rel=0.05)


def test_each_direction_of_a_link_loses_by_itself() -> None:
    world = build(make_scenario({"peers": 6, "degree": 3, "topics": 1, "duration_s": 5}))
    overlay = comparison.LiveOverlay(world, "dcrd", lambda: 0, comparison.deque())
    overlay.link(0)
    states = [pipe._random.getstate() for peer in overlay.peers for pipe in peer.shaper._pipes.values()]
    assert len(set(states)) == 2 * len(world.overlay.links)
    overlay.close()
