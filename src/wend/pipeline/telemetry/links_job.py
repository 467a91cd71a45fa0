"""`wend data links`: one row for each link and window, and the outages of links, from segments of all peers."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wend.pipeline.spark.arrow_schema import spark_schema
from wend.pipeline.storage.versioned_tables import TableFolder
from wend.pipeline.telemetry.clocks import Node
from wend.pipeline.telemetry.link_outages import CHANGES, OUTAGES, Spans, change_rows, link_outages
from wend.pipeline.telemetry.link_windows import LINKS, SAMPLES, Windowing, merge_windows, sum_samples
from wend.pipeline.telemetry.table_update import PartialTable, TableUpdate
from wend.pipeline.telemetry.telemetry_pictures import draw_availability_map
from wend.pipeline.telemetry.updates import CLOCK_UNIT_NS, FORMAT_SETTING

_PARTIAL_FORMAT = 2
"""Grows when older partial rows can no longer be merged."""
_TASK_BYTES = 32 * 2**20
"""Bytes of stored sums of a bucket that one task merges. It has them in memory."""
_BATCH_ROWS = 20_000


class LinksJob:
    """The job behind `wend data links`."""

    name = "links"
    tables = ("links", "changes")
    results = ("links", "outages")

    def __init__(self, window_ns: int) -> None:
        self.windowing = Windowing(window_ns)

    @property
    def settings(self) -> dict[str, Any]:
        return {"window_ns": self.windowing.window_ns, FORMAT_SETTING: _PARTIAL_FORMAT}

    @property
    def offset_unit_ns(self) -> int:
        """The unit of clock offsets, by which a sample is misplaced at most: a sixtieth of a window."""
        return max(CLOCK_UNIT_NS, self.windowing.window_ns // 60)

    def partial_tables(self, offsets: dict[Node, int]) -> list[PartialTable]:
        reduction = partial(sum_samples, offsets=offsets, windowing=self.windowing)
        return [
            PartialTable("_samples", ("links",), reduction, SAMPLES),
            PartialTable("_changes", ("changes",), change_rows, CHANGES, timed=False),
        ]

    def merge(self, update: TableUpdate) -> None:
        outages = self._find_outages(update)
        update.touched |= self._changed_buckets(update, outages)
        update.replace_rows("outages", outages.orderBy("begin_ns", "a", "b").coalesce(1))
        sums = _add_link_columns(update.partial_rows("_samples", update.touched))
        down = self._split_by_bucket(update, outages.where("agreed"))
        shares = update.table_bytes("_samples", update.touched) // max(1, len(update.touched)) // _TASK_BYTES + 1
        rows = sums.unionByName(down, allowMissingColumns=True)
        merged = rows.repartition("bucket", F.pmod("a", F.lit(shares))).mapInArrow(
            partial(_merge_batches, windowing=self.windowing), spark_schema(_WINDOW_SCHEMA)
        )
        update.replace_rows("links", merged.sortWithinPartitions("bucket", "begin_ns", "a", "b"), update.touched)

    def _split_by_bucket(self, update: TableUpdate, outages: DataFrame) -> DataFrame:
        """Each outage once for each touched bucket that it reaches into."""
        length = F.lit(self.windowing.window_ns * self.windowing.bucket_windows)
        buckets = update.spark.createDataFrame([(bucket,) for bucket in sorted(update.touched)], "bucket bigint")
        begins = F.col("bucket") * length
        lasts = (F.col("begin_ns") < begins + length) & (F.col("end_ns").isNull() | (F.col("end_ns") > begins))
        return outages.join(F.broadcast(buckets), lasts).select(
            "bucket", "a", "b", "begin_ns", "end_ns", F.lit(True).alias("down")
        )

    def draw_picture(self, spark: SparkSession, folder: str) -> str:
        tables = TableFolder(spark, folder)
        return draw_availability_map(tables.read_frame(tables.require_newest_version(), "links"))

    def _find_outages(self, update: TableUpdate) -> DataFrame:
        """All outages of all links: they are few, and one may last for any time."""
        changes = update.partial_rows("_changes")
        find = _make_outage_finder(update.clocks.round_offsets(CLOCK_UNIT_NS), update.spans)
        return update.store_frame(
            _add_link_columns(changes).groupBy("a", "b").applyInArrow(find, spark_schema(OUTAGES))
        )

    def _changed_buckets(self, update: TableUpdate, outages: DataFrame) -> set[int]:
        """The buckets in which an outage has changed."""
        if "outages" not in update.base.tables:
            return set()
        before = update.tables.read_frame(update.base, "outages")
        there = {file.bucket for file in update.base.tables["links"].files if file.bucket is not None}
        if before.columns != outages.columns:  # an older Wend has made them
            return there
        other = before.exceptAll(outages).unionAll(outages.exceptAll(before)).select("begin_ns", "end_ns").toArrow()
        touched: set[int] = set()
        for row in other.to_pylist():
            first = self.windowing.bucket(row["begin_ns"])
            last = self.windowing.bucket(row["end_ns"]) if row["end_ns"] is not None else max(there, default=first)
            touched |= {bucket for bucket in there if first <= bucket <= last}
        return touched


_WINDOW_SCHEMA = pa.schema([*LINKS, pa.field("bucket", pa.int64())])


def _add_link_columns(frame: DataFrame) -> DataFrame:
    """Rows with the two peers of their link, the lower one first."""
    return frame.withColumns({"a": F.least("peer", "neighbour"), "b": F.greatest("peer", "neighbour")}).where("a < b")


def _make_outage_finder(offsets: dict[Node, int], spans: Spans) -> "Callable[[pa.Table], pa.Table]":
    """A function for Spark, which reads the hints of its arguments."""

    def outages(rows: pa.Table) -> pa.Table:
        changes = rows.to_pylist()
        a, b = changes[0]["a"], changes[0]["b"]
        return pa.Table.from_pylist(link_outages(a, b, changes, offsets, spans), schema=OUTAGES)

    return outages


def _merge_batches(batches: Iterator[pa.RecordBatch], windowing: Windowing) -> Iterator[pa.RecordBatch]:
    """The windows of all links of a task, from sums and outages."""
    every = list(batches)
    if not every:
        return
    table = pa.Table.from_batches(every)
    is_outage = table["down"].is_valid()
    rows = merge_windows(table.filter(compute.invert(is_outage)), table.filter(is_outage), windowing.window_ns)
    bucket = windowing.bucket(rows["begin_ns"].to_numpy())
    yield from rows.append_column("bucket", pa.array(bucket, pa.int64())).to_batches(max_chunksize=_BATCH_ROWS)
