"""Samples of links reduced by segment and merged by window, against all samples at once."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wend.model.telemetry import Segment
from wend.model.units import MS
from wend.pipeline.telemetry.link_windows import Windowing, merge_windows, sum_samples
from wend.pipeline.telemetry.segment_rows import judge_rows

WINDOW = 1000 * MS


def samples(rng: np.random.Generator, many: int, neighbour: int) -> pa.Table:
    sent = rng.integers(0, 9, many)
    lost = rng.binomial(sent, 0.3)
    return pa.table(
        {
            "time_ns": np.sort(rng.integers(0, 5 * WINDOW, many)),
            "neighbour": np.full(many, neighbour),
            "state": ["up"] * many,
            "delay_ns": rng.integers(1, 90 * MS, many),
            "reliability": np.ones(many),
            "sent": sent,
            "acknowledged": sent - lost,
            "lost": lost,
            "queue_ns": rng.integers(0, 9 * MS, many),
            "queue_bytes": np.zeros(many, int),
            "period_ns": np.full(many, 100 * MS),
        }
    )


def merged(sums: list[pa.Table], down: list[tuple[int, int | None]]) -> pa.Table:
    """The windows of the link between 3 and 8, beside a link that is never down. Two buckets have the outages."""
    rows = pa.concat_tables(sums)
    for name, peer in (("b", 8), ("a", 3)):
        rows = rows.append_column(name, pa.array(np.full(rows.num_rows, peer)))
    other = rows.set_column(rows.schema.get_field_index("b"), "b", pa.array(np.full(rows.num_rows, 9)))
    outages = [{"a": 3, "b": 8, "begin_ns": begin, "end_ns": end} for begin, end in (*down, *down)]
    schema = pa.schema([(name, pa.int64()) for name in ("a", "b", "begin_ns", "end_ns")])
    found = merge_windows(pa.concat_tables([rows, other]), pa.Table.from_pylist(outages, schema=schema), WINDOW)
    assert found.filter(pa.array(found["b"].to_numpy() == 9))["down_ns"].to_pylist() == [0] * (found.num_rows // 2)
    return found.filter(pa.array(found["b"].to_numpy() == 8))


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 200), st.lists(st.integers(0, 200), max_size=4))
def test_windows_do_not_depend_on_segments(seed: int, many: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    windowing = Windowing(WINDOW, 2)
    whole, parts = [], []
    for peer in (3, 8):
        table = samples(rng, many, 11 - peer)
        places = sorted({0, many, *(cut for cut in cuts if cut < many)})
        pieces = [table.slice(a, b - a) for a, b in pairwise(places)]
        whole.append(sum_samples(table, Segment("links", 1, peer, 1, 0), offsets={}, windowing=windowing))
        parts += [
            sum_samples(piece, Segment("links", 1, peer, 1, at), offsets={}, windowing=windowing)
            for at, piece in enumerate(pieces)
        ]
    rng.shuffle(parts)
    down = [(WINDOW // 2, 2 * WINDOW), (4 * WINDOW, None)]
    assert merged(whole, down).equals(merged(parts, down))


def test_a_window_says_what_all_samples_say() -> None:
    rng = np.random.default_rng(5)
    both = {peer: samples(rng, 5000, 11 - peer) for peer in (3, 8)}
    sums = [
        sum_samples(table, Segment("links", 1, peer, 1, 0), offsets={(8, 1): 0}, windowing=Windowing(WINDOW))
        for peer, table in both.items()
    ]
    rows = merged(sums, []).to_pylist()
    assert [row["begin_ns"] for row in rows] == [at * WINDOW for at in range(5)]
    for row in rows:
        inside = {
            peer: table.filter(pa.array((table["time_ns"].to_numpy() // WINDOW * WINDOW) == row["begin_ns"]))
            for peer, table in both.items()
        }
        delays = np.concatenate([table["delay_ns"].to_numpy() for table in inside.values()])
        assert row["samples"] == len(delays)
        assert (row["delay_min_ns"], row["delay_max_ns"]) == (delays.min(), delays.max())
        assert row["delay_mean_ns"] == delays.sum() // len(delays)
        assert row["delay_std_ns"] == pytest.approx(delays.std(), rel=0.001)
        for share, name in ((0.5, "delay_p50_ns"), (0.9, "delay_p90_ns"), (0.99, "delay_p99_ns")):
            assert row[name] == pytest.approx(np.quantile(delays, share), rel=0.05)
        lost, sent = (sum(inside[3][name].to_pylist()) for name in ("lost", "sent"))
        assert (row["sent_ab"], row["loss_ab"]) == (sent, lost / sent)
        for name, peer in (("delay_ab_p50_ns", 3), ("delay_ba_p50_ns", 8)):
            assert row[name] == pytest.approx(np.quantile(inside[peer]["delay_ns"].to_numpy(), 0.5), rel=0.05)
        assert row["availability"] == 1.0


def test_time_down_is_counted_in_each_window() -> None:
    table = samples(np.random.default_rng(1), 400, 8)
    sums = sum_samples(table, Segment("links", 1, 3, 1, 0), offsets={}, windowing=Windowing(WINDOW))
    down = [(WINDOW // 2, WINDOW + WINDOW // 4), (4 * WINDOW + WINDOW // 2, None)]
    rows = merged([sums], down).to_pylist()
    assert [row["down_ns"] for row in rows] == [WINDOW // 2, WINDOW // 4, 0, 0, WINDOW // 2]
    assert [row["outages"] for row in rows] == [1, 0, 0, 0, 1]
    assert rows[1]["availability"] == pytest.approx(0.75)


def test_a_window_without_delays_has_none() -> None:
    table = samples(np.random.default_rng(4), 400, 8)
    unknown = np.isin(table["time_ns"].to_numpy() // WINDOW, (1, 4))
    delays = np.where(unknown, 0, table["delay_ns"].to_numpy())
    table = table.set_column(table.schema.get_field_index("delay_ns"), "delay_ns", pa.array(delays))
    sums = sum_samples(table, Segment("links", 1, 3, 1, 0), offsets={}, windowing=Windowing(WINDOW))
    rows = merged([sums], []).to_pylist()
    names = ("delay_mean_ns", "delay_p50_ns", "delay_p99_ns", "delay_ab_p50_ns", "delay_min_ns")
    assert [{row[name] is None for name in names} for row in rows] == [{False}, {True}, {False}, {False}, {True}]
    assert all(row["delay_ba_p50_ns"] is None and row["asymmetry_ns"] is None for row in rows)
    known = delays[(delays > 0) & (table["time_ns"].to_numpy() // WINDOW == 2)]
    assert rows[2]["delay_p50_ns"] == pytest.approx(np.quantile(known, 0.5), rel=0.06)


def test_a_wrong_clock_moves_samples_to_their_window() -> None:
    year = 365 * 86_400 * 1000 * MS
    table = samples(np.random.default_rng(2), 50, 8)
    late = table.set_column(0, "time_ns", pa.array(table["time_ns"].to_numpy() + year))
    segment, windowing = Segment("links", 1, 3, 7, 0), Windowing(WINDOW)
    assert sum_samples(late, segment, offsets={(3, 7): year}, windowing=windowing).equals(
        sum_samples(table, segment, offsets={}, windowing=windowing)
    )


def test_rows_that_cannot_be_true_are_named() -> None:
    table = samples(np.random.default_rng(3), 10, 8)
    delays = table["delay_ns"].to_pylist()
    delays[4] = -5
    times = table["time_ns"].to_pylist()
    times[6] += 3 * 86_400 * 1000 * MS
    states = ["up"] * 10
    states[8] = "sideways"
    for name, values in (("delay_ns", delays), ("time_ns", times), ("state", states)):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    good, bad = judge_rows(table, "links")
    assert good.num_rows == 7
    assert [(one.line, one.reason) for one in bad] == [
        (5, "delay_ns is negative: -5"),
        (9, "there is no state 'sideways'"),
        (7, f"time_ns {times[6]} is a day or more from other rows of its segment"),
    ]
