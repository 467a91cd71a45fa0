"""k trees: the order of eq. 6.1.1 against another formulation, and shortest-path trees against the definition."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.trees import mrst, shortest_path_trees, trees_from
from tests.topology.placements import overlays, placements, row
from wend.model.errors import ConfigError
from wend.studies.quist.construction import compute_link_weights
from wend.topology.component_reliability import draw_reliabilities, path_reliabilities
from wend.topology.graph import Overlay, OverlayLink


@st.composite
def weighted(draw: st.DrawFn) -> tuple[Overlay, list[int]]:
    """Connected, up to 8 peers, all weights different."""
    peers = draw(st.integers(2, 8))
    pairs = {(draw(st.integers(0, p - 1)), p) for p in range(1, peers)}
    ends = st.integers(0, peers - 1)
    pairs |= {(min(a, b), max(a, b)) for a, b in draw(st.lists(st.tuples(ends, ends), max_size=14)) if a != b}
    overlay = Overlay(peers, [OverlayLink(a, b, 1) for a, b in sorted(pairs)])
    return overlay, draw(st.permutations(range(len(overlay.links))))


def graph(overlay: Overlay, cost: list[float]) -> nx.Graph:
    found = nx.Graph()
    for i, link in enumerate(overlay.links):
        found.add_edge(link.a, link.b, cost=cost[i], i=i)
    return found


@settings(max_examples=100)
@given(weighted(), st.integers(1, 4))
def test_tree_i_is_the_minimum_spanning_tree_where_each_use_outweighs_all_weights(
    drawn: tuple[Overlay, list[int]], k: int
) -> None:
    """level[l] = i - (uses before tree i), so eq. 6.1.1 orders by uses first and by weight second."""
    overlay, weight = drawn
    trees = mrst(overlay, weight, k)
    uses = [0] * len(overlay.links)
    for tree in trees:
        cost = [used * 10_000.0 + w for used, w in zip(uses, weight, strict=True)]
        expected = nx.minimum_spanning_edges(graph(overlay, cost), weight="cost")
        assert tree == sorted(data["i"] for *_, data in expected)
        for link in tree:
            uses[link] += 1


@given(weighted())
def test_links_are_reused_only_if_no_others_connect_the_peers(drawn: tuple[Overlay, list[int]]) -> None:
    overlay, weight = drawn
    first, second = mrst(overlay, weight, 2)
    left = nx.Graph([(link.a, link.b) for i, link in enumerate(overlay.links) if i not in first])
    left.add_nodes_from(range(overlay.peers))
    components = nx.number_connected_components(left)
    assert len(set(first) & set(second)) == components - 1


def test_the_example_of_figure_6_1() -> None:
    """Peer 1 of the thesis is 0 here; tree 3 prefers unused links, then the one used once, then the one used twice."""
    star = Overlay(
        5,
        [
            OverlayLink(0, 1, 1),
            OverlayLink(0, 2, 1),
            OverlayLink(0, 3, 1),
            OverlayLink(0, 4, 1),
            OverlayLink(3, 4, 1),
            OverlayLink(1, 2, 1),
        ],
    )
    trees = mrst(star, [0.3, 0.4, 0.2, 0.1, 0.15, 0.9], 3)
    assert trees[0] == [0, 1, 3, 4]
    assert trees[1] == [0, 2, 3, 5], "0-3 and 1-2 are unused; the best used links complete the tree"


def test_links_of_equal_weight_are_ordered_by_the_ids_of_their_ends() -> None:
    square = Overlay(4, [OverlayLink(0, 1, 1), OverlayLink(0, 3, 1), OverlayLink(1, 2, 1), OverlayLink(2, 3, 1)])
    assert mrst(square, [0.5] * 4, 1) == [[0, 1, 2]]


@settings(max_examples=50)
@given(st.data(), st.integers(0, 99))
def test_a_weight_is_the_failure_of_a_link_and_its_two_peers(data: st.DataObject, seed: int) -> None:
    placement = data.draw(placements())
    overlay = data.draw(overlays(placement))
    chances = draw_reliabilities(placement, seed)
    starts, components = placement.link_components(overlay)
    alone = path_reliabilities(starts, components, chances)
    for i, (link, weight) in enumerate(
        zip(overlay.links, compute_link_weights(placement, overlay, chances), strict=True)
    ):
        path = np.prod([chances[c] for c in components[starts[i] : starts[i + 1]]])
        assert alone[i] == pytest.approx(path)
        ends = chances[placement.first_peer + link.a] * chances[placement.first_peer + link.b]
        assert weight == pytest.approx(1 - path * ends)


@settings(max_examples=60)
@given(weighted())
def test_a_tree_from_a_root_holds_its_shortest_paths(drawn: tuple[Overlay, list[int]]) -> None:
    overlay, weight = drawn
    costs = np.array(weight, dtype=np.int64) + 1
    whole = graph(overlay, costs.tolist())
    for root, tree in enumerate(trees_from(overlay, costs, np.arange(overlay.peers))):
        part = nx.Graph()
        part.add_weighted_edges_from((overlay.links[i].a, overlay.links[i].b, costs[i]) for i in tree)
        assert nx.is_tree(part)
        assert nx.single_source_dijkstra_path_length(part, root) == nx.single_source_dijkstra_path_length(
            whole, root, weight="cost"
        )


@settings(max_examples=30)
@given(st.data(), st.integers(0, 99))
def test_shortest_path_trees_span_and_repeat(data: st.DataObject, seed: int) -> None:
    placement = data.draw(placements())
    overlay = data.draw(overlays(placement))
    chances = draw_reliabilities(placement, seed)
    trees = shortest_path_trees(placement, overlay, chances, 3, seed=seed, roots=3)
    for tree in trees:
        assert nx.is_tree(nx.Graph([(overlay.links[i].a, overlay.links[i].b) for i in tree]))
        assert len(tree) == placement.peers - 1
    assert trees == shortest_path_trees(placement, overlay, chances, 3, seed=seed, roots=3)


def test_impossible_trees_are_refused() -> None:
    placement = row(3, [0, 1, 2])
    apart = placement.overlay([(0, 1)])
    whole = placement.overlay([(0, 1), (1, 2)])
    with pytest.raises(ConfigError, match="an overlay with 2 connected components has no spanning tree"):
        mrst(apart, [0.1], 1)
    with pytest.raises(ConfigError, match="2 links need as many weights, got 1"):
        mrst(whole, [0.1], 1)
    with pytest.raises(ConfigError, match="the number of trees must be at least 1, got 0"):
        mrst(whole, [0.1, 0.1], 0)
    with pytest.raises(ConfigError, match="with 2 connected components"):
        trees_from(apart, np.array([1]), np.array([0]))
    with pytest.raises(ConfigError, match="spt-k needs at least 1 tree"):
        shortest_path_trees(placement, whole, np.ones(placement.components), 0, seed=1)
