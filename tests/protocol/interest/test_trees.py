"""What is told along a tree, and where an event goes by it."""

from wend.matching.filters import parse
from wend.protocol.interest.trees import Table, reduced
from wend.protocol.trees.words import Wants

GENERATION = (1, 7)


def test_what_is_told_is_short() -> None:
    texts = ["x > 5", "x > 3", "y = 1", "x > 3"]
    assert reduced(texts, "identity") == tuple(sorted(str(parse(t)) for t in set(texts)))
    assert reduced(texts, "covering") == tuple(sorted(str(parse(t)) for t in ("x > 3", "y = 1")))
    halves = ["x in [0, 5]", "x in [5, 9]", "y = 1"]
    assert len(reduced(halves, "covering")) == 3
    assert reduced(halves, "merging") == tuple(sorted(str(parse(t)) for t in ("x in [0, 9]", "y = 1")))


def wants(version: int, *filters: str, peers: tuple[int, ...] = ()) -> Wants:
    return Wants(GENERATION, 0, version, filters, peers)


def told(table: Table, mine: tuple[str, ...]) -> list[tuple[int, int, tuple[str, ...]]]:
    return [(peer, word.version, word.filters) for peer, word in table.tell(mine, "covering")]


def test_a_neighbour_is_told_when_all_others_have_told() -> None:
    table = Table(1, GENERATION, 0, (2, 3))
    assert table.tell(("x = 1",), "covering") == []
    assert table.hear(2, wants(1, "x = 2", peers=(2, 5))) is True
    assert table.tell(("x = 1",), "covering") == [(3, wants(1, "x = 1", "x = 2", peers=(1, 2, 5)))]
    assert not table.ready
    assert table.hear(3, wants(1, peers=(3,))) is True
    assert table.ready
    assert table.members == {1, 2, 3, 5}
    assert table.tell(("x = 1",), "covering") == [(2, wants(1, "x = 1", peers=(1, 3)))]
    assert table.tell(("x = 1",), "covering") == []


def test_an_unsubscription_brings_back_what_was_covered() -> None:
    table = Table(1, GENERATION, 0, (2, 3))
    table.hear(2, wants(1, "x > 5"))
    assert told(table, ("x > 3",)) == [(3, 1, (str(parse("x > 3")),))]
    assert told(table, ()) == [(3, 2, (str(parse("x > 5")),))]
    table.hear(2, wants(2))
    assert told(table, ()) == [(3, 3, ())]


def test_an_event_goes_to_those_who_want_it_and_not_back() -> None:
    table = Table(1, GENERATION, 0, (2, 3, 4))
    for peer, text in ((2, "x > 5"), (3, "x > 3"), (4, "y = 1")):
        table.hear(peer, wants(1, text))
    assert table.hops({"x": 9}, 1) == [(2, ()), (3, ())]
    assert table.hops({"x": 9}, 2) == [(3, ())]
    assert table.hops({"y": 1}, 4) == []


def test_what_is_meant_for_some_goes_where_they_are_and_it_is_wanted() -> None:
    table = Table(1, GENERATION, 0, (2, 3, 4))
    table.hear(2, wants(1, "x > 5", peers=(2, 5, 6)))
    table.hear(3, wants(1, "x > 5", peers=(3, 7)))
    table.hear(4, wants(1, "y = 1", peers=(4, 8)))
    assert table.hops({"x": 9}, 1, (5, 6, 8)) == [(2, (5, 6))]
    assert table.behind(3) == {3, 7}


def test_what_comes_late_or_cannot_be_changes_nothing() -> None:
    table = Table(1, GENERATION, 0, (2,))
    assert table.hear(2, wants(3, "x = 1")) is True
    assert table.hear(2, wants(2, "x = 2")) is False
    assert table.hear(9, wants(1)) is None
    assert table.hear(2, wants(4, "x = = 1")) is None
    assert table.hear(2, wants(4, "x = 2", peers=(1, 2))) is None
    assert table.hear(2, wants(4, "x = 2", peers=(5,))) is None
    assert table.hops({"x": 1}, 0) == [(2, ())]
