"""What is told along a tree, and where an event goes by it."""

from wend.matching.filters import parse
from wend.strategies.trees.messages import FilterDemand, SubtreeInterest
from wend.strategies.trees.table import WIDE_CHARS, RouteCost, TreeInterestTable, reduce_filters

GENERATION = (1, 7, 1)
LINK = 100


def of(*neighbours: int, shared: tuple[int, ...] = (), through: int = 0) -> TreeInterestTable:
    return TreeInterestTable(1, GENERATION, 0, {n: (LINK, n in shared) for n in neighbours}, through)


def wants(version: int, *filters: str, peers: tuple[int, ...] = (2,), need: float = 1.0) -> SubtreeInterest:
    claims = (FilterDemand(need, 0, 0, filters),) if filters else ()
    return SubtreeInterest(GENERATION, 0, version, claims, tuple((peer, 0, 0) for peer in peers))


def told(table: TreeInterestTable, *mine: str) -> list[tuple[int, int, tuple[str, ...]]]:
    return [
        (peer, said.version, tuple(text for claim in said.claims for text in claim.filters))
        for peer, said in table.updates(dict.fromkeys(mine, 1.0), "covering")
    ]


def test_what_is_told_is_short() -> None:
    texts = ["x > 5", "x > 3", "y = 1", "x > 3"]
    assert reduce_filters(texts, "identity") == tuple(sorted(str(parse(t)) for t in set(texts)))
    assert reduce_filters(texts, "covering") == tuple(sorted(str(parse(t)) for t in ("x > 3", "y = 1")))
    halves = ["x in [0, 5]", "x in [5, 9]", "y = 1"]
    assert len(reduce_filters(halves, "covering")) == 3
    assert reduce_filters(halves, "merging") == tuple(sorted(str(parse(t)) for t in ("x in [0, 9]", "y = 1")))


def test_a_neighbour_is_told_when_all_others_have_told() -> None:
    table = of(2, 3)
    assert told(table, "x = 1") == []
    assert table.on_interest(2, wants(1, "x = 2", peers=(2, 5))) is True
    assert told(table, "x = 1") == [(3, 1, ("x = 1", "x = 2"))]
    assert not table.is_ready
    assert table.on_interest(3, wants(1, peers=(3,))) is True
    assert table.is_ready
    assert table.members == {1, 2, 3, 5}
    [(peer, said)] = table.updates({"x = 1": 1.0}, "covering")
    assert (peer, said.peers) == (2, ((1, 0, 0), (3, LINK, 0)))
    assert told(table, "x = 1") == []


def test_an_unsubscription_brings_back_what_was_covered() -> None:
    table = of(2, 3)
    table.on_interest(2, wants(1, "x > 5"))
    assert told(table, "x > 3") == [(3, 1, (str(parse("x > 3")),))]
    assert told(table) == [(3, 2, (str(parse("x > 5")),))]
    table.on_interest(2, wants(2))
    assert told(table) == [(3, 3, ())]


def test_a_side_that_wants_more_than_can_be_told_wants_everything() -> None:
    """Many peers, each within its own limit, may together be too much for one message."""
    many = tuple(f"topic = '{i:04d}{'x' * 996}'" for i in range(WIDE_CHARS // 1000))
    table = of(2, 3, 4)
    table.on_interest(2, wants(1, *many[::2]))
    table.on_interest(3, wants(1, *many[1::2], peers=(3,), need=0.9))
    [(peer, said)] = table.updates({}, "covering")
    assert (peer, table.asks_for_all[4]) == (4, True)
    assert said.claims == (FilterDemand(0.9, LINK, 0, ("true",)), FilterDemand(1.0, LINK, 0, ("true",)))
    table.on_interest(3, wants(2, peers=(3,)))
    [(peer, said)] = [one for one in table.updates({}, "covering") if one[0] == 4]
    assert ([claim.need for claim in said.claims], table.asks_for_all[4]) == ([1.0], False)
    assert set(said.claims[0].filters) == {str(parse(text)) for text in many[::2]}


def test_targets_are_told_apart_with_the_worst_route_to_each() -> None:
    table = of(2, 3, 4, shared=(3,), through=7)
    table.on_interest(2, wants(1, "x > 5", "y = 1", need=0.9))
    table.on_interest(3, wants(1, "x > 3", peers=(3,), need=0.9))
    [(peer, said)] = table.updates({"x > 9": 1.0, "x > 8": 0.9}, "covering")
    assert peer == 4
    tight = tuple(sorted(str(parse(t)) for t in ("x > 3", "y = 1")))
    assert said.claims == (FilterDemand(0.9, LINK, LINK + 7, tight), FilterDemand(1.0, 0, 0, (str(parse("x > 9")),)))
    assert table.worst_match({"x": 4}) == (0.9, RouteCost(0, LINK))
    assert table.worst_match({"x": 6}) == (0.9, RouteCost(LINK, LINK))
    assert table.worst_match({"z": 1}) is None


def test_an_event_goes_to_those_who_want_it_and_not_back() -> None:
    table = of(2, 3, 4)
    for peer, text in ((2, "x > 5"), (3, "x > 3"), (4, "y = 1")):
        table.on_interest(peer, wants(1, text, peers=(peer,)))
    assert table.hops({"x": 9}, 1) == [(2, ()), (3, ())]
    assert table.hops({"x": 9}, 2) == [(3, ())]
    assert table.hops({"y": 1}, 4) == []


def test_what_is_meant_for_some_goes_where_they_are_and_it_is_wanted() -> None:
    table = of(2, 3, 4)
    table.on_interest(2, wants(1, "x > 5", peers=(2, 5, 6)))
    table.on_interest(3, wants(1, "x > 5", peers=(3, 7)))
    table.on_interest(4, wants(1, "y = 1", peers=(4, 8)))
    assert table.hops({"x": 9}, 1, (5, 6, 8)) == [(2, (5, 6))]
    assert table.peers_behind(3) == {3, 7}


def test_what_comes_late_or_cannot_be_changes_nothing() -> None:
    table = of(2)
    assert table.on_interest(2, wants(3, "x = 1")) is True
    assert table.on_interest(2, wants(2, "x = 2")) is False
    assert table.on_interest(9, wants(1)) is None
    assert table.on_interest(2, wants(4, "x = = 1")) is None
    assert table.on_interest(2, wants(4, "x = 2", peers=(1, 2))) is None
    assert table.on_interest(2, wants(4, "x = 2", peers=(5,))) is None
    for need in (0.0, -1.0, 1.5, float("nan")):
        assert table.on_interest(2, wants(4, "x = 2", need=need)) is None
    for cost in (-LINK - 1, -1 << 60):
        assert (
            table.on_interest(
                2, SubtreeInterest(GENERATION, 0, 4, (FilterDemand(0.9, cost, 0, ("x = 2",)),), ((2, 0, 0),))
            )
            is None
        )
        assert table.on_interest(2, SubtreeInterest(GENERATION, 0, 4, (), ((2, cost, 0),))) is None
    assert table.hops({"x": 1}, 0) == [(2, ())]
