"""Parsing and printing: round trips, errors with a position, and filters that are too large."""

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.errors import raises
from tests.matching import strategies
from wend.matching import normal_form as normal
from wend.matching.conjunctions import Conjunction
from wend.matching.filters import MAX_FILTER_CHARS, Filter, parse
from wend.matching.syntax import COLUMNS, MAX_DEPTH, MAX_PREDICATES
from wend.model.errors import FilterError
from wend.model.events import Attributes


@settings(max_examples=150)
@given(strategies.filters)
def test_a_printed_filter_is_parsed_as_the_same(text: str) -> None:
    found = parse(text)
    assert parse(str(found)) == found
    assert str(parse(str(found))) == str(found)


@settings(max_examples=100)
@given(strategies.filters, strategies.filters, strategies.events)
def test_and_or_not_mean_what_they_say_for_single_values(a: str, b: str, event: Attributes) -> None:
    left, right = parse(a).matches(event), parse(b).matches(event)
    assert parse(f"({a}) and ({b})").matches(event) == (left and right)
    assert parse(f"({a}) or ({b})").matches(event) == (left or right)
    assert not (parse(f"not ({a})").matches(event) and left)
    assert parse(f"not not ({a})") == parse(a)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("x>1 and x<=5 and y=2", "x in ]1, 5] and y = 2"),
        ("y=2 and x<=5 and x>1", "x in ]1, 5] and y = 2"),
        ("x < 5 and x < 3", "x < 3"),
        ("x <= 3 and x != 3", "x < 3"),
        ("x in {3, 1, 2, 2}", "x in {1, 2, 3}"),
        ("x in {1, 2} and x > 1", "x = 2"),
        ("x = 1.0 or x = 1", "x = 1"),
        ("x < 1 and x > 1", "false"),
        ("x = 1 and x = 'a'", "false"),
        ("x = 1 and x absent", "false"),
        ("x exists and x = 1", "x = 1"),
        ("x < 5 or x < 3 or false", "x < 5"),
        ("x = 1 and true", "x = 1"),
        ("x = 1 or true", "true"),
        ("not x exists", "x absent"),
        ("not (x = 1 or not y = 2)", "x != 1 and y = 2"),
        ("not (x prefix 'ab')", "x < 'ab' or x >= 'ac'"),
        ("not (x in {1, 2})", "x != 1 and x != 2"),
        ("not (x in [1, 2[)", "x < 1 or x >= 2"),
        ("s prefix ''", "s prefix ''"),
        ("s >= ''", "s prefix ''"),
        ("s prefix 'a' and s > 'ab'", "s in ]'ab', 'b'["),
        ("b > false", "b = true"),
        ("not b = true", "b = false"),
        ("b in [false, true]", "b in {false, true}"),
        ("y > x and z = 1", "z = 1 and x < y"),
        ("y >= x and x >= y", "x = y"),
        ("x < 2.0 * y", "x < 2 * y"),
        ("x < 1 * y", "x < y"),
        ("not (x < 2 * y)", "x >= 2 * y"),
        ("x = 'a' and x < 2 * y", "false"),
        ("x exists and x < y", "x < y"),
        ("`in` = 1 and `two words` = 2", "`in` = 1 and `two words` = 2"),
        ("x = '\\u{e9}\\n\\''", "x = 'é\\n\\''"),
        ('x = "it\'s"', "x = 'it\\'s'"),
        ("x = 9007199254740993", "x = 9007199254740993"),
        ("x < 1e3", "x < 1000"),
        ("x = -0.0", "x = 0"),
        ("x > 9007199254740992 and x < 9007199254740994", "x = 9007199254740993"),
        ("x > 1 and x < 1.0000000000000002", "false"),
    ],
)
def test_the_canonical_form(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


MALFORMED = [
    ("", 0, "expected a predicate"),
    ("   ", 3, "expected a predicate"),
    ("x", 1, "expected one of ="),
    ("x =", 3, "expected a value or an attribute"),
    ("x = 'a", 4, "never closed"),
    ('x = "a', 4, "never closed"),
    ("`x = 1", 0, "never closed"),
    ("x = 'a''", 7, "never closed"),
    ("x = 'a\\q'", 6, "a backslash goes before"),
    ("x = '\\u{110000}'", 5, "a backslash goes before"),
    ("x == 5", 3, "one = is enough"),
    ("x <> 5", 3, "it is written !="),
    ("x => 5", 3, "it is written >="),
    ("x = 1 and", 9, "expected an attribute"),
    ("x = 1 or or y = 2", 9, "expected an attribute"),
    ("and x = 1", 0, "expected an attribute"),
    ("x = 1 y = 2", 6, "expected `and`, `or` or the end"),
    ("(x = 1", 6, "expected `and`, `or` or )"),
    ("x = 1)", 5, "expected `and`, `or` or the end"),
    ("5 < x", 0, "expected an attribute"),
    ("x in 5", 5, "expected [, ] or {"),
    ("x in [1 2]", 8, "expected ,"),
    ("x in [1, 2", 10, "expected ] or ["),
    ("x in [1, 2)", 10, "expected ] or ["),
    ("x in [2, 1]", 9, "the low end is above"),
    ("x in [1, 'a']", 9, "must be of one kind"),
    ("x in {}", 6, "expected a value"),
    ("x in {1, 'a'}", 9, "values of one kind"),
    ("x in {1, 2", 10, "expected } or ,"),
    ("x in {1, true}", 9, "values of one kind"),
    ("x prefix 5", 9, "expected a quoted text"),
    ("x = 1 && y = 2", 6, "write `and`"),
    ("x = 1 || y = 2", 6, "write `or`"),
    ("!x", 0, "write `not`"),
    ("x = $", 4, "means nothing here"),
    ("x = nan", 4, "nan is not a value"),
    ("x < 2 * inf", 8, "inf is not a value"),
    ("x < 2 * 3", 8, "expected an attribute"),
    ("x < x", 4, "bound to itself"),
    ("x = 1e999", 4, "too large for a double"),
    ("x = " + "9" * 500, 4, "a number may have 400 characters"),
    ("not = 1", 4, "expected an attribute"),
    ("`` = 1", 0, "an attribute has a name"),
    ("x exists 5", 9, "expected `and`, `or` or the end"),
]


@pytest.mark.parametrize(("text", "place", "reason"), MALFORMED)
def test_an_error_shows_the_position_and_what_was_expected(text: str, place: int, reason: str) -> None:
    with raises("filter-syntax") as error:
        parse(text)
    said, line, caret = str(error.value).split("\n")
    assert said.startswith("cannot read the filter: ") and reason in said
    assert caret == " " * (2 + place) + "^"
    assert line == f"  {text}" or len(text) > COLUMNS


@pytest.mark.parametrize("before", [0, 10, 100, 300])
@pytest.mark.parametrize("behind", [0, 10, 100, 300])
def test_a_long_filter_is_shown_around_the_position(before: int, behind: int) -> None:
    text = "\tx = 1 and" * before + " § " + "or x = 1\n" * behind
    with raises("filter-syntax") as error:
        parse(text)
    _, line, caret = str(error.value).split("\n")
    assert len(line) <= COLUMNS + 4
    assert line[caret.index("^")] == "§"


def nested(opening: str, closing: str, deep: int) -> str:
    return opening * deep + "x = 1" + closing * deep


def test_nesting_up_to_the_bound_is_read() -> None:
    assert parse(nested("(", ")", MAX_DEPTH)) == parse("x = 1")
    assert parse(nested("not ", "", MAX_DEPTH)) == parse("x = 1")
    assert parse(" and ".join([nested("(", ")", MAX_DEPTH)] * 20)) == parse("x = 1")


EXPLODING = " and ".join(f"(a{i} = 1 or b{i} = 2)" for i in range(200))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = '" + "a" * 10_000_000 + "'", "this one has 10000006"),
        (nested("(", ")", 5_000), "64 deep"),
        (nested("(", ")", 10_000), "this one has 20005"),
        (nested("not ", "", 4_000), "64 deep"),
        (nested("not (", ")", 2_000), "64 deep"),
        ("(" * MAX_FILTER_CHARS, "64 deep"),
        (" or ".join(f"x{i} = {i}" for i in range(600)), f"{MAX_PREDICATES} predicates"),
        (" or ".join(f"x{i} = {i}" for i in range(300)), "would be 300 conjunctions"),
        (EXPLODING, "about 10^60 conjunctions"),
        (" and ".join(f"not (a{i} in [1, 2])" for i in range(100)), "about 10^30 conjunctions"),
        ("not (" + " or ".join(f"(a{i} = 1 and b{i} = 2)" for i in range(200)) + ")", "about 10^60"),
        ("x in {" + ", ".join(map(str, range(2000))) + "}", "1024 values"),
        ("not (x in {" + ", ".join(map(str, range(1000))) + "})", "1000 predicates"),
        ("`" + "\1" * 3500 + "` = 1", "characters"),
        ("'" * MAX_FILTER_CHARS, "expected an attribute"),
        (" " * (MAX_FILTER_CHARS - 1) + "§", "means nothing"),
    ],
    ids=lambda text: text[:20],
)
def test_a_filter_that_would_cost_too_much_is_refused(text: str, reason: str) -> None:
    with mock.patch.object(normal, "conjoin", wraps=normal.conjoin) as joined, pytest.raises(FilterError) as error:
        parse(text)
    assert reason in str(error.value) and len(str(error.value)) < 400
    assert joined.call_count <= normal.MAX_STEPS


def test_steps_of_normalisation_are_counted_before_they_are_done() -> None:
    with mock.patch.object(normal, "conjoin_all", wraps=normal.conjoin_all) as product, raises("filter-too-large"):
        parse(EXPLODING)
    assert product.call_count <= 12


def test_many_excluded_intervals_of_one_attribute_are_few_conjunctions() -> None:
    text = " and ".join(f"not (x in ]{2 * i}, {2 * i + 1}[)" for i in range(20))
    assert len(parse(text).conjunctions) == 21


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        assert isinstance(parse(text), Filter)
    except FilterError as error:
        assert str(error).startswith("cannot read the filter")


WORDS = [*"xy1=<[]{}(),*", "'a'", "in", "and", "or", "not", "exists", "prefix", "true"]


@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_any_words_are_parsed_or_refused(words: list[str]) -> None:
    try:
        found = parse(" ".join(words))
    except FilterError as error:
        assert "^" in str(error)
    else:
        assert all(isinstance(one, Conjunction) for one in found.conjunctions)
