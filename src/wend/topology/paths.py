"""Shortest paths with a rule for ties: of equal costs the lower id wins, in every process.

The single-source search is plain Python on dictionaries, because a peer's graph is small and changes rarely. All
pairs and k shortest paths, which must be fast, use scipy.
"""

import heapq
from collections.abc import Mapping

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import yen

from wend.model.events import PeerId

Costs = Mapping[PeerId, Mapping[PeerId, int]]


def tree(costs: Costs, source: PeerId) -> tuple[dict[PeerId, int], dict[PeerId, PeerId]]:
    """Distances from the source, and each reached peer's parent on its shortest path."""
    distance: dict[PeerId, int] = {source: 0}
    parent: dict[PeerId, PeerId] = {}
    done: set[PeerId] = set()
    heap: list[tuple[int, PeerId]] = [(0, source)]
    while heap:
        so_far, here = heapq.heappop(heap)
        if here in done:
            continue
        done.add(here)
        for there, cost in costs.get(here, {}).items():
            total = so_far + cost
            known = distance.get(there)
            if known is None or total < known or (total == known and there not in done and here < parent[there]):
                distance[there] = total
                parent[there] = here
                heapq.heappush(heap, (total, there))
    return distance, parent


def walk(parent: Mapping[PeerId, PeerId], source: PeerId, target: PeerId) -> tuple[PeerId, ...]:
    """The path from source to target in a tree, with both ends; empty if there is none."""
    path = [target]
    while path[-1] != source:
        if path[-1] not in parent:
            return ()
        path.append(parent[path[-1]])
    return tuple(reversed(path))


def k_shortest(costs: Costs, source: PeerId, target: PeerId, k: int) -> list[tuple[PeerId, ...]]:
    """Up to k loop-free paths, shortest first; paths of equal length are ordered by their ids."""
    peers = sorted(costs)
    place = {p: i for i, p in enumerate(peers)}
    if source not in place or target not in place:
        return []
    rows, cols, weights = [], [], []
    for a in peers:
        for b, cost in sorted(costs[a].items()):
            if b in place:
                rows.append(place[a])
                cols.append(place[b])
                weights.append(float(cost))
    ends = (np.array(rows, dtype=np.int32), np.array(cols, dtype=np.int32))  # yen takes no wider index
    matrix = csr_array((np.array(weights), ends), shape=(len(peers), len(peers)))
    lengths, before = yen(matrix, place[source], place[target], k, return_predecessors=True)
    paths = []
    for length, row in zip(lengths, before, strict=True):
        path = [place[target]]
        while path[-1] != place[source]:
            path.append(int(row[path[-1]]))
        paths.append((float(length), tuple(peers[i] for i in reversed(path))))
    return [path for _, path in sorted(paths)]


def all_pairs(peers: int, links: list[tuple[PeerId, PeerId, int]]) -> np.ndarray:
    """The shortest distance between every two peers, as an integer; -1 where there is no path."""
    from scipy.sparse.csgraph import dijkstra

    ends = np.array([(a, b) for a, b, _ in links], dtype=np.int64).reshape(-1, 2)
    costs = np.array([cost for *_, cost in links], dtype=np.float64)
    matrix = csr_array((costs, (ends[:, 0], ends[:, 1])), shape=(peers, peers))
    distances = dijkstra(matrix, directed=False)
    return np.where(np.isfinite(distances), distances, -1).astype(np.int64)
