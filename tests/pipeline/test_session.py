"""If a Spark session cannot start, the error is one sentence, and no process is left."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wend.console.app import main
from wend.model.errors import ConfigError
from wend.pipeline.spark import session


@pytest.mark.parametrize("master", ["", "local[", "host:7077", "spark:/x", "http://x", "local[2] "])
def test_an_unknown_master(master: str) -> None:
    with pytest.raises(ConfigError, match="is none of"), session.spark_session(master):
        pass


@pytest.mark.parametrize("master", ["local", "local[*]", "local[3]", "local[2,4]", "spark://h:1", "sc://h:1", "yarn"])
def test_a_known_master(master: str) -> None:
    session.check_master(master)


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="needs Java, which was not found"), session.spark_session("local[1]"):
        pass


def test_an_old_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="Java 17 or newer"), session.spark_session("local[1]"):
        pass


def test_the_folders_of_killed_processes_are_removed_and_no_others(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name in (f"wend-spark-{dead.pid}-a", f"wend-spark-{os.getpid()}-b", "wend-spark-c", "other"):
        (tmp_path / name).mkdir()
    session.remove_stale_folders(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"wend-spark-{os.getpid()}-b", "wend-spark-c", "other"}


def test_no_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    monkeypatch.delitem(sys.modules, session.__name__)
    monkeypatch.setattr(sys, "argv", ["wend", "data", "sweep", "--scenarios", "none.toml", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "pip install 'wend[spark]'" in capsys.readouterr().err


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_a_start_that_is_interrupted_leaves_no_process(monkeypatch: pytest.MonkeyPatch, stop: type[Exception]) -> None:
    java_gateway = pytest.importorskip("pyspark.java_gateway")
    started: list[subprocess.Popen[bytes]] = []

    class Builder:
        """Like the one of pyspark, but its Java is a process that does not notice the end of its stdin."""

        def __getattr__(self, _: str) -> Any:
            return lambda *_: self

        def getOrCreate(self) -> None:
            started.append(java_gateway.Popen(["sleep", "600"], stdin=subprocess.PIPE))
            raise stop

    monkeypatch.setattr(session, "_check_java", lambda: None)
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=Builder()))
    with pytest.raises((KeyboardInterrupt, ConfigError)), session.spark_session("local[1]"):
        pass
    (java,) = started
    try:
        assert java.poll() is not None
        assert java_gateway.Popen is subprocess.Popen
    finally:
        java.kill()


def test_a_server_that_does_not_answer_a_goodbye_is_left_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    hung_up = threading.Event()

    class Stuck:
        def __init__(self) -> None:
            self.client = SimpleNamespace(_channel=SimpleNamespace(close=hung_up.set))

        def stop(self) -> None:
            hung_up.wait(60)
            raise RuntimeError("the call was cancelled")

    monkeypatch.setattr(session, "_connect_session", lambda *_: Stuck())
    monkeypatch.setattr(session, "_CLOSE_TIMEOUT_S", 0.05)
    with session.spark_session("sc://nowhere:1"):
        pass
    assert hung_up.is_set()
