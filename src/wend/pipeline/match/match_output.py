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
from pyspark.sql.pandas.types import to_arrow_type

Ints = NDArray[np.int64]

MAX_BATCH_EVENTS = 1000
"""The most events that are matched at once."""
MAX_BATCH_PAIRS = 1_000_000
"""The most pairs of an output batch, and about as many are found at once."""
MAX_BATCH_BYTES = 2**28
"""The most bytes of an output batch: a text column of Arrow holds up to 2 GB."""


def id_type(frame: DataFrame) -> pa.DataType:
    """The Arrow type of the ids of a table."""
    return to_arrow_type(frame.schema["id"].dataType)


def output_schema(events: DataFrame, subscriptions: DataFrame, *, count: bool) -> pa.Schema:
    pair = pa.schema([("event", id_type(events)), ("subscription", id_type(subscriptions))])
    return pair.append(pa.field("matches", pa.int64())) if count else pair


def id_pair_batches(
    schema: pa.Schema, events: pa.Array, subscriptions: pa.Array, rows: Ints, matches: Ints
) -> Iterator[pa.RecordBatch]:
    """Translate pairs of positions into pairs of ids, in batches of bounded size."""
    step = max(1, min(MAX_BATCH_PAIRS, MAX_BATCH_BYTES // (_longest_id(events) + _longest_id(subscriptions))))
    for start in range(0, len(rows), step):
        stop = start + step
        columns = [events.take(pa.array(rows[start:stop])), subscriptions.take(pa.array(matches[start:stop]))]
        ids = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(ids, schema=schema)


def _longest_id(ids: pa.Array) -> int:
    if not pa.types.is_string(ids.type):
        return 8
    return 8 + (compute.max(compute.binary_length(ids)).as_py() or 0)


class MatchBatchSize:
    """How many events to match at once: fewer if each matches many of the filters."""

    def __init__(self, filters: int) -> None:
        # Nothing is known yet, so each event may match every filter.
        self.events = max(1, min(MAX_BATCH_EVENTS, MAX_BATCH_PAIRS // max(1, filters)))

    def adapt(self, events: int, pairs: int) -> None:
        fitting = events * MAX_BATCH_PAIRS // max(1, pairs)
        self.events = max(1, min(MAX_BATCH_EVENTS, 4 * events, fitting))


def make_count_rows(schema: pa.Schema, side: str, ids: pa.Array, matches: Ints) -> pa.RecordBatch:
    """The matches of ids of one side, `event` or `subscription`. The other id is null."""
    columns = [
        ids.cast(schema.field(name).type) if name == side else pa.nulls(len(ids), schema.field(name).type)
        for name in ("event", "subscription")
    ]
    return pa.RecordBatch.from_arrays([*columns, pa.array(matches)], schema=schema)


def select_side_counts(counted: DataFrame, side: str) -> DataFrame:
    """Select the rows of one side: `side`, `matches`."""
    return counted.where(f"{side} IS NOT NULL").select(side, "matches")


def sum_counts(counted: DataFrame, side: str, everyone: DataFrame) -> DataFrame:
    """Sum the matches of each id of `everyone`: `side`, `matches`. An id without a match has 0."""
    nothing = everyone.select(F.col("id").alias(side), F.lit(0).cast("bigint").alias("matches"))
    return select_side_counts(counted, side).unionByName(nothing).groupBy(side).agg(F.sum("matches").alias("matches"))
