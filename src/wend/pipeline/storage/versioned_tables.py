"""Folders of tables that grow: readers never see half a write, and old versions stay readable for a while.

A folder has data files (Parquet, in `data/`, each written once under a name of its own) and versions
(`versions/00000007.json`). A version lists the files of all tables of the folder. A writer writes its data first, and
then the next version, which no other writer can have written. So a commit changes several tables at once, or nothing.
Readers take the newest version and read the files that it names. They ignore everything else in the folder.

A table of a version has columns. A file that is older than a column has nulls in it. Files may belong to a bucket, a
number that the writer chooses, so that a commit can replace the rows of some buckets only.

Why not Delta or Iceberg: their Python libraries are readers of their own, which know neither Hadoop's addresses nor the
settings of a Spark session, and Spark's own package has the Java classes of neither.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyarrow import parquet

from wend.model.errors import ConfigError, TryAgain
from wend.pipeline.storage.hadoop_folder import HadoopFolder
from wend.pipeline.storage.job_folders import Target, literal_path, local_path, spark_path
from wend.pipeline.storage.local_folder import LocalFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAYOUT = 1
"""Grows when older readers would misread a version."""
_MAX_COMMITS = 20
_BUCKET_COLUMN = "part"
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""What Spark calls the folder of rows without a bucket."""


Columns = tuple[tuple[str, str], ...]
"""Names and types, as Spark writes them."""


class DataFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a table. Its path begins at the folder."""

    path: str
    bytes: int
    bucket: int | None = None


class TableVersion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table as one version has it."""

    columns: Columns
    files: tuple[DataFile, ...] = ()


class FolderVersion(msgspec.Struct, frozen=True, omit_defaults=True):
    """All tables of a folder at one time."""

    layout: int
    number: int
    time_ns: int
    """When it was committed, by the writer's clock."""
    tables: dict[str, TableVersion] = {}
    transactions: dict[str, int] = {}
    """application -> its last batch that is in the tables"""
    settings: dict[str, Any] = {}
    """The settings of the job that made the tables."""
    facts: dict[str, Any] = {}
    """Facts for the next writer."""

    def table_files(self, table: str) -> tuple[DataFile, ...]:
        """The files of a table; none if there is no such table."""
        return self.tables[table].files if table in self.tables else ()

    def files(self) -> dict[str, DataFile]:
        return {file.path: file for table in self.tables.values() for file in table.files}


class TableChange(msgspec.Struct, frozen=True):
    """The change of one table by a commit."""

    columns: Columns
    added: tuple[DataFile, ...] = ()
    removed: frozenset[str] = frozenset()
    """Paths."""


