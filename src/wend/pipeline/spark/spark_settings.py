"""The settings of a Spark session: those of the user win, and Wend adds the rest.

A user sets Spark in `spark-defaults.conf`, by the options of `spark-submit` (or `PYSPARK_SUBMIT_ARGS`), and by `--conf`
of a command; the later wins. A session that set its own master, memory or interpreter over these would never reach the
user's cluster.
"""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home

from wend.model.errors import ConfigError

LOCAL = "local[*]"
_DEFAULT_LINE = re.compile(r"\s*([^\s=:#!]+)\s*[=:\s]\s*(.*?)\s*")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_CONFIG = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def parse_conf(words: Iterable[str] | None) -> dict[str, str]:
    """Read `--conf NAME=VALUE`."""
    settings = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--conf takes NAME=VALUE, such as spark.executor.memory=4g, got {word!r}")
        settings[name.strip()] = value.strip()
    return settings


def is_submitted() -> bool:
    """Whether `spark-submit` has started this process, so that Java runs already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def user_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings of the user; `conf` comes from the command."""
    return {**_file_settings(), **(_submitted_settings() if is_submitted() else _environment_settings()), **conf}


def _file_settings() -> dict[str, str]:
    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf"
    file = Path(folder) / "spark-defaults.conf"
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    matches = map(_DEFAULT_LINE.fullmatch, lines)
    return {match[1]: match[2] for match in matches if match is not None}


def _environment_settings() -> dict[str, str]:
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    settings: dict[str, str] = {}
    for option, value in pairwise(words):
        if option in ("--conf", "-c") and "=" in value:
            settings |= parse_conf([value])
        elif option == "--master":
            settings["spark.master"] = value
    return settings


def _submitted_settings() -> dict[str, str]:
    """The settings of the Java process that `spark-submit` has started."""
    SparkContext._ensure_initialized()  # noqa: SLF001  Spark does the same when a session starts
    return dict(SparkConf().getAll())


def default_settings(user_conf: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Wend's values for the settings that the user has not set. Java options are added to those of the user."""
    java = user_conf.get(_JAVA_OPTIONS, "")
    if "log4j" not in java:
        log_config = scratch / "log4j2.properties"
        log_config.write_text(_LOG_CONFIG)
        java += f" -Dlog4j2.configurationFile={log_config.as_uri()}"
    if "-Djava.io.tmpdir" not in java:
        java += f" -Djava.io.tmpdir={scratch}"
    settings = {
        "spark.app.name": "wend",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
    }
    master = user_conf.get("spark.master", LOCAL)
    if master.startswith("local") or re.match(r"spark://(127\.|localhost)", master):
        # Without this, a host name that does not resolve would stop a run on this machine.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    missing = {name: value for name, value in settings.items() if name not in user_conf}
    return missing if is_submitted() else {**missing, _JAVA_OPTIONS: f"{java} -XX:-UsePerfData".strip()}


def choose_python(user_conf: Mapping[str, str]) -> None:
    """Let workers run the user's interpreter or, if none is set, this one."""
    os.environ.setdefault("PYSPARK_PYTHON", user_conf.get("spark.pyspark.python", sys.executable))
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
