"""The printed scheme in simulated worlds, with its membership, its elections and the underlay's outages."""

from typing import Any

import pytest

from wend.drivers.scenarios import make_scenario
from wend.drivers.sim import Outcome, simulate

CLUSTERED: dict[str, Any] = {
    "strategy": "esposito",
    "topology": "full-mesh",
    "peers": 24,
    "pl": 0.0,
    "pf": 0.0,
    "topics": 4,
    "rate": 0.2,
    "popularity": (1.0, 1.0),
    "warmup": "25s",
    "duration": "20s",
    "drain": "10s",
}
OUTAGES = {
    "up": {"kind": "exponential", "mean_s": 2000},
    "down": {"kind": "uniform", "low_s": 10, "high_s": 1200},
    "past_s": 10_800,
}


def played(**fields: Any) -> Outcome:
    return simulate(make_scenario(CLUSTERED | fields))


@pytest.mark.parametrize("seed", range(3))
def test_every_subscriber_gets_every_event_once_without_faults(seed: int) -> None:
    outcome = played(seed=seed, clusters=4)
    summary = outcome.summary
    assert summary.delivered == summary.expected > 0
    rows = outcome.trace.deliveries.numbers("subscriber", "publisher", "incarnation", "sequence").tolist()
    assert len(rows) == len({tuple(row) for row in rows}) == summary.delivered


def test_a_single_border_link_that_crashes_costs_events() -> None:
    """Border links fail, too. With a second transit domain the trees have routes that fail apart."""
    shares = {}
    for underlay in ("power-law-single", "power-law"):
        runs = [
            played(seed=seed, underlay=underlay, outages=OUTAGES, partitions=True, reroute_in_domains=True).summary
            for seed in range(3)
        ]
        shares[underlay] = sum(one.delivered for one in runs) / sum(one.expected for one in runs)
    assert shares["power-law-single"] < shares["power-law"]
    assert shares["power-law-single"] < 1


@pytest.mark.parametrize("seed", range(2))
def test_one_backup_is_enough_for_coordinators_that_crash(seed: int) -> None:
    """What is missing is what peers miss while they are down, which is 0.05 to 0.1 of the time."""
    outages = {"up": {"kind": "exponential", "mean_s": 200}, "down": {"kind": "uniform", "low_s": 300, "high_s": 600}}
    summary = played(seed=seed, clusters=3, backups=1, peer_outages=outages, duration="30s").summary
    assert summary.delivered > 0.9 * summary.expected
