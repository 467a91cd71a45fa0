"""SIGTERM while Spark works: the command ends in order, and leaves nothing half-written."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark import environment, needs_java

pytestmark = [needs_java, pytest.mark.spark]
COMMAND = [sys.executable, "-m", "wend.console.start", "data", "match", "--master", "local[1]"]
SLOW = " or ".join(f"x{number} = {number}" for number in range(40))
PATIENCE_S = 120


def test_sigterm_during_a_job_leaves_no_hidden_folder(tmp_path: Path) -> None:
    inputs, outputs = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    outputs.mkdir()
    pq.write_table(
        pa.table({"id": range(2_000), "filter": [f"y = {n} or {SLOW}" for n in range(2_000)]}), inputs / "s.parquet"
    )
    pq.write_table(pa.table({"id": range(2_000), "y": range(2_000)}), inputs / "e.parquet")
    words = ["--subscriptions", str(inputs / "s.parquet"), "--events", str(inputs / "e.parquet")]
    process = subprocess.Popen(
        [*COMMAND, *words, "--out", str(outputs / "result")], env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        until = time.monotonic() + PATIENCE_S
        while not [path for path in outputs.iterdir() if path.name.startswith(".")]:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until, "the job wrote nothing"
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 143
    assert said.splitlines()[-1] == "wend: terminated; nothing was written"
    assert list(outputs.iterdir()) == []
