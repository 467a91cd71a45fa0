import pytest
from hypothesis import given
from hypothesis import strategies as st

from wend.matching.filters import MAX_FILTER_CHARS, parse, topic_filter
from wend.matching.index import Index
from wend.model.errors import FilterError

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
    "text",
    ["", "topic", "topic =", "topic = a", "topic = 'a", "topic = 'a''", "topic = 'a\\'", "x = 'a'", "topic > 'a'"],
)
def test_what_cannot_be_read_is_said_in_one_sentence(text: str) -> None:
    with pytest.raises(FilterError, match="cannot read the filter") as error:
        parse(text)
    assert "\n" not in str(error.value)


def test_a_filter_has_a_bounded_length() -> None:
    with pytest.raises(FilterError, match=f"may have {MAX_FILTER_CHARS} characters"):
        parse(topic_filter("x" * MAX_FILTER_CHARS))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.sampled_from("abc")), max_size=60))
def test_the_index_answers_like_a_scan(changes: list[tuple[bool, int, str]]) -> None:
    index: Index[int] = Index()
    plain: dict[int, str] = {}
    for add, key, topic in changes:
        if add:
            index.add(key, parse(topic_filter(topic)))
            plain[key] = topic
        else:
            index.discard(key)
            plain.pop(key, None)
        assert len(index) == len(plain)
        for asked in "abc":
            expected = tuple(sorted(k for k, t in plain.items() if t == asked))
            assert index.match({"topic": asked}) == expected
            assert index.intersecting(parse(topic_filter(asked))) == expected
    assert index.match({"topic": 3}) == index.match({}) == ()
