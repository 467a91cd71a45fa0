"""The offsets of peers' clocks, from events that several peers saw, or from outages of their links.

A peer records times by its host's clock, which may be wrong by any amount, and ages, which depend on no clock. So at
every peer that saw an event, `time_ns - age_ns` is the time of its publication, by the clock of that peer. Two peers
that saw the same events differ by the median over these events.

Each incarnation of a peer has an offset of its own. Pairs of incarnations are joined into trees, those with the most
common events first. The largest tree is the reference. Its time is that of the median peer, so one wrong clock moves
nothing. Other trees are compared with it by the outages that both ends of a link saw (`outage_clocks.py`). The
remaining trees stay on their own clocks, and the summary names their peers.

A segment contributes few of its events, those with the lowest hash: the hash is the same at all peers, so they choose
the same events.
"""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from wend.model.telemetry import Segment
from wend.pipeline.spark.arrow_schema import int_fields
from wend.pipeline.telemetry.outage_clocks import Outages, group_outages, join_by_outages
from wend.pipeline.telemetry.segment_rows import Ints, int_column, node_columns

TABLES = ("publications", "hops", "deliveries", "changes")
_SIGHTINGS_PER_SEGMENT = 64
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_HASH_FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9)
SIGHTINGS = pa.schema(
    int_fields("publisher", "publisher_incarnation", "sequence", "peer", "incarnation", "published_ns", "own")
)
"""An event that a peer saw: its publication by that peer's clock. `own` is 1 at its publisher. If `own` is 2, the row
is an outage of the link to the neighbour `publisher`, from `sequence` to `published_ns` by that peer's clock."""
OUTAGE = 2

Node = tuple[int, int]
"""(peer, incarnation)"""


class Clocks(NamedTuple):
    """The offset of each incarnation's clock from the reference clock."""

    offsets: dict[Node, int]
    unaligned: list[Node]
    """Incarnations whose clock could not be compared with the reference."""

    def round_offsets(self, unit_ns: int) -> dict[Node, int]:
        """Offsets as multiples of a unit, so that slightly better estimates change nothing."""
        return {node: round(offset / unit_ns) * unit_ns for node, offset in self.offsets.items()}


def numbers_by_node(rows: Iterable[tuple[int, int, int]]) -> dict[Node, int]:
    """Rows of a version's facts as a dictionary: incarnation -> number."""
    return {(peer, incarnation): number for peer, incarnation, number in rows}


def segment_sightings(table: pa.Table, segment: Segment) -> pa.Table:
    """The events with the lowest hashes that a segment saw, or its outages."""
    if segment.table == "changes":
        return _segment_outages(table, segment)
    sequence = int_column(table, "sequence")
    key = sequence.astype(np.uint64) * _HASH_FACTOR + int_column(table, "publisher").astype(np.uint64) * _HASH_FACTOR_2
    key ^= key >> np.uint64(31)
    key *= _HASH_FACTOR
    many = min(_SIGHTINGS_PER_SEGMENT, len(key))
    chosen = np.sort(np.argpartition(key, many - 1)[:many]) if many < len(key) else np.arange(len(key))
    few = table.take(pa.array(chosen))
    own = segment.table == "publications"
    times = int_column(few, "time_ns") - (0 if own else int_column(few, "age_ns"))
    return pa.table(
        {
            "publisher": few["publisher"],
            "publisher_incarnation": few["publisher_incarnation"],
            "sequence": few["sequence"],
            **node_columns(segment, len(few)),
            "published_ns": pa.array(times),
            "own": pa.repeat(pa.scalar(int(own), pa.int64()), len(few)),
        }
    )


def _segment_outages(table: pa.Table, segment: Segment) -> pa.Table:
    """The last outages that ended in a segment. An outage that began earlier has no known length, and is left out."""
    heard, ended = int_column(table, "heard_ns"), int_column(table, "time_ns")
    chosen = np.flatnonzero((table["state"].to_numpy(zero_copy_only=False) == "up") & (heard < ended))[
        -_SIGHTINGS_PER_SEGMENT:
    ]
    same = {"publisher_incarnation": 0, "peer": segment.peer, "incarnation": segment.incarnation, "own": OUTAGE}
    columns = {name: np.full(len(chosen), value, np.int64) for name, value in same.items()}
    columns |= {"publisher": int_column(table, "neighbour")[chosen]}
    columns |= {"sequence": heard[chosen], "published_ns": ended[chosen]}
    return pa.table({name: columns[name] for name in SIGHTINGS.names}, schema=SIGHTINGS)


