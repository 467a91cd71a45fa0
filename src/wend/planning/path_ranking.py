"""The two other path rankings that the thesis tried first (sections 3.5.1 and 3.5.3), for comparison.

`capacity` ranks loop-free paths by the sum of 1 / width, so wide detours come before short paths. `rejecting` ranks by
delay and accepts a path only if its bottleneck is wider than that of the last accepted path. It considers `CONSIDERED`
candidates, because the thesis has a limit, too. Both list paths with Yen's algorithm, and are far slower than
`paths_from`.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import yen

from wend.model.errors import ConfigError
from wend.planning.arrays import Floats, Ints, run_offsets
from wend.planning.candidate_paths import CandidatePaths, find_paths
from wend.planning.flow_network import CsrGraph

CONSIDERED = 50
BOTTLENECK_DISJOINT = "bottleneck-disjoint"


def rank_by_capacity(graph: CsrGraph, source: int, receivers: Ints, k: int) -> CandidatePaths:
    costs = 1.0 / np.minimum(graph.width, 1e12)

    def choose(target: int) -> list[Ints]:
        return _find_shortest(graph, costs, source, target, k)

    return _collect_paths(receivers, source, choose)


def rank_by_rejecting(graph: CsrGraph, source: int, receivers: Ints, k: int) -> CandidatePaths:
    costs = graph.delay.astype(float)

    def choose(target: int) -> list[Ints]:
        accepted: list[Ints] = []
        widest = 0.0
        for path in _find_shortest(graph, costs, source, target, CONSIDERED):
            bottleneck = float(graph.width[path].min())
            if bottleneck > widest and len(accepted) < k:
                accepted.append(path)
                widest = bottleneck
        return accepted

    return _collect_paths(receivers, source, choose)


RANKINGS: dict[str, Callable[[CsrGraph, int, Ints, int], CandidatePaths]] = {
    BOTTLENECK_DISJOINT: find_paths,
    "capacity": rank_by_capacity,
    "rejecting": rank_by_rejecting,
}


def find_ranking(name: str) -> Callable[[CsrGraph, int, Ints, int], CandidatePaths]:
    if name not in RANKINGS:
        raise ConfigError(f"there is no ranking {name!r}: choose {', '.join(RANKINGS)}")
    return RANKINGS[name]


def _find_shortest(graph: CsrGraph, costs: Floats, source: int, target: int, k: int) -> list[Ints]:
    """Up to k loop-free paths as arcs, the cheapest first; paths of equal cost are ordered by ids."""
    if source == target:
        return []
    peers = len(graph.ptr) - 1
    matrix = csr_array((costs, graph.head, graph.ptr), shape=(peers, peers))
    lengths, before = yen(matrix, source, target, k, return_predecessors=True)
    routes = []
    for length, row in zip(lengths.tolist(), before, strict=True):
        nodes = [target]
        while nodes[-1] != source:
            nodes.append(int(row[nodes[-1]]))
        routes.append((length, nodes[::-1]))
    return [np.array([graph.arc(a, b) for a, b in pairwise(nodes)], dtype=np.int32) for _, nodes in sorted(routes)]


def _collect_paths(receivers: Ints, source: int, choose: Callable[[int], list[Ints]]) -> CandidatePaths:
    targets = np.asarray(receivers, dtype=np.int32)
    each = [choose(target) for target in targets.tolist()]
    paths = [path for choice in each for path in choice]
    first = run_offsets([len(choice) for choice in each]).astype(np.int32)
    ptr = run_offsets([len(path) for path in paths]).astype(np.int32)
    return CandidatePaths(targets, first, ptr, np.concatenate([*paths, np.zeros(0, dtype=np.int32)]))
