"""The semantics of predicates: the table of docs/reference/filters.md, row by row, and the text around it."""

import math
import re
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from tests.matching import strategies
from wend.matching.conjunctions import OUTCOMES, make_binding
from wend.matching.filters import parse
from wend.matching.values import next_value, previous_value
from wend.model.events import Attributes, Range, Value

R = Range
NAN = math.nan
HUGE = 10**310
"""A factor larger than any double."""

# The filter, the values of x that match, and those that do not.
TABLE: list[tuple[str, list[Value], list[Value]]] = [
    ("x = 3", [3, 3.0, R(3, 3), R(1, 5), R(3, None)], [2, "3", True, NAN, R(3, 5, low_open=True), R("3", "4")]),
    ("x = 1", [1, 1.0], [True, "1"]),
    ("x = true", [True], [1, False, "true", R(1, 1)]),
    ("x != 3", [2, 3.1, math.inf, R(3, 4), R(None, 3)], [3, 3.0, "3", False, NAN, R(3, 3), R("a", "b")]),
    ("x != 'a'", ["b", "", R("a", "b")], ["a", 1, True, R("a", "a"), R(1, 2)]),
    ("x != true", [False], [True, 0, "x"]),
    ("x < 3", [2, -math.inf, R(2, 9), R(None, 3)], [3, "2", False, NAN, R(3, 9), R(3, 9, low_open=True)]),
    ("x <= 3", [3, 2.5, R(3, 9)], [4, R(3, 9, low_open=True)]),
    ("x > 3", [4, math.inf, R(0, 4), R(0, None)], [3, R(0, 3), "4", R("0", "9")]),
    ("x >= 3", [3, R(0, 3)], [2, R(0, 3, high_open=True)]),
    ("x < true", [False], [True, 0]),
    ("x in [1, 3]", [1, 2, 3, R(3, 9), R(-5, 1), R(0, 9)], [0, 4, "2", R(4, 9), R(3, 9, low_open=True)]),
    ("x in ]1, 3[", [2, 1.5, R(0, 2), R(1, 9)], [1, 3, R(3, 9), R(0, 1)]),
    ("x in ]1, 3]", [3], [1]),
    ("x in [1, 3[", [1, R(0, 1)], [3, R(0, 1, high_open=True)]),
    ("x in ['b', 'd']", ["b", "cat", "d", R("a", "b")], ["a", "dog", 3, R("e", "f")]),
    ("x in {1, 3}", [1, 3, 3.0, R(2, 3), R(0, 9)], [2, True, "1", R(1, 3, True, True)]),
    ("x in {'a', 'b'}", ["a", R("a", "b", low_open=True)], ["ab", R("a", "b", True, True)]),
    (
        "x prefix 'ab'",
        ["ab", "abc", R("a", "b"), R("abz", None), R("abc", "abd")],
        ["a", "ac", 3, R("ac", "b"), R(1, 2)],
    ),
    ("x prefix ''", ["", "a", R("a", "b")], [1, True]),
    ("x exists", [0, "", False, R(1, 2), R("a", None)], [NAN]),
    ("x absent", [], [0, "", False, NAN, R(1, 2)]),
    ("not (x = 3)", [2], [3, "3"]),
    ("not (x < 3)", [3, R(0, 3)], [2, "4", NAN]),
    ("not x exists", [], [1]),
    ("not x absent", [1, "a", True], []),
    ("x = 9007199254740993", [2**53 + 1], [2**53, 2**53 + 2, float(2**53)]),
    ("x > 9007199254740992", [2**53 + 1], [float(2**53)]),
    ("x < 0.1", [0.09999999999999999], [0.1, 1]),
    ("x < 'a'", ["Z", "", "\n"], ["a", "ä"]),
    ("x > '\U0000ffff'", ["\U00010000"], ["\U0000e000"]),
    ("x in [1, 5] and x != 3", [1, 2.5, R(3, 4)], [3, 6, R(3, 3)]),
    # A range matches if one value in it matches all predicates on its attribute.
    ("x < 2 and x > 1 or x = 7", [1.5, R(0, 3), R(2, 7)], [R(2, 6), R(-3, 1)]),
]


@pytest.mark.parametrize(("text", "matching", "others"), TABLE, ids=[row[0] for row in TABLE])
def test_the_table(text: str, matching: list[Value], others: list[Value]) -> None:
    wanted = parse(text)
    assert [value for value in matching if not wanted.matches({"x": value})] == []
    assert [value for value in others if wanted.matches({"x": value})] == []
    assert wanted.matches({"y": 3}) == (text in ("x absent", "not x exists"))


