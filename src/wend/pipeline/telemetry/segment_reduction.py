"""Segments of telemetry, reduced to few rows by the tasks that read them, before any shuffle.

A task reads a segment completely. It reads local files itself. At other addresses Spark reads the bytes (`binaryFile`),
with the settings of the session.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from wend.model.telemetry import Segment, parse_segment_name
from wend.pipeline.spark.arrow_schema import int_fields, spark_schema
from wend.pipeline.spark.partitions import count_cores
from wend.pipeline.storage.job_folders import literal_path, local_path
from wend.pipeline.telemetry.segment_listing import SegmentFile
from wend.pipeline.telemetry.segment_rows import UnusableSegment, int_column, judge_rows, read_segment

ROW, SEGMENT, BAD = "row", "segment", "bad"
_RECORD_COLUMNS = pa.schema(
    [
        ("kind", pa.string()), ("table", pa.string()), *int_fields("number"), ("file", pa.string()),
        *int_fields("bytes", "line"), ("reason", pa.string()), *int_fields("rows", "first_ns", "last_ns"),
    ]
)  # fmt: skip
"""The columns of records about segments, and about rows that a task could not use."""
_TASK_BYTES = 32 * 2**20
_BATCH_ROWS = 20_000

Reduction = Callable[[pa.Table, Segment], pa.Table]
"""From the good rows of a segment to the rows that a job needs of it."""


def reduce_segments(
    spark: SparkSession, files: list[SegmentFile], reduction: Reduction, schema: pa.Schema
) -> DataFrame:
    """Reduce segments in tasks: the columns of `schema`, and those that say what a row is (`kind`)."""
    whole = reduced_schema(schema)
    remote = any(local_path(file.path) is None for file in files)
    if remote and files:
        read = (
            spark.read.format("binaryFile").load([literal_path(file.path) for file in files]).select("path", "content")
        )
        sources: Callable[..., Iterator[_Source]] = _shipped_sources
    else:
        chunks = _split_evenly(files, count_cores(spark))
        read = spark.range(0, len(chunks), 1, max(1, len(chunks)))
        sources = partial(_local_sources, chunks=chunks)
    return read.mapInArrow(
        partial(_reduce_batches, sources=sources, reduction=reduction, schema=whole), spark_schema(whole)
    )


def reduced_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of reduced segments: those of the rows, and those about segments."""
    return pa.schema([*schema, *(field for field in _RECORD_COLUMNS if field.name not in schema.names)])


def _split_evenly(files: list[SegmentFile], at_once: int) -> list[list[SegmentFile]]:
    """Files for each task: about equal in bytes, and enough tasks for all cores."""
    total = sum(file.bytes for file in files)
    many = max(1, min(len(files), max(2 * at_once, -(-total // _TASK_BYTES))))
    loads = [0] * many
    chunks: list[list[SegmentFile]] = [[] for _ in range(many)]
    for file in sorted(files, key=lambda file: (-file.bytes, file.segment)):
        at = loads.index(min(loads)) if many <= 64 else int(np.argmin(loads))
        chunks[at].append(file)
        loads[at] += file.bytes + 10_000
    return chunks


class _Source(NamedTuple):
    """A segment that a task reads: from its path, or from bytes."""

    segment: Segment
    source: Any
    path: str


def _local_sources(batch: pa.RecordBatch, *, chunks: list[list[SegmentFile]]) -> Iterator[_Source]:
    for number in batch.column(0).to_pylist():
        yield from (_Source(file.segment, file.path, file.path) for file in chunks[number])


def _shipped_sources(batch: pa.RecordBatch) -> Iterator[_Source]:
    for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
        where = unquote(path.as_py())
        segment = parse_segment_name(where.rpartition("/")[2])
        assert segment is not None
        yield _Source(segment, pa.BufferReader(content.as_buffer()), where)


def _reduce_batches(
    batches: Iterator[pa.RecordBatch],
    sources: Callable[[pa.RecordBatch], Iterator[_Source]],
    reduction: Reduction,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Reduce segments to rows, and to records about the segments. Spark gets the rows of many segments at once: a batch
    costs it as much as a thousand rows."""
    records: list[dict[str, Any]] = []
    rows: list[pa.Table] = []
    for one in chain.from_iterable(map(sources, batches)):
        of_segment, reduced = _reduce_source(one, reduction)
        records += of_segment
        rows += [reduced] if reduced.num_rows else []
        if len(records) + sum(table.num_rows for table in rows) >= _BATCH_ROWS:
            yield from _make_batches(records, rows, schema)
            records, rows = [], []
    yield from _make_batches(records, rows, schema)


def _reduce_source(one: _Source, reduction: Reduction) -> tuple[list[dict[str, Any]], pa.Table]:
    segment = one.segment
    same = {**segment_columns(segment), "file": one.path}
    try:
        table, size = read_segment(one.source, segment)
    except UnusableSegment as error:
        return [{**same, "kind": BAD, "reason": str(error), "rows": 1}], pa.table({})
    good, bad = judge_rows(table, segment.table)
    records = [{**same, "kind": BAD, "line": row.line, "reason": row.reason, "rows": row.rows} for row in bad]
    times = int_column(good, "time_ns")
    ends = {"first_ns": int(times.min()), "last_ns": int(times.max())} if len(times) else {}
    records.append({**same, "kind": SEGMENT, "bytes": size, "rows": table.num_rows, **ends})
    return records, reduction(good, segment) if good.num_rows else pa.table({})


def segment_columns(segment: Segment) -> dict[str, Any]:
    """The columns that identify a segment in records."""
    return {name: getattr(segment, name) for name in ("table", "peer", "incarnation", "number")}


def _make_batches(records: list[dict[str, Any]], rows: list[pa.Table], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if records:
        yield pa.RecordBatch.from_pylist(records, schema=schema)
    if rows:
        whole = pa.concat_tables(rows)
        columns = {"kind": pa.repeat(pa.scalar(ROW), whole.num_rows)}
        columns |= {name: whole[name] for name in whole.column_names}
        arrays = [columns.get(field.name, pa.nulls(whole.num_rows, field.type)) for field in schema]
        yield from pa.Table.from_arrays(arrays, schema=schema).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
