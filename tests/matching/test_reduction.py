"""The indexed reduction against the pairwise one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching import strategies, worlds
from tests.matching.test_algebra import alone
from wend.matching import reduction
from wend.matching.algebra import covers
from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter, parse
from wend.matching.reduction import uncovered


def pairwise(filters: list[Filter]) -> list[int]:
    return [
        at
        for at, one in enumerate(filters)
        if one.conjunctions
        and not any(covers(o, one) and (i < at or not covers(one, o)) for i, o in enumerate(filters) if i != at)
    ]


@pytest.mark.parametrize(("widest", "fewest"), [(256, 1), (26, 1), (26, 3), (256, 4)])
def test_ranges(widest: int, fewest: int) -> None:
    filters = worlds.boxes(3, 300, widest, fewest)
    assert uncovered(filters) == pairwise(filters)


@pytest.mark.parametrize("block", [1, 3, 64])
@pytest.mark.parametrize("rows", [2, 5])
def test_many_blocks_and_few_rows_change_nothing(block: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "BLOCK", block)
    monkeypatch.setattr(reduction, "ROWS", rows)
    filters = worlds.boxes(5, 200, most=2) + alone("x")
    assert uncovered(filters) == pairwise(filters)


@settings(max_examples=50)
@given(st.lists(strategies.filters, max_size=25))
def test_filters_of_all_kinds(texts: list[str]) -> None:
    filters = [parse(text) for text in texts]
    boxes = [f for f in filters if len(f.conjunctions) < 2]
    assert uncovered(boxes) == pairwise(boxes)
    left = uncovered(filters)
    # With disjunctions more filters may stay than necessary, but none is lost.
    for one in filters:
        assert not one.conjunctions or any(covers(filters[at], one) for at in left)


def test_equal_filters_leave_the_first() -> None:
    texts = ["x = 1", "x = 1", "x < 5 and y exists", "x = 1 or y = 2", "y = 2 or x = 1", "false"]
    assert uncovered([parse(text) for text in texts]) == [0, 2, 3]
    assert uncovered([parse(text) for text in ("x = 1", "true", "x < 2", "true")]) == [1]
    assert uncovered([]) == []


def test_boxes_are_never_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    filters = worlds.boxes(2, 1500, 26, fewest=2)

    def asked(*_: object) -> bool:
        raise AssertionError("compared two filters")

    monkeypatch.setattr(Conjunction, "covers", asked)
    assert 0 < len(uncovered(filters)) < 1500


def test_a_large_set_is_checked_by_samples() -> None:
    filters = worlds.boxes(11, 6000, 26, fewest=2)
    left = uncovered(filters)
    staying = set(left)
    for at in range(0, len(filters), 299):
        one = filters[at]
        covering = [i for i, other in enumerate(filters) if i != at and covers(other, one)]
        assert (at in staying) == all(filters[i] == one and i > at for i in covering)
        assert at in staying or any(covers(filters[i], one) for i in left)
