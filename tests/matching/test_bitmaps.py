"""The compiled index against a scan over all filters, while filters are added and removed."""

import pickle
from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.errors import raises
from tests.matching.strategies import events, filters, range_events
from wend.matching import bitmap_index as bitmaps
from wend.matching import bitmap_table as table
from wend.matching import buckets
from wend.matching.batch import Batch
from wend.matching.bitmap_index import BitmapIndex
from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter, parse
from wend.matching.values import after, before, between
from wend.model.errors import FilterError
from wend.model.events import Attributes


def readable(text: str) -> Filter | None:
    try:
        return parse(text)
    except FilterError:
        return None


wanted = filters.map(readable).filter(lambda one: one is not None)


def scanned(known: dict[int, Filter], attributes: Attributes) -> list[int]:
    return sorted(key for key, one in known.items() if one.matches(attributes))


def agree(index: BitmapIndex[int], known: dict[int, Filter], found: list[Attributes]) -> None:
    expected = [scanned(known, one) for one in found]
    assert [list(index.match(one)) for one in found] == expected
    assert [index.match_array(one).tolist() for one in found] == expected
    batch = Batch.of(found)
    offsets, ids = index.match_batch(batch)
    assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == expected
    per_event, per_key = index.count_batch(batch)
    assert per_event.tolist() == [len(one) for one in expected]
    assert dict(zip(index.keys(), per_key.tolist(), strict=True)) == {
        key: sum(key in one for one in expected) for key in sorted(known)
    }


steps = st.lists(st.tuples(st.integers(-2, 10), st.one_of(st.none(), wanted)), max_size=15)


