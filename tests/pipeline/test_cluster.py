"""The same sweep on a standalone cluster and over Spark Connect gives the same numbers as on this machine.

Master, worker and the Connect server come from the pip package, on loopback and on ports that the system chooses.
Everything they write goes into the folder of this module. Commands are processes of their own: a process has either a
local session or a Connect session.
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

from tests.cores import pure_only
from tests.pipeline.log_peer_process import LogPeerProcess
from tests.spark import JAVA, SQL, needs_java
from wend.matching.filters import parse
from wend.pipeline.scenario_files import load_scenarios
from wend.pipeline.sweeps.simulations import SIMULATIONS
from wend.pipeline.sweeps.sweep import run_sweep

pytestmark = [needs_java, pytest.mark.spark, pytest.mark.slow]

SWEEP = """
base = { peers = 8, topics = 3, degree = 4, duration = "5s", ack = "free" }
[sweep]
strategy = ["dcrd", "oracle"]
seed = [1, 2]
"""
COMMANDS = """
import json, sys
from wend.console.app import app
for words in json.load(sys.stdin):
    app(words, standalone_mode=False)
"""
"""Several `wend` commands in one process, one after the other."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a name that Spark could take for a pattern, and with the scenarios."""
    strange = tmp_path_factory.mktemp("cluster") / "run[12] {a,b}"
    strange.mkdir()
    (strange / "small.toml").write_text(SWEEP)
    return strange


@pytest.fixture(scope="module")
def environment(folder: Path) -> dict[str, str]:
    scratch = folder.parent / "scratch"  # the names of Spark's own folders must not have spaces
    scratch.mkdir()
    options = f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData {JAVA}"
    folders = {"SPARK_LOCAL_DIRS": str(scratch), "SPARK_LOG_DIR": str(scratch), "TMPDIR": str(scratch)}
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    return {**plain, **folders, "JAVA_TOOL_OPTIONS": options, "PYSPARK_PYTHON": sys.executable}


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


@pytest.fixture(scope="module")
def on_this_machine(spark: Any, folder: Path) -> dict[str, Any]:
    scenarios = load_scenarios(folder / "small.toml")
    swept = run_sweep(spark, SIMULATIONS, scenarios, "small", folder / "local", quiet=True)
    assert not swept.failures
    return metrics(folder / "local")


def metrics(out: Path) -> dict[str, Any]:
    rows = ds.dataset(out / "runs", format="parquet").to_table().to_pylist()
    return {row["run"]: {name: row[name] for name in row if name != "wall_s"} for row in rows}


