"""Recordings from tables: which windows, what is in them, and where in a window it lies."""

from typing import Any

import pyarrow as pa
import pytest

from wend.model.errors import ConfigError
from wend.model.units import MS, SECOND
from wend.pipeline.telemetry.recordings import make_recordings, one_way_loss, recorded_flow

MINUTE = 60 * SECOND
FLOW = {"publisher": 1, "receivers": [2], "rate": 4.0, "size_bytes": 10.0, "weight": 1.0, "deadline_ns": 30 * MS}


def link(begin: int, a: int = 1, b: int = 2, observed: int = MINUTE, delay: int | None = 10 * MS) -> dict[str, Any]:
    return {
        "begin_ns": begin, "window_ns": MINUTE, "a": a, "b": b, "delay_mean_ns": delay, "loss_ab": None,
        "loss_ba": 0.2, "sent_ab": 0, "sent_ba": 380, "ends": 2, "observed_ns": observed,
    }  # fmt: skip


def found(
    links: list[dict[str, Any]], outages: list[tuple[int, int, int, int | None]], most: int = 10, ends: int = 2
) -> Any:
    down = [{"a": a, "b": b, "begin_ns": begin, "end_ns": end, "ends": ends} for a, b, begin, end in outages]
    schema = pa.schema([(name, pa.int64()) for name in ("a", "b", "begin_ns", "end_ns", "ends")])
    return make_recordings(
        pa.Table.from_pylist(links), pa.Table.from_pylist(down, schema=schema), [recorded_flow(FLOW, 1)], most
    )


def test_outages_are_cut_to_their_windows_and_counted_from_their_begin() -> None:
    links = [link(0), link(MINUTE), link(MINUTE, 2, 3)]
    first, second = found(links, [(1, 2, 50 * SECOND, 70 * SECOND), (2, 3, 100 * SECOND, None)])
    assert (first.begin_ns, first.duration_ns, len(first.links)) == (0, MINUTE, 1)
    # what happens just after a window still meets the events of its end
    assert first.links[0].outages == ((50 * SECOND, 65 * SECOND),)
    # and peers know what began just before one
    assert [one.outages for one in second.links] == [((-5 * SECOND, 10 * SECOND),), ((40 * SECOND, 65 * SECOND),)]
    assert first.links[0].loss == pytest.approx(0.1)


def test_partly_observed_windows_are_played_for_the_observed_part() -> None:
    links = [link(0, observed=20 * SECOND), link(MINUTE), link(2 * MINUTE, observed=15 * SECOND)]
    down = [(1, 2, 50 * SECOND, 55 * SECOND), (1, 2, 125 * SECOND, 126 * SECOND)]
    first, _, last = found(links, down)
    assert (first.begin_ns, first.duration_ns) == (40 * SECOND, 20 * SECOND)
    assert first.links[0].outages == ((10 * SECOND, 15 * SECOND),)
    assert (last.begin_ns, last.duration_ns) == (2 * MINUTE, 15 * SECOND)
    (only,) = found([link(0, observed=20 * SECOND)], [(1, 2, 12 * SECOND, 13 * SECOND)])
    assert (only.begin_ns, only.links[0].outages) == (12 * SECOND, ((0, SECOND),))


def test_windows_are_spread_over_time_and_empty_ones_left_out() -> None:
    links = [link(number * MINUTE) for number in range(100)]
    assert [one.begin_ns // MINUTE for one in found(links, [], most=4)] == [12, 37, 62, 87]
    with pytest.raises(ConfigError, match="no window of the links is observed"):
        found([link(0, delay=None), link(MINUTE, observed=SECOND)], [])


def test_a_receiver_has_its_own_deadline_or_that_of_the_flow() -> None:
    assert recorded_flow(FLOW, 1).deadlines_ns == (30 * MS,)
    each = recorded_flow({**FLOW, "receivers": [2, 3]}, 1, {(1, 3): MS, (2, 1): 5})
    assert each.deadlines_ns == (30 * MS, MS)
    assert recorded_flow({**FLOW, "deadline_ns": None}, 1).deadlines_ns == (0,)
    assert recorded_flow({"publisher": "7", "receivers": [2], "rate": "800bit/s", "size_bytes": 10}, 1).rate_msgs == 10
    with pytest.raises(ConfigError, match="flow 3: publisher and receivers must be ids"):
        recorded_flow({"publisher": "Rome", "receivers": [2]}, 3)
    with pytest.raises(ConfigError, match="needs size_bytes"):
        recorded_flow({"publisher": 1, "receivers": [2], "rate": "800bit/s"}, 3)


def test_what_one_end_alone_saw_is_no_outage_unless_nobody_knows_the_other() -> None:
    down: list[tuple[int, int, int, int | None]] = [(1, 2, SECOND, 2 * SECOND)]
    (seen,) = found([link(0)], down, ends=1)
    assert seen.links[0].outages == ()
    (alone,) = found([{**link(0), "ends": 1}], down, ends=1)
    assert alone.links[0].outages == ((SECOND, 2 * SECOND),)


def test_loss_of_a_round_trip_is_split_between_its_directions() -> None:
    many = {"sent_ab": 10**9, "sent_ba": 10**9}
    assert one_way_loss({"loss_ab": 0.36, "loss_ba": 0.36, **many}) == pytest.approx(0.2)
    assert one_way_loss({"loss_ab": None, "loss_ba": None, **many}) == 0.0
    few = {"loss_ab": 1 / 3, "loss_ba": 0.0, "sent_ab": 3, "sent_ba": 3}
    assert one_way_loss(few) == pytest.approx(0.011, abs=0.001)
