"""Delivery graphs: all trees that reach all receivers, in a fixed order."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planning.nets import networks, overlay, workload
from tests.planning.test_paths import listed
from wend.model.errors import ConfigError
from wend.planning.candidate_paths import find_paths
from wend.planning.delivery_graphs import DeliveryGraphs, limit_k, make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import Flow, FlowWorkload, make_workload

Tree = list[tuple[int, int]]


def trees(network: FlowNetwork, graphs: DeliveryGraphs, flow: int) -> list[Tree]:
    found = []
    for g in range(graphs.of_flow[flow], graphs.of_flow[flow + 1]):
        arcs = graphs.arcs[graphs.ptr[g] : graphs.ptr[g + 1]]
        ends = zip(network.graph.tail[arcs].tolist(), network.graph.head[arcs].tolist(), strict=True)
        found.append(list(ends))
    return found


def plain(network: FlowNetwork, made: FlowWorkload, flow: int, k: int) -> list[frozenset[tuple[int, int]]]:
    """The trees of every union of k-th paths, near receivers first and far ones first, without duplicates."""
    source = int(made.publisher[flow])
    paths = listed(network, find_paths(network.graph, source, made.flow_receivers(flow), k))

    def delay(receiver: int) -> int:
        path = paths[receiver][0]
        return sum(int(network.graph.delay[network.graph.arc(a, b)]) for a, b in pairwise(path))

    near = sorted(made.flow_receivers(flow).tolist(), key=lambda r: (delay(r), r))
    found: list[frozenset[tuple[int, int]]] = []
    for level in range(max(len(p) for p in paths.values())):
        for order in (near, near[::-1]):
            parent: dict[int, int] = {}
            for receiver in order:
                path = paths[receiver][min(level, len(paths[receiver]) - 1)]
                join = max(i for i, here in enumerate(path) if here == source or here in parent)
                parent |= {b: a for a, b in pairwise(path[join:])}
            tree = frozenset((a, b) for b, a in parent.items())
            if tree not in found:
                found.append(tree)
    return found


@given(networks(), st.integers(1, 4), st.integers(0, 2**32))
def test_graphs_are_those_of_the_definition(network: FlowNetwork, k: int, seed: int) -> None:
    made = workload(network, np.random.Generator(np.random.PCG64(seed)), flows=3)
    graphs = make_delivery_graphs(network, made, k)
    for flow in range(len(made)):
        found = trees(network, graphs, flow)
        assert [frozenset(tree) for tree in found] == plain(network, made, flow, k)
        for tree in found:
            has = {int(made.publisher[flow])}
            for a, b in tree:
                assert a in has and b not in has, "each arc after its predecessor, and no peer receives twice"
                has.add(b)
            assert has >= set(made.flow_receivers(flow).tolist())
            assert {b for _, b in tree} - {a for a, _ in tree} <= set(made.flow_receivers(flow).tolist()), (
                "it ends at receivers"
            )


def test_a_level_is_the_k_of_a_graphs_paths() -> None:
    ring = FlowNetwork(overlay(4, [(0, 1, 1, 1.0), (1, 2, 1, 2.0), (2, 3, 1, 2.0), (0, 3, 1, 2.0)]))
    graphs = make_delivery_graphs(ring, make_workload([Flow(0, [1])], ring.names), 3)
    assert trees(ring, graphs, 0) == [[(0, 1)], [(0, 3), (3, 2), (2, 1)]]
    assert graphs.level.tolist() == [1, 2]


def test_an_unreachable_receiver_is_named() -> None:
    apart = FlowNetwork(overlay(4, [(0, 1, 1, 1.0), (2, 3, 1, 1.0)]))
    with pytest.raises(ConfigError, match="there is no path from 0 to its receiver 2"):
        make_delivery_graphs(apart, make_workload([Flow(0, [1, 2])], apart.names), 2)


@given(networks(), st.integers(1, 3), st.integers(0, 2**32))
def test_the_graphs_of_a_smaller_k_are_a_subset(network: FlowNetwork, k: int, seed: int) -> None:
    made = workload(network, np.random.Generator(np.random.PCG64(seed)), flows=3)
    for all_, few in zip(
        limit_k(make_delivery_graphs(network, made, 4), k), make_delivery_graphs(network, made, k), strict=True
    ):
        assert np.array_equal(all_, few)
