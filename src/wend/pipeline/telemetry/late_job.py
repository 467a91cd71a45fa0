"""`wend data late`: where late events lost their time, by peer and by link."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wend.pipeline.spark.arrow_schema import spark_schema
from wend.pipeline.spark.partitions import count_cores
from wend.pipeline.storage.versioned_tables import TableFolder
from wend.pipeline.telemetry.clocks import Node
from wend.pipeline.telemetry.event_rows import DELIVERY, EVENT_ID, EVENT_SCHEMA, add_adjacent_buckets, event_rows
from wend.pipeline.telemetry.late_paths import CAUSES, find_lost_time
from wend.pipeline.telemetry.table_update import PartialTable, TableUpdate
from wend.pipeline.telemetry.telemetry_pictures import draw_lost_time_bars
from wend.pipeline.telemetry.updates import CLOCK_UNIT_NS

_TASK_BYTES = 8 * 2**20
"""Bytes of stored events for each task. A task holds all of its late events in memory."""


class LateJob:
    """The job behind `wend data late`."""

    name = "late"
    tables = ("publications", "hops", "deliveries")
    results = ("causes", "lateness")

    def __init__(self, window_ns: int) -> None:
        self.window_ns = window_ns

    @property
    def settings(self) -> dict[str, Any]:
        return {"window_ns": self.window_ns}

    @property
    def offset_unit_ns(self) -> int:
        return max(CLOCK_UNIT_NS, self.window_ns // 60)

    def partial_tables(self, offsets: dict[Node, int]) -> list[PartialTable]:
        reduction = partial(event_rows, offsets=offsets, bucket_ns=self.window_ns)
        return [PartialTable("_events", self.tables, reduction, EVENT_SCHEMA)]

    def merge(self, update: TableUpdate) -> None:
        there = update.buckets("_events")
        update.touched = add_adjacent_buckets(update.touched) & there
        near = update.partial_rows("_events", add_adjacent_buckets(update.touched))
        rows = near.withColumn("wanted", F.col("bucket").isin(sorted(update.touched)))
        begin = (F.col("bucket") * F.lit(self.window_ns)).alias("begin_ns")
        is_late = F.col("deadline_ns").between(F.lit(0), F.col("age_ns") - 1)
        deliveries = rows.where(F.col("wanted") & (F.col("what") == DELIVERY))
        counted = deliveries.groupBy("bucket").agg(
            F.count("*").alias("deliveries"),
            F.count(F.when(F.col("deadline_ns") >= 0, 1)).alias("with_deadline"),
            F.count(F.when(is_late, 1)).alias("late"),
        )
        late = deliveries.where(is_late).select(*EVENT_ID).distinct()
        many = max(
            2 * count_cores(update.spark),
            update.table_bytes("_events", add_adjacent_buckets(update.touched)) // _TASK_BYTES,
        )
        routes = rows.join(late, list(EVENT_ID), "left_semi").repartition(many, *EVENT_ID)
        spent = update.store_frame(routes.mapInArrow(_find_lost_time, spark_schema(CAUSES)))
        causes = spent.groupBy("bucket", "cause", "peer", "neighbour").agg(
            F.sum("deliveries").alias("deliveries"),
            F.sum("time_ns").alias("time_ns"),
            F.max("most_ns").alias("most_ns"),
        )
        update.replace_rows("causes", _sort_by_bucket(causes.select(begin, *causes.columns)), update.touched)
        incomplete = spent.where("cause = 'incomplete'").groupBy("bucket").agg(F.sum("deliveries").alias("incomplete"))
        whole = counted.join(incomplete, "bucket", "left").fillna(0, ["incomplete"])
        update.replace_rows("lateness", _sort_by_bucket(whole.select(begin, *whole.columns)), update.touched)

    def draw_picture(self, spark: SparkSession, folder: str) -> str:
        tables = TableFolder(spark, folder)
        version = tables.require_newest_version()
        return draw_lost_time_bars(tables.read_frame(version, "causes"), tables.read_frame(version, "lateness"))


def _sort_by_bucket(frame: DataFrame) -> DataFrame:
    order = [name for name in ("begin_ns", "cause", "peer", "neighbour") if name in frame.columns]
    return frame.repartition("bucket").sortWithinPartitions(*order)


def _find_lost_time(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    every = list(batches)
    if every:
        yield from find_lost_time(pa.Table.from_batches(every)).to_batches()
