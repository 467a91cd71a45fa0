"""The compiled index says what asking every filter says, whatever comes and goes."""

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching.strategies import events, filters, range_events
from wend.matching.batch import Batch
from wend.matching.bitmaps import BitmapIndex
from wend.matching.filters import Filter, parse
from wend.model.errors import ConfigError, FilterError
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
    batch = Batch.of(found)
    expected = [scanned(known, one) for one in found]
    offsets, ids = index.match_batch(batch)
    assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == expected
    assert [list(index.match(one)) for one in found] == expected
    assert [index.match_array(one).tolist() for one in found] == expected
    per_event, per_key = index.count_batch(batch)
    assert per_event.tolist() == [len(one) for one in expected]
    assert dict(zip(index.keys(), per_key.tolist(), strict=True)) == {
        key: sum(key in one for one in expected) for key in sorted(known)
    }


steps = st.lists(st.tuples(st.integers(0, 12), st.one_of(st.none(), wanted)), max_size=25)


@settings(max_examples=300, deadline=None)
@given(st.lists(wanted, max_size=8), steps, st.lists(st.one_of(events, range_events), max_size=6))
def test_it_agrees_with_asking_every_filter(first: list[Any], changes: Any, found: list[Attributes]) -> None:
    known = dict(enumerate(first))
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
    agree(index, known, found)
    agree(pickle.loads(pickle.dumps(index)), known, found)


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
        (np.zeros((2, 2)), "has 2 dimensions"),
        (np.zeros(2, dtype=complex), "holds complex128"),
    ],
)
def test_a_column_that_events_cannot_have_is_refused(column: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Batch.of_columns(2, {"x": column})
