"""The broadcast plan of matching: every task holds the whole index, and events stream through it in Arrow batches.

Spark Connect has no SparkContext and therefore no broadcast variables. The tasks of a first job parse the filters and
compile them into blocks, one file per block. The tasks of the second job map these files into memory. Parsing filters
is the slow step, so the tasks share it; the driver never holds a filter. As with sweeps, **the scratch folder must
have the same path on the driver and on all workers**.
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from wend.matching.batch_index import BatchIndex
from wend.matching.filters import Filter
from wend.pipeline.code_hash import hash_code
from wend.pipeline.match.match_input import attribute_batch, parse_filters
from wend.pipeline.match.match_output import (
    MatchBatchSize,
    id_pair_batches,
    id_type,
    make_count_rows,
    output_schema,
)
from wend.pipeline.spark.arrow_schema import spark_schema
from wend.pipeline.spark.task_progress import READ, report_rows
from wend.pipeline.storage.mapped_pickle import dump_mapped, load_mapped

BLOCK_ROWS = 50_000
"""Subscriptions per file. Small blocks let more tasks compile at once; large blocks mean fewer index lookups."""

_BLOCK_PARTS = ("matching", "model", "pipeline/storage/mapped_pickle.py")
"""The sources that decide the content of a block."""

Block = tuple[pa.Array, BatchIndex]


def compile_blocks(subscriptions: DataFrame, count: int, folder: Path, kept: Path | None = None) -> DataFrame:
    """Compile filters into block files: one row for each block, with its `file`, and one for each invalid filter, with
    its `subscription` and the `reason`.

    `subscriptions` has the columns `id` and `filter`. Blocks without invalid filters go into the folder `kept`, if it
    is given, named by a hash of their content. A later job with the same subscriptions does not parse them again."""
    blocks = max(1, -(-count // BLOCK_ROWS))
    spread = subscriptions.repartition(blocks, "id").sortWithinPartitions("id")
    schema = pa.schema({"file": pa.string(), "subscription": id_type(subscriptions), "reason": pa.string()})
    key = None if kept is None else (str(kept.absolute()), hash_code(_BLOCK_PARTS))
    return spread.mapInArrow(
        partial(_compile_batches, folder=str(folder), kept=key, schema=schema), spark_schema(schema)
    )


def _compile_batches(
    batches: Iterator[pa.RecordBatch], folder: str, kept: tuple[str, str] | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    task = TaskContext.get()
    assert task is not None
    place = Path(folder) / f"block-{task.partitionId()}"
    if kept is not None:
        batches, place = _find_stored_block(batches, *kept)
        if place.exists():
            ids, _ = load_mapped(place)
            yield pa.RecordBatch.from_pylist([{"file": str(place)}], schema=schema)
            report_rows(folder, len(ids), READ)
            return
    id_arrays: list[pa.Array] = []
    filters: list[Filter] = []
    bad_rows = 0
    for batch in batches:
        rows, some, reasons = parse_filters(batch.column("id"), batch.column("filter"))
        id_arrays.append(batch.column("id").take(pa.array(rows, pa.int64())))
        filters += some
        if reasons:
            bad = [{"subscription": batch.column("id")[row].as_py(), "reason": text} for row, text in reasons.items()]
            bad_rows += len(bad)
            yield pa.RecordBatch.from_pylist(bad, schema=schema)
        report_rows(folder, len(filters), READ)
    if not filters:
        return
    ids = pa.concat_arrays(id_arrays)
    if bad_rows:
        # A block that is kept would not tell the next job of its bad filters.
        place = Path(folder) / f"block-{task.partitionId()}"
    dump_mapped((ids, BatchIndex(filters)), place)
    yield pa.RecordBatch.from_pylist([{"file": str(place)}], schema=schema)


def _find_stored_block(
    batches: Iterator[pa.RecordBatch], folder: str, code: str
) -> tuple[Iterator[pa.RecordBatch], Path]:
    """The same batches, and the file of a block with their content."""
    content, digest = [], blake2b(code.encode(), digest_size=16)
    for batch in batches:
        content.append(batch)
        digest.update(batch.serialize())
    return iter(content), Path(folder) / f"block-{digest.hexdigest()}"


@lru_cache(maxsize=1)
def _map_blocks(folder: str, files: tuple[str, ...]) -> list[Block]:
    """Map the block files once per worker process, which serves many tasks. The files of an earlier job are
    released."""
    return [load_mapped(Path(folder) / name) for name in files]  # an absolute name stays as it is


def match_events(
    events: DataFrame, subscriptions: DataFrame, folder: Path, files: list[str], *, count: bool
) -> DataFrame:
    """Match: `event`, `subscription`, a row for each match. With `count` also `matches`, a row for each event, and one
    for each subscription and task."""
    schema = output_schema(events, subscriptions, count=count)
    task = partial(
        match_count_batches if count else match_pair_batches, folder=str(folder), files=tuple(files), schema=schema
    )
    return events.mapInArrow(task, spark_schema(schema))


def match_pair_batches(
    batches: Iterator[pa.RecordBatch], folder: str, files: tuple[str, ...], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    blocks, done = _map_blocks(folder, files), 0
    size = MatchBatchSize(max((len(ids) for ids, _ in blocks), default=0))
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, size.events)
            start += part.num_rows
            events = attribute_batch(part.column("attributes"))
            most = 0
            for ids, index in blocks:
                offsets, matches = index.match_batch(events)
                rows = np.repeat(np.arange(part.num_rows), np.diff(offsets))
                yield from id_pair_batches(schema, part.column("id"), ids, rows, matches)
                most = max(most, len(matches))
            size.adapt(part.num_rows, most)
        done += batch.num_rows
        report_rows(folder, done)


def match_count_batches(
    batches: Iterator[pa.RecordBatch], folder: str, files: tuple[str, ...], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    blocks, done = _map_blocks(folder, files), 0
    totals = [np.zeros(len(ids), np.int64) for ids, _ in blocks]
    for batch in batches:
        events = attribute_batch(batch.column("attributes"))
        matches = np.zeros(batch.num_rows, np.int64)
        for (_, index), total in zip(blocks, totals, strict=True):
            of_events, of_subscriptions = index.count_batch(events)
            matches += of_events
            total += of_subscriptions
        yield make_count_rows(schema, "event", batch.column("id"), matches)
        done += batch.num_rows
        report_rows(folder, done)
    for (ids, _), total in zip(blocks, totals, strict=True):
        yield make_count_rows(schema, "subscription", ids, total)
