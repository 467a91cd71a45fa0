"""The speed of planning: paths, compared with networkx on a sample of the same pairs, and whole plans at the thesis's
largest sizes.

Networks grow by preferential attachment, two links for each new peer, as in BRITE's Barabasi-Albert model. Times are
CPU seconds of this process, on one core, after compilation.
"""

import heapq
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np

from benchmarks.rows import Row
from wend.model.randomness import stream
from wend.model.rates import Rate
from wend.planning.candidate_paths import find_paths
from wend.planning.delivery_graphs import make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import draw_workload
from wend.planning.models import Goal, balance
from wend.planning.planner import make_plan
from wend.planning.problem import make_problem
from wend.studies.campr.brite_flat import grow
from wend.topology.graph import Overlay

K = 5
SAMPLE = 12
"""The number of pairs for networkx, which takes a hundredth of a second for each path."""


def path_rates(peers: int = 1000, publishers: int = 100, receivers: int = 750) -> dict[str, float]:
    """Seconds for all paths, and per pair with Wend and with networkx."""
    network = FlowNetwork(grow(peers, "attached", seed=1), link=Rate(20.0))
    rng = stream(1, "benchmarks", "pairs")
    receiving = np.sort(rng.permutation(peers)[:receivers]).astype(np.int32)
    publishing = rng.permutation(peers)[:publishers].tolist()
    find_paths(network.graph, publishing[0], receiving[:2], K)
    begin = time.process_time()
    for source in publishing:
        find_paths(network.graph, source, receiving, K)
    ours = time.process_time() - begin
    pairs = [(int(rng.choice(publishing)), int(rng.choice(receiving))) for _ in range(SAMPLE)]
    pairs = [(a, b) for a, b in pairs if a != b]
    graph = _digraph(network)
    begin = time.process_time()
    lengths = [_networkx_delays(graph, source, target) for source, target in pairs]
    theirs = (time.process_time() - begin) / len(pairs)
    for (source, target), found in zip(pairs, lengths, strict=True):
        mine = find_paths(network.graph, source, np.array([target], dtype=np.int32), K)
        assert [int(network.graph.delay[mine.arcs[a:b]].sum()) for a, b in pairwise(mine.ptr)] == found
    each = ours / (publishers * receivers)
    return {"seconds": ours, "seconds_per_pair": each, "networkx_seconds_per_pair": theirs, "ratio": theirs / each}


def _digraph(network: FlowNetwork) -> "nx.DiGraph[int]":
    graph: nx.DiGraph[int] = nx.DiGraph()
    arcs = network.graph
    for a, b, delay, width in zip(arcs.tail.tolist(), arcs.head.tolist(), arcs.delay, arcs.width, strict=True):
        graph.add_edge(a, b, weight=int(delay), width=float(width))
    return graph


def _networkx_delays(graph: "nx.DiGraph[int]", source: int, target: int) -> list[int]:
    """The delays of the bottleneck-disjoint paths, by networkx's Dijkstra; arcs are removed and restored."""
    removed = []
    found: list[int] = []
    while len(found) < K:
        try:
            length, path = nx.single_source_dijkstra(graph, source, target)
        except nx.NetworkXNoPath:
            break
        found.append(int(length))
        steps = list(pairwise(path))
        inner = steps[1:-1]
        least = min(graph.edges[step]["width"] for step in steps)
        gone = [step for step in inner if graph.edges[step]["width"] == least]
        gone = gone or heapq.nsmallest(1, inner, key=lambda step: graph.edges[step]["width"])
        if not gone:
            ends = [steps[-1]] if graph.in_degree(target) > 1 else []
            ends += [steps[0]] if graph.out_degree(source) > 1 else []
            gone = heapq.nsmallest(1, ends, key=lambda step: graph.edges[step]["width"])
        if not gone:
            break
        removed += [(a, b, graph.edges[a, b]) for a, b in gone]
        graph.remove_edges_from(gone)
    graph.add_edges_from(removed)
    return found


def whole_plan(
    peers: int, messages: int, popularity: float, k: int, per: str, goal: str = "balance"
) -> dict[str, float]:
    """Seconds from a workload to files on disk, with capacities such that the workload just fits."""
    overlay = grow(peers, "attached", seed=1)
    workload = draw_workload(peers, messages, popularity=popularity, seed=1)
    network = _sized_network(overlay, per, 1.0)
    tight = balance(make_problem(network, workload, make_delivery_graphs(network, workload, k))).y
    network = _sized_network(overlay, per, tight * 1.02)
    with tempfile.TemporaryDirectory() as folder:
        begin, wall = time.process_time(), time.perf_counter()
        plan = make_plan(network, workload, Goal(goal), k)  # type: ignore[arg-type]
        plan.write(Path(folder))
        spent, waited = time.process_time() - begin, time.perf_counter() - wall
    return {
        "seconds": spent,
        "wall_seconds": waited,
        "hops": float(len(plan.hops["peer"])),
        "highest_load": plan.head.highest_load,
        "highest_load_single": plan.head.highest_load_single,
    }


def _sized_network(overlay: Overlay, per: str, factor: float) -> FlowNetwork:
    """A network with links of 20 messages/s times the factor; per peer, with the sum of such links as capacity."""
    network = FlowNetwork(overlay, link=Rate(20.0 * factor), peer="links" if per == "peer" else None)
    if per == "peer":
        network.arc_capacity[:] = np.inf
    return network


def rows() -> list[Row]:
    paths = path_rates()
    popular, rare = whole_plan(1000, 10_000, 0.85, 3, "peer"), whole_plan(200, 10_000, 0.05, 3, "peer")
    pair = "CPU seconds per (publisher, receiver), 5 bottleneck-disjoint paths, 1000 peers (networkx)"
    ours, theirs = paths["seconds_per_pair"], paths["networkx_seconds_per_pair"]
    return [
        Row("planning.pair_s", pair, ours, theirs, less_is_better=True),
        Row("planning.paths_s", "  all of 100 publishers x 750 receivers", paths["seconds"]),
        Row("planning.popular_s", "whole plan, 1000 peers, 10 000 messages, popularity 85 %", popular["seconds"]),
        Row("planning.rare_s", "whole plan, 200 peers, 10 000 messages, popularity 5 %", rare["seconds"]),
    ]
