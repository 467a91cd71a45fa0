"""How soon outages are known, against outages whose beginning is known."""

import pytest

from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.detection import compute_bfd_rate_hz, compute_detection_delays
from wend.model.summary import DetectionDelays
from wend.model.units import MS, SECOND
from wend.topology.faults import Intervals
from wend.topology.graph import Overlay, OverlayLink

PAIR = Overlay(2, [OverlayLink(0, 1, 20 * MS)])


def faults(*outages: tuple[float, float]) -> Intervals:
    return Intervals(1, [(0, int(a * SECOND), int(b * SECOND)) for a, b in outages])


def at(ms: int, by: int, up: bool = False) -> tuple[int, int, int, bool]:
    return ms * MS, by, 1 - by, up


def test_each_end_of_each_outage_counts_once() -> None:
    noticed = [at(1100, 0), at(1140, 1), at(2050, 0, up=True), at(2060, 1, up=True), at(5300, 1)]
    known = compute_detection_delays(PAIR, faults((1, 2), (5, 6)), noticed)
    assert known.mean == pytest.approx((100 + 140 + 300) / 3)
    assert known.p50 == pytest.approx(140)
    assert known.unnoticed_share == pytest.approx(1 / 4)


def test_who_believed_it_down_already_has_nothing_to_notice() -> None:
    noticed = [at(1100, 0), at(1100, 1), at(2050, 1, up=True), at(3080, 1)]
    known = compute_detection_delays(PAIR, faults((1, 2), (3, 4)), noticed)
    assert known.mean == pytest.approx((100 + 100 + 80) / 3)
    assert known.unnoticed_share == 0.0


def test_outages_that_nobody_noticed_are_said_to_be_unnoticed() -> None:
    assert compute_detection_delays(PAIR, faults((1, 2)), [at(3000, 0)]) == DetectionDelays(unnoticed_share=1.0)
    assert compute_detection_delays(PAIR, faults(), [at(3000, 0)]) == DetectionDelays()


def test_nothing_is_said_where_nobody_looks() -> None:
    assert compute_detection_delays(PAIR, faults((1, 2)), []) == DetectionDelays()
    assert simulate(Scenario(strategy="d-tree", duration="5s", pf=0.1)).summary.outage_known_ms == DetectionDelays()


def test_adaptive_peers_know_within_the_detection_time_and_a_delay() -> None:
    scenario = Scenario(strategy="adaptive", peers=10, degree=4, duration="30s", pf=0.06, delay=("10ms", "30ms"))
    known = simulate(scenario).summary.outage_known_ms
    assert 0 < known.mean <= 160.0 + 30.0
    assert known.unnoticed_share == 0.0


def test_bfd_that_knows_as_soon() -> None:
    # multiplier 3, every 40 ms: on average half an interval passed when the outage begins, and 20 ms are under way
    assert compute_bfd_rate_hz(PAIR, 20 + 2.5 * 40, 3) == pytest.approx(2 * 25)
    assert compute_bfd_rate_hz(PAIR, 20 + 1.5 * 40, 2) == pytest.approx(2 * 25)
    assert (
        compute_bfd_rate_hz(PAIR, 20, 2) is None and compute_bfd_rate_hz(PAIR, 5, 3) is None
    )  # no packet would be there so soon
