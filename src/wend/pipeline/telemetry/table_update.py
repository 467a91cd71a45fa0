"""The interface between an update of telemetry tables and its job: the state of the update, and the job itself.

`updates.py` runs jobs on links, late events and workloads.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from wend.pipeline.storage.versioned_tables import (
    Columns,
    DataFile,
    FolderVersion,
    TableChange,
    TableFolder,
    frame_columns,
)
from wend.pipeline.telemetry.clocks import Clocks, Node
from wend.pipeline.telemetry.segment_reduction import ROW, Reduction

_PLACE = "place"
VERSION_COLUMN = "made"
"""The column of partial rows with the version that added them."""


@dataclass
class TableUpdate:
    """The state of an update, which a job may use."""

    spark: SparkSession
    tables: TableFolder
    base: FolderVersion
    clocks: Clocks = field(default_factory=lambda: Clocks({}, []))
    spans: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """peer -> its incarnations, with their first and last rows by the clock of the reference"""
    since: dict[Node, int] = field(default_factory=dict)
    """incarnation -> the version since which its partial rows count, because the offset of its clock changed then"""
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts for the next update."""
    changes: dict[str, TableChange] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    """The buckets to rebuild."""
    scratch: list[DataFile] = field(default_factory=list)
    records: list[DataFile] = field(default_factory=list)
    """Files of records about segments, which the update removes at its end."""

    @property
    def number(self) -> int:
        """The version that this update makes."""
        return self.base.number + 1

    def partial_rows(self, name: str, buckets: Iterable[int] | None = None) -> DataFrame:
        """The valid rows of a partial table, as they will be after the commit. The update must have written to it."""
        return self._drop_outdated(self.tables.read_files(self.changes[name].columns, self._files(name, buckets)))

    def buckets(self, name: str) -> set[int]:
        """All buckets of a table, as they will be after the commit."""
        return {file.bucket for file in self._files(name) if file.bucket is not None}

    def table_bytes(self, name: str, buckets: Iterable[int] | None = None) -> int:
        return sum(file.bytes for file in self._files(name, buckets))

    def _files(self, name: str, buckets: Iterable[int] | None = None) -> list[DataFile]:
        change = self.changes.get(name)
        files = [file for file in self.base.table_files(name) if change is None or file.path not in change.removed]
        files += change.added if change is not None else ()
        chosen = None if buckets is None else set(buckets)
        return [file for file in files if chosen is None or file.bucket in chosen]

    def _drop_outdated(self, frame: DataFrame) -> DataFrame:
        if VERSION_COLUMN not in frame.columns or not self.since:
            return frame
        rows = [(*node, number) for node, number in self.since.items()]
        since = self.spark.createDataFrame(rows, "peer bigint, incarnation bigint, since bigint")
        joined = frame.join(F.broadcast(since), ["peer", "incarnation"], "left")
        return joined.where(F.col(VERSION_COLUMN) >= F.coalesce("since", F.lit(0))).select(*frame.columns)

    def store_frame(self, frame: DataFrame, name: str = "scratch") -> DataFrame:
        """Compute a frame once, and store its rows until the end of the update."""
        files = self.tables.write(frame, name)
        self.scratch += files
        return self.tables.read_files(frame_columns(frame), files)

    def append_rows(self, name: str, columns: Columns, frame: DataFrame | None, by: Column | None = None) -> None:
        """Add rows to a table, by a bucket. Without a frame the table is only declared."""
        files: tuple[DataFile, ...] = ()
        if frame is not None:
            placed = frame if by is None else frame.withColumn(_PLACE, by)
            files = self.tables.write(placed, name, by=None if by is None else _PLACE)
        self.changes[name] = TableChange(columns, files)

    def count_rows(self, name: str) -> int:
        """The rows of a result, as they will be after the commit. Only files that change are counted."""
        counts, change = self.base.facts.get("results", {}), self.changes.get(name)
        if name not in counts and name in self.base.tables:
            counts = {name: self.tables.read_frame(self.base, name).count()}
        if change is None:
            return int(counts.get(name, 0))
        removed = [file for file in self.base.files().values() if file.path in change.removed]
        fewer, more = (self.tables.read_files(change.columns, files).count() for files in (removed, change.added))
        return int(counts.get(name, 0) - fewer + more)

    def close(self) -> None:
        """Remove the files that are in no version."""
        self.tables.remove_written(self.scratch)
        self.tables.remove_files(self.records)

    def append_reduced(self, name: str, schema: pa.Schema, frame: DataFrame) -> tuple[set[int], DataFrame]:
        """Add the rows of reduced segments to a table, by bucket if they have one. Return the buckets that got rows,
        and the records about segments. Both are written at once, so that segments are read once."""
        by = "bucket" in frame.columns
        of_row = F.when(F.col("kind") == ROW, F.col("bucket") if by else F.lit(0).cast("bigint"))
        files = self.tables.write(frame.withColumn(_PLACE, of_row).repartition(_PLACE), name, by=_PLACE)
        records = [file for file in files if file.bucket is None]
        rows = [file for file in files if file.bucket is not None]
        touched = {file.bucket for file in rows if file.bucket is not None} if by else set()
        added = rows if by else [msgspec.structs.replace(file, bucket=None) for file in rows]
        self.changes[name] = TableChange(
            tuple(one for one in frame_columns(frame) if one[0] in (*schema.names, VERSION_COLUMN)), tuple(added)
        )
        self.records += records
        return touched, self.tables.read_files(frame_columns(frame), records)

    def replace_rows(self, name: str, frame: DataFrame, buckets: Iterable[int] | None = None) -> None:
        """Replace the rows of a table, or those of some buckets, by the column `bucket`."""
        columns = frame_columns(frame, "bucket")
        files = self.tables.write(frame, name, by=None if buckets is None else "bucket")
        rebuilt = None if buckets is None else set(buckets)
        old = (file for file in self.base.table_files(name) if rebuilt is None or file.bucket in rebuilt)
        self.changes[name] = TableChange(columns, files, frozenset(file.path for file in old))


class PartialTable(NamedTuple):
    """A table of rows to which segments are reduced."""

    name: str
    tables: tuple[str, ...]
    """The tables of its segments."""
    reduction: Reduction
    schema: pa.Schema
    """A column `bucket` is the bucket of a row."""
    timed: bool = True
    """Whether the rows depend on the offset of the peer's clock."""


class TelemetryJob(Protocol):
    """A job on telemetry."""

    name: str

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that all updates of one folder must share."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables whose segments it reduces. The update adds those for clocks."""

    @property
    def offset_unit_ns(self) -> int:
        """The unit of the offsets with which partial rows are made."""

    @property
    def results(self) -> tuple[str, ...]:
        """The tables that users read."""

    def partial_tables(self, offsets: dict[Node, int]) -> list[PartialTable]:
        """The tables to which the job reduces segments, with these offsets of clocks."""

    def merge(self, update: TableUpdate) -> None:
        """Rebuild the touched buckets of the results."""

    def draw_picture(self, spark: SparkSession, folder: str) -> str:
        """The result as SVG."""
