"""The compiled search against a plain one that removes arcs and repeats Dijkstra."""

import heapq
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planning.nets import networks, overlay
from wend.model.errors import ConfigError
from wend.model.rates import Rate
from wend.planning.candidate_paths import CandidatePaths, find_paths
from wend.planning.flow_network import FlowNetwork
from wend.planning.path_ranking import find_ranking, rank_by_capacity, rank_by_rejecting
from wend.studies.campr.brite_flat import grow

Path = tuple[int, ...]


def plain(network: FlowNetwork, source: int, target: int, k: int, spare_ends: bool) -> list[Path]:
    """The definition, in plain Python."""
    graph = network.graph
    arcs = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(graph.tail, graph.head, strict=True))}
    cost = {ends: int(graph.delay[i]) for ends, i in arcs.items()}
    width = {ends: float(graph.width[i]) for ends, i in arcs.items()}
    found: list[Path] = []
    while len(found) < k:
        path = first_shortest(cost, source, target)
        if not path:
            break
        found.append(path)
        steps = list(pairwise(path))
        inner = steps[1:-1]
        least = min(width[step] for step in steps)
        gone = [step for step in inner if width[step] == least] or sorted(inner, key=lambda step: width[step])[:1]
        if not gone and not spare_ends:
            ends = [steps[-1]] if sum(b == target for _, b in cost) > 1 else []
            ends += [steps[0]] if sum(a == source for a, _ in cost) > 1 else []
            gone = sorted(ends, key=lambda step: width[step])[:1]
        if not gone:
            break
        for step in gone:
            del cost[step]
    return found


def first_shortest(cost: dict[tuple[int, int], int], source: int, target: int) -> Path:
    """The first of the shortest paths in the order of ids."""
    ahead: dict[int, int] = {}
    heap = [(0, target)]
    while heap:
        so_far, here = heapq.heappop(heap)
        if here not in ahead:
            ahead[here] = so_far
            for (a, b), delay in cost.items():
                if b == here:
                    heapq.heappush(heap, (so_far + delay, a))
    if source not in ahead:
        return ()
    path = [source]
    while path[-1] != target:
        here = path[-1]
        path.append(
            min(b for (a, b), delay in cost.items() if a == here and b in ahead and delay + ahead[b] == ahead[here])
        )
    return tuple(path)


def listed(network: FlowNetwork, found: CandidatePaths) -> dict[int, list[Path]]:
    graph = network.graph
    result: dict[int, list[Path]] = {}
    for i, receiver in enumerate(found.receivers.tolist()):
        result[receiver] = []
        for p in range(found.first[i], found.first[i + 1]):
            arcs = found.arcs[found.ptr[p] : found.ptr[p + 1]]
            result[receiver].append((int(graph.tail[arcs[0]]), *graph.head[arcs].tolist()))
    return result


@given(networks(), st.integers(1, 5), st.booleans(), st.data())
def test_paths_are_those_of_the_definition(network: FlowNetwork, k: int, spare: bool, data: st.DataObject) -> None:
    source = data.draw(st.integers(0, network.peers - 1))
    others = np.array([p for p in range(network.peers) if p != source], dtype=np.int32)
    found = listed(network, find_paths(network.graph, source, others, k, spare_ends=spare))
    assert found == {t: plain(network, source, t, k, spare) for t in others.tolist()}


def test_a_larger_network_agrees_with_the_definition_and_with_networkx() -> None:
    network = FlowNetwork(grow(120, "attached", seed=3), link=Rate(20.0))
    receivers = np.arange(1, 120, 7, dtype=np.int32)
    found = listed(network, find_paths(network.graph, 0, receivers, 4))
    assert found == {t: plain(network, 0, t, 4, False) for t in receivers.tolist()}
    free = nx.Graph()
    free.add_weighted_edges_from((e.a, e.b, e.delay_ns) for e in network.overlay.links)
    for target, paths in found.items():
        lengths = [nx.path_weight(free, path, "weight") for path in paths]
        assert lengths[0] == nx.shortest_path_length(free, 0, target, "weight")
        assert lengths == sorted(lengths)
    assert any(len(paths) == 4 for paths in found.values())


