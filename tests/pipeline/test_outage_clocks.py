"""The clocks of peers that saw no event in common, from the outages of their links."""

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from wend.model.telemetry import Segment
from wend.model.units import MS, SECOND
from wend.pipeline.telemetry.clocks import SIGHTINGS, Clocks, segment_sightings, solve_clocks

YEAR = 365 * 86_400 * SECOND
DELAY = 40 * MS
Times = Sequence[tuple[int, int]]


def seen(peer: int, neighbour: int, outages: Times, clock: int, rng: random.Random) -> pa.Table:
    """The segment of one end. It hears of begin and end within the delay of the link."""
    rows = []
    for begin, end in outages:
        heard, up = (clock + time + rng.randrange(DELAY) for time in (begin, end))
        rows += [(heard + 160 * MS, "down", heard), (up, "up", heard)]
    changes = pa.table(
        {
            "time_ns": pa.array([time for time, _, _ in rows], pa.int64()),
            "neighbour": pa.array([neighbour] * len(rows), pa.int64()),
            "state": [state for _, state, _ in rows],
            "heard_ns": pa.array([heard for _, _, heard in rows], pa.int64()),
        }
    )
    return segment_sightings(changes, Segment("changes", 1, peer, 1, 0))


def solved(links: Mapping[tuple[int, int], Times], clocks: Sequence[int], seed: int = 0, *more: pa.Table) -> Clocks:
    rng = random.Random(seed)
    tables = [seen(*ends, times, clocks[ends[0]], rng) for (a, b), times in links.items() for ends in ((a, b), (b, a))]
    return solve_clocks(pa.concat_tables([*tables, *more]), {(peer, 1) for peer in range(len(clocks))})


def drawn(rng: np.random.Generator, many: int) -> Times:
    """Outages that last for whole seconds, so their lengths say little."""
    begins = np.sort(rng.choice(3600, many, replace=False)) * SECOND + int(rng.integers(SECOND))
    return [(int(begin), int(begin) + SECOND * int(rng.integers(1, 3)) // 2) for begin in begins]


@given(clocks=st.lists(st.integers(-YEAR, YEAR), min_size=2, max_size=6), seed=st.integers(0, 1000))
def test_without_events_clocks_come_from_outages(clocks: list[int], seed: int) -> None:
    """A chain of peers: each is compared with the one before."""
    rng = np.random.default_rng(seed)
    links = {(peer, peer + 1): drawn(rng, 12) for peer in range(len(clocks) - 1)}
    found = solved(links, clocks, seed)
    assert found.unaligned == []
    for a, b in links:
        ahead = found.offsets[b, 1] - found.offsets[a, 1]
        assert abs(ahead - (clocks[b] - clocks[a])) <= DELAY


def seen_by_all(peers: int, apart_ns: int) -> pa.Table:
    """Three events of peer 0 that all peers saw. The clock of each peer is ahead of the one before by so much."""
    common = {"publisher": 0, "publisher_incarnation": 1, "incarnation": 1}
    rows = [
        {**common, "sequence": n, "peer": peer, "own": int(not peer), "published_ns": n * SECOND + peer * apart_ns}
        for n in range(3)
        for peer in range(peers)
    ]
    return pa.Table.from_pylist(rows, schema=SIGHTINGS)


def test_few_outages_of_many_links_are_enough() -> None:
    """Three neighbours know each other's clocks by events; the fourth peer has one outage with each of them."""
    events = seen_by_all(peers=3, apart_ns=7 * SECOND)
    links = {(peer, 3): [(at, at + SECOND)] for peer, at in enumerate((10 * SECOND, 500 * SECOND, 777 * SECOND))}
    clocks = [0, 7 * SECOND, 14 * SECOND, YEAR]
    found = solved(links, clocks, 1, events)
    assert found.unaligned == [] and abs(found.offsets[3, 1] - found.offsets[0, 1] - YEAR) <= DELAY
    alone = solved({link: times for link, times in links.items() if link != (2, 3)}, clocks, 1)
    assert (3, 1) in alone.unaligned, "two outages could be any two"


def test_outages_that_fit_in_several_ways_say_nothing() -> None:
    every = [(n * 10 * SECOND, n * 10 * SECOND + SECOND) for n in range(20)]
    found = solved({(0, 1): every}, [0, 3 * SECOND])
    assert found.offsets == {(0, 1): 0, (1, 1): 0} and found.unaligned == [(0, 1), (1, 1)]


def test_events_come_first() -> None:
    """Clocks that events compare are not touched by outages that one end alone saw differently."""
    rng = np.random.default_rng(3)
    events = seen_by_all(peers=2, apart_ns=90 * SECOND)
    found = solved({(0, 1): drawn(rng, 9)}, [0, 0], 3, events)
    assert found.offsets[1, 1] - found.offsets[0, 1] == 90 * SECOND


def test_an_outage_whose_begin_is_not_known_is_left_out() -> None:
    up = {"time_ns": [5], "neighbour": [1], "state": ["up"], "heard_ns": [5]}
    assert segment_sightings(pa.table(up), Segment("changes", 1, 0, 1, 0)).num_rows == 0
