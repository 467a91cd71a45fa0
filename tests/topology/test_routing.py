"""Underlay paths: the shortest, unique and symmetric."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings

from tests.topology.placements import networks
from wend.model.errors import ConfigError
from wend.topology.catalog import make
from wend.topology.routing import ShortestPaths, shortest_paths, unique_costs
from wend.topology.underlay import LinkKind, RouterKind, Underlay
from wend.topology.underlay_builder import UnderlayBuilder


def graph_of(underlay: Underlay) -> nx.Graph:
    graph = nx.Graph()
    costs = unique_costs(underlay)
    for (a, b), delay, cost in zip(underlay.ends.tolist(), underlay.delay_ns.tolist(), costs.tolist(), strict=True):
        graph.add_edge(a, b, delay=delay, cost=cost)
    return graph


def path(shortest: ShortestPaths, source: int, target: int) -> list[int]:
    """The routers from source to target, with both ends."""
    return shortest.paths(np.array([source]), np.array([target])).routers_on(0)


@settings(max_examples=80)
@given(networks())
def test_every_path_is_the_only_shortest_one(underlay: Underlay) -> None:
    shortest, graph = shortest_paths(underlay), graph_of(underlay)
    for a in range(underlay.routers):
        for b in range(underlay.routers):
            (only,) = nx.all_shortest_paths(graph, a, b, weight="cost")
            assert path(shortest, a, b) == only
            assert shortest.delay_ns[shortest.row(a), b] == nx.shortest_path_length(graph, a, b, weight="delay")


@settings(max_examples=60)
@given(networks())
def test_paths_are_symmetric_and_so_are_their_suffixes(underlay: Underlay) -> None:
    shortest = shortest_paths(underlay)
    for a in range(underlay.routers):
        for b in range(underlay.routers):
            there = path(shortest, a, b)
            assert there == path(shortest, b, a)[::-1]
            for i in range(len(there)):
                assert path(shortest, there[i], b) == there[i:]


def test_a_path_alternates_routers_and_links() -> None:
    underlay = make("power-law", 1)
    shortest = shortest_paths(underlay, np.array([3, 40]))
    paths = shortest.paths(np.array([3, 40, 3]), np.array([250, 3, 3]))
    for i, (a, b) in enumerate([(3, 250), (40, 3)]):
        routers, links = paths[i][::2], paths[i][1::2] - underlay.routers
        assert (routers[0], routers[-1]) == (a, b)
        for left, link, right in zip(routers[:-1], links, routers[1:], strict=True):
            assert sorted((left, right)) == underlay.ends[link].tolist()
        assert underlay.delay_ns[links].sum() == shortest.delay_ns[shortest.row(a), b]
    assert paths[2].tolist() == [3]
    assert paths.lengths().tolist() == [len(paths.routers_on(i)) for i in range(3)]
    assert set(paths.links().tolist()) == {int(p) - underlay.routers for i in range(3) for p in paths[i][1::2]}


def test_big_networks_agree_with_another_library() -> None:
    underlay = make("brite", 2)
    graph = graph_of(underlay)
    shortest: ShortestPaths = shortest_paths(underlay, np.array([7]))
    known = nx.single_source_dijkstra_path_length(graph, 7, weight="delay")
    assert shortest.delay_ns[0].tolist() == [known[r] for r in range(underlay.routers)]


def test_paths_from_other_sources_are_refused() -> None:
    shortest = shortest_paths(make("power-law", 1), np.array([3]))
    with pytest.raises(ConfigError, match="no paths were computed from router 4"):
        shortest.paths(np.array([4]), np.array([1]))


def test_delays_that_do_not_fit_are_refused() -> None:
    builder = UnderlayBuilder("far")
    builder.add_router(RouterKind.ACCESS, 0)
    builder.add_router(RouterKind.ACCESS, 0)
    builder.add_link(0, 1, LinkKind.INNER, 10**12)
    with pytest.raises(ConfigError, match="a path may have a delay of at most 137 s"):
        shortest_paths(builder.build())
