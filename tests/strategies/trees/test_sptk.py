"""Shortest-path trees with penalised reuse: built by messages they are those that one who sees all would build."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.trees.forests import Edge, Talk, around, edges, random_weights
from wend.strategies.trees.messages import (
    Begin,
    Best,
    Distances,
    Echo,
    Explore,
    Measure,
    Parents,
    Settled,
    Sizes,
    TreesComplete,
)
from wend.strategies.trees.sptk import EARLY, SptBuilder, draw_lot, link_cost


def central(weights: dict[Edge, float], k: int, roots: int, penalty: float) -> list[set[Edge]]:
    """Bellman and Ford from each root, the root with the least cost between all pairs, tree after tree."""
    peers = sorted({peer for edge in weights for peer in edge})
    tried = sorted((draw_lot(0, peer), peer) for peer in peers)[:roots]
    used = dict.fromkeys(weights, 0)
    trees = []
    for _ in range(k):
        costs = {edge: round(link_cost(w) * (1 + penalty * used[edge])) for edge, w in weights.items()}
        offered = []
        for place, (_, root) in enumerate(tried):
            distance = {peer: 0 if peer == root else 1 << 60 for peer in peers}
            for _ in peers:
                for (a, b), c in costs.items():
                    distance[a] = min(distance[a], distance[b] + c)
                    distance[b] = min(distance[b], distance[a] + c)
            tree = set()
            for peer in peers:
                if peer != root:
                    ways = [(distance[a + b - peer] + c, a + b - peer) for (a, b), c in costs.items() if peer in (a, b)]
                    tree.add((min(peer, min(ways)[1]), max(peer, min(ways)[1])))
            offered.append((between_all(tree, costs, peers), place, tree))
        best = min(offered)[2]
        trees.append(best)
        for edge in best:
            used[edge] += 1
    return trees


def between_all(tree: set[Edge], costs: dict[Edge, int], peers: list[int]) -> int:
    total = 0
    for start in peers:
        distance, fresh = {start: 0}, [start]
        while fresh:
            here = fresh.pop()
            for edge in tree:
                if here in edge and sum(edge) - here not in distance:
                    distance[sum(edge) - here] = distance[here] + costs[edge]
                    fresh.append(sum(edge) - here)
        total += sum(distance.values())
    return total // 2


def check(weights: dict[Edge, float], k: int, seed: int, roots: int = 3, penalty: float = 1.0) -> Talk:
    peers = sorted({peer for edge in weights for peer in edge})
    coordinator = peers[seed % len(peers)]
    talk = Talk(
        {peer: SptBuilder(peer, k, around(peer, weights), coordinator, roots=roots, penalty=penalty) for peer in peers},
        seed,
    )
    expected = central(weights, k, roots, penalty)
    for peer, forest in talk.builders.items():
        mine = [{edge for edge in tree if peer in edge} for tree in expected]
        assert edges(forest.branches, peer, k) == mine, f"peer {peer}, k = {k}, seed {seed}"
        assert forest.is_decided and forest.is_complete
    return talk


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_random_graphs_with_random_delays_give_the_trees_of_one_who_sees_all(k: int) -> None:
    for seed in range(30):
        weights = {e: w / 2 for e, w in random_weights(seed, 2 + seed % 12, seed % 31, 2 + seed % 9).items()}
        check(weights, k, seed, roots=1 + seed % 4)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(2, 10), st.integers(0, 30), st.integers(1, 50), st.integers(1, 3), st.integers()
)
def test_any_graph_and_any_delays(graph: int, peers: int, more: int, values: int, k: int, delays: int) -> None:
    weights = {e: w / 3 for e, w in random_weights(graph, peers, more, values).items()}
    check(weights, k, delays % 10**9, penalty=2.0)


def test_a_peer_alone_has_trees_without_links() -> None:
    forest = SptBuilder(7, 3, {}, 7)
    assert forest.start() == []
    assert forest.is_complete and forest.is_decided
    assert forest.branches(2) == ()


def test_links_that_are_used_cost_more() -> None:
    """A square: the second tree takes the link that the first did without."""
    square = {(0, 1): 0.1, (1, 2): 0.1, (2, 3): 0.1, (0, 3): 0.3}
    first, second = central(square, 2, 1, 5.0)
    assert first != second
    check(square, 2, 3, roots=1, penalty=5.0)


def test_messages_that_make_no_sense_are_told_apart() -> None:
    messages = [
        Echo(1, ()),
        Begin(1, (1,), 2, 0),
        Settled(0),
        Settled(-1),
        Measure(-1),
        Best(7, 1.0, 0),
        TreesComplete(0),
        Distances(3, ()),
    ]
    forest = SptBuilder(1, 2, {2: 0.1, 3: 0.1}, 2)
    assert forest.on_message(2, Explore()) == [(3, Explore())]
    assert forest.on_message(9, Explore()) is None
    assert [forest.on_message(2, message) for message in messages] == [None] * len(messages)  # type: ignore[arg-type]
    early = [forest.on_message(3, Parents(0, ())) for _ in range(EARLY + 1)]
    assert early == [[]] * EARLY + [None]
    assert forest.on_message(2, Sizes(5, ())) is None
