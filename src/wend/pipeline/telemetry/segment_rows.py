"""The rows of a segment of telemetry, without impossible ones.

The quarantine lists each unreadable segment and each impossible row with a reason.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, parquet

from wend.model.telemetry import KEY, SCHEMA, TABLES, Segment
from wend.model.units import SECOND

TYPES = {"q": pa.int64(), "d": pa.float64(), "s": pa.string()}
_MAX_BAD = 100
"""Bad rows of one segment that the quarantine lists one by one."""
_DAY_NS = 86_400 * SECOND
_TIME_RANGE = (0, 2**62)

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Reason = tuple[Flags, Callable[[int], str]]
"""Which rows are bad, and the sentence about the row at a position."""


class BadRow(NamedTuple):
    """A row that cannot be used. `line` counts from 1; it is 0 for rows that are only counted."""

    line: int
    reason: str
    rows: int = 1


class UnusableSegment(Exception):
    """A segment that cannot be read, with the reason."""


def read_segment(source: Any, segment: Segment) -> tuple[pa.Table, int]:
    """The columns of a segment that this Wend knows, and the bytes of the file."""
    columns = TABLES.get(segment.table)
    if columns is None:
        raise UnusableSegment(f"this Wend knows no table {segment.table}")
    if segment.schema > SCHEMA:
        raise UnusableSegment(f"its schema is {segment.schema}, and this Wend reads schemas up to {SCHEMA}")
    try:
        with parquet.ParquetFile(source, memory_map=isinstance(source, str)) as file:
            schema = file.schema_arrow
            _check_columns(file, schema, segment)
            # A segment is small, and a task has one core: threads would only wait for each other.
            table = file.read([name for name, _ in columns if name in schema.names], use_threads=False)
            size = os.stat(source).st_size if isinstance(source, str) else int(source.size())
    except FileNotFoundError:
        raise UnusableSegment("the file no longer exists") from None
    except (pa.ArrowException, OSError) as error:
        first = (str(error).strip().splitlines() or ["it cannot be read"])[0]
        raise UnusableSegment(f"the file is truncated or no Parquet file: {first[:200]}") from None
    return table, size


def _check_columns(file: parquet.ParquetFile, schema: pa.Schema, segment: Segment) -> None:
    for name, kind in (*KEY, *TABLES[segment.table]):
        if name not in schema.names:
            if name in ADDED_COLUMNS.get(segment.table, ()):
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


ADDED_COLUMNS: dict[str, tuple[str, ...]] = {
    "links": ("round_trip_ns", "capacity_bps"),
    "changes": ("delay_ns",),
    "hops": ("waited_ns",),
    "interest": ("factor",),
}
"""Columns that older segments lack."""
STATES = ("unknown", "up", "suspected", "down", "one-way", "unlinked")
_OPTIONAL = {"filter", "topic"}
_NOT_NEGATIVE = {
    "links": ("delay_ns", "sent", "acknowledged", "lost", "queue_ns", "queue_bytes", "period_ns", "neighbour"),
    "changes": ("neighbour",),
    "publications": ("publisher", "sequence", "size_bytes"),
    "hops": ("publisher", "sequence", "sender", "age_ns", "link_ns"),
    "deliveries": ("publisher", "sequence", "age_ns", "size_bytes"),
    "counts": ("count",),
    "heartbeats": ("published", "delivered", "late", "unwritten"),
}


def judge_rows(table: pa.Table, name: str) -> tuple[pa.Table, list[BadRow]]:
    """Split the rows of a segment into possible and impossible ones."""
    if not table.num_rows:
        return table, []
    reasons = [*_find_bad_values(table, name)]
    if name in ("links", "changes"):
        reasons += _find_bad_states(table)
    if not table["time_ns"].null_count:
        reasons += _find_bad_times(table, name)
    return _split_rows(table, reasons) if reasons else (table, [])


def _find_bad_values(table: pa.Table, name: str) -> Iterator[Reason]:
    """Missing and negative values."""
    for column, kind in TABLES[name]:
        if column not in table.column_names:
            continue
        values = table[column]
        if values.null_count and column not in _OPTIONAL:
            yield _to_flags(compute.is_null(values)), lambda at, column=column: f"{column} is missing"  # type: ignore[misc]
        if kind == "q" and column in _NOT_NEGATIVE.get(name, ()) and (compute.min(values).as_py() or 0) < 0:
            yield (
                _to_flags(compute.less(values, 0)),
                lambda at, column=column: f"{column} is negative: {table[column][at].as_py()}",  # type: ignore[misc]
            )


def _find_bad_states(table: pa.Table) -> Iterator[Reason]:
    strange = compute.invert(compute.is_in(table["state"], value_set=pa.array(STATES)))
    if compute.any(strange).as_py():
        yield _to_flags(strange), lambda at: f"there is no state {table['state'][at].as_py()!r}"


def _find_bad_times(table: pa.Table, name: str) -> Iterator[Reason]:
    times = table["time_ns"].to_numpy()
    middle = int(np.partition(times, len(times) // 2)[len(times) // 2])
    far = (times < max(_TIME_RANGE[0], middle - _DAY_NS)) | (times > min(_TIME_RANGE[1], middle + _DAY_NS))
    if far.any():
        yield far, lambda at: f"time_ns {times[at]} is a day or more from other rows of its segment"
    if name == "changes" and (late := table["heard_ns"].to_numpy() > times).any():
        yield late, lambda at: "heard_ns is after time_ns"


def _split_rows(table: pa.Table, reasons: list[Reason]) -> tuple[pa.Table, list[BadRow]]:
    bad = np.zeros(table.num_rows, bool)
    bad_rows: list[BadRow] = []
    for flags, reason in reasons:
        places = np.flatnonzero(flags & ~bad)
        bad_rows += [BadRow(int(at) + 1, reason(int(at))) for at in places[:_MAX_BAD]]
        if len(places) > _MAX_BAD:
            bad_rows.append(
                BadRow(0, f"more rows like the one before: {reason(int(places[0]))}", len(places) - _MAX_BAD)
            )
        bad |= flags
    return table.filter(pa.array(~bad)), bad_rows


def _to_flags(values: Any) -> Flags:
    flags: Flags = compute.fill_null(values, False).to_numpy()
    return flags


def node_columns(segment: Segment, rows: int) -> dict[str, pa.Array]:
    """The columns `peer` and `incarnation` of the rows of a segment."""
    node = {"peer": segment.peer, "incarnation": segment.incarnation}
    return {name: pa.repeat(pa.scalar(value, pa.int64()), rows) for name, value in node.items()}


def int_column(table: pa.Table, name: str) -> Ints:
    """A column of whole numbers, 0 if the segment is older than the column."""
    if name not in table.column_names:
        return np.zeros(table.num_rows, np.int64)
    values: Ints = table[name].to_numpy()
    return values
