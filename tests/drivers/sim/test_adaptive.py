"""What `adaptive` is for, at a reduced size: near the oracle, at a bounded price, with few hellos."""

from statistics import fmean

import pytest

from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.world import build_world
from wend.model.summary import Summary
from wend.protocol.config import LinkSettings

SEEDS = (1, 2, 3)
BASE = Scenario(topology="regular", degree=8, pf=0.06, factor=2.0, duration="100s")


def runs(**fields: object) -> list[Summary]:
    return [simulate(BASE.with_(seed=seed, **fields)).summary for seed in SEEDS]


def on_time(summaries: list[Summary]) -> float:
    return fmean(s.on_time for s in summaries)


def packets(summaries: list[Summary]) -> float:
    return fmean(s.packets.shared for s in summaries)


@pytest.fixture(scope="module")
def oracle() -> list[Summary]:
    return runs(strategy="oracle")


@pytest.fixture(scope="module")
def tight() -> list[Summary]:
    return runs(strategy="adaptive", redundancy="tight")


def test_tight_is_near_the_oracle_at_a_bounded_price(oracle: list[Summary], tight: list[Summary]) -> None:
    assert on_time(oracle) - on_time(tight) <= 0.011
    assert packets(tight) <= 1.8 * packets(oracle)
    assert fmean(s.delivery for s in tight) >= 0.9999


def test_none_costs_hardly_more_than_the_oracle(oracle: list[Summary]) -> None:
    none = runs(strategy="adaptive", redundancy="none")
    assert on_time(oracle) - on_time(none) <= 0.03
    assert packets(none) <= 1.12 * packets(oracle)
    assert all("hedge" not in s.notices for s in none)


def test_tight_beats_the_papers_strategies(tight: list[Summary]) -> None:
    multipath = runs(strategy="multipath")
    assert on_time(tight) > on_time(runs(strategy="dcrd")) + 0.04
    assert on_time(tight) > on_time(multipath)
    assert packets(tight) < packets(multipath)


def test_hellos_are_fewer_than_bfd_would_send(tight: list[Summary]) -> None:
    """BFD sends three times per detection time, a bold one twice, up to 25 % sooner, on every link and both ways."""
    for seed, summary in zip(SEEDS, tight, strict=True):
        world = build_world(BASE.with_(seed=seed))
        bfd = 2 * len(world.overlay.links) * world.end_ns / (0.9 * BASE.of(LinkSettings).detection_ns / 2)
        assert 0 < summary.control["hellos"] <= bfd


def test_where_nothing_fails_nothing_is_sent_twice() -> None:
    """How often links fail is learned: after a minute without an outage a tight deadline is no reason to hedge."""
    calm = simulate(BASE.with_(strategy="adaptive", pf=0.0, pl=0.0, factor=1.5, duration="60s")).summary
    tree = simulate(BASE.with_(strategy="d-tree", pf=0.0, pl=0.0, factor=1.5, duration="60s")).summary
    assert calm.on_time == 1.0
    assert calm.data_packets <= 1.1 * tree.data_packets
