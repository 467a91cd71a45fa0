"""Filters of Spark in Wend's language, so that peers send only what may match.

Spark evaluates each filter again, so a pushed filter may let more events pass, but never fewer. So some stay with
Spark: those of columns of type `float`, of numbers beyond 2^53 in `double` (which rounds integers), and of nulls.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from pyspark.sql import datasource as spark

from wend.drivers.live.log_frames import LogPlace
from wend.matching.filters import parse
from wend.matching.printer import MAX_SET, name_text, value_text
from wend.model.errors import FilterError
from wend.model.units import Nanos
from wend.pipeline.log_source.event_columns import COLUMNS

_SIGNS: Final = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}
_EXACT_DOUBLES: Final = 2.0**53


class PushedFilters:
    """The filters of a query, as far as a peer applies them: a filter of Wend, and bounds in the log."""

    def __init__(self, filter: str, kinds: Mapping[str, str]) -> None:
        """`kinds`: the types of all columns."""
        self.filter = filter
        self.bounds = RowBounds()
        self._kinds = kinds

    def push(self, filters: Iterable[spark.Filter]) -> None:
        """Push what can be pushed."""
        for each in filters:
            if not self.bounds.narrow(each, self._kinds):
                self._add(predicate(each, self._kinds))

    def _add(self, text: str | None) -> None:
        """Add a predicate, unless the filter becomes larger than a filter may be."""
        if text is None:
            return
        longer = text if self.filter == "true" else f"({self.filter}) and {text}"
        try:
            parse(longer)
        except FilterError:
            return
        self.filter = longer


class RowBounds:
    """The places between which all rows lie."""

    def __init__(self) -> None:
        self.low_position = 0
        self.high_position: int | None = None
        """Rows are below it."""
        self.low_ns: Nanos | None = None
        self.high_ns: Nanos | None = None
        """Rows are before it."""

    def narrow(self, filter: spark.Filter, kinds: Mapping[str, str]) -> bool:
        """Take a filter of the position or the time into account. Returns whether it is one."""
        name, value = _single_column(filter), getattr(filter, "value", None)
        if name not in ("position", "time") or name not in kinds:
            return False
        if name == "position" and isinstance(value, int) and 0 <= value < 2**62:
            low, high = _ends(filter, value, 1)
            self.low_position = max(self.low_position, low or 0)
            self.high_position = _lower(self.high_position, high)
        elif name == "time" and isinstance(value, datetime) and value.tzinfo is not None:
            low, high = _ends(filter, round(value.timestamp() * 1_000_000) * 1000, 1000)
            self.low_ns = max((each for each in (self.low_ns, low) if each is not None), default=None)
            self.high_ns = _lower(self.high_ns, high)
        return True

    def times(self) -> tuple[LogPlace | None, LogPlace | None]:
        """The bounds by time as places in the log."""
        low, high = (None if each is None else max(0, each) for each in (self.low_ns, self.high_ns))
        return (
            None if low is None else LogPlace("time", low),
            None if high is None else LogPlace("time", high),
        )


def _ends(filter: spark.Filter, value: int, unit: int) -> tuple[int | None, int | None]:
    """The lowest value that passes a filter, and the lowest one above those that pass. Values are multiples of a
    unit, to which the column rounds down."""
    match filter:
        case spark.EqualTo() | spark.EqualNullSafe():
            return value, value + unit
        case spark.GreaterThan():
            return value + unit, None
        case spark.GreaterThanOrEqual():
            return value, None
        case spark.LessThan():
            return None, value
        case spark.LessThanOrEqual():
            return None, value + unit
    return None, None


def _lower(one: int | None, other: int | None) -> int | None:
    """The lower of two bounds, of which None bounds nothing."""
    return min((each for each in (one, other) if each is not None), default=None)


def _single_column(filter: spark.Filter) -> str | None:
    path: tuple[str, ...] = getattr(filter, "attribute", ())
    return path[0] if len(path) == 1 else None


def predicate(filter: spark.Filter, kinds: Mapping[str, str]) -> str | None:
    """A filter of attributes in Wend's language; None if it cannot be pushed."""
    if isinstance(filter, spark.Not):
        inner = filter.child
        is_simple = isinstance(inner, spark.EqualTo | spark.In)
        text = predicate(inner, kinds) if is_simple else None
        return None if text is None else f"not ({text})"
    name = _single_column(filter)
    if name is None or name in COLUMNS or name not in kinds:
        return None
    kind, quoted = kinds[name], name_text(name)
    match filter:
        case spark.IsNotNull():
            return f"{quoted} exists"
        case spark.StringStartsWith(_, start) if kind == "string" and start:
            return f"{quoted} prefix {value_text(start)}"
        case spark.In(_, values):
            return _one_of(quoted, kind, values)
    sign = _SIGNS.get(type(filter))
    value: Any = getattr(filter, "value", None)
    if sign is None or not _is_exact(kind, value):
        return None
    if isinstance(value, bool) and sign != "=":
        return None
    return f"{quoted} {sign} {value_text(value)}"


def _one_of(name: str, kind: str, values: tuple[Any, ...]) -> str | None:
    given = [value for value in values if value is not None]
    if len(given) < len(values) or not 0 < len(given) <= MAX_SET or not all(_is_exact(kind, each) for each in given):
        return None
    return f"{name} in {{{', '.join(map(value_text, given))}}}"


def _is_exact(kind: str, value: Any) -> bool:
    """Whether a column of this type has this value if, and only if, the attribute has it."""
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "float":
            return False
        case "double":
            return isinstance(value, float) and math.isfinite(value) and abs(value) < _EXACT_DOUBLES
    return isinstance(value, int) and not isinstance(value, bool)
