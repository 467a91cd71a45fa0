"""Trees built message by message are those that Kruskal's algorithm finds, whatever the delays."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.trees.forests import Talk, around, edges, kruskal, random_weights
from wend.strategies.trees.ghs import PATIENCE, GhsBuilder
from wend.strategies.trees.messages import Accept, ChangeCore, Complete, Connect, Initiate, Probe, Reject, Report


def build(weights: dict[tuple[int, int], float], k: int, seed: int) -> Talk:
    peers = sorted({peer for edge in weights for peer in edge})
    return Talk({peer: GhsBuilder(peer, k, around(peer, weights)) for peer in peers}, seed)


def check(weights: dict[tuple[int, int], float], k: int, seed: int) -> None:
    talk = build(weights, k, seed)
    expected = kruskal(weights, k)
    for peer, forest in talk.builders.items():
        mine = [{edge for edge in tree if peer in edge} for tree in expected]
        assert edges(forest.branches, peer, k) == mine, f"peer {peer}, k = {k}, seed {seed}"
        assert forest.is_decided
        assert forest.is_complete


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_200_random_graphs_with_random_delays_give_kruskals_trees(k: int) -> None:
    for seed in range(200):
        check(random_weights(seed, 2 + seed % 17, seed % 41, 1 + seed % 9), k, seed)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(2, 12), st.integers(0, 40), st.integers(1, 50), st.integers(1, 4), st.integers()
)
def test_any_graph_and_any_delays_give_kruskals_trees(
    graph: int, peers: int, more: int, values: int, k: int, delays: int
) -> None:
    check(random_weights(graph, peers, more, values), k, delays % 10**9)


def test_two_peers_share_their_only_link_in_every_tree() -> None:
    check({(0, 1): 0.5}, 4, 0)


def test_a_peer_without_links_is_complete() -> None:
    forest = GhsBuilder(7, 3, {})
    assert forest.start() == []
    assert forest.is_complete and forest.is_decided


def test_later_trees_avoid_links_that_are_used() -> None:
    ring = {(0, 1): 0.1, (1, 2): 0.2, (2, 3): 0.3, (0, 3): 0.4}
    first, second = kruskal(ring, 2)
    assert (0, 3) not in first and (0, 3) in second
    check(ring, 2, 1)


def test_one_link_message_by_message() -> None:
    forest = GhsBuilder(1, 1, {2: 0.25})
    key = (0, 0.25, 1, 2)
    assert forest.start() == [(2, Connect(0, 0))]
    assert forest.on_message(2, Connect(0, 0)) == [(2, Initiate(0, 1, key, True))]
    assert forest.on_message(2, Initiate(0, 1, key, True)) == [(2, Report(0, None))]
    assert not forest.is_complete
    assert forest.on_message(2, Report(0, None)) == []
    assert forest.is_complete
    assert forest.branches(0) == (2,)


def test_what_concerns_a_link_that_has_not_reached_the_tree_waits() -> None:
    forest = GhsBuilder(1, 2, {2: 0.25, 3: 0.5})
    assert forest.start() == [(2, Connect(0, 0))]
    # the other end has handed the link to 3 on, this one has not
    assert forest.on_message(3, Connect(1, 0)) == []
    assert forest.on_message(3, Probe(1, 1, (0, 0.5, 1, 3))) == []


@pytest.mark.parametrize(
    "message", [Accept(0), Reject(0), Report(0, None), ChangeCore(0), Connect(5, 0), Complete(), Connect(-1, 0)]
)
def test_messages_that_make_no_sense_are_told_apart(message: object) -> None:
    forest = GhsBuilder(1, 1, {2: 0.25})
    forest.start()
    assert forest.on_message(3, message) is None  # type: ignore[arg-type]
    if not isinstance(message, Report | Complete):
        assert forest.on_message(2, message) is None  # type: ignore[arg-type]


def test_a_neighbour_cannot_fill_the_memory_with_messages_that_wait() -> None:
    forest = GhsBuilder(1, 2, {2: 0.25, 3: 0.5})
    forest.start()
    assert [forest.on_message(3, Connect(1, 0)) for _ in range(PATIENCE + 2)] == [[]] * PATIENCE + [None, None]


def test_messages_grow_with_links_and_trees_as_ghs_bounds_them() -> None:
    """At most 2 E + 5 N log2 N per tree (the GHS bound), and N to say that all stand."""
    peers, k = 60, 3
    weights = random_weights(5, peers, 300, 1000)
    talk = build(weights, k, 5)
    bound = k * (2 * len(weights) + 5 * peers * (peers.bit_length())) + peers
    assert sum(talk.said.values()) < bound