def test_first_paths_make_one_tree() -> None:
    network = FlowNetwork(grow(60, "attached", seed=1, links=3), link=Rate(20.0))
    found = find_paths(network.graph, 5, np.array([p for p in range(60) if p != 5], dtype=np.int32), 1)
    parents: dict[int, set[int]] = {}
    for paths in listed(network, found).values():
        for a, b in pairwise(paths[0]):
            parents.setdefault(b, set()).add(a)
    assert all(len(p) == 1 for p in parents.values())


def test_an_unreachable_receiver_has_no_path_and_k_starts_at_one() -> None:
    network = FlowNetwork(overlay(4, [(0, 1, 1, 1.0), (2, 3, 1, 1.0)]))
    found = listed(network, find_paths(network.graph, 0, np.array([1, 2, 3], dtype=np.int32), 3))
    assert found == {1: [(0, 1)], 2: [], 3: []}
    with pytest.raises(ConfigError, match="k must be at least 1, got 0"):
        find_paths(network.graph, 0, np.array([1], dtype=np.int32), 0)


def test_with_spared_ends_a_receiver_two_hops_away_has_one_path() -> None:
    square = FlowNetwork(overlay(4, [(0, 1, 1, 1.0), (1, 3, 1, 2.0), (0, 2, 2, 2.0), (2, 3, 2, 2.0)]))
    to = np.array([3], dtype=np.int32)
    assert listed(square, find_paths(square.graph, 0, to, 3, spare_ends=True)) == {3: [(0, 1, 3)]}
    assert listed(square, find_paths(square.graph, 0, to, 3)) == {3: [(0, 1, 3), (0, 2, 3)]}


def simple_paths(network: FlowNetwork, source: int, target: int) -> list[Path]:
    free = nx.Graph()
    free.add_weighted_edges_from((e.a, e.b, e.delay_ns) for e in network.overlay.links)
    return [tuple(path) for path in nx.all_simple_paths(free, source, target)]


def measured(network: FlowNetwork, path: Path) -> tuple[int, float, float]:
    """Delay, sum of 1 / width, bottleneck."""
    arcs = [network.graph.arc(a, b) for a, b in pairwise(path)]
    widths = network.graph.width[arcs]
    return int(network.graph.delay[arcs].sum()), float((1 / widths).sum()), float(widths.min())


@given(networks(most=6), st.integers(1, 4), st.data())
def test_ranking_by_capacity_takes_the_least_sums_of_inverse_widths(
    network: FlowNetwork, k: int, data: st.DataObject
) -> None:
    source, target = data.draw(st.permutations(range(network.peers)))[:2]
    found = listed(network, rank_by_capacity(network.graph, source, np.array([target], dtype=np.int32), k))[target]
    every = sorted(measured(network, path)[1] for path in simple_paths(network, source, target))
    assert [measured(network, path)[1] for path in found] == pytest.approx(every[:k])
    assert len(set(found)) == len(found)


@given(networks(most=5), st.integers(1, 4), st.data())
def test_rejecting_takes_ever_wider_bottlenecks(network: FlowNetwork, k: int, data: st.DataObject) -> None:
    source, target = data.draw(st.permutations(range(network.peers)))[:2]
    found = listed(network, rank_by_rejecting(network.graph, source, np.array([target], dtype=np.int32), k))[target]
    shortest: list[tuple[int, float]] = []
    for path in sorted(simple_paths(network, source, target), key=lambda p: (measured(network, p)[0], p)):
        delay, _, bottleneck = measured(network, path)
        if len(shortest) < k and (not shortest or bottleneck > shortest[-1][1]):
            shortest.append((delay, bottleneck))
    assert [measured(network, path)[::2] for path in found] == shortest


def test_rankings_have_names() -> None:
    assert find_ranking("bottleneck-disjoint") is find_paths
    with pytest.raises(ConfigError, match="there is no ranking 'best'"):
        find_ranking("best")
