"""Filters of Spark that a peer applies: they let every row pass that Spark lets pass."""

import math
import operator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as spark
from pyspark.sql.types import BooleanType, DoubleType, FloatType, LongType, ShortType, StringType, StructType

from wend.drivers.live.log_frames import LoggedEvent
from wend.matching.filters import parse
from wend.model.events import Event, EventId, Range, Value
from wend.pipeline.log_source.event_columns import EventTable
from wend.pipeline.log_source.pushdown import PushedFilters, predicate

TYPES = {
    "double": DoubleType(),
    "float": FloatType(),
    "bigint": LongType(),
    "smallint": ShortType(),
    "string": StringType(),
    "boolean": BooleanType(),
}
NUMBERS = st.sampled_from(
    [
        0,
        1,
        -1,
        5,
        2**15,
        2**53,
        2**53 + 1,
        2**53 - 1,
        2**63 - 1,
        2**64 - 1,
        0.0,
        -0.0,
        5.5,
        1e16,
        0.1,
        9007199254740992.0,
    ]
) | st.sampled_from([math.inf, -math.inf, math.nan])
TEXTS = st.sampled_from(["", "a", "ab", "b", "5", "true", "é", "\U0001f600", "it's", "\\", "\0"])
VALUES = NUMBERS | TEXTS | st.booleans() | st.builds(Range, st.just(1), st.just(9))
COMPARISONS: dict[type[spark.Filter], Any] = {
    spark.EqualTo: operator.eq,
    spark.EqualNullSafe: operator.eq,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
}
LITERALS = {
    "double": NUMBERS.map(float),
    "float": NUMBERS.map(float),
    "bigint": st.sampled_from([0, 1, 5, 2**53 + 1, 2**63 - 1, -1]),
    "smallint": st.sampled_from([0, 1, 5, 2**15 - 1, -1]),
    "string": TEXTS,
    "boolean": st.booleans(),
}


def column_value(value: Value, kind: str) -> Any:
    """What the row of an event has in a column of this type."""
    event = Event(EventId(1, 1, 1), {"x": value})
    (batch,) = EventTable(StructType().add("x", TYPES[kind]), None).batches([LoggedEvent(1, 0, 0, event)])
    return batch.column(0).to_pylist()[0]


@st.composite
def filters(draw: Any, kind: str) -> spark.Filter:
    """A filter of column x, as Spark pushes it."""
    literal, path = LITERALS[kind], ("x",)
    which = draw(st.sampled_from([*COMPARISONS, spark.In, spark.IsNull, spark.IsNotNull, spark.StringStartsWith]))
    if which in (spark.IsNull, spark.IsNotNull):
        made = which(path)
    elif which is spark.In:
        made = spark.In(path, tuple(draw(st.lists(literal, min_size=1, max_size=3))))
    elif which is spark.StringStartsWith:
        made = spark.StringStartsWith(path, draw(TEXTS))
    else:
        made = which(path, draw(literal))
    return spark.Not(made) if draw(st.booleans()) else made


def passes(filter: spark.Filter, value: Any) -> bool | None:
    """What Spark makes of a filter; None as SQL's null."""
    match filter:
        case spark.Not(child):
            inner = passes(child, value)
            return None if inner is None else not inner
        case spark.IsNull():
            return value is None
        case spark.IsNotNull():
            return value is not None
        case spark.EqualNullSafe():
            return value is not None and value == filter.value
    if value is None:
        return None
    match filter:
        case spark.In(_, values):
            return value in values
        case spark.StringStartsWith(_, start):
            return isinstance(value, str) and value.startswith(start)
    if isinstance(value, float) and math.isnan(filter.value):  # type: ignore[attr-defined]
        return isinstance(filter, spark.LessThan | spark.LessThanOrEqual)  # Spark sorts it last
    return bool(COMPARISONS[type(filter)](value, filter.value))  # type: ignore[attr-defined]


@given(kind=st.sampled_from(sorted(TYPES)), value=VALUES, data=st.data())
def test_a_peer_never_drops_a_row_that_spark_wants(kind: str, value: Value, data: st.DataObject) -> None:
    filter = data.draw(filters(kind))
    text = predicate(filter, {"x": kind})
    if text is not None and passes(filter, column_value(value, kind)):
        assert parse(text).matches({"x": value}), (text, filter)


@pytest.mark.parametrize(
    ("kind", "filter", "expected"),
    [
        ("bigint", spark.EqualTo(("x",), 7), "x = 7"),
        ("string", spark.Not(spark.EqualTo(("x",), "it's")), "not (x = 'it\\'s')"),
        ("double", spark.GreaterThan(("x",), 0.5), "x > 0.5"),
        ("double", spark.GreaterThan(("x",), 1e300), None),
        ("float", spark.GreaterThan(("x",), 0.5), None),
        ("boolean", spark.EqualTo(("x",), True), "x = true"),
        ("string", spark.In(("x",), ("a", "b")), "x in {'a', 'b'}"),
        ("string", spark.In(("x",), ("a", None)), None),
        ("string", spark.StringStartsWith(("x",), "a"), "x prefix 'a'"),
        ("string", spark.StringEndsWith(("x",), "a"), None),
        ("string", spark.IsNull(("x",)), None),
        ("string", spark.EqualTo(("y",), "a"), None),
        ("string", spark.EqualTo(("x", "y"), "a"), None),
    ],
)
def test_what_is_pushed(kind: str, filter: spark.Filter, expected: str | None) -> None:
    assert predicate(filter, {"x": kind}) == expected


def test_names_that_need_quotes_are_quoted() -> None:
    assert predicate(spark.EqualTo(("two words",), 1), {"two words": "int"}) == "`two words` = 1"


def test_a_filter_that_would_be_too_large_stays_with_spark() -> None:
    pushed = PushedFilters("a = 1", {"x": "string"})
    pushed.push([spark.EqualTo(("x",), "v" * 20_000), spark.EqualTo(("x",), "w")])
    assert pushed.filter == "(a = 1) and x = 'w'"


def test_bounds_narrow_the_range() -> None:
    pushed = PushedFilters("true", {"position": "bigint", "time": "timestamp"})
    time = datetime(2026, 3, 1, 12, tzinfo=UTC)
    ns = round(time.timestamp()) * 10**9
    pushed.push([spark.GreaterThan(("position",), 4), spark.LessThanOrEqual(("position",), 9)])
    pushed.push([spark.GreaterThanOrEqual(("time",), time), spark.LessThanOrEqual(("time",), time)])
    bounds = pushed.bounds
    assert (bounds.low_position, bounds.high_position, bounds.low_ns, bounds.high_ns) == (5, 10, ns, ns + 1000)
    assert pushed.filter == "true"