@pytest.fixture(params=["as it is", "few rows", "few sides", "layouts all the time", "compiled at once"])
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results are the same with too few rows to be exact, with attributes without rows, and with short-lived
    layouts."""
    if request.param != "as it is":
        monkeypatch.setattr(buckets, "MAX_ROWS", 2)
    if request.param == "few sides":
        monkeypatch.setattr(buckets, "MAX_SIDES", 2)
    if request.param == "layouts all the time":
        monkeypatch.setattr(bitmaps, "MANY_DOUBTS", 0)
        monkeypatch.setattr(bitmaps, "FIRST_LAYOUT", 1)
        monkeypatch.setattr(bitmaps, "SCRATCH_WORDS", 0)
    if request.param == "compiled at once":
        monkeypatch.setattr(bitmaps, "SMALL", -1)


@pytest.mark.usefixtures("variant")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(wanted, max_size=8), steps, st.lists(st.one_of(events, range_events), max_size=6))
def test_it_agrees_with_a_scan(first: list[Any], changes: Any, found: list[Attributes]) -> None:
    known = dict(enumerate(first, -1))
    index = BitmapIndex(known.items())
    agree(index, known, found)
    for key, one in changes:
        if one is None:
            index.discard(key)
            known.pop(key, None)
        else:
            index.add(key, one)
            known[key] = one
    assert len(index) == len(known)
    agree(pickle.loads(pickle.dumps(index)), known, found)
    agree(index, known, found)


def test_columns_are_rows() -> None:
    batch = Batch.of_columns(
        2,
        {
            "n": np.array([1, 2], dtype=np.int32),
            "x": np.array([0.5, 1.5]),
            "s": ["a", None],
            "b": np.array([True, False]),
        },
    )
    assert [batch.row(at) for at in range(2)] == [
        {"b": True, "n": 1, "s": "a", "x": 0.5},
        {"b": False, "n": 2, "x": 1.5},
    ]
    assert batch.row(0)["b"] is True
    assert batch.part(1, 9).row(0) == batch.row(1)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (np.zeros(3), "has 3 values for 2 events"),
        (np.zeros((2, 2)), "must have one dimension, got 2"),
        (np.zeros(2, dtype=complex), "holds complex128"),
    ],
)
def test_a_column_that_events_cannot_have_is_refused(column: Any, reason: str) -> None:
    with raises("invalid-setting", match=reason):
        Batch.of_columns(2, {"x": column})


@cache
def many(seed: int, count: int, whole: bool) -> tuple[dict[int, Filter], np.ndarray, np.ndarray]:
    """Boxes over three attributes, with their ends: integers of a small domain, or doubles."""
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(1, 400, (count, 3, 2)) if whole else rng.random((count, 3, 2)), axis=2)
    asked = rng.random((count, 3)) < 0.6
    known = {}
    for key in range(count):
        sides = [(f"a{a}", between(*ends[key, a].tolist())) for a in range(3) if asked[key, a]]
        known[key] = Filter((Conjunction(tuple(sides)),))
    lows, highs = np.where(asked, ends[:, :, 0], -np.inf), np.where(asked, ends[:, :, 1], np.inf)
    return known, lows, highs


@pytest.mark.parametrize(
    ("whole", "asked_with", "width"),
    [
        (True, "integers", 8),
        (True, "doubles", 8),
        (False, "integers", 8),
        (False, "doubles", 8),
        (True, "doubles", table.WIDTH),
    ],
)
def test_it_agrees_over_several_blocks_while_filters_change(
    whole: bool, asked_with: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All combinations with small blocks, and one of them with blocks of the real size."""
    for module in (table, bitmaps):
        monkeypatch.setattr(module, "WIDTH", width)
        monkeypatch.setattr(module, "SLOTS", 64 * width)
    count = 3 * table.SLOTS
    known, lows, highs = many(5, count, whole)
    rng = np.random.default_rng(6)
    index = BitmapIndex((key, known[key]) for key in range(0, count, 2))
    there = np.arange(count) % 2 == 0
    drawn = rng.integers(0, 402, (40, 3)) if asked_with == "integers" else rng.random((40, 3)) * (400 if whole else 1)
    batch = Batch.of_columns(40, {f"a{a}": np.ascontiguousarray(drawn[:, a]) for a in range(3)})
    for _ in range(3):
        for _ in range(2):  # the second time with edges for the values that were in doubt
            offsets, ids = index.match_batch(batch)
            for at, event in enumerate(drawn):
                expected = np.flatnonzero(there & (lows <= event).all(axis=1) & (event <= highs).all(axis=1))
                assert ids[offsets[at] : offsets[at + 1]].tolist() == expected.tolist()
            for at in range(0, 40, 10):
                assert index.match_array(batch.row(at)).tolist() == ids[offsets[at] : offsets[at + 1]].tolist()
        for key in rng.permutation(count)[: count // 8].tolist():
            there[key] = not there[key]
            if there[key]:
                index.add(key, known[key])
            else:
                index.discard(key)


def test_thousands_of_texts_are_distinguished() -> None:
    known = {key: parse(f"name = 'device-{key}' and x < {key}") for key in range(2000)}
    known |= {2000 + key: parse(f"name prefix 'device-{key}'") for key in range(20)}
    index = BitmapIndex(known.items())
    found: list[Attributes] = [{"name": f"device-{at}", "x": 1000} for at in (0, 7, 15, 999, 1001, 1999, 2000)]
    for _ in range(2):
        agree(index, known, found)


def test_keys_are_of_any_ordered_type_but_arrays_need_integers() -> None:
    index = BitmapIndex([((2, "b"), parse("x > 1")), ((1, "z"), parse("x > 0 or y = 1")), ((1, "a"), parse("false"))])
    assert index.match({"x": 2, "y": 1}) == ((1, "z"), (2, "b"))
    assert index.keys() == [(1, "a"), (1, "z"), (2, "b")]
    assert [counts.tolist() for counts in index.count_batch(Batch.of([{"x": 2, "y": 1}, {"x": 1}]))] == [
        [2, 1],
        [0, 2, 1],
    ]
    with raises("invalid-setting", match="integer keys"):
        index.match_batch(Batch.of([{"x": 2}]))


def test_an_empty_index_and_an_empty_batch_have_results() -> None:
    index: BitmapIndex[int] = BitmapIndex()
    assert index.match({"x": 1}) == ()
    assert [found.tolist() for found in index.match_batch(Batch.of([{"x": 1}]))] == [[0, 0], []]
    index.add(3, parse("x = 1"))
    assert [found.tolist() for found in index.match_batch(Batch.of([]))] == [[0], []]
    assert [found.tolist() for found in index.count_batch(Batch.of([]))] == [[], [0]]


def test_a_copy_is_independent() -> None:
    index = BitmapIndex({1: parse("x = 1"), 2: parse("x = 1 or y = 2"), 3: parse("false")}.items())
    copy = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(index))))
    copy.add(0, parse("x >= 1"))
    copy.discard(1)
    assert (len(copy), copy.match({"x": 1}), copy.keys()) == (3, (0, 2), [0, 2, 3])
    assert index.match({"x": 1}) == (1, 2)


@pytest.mark.parametrize("rows", [2, 5, 320])
@pytest.mark.parametrize("ends", [[0, 1, 2, 5, 7.5], [2**53 - 1, 2**53, 2**53 + 1, 2**60 + 1, 10**400]])
def test_the_neighbours_of_every_end_are_distinguished(
    rows: int, ends: list[int | float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "MAX_ROWS", rows)
    monkeypatch.setattr(bitmaps, "MANY_DOUBTS", 0)
    pairs = [(low, high) for low in ends for high in ends if low <= high]
    sets = [between(low, high, *shut) for low, high in pairs for shut in product((False, True), repeat=2)]
    known = {key: Filter((Conjunction((("x", one),)),)) for key, one in enumerate(sets) if one}
    index = BitmapIndex(known.items())
    found = [value for end in ends for value in (before(end), end, after(end))]
    for _ in range(2):
        agree(index, known, [{"x": value} for value in found])
    small = [value for value in found if abs(value) < 2**62]
    for column in (np.array([int(value) for value in small]), np.array([float(value) for value in small])):
        offsets, ids = index.match_batch(Batch.of_columns(len(small), {"x": column}))
        expected = [scanned(known, {"x": value}) for value in column.tolist()]
        assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == expected
