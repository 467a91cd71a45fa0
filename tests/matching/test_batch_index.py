"""The compiled index against a scan over all filters."""

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
from wend.matching import batch_buckets as buckets
from wend.matching import batch_index, batch_table
from wend.matching.batch import Batch
from wend.matching.batch_index import BatchIndex
from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter, parse
from wend.matching.values import next_value, previous_value, values_between
from wend.model.errors import FilterError
from wend.model.events import Attributes


def readable(text: str) -> Filter | None:
    try:
        return parse(text)
    except FilterError:
        return None


wanted = filters.map(readable).filter(lambda one: one is not None)


def scanned(known: list[Filter], attributes: Attributes) -> list[int]:
    return [key for key, one in enumerate(known) if one.matches(attributes)]


def agree(index: BatchIndex, known: list[Filter], found: list[Attributes]) -> None:
    expected = [scanned(known, one) for one in found]
    batch = Batch.of(found)
    offsets, keys = index.match_batch(batch)
    assert [keys[a:b].tolist() for a, b in pairwise(offsets)] == expected
    per_event, per_filter = index.count_batch(batch)
    assert per_event.tolist() == [len(one) for one in expected]
    assert per_filter.tolist() == [sum(key in one for one in expected) for key in range(len(known))]


@pytest.fixture(params=["as it is", "few rows", "few sides", "always refined"])
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results are the same with too few rows to be exact, with attributes without rows, and with edges for all
    attributes that were ever in doubt."""
    if request.param != "as it is":
        monkeypatch.setattr(buckets, "MAX_ROWS", 2)
    if request.param == "few sides":
        monkeypatch.setattr(buckets, "MAX_SIDES", 2)
    if request.param == "always refined":
        monkeypatch.setattr(batch_index, "MANY_TESTS", 0)
        monkeypatch.setattr(batch_index, "SCRATCH_WORDS", 0)


@pytest.mark.usefixtures("variant")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(wanted, max_size=15), st.lists(st.one_of(events, range_events), max_size=6))
def test_it_agrees_with_a_scan(known: list[Any], found: list[Attributes]) -> None:
    index = BatchIndex(known)
    assert len(index) == len(known)
    agree(pickle.loads(pickle.dumps(index)), known, found)
    for _ in range(2):
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
def many(seed: int, count: int, whole: bool) -> tuple[list[Filter], np.ndarray, np.ndarray]:
    """Boxes over three attributes, with their ends: integers of a small domain, or doubles."""
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(1, 400, (count, 3, 2)) if whole else rng.random((count, 3, 2)), axis=2)
    asked = rng.random((count, 3)) < 0.6
    known = []
    for key in range(count):
        sides = [(f"a{a}", values_between(*ends[key, a].tolist())) for a in range(3) if asked[key, a]]
        known.append(Filter((Conjunction(tuple(sides)),)))
    lows, highs = np.where(asked, ends[:, :, 0], -np.inf), np.where(asked, ends[:, :, 1], np.inf)
    return known, lows, highs


@pytest.mark.parametrize(
    ("whole", "asked_with", "width"),
    [
        (True, "integers", 8),
        (True, "doubles", 8),
        (False, "integers", 8),
        (False, "doubles", 8),
        (True, "doubles", batch_table.WIDTH),
    ],
)
def test_it_agrees_over_several_blocks(
    whole: bool, asked_with: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All combinations with small blocks, and one of them with blocks of the real size."""
    for module in (batch_table, batch_index):
        monkeypatch.setattr(module, "WIDTH", width)
    monkeypatch.setattr(batch_table, "SLOTS", 64 * width)
    known, lows, highs = many(5, 3 * batch_table.SLOTS, whole)
    rng = np.random.default_rng(6)
    index = BatchIndex(known)
    drawn = rng.integers(0, 402, (40, 3)) if asked_with == "integers" else rng.random((40, 3)) * (400 if whole else 1)
    batch = Batch.of_columns(40, {f"a{a}": np.ascontiguousarray(drawn[:, a]) for a in range(3)})
    for _ in range(2):  # the second time with edges for the values that were in doubt
        offsets, keys = index.match_batch(batch)
        for at, event in enumerate(drawn):
            expected = np.flatnonzero((lows <= event).all(axis=1) & (event <= highs).all(axis=1))
            assert keys[offsets[at] : offsets[at + 1]].tolist() == expected.tolist()


def test_thousands_of_texts_are_distinguished() -> None:
    known = [parse(f"name = 'device-{key}' and x < {key}") for key in range(2000)]
    known += [parse(f"name prefix 'device-{key}'") for key in range(20)]
    index = BatchIndex(known)
    found: list[Attributes] = [{"name": f"device-{at}", "x": 1000} for at in (0, 7, 15, 999, 1001, 1999, 2000)]
    for _ in range(2):
        agree(index, known, found)


def test_a_filter_may_have_several_conjunctions_or_none() -> None:
    known = [parse("false"), parse("x > 0 or y = 1"), parse("x > 1"), *[parse("false")] * 9000]
    index = BatchIndex(known)
    agree(index, known, [{"x": 2, "y": 1}, {"x": 1}, {"y": 3}])


def test_an_empty_index_and_an_empty_batch_have_results() -> None:
    assert [found.tolist() for found in BatchIndex([]).match_batch(Batch.of([{"x": 1}]))] == [[0, 0], []]
    index = BatchIndex([parse("x = 1")])
    assert [found.tolist() for found in index.match_batch(Batch.of([]))] == [[0], []]
    assert [found.tolist() for found in index.count_batch(Batch.of([]))] == [[], [0]]


def test_a_copy_of_a_copy_has_all_conjunctions() -> None:
    known = [parse("x = 1"), parse("x = 1 or y = 2 and x < z"), parse("false")]
    copy = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(BatchIndex(known)))))
    agree(copy, known, [{"x": 1}, {"x": 1, "y": 2, "z": 3}, {"x": 4, "y": 2, "z": 3}])


@pytest.mark.parametrize("rows", [2, 5, 320])
@pytest.mark.parametrize("ends", [[0, 1, 2, 5, 7.5], [2**53 - 1, 2**53, 2**53 + 1, 2**60 + 1, 10**400]])
def test_the_neighbours_of_every_end_are_distinguished(
    rows: int, ends: list[int | float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "MAX_ROWS", rows)
    monkeypatch.setattr(batch_index, "MANY_TESTS", 0)
    pairs = [(low, high) for low in ends for high in ends if low <= high]
    sets = [values_between(low, high, *shut) for low, high in pairs for shut in product((False, True), repeat=2)]
    known = [Filter((Conjunction((("x", one),)),)) for one in sets if one]
    index = BatchIndex(known)
    found = [value for end in ends for value in (previous_value(end), end, next_value(end))]
    for _ in range(2):
        agree(index, known, [{"x": value} for value in found])
    small = [value for value in found if abs(value) < 2**62]
    for column in (np.array([int(value) for value in small]), np.array([float(value) for value in small])):
        offsets, ids = index.match_batch(Batch.of_columns(len(small), {"x": column}))
        expected = [scanned(known, {"x": value}) for value in column.tolist()]
        assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == expected
