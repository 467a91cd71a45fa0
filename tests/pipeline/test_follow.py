"""`--follow`: a stream gives the rows of a batch, whatever happens to it on the way."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.telemetry_segments import InventedOverlay, write_segments
from tests.pipeline.killable_stream import JOBS, WINDOW
from tests.spark import ROOT, environment, needs_java
from wend.model.errors import ConfigError
from wend.model.units import SECOND
from wend.pipeline.storage.versioned_tables import read_table
from wend.pipeline.telemetry.follow import follow_segments
from wend.pipeline.telemetry.links_job import LinksJob
from wend.pipeline.telemetry.segment_listing import list_segments
from wend.pipeline.telemetry.updates import UpdateSummary, run_update

pytestmark = [needs_java, pytest.mark.spark]
YEAR = 365 * 86_400 * SECOND


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_table(None, out, table).to_pylist()
    return sorted(found, key=lambda row: str(sorted(row.items())))


def arrivals(folder: Path) -> list[Path]:
    """The segments of a small overlay, whose clocks differ by up to a year."""
    write_segments(
        folder, InventedOverlay(4, 120 * SECOND, outage_every_s=30.0, offsets={1: YEAR, 2: 3 * SECOND}), 60 * SECOND
    )
    return sorted(folder.iterdir())


CHUNK = 1800 * SECOND
KILLS = (
    ("links", "1"),
    ("late", "after"),
    ("workload", "after"),
    ("late", "before"),
    ("links", "after"),
    ("all", "none"),
)
"""Which stream is killed when. It has to begin its batch again, or finds that the tables have it."""


@pytest.mark.slow
@pytest.mark.timeout(900)  # it starts Spark six times
def test_streams_that_are_killed_five_times_give_the_rows_of_a_batch(spark: Any, tmp_path: Path) -> None:
    """Two hours of segments come in any order, some twice. Some of the first half hour come last: more than an hour
    late by the times of their rows, and as files that are older than all others."""
    truth = InventedOverlay(
        4, 4 * CHUNK, 20 * SECOND, event_period_ns=5 * SECOND, outage_every_s=300.0, offsets={1: YEAR, 2: 3 * SECOND}
    )
    write_segments(tmp_path / "all", truth, CHUNK)
    for job in JOBS:
        run_update(spark, str(tmp_path / "batch" / job.name), job, list_segments(spark, str(tmp_path / "all")).files)
    draw = random.Random(5)
    files = sorted((tmp_path / "all").iterdir())
    draw.shuffle(files)
    number = {path: int(path.stem.rpartition("-")[2]) for path in files}
    late = [path for path in files if number[path] == 0 and draw.random() < 0.5]
    waiting = [path for path in files if path not in late]
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    many = len(waiting) // len(KILLS)
    for killed, moment in KILLS:
        some = [waiting.pop() for _ in range(many)] if moment != "none" else [*waiting, *late]
        if moment == "none":
            assert {path.name.partition("-")[0] for path in late} == {file.name.partition("-")[0] for file in files}
            for job in JOBS:
                assert max(row["number"] for row in rows(out / job.name, "_segments")) == 3
        for path in some:
            shutil.copy(path, source)
            if path in late:
                os.utime(source / path.name, (0, 0))
            if draw.random() < 0.3:
                (source / f"again-{killed}-{moment}").mkdir(exist_ok=True)
                shutil.copy(path, source / f"again-{killed}-{moment}")
        command = [sys.executable, "-m", "tests.pipeline.killable_stream", str(source), str(out), killed, moment]
        own = environment() | {"SPARK_LOCAL_DIRS": str(tmp_path.parent / "scratch")}
        done = subprocess.run(command, cwd=ROOT, env=own, check=False, capture_output=True, text=True)
        assert done.returncode == (0 if moment == "none" else -signal.SIGKILL), done.stderr
    for job in JOBS:
        for table in job.results:
            assert rows(out / job.name, table) == rows(tmp_path / "batch" / job.name, table) != []
        assert len(rows(out / job.name, "_segments")) == len(rows(tmp_path / "batch" / job.name, "_segments"))


def test_a_stream_goes_on_after_its_checkpoint_is_lost(spark: Any, tmp_path: Path) -> None:
    files = arrivals(tmp_path / "all")
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for path in files[::2]:
        shutil.copy(path, source)
    made: list[UpdateSummary] = []
    how: Any = {"checkpoint": str(tmp_path / "check"), "drain": True, "report": made.append}
    follow_segments(spark, str(source), str(out), LinksJob(WINDOW), **how)
    assert [update.segments for update in made] == [len([path for path in files[::2] if "heartbeats" not in path.name])]
    before = rows(out, "links")
    follow_segments(spark, str(source), str(out), LinksJob(WINDOW), **how)
    assert len(made) == 1
    shutil.rmtree(tmp_path / "check")
    follow_segments(spark, str(source), str(out), LinksJob(WINDOW), **how)
    assert [update.segments for update in made[1:]] == [0]
    assert rows(out, "links") == before

    own = tmp_path / "check" / "wend" / "checkpoint.json"
    own.write_text(json.dumps(json.loads(own.read_text()) | {"format": 0}))
    with pytest.raises(ConfigError, match=r"checkpoint of another version of Wend \(format 0, not 1\): remove it"):
        follow_segments(spark, str(source), str(out), LinksJob(WINDOW), **how)
    own.write_text(json.dumps(json.loads(own.read_text()) | {"format": 1, "job": "late"}))
    with pytest.raises(ConfigError, match="is the checkpoint of `wend data late"):
        follow_segments(spark, str(source), str(out), LinksJob(WINDOW), **how)
