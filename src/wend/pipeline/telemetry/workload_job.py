"""`wend data workload`: the flows of an overlay for `wend plan`, from the events that peers sampled.

Events of one publisher that reached the same peers are one flow (thesis, definition 3.1). Its rate is their number,
divided by the share of events that peers sample and by the time for which its heartbeats show that the publisher ran.

The table `publications` has the time of each event, by the clock of its publisher, for replays. Offsets of clocks are
facts of the version, so a slightly better estimate of a clock changes no rows.
"""

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wend.model.errors import ConfigError
from wend.model.telemetry import Segment
from wend.model.units import SECOND
from wend.pipeline.spark.arrow_schema import int_fields
from wend.pipeline.telemetry.clocks import Node
from wend.pipeline.telemetry.event_rows import (
    BUCKET_NS,
    DELIVERY,
    EVENT_ID,
    PUBLICATION,
    PUBLICATION_SCHEMA,
    add_adjacent_buckets,
    event_rows,
)
from wend.pipeline.telemetry.segment_rows import int_column
from wend.pipeline.telemetry.table_update import PartialTable, TableUpdate
from wend.pipeline.telemetry.updates import CLOCK_UNIT_NS

BEATS = pa.schema(int_fields("peer", "incarnation", "beats", "gap_ns", "sample_ppb", "published"))
"""The heartbeats of one segment: how many, the usual gap between two, and the sum of the shares that were sampled, in
billionths."""
_BILLION = 10**9


def reduce_heartbeats(table: pa.Table, segment: Segment) -> pa.Table:
    """Reduce a segment of heartbeats to one row."""
    times = np.sort(int_column(table, "time_ns"))
    shares = np.rint(table["sample"].to_numpy() * _BILLION).astype(np.int64)
    row = {
        "peer": segment.peer,
        "incarnation": segment.incarnation,
        "beats": len(times),
        "gap_ns": int(np.sort(np.diff(times))[(len(times) - 1) // 2]) if len(times) > 1 else 0,
        "sample_ppb": int(shares.sum()),
        "published": int(int_column(table, "published").sum()),
    }
    return pa.Table.from_pylist([row], schema=BEATS)


class WorkloadJob:
    """The job behind `wend data workload`."""

    name = "workload"
    tables = ("publications", "deliveries", "heartbeats")
    results = ("flows", "deadlines", "publications")
    settings: dict[str, Any] = {}  # noqa: RUF012
    offset_unit_ns = max(CLOCK_UNIT_NS, BUCKET_NS // 60)

    def partial_tables(self, offsets: dict[Node, int]) -> list[PartialTable]:
        reduction = partial(event_rows, offsets=offsets, bucket_ns=BUCKET_NS, schema=PUBLICATION_SCHEMA)
        return [
            PartialTable("_events", ("publications", "deliveries"), reduction, PUBLICATION_SCHEMA),
            PartialTable("_beats", ("heartbeats",), reduce_heartbeats, BEATS, timed=False),
        ]

    def merge(self, update: TableUpdate) -> None:
        update.touched = add_adjacent_buckets(update.touched) & update.buckets("_events")
        near = update.partial_rows("_events", add_adjacent_buckets(update.touched))
        published = near.where((F.col("what") == PUBLICATION) & F.col("bucket").isin(sorted(update.touched)))
        delivered = near.where((F.col("what") == DELIVERY) & (F.col("peer") != F.col("publisher")))
        reached = delivered.groupBy(*EVENT_ID).agg(
            F.sort_array(F.collect_set("peer")).alias("receivers"),
            F.min(F.when(F.col("deadline_ns") >= 0, F.col("deadline_ns"))).alias("deadline_ns"),
        )
        about = published.select(*EVENT_ID, "bucket", "size_bytes", "time_ns", "expected")
        events = update.store_frame(about.join(reached, list(EVENT_ID), "left"))
        timed = events.where("time_ns IS NOT NULL AND (receivers IS NOT NULL OR expected > 0)")
        rows = timed.select("bucket", "time_ns", *EVENT_ID, "receivers", "expected", "size_bytes").repartition("bucket")
        update.replace_rows("publications", rows.sortWithinPartitions("time_ns", *EVENT_ID), update.touched)
        sums = events.groupBy("bucket", "publisher", "publisher_incarnation", "receivers").agg(
            F.count("*").alias("events"), F.sum("size_bytes").alias("bytes"), F.min("deadline_ns").alias("deadline_ns")
        )
        update.replace_rows("_flows", sums.repartition("bucket"), update.touched)
        within = delivered.where(F.col("bucket").isin(sorted(update.touched)) & (F.col("deadline_ns") >= 0))
        shortest = F.min("deadline_ns").alias("deadline_ns")
        tight = within.groupBy("bucket", "publisher", F.col("peer").alias("receiver")).agg(shortest)
        update.replace_rows("_deadlines", tight.repartition("bucket"), update.touched)
        every = update.partial_rows("_deadlines").groupBy("publisher", "receiver").agg(shortest)
        update.replace_rows("deadlines", every.orderBy("publisher", "receiver").coalesce(1))
        update.replace_rows("flows", self._make_flows(update).orderBy("publisher", "receivers").coalesce(1))

    def _make_flows(self, update: TableUpdate) -> DataFrame:
        """The columns of a file of flows."""
        beats = update.partial_rows("_beats")
        observed = beats.groupBy("peer", "incarnation").agg(
            F.sum("beats").alias("beats"), F.max("gap_ns").alias("gap_ns"), F.sum("sample_ppb").alias("sample_ppb")
        )
        # If the share changed, this is its mean. The time of all incarnations counts.
        by_peer = observed.groupBy(F.col("peer").alias("publisher")).agg(
            (F.sum(F.col("sample_ppb") * (F.col("gap_ns") / F.lit(SECOND))) / F.lit(_BILLION)).alias("sampled_s"),
            (F.sum("sample_ppb") / F.sum("beats") / F.lit(_BILLION)).alias("sample"),
        )
        summed = (
            update.partial_rows("_flows")
            .where("receivers IS NOT NULL")
            .groupBy("publisher", "receivers")
            .agg(
                F.sum("events").alias("events"),
                F.sum("bytes").alias("bytes"),
                F.min("deadline_ns").alias("deadline_ns"),
            )
        )
        rated = summed.join(F.broadcast(by_peer), "publisher").where("sampled_s > 0")
        return rated.select(
            "publisher",
            "receivers",
            (F.col("events") / F.col("sampled_s")).alias("rate"),
            (F.col("bytes") / F.col("events")).alias("size_bytes"),
            F.lit(1.0).alias("weight"),
            "deadline_ns",
            "events",
            "sample",
        )

    def draw_picture(self, spark: SparkSession, folder: str) -> str:
        raise ConfigError(f"there is no picture of {folder}: `wend plan` draws flows")
