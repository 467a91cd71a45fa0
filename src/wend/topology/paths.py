"""Shortest paths with a rule for ties: of equal costs the lower id wins, in every process.

All of it is plain Python on dictionaries, because peers use it: a peer's graph is small and changes rarely.
`overlay_routes.py` computes the delays of whole topologies.
"""

import heapq
from collections.abc import Collection, Mapping

from wend.model.events import PeerId

Costs = Mapping[PeerId, Mapping[PeerId, int]]


def shortest_path_tree(
    costs: Costs, source: PeerId, without: Collection[PeerId] = ()
) -> tuple[dict[PeerId, int], dict[PeerId, PeerId]]:
    """Distances from the source, and each reached peer's parent on its shortest path. No path visits `without`."""
    distance: dict[PeerId, int] = {source: 0}
    parent: dict[PeerId, PeerId] = {}
    done: set[PeerId] = set(without)
    heap: list[tuple[int, PeerId]] = [(0, source)]
    while heap:
        so_far, here = heapq.heappop(heap)
        if here in done:
            continue
        done.add(here)
        for there, cost in costs.get(here, {}).items():
            if there in done:
                continue
            total = so_far + cost
            earlier = distance.get(there)
            if earlier is None or total < earlier:
                distance[there] = total
                parent[there] = here
                heapq.heappush(heap, (total, there))
            elif total == earlier and here < parent[there]:
                parent[there] = here
    return distance, parent


def path_in_tree(parent: Mapping[PeerId, PeerId], source: PeerId, target: PeerId) -> tuple[PeerId, ...]:
    """The path from source to target in a tree, with both ends; empty if there is none."""
    path = [target]
    while path[-1] != source:
        if path[-1] not in parent:
            return ()
        path.append(parent[path[-1]])
    return tuple(reversed(path))


def k_shortest_paths(costs: Costs, source: PeerId, target: PeerId, k: int) -> list[tuple[PeerId, ...]]:
    """Up to k loop-free paths, shortest first; paths of equal length are ordered by their ids.

    This is Yen's algorithm. Each found path leaves the earlier ones after a common prefix, so the next path is the best
    of those that leave each prefix over another link. Costs must be positive.
    """
    if source not in costs or target not in costs:
        return []
    if source == target:
        return [(source,)]
    turned = _reverse_arcs(costs)
    routes: list[tuple[PeerId, ...]] = []
    prefixes: dict[tuple[PeerId, ...], tuple[dict[PeerId, int], set[PeerId]]] = {}
    """By prefix: the distances to the target without it, and the peers that follow it in a path known so far."""
    heap: list[tuple[int, tuple[PeerId, ...], int]] = []
    """Length, path, and how many of its peers it shares with the path that it leaves."""

    def leave(prefix: tuple[PeerId, ...], spent: int) -> None:
        """Put the best path on the heap that leaves the prefix over a link that no known path takes."""
        if prefix not in prefixes:
            prefixes[prefix] = shortest_path_tree(turned, target, prefix)[0], set()
        distance, followed = prefixes[prefix]
        onward = costs[prefix[-1]].items()
        best = min([(cost + distance[n], n) for n, cost in onward if n in distance and n not in followed], default=None)
        if best is not None:
            total, there = best
            followed.add(there)
            heapq.heappush(heap, (spent + total, prefix + _trace_path(costs, distance, there, target), len(prefix)))

    leave((source,), 0)
    while heap and len(routes) < k:
        _, path, shared = heapq.heappop(heap)
        routes.append(path)
        spent = 0
        for i in range(1, len(path)):
            prefix = path[:i]
            if i > shared:  # a prefix that no earlier path has
                prefixes[prefix] = shortest_path_tree(turned, target, prefix)[0], {path[i]}
            if i >= shared:
                leave(prefix, spent)
            spent += costs[path[i - 1]][path[i]]
    return routes


def _reverse_arcs(costs: Costs) -> dict[PeerId, dict[PeerId, int]]:
    """The graph with reversed arcs, so that a search gives the distances *to* its start."""
    turned: dict[PeerId, dict[PeerId, int]] = {peer: {} for peer in costs}
    for a, links in costs.items():
        for b, cost in links.items():
            if b in turned:
                turned[b][a] = cost
    return turned


def _trace_path(costs: Costs, distance: Mapping[PeerId, int], start: PeerId, target: PeerId) -> tuple[PeerId, ...]:
    """The shortest path from a peer to the target; of equal ones that with the lowest ids."""
    path = [start]
    while path[-1] != target:
        here = path[-1]
        path.append(min(n for n, cost in costs[here].items() if n in distance and cost + distance[n] == distance[here]))
    return tuple(path)
