"""Shortest paths against scipy and against plain enumeration."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import dijkstra

from wend.topology import paths
from wend.topology.graph import Overlay, OverlayLink
from wend.topology.overlay_routes import shortest_delays

Costs = dict[int, dict[int, int]]


@st.composite
def graphs(draw: st.DrawFn, costs: st.SearchStrategy[int]) -> Costs:
    peers = draw(st.integers(2, 6))
    pairs = [(a, b) for a in range(peers) for b in range(a + 1, peers)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True))
    found: Costs = {p: {} for p in range(peers)}
    for a, b in chosen:
        found[a][b] = found[b][a] = draw(costs)
    return found


def simple_paths(costs: Costs, source: int, target: int, seen: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if source == target:
        yield (*seen, target)
        return
    for there in costs[source]:
        if there not in seen and there != source:
            yield from simple_paths(costs, there, target, (*seen, source))


def length(costs: Costs, path: tuple[int, ...]) -> int:
    return sum(costs[a][b] for a, b in pairwise(path))


def matrix(costs: Costs) -> np.ndarray:
    dense = np.zeros((len(costs), len(costs)))
    for a, row in costs.items():
        for b, cost in row.items():
            dense[a, b] = cost
    return dense


wide = st.integers(1, 10**9)
narrow = st.integers(1, 3)


@given(graphs(wide | narrow))
def test_distances_are_those_of_scipy(costs: Costs) -> None:
    expected = dijkstra(matrix(costs))
    for source in costs:
        distance, parent = paths.shortest_path_tree(costs, source)
        assert distance == {p: int(d) for p, d in enumerate(expected[source]) if np.isfinite(d)}
        for target in distance:
            assert length(costs, paths.path_in_tree(parent, source, target)) == distance[target]


@given(graphs(narrow))
def test_of_equal_paths_the_parent_with_the_lowest_id_wins(costs: Costs) -> None:
    distance, parent = paths.shortest_path_tree(costs, 0)
    for there, chosen in parent.items():
        equal = [p for p in costs[there] if p in distance and distance[p] + costs[p][there] == distance[there]]
        assert chosen == min(equal)


@given(graphs(narrow))
def test_the_order_in_which_links_are_listed_does_not_matter(costs: Costs) -> None:
    turned = {a: dict(reversed(list(costs[a].items()))) for a in reversed(list(costs))}
    for source in costs:
        assert paths.shortest_path_tree(costs, source) == paths.shortest_path_tree(turned, source)


def test_a_walk_to_nowhere_is_empty() -> None:
    _, parent = paths.shortest_path_tree({0: {1: 1}, 1: {0: 1}, 2: {}}, 0)
    assert paths.path_in_tree(parent, 0, 2) == ()


@given(graphs(wide | narrow), st.integers(1, 6))
def test_k_shortest_are_the_shortest_of_all_simple_paths(costs: Costs, k: int) -> None:
    target = len(costs) - 1
    every = sorted((length(costs, p), p) for p in simple_paths(costs, 0, target))
    found = paths.k_shortest_paths(costs, 0, target, k)
    assert [length(costs, p) for p in found] == [cost for cost, _ in every[:k]]
    assert len(set(found)) == len(found)
    assert set(found) <= {p for _, p in every}
    assert found == [p for _, p in every[:k]]


@given(graphs(narrow), st.integers(1, 5))
def test_k_shortest_come_in_order_of_length_and_ids(costs: Costs, k: int) -> None:
    found = paths.k_shortest_paths(costs, 0, len(costs) - 1, k)
    assert found == sorted(found, key=lambda p: (length(costs, p), p))


def test_k_shortest_from_or_to_an_unknown_peer_are_none() -> None:
    assert paths.k_shortest_paths({0: {1: 1}, 1: {0: 1}}, 0, 7, 3) == []
    assert paths.k_shortest_paths({0: {7: 1}}, 0, 7, 3) == []


@given(graphs(wide))
def test_the_shortest_delays_of_an_overlay_are_those_of_all_trees(costs: Costs) -> None:
    links = [OverlayLink(a, b, cost) for a, row in costs.items() for b, cost in row.items() if a < b]
    table = shortest_delays(Overlay(len(costs), links))
    for source in costs:
        distance, _ = paths.shortest_path_tree(costs, source)
        assert table[source].tolist() == [distance.get(p, -1) for p in costs]
