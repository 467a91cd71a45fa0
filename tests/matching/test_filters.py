"""The interface for the rest of Wend: topics, the cache, the index, and the command."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import raises
from wend.matching import filters
from wend.matching.filters import MAX_FILTER_CHARS, parse, topic_filter
from wend.matching.index import Index
from wend.model.events import Range

topics = st.text(max_size=40)


@given(topics)
def test_a_topic_survives_its_filter_text(topic: str) -> None:
    assert parse(topic_filter(topic)).topic == topic


@given(topics, topics)
def test_a_filter_matches_its_topic_alone(a: str, b: str) -> None:
    wanted = parse(topic_filter(a))
    assert wanted.matches({"topic": b}) == (a == b)
    assert wanted.intersects(parse(topic_filter(b))) == (a == b)
    assert not wanted.matches({"other": a})


def test_both_quotes_and_spaces_are_read() -> None:
    assert parse(" topic='a b' ") == parse('topic  =  "a b"') == parse("topic = 'a b'")


@pytest.mark.parametrize(
    "text", ["topic prefix 'a'", "topic in {'a', 'b'}", "topic = 'a' and x = 1", "x = 'a'", "false"]
)
def test_only_a_topic_alone_is_a_topic(text: str) -> None:
    assert parse(text).topic is None


def test_a_filter_has_a_bounded_length() -> None:
    with raises("filter-too-large", match=f"may have {MAX_FILTER_CHARS} characters"):
        parse(topic_filter("x" * MAX_FILTER_CHARS))


def test_the_same_text_is_parsed_once_and_large_ones_are_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse("x = 1 and y = 2") is parse("x = 1 and y = 2")
    large = topic_filter("x" * 1000)
    assert parse(large) == parse(large) and parse(large) is not parse(large)
    monkeypatch.setattr(filters, "CACHED", 50)
    in_use = parse("x = -1")
    for number in range(500):
        parse(f"x = {number}")
        assert 0 < len(vars(filters)["_recent"]) <= filters.CACHED
    assert parse("x = -1") is in_use


FILTERS = [
    "topic = 'a'",
    "topic = 'b'",
    "topic = 'a' and x > 2",
    "x in [1, 3]",
    "x absent",
    "topic prefix ''",
    "topic = 'a' or x = 2",
    "topic < other",
    "false",
    "true",
]
EVENTS = [
    {},
    {"topic": "a"},
    {"topic": "b", "x": 2},
    {"topic": "a", "x": 3, "other": "b"},
    {"topic": 3},
    {"topic": Range("a", "c")},
    {"topic": Range("b", None, low_open=True), "x": Range(3, 9)},
]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.sampled_from(FILTERS)), max_size=40))
def test_the_index_agrees_with_a_scan(changes: list[tuple[bool, int, str]]) -> None:
    index: Index[int] = Index()
    plain: dict[int, str] = {}
    for add, key, text in changes:
        if add:
            index.add(key, parse(text))
            plain[key] = text
        else:
            index.discard(key)
            plain.pop(key, None)
    assert len(index) == len(plain)
    for event in EVENTS:
        assert index.match(event) == tuple(sorted(k for k, t in plain.items() if parse(t).matches(event)))


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wend.matching", *words], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_command_prints_the_canonical_form() -> None:
    done = command("price < 10 and alert = 'warning' or not (x in ]1, 2[)")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "alert = 'warning' and price < 10 or x <= 1 or x >= 2\n"


def test_the_command_shows_the_error() -> None:
    done = command("price < and x = 1")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines()[1:] == ["  price < and x = 1", "          ^"]
    assert command().returncode == 2
