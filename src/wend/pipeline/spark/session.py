"""Spark sessions. Every command starts its session here, so that all take the same `--master`.

`local[*]` is this machine; `spark://host:port` is a standalone cluster; `sc://host:port` is Spark Connect, where this
process is a thin client without Java and without a SparkContext. Spark's own files (blocks, warehouse, logs, unpacked
libraries) go into one temporary folder, which is removed at the end. Its log goes to a file in that folder, not to the
terminal. The Java process ends with the command, even if Ctrl-C interrupts its start.
"""

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from pyspark import java_gateway
from pyspark.sql import DataFrame, SparkSession

from wend.model.errors import ConfigError
from wend.pipeline.spark.spark_settings import (
    LOCAL,
    choose_python,
    default_settings,
    is_submitted,
    parse_conf,
    user_settings,
)
from wend.pipeline.spark.submission import zip_into

__all__ = ["DataFrame", "SparkSession", "check_master", "ship_code", "spark_session"]

_MASTER = re.compile(r"local(\[[\d*]+(,\s*\d+)?\])?|spark://\S+|sc://\S+|k8s://\S+|yarn")
_MIN_JAVA = 17
_CLOSE_TIMEOUT_S = 15.0
_SCRATCH = "wend-spark-"


@contextmanager
def spark_session(
    master: str | None = None,
    *,
    conf: Iterable[str] | None = None,
    ship: bool = False,
    beside: Iterable[tuple[str, bytes]] = (),
) -> Iterator[SparkSession]:
    """Start a session; stop it at the end. Without `master`, Spark's own settings decide, else it is this machine.
    `conf` has settings of Spark, as NAME=VALUE. `ship` sends Wend's code, and files `beside` it, to workers."""
    settings = parse_conf(conf)
    if master is None and os.environ.get("SPARK_REMOTE", "").startswith("sc://"):
        master = os.environ["SPARK_REMOTE"]
    remote = master is not None and master.startswith("sc://")
    spark = _connect_session(master, settings) if remote and master else _start_session(master, settings)
    try:
        if ship:
            ship_code(spark, beside)
        yield spark
    finally:
        if remote:
            _close_session(spark)
        else:
            spark.stop()


def _close_session(spark: SparkSession) -> None:
    """Close a Connect session. A busy or stuck server may never answer, so close the channel after a timeout; the
    results have already arrived."""
    stopping = threading.Thread(target=_call_quietly, args=(spark.stop,), daemon=True)
    stopping.start()
    stopping.join(_CLOSE_TIMEOUT_S)
    if stopping.is_alive():
        _call_quietly(spark.client._channel.close)  # ends every pending call, also those of Spark's own threads
        stopping.join(_CLOSE_TIMEOUT_S)


def _call_quietly(call: Callable[[], object]) -> None:
    with suppress(Exception):
        call()


def check_master(master: str) -> None:
    if _MASTER.fullmatch(master) is None:
        raise ConfigError(
            f"master {master!r} is none of local[*], local[N], spark://HOST:PORT, sc://HOST:PORT, k8s://HOST:PORT, yarn"
        )


def ship_code(spark: SparkSession, beside: Iterable[tuple[str, bytes]] = ()) -> None:
    """Send Wend as a zip file to workers that have its dependencies, but not this version of Wend."""
    archive = _scratch_folder() / "wend-code.zip"
    with zipfile.ZipFile(archive, "w") as out:
        zip_into(out, files("wend"), "wend")
        for name, content in dict(beside).items():
            out.writestr(zipfile.ZipInfo(name), content)
    spark.addArtifacts(str(archive), pyfile=True)


def _start_session(master: str | None, conf: dict[str, str]) -> SparkSession:
    if master is not None:
        check_master(master)
        conf = {**conf, "spark.master": master}
    if not is_submitted():
        _check_java()
    scratch = _scratch_folder()
    user_conf = user_settings(conf)
    # If Ctrl-C interrupts a call to Java, py4j logs a stack trace to the root logger. Drop it.
    logging.getLogger().addFilter(_is_not_py4j)
    choose_python(user_conf)
    builder = SparkSession.builder
    for name, value in {
        "spark.master": user_conf.get("spark.master", LOCAL),
        **conf,
        **default_settings(user_conf, scratch),
    }.items():
        builder = builder.config(name, value)
    log = scratch / "spark.log"
    try:
        with _redirect_stderr(log), _kill_java_on_failure():
            spark = builder.getOrCreate()
    except Exception as error:
        where = user_conf.get("spark.master", LOCAL)
        raise ConfigError(f"cannot start Spark on {where}: {_first_line(error)}{_last_log_line(log)}") from None
    if "spark.log.level" not in user_conf:
        spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def _kill_java_on_failure() -> Iterator[None]:
    """Kill the Java process that pyspark starts in the block, if the block fails.

    Java ends when its stdin is closed, and so with this process. But if Ctrl-C interrupts its start, pyspark removes
    the folder to which Java writes its port. Then Java never reads its stdin, and its server waits for ever.
    """
    gateway: Any = java_gateway
    started: list[subprocess.Popen[bytes]] = []

    def popen(*command: Any, **options: Any) -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen(*command, **options))
        return started[-1]

    before, gateway.Popen = gateway.Popen, popen
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
            process.wait()
        raise
    finally:
        gateway.Popen = before


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _connect_session(address: str, conf: dict[str, str]) -> SparkSession:
    check_master(address)
    try:
        builder = SparkSession.builder.remote(address).appName("wend")
        for name, value in conf.items():
            builder = builder.config(name, value)
        spark: SparkSession = builder.getOrCreate()
        spark.version  # noqa: B018  the first request to the server
    except Exception as error:
        raise ConfigError(f"cannot reach Spark Connect at {address}: {_first_line(error)}") from None
    return spark


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    advice = "install Java 17 or newer (Debian: openjdk-17-jre-headless) or set JAVA_HOME"
    if java is None:
        raise ConfigError(f"Spark needs Java, which was not found: {advice}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is not None and int(version[1]) < _MIN_JAVA:
        raise ConfigError(f"Spark needs Java {_MIN_JAVA} or newer, {java} is {version[1]}: {advice}")


_scratch_folders: dict[int, Path] = {}


def spark_log() -> Path | None:
    """The log of the Java process that this process has started."""
    folder = _scratch_folders.get(os.getpid())
    return None if folder is None else folder / "spark.log"


def _scratch_folder() -> Path:
    """The temporary folder of this process. The JVM outlives its session, so the folder is removed at exit."""
    pid = os.getpid()
    if pid not in _scratch_folders:
        root = Path(os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir())
        root.mkdir(parents=True, exist_ok=True)
        remove_stale_folders(root)
        _scratch_folders[pid] = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{pid}-", dir=root))
        atexit.register(shutil.rmtree, _scratch_folders[pid], ignore_errors=True)
    return _scratch_folders[pid]


def remove_stale_folders(root: Path) -> None:
    """Remove the folders that killed processes left behind."""
    for folder in root.glob(f"{_SCRATCH}*"):
        owner = folder.name.removeprefix(_SCRATCH).split("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _redirect_stderr(log: Path) -> Iterator[None]:
    """Redirect standard error to the log while the JVM starts, which inherits it."""
    sys.stderr.flush()
    saved = os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(target)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _last_log_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return f" ({lines[-1].strip()})" if lines else ""
