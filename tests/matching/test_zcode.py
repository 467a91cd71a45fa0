"""Z-codes against brute force over the cells of small spaces."""

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.errors import raises
from tests.oracles.matching import box_of, children, leaves, printed_code
from wend.matching.zcode import Box, NumberDomain, TextDomain, ZCodeSpace, interleave, side_code, split_cells

domains = st.one_of(
    st.builds(NumberDomain, st.just(0), st.integers(0, 11)),
    st.builds(NumberDomain, st.just(-1), st.just(1.5), st.sampled_from([0.25, 0.5, 1])),
    st.just(TextDomain(2, "ab")),
)
spaces = st.dictionaries(st.sampled_from("xyz"), domains, min_size=1, max_size=3).map(ZCodeSpace)


@st.composite
def boxed(draw: st.DrawFn) -> tuple[ZCodeSpace, Box]:
    space = draw(spaces)
    return space, draw(boxes_of(space))


def boxes_of(space: ZCodeSpace) -> st.SearchStrategy[Box]:
    sides = [
        st.tuples(st.integers(low, high), st.integers(low, high)).map(lambda pair: (min(pair), max(pair)))
        for low, high in space.whole.sides
    ]
    return st.tuples(*sides).map(Box)


def cells(box: Box) -> set[tuple[int, ...]]:
    return set(product(*(range(low, high + 1) for low, high in box.sides)))


def test_the_paper_s_example() -> None:
    """Section IV-A: price 01 and weight 00 weave to 0010, and the upper half of price is 1."""
    space = ZCodeSpace({"price": NumberDomain(0, 100), "weight": NumberDomain(0, 100)})
    assert interleave(["01", "00"]) == "0010"
    price, weight = space.region("0010").sides
    assert (side_code(price, (0, 100)), side_code(weight, (0, 100))) == ("01", "00")
    assert space.region("1") == Box(((51, 100), (0, 100)))
    assert space.region("01") == Box(((0, 50), (51, 100)))


def test_the_attributes_of_the_evaluation_have_eight_bits() -> None:
    space = ZCodeSpace({f"a{i}": NumberDomain(1, 256) for i in range(10)})
    point = box_of(space, {f"a{i}": 17 * i + 1 for i in range(10)})
    assert len(space.code(point)) == 80 and printed_code(space, point) == space.code(point)
    partial = box_of(space, {"a0": 1, "a1": 256})
    assert printed_code(space, partial) == "" and space.code(partial) == "01"


@given(st.integers(-9, 9), st.integers(0, 40))
def test_halves_are_disjoint_and_lose_nothing(low: int, size: int) -> None:
    """The printed ⌈m⌉ fails this if the middle is integral."""
    (a, b), (c, d) = split_cells((low, low + size + 1))
    assert (a, d) == (low, low + size + 1) and a <= b and b + 1 == c <= d and 0 <= (b - a) - (d - c) <= 1


@settings(max_examples=40)
@given(spaces)
def test_the_leaves_are_the_cells(space: ZCodeSpace) -> None:
    codes = list(leaves(space))
    assert len(codes) == space.whole.volume
    assert set().union(*(cells(space.region(code)) for code in codes)) == cells(space.whole)
    assert all(space.code(space.region(code)) == code for code in codes)


@settings(max_examples=100)
@given(boxed(), st.data())
def test_the_code_is_the_smallest_region_around(world: tuple[ZCodeSpace, Box], data: st.DataObject) -> None:
    space, box = world
    code = space.code(box)
    region = space.region(code)
    assert region.contains(box) and cells(box) <= cells(region)
    both = children(space, code)
    if both is None:
        assert region.volume == 1
    else:
        lower, upper = (space.region(child) for child in both)
        assert cells(lower) | cells(upper) == cells(region) and not cells(lower) & cells(upper)
        assert not lower.contains(box) and not upper.contains(box)
    assert code.startswith(printed_code(space, box)) or len({d.cells for d in space.domains}) > 1
    other = data.draw(boxes_of(space))
    assert box.meets(other) == bool(cells(box) & cells(other))
    assert box.contains(other) == (cells(other) <= cells(box))
    inner = space.code(other)
    assert inner.startswith(code) == (cells(space.region(inner)) <= cells(region))
    assert space.region(inner).meets(box) == bool(cells(space.region(inner)) & cells(box))
    # If two boxes share a cell, one code is a prefix of the other; the converse does not hold.
    if box.meets(other):
        assert inner.startswith(code) or code.startswith(inner)


