"""The recorded times of publication: which window they belong to, by which clock, and for which peers."""

from pathlib import Path

import pytest

from tests.pipeline.recorded_tables import LINKS, WINDOW_NS, write_publications, write_square, write_table
from wend.drivers.recorded import DRAIN_NS, Recording, make_recorded_world
from wend.model.units import MS, SECOND
from wend.pipeline.storage.versioned_tables import read_table
from wend.pipeline.telemetry.recorded_publications import RecordedPublications, timed_flows
from wend.pipeline.telemetry.recordings import make_recordings, read_workload

HOUR = 3600 * SECOND
FIRST, SECOND_WINDOW = WINDOW_NS, 2 * WINDOW_NS
"""When the windows of the square begin."""


def windows(folder: Path, most: int = 10) -> list[Recording]:
    tables = [read_table(None, str(folder), name) for name in ("links", "outages")]
    return make_recordings(*tables, read_workload(None, str(folder)), most, RecordedPublications(None, str(folder)))


def test_events_are_in_the_window_of_their_time_by_the_clock_of_the_reference(tmp_path: Path) -> None:
    write_square(tmp_path)
    times = [FIRST + SECOND, FIRST + 3 * SECOND, SECOND_WINDOW + SECOND, 3 * WINDOW_NS + SECOND]
    late_clock = [(time + HOUR, 1, [2, 3], 2) for time in times]
    write_publications(tmp_path, [*late_clock, (FIRST, 4, [2], 1)], [[1, 7, HOUR], [4, 7, 0]])
    first, second = windows(tmp_path)
    assert (first.begin_ns, first.duration_ns, first.has_times) == (FIRST, WINDOW_NS, True)
    assert [(flow.publisher, flow.receivers, flow.times_ns) for flow in first.flows] == [
        (1, (2, 3), (SECOND, 3 * SECOND)),
        (4, (2,), (0,)),
    ]
    assert [flow.rate_msgs for flow in first.flows] == [2 * SECOND / WINDOW_NS, SECOND / WINDOW_NS]
    assert [(flow.publisher, flow.times_ns) for flow in second.flows] == [(1, (SECOND,))], "4 published nothing then"
    assert first.flows[0].deadlines_ns == (100 * MS, MS), "that of the pair, or that of the flow"


def test_a_window_without_publications_is_not_played(tmp_path: Path) -> None:
    write_square(tmp_path)
    write_publications(tmp_path, [(SECOND_WINDOW, 1, [2], 1)], [])
    assert [window.begin_ns for window in windows(tmp_path)] == [SECOND_WINDOW]


def test_of_a_sample_only_rates_are_known(tmp_path: Path) -> None:
    write_square(tmp_path)
    write_publications(tmp_path, [(FIRST + SECOND, 1, [2], 1)], [], sample=0.5)
    assert [(window.has_times, window.flows[0].rate_msgs) for window in windows(tmp_path)] == [(False, 10.0)] * 2


def test_too_many_publications_are_played_by_their_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_square(tmp_path)
    write_publications(tmp_path, [(time, 1, [2], 1) for time in (FIRST, FIRST + 1, SECOND_WINDOW)], [])
    monkeypatch.setattr("wend.pipeline.telemetry.recordings.MAX_PUBLICATIONS", 1)
    assert [window.has_times for window in windows(tmp_path)] == [False, True]


@pytest.mark.parametrize("short", [0, 1])
def test_a_short_window_goes_with_its_neighbour(tmp_path: Path, short: int) -> None:
    """The recording has the observed part of the longer one and all publications."""
    write_square(tmp_path)
    links = read_table(None, str(tmp_path), "links").to_pylist()
    begins = (FIRST, SECOND_WINDOW)
    for row in links:
        row["observed_ns"] = 3 * SECOND if row["begin_ns"] == begins[short] else WINDOW_NS - SECOND
    write_table(tmp_path, "links", links)
    times = (SECOND_WINDOW - SECOND, SECOND_WINDOW + SECOND, SECOND_WINDOW + 2 * SECOND)
    write_publications(tmp_path, [(time, 1, [2], 1) for time in times], [])
    (window,) = windows(tmp_path)
    observed = (SECOND_WINDOW, SECOND_WINDOW + WINDOW_NS - SECOND) if short == 0 else (FIRST + SECOND, SECOND_WINDOW)
    begin, end = min(observed[0], times[0]), max(observed[1], times[-1] + 1)
    assert (window.begin_ns, window.duration_ns) == (begin, end - begin)
    assert [begin + time for time in window.flows[0].times_ns] == list(times)
    assert len(window.links) == len(LINKS)
    down = [(begin + since, begin + until) for link in window.links for since, until in link.outages]
    assert (SECOND_WINDOW + SECOND, min(SECOND_WINDOW + WINDOW_NS // 2, end + DRAIN_NS)) in down


@pytest.mark.parametrize("first", [True, False])
def test_a_window_with_one_publication_is_played_as_long_as_it_was_observed(tmp_path: Path, first: bool) -> None:
    write_square(tmp_path)
    links = read_table(None, str(tmp_path), "links").to_pylist()
    for row in links:
        row["observed_ns"] = WINDOW_NS - SECOND
    write_table(tmp_path, "links", links)
    write_publications(tmp_path, [((FIRST if first else SECOND_WINDOW) + 5 * SECOND, 1, [2], 1)], [])
    (window,) = windows(tmp_path)
    begin = FIRST + SECOND if first else SECOND_WINDOW
    assert (window.begin_ns, window.duration_ns) == (begin, WINDOW_NS - SECOND)
    assert make_recorded_world(window, 1, {}).topics[0].times_ns


def test_lost_deliveries_were_expected_all_the_same(tmp_path: Path) -> None:
    rows = [
        (1, 1, [2, 3, 4], 3),
        (2, 1, [2, 4], 3),  # lost at 3
        (3, 1, [], 3),  # lost at all of them
        (4, 1, [2], 1),  # for 2 alone
        (5, 1, [5, 6], 3),  # nobody knows who the third one is
        (6, 2, [3], 3),  # of another publisher
        (7, 2, [], 3),  # nobody knows for whom
        (8, 1, [2, 3], -1),  # the publisher does not know for how many
    ]
    write_publications(tmp_path, rows, [])
    published = RecordedPublications(None, str(tmp_path)).read_between(0, 10)
    found = {(flow.publisher, flow.receivers): flow.times_ns for flow in timed_flows(published, 0, 10, {})}
    assert found == {
        (1, (2,)): (4,),
        (1, (2, 3)): (8,),
        (1, (2, 3, 4)): (1, 2, 3),
        (1, (5, 6)): (5,),
        (2, (3,)): (6,),
    }


def test_older_tables_have_no_times(tmp_path: Path) -> None:
    write_square(tmp_path)
    assert RecordedPublications(None, str(tmp_path)).complete_publishers == frozenset()
    assert [window.has_times for window in windows(tmp_path)] == [False, False]
