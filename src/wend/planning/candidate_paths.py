"""Candidate paths from a publisher to its receivers: the k shortest that share no bottleneck (thesis, section 3.5).

One shortest-path tree from the source gives the first path of every receiver. For the next path the bottleneck of the
last one is removed, and an A* search runs backwards from the receiver. Its heuristic is the distance in the tree, which
stays a lower bound when arcs are removed. So the search is exact and visits a few dozen nodes instead of all.

The bottleneck is the set of arcs of least width on a path, without those at the publisher and at the receiver. If that
set is empty, the narrowest inner arc takes its place. If the path has no inner arc, it is the narrower end arc,
provided that another arc leaves the publisher (or reaches the receiver). The thesis omits this last step
(`spare_ends=True`), so receivers two hops away have a single path.

Of paths with equal delay the first in the order of ids wins, in every process.
"""

from typing import NamedTuple

import numpy as np

from wend.model.compiled import compiled
from wend.model.errors import ConfigError
from wend.planning.arrays import Floats, Ints, Longs
from wend.planning.flow_network import CsrGraph
from wend.topology.heap import Number, pop, push

FAR = np.iinfo(np.int64).max


class CandidatePaths(NamedTuple):
    """The paths from one source. Those to `receivers[i]` have the numbers `first[i]` to `first[i + 1]`, the best first.
    Path `p` is `arcs[ptr[p]:ptr[p + 1]]`, from the source on."""

    receivers: Ints
    first: Ints
    ptr: Ints
    arcs: Ints


def find_paths(
    graph: CsrGraph,
    source: int,
    receivers: Ints,
    k: int,
    *,
    spare_ends: bool = False,
    after: CandidatePaths | None = None,
) -> CandidatePaths:
    """Up to k bottleneck-disjoint paths to each receiver; none if it is unreachable. `after` are those of a smaller k,
    which are not searched again."""
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    targets = np.asarray(receivers, dtype=np.int32)
    if after is None:
        none = np.zeros(0, dtype=np.int32)
        after = CandidatePaths(targets, np.zeros(len(targets) + 1, dtype=np.int32), np.zeros(1, dtype=np.int32), none)
    first, ptr, arcs = _search(*graph, source, targets, k, spare_ends, after.first, after.ptr, after.arcs)
    return CandidatePaths(targets, first, ptr, arcs)


class PathSearch:
    """The search for the paths of each publisher with a growing k. It continues where it stopped."""

    def __init__(self) -> None:
        self._paths: dict[int, CandidatePaths] = {}

    def __call__(self, graph: CsrGraph, source: int, receivers: Ints, k: int) -> CandidatePaths:
        self._paths[source] = find_paths(graph, source, receivers, k, after=self._paths.get(source))
        return self._paths[source]


def shortest_delays(graph: CsrGraph, source: int) -> Longs:
    """The shortest delay from the source to each peer, in nanoseconds; `FAR` if it is unreachable."""
    room = len(graph.head) + 2
    keys, nodes = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int32)
    return np.asarray(_find_distances(graph.ptr, graph.head, graph.delay, source, keys, nodes), dtype=np.int64)


@compiled
def _find_distances(ptr: Ints, head: Ints, delay: Longs, source: int, keys: Longs, nodes: Ints) -> Longs:
    distance = np.full(len(ptr) - 1, FAR, dtype=np.int64)
    distance[source] = 0
    size = push(keys, nodes, np.int64(0), np.int64(0), np.int32(source))
    while size:
        so_far, here = keys[0], nodes[0]
        size = pop(keys, nodes, size)
        if so_far > distance[here]:
            continue
        for arc in range(ptr[here], ptr[here + 1]):
            total = so_far + delay[arc]
            if total < distance[head[arc]]:
                distance[head[arc]] = total
                size = push(keys, nodes, size, total, head[arc])
    return distance


@compiled
def _find_tree(ptr: Ints, head: Ints, delay: Longs, source: int, distance: Longs) -> Ints:
    """The arc into each node on its shortest path. A depth-first search along tight arcs, the lowest id first, finds
    every node on the first of its shortest paths in the order of ids."""
    into = np.full(len(ptr) - 1, -1, dtype=np.int32)
    stack = np.empty(len(ptr), dtype=np.int32)
    at = ptr[:-1].copy()
    stack[0] = source
    depth = 1
    while depth:
        here = stack[depth - 1]
        if at[here] == ptr[here + 1]:
            depth -= 1
            continue
        arc = at[here]
        at[here] += 1
        there = head[arc]
        if there != source and into[there] < 0 and distance[here] + delay[arc] == distance[there]:
            into[there] = arc
            stack[depth] = there
            depth += 1
    return into


@compiled
def _ban_bottlenecks(
    ptr: Ints, head: Ints, back: Ints, width: Floats, path: Ints, length: int,
    banned: Ints, stamp: int, spare_ends: bool,
) -> bool:  # fmt: skip
    """Remove the path's bottlenecks. Returns False if there is none to remove."""
    least = np.inf
    for i in range(length):
        least = min(least, width[path[i]])
    has_bottleneck = False
    for i in range(1, length - 1):
        if width[path[i]] == least:
            banned[path[i]] = stamp
            has_bottleneck = True
    if has_bottleneck:
        return True
    weakest = -1
    for i in range(1, length - 1):
        if weakest < 0 or width[path[i]] < width[weakest]:
            weakest = path[i]
    if weakest < 0 and not spare_ends:
        weakest = _narrower_end(ptr, head, back, width, path, length, banned, stamp)
    if weakest < 0:
        return False
    banned[weakest] = stamp
    return True


