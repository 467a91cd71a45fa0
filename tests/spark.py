"""Shared by the Spark tests: one session per test process, and runners that need no simulator.

Spark tasks run in other processes and import this file by name, so the session starts with the root of the repository
on their path.
"""

import atexit
import os
import shutil
import signal
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import pytest

from wend.drivers.scenarios import Scenario
from wend.model.summary import Delays, Late, Packets, Summary

ROOT = Path(__file__).parents[1]

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, which is not installed")


JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A test runs each query once or twice, so optimising the machine code costs more than it saves."""
HEAP = "-Xms1g -Xmn600m"
"""Large enough for all short-lived objects, so that Java hardly ever collects garbage."""

SQL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "4",
}
"""For a few rows, interpreting a query is faster than compiling it."""

_open = ExitStack()
atexit.register(_open.close)


@cache
def environment() -> dict[str, str]:
    """The environment of processes that start Spark: they can import `tests.spark`, and short queries are fast."""
    folder = _open.enter_context(TemporaryDirectory())
    settings = {
        "spark.driver.defaultJavaOptions": f"{JAVA} {HEAP}",
        "spark.python.daemon.module": "tests.spark_daemon",
        **SQL,
    }
    Path(folder, "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "SPARK_CONF_DIR": folder}


@cache
def shared_session() -> Any:
    """The one session of this test process."""
    from wend.pipeline.spark.session import spark_session

    os.environ.update(environment())
    spark = _open.enter_context(spark_session("local[2]"))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    return spark


def summary(**metrics: Any) -> Summary:
    """An invented summary with plausible defaults."""
    plain: dict[str, Any] = {
        "delivery": 0.99,
        "on_time": 0.95,
        "packets": Packets(1.25, 1.5),
        "publications": 10,
        "expected": 100,
        "delivered": 99,
        "delivered_on_time": 95,
        "data_packets": 125,
        "data_packets_unicast": 150,
        "control": {"acks": 125, "probes": 7},
        "late": Late(0.5, 0.75, 1.0),
        "delay_ms": Delays(p50=40.0, p99=90.0, mean=45.0),
        "drops": {},
        "notices": {"reroutes": 3},
        "trace_sha256": "0" * 64,
        "wall_s": 0.01,
    }
    return Summary(**{**plain, **metrics})


def invented(scenario: Scenario) -> Summary:
    """Metrics that depend on the scenario alone, so that a test can compute them, too."""
    late = scenario.pf * (1.0 if scenario.strategy == "dcrd" else 0.5)
    return summary(on_time=1.0 - late + scenario.seed / 1000, delivery=1.0 - scenario.pf / 10)


def deadly(scenario: Scenario, folder: str) -> Summary:
    """A runner that kills its process at seed 2, and never ends at seed 3. Each start is a line of `FOLDER/started`."""
    with Path(folder, "started").open("a") as log:
        log.write(f"{scenario.seed}\n")
    if scenario.seed == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if scenario.seed == 3:
        Event().wait()
    return invented(scenario)


def poisoned(scenario: Scenario) -> Summary:
    """A runner that fails on every second seed."""
    if scenario.seed % 2 == 0:
        raise ValueError(f"seed {scenario.seed} is even")
    return invented(scenario)
