"""The output rows of matching: pairs, or counts of both sides. Both plans use these functions.

A Spark job has one output, so counts are one table. A row has the id of an event or of a subscription, and the other
id is null. The count of an id is the sum over its rows.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

Ints = NDArray[np.int64]

BATCH = 1000
"""The most events that are matched at once."""
PAIRS = 1_000_000
"""The most pairs of an output batch, and about as many are found at once."""
BYTES = 2**28
"""The most bytes of an output batch: a text column of Arrow holds up to 2 GB."""

ID_TYPES = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.string(),
}


def id_type(frame: DataFrame) -> pa.DataType:
    return ID_TYPES[frame.schema["id"].dataType.simpleString()]


def pair_schema(events: DataFrame, subscriptions: DataFrame) -> pa.Schema:
    return pa.schema([("event", id_type(events)), ("subscription", id_type(subscriptions))])


def count_schema(events: DataFrame, subscriptions: DataFrame) -> pa.Schema:
    return pair_schema(events, subscriptions).append(pa.field("matches", pa.int64()))


def pair_batches_of(
    schema: pa.Schema, events: pa.Array, subscriptions: pa.Array, rows: Ints, matches: Ints
) -> Iterator[pa.RecordBatch]:
    """Translate pairs of positions into pairs of ids, in batches of bounded size."""
    step = max(1, min(PAIRS, BYTES // (_longest(events) + _longest(subscriptions))))
    for start in range(0, len(rows), step):
        stop = start + step
        columns = [events.take(pa.array(rows[start:stop])), subscriptions.take(pa.array(matches[start:stop]))]
        ids = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(ids, schema=schema)


def _longest(ids: pa.Array) -> int:
    if not pa.types.is_string(ids.type):
        return 8
    return 8 + (compute.max(compute.binary_length(ids)).as_py() or 0)


class BatchSize:
    """How many events to match at once: fewer if each matches many of the filters."""

    def __init__(self, filters: int) -> None:
        # Nothing is known yet, so each event may match every filter.
        self.events = max(1, min(BATCH, PAIRS // max(1, filters)))

    def learn(self, events: int, pairs: int) -> None:
        fitting = events * PAIRS // max(1, pairs)
        self.events = max(1, min(BATCH, 4 * events, fitting))


def event_rows(schema: pa.Schema, ids: pa.Array, matches: Ints) -> pa.RecordBatch:
    columns = [ids.cast(schema.field(0).type), pa.nulls(len(ids), schema.field(1).type), pa.array(matches)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def subscription_rows(schema: pa.Schema, ids: pa.Array, matches: Ints) -> pa.RecordBatch:
    columns = [pa.nulls(len(ids), schema.field(0).type), ids.cast(schema.field(1).type), pa.array(matches)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def of_side(counted: DataFrame, side: str) -> DataFrame:
    """Select the rows of one side: `side`, `matches`."""
    return counted.where(f"{side} IS NOT NULL").select(side, "matches")


def totals(counted: DataFrame, side: str, everyone: DataFrame) -> DataFrame:
    """Sum the matches of each id of `everyone`: `side`, `matches`. An id without a match has 0."""
    nothing = everyone.select(F.col("id").alias(side), F.lit(0).cast("bigint").alias("matches"))
    return of_side(counted, side).unionByName(nothing).groupBy(side).agg(F.sum("matches").alias("matches"))
