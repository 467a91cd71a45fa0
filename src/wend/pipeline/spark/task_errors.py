"""Errors of Spark jobs: one sentence with the cause, in the class that says whose mistake it was.

Spark wraps the error of a task in Python and Java stack traces, and its first line often says only that a call failed.
A job fails for one of three reasons, and each has an exit code: the input (`ConfigError`), a lost part of the cluster
(`TryAgain`), or a mistake of Wend's (`InternalError`). Everything that Spark said stays in a log, which the sentence
names.
"""

import re
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wend.model import errors
from wend.model.errors import ConfigError, InternalError, TryAgain, WendError
from wend.pipeline.spark.session import spark_log

_WEND_ERROR = re.compile(r"wend\.model\.errors\.(\w+): (.+)")
_LOST_PART = re.compile(
    r"ExecutorLost|executor \S+ (exited|lost)|heartbeat timed out|FetchFailed|All masters are unresp"
    r"|Python worker (exited unexpectedly|failed to connect back)|No space left on device|OutOfMemoryError|MemoryError"
    r"|Connection (refused|reset|timed out)|ConnectException|SocketTimeout|StatusCode\.(UNAVAILABLE|DEADLINE_EXCEEDED)"
    r"|Answer from Java side is empty|Error while (sending or )?receiving|SparkContext was shut down",
    re.IGNORECASE,
)
"""Messages of Spark about a machine, a process or a connection that was lost or has no room."""
_BAD_INPUT = re.compile(
    r"FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER|is not a Parquet file|PATH_NOT_FOUND|FileNotFoundException"
    r"|AccessControlException|Permission denied|No FileSystem for scheme"
)
_PYTHON = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt|Exit)): (.+)$", re.MULTILINE)
_CAUSED_BY = re.compile(r"^\s*Caused by: (?:[\w$]+\.)*([\w$]+): (.+)$", re.MULTILINE)
_LAST_FAILURE = re.compile(r"most recent failure: .*?: (?:[\w$]+\.)*([\w$]+(?:Exception|Error|Failure)\b.*)")
_CALL_PREFIX = re.compile(r"An error occurred while calling \S+\s*\n?:? *(?:[\w$]+\.)*")
_MAX_LOG = 5 * 10**6


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn Spark's errors into ours."""
    try:
        yield
    except WendError:
        raise
    except Exception as error:
        raise translate_error(error) from error


def translate_error(error: Exception, opening: str = "the Spark job failed") -> WendError:
    """The error of a job as one of ours; `opening` begins the sentence."""
    text = str(error)
    ours = _WEND_ERROR.search(text)
    if ours is not None:
        kind = getattr(errors, ours[1], ConfigError)
        return kind(ours[2].strip()) if issubclass(kind, WendError) else ConfigError(ours[2].strip())
    why = find_error_line(error)
    log = f"the log is {_write_log(error)}"
    if _LOST_PART.search(text):
        return TryAgain(f"{opening}: {why}; a part of Spark was lost or had no room, so try again ({log})")
    if _BAD_INPUT.search(text):
        return ConfigError(f"{opening}: {why} ({log})")
    return InternalError(f"{opening}, probably by a mistake of Wend's: {why} ({log})")


def find_error_line(error: Exception) -> str:
    """The line that says what happened: the error of the Python task, else Java's innermost one."""
    text = str(error).strip()
    python = _PYTHON.findall(text) if "Traceback (most recent call last)" in text else []
    caused = _CAUSED_BY.findall(text)
    recent = _LAST_FAILURE.search(text)
    if python:
        return ": ".join(python[-1])
    if caused:
        return ": ".join(caused[-1])
    if recent is not None:
        return recent[1]
    first = (_CALL_PREFIX.sub("", text).strip().splitlines() or [""])[0]
    return first or type(error).__name__


def _write_log(error: Exception) -> Path:
    """Write the complete error and the end of Spark's log to a file that is not removed."""
    whole = "".join(traceback.format_exception(error))
    log = spark_log()
    if log is not None and log.is_file():
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _MAX_LOG))
            whole += f"\nSpark's log:\n{file.read().decode(errors='replace')}"
    with tempfile.NamedTemporaryFile("w", prefix="wend-", suffix=".log", delete=False, encoding="utf-8") as kept:
        kept.write(whole)
    return Path(kept.name)
