"""Events as columns: the schema that a reader gets or names, and how events fill it.

Columns with the names of `COLUMNS` tell of the event; any other column is an attribute. It has a value if the attribute
is of its kind: texts for `string`, truth values for `boolean`, numbers for the others. All else is null, so a filter of
Wend that selects a value of a column never misses a row of this value.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from wend.model.errors import ConfigError
from wend.model.events import Attributes, Range, Value
from wend.model.units import SECOND, Nanos

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from wend.drivers.live.log_frames import LoggedEvent

COLUMNS: Final = {
    "position": "bigint",
    "time": "timestamp",
    "id": "string",
    "age": "double",
    "late": "boolean",
    "attributes": "map<string,string>",
    "payload": "binary",
    "headers": "map<string,string>",
}
"""What an event has besides its attributes, with the types of Spark. `time` is when the log got the event, and `age`
its age at that time, in seconds. `late` is null without a deadline."""
DEFAULT_SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
BATCH_BYTES: Final = 16 * 1024 * 1024
"""Payloads of one batch."""
_WHOLE: Final = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_KINDS: Final = ("string", "boolean", "float", "double", *_WHOLE)


def check_schema(schema: "StructType") -> None:
    """Raise `ConfigError` for columns that an event cannot fill."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name in COLUMNS:
            if kind != COLUMNS[field.name]:
                raise ConfigError(f"column {field.name} of a log is {COLUMNS[field.name]}, got {kind}")
        elif kind not in _KINDS:
            raise ConfigError(f"column {field.name} is {kind}, but an attribute is one of {', '.join(_KINDS)}")


class EventTable:
    """Makes Arrow batches of events."""

    def __init__(self, schema: "StructType", deadline_ns: Nanos | None) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._deadline_ns = deadline_ns
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        self._convert = {name: _converter(kind) for name, kind in kinds.items() if name not in COLUMNS}

    def batches(self, records: "Sequence[LoggedEvent]") -> Iterator[Any]:
        """Record batches with these events, of bounded size."""
        begin = size = 0
        for place, record in enumerate(records):
            if size + len(record.event.payload) > BATCH_BYTES and place > begin:
                yield self._batch(records[begin:place])
                begin, size = place, 0
            size += len(record.event.payload)
        if begin < len(records):
            yield self._batch(records[begin:] if begin else records)

    def _batch(self, records: "Sequence[LoggedEvent]") -> Any:
        import pyarrow as pa

        columns = [self._column(field.name, field.type, records) for field in self._schema]
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(records), pa.struct([])))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, name: str, kind: Any, records: "Sequence[LoggedEvent]") -> Any:
        import pyarrow as pa

        match name:
            case "position":
                return pa.array([record.position for record in records], kind)
            case "time":
                return pa.array([record.time_ns // 1000 for record in records], pa.int64()).cast(kind)
            case "id":
                return pa.array([str(record.event.origin or record.event.id) for record in records], kind)
            case "age":
                return pa.array([record.age_ns / SECOND for record in records], kind)
            case "late":
                deadline_ns = self._deadline_ns
                if deadline_ns is None:
                    return pa.nulls(len(records), kind)
                return pa.array([record.age_ns > deadline_ns for record in records], kind)
            case "payload":
                return pa.array([record.event.payload for record in records], kind)
            case "headers":
                return _text_maps([record.event.headers for record in records], kind)
            case "attributes":
                return _text_maps([record.event.attributes for record in records], kind)
        convert = self._convert[name]
        return pa.array([convert(record.event.attributes, name) for record in records], kind)


def _text_maps(maps: Sequence[dict[str, Any]], kind: Any) -> Any:
    """A column of maps from text to text."""
    import pyarrow as pa

    offsets = [0]
    names: list[str] = []
    texts: list[str] = []
    for each in maps:
        names += each
        texts += [value if type(value) is str else value_text(value) for value in each.values()]
        offsets.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(names, kind.key_type), pa.array(texts, kind.item_type), type=kind
    )


def value_text(value: Value) -> str:
    """An attribute's value as a text: true, 5, 0.5, [1, 9]."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | Range) else repr(value)


def _converter(kind: str) -> Callable[[Attributes, str], Any]:
    """How a column of this type gets its value."""
    if kind == "string":
        return _text
    if kind == "boolean":
        return _truth
    return _number if kind in ("float", "double") else _whole(1 << _WHOLE[kind])


def _text(attributes: Attributes, name: str) -> str | None:
    value = attributes.get(name)
    return value if isinstance(value, str) else None


def _truth(attributes: Attributes, name: str) -> bool | None:
    value = attributes.get(name)
    return value if isinstance(value, bool) else None


def _number(attributes: Attributes, name: str) -> float | None:
    value = attributes.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    return float(value)


def _whole(limit: int) -> Callable[[Attributes, str], int | None]:
    def convert(attributes: Attributes, name: str) -> int | None:
        value = attributes.get(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return value if is_whole and -limit <= value < limit else None  # type: ignore[operator,return-value]

    return convert
