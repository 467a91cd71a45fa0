"""Tables of events and of subscriptions, checked and brought into the one shape that jobs read.

A subscription is `id` and `filter`. An event is `id` and either one column per attribute, or one column `attributes`
that holds a map or a JSON text. A published range is a struct of `low`, `high`, `low_open` and `high_open`; all but one
end may be missing. Null is a missing attribute. JSON lines have the same fields. The jobs always see `id` and
`attributes`, and the type of that column says how to read it, so an attribute's name cannot collide with a column.

A table that does not fit is refused, with the name of the column; a row that cannot be read gets a reason
(`input_tables.py`). Nothing is cast: a date that became a text would compare as a text.
"""

from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wend.matching.batch import Batch
from wend.matching.filters import Filter, parse
from wend.model.errors import ConfigError, FilterError
from wend.model.events import Attributes, Range, Value
from wend.pipeline.storage.input_tables import InputTable, check_column, parquet_table
from wend.pipeline.storage.json_lines import (
    Id,
    decode_line,
    excerpt,
    first_object,
    is_json_lines,
    json_table,
    read_lines,
    validate_id,
)
from wend.pipeline.storage.parquet_tables import NUMBER_TYPES, read_parquet, require_columns

FLOW_COLUMNS = ("publisher", "size_bytes", "weight", "time_ns")
"""Columns that events may have beside `attributes`; `flows_job.py` reads them."""
_RANGE_FIELDS = ("low", "high", "low_open", "high_open")


class EventLine(msgspec.Struct):
    id: Id
    attributes: msgspec.Raw


class SubscriptionLine(msgspec.Struct):
    id: Id
    filter: str


_event_line = msgspec.json.Decoder(EventLine)
_subscription_line = msgspec.json.Decoder(SubscriptionLine)
_flat_line = msgspec.json.Decoder(dict[str, bool | int | float | str | Range | None])
_attributes = msgspec.json.Decoder(dict[str, bool | int | float | str | Range | None])


def read_subscriptions(spark: SparkSession, path: str) -> InputTable:
    """Read subscriptions: `id` and `filter`."""
    if is_json_lines(path):
        lines = read_lines(spark, path)
        text = isinstance(first_object(lines, path, "subscriptions")["id"], str)
        return json_table(path, lines, partial(_subscription_values, text=text), line_fields(text, "filter"))
    frame = read_parquet(spark, path)
    require_columns(frame, path, "id", "filter")
    _check_id(frame, path)
    if frame.schema["filter"].dataType.simpleString() != "string":
        raise ConfigError(f"the column filter of {path} must hold texts")
    return parquet_table(path, frame, ["id", "filter"])


def read_events(spark: SparkSession, path: str) -> InputTable:
    """Read events: `id` and `attributes`."""
    if is_json_lines(path):
        return _read_event_lines(spark, path)
    frame = read_parquet(spark, path)
    require_columns(frame, path, "id")
    _check_id(frame, path)
    if _has_attributes_column(frame):
        _check_packed(frame, path)
        return check_column(parquet_table(path, frame, ["id", "attributes"]), unreadable_reasons)
    fields = [field for field in frame.schema if field.name != "id"]
    if not fields:
        raise ConfigError(f"{path} has no column but id; events need attributes")
    for field in fields:
        _check_type(field.dataType, field.name, path)
    columns = [F.col(f"`{field.name.replace('`', '``')}`").alias(field.name) for field in fields]
    table = parquet_table(path, frame, ["id", F.struct(*columns).alias("attributes")])
    has_ranges = any(field.dataType.typeName() == "struct" for field in fields)
    return check_column(table, unreadable_reasons) if has_ranges else table


def _read_event_lines(spark: SparkSession, path: str) -> InputTable:
    lines = read_lines(spark, path)
    first = first_object(lines, path, "events")
    text, nested = isinstance(first["id"], str), isinstance(first.get("attributes"), dict)
    read = partial(_event_line_values, text=text, nested=nested)
    return json_table(path, lines, read, line_fields(text, "attributes"))


def _has_attributes_column(frame: DataFrame) -> bool:
    """Whether one column has all attributes."""
    kinds = {field.name: field.dataType.typeName() for field in frame.schema}
    return kinds.get("attributes") in ("map", "string")


def _check_packed(frame: DataFrame, path: str) -> None:
    others = [name for name in frame.columns if name not in ("id", "attributes", *FLOW_COLUMNS)]
    if others:
        raise ConfigError(
            f"{path} has a column {others[0]} beside attributes: give attributes in one column, or each in its own"
        )
    kind: Any = frame.schema["attributes"].dataType
    if kind.typeName() == "map" and kind.keyType.simpleString() == "string":
        kind = kind.valueType
    _check_type(kind, "attributes", path)


def _check_id(frame: DataFrame, path: str) -> None:
    kind = frame.schema["id"].dataType.simpleString()
    if kind not in ("tinyint", "smallint", "int", "bigint", "string"):
        raise ConfigError(f"the column id of {path} holds {kind}; ids are integers or texts")


