"""The covering index against brute force."""

from hypothesis import given
from hypothesis import strategies as st

from tests.matching.strategies import filters
from wend.matching.covering import CoveringIndex
from wend.matching.filters import Filter, parse

parts = filters.map(lambda text: [Filter((one,)) for one in parse(text).conjunctions])
steps = st.lists(st.tuples(st.booleans(), st.integers(0, 12), parts), max_size=30)


def _covers(a: Filter, b: Filter) -> bool:
    return all(any(mine.covers(theirs) for mine in a.conjunctions) for theirs in b.conjunctions)


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
        assert up == set(index.all_uncovered)
        for one, wanted in known.items():
            assert one in up or any(_covers(known[other], wanted) for other in up)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 8), st.integers(1, 9), st.integers(0, 8)), max_size=25))
def test_ranges_that_an_earlier_one_covers_are_found(boxes: list) -> None:
    """Without bindings and texts the index misses no cover by one filter."""
    index: CoveringIndex[int] = CoveringIndex()
    known: list[Filter] = []
    for key, (x, wide, y, tall) in enumerate(boxes):
        wanted = parse(f"x in [{x}, {x + wide}] and y in [{y}, {y + tall}]")
        covered = any(_covers(known[other], wanted) for other in index.all_uncovered)
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
