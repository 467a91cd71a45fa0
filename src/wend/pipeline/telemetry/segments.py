"""Segments of telemetry as jobs find them: listed in any layout of folders, copies left out, read inside tasks.

Operators copy segments by any means, so a folder may have copies, files that a copier left half-way, and files of newer
peers. The name of a segment says what it is, and copies are equal, so a job takes one file of each name, the longest.
A task reads a segment completely and reduces it to few rows at once, before any shuffle. A segment that cannot be read,
and a row that cannot be true, go to the quarantine with a reason, and the rest is used.

Local files are read by the task itself. At other addresses Spark reads the bytes (`binaryFile`), with the settings of
the session.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, parquet

from wend.model.errors import ConfigError
from wend.model.telemetry import KEY, SCHEMA, TABLES, Segment, segment_of
from wend.model.units import SECOND
from wend.pipeline.spark.arrow_schema import spark_schema
from wend.pipeline.spark.partitions import cores
from wend.pipeline.storage.job_folders import Target, literal_path, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPES = {"q": pa.int64(), "d": pa.float64(), "s": pa.string()}
ROW, SEGMENT, BAD = "row", "segment", "bad"
_ABOUT = pa.schema(
    [
        ("kind", pa.string()), ("table", pa.string()), ("number", pa.int64()), ("file", pa.string()),
        ("bytes", pa.int64()), ("line", pa.int64()), ("reason", pa.string()), ("rows", pa.int64()),
        ("first_ns", pa.int64()), ("last_ns", pa.int64()),
    ]
)  # fmt: skip
"""What a task says beside the rows: about each segment, and about what it could not use."""
_TASK_BYTES = 32 * 2**20
_BATCH_ROWS = 20_000
_MOST_BAD = 100
"""Bad rows of one segment that the quarantine has one by one."""
_DAY_NS = 86_400 * SECOND
_CALENDAR = (0, 2**62)

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class SegmentFile(NamedTuple):
    """A file with the name of a segment."""

    segment: Segment
    path: str
    bytes: int


class Listing(NamedTuple):
    """What a folder has."""

    files: list[SegmentFile]
    others: int
    """Files with other names."""


class BadRow(NamedTuple):
    """A row that cannot be used. `line` counts from 1; it is 0 for rows that are only counted."""

    line: int
    reason: str
    rows: int = 1


Reduction = Callable[[pa.Table, Segment], pa.Table]
"""From the good rows of a segment to the rows that a job needs of it."""


def list_segments(spark: "SparkSession | None", source: Target) -> Listing:
    """All segments below a path. Local ones need no Spark, and are absolute: workers, and later calls, may run in other
    folders."""
    place = local_path(source)
    if place is not None and not place.exists():
        raise ConfigError(f"there is no {place}")
    if place is not None:
        return named_files(_walk(place.absolute()))
    assert spark is not None
    return named_files(_asked(spark, str(source)))


def named_files(found: Iterable[tuple[str, int]]) -> Listing:
    files, others = [], 0
    for path, size in found:
        segment = segment_of(path.rpartition("/")[2])
        if segment is None:
            others += 1
        else:
            files.append(SegmentFile(segment, path, size))
    return Listing(sorted(files), others)


def _walk(place: Path) -> Iterator[tuple[str, int]]:
    if place.is_file():
        yield str(place), place.stat().st_size
    for at, folders, names in os.walk(place):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            if not name.startswith((".", "_")):
                try:
                    yield f"{at}/{name}", os.stat(f"{at}/{name}").st_size
                except FileNotFoundError:  # a copier has renamed it
                    continue


def _asked(spark: "SparkSession", address: str) -> Iterator[tuple[str, int]]:
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    rows = reader.load(address).select("path", "length").toArrow()
    for path, size in zip(rows["path"].to_pylist(), rows["length"].to_pylist(), strict=True):
        yield unquote(path), size


def one_of_each(files: Iterable[SegmentFile]) -> tuple[list[SegmentFile], list[tuple[SegmentFile, str]]]:
    """One file of each segment, and files that another file of the same name contradicts."""
    best: dict[Segment, SegmentFile] = {}
    odd: list[tuple[SegmentFile, str]] = []
    for file in sorted(files, key=lambda file: (file.segment, -file.bytes, file.path)):
        first = best.setdefault(file.segment, file)
        if file.bytes != first.bytes:
            odd.append((file, contradiction(first.bytes)))
    return list(best.values()), odd


def contradiction(size: int) -> str:
    return f"another file of this name, with {size} bytes, is used: one is half a copy, or two peers have one id"


def reduce_segments(
    spark: "SparkSession", files: list[SegmentFile], reduction: Reduction, schema: pa.Schema, *, by_spark: bool = False
) -> "DataFrame":
    """Reduce segments in tasks: the columns of `schema`, and those that say what a row is (`kind`). `by_spark` reads
    local files as if they were at an address."""
    whole = reduced_schema(schema)
    remote = by_spark or any(local_path(file.path) is None for file in files)
    if remote and files:
        read = (
            spark.read.format("binaryFile").load([literal_path(file.path) for file in files]).select("path", "content")
        )
        found: Callable[..., Iterator[_Found]] = _sent
    else:
        chunks = _chunks(files, cores(spark))
        read = spark.range(0, len(chunks), 1, max(1, len(chunks)))
        found = partial(_opened, chunks=chunks)
    return read.mapInArrow(partial(_reduce, found=found, reduction=reduction, schema=whole), spark_schema(whole))


def reduced_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of reduced segments: those of the rows, and those about segments."""
    return pa.schema([*schema, *(field for field in _ABOUT if field.name not in schema.names)])


