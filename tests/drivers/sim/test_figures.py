"""The paper's figures at a reduced size: wider tolerances, but such that a wrong reading falls out."""

from statistics import fmean

import pytest

from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate

SEEDS = (1, 2, 3)
MESH = {"topology": "full-mesh", "ack": "free"}


def mean(metric: str, **fields: object) -> float:
    return fmean(
        getattr(simulate(Scenario(seed=seed, pf=0.1, duration="120s").with_(**fields)).summary, metric)
        for seed in SEEDS
    )


@pytest.mark.parametrize(
    ("strategy", "metric", "value", "tolerance"),
    [
        ("dcrd", "on_time", 0.971, 0.010),
        ("dcrd", "delivery", 1.0, 0.001),
        ("oracle", "on_time", 0.996, 0.004),
        ("r-tree", "delivery", 0.900, 0.015),
        ("d-tree", "delivery", 0.855, 0.025),
        ("multipath", "delivery", 0.975, 0.010),
    ],
)
def test_full_mesh(strategy: str, metric: str, value: float, tolerance: float) -> None:
    assert mean(metric, strategy=strategy, **MESH) == pytest.approx(value, abs=tolerance)


def test_degree_5() -> None:
    assert mean("on_time", strategy="dcrd", degree=5, ack="free") == pytest.approx(0.948, abs=0.015)


def test_round_trip() -> None:
    """A physical ACK costs the paper's strategy five points: 0.971 must not pass for this."""
    assert mean("on_time", strategy="dcrd", topology="full-mesh", ack="round-trip") == pytest.approx(0.925, abs=0.018)


def test_few_failures() -> None:
    assert mean("on_time", strategy="dcrd", pf=0.04, **MESH) == pytest.approx(0.992, abs=0.004)
