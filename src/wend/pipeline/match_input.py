"""Read tables of events and of subscriptions: check what users bring, and give the jobs one shape.

A subscription is `id` and `filter`. An event is `id` and either one column per attribute, or one column `attributes`
that holds a map or a JSON text. A published range is a struct of `low`, `high`, `low_open` and `high_open`; all but one
end may be missing. Null is a missing attribute. JSON lines have the same fields. The jobs always see `id` and
`attributes`, and the type of that column says how to read it, so an attribute's name cannot collide with a column.

A table that does not fit is refused, with the name of the column. Nothing is cast: a date that became a text would
compare as a text.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from wend.matching.batch import Batch
from wend.matching.filters import Filter, parse
from wend.model.errors import ConfigError, FilterError
from wend.model.events import Attributes, Range, Value
from wend.pipeline.parquet_tables import parquet_of
from wend.pipeline.storage import literal_path, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINES = (".jsonl", ".ndjson", ".json")
BESIDE = ("publisher", "size_bytes", "weight", "time_ns")
"""Columns that events may have beside `attributes`; `flows.py` reads them."""
_ENDS = ("low", "high", "low_open", "high_open")
_SHOWN = 80

Id = int | str


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


def read_subscriptions(spark: "SparkSession", path: str) -> "DataFrame":
    """Read subscriptions: `id` and `filter`."""
    if is_lines(path):
        return _from_lines(spark, path, "subscriptions", _subscription_lines, "filter")
    frame = parquet_of(spark, path)
    need(frame, path, "id", "filter")
    _check_id(frame, path)
    if frame.schema["filter"].dataType.simpleString() != "string":
        raise ConfigError(f"the column filter of {path} must hold texts")
    return frame.select("id", "filter")


def read_events(spark: "SparkSession", path: str) -> "DataFrame":
    """Read events: `id` and `attributes`."""
    from pyspark.sql import functions as F

    if is_lines(path):
        return _from_lines(spark, path, "events", _event_lines, "attributes")
    frame = parquet_of(spark, path)
    need(frame, path, "id")
    _check_id(frame, path)
    packed = [field for field in frame.schema if field.name == "attributes"]
    whole = bool(packed) and packed[0].dataType.typeName() in ("map", "string")
    others = [f for f in frame.schema if f.name != "id" and not (whole and f.name in BESIDE)]
    if not others:
        raise ConfigError(f"{path} has no column but id; events need attributes")
    if whole and len(others) > 1:
        beside = next(field.name for field in others if field.name != "attributes")
        raise ConfigError(
            f"{path} has a column {beside} beside attributes: give attributes in one column, or each in its own"
        )
    for field in others:
        _check_type(field.dataType, field.name, path, packed=bool(packed))
    if whole:
        return frame.select("id", "attributes")
    columns = [F.col(f"`{field.name.replace('`', '``')}`").alias(field.name) for field in others]
    return frame.select("id", F.struct(*columns).alias("attributes"))


def is_lines(path: str) -> bool:
    """Whether the path holds JSON lines and not Parquet, by the name of the file, or of the files in the folder."""
    place = local_path(path)
    if place is None:
        return path.rstrip("/").endswith(LINES)
    if not place.exists():
        raise ConfigError(f"there is no {path}")
    if place.is_file():
        if place.suffix not in (".parquet", *LINES):
            raise ConfigError(f"{path} is neither Parquet (.parquet) nor JSON lines ({', '.join(LINES)})")
        return place.suffix in LINES
    endings = {file.suffix for file in place.rglob("*") if file.is_file() and not file.name.startswith((".", "_"))}
    found = sorted(endings & {".parquet", *LINES})
    if len(found) != 1:
        held = "both Parquet and JSON lines" if found else "neither Parquet nor JSON lines"
        raise ConfigError(f"the folder {path} holds {held}")
    return found[0] in LINES


def need(frame: "DataFrame", path: str, *names: str) -> None:
    for name in names:
        if name not in frame.columns:
            raise ConfigError(f"{path} has no column {name}; it has {', '.join(frame.columns)}")


def _check_id(frame: "DataFrame", path: str) -> None:
    if frame.schema["id"].dataType.simpleString() not in ("tinyint", "smallint", "int", "bigint", "string"):
        found = frame.schema["id"].dataType.simpleString()
        raise ConfigError(f"the column id of {path} holds {found}; ids are integers or texts")


NUMBERS = {"tinyint", "smallint", "int", "bigint", "float", "double"}
_SCALARS = {*NUMBERS, "string", "boolean", "void"}


def _check_type(kind: Any, name: str, path: str, packed: bool) -> None:
    """Refuse a column whose type holds no attribute. A struct is a range; a map must have the name `attributes`."""
    if kind.simpleString() in _SCALARS:
        return
    if kind.typeName() == "struct":
        ends = {field.name: field.dataType.simpleString() for field in kind}
        values = {ends[end] for end in ("low", "high") if end in ends}
        flags = {ends[end] for end in ("low_open", "high_open") if end in ends}
        of_one_kind = bool(values) and (values <= NUMBERS or values == {"string"})
        if of_one_kind and set(ends) <= set(_ENDS) and flags <= {"boolean"}:
            return
        raise ConfigError(
            f"the column {name} of {path} is no range: a range has low and high, both numbers or both texts, "
            "and may have low_open and high_open"
        )
    if packed and name == "attributes" and kind.typeName() == "map" and kind.keyType.simpleString() == "string":
        return _check_type(kind.valueType, name, path, packed=False)
    raise ConfigError(
        f"the column {name} of {path} holds {kind.simpleString()}; "
        "attributes are truth values, numbers, texts and ranges"
    )


def _from_lines(spark: "SparkSession", path: str, what: str, read: Any, column: str) -> "DataFrame":
    """Read JSON lines. The first line decides the type of ids, and whether attributes are in an object of their own."""
    lines = lines_of(spark, path)
    seen = first_line(lines, path, what)
    kind = "string" if isinstance(seen["id"], str) else "bigint"
    nested = isinstance(seen.get("attributes"), dict)
    return lines.mapInArrow(
        partial(read, path=path, text=kind == "string", nested=nested), f"id {kind}, {column} string"
    )


def lines_of(spark: "SparkSession", path: str) -> "DataFrame":
    lines = spark.read.text(literal_path(path), wholetext=False)
    return lines.where("trim(value) != ''")


def first_line(lines: "DataFrame", path: str, what: str) -> dict[str, Any]:
    first = lines.limit(1).toArrow().column(0).to_pylist()
    if not first:
        raise ConfigError(f"{path} has no {what}")
    try:
        seen: dict[str, Any] = msgspec.json.decode(first[0], type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path}: {shown(first[0])} is not a JSON object: {error}") from None
    if isinstance(seen.get("id"), bool) or not isinstance(seen.get("id"), int | str):
        raise ConfigError(f"{path}: {shown(first[0])} has no id; an id is an integer or a text")
    return seen


def _subscription_lines(
    batches: Iterator[pa.RecordBatch], path: str, text: bool, nested: bool
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [decoded(_subscription_line, line, path) for line in batch.column(0).to_pylist()]
        found = id_column([row.id for row in rows], text, path)
        yield pa.RecordBatch.from_arrays([found, pa.array([row.filter for row in rows], pa.string())], ["id", "filter"])


def _event_lines(batches: Iterator[pa.RecordBatch], path: str, text: bool, nested: bool) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        lines = batch.column(0).to_pylist()
        if nested:
            rows = [decoded(_event_line, line, path) for line in lines]
            found = [row.id for row in rows]
            carried = [bytes(row.attributes).decode() for row in rows]
        else:
            flat = [decoded(_flat_line, line, path) for line in lines]
            found = [row.pop("id", None) for row in flat]
            carried = [msgspec.json.encode(row).decode() for row in flat]
        yield pa.RecordBatch.from_arrays(
            [id_column(found, text, path), pa.array(carried, pa.string())], ["id", "attributes"]
        )


def decoded(decoder: Any, line: str, path: str) -> Any:
    try:
        return decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path}: {shown(line)}: {error}") from None


def id_column(found: list[Any], text: bool, path: str) -> pa.Array:
    for one in found:
        if isinstance(one, bool) or not isinstance(one, str if text else int):
            kind = "a text" if text else "an integer"
            raise ConfigError(f"{path}: the first id is {kind}, but {one!r} is not")
    try:
        return pa.array(found, pa.string() if text else pa.int64())
    except OverflowError:
        raise ConfigError(f"{path}: the id {max(found, key=abs)} has more than 64 bits") from None


def shown(line: str) -> str:
    return repr(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…")


def parsed(ids: pa.Array, texts: pa.Array) -> list[Filter]:
    """Parse filters. The error for a bad filter is one line with the id of its subscription."""
    found = []
    for one, text in zip(ids, texts.to_pylist(), strict=True):
        if text is None:
            raise ConfigError(f"subscription {one.as_py()!r} has no filter")
        try:
            found.append(parse(text))
        except FilterError as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"the filter of subscription {one.as_py()!r}, {shown(text)}: {reason}") from None
    return found


def batch_of(attributes: pa.Array) -> Batch:
    """Convert the column `attributes` for the index."""
    if kinds.is_struct(attributes.type):
        names = [field.name for field in attributes.type]
        return Batch.of_columns(
            len(attributes), {n: _column(n, c) for n, c in zip(names, attributes.flatten(), strict=True)}
        )
    return Batch.of([_event(value) for value in attributes.to_pylist()])


def _event(value: Any) -> Attributes:
    if value is None:
        raise ConfigError(
            "an event has null for attributes: use an empty map or object for an event without attributes"
        )
    if isinstance(value, str):
        try:
            found = _attributes.decode(value)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"cannot read the attributes {shown(value)} of an event: {error}") from None
    else:
        found = {name: _range(name, one) if isinstance(one, dict) else one for name, one in value}
    return {name: one for name, one in found.items() if one is not None}


def _column(name: str, column: pa.Array) -> np.ndarray[Any, Any] | list[Value | None]:
    if kinds.is_struct(column.type):
        return _ranges(name, column)
    if column.null_count or not (kinds.is_integer(column.type) or kinds.is_floating(column.type)):
        found: list[Value | None] = column.to_pylist()
        return found
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _ranges(name: str, column: pa.Array) -> list[Value | None]:
    return [None if value is None else _range(name, value) for value in column.to_pylist()]


def _range(name: str, value: dict[str, Any]) -> Value:
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
