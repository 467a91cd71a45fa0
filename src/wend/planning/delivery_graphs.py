"""Delivery graphs: the routes of one message to all receivers of its flow (thesis, definition 3.2).

The thesis takes the union of the k-th paths to all receivers. If two of them part and meet again, a peer would get the
message twice. So a union is turned into trees: each path joins the tree at the last peer that is already in it. The
result depends on the order of the receivers, so each union gives two trees: near receivers first, and far receivers
first. The first union is already a tree. In a tree every peer but the publisher receives the message once: a peer
copies it where routes part, and each link and peer counts once.

A receiver with fewer than k paths contributes its last one, so every delivery graph reaches all receivers.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from wend.model.compiled import compiled
from wend.model.errors import ConfigError
from wend.planning.arrays import Ints, Longs
from wend.planning.candidate_paths import CandidatePaths, paths_from
from wend.planning.flow_network import CsrGraph, FlowNetwork
from wend.planning.flow_workload import FlowWorkload

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
    for group in _by_publisher(workload, order):
        pieces.append(_of_publisher(network, workload, group, k, find))
        counts[group] = pieces[-1][0]
    return _assemble(workload, order, counts, pieces)


def _by_publisher(workload: FlowWorkload, order: Longs) -> Iterator[Longs]:
    publishers = workload.publisher[order]
    cuts = np.flatnonzero(np.diff(publishers)) + 1
    yield from np.split(order, cuts)


def _of_publisher(
    network: FlowNetwork, workload: FlowWorkload, group: Longs, k: int, find: Find
) -> tuple[Ints, Ints, Ints, Ints]:
    source = int(workload.publisher[group[0]])
    spans = [workload.of(int(f)) for f in group]
    wanted = np.unique(np.concatenate(spans))
    found = find(network.graph, source, wanted, k)
    missing = np.flatnonzero(np.diff(found.first) == 0)
    if len(missing):
        names = network.names
        raise ConfigError(f"there is no path from {names[source]} to its receiver {names[int(wanted[missing[0]])]}")
    ptr = np.concatenate(([0], np.cumsum([len(s) for s in spans]))).astype(np.int64)
    near = _nearest_first(network.graph, found)
    places = np.full(network.peers, -1, dtype=np.int32)
    places[wanted[near]] = np.arange(len(near), dtype=np.int32)
    ranked = np.sort(places[np.concatenate(spans)] + np.repeat(np.arange(len(spans)), np.diff(ptr)) * network.peers)
    members = near[ranked % network.peers].astype(np.int32)
    return _trees(network.graph.tail, network.graph.head, source, found.first, found.ptr, found.arcs, ptr, members, k)


def _nearest_first(graph: CsrGraph, found: CandidatePaths) -> Longs:
    """The positions of the receivers in `found`, ordered by the delay of the first path, then by id."""
    sums = np.concatenate(([0], np.cumsum(graph.delay[found.arcs])))
    best = found.first[:-1]
    return np.lexsort((found.receivers, sums[found.ptr[best + 1]] - sums[found.ptr[best]]))


@compiled
def _trees(
    tail: Ints, head: Ints, source: int, first: Ints, path_ptr: Ints, path_arcs: Ints, ptr: Longs, members: Ints, k: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """For each flow the number of its graphs; for each graph its length and level; and all arcs."""
    flows = len(ptr) - 1
    counts = np.zeros(flows, dtype=np.int32)
    lengths = np.empty(flows * (2 * k - 1), dtype=np.int32)
    levels = np.empty(flows * (2 * k - 1), dtype=np.int32)
    arcs = np.empty(max(len(members) * k, 16), dtype=np.int32)
    peers = 0
    for arc in range(len(head)):
        peers = max(peers, head[arc] + 1)
    in_tree = np.full(peers, -1, dtype=np.int64)
    mark = np.full(len(head), -1, dtype=np.int64)
    used, graphs = 0, 0
    for f in range(flows):
        for turn in range(2 * k - 1):
            level = (turn + 1) // 2
            far_first = turn > 0 and turn % 2 == 0
            if used + peers > len(arcs):
                grown = np.empty(2 * len(arcs) + peers, dtype=np.int32)
                for j in range(used):
                    grown[j] = arcs[j]
                arcs = grown
            stamp = np.int64(f) * (2 * k) + turn
            in_tree[source] = stamp
            start = used
            anew = turn == 0
            for i in range(ptr[f], ptr[f + 1]):
                r = members[ptr[f] + ptr[f + 1] - 1 - i] if far_first else members[i]
                paths = first[r + 1] - first[r]
                if level < paths:
                    anew = True
                p = first[r] + min(level, paths - 1)
                begin, end = path_ptr[p], path_ptr[p + 1]
                join = end
                while join > begin and in_tree[head[path_arcs[join - 1]]] != stamp:
                    join -= 1
                for j in range(join, end):
                    arcs[used] = path_arcs[j]
                    in_tree[head[path_arcs[j]]] = stamp
                    used += 1
            if not anew:
                used = start
                break
            # A tree that equals an earlier one of this flow is dropped.
            for j in range(start, used):
                mark[arcs[j]] = stamp
            same = False
            at = start
            for g in range(graphs - 1, graphs - 1 - counts[f], -1):
                at -= lengths[g]
                if lengths[g] == used - start:
                    same = True
                    for j in range(at, at + lengths[g]):
                        if mark[arcs[j]] != stamp:
                            same = False
                            break
                    if same:
                        break
            if same:
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
    of_flow = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    lengths = np.concatenate([piece[1] for piece in pieces])
    levels = np.concatenate([piece[2] for piece in pieces])
    arcs = np.concatenate([piece[3] for piece in pieces])
    pieces.clear()
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    # for each graph in the order of flows its number in the order of publishers
    begin = np.empty(len(workload), dtype=np.int64)
    begin[order] = np.concatenate(([0], np.cumsum(counts[order])[:-1]))
    source = np.repeat(begin - of_flow[:-1], counts) + np.arange(of_flow[-1])
    ptr = np.concatenate(([0], np.cumsum(lengths[source]))).astype(np.int64)
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
    ptr = np.concatenate(([0], np.cumsum(np.diff(graphs.ptr)[numbers]))).astype(np.int64)
    return DeliveryGraphs(of_flow, ptr, _gather(graphs.ptr, graphs.arcs, numbers, ptr), graphs.level[numbers])


def up_to(graphs: DeliveryGraphs, k: int) -> DeliveryGraphs:
    """The graphs of a smaller k."""
    return chosen(graphs, np.flatnonzero(graphs.level <= k))