def wend(environment: dict[str, str], *commands: list[str]) -> list[dict[str, Any]]:
    """Run commands in one process; return what each printed, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        input=json.dumps(commands), env=environment, capture_output=True, text=True, check=False,
        cwd=environment["TMPDIR"],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def sweeping(scenarios: Path, out: Path, master: str, *more: str) -> list[str]:
    words = ["--scenarios", str(scenarios), "--out", str(out), "--master", master, *more]
    return ["data", "sweep", "--json", *words]


@pure_only  # it ships the code, which is the pure core
def test_a_standalone_cluster_gives_the_same_numbers(
    folder: Path, environment: dict[str, str], on_this_machine: dict[str, Any]
) -> None:
    package = "org.apache.spark.deploy"
    home = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with daemon(
        [f"{package}.master.Master", *home], r"Starting Spark master at (spark://\S+)", environment, folder / "m"
    ) as master:
        worker = [f"{package}.worker.Worker", *home, "--cores", "2", "--memory", "1g"]
        worker += ["--work-dir", str(folder.parent / "w"), master]
        with daemon(worker, "Successfully registered with master", environment, folder / "l"):
            # also a strategy that no worker has: dcrd under another name
            (Path(environment["TMPDIR"]) / "mine.py").write_text(
                "from wend.strategies.dcrd.plugin import Dcrd as Same\n"
            )
            (folder / "more.toml").write_text(SWEEP.replace('"oracle"', '"oracle", "mine:Same"'))
            (said,) = wend(environment, sweeping(folder / "more.toml", folder / "cluster", master, "--ship"))
    assert (said["runs"], said["ran"], said["failures"]) == (6, 6, [])
    found = metrics(folder / "cluster")
    assert {run: row for run, row in found.items() if row["strategy"] != "mine:Same"} == on_this_machine
    traces = {
        name: {r["trace_sha256"] for r in found.values() if r["strategy"] == name} for name in ("dcrd", "mine:Same")
    }
    assert traces["mine:Same"] == traces["dcrd"]


@pytest.fixture(scope="module")
def connect(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """The address of a Spark Connect server."""
    settings = SQL | {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    server = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"]
    for name, value in settings.items():
        server += ["--conf", f"{name}={value}"]
    server += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    ready = r"Spark Connect server started at: \S*?:(\d+)"
    with daemon(server, ready, environment, folder / "connect") as port:
        yield f"sc://127.0.0.1:{port}"


def test_spark_connect_gives_the_same_numbers(
    folder: Path, environment: dict[str, str], connect: str, on_this_machine: dict[str, Any]
) -> None:
    (said,) = wend(environment, sweeping(folder / "small.toml", folder / "out", connect))
    assert (said["runs"], said["ran"], said["failures"]) == (4, 4, [])
    assert metrics(folder / "out") == on_this_machine


def test_matching_over_spark_connect_gives_the_same_rows(
    folder: Path, environment: dict[str, str], connect: str
) -> None:
    lines = {
        "s.jsonl": [{"id": n, "filter": f"x in [{n}, {n + 3}] or name prefix 'n{n}'"} for n in range(20)],
        "e.jsonl": [{"id": f"e{n}", "x": n, "name": f"n{n * 7 % 20}"} for n in range(30)],
    }
    for name, rows in lines.items():
        (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with (folder / "s.jsonl").open("a") as more:
        more.write('{"id": 20, "filter": "x <"}\n{"id": 3, "filter": "true"}\nno line\n')
    wanted = {row["id"]: parse(row["filter"]) for row in lines["s.jsonl"]}
    expected = {(row["id"], key) for row in lines["e.jsonl"] for key, one in wanted.items() if one.matches(row)}
    tables = ["--subscriptions", str(folder / "s.jsonl"), "--events", str(folder / "e.jsonl"), "--master", connect]
    tables += ["--max-bad", "0.2"]
    plans = ("broadcast", "partitioned")
    commands = [["data", "match", "--json", *tables, "--out", str(folder / plan), "--plan", plan] for plan in plans]
    for plan, said in zip(plans, wend(environment, *commands), strict=True):
        rows = ds.dataset(folder / plan, format="parquet").to_table().to_pylist()
        assert len(rows) == said["matches"] == len(expected)
        assert {(row["event"], row["subscription"]) for row in rows} == expected
        bad = ds.dataset(folder / plan / "_quarantine", format="parquet").to_table().to_pylist()
        assert sorted(row["line"] for row in bad) == [21, 22, 23] and said["quarantined"] == 3


CONNECT_LOG = """
import json, sys
from pyspark.sql import SparkSession
from pyspark_wend import DefaultSource

address, url, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
spark.dataSource.register(DefaultSource)


def numbers():
    orders = spark.read.format("wend").options(peers=url, log="orders").schema("number long").load()
    return sorted(row.number for row in orders.collect())


secret = spark.read.format("wend").options(peers=url, log="orders", token="tok-secret").load()
secret.explain("extended")
stream = spark.readStream.format("wend").options(peers=url, log="orders", startingOffsets="earliest")
copies = stream.schema("number long").load().selectExpr("'order' as topic", "number + 100 as number")
writer = copies.writeStream.format("wend").options(peers=url, checkpointLocation=checkpoint)
before = numbers()
writer.trigger(availableNow=True).start().awaitTermination()
print(json.dumps([before, numbers()]))
spark.stop()
"""


def test_logs_are_read_and_written_over_spark_connect(
    environment: dict[str, str], connect: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    with LogPeerProcess(folder) as peer:
        peer.publish_numbers(range(20))
        command = [sys.executable, "-c", CONNECT_LOG, connect, peer.url, f"file://{folder / 'checkpoint'}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    assert "tok-secret" not in done.stdout + done.stderr
    before, after = json.loads(done.stdout.splitlines()[-1])
    assert before == list(range(20)) and after == [*range(20), *range(100, 120)]
