"""`wend data late` and `wend data workload`, in one update and in several, against an overlay whose truth is known."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.telemetry_segments import BEGIN_NS, DEADLINE_NS, InventedOverlay, write_segments
from tests.spark import needs_java
from wend.model.flows import read_flows
from wend.model.units import MS, SECOND
from wend.pipeline.storage.versioned_tables import read_table
from wend.pipeline.telemetry import clocks
from wend.pipeline.telemetry import updates as updates_module
from wend.pipeline.telemetry.clocks import solve_clocks
from wend.pipeline.telemetry.late_job import LateJob
from wend.pipeline.telemetry.recorded_publications import RecordedPublications
from wend.pipeline.telemetry.segment_listing import SegmentFile, list_segments
from wend.pipeline.telemetry.table_update import TelemetryJob
from wend.pipeline.telemetry.updates import run_update
from wend.pipeline.telemetry.workload_job import WorkloadJob

pytestmark = [needs_java, pytest.mark.spark]
YEAR = 365 * 86_400 * SECOND


def overlay() -> InventedOverlay:
    return InventedOverlay(6, 240 * SECOND, offsets={2: YEAR, 3: -90 * SECOND}, sample=0.5, event_period_ns=SECOND // 2)


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events") / "in"
    write_segments(folder, overlay(), 80 * SECOND)
    return folder


def late_rows(segments: Path) -> list[dict[str, Any]]:
    every = [row for path in segments.glob("deliveries-*") for row in pq.ParquetFile(path).read().to_pylist()]
    return [row for row in every if row["age_ns"] > DEADLINE_NS]


def updates(spark: Any, job: TelemetryJob, files: list[SegmentFile], out: Path) -> None:
    for some in (files[len(files) // 2 :], files):
        run_update(spark, str(out), job, some)


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_table(None, out, table).to_pylist()
    return sorted(found, key=lambda row: str(sorted(row.items())))


def test_late_events_spent_their_time_somewhere(spark: Any, segments: Path, tmp_path: Path) -> None:
    files = list_segments(spark, str(segments)).files
    job = LateJob(60 * SECOND)
    run_update(spark, str(tmp_path / "whole"), job, files)
    late = late_rows(segments)
    lateness, causes = rows(tmp_path / "whole", "lateness"), rows(tmp_path / "whole", "causes")
    assert sum(row["late"] for row in lateness) == len(late) > 20
    assert sum(row["incomplete"] for row in lateness) == 0
    assert {row["begin_ns"] for row in lateness} == {BEGIN_NS + minute * 60 * SECOND for minute in range(4)}
    assert sum(row["time_ns"] for row in causes) == sum(row["age_ns"] for row in late)
    waiting = sum(row["time_ns"] for row in causes if row["cause"] == "waiting")
    assert waiting > len(late) * 290 * MS

    updates(spark, job, sorted(files, key=lambda file: (file.segment.number % 2, file.path)), tmp_path / "parts")
    for table in ("causes", "lateness"):
        assert rows(tmp_path / "parts", table) == rows(tmp_path / "whole", table)


def test_routes_with_lost_segments_are_incomplete(spark: Any, segments: Path, tmp_path: Path) -> None:
    files = [file for file in list_segments(spark, str(segments)).files if file.segment.table != "hops"]
    run_update(spark, str(tmp_path / "out"), LateJob(60 * SECOND), files)
    assert sum(row["incomplete"] for row in rows(tmp_path / "out", "lateness")) == len(late_rows(segments))


def test_flows_have_the_rates_at_which_peers_published(spark: Any, segments: Path, tmp_path: Path) -> None:
    files = list_segments(spark, str(segments)).files
    run_update(spark, str(tmp_path / "whole"), WorkloadJob(), files)
    flows = {flow.publisher: flow for flow in read_flows(tmp_path / "whole")}
    assert {publisher: flow.receivers for publisher, flow in flows.items()} == overlay().subscribers
    for flow in flows.values():
        # Two sampled events a second, which are half of all.
        assert flow.rate == pytest.approx(4.0, rel=0.02)
        assert (flow.size_bytes, flow.deadline_ns) == (500, DEADLINE_NS)
    deadlines = {
        (row["publisher"], row["receiver"]): row["deadline_ns"] for row in rows(tmp_path / "whole", "deadlines")
    }
    assert deadlines == {(p, r): DEADLINE_NS for p, receivers in overlay().subscribers.items() for r in receivers}
    updates(spark, WorkloadJob(), sorted(files, key=lambda file: (-file.segment.number, file.path)), tmp_path / "parts")
    for table in ("flows", "deadlines", "publications"):
        assert rows(tmp_path / "parts", table) == rows(tmp_path / "whole", table)
    assert {row["sample"] for row in rows(tmp_path / "whole", "flows")} == {0.5}


@pytest.mark.parametrize("most", [2_000_000, 100])
def test_publications_have_their_times_by_the_clock_of_the_reference(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Clocks of two publishers are wrong by a year and by 90 s, and all events were written about. A few sightings
    are enough to find that."""
    compared: list[int] = []

    def solve(seen: Any, nodes: Any) -> clocks.Clocks:
        compared.append(len(seen))
        return solve_clocks(seen, nodes)

    monkeypatch.setattr(updates_module, "MAX_SIGHTINGS", most)
    monkeypatch.setattr(clocks, "solve_clocks", solve)
    overlay = InventedOverlay(6, 20 * SECOND, offsets={2: YEAR, 3: -90 * SECOND}, sample=1.0)
    write_segments(tmp_path / "in", overlay, 10 * SECOND)
    run_update(spark, str(tmp_path / "out"), WorkloadJob(), list_segments(spark, str(tmp_path / "in")).files)
    assert 0 < compared[0] < 2 * most
    publications = RecordedPublications(None, str(tmp_path / "out"))
    assert publications.complete_publishers == overlay.subscribers.keys()
    inside = publications.read_between(BEGIN_NS + 5 * SECOND, BEGIN_NS + 10 * SECOND)
    assert inside is not None
    found = inside.to_pylist()
    assert len(found) == 5 * overlay.peers
    for row in found:
        second, phase = divmod(row["time_ns"] - BEGIN_NS + MS, SECOND)
        assert second == row["sequence"] and abs(phase - MS - row["publisher"] * (SECOND // 7)) < 5 * MS
        assert row["receivers"] == overlay.subscribers[row["publisher"]] and row["expected"] == 3
