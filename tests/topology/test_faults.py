"""Failure schedules: drawn, given, written and replayed."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import networkx as nx
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from pyarrow import parquet

from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.model.errors import ConfigError
from wend.model.fault_settings import Outages, Spread
from wend.model.units import SECOND, Nanos
from wend.topology.faults import (
    Faults,
    Intervals,
    Outage,
    PerSecond,
    draw_outages,
    drop_partitions,
    read_faults,
    write_faults,
)
from wend.topology.graph import Overlay, OverlayLink


@pytest.mark.parametrize("pf", [0.02, 0.1, 0.5])
def test_links_fail_with_the_given_probability(pf: float) -> None:
    seconds, links = 2000, 50
    faults = PerSecond(links, pf, begin=0, end=seconds * SECOND, seed=3)
    down = sum(not faults.is_up(link, s * SECOND) for link in range(links) for s in range(seconds))
    n = seconds * links
    assert abs(down - pf * n) < 5 * math.sqrt(n * pf * (1 - pf))


def test_a_failure_lasts_a_whole_second_and_nothing_fails_outside() -> None:
    faults = PerSecond(5, 0.5, begin=2 * SECOND, end=9 * SECOND, seed=1)
    for link in range(5):
        assert all(faults.is_up(link, t) for t in (0, SECOND, 2 * SECOND - 1, 9 * SECOND, 99 * SECOND))
        for second in range(2, 9):
            inside = {faults.is_up(link, second * SECOND + offset) for offset in (0, 1, SECOND // 2, SECOND - 1)}
            assert len(inside) == 1


@given(st.integers(0, 5 * SECOND), st.integers(0, 5 * SECOND), st.integers(0, 99))
def test_nothing_fails_before_the_begin_or_after_the_end(begin: Nanos, length: Nanos, seed: int) -> None:
    faults = PerSecond(3, 1.0, begin=begin, end=begin + length, seed=seed)
    for link in range(3):
        assert not begin or faults.is_up(link, begin - 1)
        assert faults.is_up(link, begin + length)
    assert all(begin <= start and until <= begin + length for _, start, until in faults.outages())


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(0, 50)), max_size=12))
def test_intervals_are_what_a_scan_says(drawn: list[tuple[int, int, int]]) -> None:
    outages = [(link, min(a, b), max(a, b)) for link, a, b in drawn]
    faults = Intervals(3, outages)
    for link in range(3):
        for now in range(-1, 52):
            assert faults.is_up(link, now) == (not any(x == link and a <= now < b for x, a, b in outages))
    listed = list(faults.outages())
    assert listed == sorted(listed, key=lambda o: (o[1], o[0]))
    assert list(Intervals(3, listed).outages()) == listed


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(0, 50)), max_size=12))
def test_no_link_is_up_again_before_the_next_change(drawn: list[tuple[int, int, int]]) -> None:
    faults = Intervals(3, [(link, min(a, b), max(a, b)) for link, a, b in drawn])
    for now in range(51):
        change = faults.next_change(now)
        assert change > now
        for link in range(3):
            if not faults.is_up(link, now):
                assert not any(faults.is_up(link, t) for t in range(now, min(change, 60)))


def spread(mean: float) -> Spread:
    return Spread("exponential", mean_s=mean)


@pytest.mark.parametrize(
    ("up", "down", "share"),
    [
        (spread(9.0), spread(1.0), 0.1),
        (Spread("fixed", mean_s=3.0), Spread("fixed", mean_s=1.0), 0.25),
        (Spread("uniform", low_s=0.0, high_s=2.0), Spread("uniform", low_s=1.0, high_s=1.0), 0.5),
    ],
)
def test_drawn_outages_have_the_given_share_and_bounds(up: Spread, down: Spread, share: float) -> None:
    begin, end = 10 * SECOND, 2010 * SECOND
    faults = draw_outages(40, Outages(up, down), begin=begin, end=end, seed=5, what="links")
    listed = list(faults.outages())
    assert all(begin <= start < until <= end for _, start, until in listed)
    assert sum(until - start for _, start, until in listed) / (40 * (end - begin)) == pytest.approx(share, rel=0.1)


def test_one_more_component_changes_no_other() -> None:
    outages = Outages(spread(2.0), spread(1.0))
    few, many = (
        list(draw_outages(n, outages, begin=0, end=99 * SECOND, seed=1, what="peers").outages()) for n in (3, 4)
    )
    assert few == [o for o in many if o[0] < 3]


def test_both_are_faults() -> None:
    made: list[Faults] = [PerSecond(1, 0.0, begin=0, end=SECOND, seed=1), Intervals(1, ())]
    assert [list(f.outages()) for f in made] == [[], []]


# ---------------------------------------------------------------- replays


def ring() -> Overlay:
    return Overlay(4, [OverlayLink(0, 1, 1), OverlayLink(1, 2, 1), OverlayLink(2, 3, 1), OverlayLink(0, 3, 1)])


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**9), st.integers(1, 10**9)), max_size=20))
def test_faults_are_read_back_as_written(drawn: list[tuple[int, int, int]]) -> None:
    outages = list(Intervals(4, [(link, start, start + length) for link, start, length in drawn]).outages())
    with TemporaryDirectory() as folder:
        path = Path(folder) / "faults.parquet"
        write_faults(path, ring(), outages)
        assert list(read_faults(path, ring()).outages()) == outages


def test_a_replay_has_the_same_trace(tmp_path: Path) -> None:
    first = Scenario(topology="regular", peers=8, degree=3, topics=4, pf=0.2, duration="10s")
    once = simulate(first)
    once.trace.write(tmp_path)
    again = simulate(first.with_(pf=0.0, failures=str(tmp_path / "faults.parquet")))
    assert len(once.trace.faults) > 10
    assert again.summary.trace_sha256 == once.summary.trace_sha256


def test_what_cannot_be_replayed_is_said_in_a_sentence(tmp_path: Path) -> None:
    scenario = Scenario(topology="regular", peers=4, degree=2, topics=2, duration="1s")
    with pytest.raises(ConfigError, match="there is no such file"):
        simulate(scenario.with_(failures=str(tmp_path / "nothing.parquet")))
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(ConfigError, match=r"not a table of faults: it is not Parquet, or it is truncated$"):
        simulate(scenario.with_(failures=str(tmp_path / "text.parquet")))
    row: dict[str, list[object]] = {"time_ns": [1], "kind": ["link"], "a": [0], "b": [1], "until_ns": [2]}
    for change, why in (
        ({"until_ns": ["soon"]}, "column 'until_ns' must hold whole numbers of 64 bits, not texts"),
        ({"a": [None]}, "column 'a' must hold whole numbers of 64 bits, not null"),
        ({"a": pa.array([None], pa.int64())}, "it has missing values"),
    ):
        parquet.write_table(pa.table(row | change), tmp_path / "wrong.parquet")
        with pytest.raises(ConfigError, match=f"not a table of faults: {why}$"):
            simulate(scenario.with_(failures=str(tmp_path / "wrong.parquet")))
    parquet.write_table(pa.table({"time_ns": [1]}), tmp_path / "less.parquet")
    with pytest.raises(ConfigError, match=r"not a table of faults: column 'kind' is missing$"):
        simulate(scenario.with_(failures=str(tmp_path / "less.parquet")))
    write_faults(tmp_path / "far.parquet", Overlay(9, [OverlayLink(7, 8, 1)]), [(0, 1, 2)])
    with pytest.raises(ConfigError, match="no such link"):
        simulate(scenario.with_(failures=str(tmp_path / "far.parquet")))
    with pytest.raises(ConfigError, match="neither drawn nor healed"):
        scenario.with_(failures="x", heal="1s")


PAIRS = [(a, b) for a in range(5) for b in range(a + 1, 5)]
outages = st.tuples(st.integers(0, 30), st.integers(-10, 10), st.integers(1, 9)).map(
    lambda o: (o[0], o[1], o[1] + o[2])
)


@given(st.lists(st.sampled_from(PAIRS), min_size=4, max_size=8, unique=True), st.lists(outages, max_size=20))
def test_outages_that_partition_a_network_are_rejected_and_no_others(
    pairs: list[tuple[int, int]], drawn: list[Outage]
) -> None:
    """Beside networkx: each accepted outage leaves the ends connected, each rejected one would not have."""
    drawn = [(link % len(pairs), start, until) for link, start, until in drawn]
    found, rejected = drop_partitions(5, pairs, drawn)
    assert rejected == len(drawn) - len(found)
    so_far: list[Outage] = []
    left = list(found)
    for outage in sorted(drawn, key=lambda o: (o[1], o[0])):
        down = {link for link, start, until in [*so_far, outage] if start <= outage[1] < until}
        network = nx.Graph([pair for link, pair in enumerate(pairs) if link not in down])
        network.add_nodes_from(range(5))
        if nx.has_path(network, *pairs[outage[0]]):
            assert left.pop(0) == outage
            so_far.append(outage)
    assert left == []


def test_what_failed_in_the_past_is_down_from_the_beginning() -> None:
    """With outages of up to 20 min every 5000 s, a tenth of the time is lost: at the beginning, too."""
    hours = Outages(up=Spread("exponential", 5000), down=Spread("uniform", low_s=10, high_s=1200), past_s=10_800)
    begin, end = 50 * SECOND, 650 * SECOND
    faults = draw_outages(2000, hours, begin=begin, end=end, seed=3, what="links")
    assert all(faults.is_up(link, begin - 1) for link in range(2000))
    for now in (begin, (begin + end) // 2, end - SECOND):
        assert sum(not faults.is_up(link, now) for link in range(2000)) / 2000 == pytest.approx(605 / 5605, abs=0.02)
    fresh = draw_outages(2000, replace(hours, past_s=0.0), begin=begin, end=end, seed=3, what="links")
    assert all(fresh.is_up(link, begin) for link in range(2000))
