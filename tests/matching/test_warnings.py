"""Warnings about filters that are valid but probably not meant, and none about others."""

import pytest

from wend.matching.filter_warnings import filter_warnings

NEVER = "no event can match this filter"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x > 5 and x < 3", ": no value of x meets all its conditions"),
        ("y = 1 and x = 'a' and x = 1", ": no value of x meets all its conditions"),
        ("x absent and x exists", ": no value of x meets all its conditions"),
        ("x < y and y < x", ""),
        ("x = 1 and (x = 2 or x = 3)", ""),
        ("false", ""),
    ],
)
def test_a_filter_that_can_never_match(text: str, why: str) -> None:
    assert filter_warnings(text) == [NEVER + why]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("city = stuttgart", "city = 'stuttgart'"),
        ("city != stuttgart and t > 5", "city != 'stuttgart'"),
        ("not (zone = a) or x = 1", "zone = 'a'"),
        ("city = stuttgart or city = stuttgart", "city = 'stuttgart'"),
    ],
)
def test_two_attributes_that_are_compared_where_a_text_was_meant(text: str, meant: str) -> None:
    (sentence,) = filter_warnings(text)
    assert sentence.startswith("this filter compares two attributes, ")
    assert sentence.endswith(f"; a text has quotes: {meant}")


@pytest.mark.parametrize(
    "text",
    ["city = 'stuttgart'", "x < y", "x = 2 * y", "x = `y`", "x = y and y > 3", "x > 3 or x < 5", "true", "x = true"],
)
def test_no_warning(text: str) -> None:
    assert filter_warnings(text) == []