def _chunks(files: list[SegmentFile], at_once: int) -> list[list[SegmentFile]]:
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


class _Found(NamedTuple):
    """A segment that a task reads: from its path, or from bytes."""

    segment: Segment
    source: Any
    path: str


def _opened(batch: pa.RecordBatch, *, chunks: list[list[SegmentFile]]) -> Iterator[_Found]:
    for number in batch.column(0).to_pylist():
        yield from (_Found(file.segment, file.path, file.path) for file in chunks[number])


def _sent(batch: pa.RecordBatch) -> Iterator[_Found]:
    for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
        where = unquote(path.as_py())
        segment = segment_of(where.rpartition("/")[2])
        assert segment is not None
        yield _Found(segment, pa.BufferReader(content.as_buffer()), where)


def _reduce(
    batches: Iterator[pa.RecordBatch],
    found: Callable[[pa.RecordBatch], Iterator[_Found]],
    reduction: Reduction,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """The rows of segments, and what is to be said about them. Spark gets those of many segments at once: a batch costs
    it as much as a thousand rows."""
    said: list[dict[str, Any]] = []
    rows: list[pa.Table] = []
    for one in chain.from_iterable(map(found, batches)):
        about, reduced = _reduced(one, reduction)
        said += about
        rows += [reduced] if reduced.num_rows else []
        if len(said) + sum(table.num_rows for table in rows) >= _BATCH_ROWS:
            yield from _batches(said, rows, schema)
            said, rows = [], []
    yield from _batches(said, rows, schema)


def _reduced(one: _Found, reduction: Reduction) -> tuple[list[dict[str, Any]], pa.Table]:
    segment = one.segment
    about = {
        "table": segment.table, "peer": segment.peer, "incarnation": segment.incarnation, "number": segment.number,
        "file": one.path,
    }  # fmt: skip
    try:
        table, size = read_segment(one.source, segment)
    except UnusableSegment as error:
        return [{**about, "kind": BAD, "reason": str(error), "rows": 1}], pa.table({})
    good, bad = judged(table, segment.table)
    said = [{**about, "kind": BAD, "line": row.line, "reason": row.reason, "rows": row.rows} for row in bad]
    times = numbers(good, "time_ns")
    ends = {"first_ns": int(times.min()), "last_ns": int(times.max())} if len(times) else {}
    said.append({**about, "kind": SEGMENT, "bytes": size, "rows": table.num_rows, **ends})
    return said, reduction(good, segment) if good.num_rows else pa.table({})


def _batches(said: list[dict[str, Any]], rows: list[pa.Table], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if said:
        yield pa.RecordBatch.from_pylist(said, schema=schema)
    if rows:
        whole = pa.concat_tables(rows)
        given = {"kind": pa.repeat(pa.scalar(ROW), whole.num_rows)}
        given |= {name: whole[name] for name in whole.column_names}
        columns = [given.get(field.name, pa.nulls(whole.num_rows, field.type)) for field in schema]
        yield from pa.Table.from_arrays(columns, schema=schema).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)


class UnusableSegment(Exception):
    """A segment that cannot be read, with the reason."""


def read_segment(source: Any, segment: Segment) -> tuple[pa.Table, int]:
    """The columns of a segment that this Wend knows, and the bytes of the file."""
    wanted = TABLES.get(segment.table)
    if wanted is None:
        raise UnusableSegment(f"this Wend knows no table {segment.table}")
    if segment.schema > SCHEMA:
        raise UnusableSegment(f"its schema is {segment.schema}, and this Wend reads schemas up to {SCHEMA}")
    try:
        with parquet.ParquetFile(source, memory_map=isinstance(source, str)) as file:
            schema = file.schema_arrow
            _check_columns(file, schema, segment)
            # A segment is small, and a task has one core: threads would only wait for each other.
            table = file.read([name for name, _ in wanted if name in schema.names], use_threads=False)
            size = _size(source)
    except FileNotFoundError:
        raise UnusableSegment("the file is not there any more") from None
    except (pa.ArrowException, OSError) as error:
        first = (str(error).strip().splitlines() or ["it cannot be read"])[0]
        raise UnusableSegment(f"the file is truncated or no Parquet file: {first[:200]}") from None
    return table, size


def _size(source: Any) -> int:
    return os.stat(source).st_size if isinstance(source, str) else int(source.size())


def _check_columns(file: parquet.ParquetFile, schema: pa.Schema, segment: Segment) -> None:
    for name, kind in (*KEY, *TABLES[segment.table]):
        if name not in schema.names:
            if name in LATER.get(segment.table, ()):
                continue
            raise UnusableSegment(f"it has no column {name}")
        if schema.field(name).type != TYPES[kind]:
            raise UnusableSegment(f"its column {name} holds {schema.field(name).type}, not {TYPES[kind]}")
    own = {"peer": segment.peer, "incarnation": segment.incarnation, "segment": segment.number}
    places = {schema.names[at]: at for at in range(len(schema.names))}
    for group in range(file.metadata.num_row_groups):
        for name, value in own.items():
            seen = file.metadata.row_group(group).column(places[name]).statistics
            if seen is not None and seen.has_min_max and {seen.min, seen.max} != {value}:
                raise UnusableSegment(f"its rows are of {name} {seen.min}, and its name says {value}")


LATER: dict[str, tuple[str, ...]] = {
    "links": ("round_trip_ns", "capacity_bps"),
    "changes": ("delay_ns",),
    "hops": ("waited_ns",),
    "interest": ("factor",),
}
"""Columns that came to their tables later. Older segments lack them."""
STATES = ("unknown", "up", "suspected", "down", "one-way", "unlinked")
_NOT_NEGATIVE = {
    "links": ("delay_ns", "sent", "acknowledged", "lost", "queue_ns", "queue_bytes", "period_ns", "neighbour"),
    "changes": ("neighbour",),
    "publications": ("publisher", "sequence", "size_bytes"),
    "hops": ("publisher", "sequence", "sender", "age_ns", "link_ns"),
    "deliveries": ("publisher", "sequence", "age_ns", "size_bytes"),
    "counts": ("count",),
    "heartbeats": ("published", "delivered", "late", "unwritten"),
}


def judged(table: pa.Table, name: str) -> tuple[pa.Table, list[BadRow]]:
    """The rows of a segment that can be true, and the others."""
    if not table.num_rows:
        return table, []
    reasons: list[tuple[Flags, Callable[[int], str]]] = []
    optional = {"filter", "topic"}
    for column, kind in TABLES[name]:
        if column not in table.column_names:
            continue
        values = table[column]
        if values.null_count and column not in optional:
            reasons.append((_flags(compute.is_null(values)), lambda at, column=column: f"{column} is missing"))  # type: ignore[misc]
        if kind == "q" and column in _NOT_NEGATIVE.get(name, ()):
            low = compute.min(values).as_py()
            if low is not None and low < 0:
                flags = _flags(compute.less(values, 0))
                reasons.append(
                    (flags, lambda at, column=column: f"{column} is negative: {table[column][at].as_py()}")  # type: ignore[misc]
                )
    if name in ("links", "changes"):
        strange = compute.invert(compute.is_in(table["state"], value_set=pa.array(STATES)))
        if compute.any(strange).as_py():
            reasons.append((_flags(strange), lambda at: f"there is no state {table['state'][at].as_py()!r}"))
    times = table["time_ns"].to_numpy() if not table["time_ns"].null_count else None
    if times is not None:
        middle = int(np.partition(times, len(times) // 2)[len(times) // 2])
        far = (times < max(_CALENDAR[0], middle - _DAY_NS)) | (times > min(_CALENDAR[1], middle + _DAY_NS))
        if far.any():
            reasons.append((far, lambda at: f"time_ns {times[at]} is a day or more from other rows of its segment"))
        if name == "changes":
            heard = table["heard_ns"].to_numpy()
            late = heard > times
            if late.any():
                reasons.append((late, lambda at: "heard_ns is after time_ns"))
    return _sorted_out(table, reasons)


def _sorted_out(table: pa.Table, reasons: list[tuple[Flags, Callable[[int], str]]]) -> tuple[pa.Table, list[BadRow]]:
    if not reasons:
        return table, []
    bad = np.zeros(table.num_rows, bool)
    found: list[BadRow] = []
    for flags, reason in reasons:
        places = np.flatnonzero(flags & ~bad)
        found += [BadRow(int(at) + 1, reason(int(at))) for at in places[:_MOST_BAD]]
        if len(places) > _MOST_BAD:
            found.append(BadRow(0, f"more rows like the one before: {reason(int(places[0]))}", len(places) - _MOST_BAD))
        bad |= flags
    return table.filter(pa.array(~bad)), found


def _flags(values: Any) -> Flags:
    flags: Flags = compute.fill_null(values, False).to_numpy()
    return flags


def numbers(table: pa.Table, name: str) -> Ints:
    """A column of whole numbers, 0 where a segment is older than the column."""
    if name not in table.column_names:
        return np.zeros(table.num_rows, np.int64)
    found: Ints = table[name].to_numpy()
    return found