_SCALARS = {*NUMBER_TYPES, "string", "boolean", "void"}


def _check_type(kind: Any, name: str, path: str) -> None:
    """Refuse a column whose type holds no attribute. A struct is a range."""
    if kind.simpleString() in _SCALARS:
        return
    if kind.typeName() != "struct":
        raise ConfigError(
            f"the column {name} of {path} holds {kind.simpleString()}; "
            "attributes are truth values, numbers, texts and ranges"
        )
    if not _is_range(kind):
        raise ConfigError(
            f"the column {name} of {path} is no range: a range has low and high, both numbers or both texts, "
            "and may have low_open and high_open"
        )


def _is_range(struct: Any) -> bool:
    ends = {field.name: field.dataType.simpleString() for field in struct}
    values = {ends[end] for end in ("low", "high") if end in ends}
    flags = {ends[end] for end in ("low_open", "high_open") if end in ends}
    of_one_kind = bool(values) and (values <= NUMBER_TYPES or values == {"string"})
    return of_one_kind and set(ends) <= set(_RANGE_FIELDS) and flags <= {"boolean"}


def line_fields(text: bool, column: str) -> list[pa.Field]:
    return [pa.field("id", pa.string() if text else pa.int64()), pa.field(column, pa.string())]


def _subscription_values(line: str, text: bool) -> tuple[Id, str]:
    row = decode_line(_subscription_line, line)
    return validate_id(row.id, text), row.filter


def _event_line_values(line: str, text: bool, nested: bool) -> tuple[Id, str]:
    if nested:
        row = decode_line(_event_line, line)
        carried = bytes(row.attributes).decode()
        decode_line(_attributes, carried)
        return validate_id(row.id, text), carried
    flat = decode_line(_flat_line, line)
    one = flat.pop("id", None)
    return validate_id(one, text), msgspec.json.encode(flat).decode()


def parse_filters(ids: pa.Array, texts: pa.Array) -> tuple[list[int], list[Filter], dict[int, str]]:
    """Parse filters: the rows of those that can be read, the filters, and the reasons of the others by row."""
    rows, filters, reasons = [], [], {}
    for row, (one, text) in enumerate(zip(ids, texts.to_pylist(), strict=True)):
        if text is None:
            reasons[row] = f"subscription {one.as_py()!r} has no filter"
            continue
        try:
            filters.append(parse(text))
            rows.append(row)
        except FilterError as error:
            reason = str(error).splitlines()[0]
            reasons[row] = f"the filter of subscription {one.as_py()!r}, {excerpt(text)}: {reason}"
    return rows, filters, reasons


def unreadable_reasons(attributes: pa.Array) -> list[str | None]:
    """Why the attributes of each event cannot be read; None if they can."""
    if _unreadable_reason(attributes) is None:
        return [None] * len(attributes)
    return [_unreadable_reason(attributes.slice(row, 1)) for row in range(len(attributes))]


def _unreadable_reason(attributes: pa.Array) -> str | None:
    try:
        attribute_batch(attributes)
    except ConfigError as error:
        return str(error)
    return None


def attribute_batch(attributes: pa.Array) -> Batch:
    """Convert the column `attributes` for the index."""
    if kinds.is_struct(attributes.type):
        names = [field.name for field in attributes.type]
        return Batch.of_columns(
            len(attributes), {n: _column_values(n, c) for n, c in zip(names, attributes.flatten(), strict=True)}
        )
    return Batch.of([_event_attributes(value) for value in attributes.to_pylist()])


def _event_attributes(value: Any) -> Attributes:
    if value is None:
        raise ConfigError(
            "an event has null for attributes: use an empty map or object for an event without attributes"
        )
    if isinstance(value, str):
        try:
            attributes = _attributes.decode(value)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"cannot read the attributes {excerpt(value)} of an event: {error}") from None
    else:
        attributes = {name: _make_range(name, one) if isinstance(one, dict) else one for name, one in value}
    return {name: one for name, one in attributes.items() if one is not None}


def _column_values(name: str, column: pa.Array) -> np.ndarray[Any, Any] | list[Value | None]:
    if kinds.is_struct(column.type):
        return [None if value is None else _make_range(name, value) for value in column.to_pylist()]
    if column.null_count or not (kinds.is_integer(column.type) or kinds.is_floating(column.type)):
        return list(column.to_pylist())
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _make_range(name: str, value: dict[str, Any]) -> Value:
    """Convert a struct to a range; a range from a value to itself is that value."""
    low, high = value.get("low"), value.get("high")
    low_open, high_open = bool(value.get("low_open")), bool(value.get("high_open"))
    if low is not None and low == high and not low_open and not high_open:
        scalar: Value = low
        return scalar
    try:
        return Range(low, high, low_open, high_open)
    except ValueError as error:
        raise ConfigError(f"the attribute {name} of an event: {error}") from None
