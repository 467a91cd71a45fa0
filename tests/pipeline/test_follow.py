"""`--follow`: a stream gives the rows of a batch, whatever happens to it on the way."""

import json
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.telemetry_segments import InventedOverlay, write_segments
from tests.pipeline.killable_stream import WINDOW
from tests.spark import ROOT, environment, needs_java
from wend.model.errors import ConfigError
from wend.model.units import SECOND
from wend.pipeline.tables import read_local
from wend.pipeline.telemetry.follow import follow
from wend.pipeline.telemetry.jobs import UpdateSummary, run_update
from wend.pipeline.telemetry.links_job import LinksJob
from wend.pipeline.telemetry.segments import list_segments

pytestmark = [needs_java, pytest.mark.spark]
YEAR = 365 * 86_400 * SECOND


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_local(out, table).to_pylist()
    return sorted(found, key=lambda row: str(sorted(row.items())))


def arrivals(folder: Path) -> list[Path]:
    """The segments of a small overlay, whose clocks differ by up to a year."""
    write_segments(
        folder, InventedOverlay(4, 120 * SECOND, outage_every_s=30.0, offsets={1: YEAR, 2: 3 * SECOND}), 60 * SECOND
    )
    return sorted(folder.iterdir())


@pytest.mark.slow
def test_a_stream_that_is_killed_five_times_gives_the_rows_of_a_batch(spark: Any, tmp_path: Path) -> None:
    files = arrivals(tmp_path / "all")
    run_update(spark, str(tmp_path / "batch"), LinksJob(WINDOW), list_segments(spark, str(tmp_path / "all")).files)
    draw = random.Random(5)
    draw.shuffle(files)
    source, out, waiting = tmp_path / "in", tmp_path / "out", list(files)
    source.mkdir()
    for moment in ("1", "before", "after", "7", "before", "none"):
        # Some segments come now, some of them twice; the last ones come an hour after all others, and so on.
        some = waiting if moment == "none" else [waiting.pop() for _ in range(len(files) // 6)]
        for path in some:
            shutil.copy(path, source)
            if draw.random() < 0.3:
                (source / f"again-{moment}").mkdir(exist_ok=True)
                shutil.copy(path, source / f"again-{moment}")
        command = [sys.executable, "-m", "tests.pipeline.killable_stream", str(source), str(out), moment]
        own = environment() | {"SPARK_LOCAL_DIRS": str(tmp_path.parent / "scratch")}
        done = subprocess.run(command, cwd=ROOT, env=own, check=False, capture_output=True, text=True)
        assert done.returncode == (0 if moment == "none" else -signal.SIGKILL), done.stderr
    for table in ("links", "outages"):
        assert rows(out, table) == rows(tmp_path / "batch", table)
    assert len(rows(out, "_segments")) == len(rows(tmp_path / "batch", "_segments"))


def test_a_stream_goes_on_after_its_checkpoint_is_lost(spark: Any, tmp_path: Path) -> None:
    files = arrivals(tmp_path / "all")
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for path in files[::2]:
        shutil.copy(path, source)
    made: list[UpdateSummary] = []
    how: Any = {"checkpoint": str(tmp_path / "check"), "drain": True, "report": made.append}
    follow(spark, str(source), str(out), LinksJob(WINDOW), **how)
    assert [update.segments for update in made] == [len([path for path in files[::2] if "heartbeats" not in path.name])]
    before = rows(out, "links")
    follow(spark, str(source), str(out), LinksJob(WINDOW), **how)
    assert len(made) == 1
    shutil.rmtree(tmp_path / "check")
    follow(spark, str(source), str(out), LinksJob(WINDOW), **how)
    assert [update.segments for update in made[1:]] == [0]
    assert rows(out, "links") == before

    own = tmp_path / "check" / "wend" / "checkpoint.json"
    own.write_text(json.dumps(json.loads(own.read_text()) | {"format": 0}))
    with pytest.raises(ConfigError, match=r"checkpoint of another version of Wend \(format 0, not 1\): remove it"):
        follow(spark, str(source), str(out), LinksJob(WINDOW), **how)
    own.write_text(json.dumps(json.loads(own.read_text()) | {"format": 1, "job": "late"}))
    with pytest.raises(ConfigError, match="is the checkpoint of `wend data late"):
        follow(spark, str(source), str(out), LinksJob(WINDOW), **how)
