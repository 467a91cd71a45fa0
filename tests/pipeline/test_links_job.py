"""`wend data links` as a batch: an invented overlay with wrong clocks, and everything that a folder may hold."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.telemetry_segments import (
    BEGIN_NS,
    InventedOverlay,
    link_samples,
    true_outages,
    write_segment,
    write_segments,
)
from tests.spark import needs_java
from wend.model.errors import ConfigError
from wend.model.telemetry import TABLES, Segment, parse_segment_name
from wend.model.units import MS, SECOND
from wend.pipeline.storage.versioned_tables import read_table
from wend.pipeline.telemetry import segment_reduction
from wend.pipeline.telemetry.links_job import LinksJob
from wend.pipeline.telemetry.segment_listing import list_segments
from wend.pipeline.telemetry.segment_rows import LATER, UnusableSegment, read_segment
from wend.pipeline.telemetry.updates import UpdateSummary, run_update

pytestmark = [needs_java, pytest.mark.spark]
YEAR = 365 * 86_400 * SECOND
DURATION = 240 * SECOND
WINDOW = 30 * SECOND


def overlay() -> InventedOverlay:
    return InventedOverlay(5, DURATION, outage_every_s=40.0, offsets={2: YEAR, 3: -7 * SECOND}, sample=1.0)


def update(spark: Any, source: Path, out: Path, **how: Any) -> UpdateSummary:
    made = run_update(spark, str(out), LinksJob(WINDOW), list_segments(spark, str(source)).files, **how)
    assert made is not None
    return made


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_table(None, out, table).to_pylist()
    return sorted(found, key=lambda row: str(sorted(row.items())))


def corrupt(folder: Path) -> None:
    """What a folder of segments may have beside good ones."""
    good = overlay()
    (folder / "later").mkdir()
    copied = sorted(folder.glob("links-*-000000.parquet"))
    shutil.copy(copied[0], folder / "later")
    truncated = Segment("links", 1, 0, BEGIN_NS, 90)
    (folder / truncated.name).write_bytes(copied[0].read_bytes()[:-100])
    (folder / Segment("links", 2, 0, BEGIN_NS, 91).name).write_bytes(copied[0].read_bytes())
    (folder / Segment("links", 1, 0, BEGIN_NS, 92).name).write_bytes(copied[0].read_bytes())
    pq.write_table(pa.table({"x": [1]}), folder / Segment("changes", 1, 0, BEGIN_NS, 93).name)
    (folder / "notes.txt").write_text("no segment")
    (folder / "hidden").mkdir()
    (folder / ".half").write_text("a copier writes here")
    wrong = link_samples(good, 1, 0, 10 * SECOND)
    wrong["delay_ns"][3] = -1
    write_segment(folder, "links", 1, {**wrong, "time_ns": wrong["time_ns"] + DURATION}, 94)
    # Another host with the id of peer 4, which started while the first one ran.
    twin = link_samples(good, 4, 0, DURATION)
    write_segment(folder, "links", 4, twin, 0, incarnation=BEGIN_NS + SECOND)
    # It saw events, so that its clock is known.
    hops = pq.ParquetFile(next(folder.glob("hops-v1-4-*-000000.parquet"))).read().to_pylist()
    columns = {name: [row[name] for row in hops] for name in hops[0]}
    columns["time_ns"] = [time - BEGIN_NS for time in columns["time_ns"]]
    write_segment(folder, "hops", 4, columns, 0, incarnation=BEGIN_NS + SECOND)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> "tuple[Path, UpdateSummary]":
    from tests.spark import shared_session

    folder = tmp_path_factory.mktemp("links") / "run[12] {a,b}*?\\c"
    write_segments(folder / "in", overlay(), 80 * SECOND)
    corrupt(folder / "in")
    return folder, update(shared_session(), folder / "in", folder / "out")


def test_outages_are_found_by_the_right_clock(made: "tuple[Path, UpdateSummary]") -> None:
    found = sorted(
        read_table(None, made[0] / "out", "outages").to_pylist(), key=lambda row: (row["a"], row["b"], row["begin_ns"])
    )
    truth = list(true_outages(overlay()))
    assert len(found) == len(truth) > 20
    for row, (a, b, begin, end) in zip(found, truth, strict=True):
        assert (row["a"], row["b"], row["ends"]) == (a, b, 2)
        assert abs(row["begin_ns"] - begin) < 160 * MS
        assert abs(row["end_ns"] - end) < 160 * MS


def test_without_events_outages_compare_the_clocks(spark: Any, tmp_path: Path) -> None:
    quiet = InventedOverlay(5, 900 * SECOND, outage_every_s=60.0, offsets={2: YEAR, 3: -7 * SECOND})
    write_segments(tmp_path / "in", quiet, 900 * SECOND)
    files = list_segments(spark, str(tmp_path / "in")).files
    files = [file for file in files if file.segment.table in ("links", "changes")]
    made = run_update(spark, str(tmp_path / "out"), LinksJob(WINDOW), files)
    assert made is not None and made.unaligned == []
    found = {(row["a"], row["b"], row["begin_ns"]): row for row in rows(tmp_path / "out", "outages")}
    assert len(found) == sum(len(outages) for outages in quiet.outages.values()) > 30
    assert all(row["ends"] == 2 and row["agreed"] for row in found.values())


def test_a_year_between_two_clocks_makes_no_further_windows(made: "tuple[Path, UpdateSummary]") -> None:
    folder, summary = made
    links = read_table(None, folder / "out", "links").to_pylist()
    begins = {row["begin_ns"] for row in links}
    assert min(begins) == BEGIN_NS and max(begins) <= BEGIN_NS + DURATION + 10 * SECOND
    assert {(row["a"], row["b"]) for row in links} == set(overlay().links)
    assert all(row["ends"] == 2 for row in links if row["begin_ns"] < BEGIN_NS + DURATION)
    assert summary.unaligned == []
    for row in links:
        assert row["delay_p50_ns"] == pytest.approx(overlay().links[row["a"], row["b"]] + MS, rel=0.1)


def test_each_thing_that_cannot_be_used_has_a_reason(made: "tuple[Path, UpdateSummary]") -> None:
    folder, summary = made
    bad = {(row["number"], row["line"]): row["reason"] for row in rows(folder / "out", "_quarantine")}
    assert bad.keys() == {(90, None), (91, None), (92, None), (93, None), (94, 4)}
    assert bad[90, None].startswith("the file is truncated or no Parquet file")
    assert bad[91, None] == "its schema is 2, and this Wend reads schemas up to 1"
    assert bad[92, None] == "its rows are of segment 0, and its name says 92"
    assert bad[93, None] == "it has no column peer"
    assert bad[94, 4] == "delay_ns is negative: -1"
    assert (summary.quarantined, summary.unreadable, summary.copies) == (5, 4, 1)


def test_two_hosts_with_one_id_are_said(made: "tuple[Path, UpdateSummary]") -> None:
    assert [remark.split(" (")[0] for remark in made[1].remarks] == ["peer 4 ran twice at once for 240 s"]


def test_segments_one_by_one_give_the_same_rows(
    spark: Any, made: "tuple[Path, UpdateSummary]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an odd order, the later ones through Spark's own reader, with copies."""
    folder, _ = made
    files = list_segments(spark, str(folder / "in")).files
    files.sort(key=lambda file: (-file.segment.number % 4, file.segment.table, file.path))
    third = len(files) // 3
    for at, some in enumerate((files[third : 2 * third], files[2 * third :], files)):
        with monkeypatch.context() as patch:
            if at == 1:
                patch.setattr(segment_reduction, "local_path", lambda path: None)
            run_update(spark, str(tmp_path / "out"), LinksJob(WINDOW), some, max_bad=1.0)
    for table in ("links", "outages"):
        assert rows(tmp_path / "out", table) == rows(folder / "out", table)


