"""The clocks of peers against each other, and the outages on which both ends agree."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from wend.model.telemetry import Segment
from wend.model.units import MS, SECOND
from wend.pipeline.telemetry.clocks import SIGHTINGS, segment_sightings, solve_clocks
from wend.pipeline.telemetry.link_outages import link_outages

YEAR = 365 * 86_400 * SECOND


def seen(rows: list[tuple[int, int, int, int]]) -> pa.Table:
    """Sightings of events of peer 0: (sequence, peer, incarnation, time of its publication there)."""
    names = ("sequence", "peer", "incarnation", "published_ns")
    whole = [{**dict(zip(names, row, strict=True)), "publisher": 0, "publisher_incarnation": 1} for row in rows]
    return pa.Table.from_pylist([{**row, "own": int(row["peer"] == 0)} for row in whole], schema=SIGHTINGS)


@given(
    ahead=st.lists(st.integers(-2 * YEAR, 2 * YEAR), min_size=3, max_size=6),
    right=st.integers(3, 7),
    noise=st.integers(0, 3 * MS),
    seed=st.integers(0, 1000),
)
def test_the_offset_of_each_clock_is_found(ahead: list[int], right: int, noise: int, seed: int) -> None:
    """Most clocks are right; those of the others come out, however wrong they are and in whatever order rows come."""
    rng = np.random.default_rng(seed)
    truth = [*([0] * (len(ahead) + right)), *ahead]
    rows: list[tuple[int, int, int, int]] = []
    for sequence in range(40):
        for peer in [0, *rng.choice(range(1, len(truth)), 5, replace=False).tolist()]:
            rows.append((sequence, peer, 1, sequence * SECOND + truth[peer] + int(rng.integers(0, noise + 1))))
    random.Random(seed).shuffle(rows)
    found = solve_clocks(seen(rows), {(peer, 1) for peer in range(len(truth))})
    assert {(peer, 1) for _, peer, _, _ in rows}.isdisjoint(found.unaligned)
    for peer, offset in enumerate(truth):
        if (peer, 1) not in found.unaligned:
            assert abs(found.offsets[peer, 1] - offset) <= 4 * noise + 1


def test_who_saw_nothing_in_common_stays_on_its_own_clock() -> None:
    rows = [(n, peer, 1, n * SECOND) for n in range(3) for peer in (0, 1)]
    found = solve_clocks(seen(rows), {(0, 1), (1, 1), (2, 1)})
    assert found.unaligned == [(2, 1)]
    assert found.offsets[2, 1] == 0


def test_a_peer_that_restarted_with_another_clock_has_two_offsets() -> None:
    rows = [(n, peer, 1, n * SECOND) for n in range(6) for peer in (0, 1)]
    rows += [(n, 2, 1 if n < 3 else 2, n * SECOND + (0 if n < 3 else YEAR)) for n in range(6)]
    found = solve_clocks(seen(rows), set())
    assert (found.offsets[2, 1], found.offsets[2, 2]) == (0, YEAR)


def test_peers_choose_the_same_events_of_many() -> None:
    many = 10_000
    own = {"publisher": np.zeros(many, int), "publisher_incarnation": np.ones(many, int), "sequence": np.arange(many)}
    published = pa.table({**own, "time_ns": np.arange(many)})
    arrived = pa.table({**own, "time_ns": np.arange(many) + 7, "age_ns": np.full(many, 7)})
    one = segment_sightings(published, Segment("publications", 1, 0, 1, 0))
    other = segment_sightings(arrived, Segment("hops", 1, 5, 1, 0))
    assert one["sequence"] == other["sequence"] and 10 < one.num_rows < 1000
    assert one["published_ns"] == other["published_ns"]


def change(peer: int, time: int, state: str, heard: int, incarnation: int = 1, delay: int = 0) -> dict[str, Any]:
    row = {"peer": peer, "incarnation": incarnation, "time_ns": time, "state": state, "heard_ns": heard}
    return {**row, "neighbour": 1 - peer, "detection_ns": 10, "delay_ns": delay}


def spans(rows: list[dict[str, Any]], **known: Any) -> list[tuple[int, int | None, int]]:
    found = link_outages(0, 1, rows, known.get("offsets", {}), known.get("spans", {}))
    return [(row["begin_ns"], row["end_ns"], row["ends"]) for row in found]


def test_both_ends_agree_on_the_narrowest_bounds() -> None:
    a = [change(0, 110, "down", 100), change(0, 205, "up", 100)]
    b = [change(1, 115, "down", 104), change(1, 202, "up", 104)]
    assert spans([*a, *b]) == [(104, 202, 2)]
    assert spans(a) == [(100, 205, 1)]


def test_an_outage_lies_between_the_sending_of_messages_not_their_arrival() -> None:
    # A message takes 7. The last ones before the outage leave b at 90 and a at 95. The first one after it leaves a at
    # 210; b answers at 217, and a hears that at 224 and says so.
    a = [change(0, 180, "down", 97, delay=7), change(0, 224, "up", 97, delay=7)]
    b = [change(1, 190, "down", 102, delay=7), change(1, 231, "up", 102, delay=7)]
    assert spans([*a, *b]) == [(95, 210, 2)]
    assert spans(a) == [(90, 217, 1)], "one end knows of one direction"
    old = [{name: value for name, value in row.items() if name != "delay_ns"} for row in (*a, *b)]
    assert spans(old) == [(102, 224, 2)], "an older peer does not say how long messages took"


@given(
    begin=st.integers(1000, 5000),
    lasts=st.integers(1000, 3000),
    delay=st.integers(1, 60),
    every=st.integers(20, 90),
    phases=st.tuples(st.integers(0, 89), st.integers(0, 89)),
)
def test_an_outage_is_found_within_the_time_between_two_probes(
    begin: int, lasts: int, delay: int, every: int, phases: tuple[int, int]
) -> None:
    """Both ends probe evenly. An end that hears the other again, while that one does not, answers at once."""
    end, probes = begin + lasts, [range(phase, 10_000, every) for phase in phases]
    last = [max(time for time in each if time < begin) for each in probes]
    first, asking = min((min(time for time in probes[peer] if time >= end), peer) for peer in (0, 1))
    up = {asking: first + 2 * delay, 1 - asking: first + 3 * delay}
    rows = []
    for peer in (0, 1):
        heard = last[1 - peer] + delay
        rows += [
            change(peer, heard + 200, "down", heard, delay=delay),
            change(peer, up[peer], "up", heard, delay=delay),
        ]
    ((found_begin, found_end, ends),) = spans(rows)
    assert ends == 2 and 0 <= begin - found_begin <= every and found_end is not None and 0 <= found_end - end <= every


def test_clocks_are_taken_off_first() -> None:
    a = [change(0, 110, "down", 100), change(0, 205, "up", 100)]
    b = [change(1, 1115, "down", 1104), change(1, 1202, "up", 1104)]
    assert spans([*a, *b], offsets={(1, 1): 1000}) == [(104, 202, 2)]
    assert len(spans([*a, *b])) == 2


def test_what_one_end_alone_saw_is_not_agreed() -> None:
    rows = [change(0, 110, "down", 100), change(0, 205, "up", 100)]
    for observed, agreed in (((90, 300), False), ((90, 150), True), ((150, 300), True)):
        found = link_outages(0, 1, rows, {}, {0: [(1, 0, 300)], 1: [(1, *observed)]})
        assert [row["agreed"] for row in found] == [agreed]
    both = [*rows, change(1, 115, "down", 104), change(1, 202, "up", 104)]
    assert [row["agreed"] for row in link_outages(0, 1, both, {}, {1: [(1, 90, 300)]})] == [True]


def test_an_outage_without_an_end_lasts() -> None:
    assert spans([change(0, 110, "down", 100)]) == [(100, None, 1)]
    both = [change(0, 110, "down", 100), change(1, 110, "down", 100), change(1, 200, "up", 100)]
    assert spans(both) == [(100, 200, 2)]


def test_a_restart_ends_the_outages_of_a_peer() -> None:
    rows = [change(0, 110, "down", 100), change(0, 310, "down", 300, 2), change(0, 320, "up", 300, 2)]
    assert spans(rows, spans={0: [(1, 0, 200), (2, 250, 400)]}) == [(100, 250, 1), (300, 320, 1)]


def test_one_outage_may_pass_through_several_states() -> None:
    rows = [change(0, 110, "suspected", 100), change(0, 120, "down", 100), change(0, 130, "one-way", 128)]
    assert spans([*rows, change(0, 140, "up", 128)]) == [(100, 140, 1)]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=8), st.randoms())
def test_the_order_of_rows_changes_nothing(gaps: list[tuple[int, int]], turns: Any) -> None:
    rows, now = [], 0
    for up, down in gaps:
        for peer in (0, 1):
            rows += [change(peer, now + up + 5, "down", now + up), change(peer, now + up + down + 5, "up", now + up)]
        now += up + down + 10
    expected = spans(rows)
    assert len(expected) == len(gaps)
    turns.shuffle(rows)
    assert spans(rows) == expected
