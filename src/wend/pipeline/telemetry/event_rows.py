"""Sampled events as rows that jobs can join: publications, hops and deliveries in one table, by time of publication.

The time of publication is `time_ns - age_ns` at each peer that saw an event. By the clock of the reference it is the
same everywhere, within milliseconds. So all rows of an event are in one bucket of time, or in two adjacent ones, and a
job that joins a bucket with its two neighbours finds them all.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from wend.model.telemetry import Segment
from wend.model.units import SECOND
from wend.pipeline.spark.arrow_schema import int_fields
from wend.pipeline.telemetry.clocks import Node
from wend.pipeline.telemetry.segment_rows import int_column, node_columns

BUCKET_NS = 900 * SECOND
"""The length of a bucket, unless a job has windows of its own."""
PUBLICATION, HOP, DELIVERY = 0, 1, 2
ROW_KINDS = {"publications": PUBLICATION, "hops": HOP, "deliveries": DELIVERY}
EVENT_ID = ("publisher", "publisher_incarnation", "sequence")
EVENT_SCHEMA = pa.schema(
    [
        *int_fields("bucket"), ("what", pa.int32()),
        *int_fields(*EVENT_ID, "peer", "incarnation", "sender", "age_ns", "link_ns", "waited_ns", "deadline_ns"),
        *int_fields("size_bytes"),
    ]
)  # fmt: skip
PUBLICATION_SCHEMA = pa.schema([*EVENT_SCHEMA, *int_fields("time_ns", "expected")])
"""The same, with the time of the row by the clock of its peer, and the number of peers that an event was for."""


def event_rows(
    table: pa.Table, segment: Segment, *, offsets: dict[Node, int], bucket_ns: int, schema: pa.Schema = EVENT_SCHEMA
) -> pa.Table:
    """The rows of a segment of events, with their buckets."""
    many = table.num_rows
    ages = int_column(table, "age_ns") if segment.table != "publications" else np.zeros(many, np.int64)
    published = int_column(table, "time_ns") - ages - offsets.get((segment.peer, segment.incarnation), 0)
    own = {
        "bucket": pa.array(published // bucket_ns),
        "what": pa.repeat(pa.scalar(ROW_KINDS[segment.table], pa.int32()), many),
        **node_columns(segment, many),
        "age_ns": pa.array(ages),
    }
    columns = [
        own[field.name] if field.name in own
        else table[field.name] if field.name in table.column_names
        else pa.nulls(many, field.type)
        for field in schema
    ]  # fmt: skip
    return pa.table(columns, schema=schema)


def add_adjacent_buckets(buckets: Iterable[int]) -> set[int]:
    """These buckets, and the ones before and after each."""
    return {bucket + step for bucket in buckets for step in (-1, 0, 1)}
