"""Cells keep the order of values, and the cells of a filter's values contain those of what it matches."""

from hypothesis import given
from hypothesis import strategies as st

from wend.matching import order_cells
from wend.matching.filters import parse
from wend.matching.order_cells import (
    CELL_BITS,
    cell,
    find_value_cells,
    find_values_cells,
    is_covered,
    overlaps_any,
    region,
)
from wend.model.events import Range

numbers = st.one_of(st.integers(-(10**400), 10**400), st.floats(allow_nan=False), st.integers(-300, 300))
scalars = st.one_of(numbers, st.text(), st.booleans())
codes = st.text("01", max_size=6)


@given(st.one_of(st.tuples(numbers, numbers), st.tuples(st.text(), st.text())))
def test_order(pair: tuple) -> None:
    low, high = sorted(pair)
    assert 0 <= cell(low) <= cell(high) < 1 << CELL_BITS


def test_kinds_are_apart_and_zeros_are_one() -> None:
    assert cell(float("inf")) < cell("") <= cell("\U0010ffff" * 3) < cell(False) < cell(True) < 1 << CELL_BITS
    assert cell(0.0) == cell(-0.0) == cell(0)
    assert cell(10**400) == cell(float("inf"))


@given(st.integers(-9, 9), st.integers(0, 9), scalars)
def test_what_a_filter_matches_is_in_its_cells(low: int, wide: int, value: object) -> None:
    for text in (f"x in [{low}, {low + wide}]", f"x > {low}", f"x < {low}", "x = 'a' or x = true", "x begins 'b'"):
        wanted = parse(text) if "begins" not in text else parse("x >= 'b' and x < 'c'")
        for one in wanted.conjunctions:
            if one.matches({"x": value}):  # type: ignore[dict-item]
                assert overlaps_any(find_value_cells(value), find_values_cells(dict(one.values)["x"]))  # type: ignore[arg-type]


@given(st.integers(-9, 9), st.integers(0, 9), st.integers(-9, 9), st.integers(0, 9))
def test_ranges_that_meet_have_cells_that_meet(a: int, wide: int, b: int, tall: int) -> None:
    (one,) = parse(f"x in [{a}, {a + wide}]").conjunctions
    value = Range(b, b + tall)
    if one.matches({"x": value}):
        assert overlaps_any(find_value_cells(value), find_values_cells(dict(one.values)["x"]))


def test_a_range_between_two_neighbours_has_cells_too() -> None:
    assert find_value_cells(Range("a", "a\0", True, True)) == (cell("a"), cell("a\0"))


@given(st.lists(codes, max_size=8), codes)
def test_covered_is_the_union(parts: list[str], whole: str) -> None:
    depth = 6
    inside = [f"{at:0{depth}b}" for at in range(1 << depth)]
    wanted = [one for one in inside if one.startswith(whole)]
    expected = all(any(one.startswith(part) for part in parts) for one in wanted)
    assert is_covered(region(whole), parts) == expected


def test_regions() -> None:
    assert region("") == order_cells.EVERYTHING
    assert order_cells.is_region("0101") and not order_cells.is_region("012") and not order_cells.is_region("0" * 25)
    assert region(order_cells.bits(cell(7))) == (cell(7), cell(7))
