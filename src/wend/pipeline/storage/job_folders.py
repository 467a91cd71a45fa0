"""The paths of jobs: which file system holds them, how Spark reads them, and how a result appears there completely.

A path is a local one, which `file:` may precede, or an address (`s3a://bucket/x`, `hdfs://host/x`) of a file system
that Spark knows. A plain path is local even if Hadoop's default file system is another one, so local paths reach
Spark with `file:`. No other module of the pipeline decides about schemes.

A result is written beside its target, under a hidden name, and renamed when it is complete. At other addresses
`hadoop_folder.py` does this.

Tasks also exchange files that Spark does not know: the blocks of an index, and their progress. These need a local
folder with the same path on all workers.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wend.model import files
from wend.model.errors import ConfigError
from wend.pipeline.storage.hadoop_folder import HadoopFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GLOB_SIGNS = re.compile(r"[*?\[\]{}\\]")
_FILE_SCHEME = re.compile(r"file:/*(?=/)")
Target = str | Path


def local_path(path: Target) -> Path | None:
    """The path as a local one; None for an address."""
    text = str(path)
    if isinstance(path, Path):
        return path
    if text.startswith("file:"):
        return Path(_FILE_SCHEME.sub("", text))
    return None if files.is_url(text) else Path(text)


def literal_path(path: Target) -> str:
    """A path for Spark to read. Spark takes each path for a glob pattern (`run[12]` is `run1` and `run2`), so a local
    path is escaped. An address stays as it is and may be a pattern."""
    local = local_path(path)
    return str(path) if local is None else _GLOB_SIGNS.sub(lambda sign: f"\\{sign[0]}", spark_path(local))


def spark_path(path: Target) -> str:
    """A path for Spark to write."""
    local = local_path(path)
    return str(path) if local is None else f"file://{local.absolute()}"


@dataclass(frozen=True)
class JobFolders:
    """The places of one job."""

    result: str
    """Spark writes here what becomes the output."""
    scratch: str
    """Spark writes temporary tables here."""
    folder: Path | None
    """The local folder for files of tasks; None if workers share none."""

    def shared_folder(self) -> Path:
        if self.folder is None:
            raise ConfigError(
                "the workers of this cluster share no folder for the index: give --scratch DIR, a folder with the same "
                "path on the driver and on all workers, or --plan partitioned"
            )
        return self.folder


@contextmanager
def new_output(
    spark: "SparkSession | None", out: Target, *, overwrite: bool = False, scratch: Path | None = None
) -> Iterator[JobFolders]:
    """Places that become the output on success, and leave nothing on failure. `scratch` is for files of tasks. A local
    output needs no session."""
    local = local_path(out)
    with _task_folder(spark, local, scratch) as folder:
        if local is not None:
            files.check_output_folder(local, overwrite)
            with files.new_folder(local) as (draft, beside):
                yield JobFolders(spark_path(draft), spark_path(beside), folder or beside)
            return
        assert spark is not None
        store = HadoopFolder(spark, str(out))
        store.check(overwrite)
        with store.new_folder() as work:
            yield JobFolders(f"{work}/draft", f"{work}/scratch", folder)


@contextmanager
def _task_folder(spark: "SparkSession | None", local: Path | None, scratch: Path | None) -> Iterator[Path | None]:
    """A folder for files of tasks, if they cannot be in the output."""
    if scratch is None and (local is not None or not _runs_on_this_machine(spark)):
        yield None
        return
    try:
        if scratch is not None:
            scratch.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix=".wend-scratch.", dir=scratch, ignore_cleanup_errors=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {scratch}: {error.strerror}", code="unwritable") from None
    with temporary as folder:
        yield Path(folder).absolute()


def _runs_on_this_machine(spark: "SparkSession | None") -> bool:
    return spark is not None and hasattr(spark, "_jsc") and str(spark.sparkContext.master).startswith("local")
