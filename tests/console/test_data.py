"""`wend data match` and `wend data generate` on the command line."""

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.telemetry_segments import InventedOverlay, write_segments
from tests.console.calls import Said
from tests.spark import needs_java
from wend.console.app import main
from wend.matching.filters import parse
from wend.model.units import SECOND
from wend.pipeline.spark import session
from wend.pipeline.storage.versioned_tables import read_table

MATCH = ("match", "--subscriptions", "s.jsonl", "--events", "e.jsonl")
FLOWS = ("flows", "--matches", "matches", "--subscriptions", "s.jsonl", "--events", "e.jsonl")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("match", "--subscriptions", "none.parquet", "--events", "e.jsonl", "--out", "o"), "there is no none.parquet"),
        (("match", "--subscriptions", "s.jsonl", "--events", "x.csv", "--out", "o"), "x.csv is neither Parquet"),
        (MATCH, "--out is needed"),
        ((*MATCH, "--out", "full"), "full is not empty; --overwrite replaces it"),
        ((*MATCH, "--out", "s.jsonl"), "s.jsonl is a file"),
        ((*MATCH, "--out", "o", "--plan", "guess"), "there is no plan 'guess'"),
        ((*MATCH, "--out", "o", "--task-memory", "0"), "a task needs at least 1 MB of memory, got 0"),
        ((*MATCH, "--out", "o", "--master", "moon"), "master 'moon'"),
        (("generate", "--out", "o", "--kind", "gauss"), "there is no workload 'gauss'"),
        (("generate", "--out", "o", "--predicates", "5-1"), "filters must have 1 to 10"),
        (("generate", "--out", "o", "--predicates", "many"), "expected a number such as 3 or a span such as 1-5"),
        (("generate", "--out", "full"), "full is not empty"),
        (("generate", "--out", "o", "--events", "-5"), "--events must not be negative, got -5"),
        (("generate", "--out", "/proc/none"), "cannot write /proc/none: "),
        (("topology", "--out", "o", "--synthetic", "0"), "--synthetic must be at least 1, got 0"),
        (("topology", "--out", "o", "--synthetic", "9", "--least", "0"), "--least must be at least 1, got 0"),
        ((*FLOWS, "--out", "o"), "there is no matches"),
        (("links", "none", "--out", "o"), "there is no none"),
        (("links", ".", "--out", "o", "--window", "1ms"), "--window must be at least 100ms, got 1ms"),
        (("links", ".", "--out", "full"), "full is not empty, and has no tables of Wend's"),
        (("links", ".", "--out", "s.jsonl"), "s.jsonl is a file, but tables need a folder"),
        (("links", ".", "--out", "o", "--drain"), "--drain and --checkpoint are for --follow"),
        (("links", ".", "--out", "o", "--follow", "--rebuild"), "--rebuild is for a batch"),
        (("links", ".", "--out", "o", "--picture", "p.png"), "p.png must end in .svg"),
        (("links", "empty", "--out", "o"), "empty has no segments of telemetry\n"),
        (("late", "full", "--out", "o"), "full has no segments of telemetry; it has 1 other files"),
        (("workload", "empty", "--out", "o"), "empty has no segments of telemetry\n"),
        (("late", ".", "--out", "o", "--window", "1s"), "--window must be at least 1m, got 1s"),
        (("workload", ".", "--out", "o", "--max-bad", "2"), "--max-bad is a share of 1, got 2"),
        (("compact", "full"), "full has no tables of Wend's"),
        ((*FLOWS, "--out", "o", "--span", "0s"), "--span must be longer than 0"),
    ],
)
def test_what_cannot_work_is_one_sentence(
    words: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("kept")
    (tmp_path / "s.jsonl").write_text('{"id": 1, "filter": "true"}\n')
    (tmp_path / "e.jsonl").write_text('{"id": 1, "x": 1}\n')
    (tmp_path / "x.csv").write_text("id,x\n1,1\n")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["wend", "data", *words])
    monkeypatch.setattr(session, "_check_java", lambda: pytest.fail("Spark was started"))
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith("wend: ") and sentence in said
    assert len(said.strip().splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


@needs_java
@pytest.mark.spark
@pytest.mark.usefixtures("spark_commands")
def test_a_workload_is_drawn_matched_and_counted(said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("generate", "--out", "w", "--events", "400", "--subscriptions", "200", "--kind", "narrow", "--json")
    code, out, err = said("data", *words)
    assert code == 0, err
    assert json.loads(out)["events"] == 400
    both = ("data", "match", "--subscriptions", "w/subscriptions", "--events", "w/events")
    code, out, err = said(*both, "--out", "c", "--count", "--json")
    assert code == 0, err
    counted = json.loads(out)
    events = pq.read_table(tmp_path / "w" / "events").to_pylist()
    filters = [parse(row["filter"]) for row in pq.read_table(tmp_path / "w" / "subscriptions").to_pylist()]
    expected = {event.pop("id"): sum(one.matches(event) for one in filters) for event in map(dict, events)}
    found = {row["event"]: row["matches"] for row in pq.read_table(tmp_path / "c" / "events").to_pylist()}
    assert found == expected
    assert counted["matches"] == sum(expected.values()) and counted["plan"]["name"] == "broadcast"
    code, out, err = said(*both, "--explain", "--plan", "partitioned", "--out", "p")
    assert code == 0, err
    assert "planes" in out and "asked for" in out and "matches" in out
    pairs = pq.read_table(tmp_path / "p")
    assert pairs.num_rows == counted["matches"] and pairs.column_names == ["event", "subscription"]


@needs_java
@pytest.mark.spark
@pytest.mark.usefixtures("spark_commands")
def test_telemetry_is_found_by_relative_paths_from_any_folder(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers of the session, and a later call, run in other folders than the command."""
    write_segments(tmp_path / "seen", InventedOverlay(3, 60 * SECOND), 30 * SECOND)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    code, out, err = said("data", "links", "seen", "--out", "links", "--json")
    assert code == 0, err
    made = json.loads(out)
    assert made["segments"] > 9 and made["quarantined"] == 0
    assert {Path(row["file"]).parent for row in read_table(None, tmp_path / "links", "_segments").to_pylist()} == {
        tmp_path / "seen"
    }
    code, _, err = said("data", "links", "seen", "--out", "links", "--follow", "--drain", "--checkpoint", "stream")
    assert code == 0, err
    monkeypatch.chdir(tmp_path / "elsewhere")
    words = ("--out", "../links", "--follow", "--drain", "--checkpoint", "../stream")
    code, _, err = said("data", "links", "../seen", *words)
    assert code == 0 and "../seen has no segment that the stream has not used yet" in err
    (tmp_path / "elsewhere" / "seen").mkdir()
    code, _, err = said("data", "links", "seen", *words)
    assert code == 2 and f"is the checkpoint of `wend data links {tmp_path / 'seen'}`" in err