@settings(max_examples=100)
@given(boxed(), st.integers(1, 40))
def test_a_cover_contains_the_box_within_its_limit(world: tuple[ZCodeSpace, Box], limit: int) -> None:
    space, box = world
    codes = space.cover(box, limit)
    assert 1 <= len(codes) <= limit and codes == sorted(codes)
    assert not any(b.startswith(a) for a in codes for b in codes if a != b)
    covered = set().union(*(cells(space.region(code)) for code in codes))
    assert cells(box) <= covered
    assert all(space.region(code).meets(box) for code in codes)
    if limit >= box.volume:
        assert covered == cells(box)


def test_a_cover_of_a_huge_space_obeys_its_limit() -> None:
    space = ZCodeSpace({name: NumberDomain(-(2**31), 2**31 - 1) for name in "abcd"} | {"t": TextDomain(20)})
    box = box_of(space, {"a": (5, 10**9), "b": (None, 3), "t": ("b", "mouse")})
    codes = space.cover(box, 64)
    assert len(codes) <= 64
    assert all(space.region(code).meets(box) for code in codes)


values = st.one_of(st.integers(-5, 20), st.floats(-5, 20), st.sampled_from([1e300, -1e300, 2**70]))


@given(
    st.builds(NumberDomain, st.sampled_from([0, -1.5]), st.sampled_from([3, 10.2]), st.sampled_from([1, 0.1, 3])),
    values,
    values,
)
def test_cells_preserve_the_order_of_numbers(domain: NumberDomain, a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert 0 <= domain.cell(low) <= domain.cell(high) < domain.cells


@given(
    st.sampled_from([TextDomain(2, "bd"), TextDomain(3, "abc"), TextDomain(1)]),
    st.text("abcde\0z", max_size=4),
    st.text("abcde\0z", max_size=4),
)
def test_cells_preserve_the_order_of_texts(domain: TextDomain, a: str, b: str) -> None:
    low, high = sorted((a, b))
    assert 0 <= domain.cell(low) <= domain.cell(high) < domain.cells


def test_texts_of_the_domain_have_a_cell_each() -> None:
    domain = TextDomain(3, "abc")
    known = sorted("".join(t) for n in range(4) for t in product("abc", repeat=n))
    assert [domain.cell(text) for text in known] == list(range(domain.cells))
    for other in ("abca", "aZ", "A", "ad", "zz"):
        at = domain.cell(other)
        assert known[at] <= other and (at + 1 == len(known) or known[at + 1] > other)


@settings(max_examples=100)
@given(st.lists(values, min_size=4, max_size=4))
def test_ranges_that_meet_have_boxes_that_meet(ends: list[float]) -> None:
    space = ZCodeSpace({"x": NumberDomain(0, 10, 0.5), "y": NumberDomain(1, 256)})
    a, b, c, d = ends
    one, other = sorted((a, b)), sorted((c, d))
    left, right = box_of(space, {"x": tuple(one)}), box_of(space, {"x": tuple(other)})
    assert left.meets(right) or not (one[0] <= other[1] and other[0] <= one[1])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: NumberDomain(2, 1),
        lambda: NumberDomain(0, 1, 0),
        lambda: NumberDomain(0, float("inf")),
        lambda: TextDomain(0),
        lambda: TextDomain(2, "ba"),
        lambda: ZCodeSpace({}),
        lambda: ZCodeSpace({"x": NumberDomain(0, 1)}).region("00"),
        lambda: ZCodeSpace({"x": NumberDomain(0, 1)}).region("2"),
        lambda: ZCodeSpace({"x": NumberDomain(0, 1)}).cover(Box(((0, 0),)), 0),
    ],
)
def test_invalid_spaces_are_refused(wrong: Callable[[], object]) -> None:
    with raises("invalid-setting"):
        wrong()