def test_a_batch_is_committed_once(spark: Any, made: "tuple[Path, UpdateSummary]") -> None:
    folder, summary = made
    again = update(spark, folder / "in", folder / "out")
    assert (again.segments, again.results) == (0, summary.results)
    with pytest.raises(ConfigError, match="was made with window_ns 30000000000, and now it is 60000000000"):
        run_update(spark, str(folder / "out"), LinksJob(60 * SECOND), [])


@pytest.mark.parametrize("table", sorted(TABLES))
def test_segments_may_lack_the_columns_that_came_later_and_no_others(tmp_path: Path, table: str) -> None:
    rows = {name: ["up" if name == "state" else ""] if kind == "s" else [1] for name, kind in TABLES[table]}
    path = write_segment(tmp_path, table, 1, rows, 1)
    segment = parse_segment_name(path.name)
    assert segment is not None
    whole = pq.ParquetFile(path).read()
    for name, _ in TABLES[table]:
        pq.write_table(whole.drop_columns([name]), path)
        if name in LATER.get(table, ()):
            found, _ = read_segment(str(path), segment)
            assert found.num_rows == 1 and name not in found.column_names
        else:
            with pytest.raises(UnusableSegment, match=f"no column {name}"):
                read_segment(str(path), segment)


def test_outages_of_segments_from_before_the_delay_was_written_are_found(spark: Any, tmp_path: Path) -> None:
    write_segments(tmp_path / "in", overlay(), 80 * SECOND)
    for path in (tmp_path / "in").glob("changes-*"):
        pq.write_table(pq.ParquetFile(path).read().drop_columns(["delay_ns"]), path)
    assert update(spark, tmp_path / "in", tmp_path / "out").quarantined == 0
    assert len(read_table(None, tmp_path / "out", "outages")) == len(list(true_outages(overlay())))


def test_too_many_bad_rows_are_refused(spark: Any, tmp_path: Path) -> None:
    wrong = link_samples(overlay(), 1, 0, 10 * SECOND)
    wrong["delay_ns"][:] = -1
    (tmp_path / "in").mkdir()
    path = write_segment(tmp_path / "in", "links", 1, wrong, 0)
    with pytest.raises(ConfigError, match=f"more than --max-bad 0.01; the first is in {path.name}, row 1: delay_ns is"):
        update(spark, tmp_path / "in", tmp_path / "out")
