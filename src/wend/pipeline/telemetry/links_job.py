"""`wend data links`: one row for each link and window, and the outages of links, from segments of all peers."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from wend.pipeline.match_output import spark_schema
from wend.pipeline.tables import TableFolder
from wend.pipeline.telemetry.clocks import Node
from wend.pipeline.telemetry.jobs import CLOCK_UNIT_NS, stored_columns
from wend.pipeline.telemetry.link_windows import LINKS, SAMPLES, Windowing, link_rows, link_sums
from wend.pipeline.telemetry.outages import CHANGES, OUTAGES, Spans, change_rows, link_outages
from wend.pipeline.telemetry.pictures import availability_map
from wend.pipeline.telemetry.update import PartialTable, TableUpdate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AT_ONCE = 2000
"""Windows of a link that are merged at once: their histograms are in memory."""


class LinksJob:
    """The job behind `wend data links`."""

    name = "links"
    tables = ("links", "changes")
    results = ("links", "outages")

    def __init__(self, window_ns: int) -> None:
        self.windowing = Windowing(window_ns)

    @property
    def settings(self) -> dict[str, Any]:
        return {"window_ns": self.windowing.window_ns}

    @property
    def offset_unit_ns(self) -> int:
        """A sample is at most this far from its place, and a window is 60 times as long."""
        return max(CLOCK_UNIT_NS, self.windowing.window_ns // 60)

    def partial_tables(self, offsets: dict[Node, int]) -> list[PartialTable]:
        reduction = partial(link_sums, offsets=offsets, windowing=self.windowing)
        return [
            PartialTable("_samples", ("links",), reduction, SAMPLES),
            PartialTable("_changes", ("changes",), change_rows, CHANGES, timed=False),
        ]

    def merge(self, update: TableUpdate) -> None:
        found = self._outages(update)
        update.touched |= self._touched_by_outages(update, found)
        update.replace("outages", found.orderBy("begin_ns", "a", "b").coalesce(1))
        sums = update.partial("_samples", stored_columns(SAMPLES), update.touched)
        merged = (
            _linked(sums)
            .groupBy("a", "b")
            .cogroup(found.where("agreed").groupBy("a", "b"))
            .applyInArrow(_windows_by(self.windowing), spark_schema(_OUTPUT))
        )
        update.replace("links", merged.repartition("bucket").sortWithinPartitions("begin_ns", "a", "b"), update.touched)

    def picture(self, spark: "SparkSession", folder: str) -> str:
        tables = TableFolder(spark, folder)
        version = tables.required()
        return availability_map(tables.frame(spark, version, "links"))

    def _outages(self, update: TableUpdate) -> "DataFrame":
        """All outages of all links: they are few, and one may reach over any time."""
        changes = update.partial("_changes", stored_columns(CHANGES, timed=False))
        find = _outages_by(update.clocks.rounded(CLOCK_UNIT_NS), update.spans)
        return update.stored(_linked(changes).groupBy("a", "b").applyInArrow(find, spark_schema(OUTAGES)))

    def _touched_by_outages(self, update: TableUpdate, found: "DataFrame") -> set[int]:
        """The buckets in which an outage is another than before."""
        if "outages" not in update.base.tables:
            return set()
        before = update.tables.frame(update.spark, update.base, "outages")
        there = {file.bucket for file in update.base.tables["links"].files if file.bucket is not None}
        if before.columns != found.columns:  # an older Wend has made them
            return there
        other = before.exceptAll(found).unionAll(found.exceptAll(before)).select("begin_ns", "end_ns").toArrow()
        touched: set[int] = set()
        for row in other.to_pylist():
            first = self.windowing.bucket(row["begin_ns"])
            last = self.windowing.bucket(row["end_ns"]) if row["end_ns"] is not None else max(there, default=first)
            touched |= {bucket for bucket in there if first <= bucket <= last}
        return touched


_OUTPUT = pa.schema([*LINKS, pa.field("bucket", pa.int64())])


def _linked(frame: "DataFrame") -> "DataFrame":
    """Rows with the two peers of their link, the lower one first."""
    from pyspark.sql import functions as F

    return frame.withColumns({"a": F.least("peer", "neighbour"), "b": F.greatest("peer", "neighbour")}).where("a < b")


def _outages_by(offsets: dict[Node, int], spans: Spans) -> "Callable[[pa.Table], pa.Table]":
    """A function for Spark, which reads the hints of its arguments."""

    def outages(rows: pa.Table) -> pa.Table:
        changes = rows.to_pylist()
        found = link_outages(changes[0]["a"], changes[0]["b"], changes, offsets, spans)
        return pa.Table.from_pylist(found, schema=OUTAGES)

    return outages


def _windows_by(windowing: Windowing) -> "Callable[[pa.Table, pa.Table], pa.Table]":
    def windows(sums: pa.Table, outages: pa.Table) -> pa.Table:
        return _windows(sums, outages, windowing)

    return windows


def _windows(sums: pa.Table, outages: pa.Table, windowing: Windowing) -> pa.Table:
    """The windows of one link."""
    if not sums.num_rows:
        return _OUTPUT.empty_table()
    a, b = sums["a"][0].as_py(), sums["b"][0].as_py()
    down = sorted(zip(outages["begin_ns"].to_pylist(), outages["end_ns"].to_pylist(), strict=True))
    made = [link_rows(a, b, some, down, windowing.window_ns) for some in _some_at_once(sums)]
    rows = pa.concat_tables(made)
    bucket = windowing.bucket(rows["begin_ns"].to_numpy())
    return rows.append_column("bucket", pa.array(bucket, pa.int64()))


def _some_at_once(sums: pa.Table) -> Iterator[pa.Table]:
    begins = sums["begin_ns"].to_numpy()
    known = np.unique(begins)
    if len(known) <= _AT_ONCE:
        yield sums
        return
    for at in range(0, len(known), _AT_ONCE):
        some = known[at : at + _AT_ONCE]
        yield sums.filter(pa.array((begins >= some[0]) & (begins <= some[-1])))
