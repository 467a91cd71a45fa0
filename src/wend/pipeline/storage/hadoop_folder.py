"""A folder in a file system of Hadoop, through the JVM of the session. It has the operations of `LocalFolder`.

A result appears there by a rename. On an object store a rename copies, and is not atomic. Over Spark Connect there is
no JVM, so results must be local.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from wend.model.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFolder:
    """A folder in a file system of Hadoop. Paths inside it begin at the folder."""

    def __init__(self, spark: "SparkSession", address: str) -> None:
        if not hasattr(spark, "_jsc"):
            raise ConfigError(f"over Spark Connect the output must be a local folder, not {address}")
        self.address = address.rstrip("/")
        session: Any = spark
        # The JVM has no public name in Spark's Python API.
        self._path = session._jvm.org.apache.hadoop.fs.Path  # noqa: SLF001
        with self._translate_errors("reach"):
            settings = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
            self._fs = self._path(self.address).getFileSystem(settings)

    def check(self, overwrite: bool) -> None:
        with self._translate_errors("read"):
            there = self._path(self.address)
            if not self._fs.exists(there):
                return
            if not self._fs.getFileStatus(there).isDirectory():
                raise ConfigError(f"{self.address} is a file, but the output is a folder", code="unwritable")
            if len(self._fs.listStatus(there)) and not overwrite:
                raise ConfigError(f"{self.address} is not empty; --overwrite replaces it", code="file-exists")

    @contextmanager
    def new_folder(self) -> Iterator[str]:
        """The address of a hidden folder; its `draft` becomes this folder on success."""
        above, _, name = self.address.rpartition("/")
        work = f"{above}/.{name}.{os.urandom(8).hex()}"
        with self._translate_errors("write"):
            self._fs.mkdirs(self._path(work))
        try:
            yield work
            with self._translate_errors("write"):
                self._move_in_place(work)
        finally:
            with suppress(Exception):  # the error of the job is the one to report
                if self._fs.exists(self._path(self.address)) or not self._fs.exists(self._path(f"{work}/former")):
                    self._fs.delete(self._path(work), True)

    def _move_in_place(self, work: str) -> None:
        draft, out, former = (self._path(one) for one in (f"{work}/draft", self.address, f"{work}/former"))
        if self._fs.exists(out) and not self._fs.rename(out, former):
            raise ConfigError(f"cannot replace {self.address}: the file system refuses to rename it", code="unwritable")
        if not self._fs.rename(draft, out):
            raise ConfigError(
                f"cannot write {self.address}: the file system refuses to rename {draft} (see {former})",
                code="unwritable",
            )

    def path(self, inside: str) -> str:
        return f"{self.address}/{inside}"

    def list_names(self, inside: str) -> list[str]:
        return [path.rpartition("/")[2] for path, _, _ in self._walk(inside)]

    def list_sizes(self, inside: str) -> Iterator[tuple[str, int]]:
        for path, size, _ in self._walk(inside):
            yield path, size

    def list_ages(self, inside: str, now_ns: int) -> Iterator[tuple[str, int]]:
        for path, _, changed_ns in self._walk(inside):
            yield path, now_ns - changed_ns

    def _walk(self, inside: str) -> list[tuple[str, int, int]]:
        """All files below a folder: path, bytes, and when it was changed, in nanoseconds."""
        with self._translate_errors("read"):
            above = self._path(self.path(inside))
            if not self._fs.exists(above):
                return []
            root = str(self._fs.makeQualified(self._path(self.address)).toUri().getPath()).rstrip("/") + "/"
            rows, files = [], self._fs.listFiles(above, True)
            while files.hasNext():
                file = files.next()
                path = str(file.getPath().toUri().getPath()).removeprefix(root)
                rows.append((path, int(file.getLen()), int(file.getModificationTime()) * 10**6))
        return rows

    def read(self, inside: str) -> bytes | None:
        """A small file; None if there is none."""
        with self._translate_errors("read"):
            path = self._path(self.path(inside))
            if not self._fs.exists(path):
                return None
            stream = self._fs.open(path)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def create(self, inside: str, content: bytes) -> bool:
        """Create a small file completely; False if it exists."""
        path = self._path(self.path(inside))
        with self._translate_errors("write"):
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
        with self._translate_errors("write"):
            self._fs.delete(self._path(self.path(inside)), True)

    def remove_empty_folders(self, inside: str) -> None:
        """Do nothing: object stores have no folders, and empty ones in HDFS cost nothing."""

    @contextmanager
    def _translate_errors(self, what: str) -> Iterator[None]:
        """Turn Java's errors into one of ours. `what` says what failed: `reach`, `read` or `write`."""
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
            sentence = f"cannot {what} {self.address}: {first}"
            if what == "write":
                raise ConfigError(sentence, code="unwritable") from None
            raise ConfigError(sentence, code="unreadable") from None