class TableFolder:
    """A folder of tables, on a local path or at an address that Spark knows."""

    def __init__(self, spark: "SparkSession | None", folder: Target, clock: Callable[[], int] = time.time_ns) -> None:
        local = local_path(folder)
        if local is None and spark is None:
            raise ConfigError(f"{folder} needs Spark: this command reads tables from a local folder")
        self.address = str(folder) if local is None else str(local)
        self._files = LocalFolder(local) if local is not None else HadoopFolder(spark, str(folder))  # type: ignore[arg-type]
        self._is_local = local is not None
        self._spark: Any = spark
        self._clock = clock

    # Reading

    def newest_version(self) -> FolderVersion | None:
        """The newest version; None if the folder has none."""
        versions = map(self._read, reversed(self.version_numbers()))
        return next((version for version in versions if version is not None), None)

    def require_newest_version(self) -> FolderVersion:
        """The newest version of a folder that must have one."""
        newest = self.newest_version()
        if newest is None:
            raise ConfigError(
                f"{self.address} has no tables of Wend's (there is no folder versions in it)", code="unreadable"
            )
        return newest

    def version_numbers(self) -> list[int]:
        names = self._files.list_names("versions")
        return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())

    def _read(self, number: int) -> FolderVersion | None:
        text = self._files.read(_version_name(number))
        if text is None:
            return None
        try:
            layout = msgspec.json.decode(text, type=dict[str, Any])["layout"]
            if layout > LAYOUT:
                raise ConfigError(
                    f"{self.address} was written by a newer Wend (layout {layout}, and this one knows {LAYOUT})"
                )
            return msgspec.json.decode(text, type=FolderVersion)
        except (msgspec.DecodeError, KeyError, TypeError):
            return None  # a file system without renames shows it before it is complete

    def table(self, version: FolderVersion, name: str) -> TableVersion:
        if name not in version.tables:
            names = ", ".join(sorted(one for one in version.tables if not one.startswith("_")))
            raise ConfigError(f"{self.address} has no table {name}: it has {names or 'none'}")
        return version.tables[name]

    def read_frame(
        self, version: FolderVersion, name: str, buckets: Collection[int | None] | None = None
    ) -> "DataFrame":
        """A table of a version, or the rows of some of its buckets."""
        table = self.table(version, name)
        return self.read_files(table.columns, _files_in_buckets(table, buckets))

    def read_files(self, columns: Columns, files: Iterable[DataFile]) -> "DataFrame":
        """Files as a table with these columns."""
        paths = [literal_path(self._files.path(file.path)) for file in files]
        schema = ", ".join(f"`{name}` {kind}" for name, kind in columns)
        frame: DataFrame = (
            self._spark.read.schema(schema).parquet(*paths) if paths else self._spark.createDataFrame([], schema)
        )
        return frame

    def read(
        self,
        version: FolderVersion,
        name: str,
        buckets: Collection[int | None] | None = None,
        columns: Collection[str] | None = None,
    ) -> pa.Table:
        """A table of a version as an Arrow table: all of it, or some columns and the rows of some buckets and of none.
        A local table needs no Spark."""
        buckets = None if buckets is None else {None, *buckets}
        if not self._is_local:
            frame = self.read_frame(version, name, buckets)
            return (frame if columns is None else frame.select(*columns)).toArrow()
        table = self.table(version, name)
        names = [column for column, _ in table.columns if columns is None or column in columns]
        files = (parquet.ParquetFile(self._files.path(file.path)) for file in _files_in_buckets(table, buckets))
        pieces = [file.read(columns=None if columns is None else names) for file in files]
        whole = pa.concat_tables(pieces or [pa.table({name: [] for name in names})], promote_options="default")
        return whole.select([name for name in names if name in whole.column_names])

    # Writing

    def write(self, frame: "DataFrame", name: str, by: str | None = None) -> tuple[DataFile, ...]:
        """Write rows under new names. They are in no version yet. `by` is the column of the bucket, which the files
        themselves do not have; rows without one are in files without one."""
        inside = f"data/{name.lstrip('_')}-{os.urandom(8).hex()}"
        writer = (
            frame.write if by is None else frame.withColumnRenamed(by, _BUCKET_COLUMN).write.partitionBy(_BUCKET_COLUMN)
        )
        writer.parquet(spark_path(self._files.path(inside)))
        sizes = sorted((path, size) for path, size in self._files.list_sizes(inside) if _is_data_file(path))
        return tuple(DataFile(path, size, _parse_bucket(path)) for path, size in sizes)

    def commit(
        self,
        base: FolderVersion | None,
        changes: Mapping[str, TableChange],
        *,
        transaction: tuple[str, int] | None = None,
        settings: dict[str, Any] | None = None,
        facts: dict[str, Any] | None = None,
        alone: bool = True,
    ) -> FolderVersion:
        """Write the next version. If another writer was faster, a change that must be `alone` is refused; else it is
        applied to the other writer's version, as long as that has all files that are to be removed."""
        for _ in range(_MAX_COMMITS):
            version = _apply_changes(base, changes, self._clock(), transaction, settings, facts)
            if self._files.create(_version_name(version.number), msgspec.json.format(msgspec.json.encode(version))):
                return version
            newer = self.require_newest_version()
            missing = {path for change in changes.values() for path in change.removed} - newer.files().keys()
            if alone or missing:
                break
            base = newer
        raise TryAgain(f"another command has changed {self.address} meanwhile: try again")

    # Cleaning up

    def remove_written(self, files: Iterable[DataFile]) -> None:
        """Remove files that are in no version, with the folders in which they were written."""
        for folder in sorted({"/".join(file.path.split("/")[:2]) for file in files}):
            self._files.remove(folder)

    def remove_files(self, files: Iterable[DataFile]) -> None:
        """Remove files that are in no version, and leave others that were written with them."""
        for file in files:
            self._files.remove(file.path)

    def remove_old_versions(self, retain_ns: int) -> tuple[int, int]:
        """Remove versions that were replaced longer ago than this, and files that no version names. Return how many of
        each. A file younger than that may belong to a commit in progress."""
        now, numbers = self._clock(), self.version_numbers()
        versions = {number: self._read(number) for number in numbers}
        old = []
        for number, after in pairwise(numbers):
            replaced = versions[after]
            if versions[number] is None or (replaced is not None and now - replaced.time_ns > retain_ns):
                old.append(number)
        for number in old:
            self._files.remove(_version_name(number))
        retained = [version for number, version in versions.items() if number not in old and version is not None]
        named = {path for version in retained for path in version.files()}
        removed = 0
        for path, age_ns in self._files.list_ages("data", now):
            if path not in named and age_ns > retain_ns:
                self._files.remove(path)
                removed += path.endswith(".parquet")
        self._files.remove_empty_folders("data")
        return len(old), removed