BOUND: list[tuple[str, Value, Value, bool]] = [
    ("x < 2 * y", 3, 2, True),
    ("x < 2 * y", 4, 2, False),
    ("x < 2 * y", "a", "b", False),
    ("x < 2 * y", False, True, False),
    ("x < -1 * y", 1, -2, True),
    ("x = 0.1 * y", 1, 10, False),
    ("x = 0.5 * y", 0.5, 1, True),
    ("x = 3 * y", 3 * (2**53 + 1), 2**53 + 1, True),
    ("x = 3 * y", 3 * 2**53, 2**53 + 1, False),
    ("x > 0.5 * y", 2**53 + 1, 2.0**54, True),
    ("x < y", "a", "b", True),
    ("x < y", False, True, True),
    ("x < y", 1, "b", False),
    ("x < y", 1, True, False),
    ("x = y", True, True, True),
    ("x = y", 1, True, False),
    ("x = y", 1, 1.0, True),
    ("x != y", 1, "a", False),
    ("x != y", NAN, 1, False),
    ("x < y", 1, NAN, False),
    ("x < 0 * y", 1, math.inf, False),
    ("x < 2 * y", 5, math.inf, True),
    (f"x < {HUGE} * y", 1, math.inf, True),
    (f"x < -{HUGE} * y", 1, math.inf, False),
    (f"x > {HUGE} * y", 1, -math.inf, True),
    (f"x < {HUGE} * y", 1, NAN, False),
    (f"x < {HUGE} * y", 1e9, 1e-300, True),
    (f"x < {HUGE} * y", 1, R(3, None), True),
    (f"x > {HUGE} * y", 1, R(3, None), False),
    (f"x > -{HUGE} * y", 1, R(3, None), True),
    (f"x = {HUGE} * y", R(1, None), R(None, 3), True),
    ("x < y", R(1, 5), 2, True),
    ("x < y", R(2, 5), 2, False),
    ("x <= y", R(2, 5), 2, True),
    ("x <= y", R(2, 5, low_open=True), 2, False),
    ("x > y", R(1, 2), R(2, 3), False),
    ("x >= y", R(1, 2), R(2, 3), True),
    ("x = y", R(1, 2), R(2, 3), True),
    ("x = y", R(1, 2, high_open=True), R(2, 3), False),
    ("x = y", R(1, 1), 1, True),
    ("x != y", R(1, 1), 1, False),
    ("x != y", R(1, 2), 1, True),
    ("x < -2 * y", R(1, 2), R(None, 0), True),
    ("x < -2 * y", R(1, 2), R(0, None), False),
    ("x < 0 * y", R(-1, 1), R(0, 1), True),
    ("x < y", R("a", "c"), "b", True),
    ("x > y", R("a", None), "zzz", True),
    ("x < y", R("a", "c"), 5, False),
    ("x < 2 * y", R("a", "c"), R("a", "d"), False),
    ("x = y", R(1, 2), True, False),
]


@pytest.mark.parametrize(("text", "x", "y", "expected"), BOUND)
def test_bound_attributes(text: str, x: Value, y: Value, expected: bool) -> None:
    assert parse(text).matches({"x": x, "y": y}) == expected
    assert not parse(text).matches({"x": x}) and not parse(text).matches({"y": y}) and not parse(text).matches({})


@settings(max_examples=120)
@given(strategies.numbers, strategies.numbers, strategies.numbers, strategies.signs)
def test_bound_numbers_are_compared_exactly(x: float, factor: float, y: float, sign: str) -> None:
    exact = Fraction(factor) * Fraction(y)
    outcome = 1 if Fraction(x) < exact else 2 if Fraction(x) == exact else 4
    assert make_binding("x", OUTCOMES[sign], factor, "y").matches({"x": x, "y": y}) == bool(OUTCOMES[sign] & outcome)


@settings(max_examples=120)
@given(strategies.numbers)
def test_between_neighbours_there_is_no_number(value: float) -> None:
    above = next_value(value)
    assert value < above and previous_value(above) == value
    middle = (Fraction(value) + Fraction(above)) / 2
    assert middle.denominator > 1 and (abs(middle) > 2**1023 or Fraction(float(middle)) != middle)


@settings(max_examples=120)
@given(strategies.filters, strategies.range_events)
def test_a_range_matches_if_a_value_in_it_does(text: str, event: Attributes) -> None:
    """Tested with closed ends."""
    wanted = parse(text)
    point: Attributes = {}
    for name, value in event.items():
        if isinstance(value, Range):
            if value.low_open or value.low is None:
                return
            point[name] = value.low
        else:
            point[name] = value
    assert wanted.matches(event) or not wanted.matches(point)


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        ({}, "at least one end"),
        ({"low": 2, "high": 1}, "is empty"),
        ({"low": 1, "high": 1, "low_open": True}, "is empty"),
        ({"low": 1, "high": "a"}, "have one type"),
        ({"low": NAN, "high": 1}, "finite ends"),
        ({"low": 1, "high": math.inf}, "finite ends"),
        ({"low": True, "high": 2}, "numbers or texts"),
        ({"low": 1, "high_open": True}, "can be neither open nor closed"),
    ],
)
def test_a_range_checks_itself(ends: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Range(**ends)  # type: ignore[arg-type]


@given(strategies.range_events)
def test_ranges_survive_encoding(event: Attributes) -> None:
    try:
        packed = msgspec.msgpack.encode(event)
    except (OverflowError, UnicodeEncodeError):
        return
    assert msgspec.msgpack.decode(packed, type=Attributes) == event


def test_ranges_are_plain_json() -> None:
    event: Attributes = {"height": Range(3, None, low_open=True), "name": Range("a", "b")}
    text = b'{"height":{"low":3,"low_open":true},"name":{"low":"a","high":"b"}}'
    assert msgspec.json.encode(event) == text
    assert msgspec.json.decode(text, type=Attributes) == event
    with pytest.raises(msgspec.ValidationError, match="is empty"):
        msgspec.json.decode(b'{"x":{"low":2,"high":1}}', type=Attributes)
    assert str(event["height"]) == "]3, ["


def test_the_page_about_filters_is_true() -> None:
    """Each `filter` with its canonical form in the page, and each example of the language."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "filters.md").read_text(encoding="utf-8")
    pairs = re.findall(r"^\| `([^|`]+)` \| `([^|`]+)` \|$", page, flags=re.MULTILINE)
    assert len(pairs) >= 8
    assert [(text, str(parse(text))) for text, _ in pairs] == pairs
    examples = re.findall(r"^    (\S.*)$", page.split("## Examples")[1].split("\n## ")[0], flags=re.MULTILINE)
    assert len(examples) >= 8
    for example in examples:
        parse(example)
