"""Delivery graphs: the routes of one message to all receivers of its flow (thesis, definition 3.2).

The thesis takes the union of the k-th paths to all receivers. If two paths part and meet again, a peer would get the
message twice. So each union becomes two trees: a path joins the tree at the last of its peers that is already in it,
and the receivers come nearest first in one tree, farthest first in the other. The first union is already a tree. In a
tree every peer but the publisher receives the message once: a peer copies it where routes part, and each link and peer
counts once.

A receiver with fewer than k paths contributes its last one, so every delivery graph reaches all receivers.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from wend.model.compiled import compiled
from wend.model.errors import ConfigError
from wend.planning.arrays import Ints, Longs, offsets, owners
from wend.planning.candidate_paths import CandidatePaths, paths_from, with_room
from wend.planning.flow_network import CsrGraph, FlowNetwork
from wend.planning.flow_workload import FlowWorkload
from wend.topology.heap import Number

Find = Callable[[CsrGraph, int, Ints, int], CandidatePaths]


class DeliveryGraphs(NamedTuple):
    """The candidate graphs of all flows. Flow `f` may use graphs `of_flow[f]` to `of_flow[f + 1]`. Graph `g` is
    `arcs[ptr[g]:ptr[g + 1]]`, each arc after its predecessor. `level[g]` is the k of its paths, counted from 1."""

    of_flow: Longs
    ptr: Longs
    arcs: Ints
    level: Ints


def delivery_graphs(network: FlowNetwork, workload: FlowWorkload, k: int, find: Find = paths_from) -> DeliveryGraphs:
    """Up to 2k - 1 different trees for each flow, the shortest-path tree first."""
    order = np.argsort(workload.publisher, kind="stable")
    counts = np.zeros(len(workload), dtype=np.int64)
    pieces: list[tuple[Ints, Ints, Ints, Ints]] = []
    for group in np.split(order, np.flatnonzero(np.diff(workload.publisher[order])) + 1):
        pieces.append(_of_publisher(network, workload, group, k, find))
        counts[group] = pieces[-1][0]
    return _assemble(workload, order, counts, pieces)


def _of_publisher(
    network: FlowNetwork, workload: FlowWorkload, group: Longs, k: int, find: Find
) -> tuple[Ints, Ints, Ints, Ints]:
    source = int(workload.publisher[group[0]])
    spans = [workload.of(int(f)) for f in group]
    receivers = np.unique(np.concatenate(spans))
    paths = find(network.graph, source, receivers, k)
    missing = np.flatnonzero(np.diff(paths.first) == 0)
    if len(missing):
        names = network.names
        raise ConfigError(f"there is no path from {names[source]} to its receiver {names[int(receivers[missing[0]])]}")
    ptr = offsets([len(span) for span in spans])
    near = _nearest_first(network.graph, paths)
    places = np.full(network.peers, -1, dtype=np.int32)
    places[receivers[near]] = np.arange(len(near), dtype=np.int32)
    ranked = np.sort(places[np.concatenate(spans)] + owners(ptr) * network.peers)
    members = near[ranked % network.peers].astype(np.int32)
    return _trees(network.graph.head, source, paths.first, paths.ptr, paths.arcs, ptr, members, k)


def _nearest_first(graph: CsrGraph, paths: CandidatePaths) -> Longs:
    """The positions of the receivers in `paths`, ordered by the delay of the first path, then by id."""
    sums = np.concatenate(([0], np.cumsum(graph.delay[paths.arcs])))
    best = paths.first[:-1]
    return np.lexsort((paths.receivers, sums[paths.ptr[best + 1]] - sums[paths.ptr[best]]))


@compiled
def _add_tree(
    head: Ints, first: Ints, path_ptr: Ints, path_arcs: Ints, members: Ints, begin: int, end: int,
    level: int, far_first: bool, in_tree: Longs, stamp: Number, arcs: Ints, used: int,
) -> tuple[int, bool]:  # fmt: skip
    """Append the tree of one union of paths to `arcs`. Returns the number of arcs in use, and whether a receiver has a
    path of this level."""
    is_new = False
    for i in range(begin, end):
        r = members[begin + end - 1 - i] if far_first else members[i]
        paths = first[r + 1] - first[r]
        if level < paths:
            is_new = True
        p = first[r] + min(level, paths - 1)
        last = path_ptr[p + 1]
        join = last
        while join > path_ptr[p] and in_tree[head[path_arcs[join - 1]]] != stamp:
            join -= 1
        for j in range(join, last):
            arcs[used] = path_arcs[j]
            in_tree[head[path_arcs[j]]] = stamp
            used += 1
    return used, is_new


@compiled
def _is_known(
    arcs: Ints, start: int, used: int, lengths: Ints, graphs: int, count: int, mark: Longs, stamp: Number
) -> bool:
    """Whether the newest tree, `arcs[start:used]`, equals one of the `count` trees before it."""
    for j in range(start, used):
        mark[arcs[j]] = stamp
    at = start
    for g in range(graphs - 1, graphs - 1 - count, -1):
        at -= lengths[g]
        same = lengths[g] == used - start
        j = at
        while same and j < at + lengths[g]:
            same = mark[arcs[j]] == stamp
            j += 1
        if same:
            return True
    return False


@compiled
def _trees(
    head: Ints, source: int, first: Ints, path_ptr: Ints, path_arcs: Ints, ptr: Longs, members: Ints, k: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """For each flow the number of its graphs; for each graph its length and level; and all arcs."""
    flows = len(ptr) - 1
    counts = np.zeros(flows, dtype=np.int32)
    lengths = np.empty(flows * (2 * k - 1), dtype=np.int32)
    levels = np.empty(flows * (2 * k - 1), dtype=np.int32)
    arcs = np.empty(max(len(members) * k, 16), dtype=np.int32)
    peers = np.max(head) + 1
    in_tree = np.full(peers, -1, dtype=np.int64)
    mark = np.full(len(head), -1, dtype=np.int64)
    used, graphs = 0, 0
    for f in range(flows):
        for turn in range(2 * k - 1):
            level = (turn + 1) // 2
            far_first = turn > 0 and turn % 2 == 0
            arcs = with_room(arcs, used, peers)
            stamp = np.int64(f) * (2 * k) + turn
            in_tree[source] = stamp
            start = used
            used, is_new = _add_tree(
                head, first, path_ptr, path_arcs, members, ptr[f], ptr[f + 1], level, far_first, in_tree, stamp, arcs,
                used,
            )  # fmt: skip
            if turn > 0 and not is_new:
                used = start
                break
            if _is_known(arcs, start, used, lengths, graphs, counts[f], mark, stamp):
                used = start
                continue
            lengths[graphs] = used - start
            levels[graphs] = level + 1
            graphs += 1
            counts[f] += 1
    return counts, lengths[:graphs].copy(), levels[:graphs].copy(), arcs[:used].copy()


def _assemble(
    workload: FlowWorkload, order: Longs, counts: Longs, pieces: list[tuple[Ints, Ints, Ints, Ints]]
) -> DeliveryGraphs:
    """All graphs, reordered from the order of publishers to that of flows."""
    of_flow = offsets(counts)
    lengths = np.concatenate([piece[1] for piece in pieces])
    levels = np.concatenate([piece[2] for piece in pieces])
    arcs = np.concatenate([piece[3] for piece in pieces])
    pieces.clear()
    starts = offsets(lengths)
    # for each graph in the order of flows its number in the order of publishers
    begin = np.empty(len(workload), dtype=np.int64)
    begin[order] = offsets(counts[order])[:-1]
    source = np.repeat(begin - of_flow[:-1], counts) + np.arange(of_flow[-1])
    ptr = offsets(lengths[source])
    return DeliveryGraphs(of_flow, ptr, _gather(starts, arcs, source, ptr), levels[source])


@compiled
def _gather(starts: Longs, arcs: Ints, source: Longs, ptr: Longs) -> Ints:
    out = np.empty(ptr[-1], dtype=np.int32)
    for g in range(len(source)):
        begin = starts[source[g]]
        for j in range(ptr[g], ptr[g + 1]):
            out[j] = arcs[begin + j - ptr[g]]
    return out


def chosen(graphs: DeliveryGraphs, numbers: Longs) -> DeliveryGraphs:
    """The graphs with these numbers, which ascend."""
    of_flow = np.searchsorted(numbers, graphs.of_flow).astype(np.int64)
    ptr = offsets(np.diff(graphs.ptr)[numbers])
    return DeliveryGraphs(of_flow, ptr, _gather(graphs.ptr, graphs.arcs, numbers, ptr), graphs.level[numbers])


def up_to(graphs: DeliveryGraphs, k: int) -> DeliveryGraphs:
    """The graphs of a smaller k."""
    return chosen(graphs, np.flatnonzero(graphs.level <= k))
