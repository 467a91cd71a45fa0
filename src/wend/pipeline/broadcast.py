"""The first plan: every task holds the whole index, and events stream through it in Arrow batches.

Spark Connect has no SparkContext and so no broadcast. Instead the tasks of a first job read the filters and compile
them, in blocks, each block a file; the tasks of the second map these files. Reading filters is the slow part, and it
is spread over the tasks like everything else; the driver never holds a filter. As with sweeps, **the scratch folder
has the same path on the driver and on all workers**.
"""

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from wend.matching.bitmaps import BitmapIndex
from wend.matching.filters import Filter
from wend.pipeline.answers import (
    count_schema,
    event_rows,
    pair_rows,
    pair_schema,
    spark_schema,
    subscription_rows,
)
from wend.pipeline.packed import pack, unpack
from wend.pipeline.progress import READ, mark
from wend.pipeline.tables import batch_of, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BLOCK = 50_000
"""Subscriptions in a file. Smaller ones are made by more tasks at once, larger ones are fewer to ask."""

PART = 1000
"""Events that are matched at once: their pairs are a batch of the answer, and have to fit into memory."""

Block = tuple[pa.Array, "BitmapIndex[int]"]


def compile_blocks(subscriptions: "DataFrame", count: int, folder: Path) -> "DataFrame":
    """`id`, `filter` to files of compiled blocks; a row for each: `file`, `subscriptions`, `bytes`."""
    blocks = max(1, -(-count // BLOCK))
    spread = subscriptions.repartition(blocks, "id").sortWithinPartitions("id")
    return spread.mapInArrow(partial(_compile, folder=str(folder)), "file string, subscriptions bigint, bytes bigint")


def _compile(batches: Iterator[pa.RecordBatch], folder: str) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    found: list[pa.Array] = []
    filters: list[Filter] = []
    for batch in batches:
        found.append(batch.column("id"))
        filters += parsed(batch.column("id"), batch.column("filter"))
        mark(folder, len(filters), READ)
    if not filters:
        return
    ids = pa.concat_arrays(found)
    task = TaskContext.get()
    assert task is not None
    name = f"block-{task.partitionId()}"
    size = pack((ids, BitmapIndex(enumerate(filters))), Path(folder) / name)
    yield pa.RecordBatch.from_pydict({"file": [name], "subscriptions": [len(ids)], "bytes": [size]})


@cache
def _blocks(folder: str, files: tuple[str, ...]) -> list[Block]:
    """Once for each process of a worker, which serves many tasks."""
    return [unpack(Path(folder) / name) for name in files]


def pairs(events: "DataFrame", subscriptions: "DataFrame", folder: Path, files: list[str]) -> "DataFrame":
    """`event`, `subscription`: a row for each match."""
    schema = pair_schema(events, subscriptions)
    task = partial(_pairs, folder=str(folder), files=tuple(files), schema=schema)
    return events.mapInArrow(task, spark_schema(schema))


def _pairs(
    batches: Iterator[pa.RecordBatch], folder: str, files: tuple[str, ...], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    blocks, done = _blocks(folder, files), 0
    for batch in batches:
        for start in range(0, batch.num_rows, PART):
            part = batch.slice(start, PART)
            wanted = batch_of(part.column("attributes"))
            for ids, index in blocks:
                offsets, found = index.match_batch(wanted)
                rows = np.repeat(np.arange(part.num_rows), np.diff(offsets))
                yield pair_rows(schema, part.column("id"), ids, rows, found)
        done += batch.num_rows
        mark(folder, done)


def counts(events: "DataFrame", subscriptions: "DataFrame", folder: Path, files: list[str]) -> "DataFrame":
    """`event`, `subscription`, `matches`: a row for each event, and for each subscription and task."""
    schema = count_schema(events, subscriptions)
    task = partial(_counts, folder=str(folder), files=tuple(files), schema=schema)
    return events.mapInArrow(task, spark_schema(schema))


def _counts(
    batches: Iterator[pa.RecordBatch], folder: str, files: tuple[str, ...], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    blocks, done = _blocks(folder, files), 0
    totals = [np.zeros(len(ids), np.int64) for ids, _ in blocks]
    for batch in batches:
        wanted = batch_of(batch.column("attributes"))
        matches = np.zeros(batch.num_rows, np.int64)
        for (_, index), total in zip(blocks, totals, strict=True):
            of_events, of_subscriptions = index.count_batch(wanted)
            matches += of_events
            total += of_subscriptions
        yield event_rows(schema, batch.column("id"), matches)
        done += batch.num_rows
        mark(folder, done)
    for (ids, _), total in zip(blocks, totals, strict=True):
        yield subscription_rows(schema, ids, total)
