"""The index of a peer: topics in a dictionary, other filters in a list or in bitmaps, with the same results."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.matching.strategies import filters, range_events
from wend.matching import peer_bitmaps, peer_blocks
from wend.matching.boxes import compact_filter, compact_matches
from wend.matching.filters import Filter, parse
from wend.matching.index import Index
from wend.model.errors import FilterError
from wend.model.events import Attributes, Range


def readable(text: str) -> Filter | None:
    try:
        return parse(text)
    except FilterError:
        return None


topics = st.sampled_from(["t", "u", "v"])
wanted = st.one_of(
    topics.map(lambda topic: parse(f"topic = '{topic}'")),
    filters.map(readable).filter(lambda one: one is not None),
    st.tuples(topics, st.integers(0, 3)).map(lambda pair: parse(f"topic >= '{pair[0]}' and a > {pair[1]}")),
)
named = st.one_of(st.just({}), topics.map(lambda topic: {"topic": topic}), st.just({"topic": Range("t", "u")}))
asked = st.tuples(named, range_events).map(lambda parts: parts[0] | parts[1])


FORMS = ["a list", "few rows", "few sides", "small blocks", "small blocks, many rows"]


@pytest.fixture(params=[*FORMS, "rare sides"])
def many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results are the same in all forms: with too few rows to be exact, with attributes without rows, and with
    short-lived blocks."""
    if request.param == "few rows":
        monkeypatch.setattr(peer_bitmaps, "SMALLEST", 4)
    if request.param in ("few rows", "few sides", "small blocks"):
        monkeypatch.setattr(peer_blocks, "MAX_ROWS", 2)
    if request.param == "few sides":
        monkeypatch.setattr(peer_blocks, "MAX_SIDES", 1)
    if request.param in ("small blocks", "few sides", "small blocks, many rows"):
        monkeypatch.setattr(peer_bitmaps, "SMALLEST", 1)
        monkeypatch.setattr(peer_bitmaps, "SIZES", 3)
    if request.param == "rare sides":
        monkeypatch.setattr(peer_bitmaps, "SMALLEST", 5)
        monkeypatch.setattr(peer_blocks, "RARE", 2)


SIDES = (
    "a > 5",
    "a < 5.5",
    "a <= 5",
    "a != 5",
    "a in {3, 5}",
    "a = 'x'",
    "a exists",
    "a = true",
    "a absent",
    "b = 1 and a >= 9007199254740993",
)
NEAR = (
    None,
    4,
    5,
    6,
    5.0,
    5.2,
    5.7,
    True,
    "x",
    "y",
    2**53,
    2**53 + 1,
    2**53 + 2,
    -(10**30),
    10**30,
    Range(4, 6),
    Range("w", None),
)


@pytest.mark.parametrize("text", [*SIDES, "a = 1 or b = 1", "a > b", "false"])
def test_a_compact_filter_fits_the_events_that_it_matches(text: str) -> None:
    wanted = parse(text)
    for value in NEAR:
        event: Attributes = {"b": 1} if value is None else {"a": value, "b": 1}
        assert compact_matches(compact_filter(wanted), event) == wanted.matches(event), value


@pytest.mark.usefixtures("many")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), wanted, wanted)), max_size=25),
    st.lists(asked, max_size=5),
)
def test_it_agrees_with_a_scan(changes: Any, found: list[Attributes]) -> None:
    index: Index[int] = Index()
    known: dict[int, Filter] = {}
    for key, one in changes:
        if one is None:
            index.discard(key)
            known.pop(key, None)
        else:
            index.add(key, one)
            known[key] = one
    assert len(index) == len(known)
    assert {key: index.filter(key) for key in known} == known
    for attributes in found:
        assert list(index.match(attributes)) == sorted(k for k, one in known.items() if one.matches(attributes))


def test_topics_alone_need_no_bitmaps() -> None:
    index: Index[int] = Index()
    for key in range(200):
        index.add(key, parse(f"topic = 't{key % 7}'"))
    assert index.has_only_topics
    assert index.match({"topic": "t3", "x": 1}) == tuple(range(3, 200, 7))
    index.add(500, parse("x = 1"))
    assert not index.has_only_topics
    assert index.match({"topic": "t3", "x": 1}) == (*range(3, 200, 7), 500)


def test_a_peer_imports_no_compiler() -> None:
    code = (
        "import sys\n"
        "from wend.matching.filters import parse\n"
        "from wend.matching.index import Index\n"
        "index = Index()\n"
        "for key in range(200):\n"
        "    index.add(key, parse(f'x < {key} and y exists'))\n"
        "assert index.match({'x': 197.5, 'y': True}) == (198, 199)\n"
        "assert not {'numba', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