@compiled
def _narrower_end(
    ptr: Ints, head: Ints, back: Ints, width: Floats, path: Ints, length: int, banned: Ints, stamp: int
) -> int:  # fmt: skip
    """The narrower of the two end arcs if that end has another arc, or else the other one; -1 if neither."""
    leave, reach = path[0], path[length - 1]
    out = 0
    source = head[back[leave]]
    for arc in range(ptr[source], ptr[source + 1]):
        out += banned[arc] != stamp
    into = 0
    target = head[reach]
    for arc in range(ptr[target], ptr[target + 1]):
        into += banned[back[arc]] != stamp
    if into > 1 and (out <= 1 or width[reach] <= width[leave]):
        return int(reach)
    return int(leave) if out > 1 else -1


@compiled
def grow_array(values: Ints, used: int, more: Number) -> Ints:
    """An array with room for `more` values after the first `used`: the same array, or a larger copy."""
    if used + more <= len(values):
        return values
    grown = np.empty(2 * len(values) + more, dtype=np.int32)
    for i in range(used):
        grown[i] = values[i]
    return grown


@compiled
def _write_tree_path(tail: Ints, into: Ints, source: int, target: int, path: Ints) -> int:
    """Write the path in the tree from the source to the target. Returns its length."""
    length = 0
    here = target
    while here != source:
        length += 1
        here = tail[into[here]]
    here = target
    for i in range(length - 1, -1, -1):
        path[i] = into[here]
        here = tail[into[here]]
    return length


@compiled
def _search_back(
    ptr: Ints, head: Ints, back: Ints, delay: Longs, distance: Longs, source: int, target: int,
    banned: Ints, stamp: int, keys: Longs, heap: Ints, ahead: Longs, seen: Ints, search: int,
) -> bool:  # fmt: skip
    """Search backwards from the target, until no node in the heap can be on a shortest path to it.

    `ahead` gets the delay from a node to the target, if `seen` has the number of this search. Returns whether the
    search reached the source."""
    ahead[target] = 0
    seen[target] = search
    size = push(keys, heap, np.int64(0), distance[target], np.int32(target))
    best = FAR
    while size and keys[0] <= best:
        estimate, here = keys[0], heap[0]
        size = pop(keys, heap, size)
        if estimate > ahead[here] + distance[here]:
            continue
        if here == source:
            best = estimate
            continue
        for out in range(ptr[here], ptr[here + 1]):
            arc = back[out]
            before = head[out]
            if banned[arc] == stamp:
                continue
            total = ahead[here] + delay[arc]
            if seen[before] != search or total < ahead[before]:
                seen[before] = search
                ahead[before] = total
                size = push(keys, heap, size, total + distance[before], before)
    return best < FAR


@compiled
def _write_found_path(
    ptr: Ints, head: Ints, delay: Longs, source: int, target: int, banned: Ints, stamp: int,
    ahead: Longs, seen: Ints, search: int, path: Ints,
) -> int:  # fmt: skip
    """Write the path that the search found, of several the first in the order of ids. Returns its length."""
    length = 0
    here = source
    while here != target:
        for arc in range(ptr[here], ptr[here + 1]):
            there = head[arc]
            if banned[arc] != stamp and seen[there] == search and delay[arc] + ahead[there] == ahead[here]:
                path[length] = arc
                length += 1
                here = there
                break
    return length


@compiled
def _search(
    ptr: Ints, tail: Ints, head: Ints, back: Ints, delay: Longs, width: Floats,
    source: int, receivers: Ints, k: int, spare_ends: bool, earlier_first: Ints, earlier_ptr: Ints, earlier_arcs: Ints,
) -> tuple[Ints, Ints, Ints]:  # fmt: skip
    nodes = len(ptr) - 1
    keys = np.empty(len(head) + 2, dtype=np.int64)
    heap = np.empty(len(head) + 2, dtype=np.int32)
    distance = _find_distances(ptr, head, delay, source, keys, heap)
    into = _find_tree(ptr, head, delay, source, distance)
    ahead = np.empty(nodes, dtype=np.int64)
    seen = np.zeros(nodes, dtype=np.int32)
    search = 0
    banned = np.full(len(head), -1, dtype=np.int32)
    path = np.empty(nodes, dtype=np.int32)
    first = np.zeros(len(receivers) + 1, dtype=np.int32)
    starts = np.zeros(len(receivers) * k + 1, dtype=np.int32)
    arcs = np.empty(len(receivers) * k * 4 + nodes, dtype=np.int32)
    count, used = 0, 0
    for r in range(len(receivers)):
        target = receivers[r]
        length = 0
        if target != source and distance[target] < FAR:
            length = _write_tree_path(tail, into, source, target, path)
        number = 0
        earlier = earlier_first[r]
        while length:
            arcs = grow_array(arcs, used, length)
            for i in range(length):
                arcs[used + i] = path[i]
            used += length
            count += 1
            starts[count] = used
            number += 1
            if number == k or not _ban_bottlenecks(ptr, head, back, width, path, length, banned, r, spare_ends):
                break
            earlier += 1
            if earlier < earlier_first[r + 1]:
                begin = earlier_ptr[earlier]
                length = earlier_ptr[earlier + 1] - begin
                for i in range(length):
                    path[i] = earlier_arcs[begin + i]
                continue
            search += 1
            length = 0
            if _search_back(
                ptr, head, back, delay, distance, source, target, banned, r, keys, heap, ahead, seen, search
            ):
                length = _write_found_path(ptr, head, delay, source, target, banned, r, ahead, seen, search, path)
        first[r + 1] = count
    return first, starts[: count + 1].copy(), arcs[:used].copy()
