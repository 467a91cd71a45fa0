"""Grids of narrow boxes find what a scan of all filters finds."""

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wend.matching import peer_bitmaps, peer_grids
from wend.matching.boxes import compact_conjunction
from wend.matching.filters import Filter, parse
from wend.matching.peer_bitmaps import PeerBitmapIndex
from wend.matching.peer_grids import BoxGrid, make_grid
from wend.model.events import Attributes, Range

NAMES = ("x", "y", "z")


@st.composite
def boxes(draw: Any) -> str:
    sides = []
    for name in draw(st.sampled_from([("x", "y"), ("x", "y"), ("x", "y", "z"), ("y", "z"), ("x",)])):
        low = draw(st.integers(0, 7))
        kind = draw(st.integers(0, 19))
        if kind == 0:
            sides.append(f"{name} >= {low}")
        elif kind == 1:
            sides.append(f"{name} < {low}.5")
        elif kind == 2:
            sides.append(f"{name} = '{draw(st.sampled_from(NAMES))}'")
        else:
            sides.append(f"{name} in [{low}, {low + draw(st.integers(0, 2))}]")
    return " and ".join(sides)


values = st.one_of(
    st.integers(-1, 9),
    st.integers(-1, 9),
    st.floats(-1, 9),
    st.sampled_from([True, float("nan"), "x", "y", Range(3, 5), Range(None, 2), Range("w", None), 10**30]),
)
events = st.one_of(
    st.fixed_dictionaries({name: st.integers(0, 8) for name in NAMES}),
    st.dictionaries(st.sampled_from(NAMES), values, max_size=3),
)
wanted = st.one_of(boxes(), boxes(), boxes(), st.just("x in {1, 5} and y = 2"), st.just("x > y"), st.just("true"))


@pytest.fixture(params=["usual", "crowded", "coarse", "any"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids of a few boxes."""
    monkeypatch.setattr(peer_bitmaps, "SMALLEST", 4)
    monkeypatch.setattr(peer_bitmaps, "SIZES", 1)
    if request.param == "crowded":
        monkeypatch.setattr(peer_grids, "CROWDED", 2)
    elif request.param == "coarse":
        monkeypatch.setattr(peer_grids, "MAX_BORDERS", 3)
    if request.param in ("any", "coarse"):
        monkeypatch.setattr(peer_grids, "FEW", 1000)


@pytest.mark.usefixtures("small")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 30), st.one_of(wanted, wanted, wanted, st.none())), min_size=10, max_size=60),
    st.lists(events, max_size=12),
)
def test_an_index_with_grids_agrees_with_a_scan(changes: Any, asked: list[Attributes]) -> None:
    index: PeerBitmapIndex[int] = PeerBitmapIndex()
    held: dict[int, Filter] = {}
    for at, (key, text) in enumerate(changes):
        index.discard(key)
        held.pop(key, None)
        if text is not None:
            held[key] = parse(text)
            index.add(key, [compact_conjunction(one) for one in held[key].conjunctions])
        if at % 7 == 0 and asked:
            index.match(asked[0])
    assert len(index) == len(held)
    assert all(key in index for key in held) and -1 not in index
    for event in asked:
        assert index.match(event) == tuple(sorted(key for key, one in held.items() if one.matches(event))), event
    for key in sorted(held):
        index.discard(key)
    assert not len(index) and index.match({"x": 1, "y": 1}) == ()


def narrow(count: int, span: int = 100_000) -> list[Any]:
    draw = Random(5)
    lows = [(draw.randrange(span), draw.randrange(span)) for _ in range(count)]
    return [("x", a, a + 200, "y", b, b + 1000) for a, b in lows]


def test_an_event_is_compared_with_few_of_many_narrow_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    index: PeerBitmapIndex[int] = PeerBitmapIndex()
    all_of_them = narrow(9000)
    for key, box in enumerate(all_of_them):
        index.add(key, [box])
    tried: list[Any] = []
    original = peer_grids.compact_matches
    monkeypatch.setattr(
        peer_grids, "compact_matches", lambda box, event: bool(tried.append(box)) or original(box, event)
    )
    for x in range(0, 100_000, 997):
        y = x * 7 % 100_000
        found = tuple(key for key, (_, a, b, _, c, d) in enumerate(all_of_them) if a <= x < b and c <= y < d)
        assert index.match({"x": x, "y": y}) == found
    assert len(tried) < 10 * len(range(0, 100_000, 997))


def test_wide_boxes_get_no_grid() -> None:
    draw = Random(5)
    wide = [("x", low, low + 500, "y", low, low + 400) for low in [draw.randrange(1000) for _ in range(1000)]]
    assert make_grid(wide) is None
    assert make_grid([("x", n, n + 1) for n in range(1000)]) is None
    assert make_grid(narrow(1000)) is not None


def test_boxes_beyond_the_borders_and_in_crowded_cells_belong_elsewhere() -> None:
    grid = BoxGrid("x", "y", narrow(1000))
    box = ("x", 500, 600, "y", 500, 600)
    assert [grid.add(key, box) for key in range(peer_grids.CROWDED + 1)] == [True] * peer_grids.CROWDED + [False]
    grid.discard(3)
    assert grid.add("last", box)
    assert not grid.add("beyond", ("x", 500_000, 500_100, "y", 500, 600))
    assert not grid.add("of texts", ("x", "a", "b", "y", 500, 600))
    assert not grid.add("with one side", ("x", 500, 600))
    assert grid.add("with more sides", ("a", "x", None, "x", 90_000, 90_100, "y", 500, 600))
    found: list[Any] = []
    grid.match({"a": "xy", "x": 90_050, "y": 550}, found)
    assert found == ["with more sides"]


def test_names_that_are_values_too_do_not_confuse_it() -> None:
    one = compact_conjunction(parse("a = 'x' and x in [1, 2] and y in [1, 2]").conjunctions[0])
    assert isinstance(one, tuple)
    grid = BoxGrid("x", "y", [one])
    assert grid.find_cells(one) is not None