def solve_clocks(seen: pa.Table, nodes: set[Node]) -> Clocks:
    """The offsets of all nodes, from the sightings of all segments."""
    is_outage = int_column(seen, "own") == OUTAGE
    edges = _clock_differences(seen.filter(pa.array(~is_outage)))
    component = {node: node for node in nodes}
    for pair in edges:
        for node in pair:
            component.setdefault(node, node)
    near: dict[Node, list[tuple[Node, int]]] = defaultdict(list)
    for (a, b), (_, ahead) in sorted(edges.items(), key=lambda item: (-item[1][0], item[0])):
        if _find_root(component, a) != _find_root(component, b):
            component[_find_root(component, b)] = _find_root(component, a)
            near[a].append((b, ahead))
            near[b].append((a, -ahead))
    members: dict[Node, list[Node]] = defaultdict(list)
    for node in sorted(component):
        members[_find_root(component, node)].append(node)
    down = seen.filter(pa.array(is_outage))
    ends = [int_column(down, name) for name in ("peer", "incarnation", "publisher", "sequence", "published_ns")]
    outages: Outages = group_outages(ends) if len(members) > 1 else {}
    often = {node: sum(len(end) for _, end in links.values()) for node, links in outages.items()}

    def rank(tree: list[Node]) -> tuple[int, int, int, Node]:
        """The tree with the most peers comes first; of equals, the one with the most outages."""
        return -len({peer for peer, _ in tree}), -len(tree), -sum(often.get(node, 0) for node in tree), tree[0]

    trees = sorted(members.values(), key=rank)
    groups = join_by_outages([_tree_offsets(tree[0], near) for tree in trees], outages)
    offsets: dict[Node, int] = {}
    for group in groups:
        offsets |= _centre_on_median_peer(group)
    main = set(groups[0]) if groups and len(groups[0]) > 1 else set()
    return Clocks(dict(sorted(offsets.items())), sorted(set(component) - main))


def _clock_differences(seen: pa.Table) -> dict[tuple[Node, Node], tuple[int, int]]:
    """Pairs of nodes with the number of events that both saw, and the median by which the second clock is ahead."""
    if not seen.num_rows:
        return {}
    ids = np.stack([int_column(seen, name) for name in ("publisher", "publisher_incarnation", "sequence")], axis=1)
    nodes = np.stack([int_column(seen, name) for name in ("peer", "incarnation")], axis=1)
    unique_nodes, node = np.unique(nodes, axis=0, return_inverse=True)
    _, event = np.unique(ids, axis=0, return_inverse=True)
    times = int_column(seen, "published_ns")
    # By event, its publisher first; of several sightings by one node, the earliest arrival counts.
    order = np.lexsort((times, node.ravel(), -int_column(seen, "own"), event.ravel()))
    event, node, times = event.ravel()[order], node.ravel()[order], times[order]
    keep = np.ones(len(event), bool)
    keep[1:] = (event[1:] != event[:-1]) | (node[1:] != node[:-1])
    event, node, times = event[keep], node[keep], times[keep]
    first = np.zeros(len(event), np.int64)
    begins = np.flatnonzero(np.concatenate([[True], event[1:] != event[:-1]]))
    first[begins] = begins
    first = np.maximum.accumulate(first)
    a, b, ahead = node[first], node, times - times[first]
    swap = a > b
    a, b, ahead = np.where(swap, b, a), np.where(swap, a, b), np.where(swap, -ahead, ahead)
    apart = a != b
    return _median_differences(unique_nodes, a[apart], b[apart], ahead[apart])


def _median_differences(nodes: Ints, a: Ints, b: Ints, ahead: Ints) -> dict[tuple[Node, Node], tuple[int, int]]:
    order = np.lexsort((ahead, b, a))
    a, b, ahead = a[order], b[order], ahead[order]
    begins = np.flatnonzero(np.concatenate([[True], (a[1:] != a[:-1]) | (b[1:] != b[:-1])])) if len(a) else a
    ends = np.append(begins[1:], len(a))
    medians = {}
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        pair: Any = (tuple(nodes[a[begin]].tolist()), tuple(nodes[b[begin]].tolist()))
        medians[pair] = (end - begin, int(ahead[(begin + end - 1) // 2]))
    return medians


def _find_root(component: dict[Node, Node], node: Node) -> Node:
    while component[node] != node:
        component[node] = component[component[node]]
        node = component[node]
    return node


def _tree_offsets(start: Node, near: dict[Node, list[tuple[Node, int]]]) -> dict[Node, int]:
    offsets, queue = {start: 0}, [start]
    for node in queue:
        for other, ahead in near[node]:
            if other not in offsets:
                offsets[other] = offsets[node] + ahead
                queue.append(other)
    return offsets


def _centre_on_median_peer(offsets: dict[Node, int]) -> dict[Node, int]:
    """Offsets against the median peer of a tree. A peer counts once, however often it restarted."""
    by_peer: dict[int, list[int]] = defaultdict(list)
    for (peer, _), offset in offsets.items():
        by_peer[peer].append(offset)
    middle = median_low([median_low(each) for each in by_peer.values()])
    return {node: offset - middle for node, offset in offsets.items()}