def read_table(spark: "SparkSession | None", folder: Target, name: str) -> pa.Table:
    """The newest version of a table. Only an address needs Spark."""
    tables = TableFolder(spark, folder)
    return tables.read(tables.require_newest_version(), name)


def _files_in_buckets(table: TableVersion, buckets: Collection[int | None] | None) -> list[DataFile]:
    return [file for file in table.files if buckets is None or file.bucket in buckets]


def frame_columns(frame: "DataFrame", *without: str) -> Columns:
    return tuple((field.name, field.dataType.simpleString()) for field in frame.schema if field.name not in without)


def merge_columns(before: Columns, after: Columns, name: str) -> Columns:
    """The columns of a table after files with other columns were added."""
    kinds = dict(before)
    for column, kind in after:
        if kinds.setdefault(column, kind) != kind:
            raise ConfigError(f"the column {column} of the table {name} holds {kinds[column]}, and cannot hold {kind}")
    return tuple(kinds.items())


def _apply_changes(
    base: FolderVersion | None,
    changes: Mapping[str, TableChange],
    now: int,
    transaction: tuple[str, int] | None,
    settings: dict[str, Any] | None,
    facts: dict[str, Any] | None,
) -> FolderVersion:
    before = base or FolderVersion(LAYOUT, 0, 0)
    tables = dict(before.tables)
    for name, change in changes.items():
        old = tables.get(name, TableVersion(()))
        files = tuple(file for file in old.files if file.path not in change.removed)
        columns = merge_columns(old.columns, change.columns, name) if files else change.columns
        tables[name] = TableVersion(columns, files + change.added)
    return FolderVersion(
        LAYOUT, before.number + 1, now, tables,
        {**before.transactions, **(dict([transaction]) if transaction else {})},
        before.settings if settings is None else settings,
        before.facts if facts is None else facts,
    )  # fmt: skip


def _is_data_file(path: str) -> bool:
    return path.endswith(".parquet") and not path.rpartition("/")[2].startswith((".", "_"))


def _parse_bucket(path: str) -> int | None:
    words = next(
        (one.partition("=")[2] for one in path.split("/") if one.startswith(f"{_BUCKET_COLUMN}=")), _NULL_FOLDER
    )
    return None if words == _NULL_FOLDER else int(words)


def _version_name(number: int) -> str:
    return f"versions/{number:08d}.json"
