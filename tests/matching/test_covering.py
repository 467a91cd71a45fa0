"""Uncovered filters, of a fixed set and of a changing one, against brute force."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching import worlds
from tests.matching.strategies import filters
from wend.matching.conjunctions import Conjunction
from wend.matching.covering import CoveringIndex, find_uncovered
from wend.matching.filters import Filter, parse

parts = filters.map(lambda text: [Filter((one,)) for one in parse(text).conjunctions])
steps = st.lists(st.tuples(st.booleans(), st.integers(0, 12), parts), max_size=30)


@given(steps)
def test_every_covered_filter_has_an_uncovered_one_that_covers_it(steps: list) -> None:
    index: CoveringIndex[int] = CoveringIndex()
    known: dict[int, Filter] = {}
    up: set[int] = set()
    for adds, key, choices in steps:
        if adds and choices:
            known[key] = choices[0]
            up.discard(key)
            up.update(index.add(key, choices[0]))
        else:
            known.pop(key, None)
            up.discard(key)
            up.update(index.discard(key))
        assert up == set(index.uncovered_keys)
        for one, wanted in known.items():
            assert one in up or any(known[other].covers(wanted) for other in up)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 8), st.integers(1, 9), st.integers(0, 8)), max_size=25))
def test_ranges_that_an_earlier_one_covers_are_found(boxes: list) -> None:
    """Without bindings and texts the index misses no cover by one filter."""
    index: CoveringIndex[int] = CoveringIndex()
    known: list[Filter] = []
    for key, (x, wide, y, tall) in enumerate(boxes):
        wanted = parse(f"x in [{x}, {x + wide}] and y in [{y}, {y + tall}]")
        covered = any(known[other].covers(wanted) for other in index.uncovered_keys)
        assert (index.add(key, wanted) == []) == covered
        known.append(wanted)


def test_many_filters_are_covered_by_a_few() -> None:
    index: CoveringIndex[int] = CoveringIndex()
    for key in range(100):
        index.add(key, parse(f"x in [{key}, {key + 1}]"))
    assert index.discard(7) == []
    assert len(index) == 99
    wide = index.add(200, parse("x >= 0"))
    assert wide == [200]
    assert index.add(7, parse("x in [7, 8]")) == []
    assert index.discard(200) == [7]


# ---------------------------------------------------------------- a fixed set


def pairwise(filters: list[Filter]) -> list[int]:
    return [
        at
        for at, one in enumerate(filters)
        if one.conjunctions
        and not any(o.covers(one) and (i < at or not one.covers(o)) for i, o in enumerate(filters) if i != at)
    ]


@pytest.mark.parametrize(("widest", "fewest"), [(256, 1), (26, 1), (26, 3), (256, 4)])
def test_ranges(widest: int, fewest: int) -> None:
    filters = worlds.boxes(3, 300, widest, fewest)
    assert find_uncovered(filters) == pairwise(filters)


@settings(max_examples=50)
@given(st.lists(filters, max_size=25))
def test_filters_of_all_kinds(texts: list[str]) -> None:
    several = [parse(text) for text in texts]
    boxes = [f for f in several if len(f.conjunctions) < 2]
    assert find_uncovered(boxes) == pairwise(boxes)
    left = find_uncovered(several)
    # With disjunctions more filters may stay than necessary, but none is lost.
    for one in several:
        assert not one.conjunctions or any(several[at].covers(one) for at in left)


def test_equal_filters_leave_the_first() -> None:
    texts = ["x = 1", "x = 1", "x < 5 and y exists", "x = 1 or y = 2", "y = 2 or x = 1", "false"]
    assert find_uncovered([parse(text) for text in texts]) == [0, 2, 3]
    assert find_uncovered([parse(text) for text in ("x = 1", "true", "x < 2", "true")]) == [1]
    assert find_uncovered([]) == []


def test_few_boxes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    filters = worlds.boxes(2, 1500, 26, fewest=2)
    compared = []
    covers = Conjunction.covers
    monkeypatch.setattr(Conjunction, "covers", lambda a, b: compared.append(a) or covers(a, b))
    assert 0 < len(find_uncovered(filters)) < 1500
    assert len(compared) < 4 * 1500


def test_a_large_set_is_checked_by_samples() -> None:
    filters = worlds.boxes(11, 6000, 26, fewest=2)
    left = find_uncovered(filters)
    staying = set(left)
    for at in range(0, len(filters), 299):
        one = filters[at]
        covering = [i for i, other in enumerate(filters) if i != at and other.covers(one)]
        assert (at in staying) == all(filters[i] == one and i > at for i in covering)
        assert at in staying or any(filters[i].covers(one) for i in left)
