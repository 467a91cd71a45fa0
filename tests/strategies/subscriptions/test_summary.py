"""The summary covers every filter of its peer at any time, and stays within its bound."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wend.matching.filters import Filter, parse
from wend.model.events import Attributes, Qos
from wend.strategies.subscriptions import summary as levels
from wend.strategies.subscriptions.summary import FilterSummary, Member

VALUES = (None, -1, 0, 1, 2.5, 7, "", "a", "a/b", "a/c", "b", "zz", True, False)


class Peer:
    """Some subscriptions and their summary."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.known: dict[int, tuple[str, Filter, Qos]] = {}
        self.summary = FilterSummary(self.members, limit)
        self.taken: dict[int, tuple[str, Qos]] = {}
        """What a neighbour knows that gets every change."""

    def members(self) -> Iterator[Member]:
        for number, (text, wanted, qos) in self.known.items():
            yield number, text, wanted, qos

    def add(self, number: int, text: str, qos: Qos = Qos()) -> None:  # noqa: B008
        self.known[number] = (text, parse(text), qos)
        self.summary.add(number, *self.known[number])

    def discard(self, number: int) -> None:
        _, wanted, qos = self.known.pop(number)
        self.summary.discard(number, wanted, qos)

    def take(self) -> None:
        whole, entries = self.summary.is_replaced, self.summary.entries()
        for number in self.summary.take_changes():
            self.taken.pop(number, None)
            if number in entries:
                self.taken[number] = entries[number]
        if whole:
            self.taken = entries

    def check(self, events: list[Attributes]) -> None:
        entries = self.summary.entries()
        assert len(entries) == len(self.summary)
        assert self.summary.size == sum(levels.entry_bytes(text) for text, _ in entries.values())
        assert self.summary.size <= max(self.limit, 4 * levels.entry_bytes("true"))
        wide = [(parse(text), qos) for text, qos in entries.values()]
        for _, wanted, qos in self.known.values():
            for event in events:
                if wanted.matches(event):
                    covering = [q for one, q in wide if one.matches(event)]
                    assert covering, f"nothing covers {wanted} for {event}"
                    assert any(as_strict(q, qos) for q in covering)


def as_strict(a: Qos, b: Qos) -> bool:
    """Whether what satisfies the first satisfies the second."""
    return (
        (b.deadline_ns is None or (a.deadline_ns is not None and a.deadline_ns <= b.deadline_ns))
        and (b.factor is None or (a.factor is not None and a.factor <= b.factor))
        and (a.reliability is None or (b.reliability is not None and a.reliability >= b.reliability))
        and (a.order or not b.order)
        and (not a.expire or (b.expire and a.deadline_ns == b.deadline_ns and a.factor == b.factor))
    )


def drawn_filter(draw: random.Random) -> str:
    def side(name: str) -> str:
        number, text = draw.choice((-3, 0, 1, 2.5, 6)), draw.choice(("", "a", "a/b", "a/bc", "b", "\U0010ffff"))
        return draw.choice(
            (
                f"{name} = {number}",
                f"{name} != {number}",
                f"{name} < {number}",
                f"{name} >= {number}",
                f"{name} in {{0, 2.5, 7}}",
                f"{name} in [{number}, {number + draw.randrange(5)}]",
                f"{name} = '{text}'",
                f"{name} prefix '{text}'",
                f"{name} > '{text}'",
                f"{name} = true",
                f"{name} exists",
                f"{name} absent",
                f"{name} < other",
                f"{name} >= 2 * other",
            )
        )

    topic = draw.choice((f"topic = '{draw.choice('ab')}/{draw.randrange(40)}'", "topic prefix 'a/'", "true"))
    sides = [topic, *(side(name) for name in draw.sample(("topic", "x", "y", "z"), draw.randrange(3)))]
    text = " and ".join(sides)
    return f"{text} or {side('x')}" if draw.random() < 0.1 else text


def drawn_qos(draw: random.Random) -> Qos:
    if draw.random() < 0.5:
        return Qos()
    kind, reliability = draw.randrange(3), draw.choice((None, 0.5, 0.9))
    deadline, factor = draw.randrange(1, 9) if kind == 1 else None, float(kind) if kind == 2 else None
    return Qos(deadline, factor, reliability, draw.random() < 0.2, draw.random() < 0.5)


def drawn_event(draw: random.Random) -> Attributes:
    found = {name: draw.choice(VALUES) for name in ("x", "y", "z", "other")}
    topic = f"{draw.choice('ab')}/{draw.randrange(40)}" if draw.random() < 0.8 else draw.choice(VALUES)
    return {name: value for name, value in {**found, "topic": topic}.items() if value is not None}


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from((200, 600, 1500, 4000)))
def test_it_covers_every_filter_at_all_times(seed: int, limit: int) -> None:
    draw = random.Random(seed)
    events = [drawn_event(draw) for _ in range(20)]
    peer = Peer(limit)
    for number in range(100):
        if peer.known and draw.random() < (0.3 if number < 50 else 0.8):
            peer.discard(draw.choice(list(peer.known)))
        else:
            peer.add(number, drawn_filter(draw), drawn_qos(draw))
        if number % 10 == 0:
            peer.check(events)
            peer.take()
            assert peer.taken == peer.summary.entries()
    for number in list(peer.known):
        peer.discard(number)
    peer.check(events)
    peer.take()
    assert peer.taken == peer.summary.entries() == {}


@pytest.mark.parametrize(
    "pattern, event, no_event",
    [
        ("topic = 't{}' and x in [{}, {}]", {"topic": "t7", "x": 7}, {"topic": "u", "x": 7}),
        ("topic = 'a/{}/{}'", {"topic": "a/1/1"}, {"topic": "b/1/1"}),
        ("x > {} and x < {}{}", {"x": 8}, {"x": -1}),
    ],
)
def test_many_filters_become_few_entries_and_exact_ones_when_they_are_few_again(
    pattern: str, event: Attributes, no_event: Attributes
) -> None:
    peer = Peer(3000)
    for number in range(300):
        peer.add(number, pattern.format(number, number, number + 1))
    assert not peer.summary.is_exact
    wide = [parse(text) for text, _ in peer.summary.entries().values()]
    assert any(one.matches(event) for one in wide) and not any(one.matches(no_event) for one in wide)
    peer.take()
    for number in range(4, 300):
        peer.discard(number)
    assert peer.summary.is_exact and peer.summary.is_replaced
    assert {text for text, _ in peer.summary.entries().values()} == {text for text, _, _ in peer.known.values()}


def test_a_change_that_the_summary_covers_changes_nothing() -> None:
    peer = Peer(2000)
    for number in range(200):
        peer.add(number, f"topic = 't' and x in [{number}, {number + 10}]", Qos(deadline_ns=10))
    peer.take()
    assert peer.taken == {-1: ("topic = 't' and x in [0, 209]", Qos(deadline_ns=10))}
    peer.add(1000, "topic = 't' and x in [4, 5]", Qos(deadline_ns=20))
    peer.discard(7)
    assert not peer.summary.has_changes
    peer.add(1001, "topic = 't' and x in [4, 300]", Qos(deadline_ns=5))
    peer.add(1002, "topic = 'u' and x = 1")
    assert peer.summary.take_changes() == (-2, -1)
    peer.add(1003, "topic = 'v' and x = 1")
    peer.discard(1003)
    assert not peer.summary.has_changes, "nobody has learned of it"
