"""Replays: recorded windows under each strategy, as rows on Spark, and the recommendation that follows."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from tests.pipeline.recorded_tables import WINDOW_NS, write_publications, write_square, write_table
from tests.spark import needs_java
from wend.console.app import app
from wend.drivers.recorded import DRAWN, MOVED, RECORDED
from wend.model.errors import ConfigError
from wend.model.units import SECOND
from wend.pipeline.storage.versioned_tables import read_table
from wend.pipeline.telemetry.recorded_publications import RecordedPublications
from wend.pipeline.telemetry.recordings import make_recordings, read_workload
from wend.pipeline.telemetry.replays import (
    METRICS,
    ReplayFields,
    make_variants,
    play_recording,
    run_replays,
    save_replays,
)


def windows(folder: Path) -> Any:
    tables = [read_table(None, str(folder), name) for name in ("links", "outages")]
    return make_recordings(*tables, read_workload(None, str(folder)), 10)


def test_only_strategies_with_redundancy_are_played_with_each() -> None:
    assert make_variants(["adaptive", "d-tree"], ["none", "free"]) == [
        ("adaptive", "none"),
        ("adaptive", "free"),
        ("d-tree", ""),
    ]
    for strategies, redundancy, said in (
        (["adptive"], ["none"], "unknown strategy 'adptive'"),
        (["adaptive"], ["much"], "unknown redundancy 'much': choose from none, tight, free"),
        ([], ["none"], "name at least one strategy"),
    ):
        with pytest.raises(ConfigError, match=said):
            make_variants(strategies, redundancy)


@pytest.mark.parametrize(
    ("strategy", "least", "most"), [("dcrd", 0.99, 1.0), ("d-tree", 0.4, 0.7), ("planned", 0.2, 1.0)]
)
def test_a_window_is_played_as_it_was_recorded(tmp_path: Path, strategy: str, least: float, most: float) -> None:
    write_square(tmp_path, 1)
    (window,) = windows(tmp_path)
    text = msgspec.json.encode(window).decode()
    found = play_recording(ReplayFields(strategy, "", window.begin_ns, window.duration_ns, DRAWN, "{}", text), 1)
    assert set(found) == set(METRICS)
    assert found["expected"] == 10 * WINDOW_NS / 1e9
    assert least <= found["on_time"] <= most
    assert found["packets"] >= 1.0


def test_at_the_recorded_times_seeds_change_nothing_and_moved_ones_do(tmp_path: Path) -> None:
    """The tree loses what is published in the outage. All of these are, and hardly any if they are moved."""
    write_square(tmp_path, 1)
    times = [WINDOW_NS + SECOND + number * SECOND // 10 for number in range(90)]
    write_publications(tmp_path, [(time, 1, [2], 1) for time in times], [])
    (window,) = make_recordings(
        *(read_table(None, str(tmp_path), name) for name in ("links", "outages")),
        read_workload(None, str(tmp_path)),
        10,
        RecordedPublications(None, str(tmp_path)),
    )
    text = msgspec.json.encode(window).decode()

    def on_time(times: str, seed: int) -> float:
        fields = ReplayFields("d-tree", "", window.begin_ns, window.duration_ns, times, "{}", text)
        return play_recording(fields, seed)["on_time"]

    assert [on_time(RECORDED, seed) for seed in (1, 2)] == [0.0, 0.0]
    moved = [on_time(MOVED, seed) for seed in (1, 2, 3)]
    assert len({*moved}) > 1 and max(moved) > 0.1


@needs_java
@pytest.mark.spark
def test_replays_become_a_table_and_a_recommendation(spark: Any, tmp_path: Path) -> None:
    write_square(tmp_path / "tables")
    played, chosen, out = (
        windows(tmp_path / "tables"),
        make_variants(["dcrd", "d-tree"], ["none"]),
        tmp_path / "replays",
    )
    swept = run_replays(spark, played, chosen, out, seeds=2, quiet=True)
    assert (swept.runs, swept.ran, swept.failures) == (8, 8, [])
    for _ in range(2):  # the table is replaced, not doubled
        save_replays(spark, swept, str(out))
    rows = read_table(None, str(out), "replays").to_pylist()
    assert sorted((row["strategy"], row["begin_ns"], row["seed"]) for row in rows) == [
        (strategy, number * WINDOW_NS, seed) for strategy in ("d-tree", "dcrd") for number in (1, 2) for seed in (1, 2)
    ]
    assert {row["times"] for row in rows} == {DRAWN}
    assert run_replays(spark, played, chosen, out, seeds=2, quiet=True).ran == 0, "finished runs are not repeated"
    said = CliRunner().invoke(app, ["data", "recommend", str(out), "--json"])
    found = json.loads(said.stdout)
    assert found["settings"] == {"strategy": "dcrd"} and len(found["ranked"]) == 2


def test_the_command_prints_a_table_a_paragraph_settings_and_a_picture(tmp_path: Path) -> None:
    rows = [
        {
            "strategy": strategy, "redundancy": redundancy, "begin_ns": window, "duration_ns": WINDOW_NS, "seed": 1,
            "times": RECORDED if window < 2 else MOVED,
            "on_time": share - window / 1000, "delivery": 1.0, "packets": 1.5, "expected": 100.0, "delay_p50_ms": 1.0,
            "delay_p99_ms": 2.0,
        }
        for strategy, redundancy, share in (("adaptive", "tight", 0.99), ("d-tree", "", 0.9))
        for window in range(4)
    ]  # fmt: skip
    write_table(tmp_path, "replays", rows)
    drawing = tmp_path / "picture.svg"
    said = CliRunner().invoke(app, ["data", "recommend", str(tmp_path), "--picture", str(drawing)])
    assert said.exit_code == 0, said.output
    assert "…" not in said.stdout, "it fits into 80 columns"
    assert "adaptive, tight" in said.stdout and " 98.95 " in said.stdout, "what was on time as recorded"
    assert '    strategy = "adaptive"\n    redundancy = "tight"' in said.stdout
    assert "Use adaptive with redundancy tight." in " ".join(said.stdout.split())
    assert drawing.read_text().startswith("<svg")


def test_mistakes_get_a_sentence_before_spark_starts(tmp_path: Path) -> None:
    write_square(tmp_path / "tables")
    tables = str(tmp_path / "tables")
    given = ["data", "replay", "--links", tables, "--workload", tables, "--out", str(tmp_path / "out")]
    for more, sentence in (
        (["--strategies", "bogus"], "unknown strategy 'bogus'"),
        (["--seeds", "0"], "--seeds must be 1 or more"),
        (["--set", "detection"], "--set needs NAME=VALUE"),
        (["--set", "detections=5ms"], "there is no setting 'detections'"),
    ):
        said = CliRunner().invoke(app, [*given, *more])
        assert isinstance(said.exception, ConfigError) and sentence in str(said.exception), said.output
    said = CliRunner().invoke(app, ["data", "recommend", str(tmp_path)])
    assert isinstance(said.exception, ConfigError) and "has no tables of Wend's" in str(said.exception)
