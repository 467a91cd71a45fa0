"""If the driver is killed half-way, only the runs in flight are lost."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.killable import FREE, SCENARIOS, run
from tests.spark import ROOT, environment, needs_java
from wend.pipeline.scenario_rows import scenario_key
from wend.pipeline.sweeps.sweep import RunStore

pytestmark = [needs_java, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "gate")
    # Opened for reading and writing, so that neither end blocks until the other opens it.
    begun = os.open(tmp_path / "begun", os.O_RDWR)
    yield tmp_path
    os.close(begun)
    os.close(os.open(tmp_path / "gate", os.O_RDWR | os.O_NONBLOCK))


def start(folder: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.pipeline.killable", str(folder)]
    own = environment() | {"SPARK_LOCAL_DIRS": str(folder.parent / "scratch")}
    return subprocess.Popen(command, cwd=ROOT, env=own)


def test_a_killed_sweep_goes_on_where_it_was(spark: Any, folder: Path) -> None:
    first = start(folder)
    with (folder / "begun").open() as begun:
        seen = {int(begun.readline()) for _ in range(FREE + 2)}
    assert seen == set(range(1, FREE + 3))
    first.send_signal(signal.SIGKILL)
    first.wait()

    store = RunStore(folder, "kill", "c")
    finished = {scenario_key(scenario) for scenario in SCENARIOS[:FREE]}
    assert store.list_finished() == finished
    times = {key: (store.folder / f"{key}.parquet").stat().st_mtime_ns for key in finished}

    (folder / "open").touch()
    second = run(spark, folder)
    assert (second.ran, second.failures) == (len(SCENARIOS) - FREE, [])
    assert second.results.count() == len(SCENARIOS)
    assert times == {key: (store.folder / f"{key}.parquet").stat().st_mtime_ns for key in finished}
    runs = Counter(int(line) for line in (folder / "log").read_text().split())
    assert {seed: runs[seed] for seed in range(1, FREE + 1)} == dict.fromkeys(range(1, FREE + 1), 1)
    assert set(runs) == {scenario.seed for scenario in SCENARIOS}
