"""Delivery graphs: the routes of one message to all receivers of its flow (thesis, definition 3.2).

The thesis takes the union of the k-th paths to all receivers. If two paths part and meet again, a peer would get the
message twice. So each union becomes two trees: a path joins the tree at the last of its peers that is already in it,
and the receivers come nearest first in one tree, farthest first in the other. The first union is already a tree. In a
tree every peer but the publisher receives the message once: a peer copies it where routes part, and each link and peer
counts once.

A receiver with fewer than k paths contributes its last one, so every delivery graph reaches all receivers.

If a flow has a deadline, the paths of a receiver that take longer do not count; if all do, its first one counts. A path
that would join the tree too late gives way to another one. After the shortest-path tree come two trees of the first
paths in time, so a flow has up to 2k + 1 trees. Only those that are late for the fewest receivers are candidates
(`in_time`). If none meets the deadline of a receiver, that receiver excludes no tree.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from wend.model.compiled import compiled
from wend.model.errors import ConfigError
from wend.planning.arrays import Flags, Floats, Ints, Longs, run_numbers, run_offsets
from wend.planning.candidate_paths import CandidatePaths, find_paths, grow_array
from wend.planning.flow_network import CsrGraph, FlowNetwork
from wend.planning.flow_workload import FlowWorkload
from wend.planning.graph_delays import compute_arc_times, fill_times, message_bits, receiver_limits
from wend.topology.heap import Number

Find = Callable[[CsrGraph, int, Ints, int], CandidatePaths]


class DeliveryGraphs(NamedTuple):
    """The candidate graphs of all flows. Flow `f` may use graphs `of_flow[f]` to `of_flow[f + 1]`. Graph `g` is
    `arcs[ptr[g]:ptr[g + 1]]`, each arc after its predecessor. `level[g]` is the k of its paths, counted from 1."""

    of_flow: Longs
    ptr: Longs
    arcs: Ints
    level: Ints


def make_delivery_graphs(
    network: FlowNetwork, workload: FlowWorkload, k: int, find: Find = find_paths
) -> DeliveryGraphs:
    """Up to 2k - 1 different trees for each flow, the shortest-path tree first; with a deadline, up to 2k + 1."""
    limits = receiver_limits(network, workload)
    order = np.argsort(workload.publisher, kind="stable")
    counts = np.zeros(len(workload), dtype=np.int64)
    pieces: list[tuple[Ints, Ints, Ints, Ints]] = []
    for group in np.split(order, np.flatnonzero(np.diff(workload.publisher[order])) + 1):
        pieces.append(_make_publisher_graphs(network, workload, group, k, find, limits))
        counts[group] = pieces[-1][0]
    return _assemble(workload, order, counts, pieces)


def find_least_late(graphs: DeliveryGraphs, late: Ints) -> Flags:
    """Whether each graph is late for as few receivers as any graph of its flow."""
    least = np.minimum.reduceat(late, graphs.of_flow[:-1])
    return np.asarray(late == least[run_numbers(graphs.of_flow)], dtype=np.bool_)


def _make_publisher_graphs(
    network: FlowNetwork, workload: FlowWorkload, group: Longs, k: int, find: Find, limits: Floats | None
) -> tuple[Ints, Ints, Ints, Ints]:
    source = int(workload.publisher[group[0]])
    spans = [workload.flow_receivers(int(f)) for f in group]
    receivers = np.unique(np.concatenate(spans))
    paths = find(network.graph, source, receivers, k)
    missing = np.flatnonzero(np.diff(paths.first) == 0)
    if len(missing):
        names = network.names
        raise ConfigError(f"there is no path from {names[source]} to its receiver {names[int(receivers[missing[0]])]}")
    ptr = run_offsets([len(span) for span in spans])
    near = _order_by_delay(network.graph, paths)
    places = np.full(network.peers, -1, dtype=np.int32)
    places[receivers[near]] = np.arange(len(near), dtype=np.int32)
    ranks = places[np.concatenate(spans)] + run_numbers(ptr) * network.peers
    order = np.argsort(ranks, kind="stable")
    members = near[ranks[order] % network.peers].astype(np.int32)
    if limits is None:
        longest = np.full(len(members), np.inf)
    else:
        longest = np.concatenate([limits[workload.ptr[f] : workload.ptr[f + 1]] for f in group])[order]
    return _make_trees(
        network.graph.tail, network.graph.head, source, paths.first, paths.ptr, paths.arcs, ptr, members, longest,
        *compute_arc_times(network), message_bits(workload)[group], k,
    )  # fmt: skip


def _order_by_delay(graph: CsrGraph, paths: CandidatePaths) -> Longs:
    """The positions of the receivers in `paths`, ordered by the delay of the first path, then by id."""
    sums = np.concatenate(([0], np.cumsum(graph.delay[paths.arcs])))
    best = paths.first[:-1]
    return np.lexsort((paths.receivers, sums[paths.ptr[best + 1]] - sums[paths.ptr[best]]))


@compiled
def _choose_path(
    first: int, last: int, level: int, path_ptr: Ints, path_arcs: Ints, times: Floats, limit: float
) -> int:
    """The path of this level among the paths `first` to `last` that are in time. If there are fewer, the last of them;
    if there is none, the first path."""
    chosen, count = first, 0
    for p in range(first, last):
        total = 0.0
        for j in range(path_ptr[p], path_ptr[p + 1]):
            total += times[path_arcs[j]]
        if total <= limit:
            chosen = p
            count += 1
            if count > level:
                break
    return chosen


@compiled
def _find_joint(p: int, path_ptr: Ints, path_arcs: Ints, head: Ints, in_tree: Longs, stamp: Number) -> int:
    """The position at which a path leaves the tree for the last time."""
    join = path_ptr[p + 1]
    while join > path_ptr[p] and in_tree[head[path_arcs[join - 1]]] != stamp:
        join -= 1
    return int(join)


@compiled
def _arrival_time(
    p: int, join: int, path_ptr: Ints, path_arcs: Ints, tail: Ints, times: Floats, arrival: Floats
) -> float:  # fmt: skip
    """The time at which a message reaches the end of a path that joins the tree there."""
    if join == path_ptr[p + 1]:
        return 0.0  # the receiver is in the tree already
    total = arrival[tail[path_arcs[join]]]
    for j in range(join, path_ptr[p + 1]):
        total += times[path_arcs[j]]
    return float(total)


@compiled
def _add_tree(
    tail: Ints, head: Ints, first: Ints, path_ptr: Ints, path_arcs: Ints, members: Ints, limits: Floats, begin: int,
    end: int, level: int, far_first: bool, in_tree: Longs, stamp: Number, times: Floats, arrival: Floats, arcs: Ints,
    used: int,
) -> tuple[int, bool]:  # fmt: skip
    """Append the tree of one union of paths to `arcs`. Returns the number of arcs in use, and whether a receiver has a
    path of this level."""
    is_new = False
    for i in range(begin, end):
        member = begin + end - 1 - i if far_first else i
        r, limit = members[member], limits[member]
        paths = first[r + 1] - first[r]
        if level < paths:
            is_new = True
        p = first[r] + min(level, paths - 1)
        if limit < np.inf:
            p = _choose_path(first[r], first[r + 1], level, path_ptr, path_arcs, times, limit)
        join = _find_joint(p, path_ptr, path_arcs, head, in_tree, stamp)
        if limit < np.inf and _arrival_time(p, join, path_ptr, path_arcs, tail, times, arrival) > limit:
            for q in range(first[r], first[r + 1]):
                other = _find_joint(q, path_ptr, path_arcs, head, in_tree, stamp)
                if _arrival_time(q, other, path_ptr, path_arcs, tail, times, arrival) <= limit:
                    p, join = q, other
                    break
        for j in range(join, path_ptr[p + 1]):
            arcs[used] = path_arcs[j]
            in_tree[head[path_arcs[j]]] = stamp
            arrival[head[path_arcs[j]]] = arrival[tail[path_arcs[j]]] + times[path_arcs[j]]
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
def _make_trees(
    tail: Ints, head: Ints, source: int, first: Ints, path_ptr: Ints, path_arcs: Ints, ptr: Longs, members: Ints,
    limits: Floats, travel: Floats, link: Floats, peer: Floats, bits: Floats, k: int,
) -> tuple[Ints, Ints, Ints, Ints]:  # fmt: skip
    """For each flow the number of its graphs; for each graph its length and level; and all arcs."""
    flows = len(ptr) - 1
    counts = np.zeros(flows, dtype=np.int32)
    lengths = np.empty(flows * (2 * k + 1), dtype=np.int32)
    levels = np.empty(flows * (2 * k + 1), dtype=np.int32)
    arcs = np.empty(max(len(members) * k, 16), dtype=np.int32)
    peers = np.max(head) + 1
    in_tree = np.full(peers, -1, dtype=np.int64)
    mark = np.full(len(head), -1, dtype=np.int64)
    arrival = np.zeros(peers)
    times = np.zeros(len(head))
    no_limits = np.full(len(members), np.inf)
    used, graphs = 0, 0
    for f in range(flows):
        is_limited = False
        for i in range(ptr[f], ptr[f + 1]):
            is_limited = is_limited or limits[i] < np.inf
        if is_limited:
            fill_times(travel, link, peer, bits[f], times)
        extra = 2 if is_limited else 0
        for turn in range(2 * k - 1 + extra):
            level = (turn + 1 - extra) // 2 if turn else 0
            far_first = turn > 0 and turn % 2 == 0
            arcs = grow_array(arcs, used, peers)
            stamp = np.int64(f) * (2 * k + 2) + turn
            in_tree[source] = stamp
            arrival[source] = 0.0
            start = used
            used, is_new = _add_tree(
                tail, head, first, path_ptr, path_arcs, members, limits if turn else no_limits, ptr[f], ptr[f + 1],
                level, far_first, in_tree, stamp, times, arrival, arcs, used,
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
    of_flow = run_offsets(counts)
    lengths = np.concatenate([piece[1] for piece in pieces])
    levels = np.concatenate([piece[2] for piece in pieces])
    arcs = np.concatenate([piece[3] for piece in pieces])
    pieces.clear()
    starts = run_offsets(lengths)
    # for each graph in the order of flows its number in the order of publishers
    begin = np.empty(len(workload), dtype=np.int64)
    begin[order] = run_offsets(counts[order])[:-1]
    source = np.repeat(begin - of_flow[:-1], counts) + np.arange(of_flow[-1])
    ptr = run_offsets(lengths[source])
    return DeliveryGraphs(of_flow, ptr, gather(starts, arcs, source, ptr), levels[source])


@compiled
def gather(starts: Longs, arcs: Ints, source: Longs, ptr: Longs) -> Ints:
    """The arcs of some graphs, one after the other."""
    out = np.empty(ptr[-1], dtype=np.int32)
    for g in range(len(source)):
        begin = starts[source[g]]
        for j in range(ptr[g], ptr[g + 1]):
            out[j] = arcs[begin + j - ptr[g]]
    return out


def select_graphs(graphs: DeliveryGraphs, numbers: Longs) -> DeliveryGraphs:
    """The graphs with these numbers, which ascend."""
    of_flow = np.searchsorted(numbers, graphs.of_flow).astype(np.int64)
    ptr = run_offsets(np.diff(graphs.ptr)[numbers])
    return DeliveryGraphs(of_flow, ptr, gather(graphs.ptr, graphs.arcs, numbers, ptr), graphs.level[numbers])


def limit_k(graphs: DeliveryGraphs, k: int) -> DeliveryGraphs:
    """The graphs of a smaller k."""
    return select_graphs(graphs, np.flatnonzero(graphs.level <= k))


def unite_graphs(graphs: DeliveryGraphs, others: DeliveryGraphs) -> DeliveryGraphs:
    """The graphs of each flow, and after them those of `others` that are not among them."""
    arcs: list[Ints] = []
    levels: list[int] = []
    counts: list[int] = []
    for flow in range(len(graphs.of_flow) - 1):
        known: set[bytes] = set()
        for each in (graphs, others):
            for g in range(int(each.of_flow[flow]), int(each.of_flow[flow + 1])):
                tree = each.arcs[each.ptr[g] : each.ptr[g + 1]]
                if (key := arcs_key(tree)) not in known:
                    known.add(key)
                    arcs.append(tree)
                    levels.append(int(each.level[g]))
        counts.append(len(known))
    flat = np.concatenate(arcs).astype(np.int32)
    return DeliveryGraphs(
        run_offsets(counts), run_offsets([len(tree) for tree in arcs]), flat, np.array(levels, dtype=np.int32)
    )


def arcs_key(arcs: Ints) -> bytes:
    """The same key for the same arcs in any order."""
    return np.sort(arcs).astype(np.int32).tobytes()
