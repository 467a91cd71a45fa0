"""The same sweep on a standalone cluster and over Spark Connect gives the same numbers as on this machine.

Master, workers and the Connect server come from the pip package, on loopback and on ports that the system
chooses. Everything they write goes into the test's folder.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow.dataset as ds
import pytest

from tests.spark import needs_java
from wend.matching.filters import parse
from wend.pipeline.scenario_files import load_scenarios
from wend.pipeline.simulations import SIMULATIONS
from wend.pipeline.sweep import sweep

pytestmark = [needs_java, pytest.mark.spark, pytest.mark.slow]

SWEEP = """
base = { peers = 8, topics = 3, degree = 4, duration = "5s", ack = "free" }
[sweep]
strategy = ["dcrd", "oracle"]
seed = [1, 2]
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    scratch = tmp_path.parent / "scratch"  # the names of Spark's own folders must not have spaces
    scratch.mkdir()
    quiet = f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData"
    folders = {"SPARK_LOCAL_DIRS": str(scratch), "SPARK_LOG_DIR": str(scratch), "TMPDIR": str(scratch)}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    return {**kept, **folders, "JAVA_TOOL_OPTIONS": quiet, "PYSPARK_PYTHON": sys.executable}


@contextmanager
def daemon(command: list[str], ready: str, environment: dict[str, str], log: Path) -> Iterator[str]:
    """Start a Spark service. Wait until `ready` matches a line of its log, and yield the match."""
    import pyspark

    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    with log.open("w") as copy:
        process = subprocess.Popen(
            [spark_class, *command], stderr=subprocess.PIPE, env=environment, text=True, cwd=log.parent
        )
        assert process.stderr is not None
        reader = None
        try:
            found = _await(ready, process.stderr, copy)
            # Without a reader, the service would block when the pipe is full.
            reader = Thread(target=copy.writelines, args=(process.stderr,), daemon=True)
            reader.start()
            yield found
        finally:
            process.terminate()
            process.wait()
            if reader is not None:
                reader.join()
            process.stderr.close()


def _await(ready: str, lines: Any, copy: Any) -> str:
    for line in lines:
        copy.write(line)
        if found := re.search(ready, line):
            return found[found.lastindex or 0]
    raise AssertionError(f"the service ended before it said {ready!r}; see {copy.name}")


@pytest.fixture
def on_this_machine(spark: Any, tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "small.toml"
    path.write_text(SWEEP)
    swept = sweep(spark, SIMULATIONS, load_scenarios(path), "small", tmp_path / "local", quiet=True)
    assert not swept.failures
    return metrics(tmp_path / "local")


def metrics(out: Path) -> dict[str, Any]:
    rows = ds.dataset(out / "runs", format="parquet").to_table().to_pylist()
    return {row["run"]: {name: row[name] for name in row if name != "wall_s"} for row in rows}


def wend_sweep(master: str, tmp_path: Path, environment: dict[str, str], *more: str) -> dict[str, Any]:
    command = [
        str(Path(sys.executable).parent / "wend"), "data", "sweep", "--json",
        "--scenarios", str(tmp_path / "small.toml"), "--out", str(tmp_path / "out"), "--master", master, *more,
    ]  # fmt: skip
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, cwd=environment["TMPDIR"]
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_a_standalone_cluster_gives_the_same_numbers(
    tmp_path: Path, environment: dict[str, str], on_this_machine: dict[str, Any]
) -> None:
    package = "org.apache.spark.deploy"
    home = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with daemon(
        [f"{package}.master.Master", *home], r"Starting Spark master at (spark://\S+)", environment, tmp_path / "m"
    ) as master:
        worker = [f"{package}.worker.Worker", *home, "--cores", "1", "--memory", "1g"]
        workers = [[*worker, "--work-dir", str(tmp_path.parent / name), master] for name in ("w1", "w2")]
        ready = "Successfully registered with master"
        with (
            daemon(workers[0], ready, environment, tmp_path / "l1"),
            daemon(workers[1], ready, environment, tmp_path / "l2"),
        ):
            # also a strategy that no worker has: dcrd under another name
            (Path(environment["TMPDIR"]) / "mine.py").write_text(
                "from wend.protocol.routing.dcrd import Dcrd as Same\n"
            )
            (tmp_path / "small.toml").write_text(SWEEP.replace('"oracle"', '"oracle", "mine:Same"'))
            said = wend_sweep(master, tmp_path, environment, "--ship")
    assert (said["runs"], said["ran"], said["failures"]) == (6, 6, [])
    found = metrics(tmp_path / "out")
    assert {run: row for run, row in found.items() if row["strategy"] != "mine:Same"} == on_this_machine
    traces = {
        name: {r["trace_sha256"] for r in found.values() if r["strategy"] == name} for name in ("dcrd", "mine:Same")
    }
    assert traces["mine:Same"] == traces["dcrd"]


@contextmanager
def connect_server(tmp_path: Path, environment: dict[str, str]) -> Iterator[str]:
    """Start a Spark Connect server, and yield its address."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    server = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"]
    for name, value in settings.items():
        server += ["--conf", f"{name}={value}"]
    server += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    ready = r"Spark Connect server started at: \S*?:(\d+)"
    with daemon(server, ready, environment, tmp_path / "connect") as port:
        yield f"sc://127.0.0.1:{port}"


def test_spark_connect_gives_the_same_numbers(
    tmp_path: Path, environment: dict[str, str], on_this_machine: dict[str, Any]
) -> None:
    with connect_server(tmp_path, environment) as address:
        said = wend_sweep(address, tmp_path, environment)
    assert (said["runs"], said["ran"], said["failures"]) == (4, 4, [])
    assert metrics(tmp_path / "out") == on_this_machine


def test_matching_over_spark_connect_gives_the_same_rows(tmp_path: Path, environment: dict[str, str]) -> None:
    lines = {
        "s.jsonl": [{"id": n, "filter": f"x in [{n}, {n + 3}] or name prefix 'n{n}'"} for n in range(20)],
        "e.jsonl": [{"id": f"e{n}", "x": n, "name": f"n{n * 7 % 20}"} for n in range(30)],
    }
    for name, rows in lines.items():
        (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    wanted = {row["id"]: parse(row["filter"]) for row in lines["s.jsonl"]}
    expected = {(row["id"], key) for row in lines["e.jsonl"] for key, one in wanted.items() if one.matches(row)}
    with connect_server(tmp_path, environment) as address:
        for plan in ("broadcast", "partitioned"):
            words = ["--subscriptions", "s.jsonl", "--events", "e.jsonl", "--out", plan, "--plan", plan]
            command = [str(Path(sys.executable).parent / "wend"), "data", "match", "--json", *words]
            done = subprocess.run(
                [*command, "--master", address],
                env=environment, capture_output=True, text=True, check=False, cwd=tmp_path,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            rows = ds.dataset(tmp_path / plan, format="parquet").to_table().to_pylist()
            assert len(rows) == json.loads(done.stdout)["matches"] == len(expected)
            assert {(row["event"], row["subscription"]) for row in rows} == expected
