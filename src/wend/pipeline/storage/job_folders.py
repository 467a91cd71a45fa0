"""The paths of jobs: which file system holds them, how Spark reads them, and how a result appears there completely.

A path is a local one, which `file:` may precede, or an address (`s3a://bucket/x`, `hdfs://host/x`) of a file system
that Spark knows. A plain path is local, also where Hadoop's default file system is another one, so local paths reach
Spark with `file:`. No other module of the pipeline decides about schemes.

A result is written beside its target, under a hidden name, and renamed when it is complete. For addresses Hadoop's
FileSystem does this, through the JVM of the session; over Spark Connect there is none, so the result must be local. On
an object store a rename copies, and is not atomic.

Tasks also exchange files that Spark does not know: the blocks of an index, and how far they are. These need a local
folder with the same path on all workers.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wend.model import files
from wend.model.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SIGNS = re.compile(r"[*?\[\]{}\\]")
_FILE = re.compile(r"file:/*(?=/)")
Target = str | Path


def local_path(path: Target) -> Path | None:
    """The local path that a path means; None for an address."""
    text = str(path)
    if isinstance(path, Path):
        return path
    if text.startswith("file:"):
        return Path(_FILE.sub("", text))
    return None if files.is_address(text) else Path(text)


def literal_path(path: Target) -> str:
    """A path for Spark to read. Spark takes each path for a glob pattern (`run[12]` is `run1` and `run2`), so a local
    path is escaped. An address stays as it is and may be a pattern."""
    local = local_path(path)
    return str(path) if local is None else _SIGNS.sub(lambda sign: f"\\{sign[0]}", spark_path(local))


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

    def shared(self) -> Path:
        if self.folder is None:
            raise ConfigError(
                "the workers of this cluster share no folder for the index: give --scratch DIR, a folder with the same "
                "path on the driver and on all workers, or --plan partitioned"
            )
        return self.folder


@contextmanager
def drafted(
    spark: "SparkSession | None", out: Target, *, overwrite: bool = False, scratch: Path | None = None
) -> Iterator[JobFolders]:
    """Places that become the output on success, and leave nothing on failure. `scratch` is for files of tasks. A local
    output needs no session."""
    local = local_path(out)
    with _folder(spark, local, scratch) as folder:
        if local is not None:
            files.check_out(local, overwrite)
            with files.drafted(local) as (draft, beside):
                yield JobFolders(spark_path(draft), spark_path(beside), folder or beside)
            return
        assert spark is not None
        store = HadoopFolder(spark, str(out))
        store.check(overwrite)
        with store.drafted() as work:
            yield JobFolders(f"{work}/draft", f"{work}/scratch", folder)


@contextmanager
def _folder(spark: "SparkSession | None", local: Path | None, scratch: Path | None) -> Iterator[Path | None]:
    """A folder for files of tasks, if the output itself is no place for them."""
    if scratch is None and (local is not None or not _on_this_machine(spark)):
        yield None
        return
    try:
        if scratch is not None:
            scratch.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(prefix=".wend-scratch.", dir=scratch, ignore_cleanup_errors=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {scratch}: {error.strerror}") from None
    with made as folder:
        yield Path(folder).absolute()


def _on_this_machine(spark: "SparkSession | None") -> bool:
    return spark is not None and hasattr(spark, "_jsc") and str(spark.sparkContext.master).startswith("local")


class HadoopFolder:
    """A folder in a file system of Hadoop."""

    def __init__(self, spark: "SparkSession", address: str) -> None:
        if not hasattr(spark, "_jsc"):
            raise ConfigError(f"over Spark Connect the output must be a local folder, not {address}")
        self.address = address.rstrip("/")
        session: Any = spark
        # The JVM has no public name in Spark's Python API.
        self._path = session._jvm.org.apache.hadoop.fs.Path  # noqa: SLF001
        with self._said("reach"):
            settings = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
            self._fs = self._path(self.address).getFileSystem(settings)

    def check(self, overwrite: bool) -> None:
        with self._said("read"):
            there = self._path(self.address)
            if not self._fs.exists(there):
                return
            if not self._fs.getFileStatus(there).isDirectory():
                raise ConfigError(f"{self.address} is a file, but the output is a folder")
            if len(self._fs.listStatus(there)) and not overwrite:
                raise ConfigError(f"{self.address} is not empty; --overwrite replaces it")

    @contextmanager
    def drafted(self) -> Iterator[str]:
        """The address of a hidden folder; its `draft` becomes this folder on success."""
        above, _, name = self.address.rpartition("/")
        work = f"{above}/.{name}.{os.urandom(8).hex()}"
        with self._said("write"):
            self._fs.mkdirs(self._path(work))
        try:
            yield work
            with self._said("write"):
                self._put(work)
        finally:
            with suppress(Exception):  # the error of the job is the one to report
                if self._fs.exists(self._path(self.address)) or not self._fs.exists(self._path(f"{work}/former")):
                    self._fs.delete(self._path(work), True)

    def _put(self, work: str) -> None:
        draft, out, former = (self._path(one) for one in (f"{work}/draft", self.address, f"{work}/former"))
        if self._fs.exists(out) and not self._fs.rename(out, former):
            raise ConfigError(f"cannot replace {self.address}: the file system refuses to rename it")
        if not self._fs.rename(draft, out):
            raise ConfigError(f"cannot write {self.address}: the file system refuses to rename {draft} (see {former})")

    def files(self, inside: str) -> list[tuple[str, int, int]]:
        """All files below a folder within: path within, bytes, and when it was changed, in nanoseconds."""
        with self._said("read"):
            above = self._path(f"{self.address}/{inside}")
            if not self._fs.exists(above):
                return []
            root = str(self._fs.makeQualified(self._path(self.address)).toUri().getPath()).rstrip("/") + "/"
            found, each = [], self._fs.listFiles(above, True)
            while each.hasNext():
                one = each.next()
                path = str(one.getPath().toUri().getPath()).removeprefix(root)
                found.append((path, int(one.getLen()), int(one.getModificationTime()) * 10**6))
        return found

    def read(self, inside: str) -> bytes | None:
        """A small file; None if there is none."""
        with self._said("read"):
            path = self._path(f"{self.address}/{inside}")
            if not self._fs.exists(path):
                return None
            stream = self._fs.open(path)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def create(self, inside: str, content: bytes) -> bool:
        """Create a small file completely; False if it is there."""
        path = self._path(f"{self.address}/{inside}")
        with self._said("write"):
            if self._fs.exists(path):
                return False
            if self._fs.getScheme() not in ("hdfs", "file", "viewfs"):
                return self._write(path, content)
            above, _, name = inside.rpartition("/")
            draft = self._path(f"{self.address}/{above}/.{name}.{os.urandom(8).hex()}")
            self._write(draft, content)
            renamed = bool(self._fs.rename(draft, path))
            if not renamed:
                self._fs.delete(draft, False)
            return renamed

    def _write(self, path: Any, content: bytes) -> bool:
        try:
            stream = self._fs.create(path, False)
            stream.write(bytearray(content))
            stream.close()
        except Exception as error:
            if "FileAlreadyExists" in str(error):
                return False
            raise
        return True

    def remove(self, inside: str) -> None:
        with self._said("write"):
            self._fs.delete(self._path(f"{self.address}/{inside}"), True)

    @contextmanager
    def _said(self, what: str) -> Iterator[None]:
        """Turn Java's errors into a sentence."""
        try:
            yield
        except ConfigError:
            raise
        except Exception as error:
            java = getattr(error, "java_exception", None)
            reason = str(error) if java is None else str(java.getMessage() or java.toString())
            first = (reason.strip().splitlines() or [type(error).__name__])[0]
            scheme = self.address.partition(":")[0]
            if "No FileSystem for scheme" in reason or "ClassNotFound" in str(java and java.toString()):
                first += f"; the classes for {scheme}: come with --conf spark.jars.packages=… or spark.jars=…"
            raise ConfigError(f"cannot {what} {self.address}: {first}") from None
