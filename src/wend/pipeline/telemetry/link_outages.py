"""Outages of links, with a start and an end on which both peers agree.

Each end records when it declared its neighbour down, when it last heard it before that, and when the link came up. The
outage lies between two messages: the link worked when the last one before it was sent, and when the first one after it
was sent. Each was sent one delay of the link before it was heard. So the latest of the two last messages, and the
earliest of the two first ones, are the narrowest bounds that the two ends give. Outages of both ends that overlap are
one.

If both ends saw an outage, each told the other that it does not hear it. Then a link comes up when a message says that
this is over. That message answers an earlier one in the other direction, so the link worked two delays before it.

An end that does not hear its neighbour says so in its messages, so both ends see an outage of one direction. If one
end alone saw an outage, while the other was observed, its failure detector was wrong, and the ends do not agree.

A peer that restarts does not record the end of its outages; they end when its next incarnation starts.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from wend.model.telemetry import Segment
from wend.pipeline.spark.arrow_schema import int_fields
from wend.pipeline.telemetry.clocks import Node
from wend.pipeline.telemetry.segment_rows import int_column, node_columns

DOWN_STATES = ("down", "one-way")
UP_STATES = ("up", "unlinked")
"""A link that was removed is no longer down."""
CHANGES = pa.schema(
    [
        *int_fields("peer", "incarnation", "neighbour", "time_ns"), ("state", pa.string()),
        *int_fields("heard_ns", "detection_ns", "delay_ns"),
    ]
)  # fmt: skip
"""By the clock of the peer."""
OUTAGES = pa.schema(
    [*int_fields("a", "b", "begin_ns", "end_ns", "ends"), ("agreed", pa.bool_()), *int_fields("detection_ns")]
)
"""An outage of the link between a and b. `end_ns` is null while it lasts; `ends` says how many ends saw it. It is
agreed if both ends saw it, or if the other end was not observed then."""

Spans = dict[int, list[tuple[int, int, int]]]
"""peer -> its incarnations, with their first and last rows by the clock of the reference"""


class _Interval(NamedTuple):
    """An outage as one end saw it, from the sending of the last message to that of the first one after it."""

    begin: int
    end: int | None
    peer: int
    detection_ns: int
    delay_ns: int
    """The delay of the link when it came up."""


def change_rows(table: pa.Table, segment: Segment) -> pa.Table:
    """Select the columns of the link changes of a segment."""
    own = {**node_columns(segment, table.num_rows), "delay_ns": pa.array(int_column(table, "delay_ns"))}
    return pa.table({name: own[name] if name in own else table[name] for name in CHANGES.names}, schema=CHANGES)


def link_outages(
    a: int, b: int, rows: list[dict[str, Any]], offsets: dict[Node, int], spans: Spans
) -> list[dict[str, Any]]:
    """The outages of one link. `rows` are the changes at both ends."""
    by_node: dict[Node, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_node[row["peer"], row["incarnation"]].append(row)
    intervals: list[_Interval] = []
    for node, changes in by_node.items():
        intervals += _outages_at_end(node[0], changes, offsets.get(node, 0), _next_start(node, spans))
    intervals.sort(key=lambda interval: (interval.begin, interval.peer))
    return [_merge_both_ends(a, b, group, spans) for group in _group_overlapping(intervals)]


def _next_start(node: Node, spans: Spans) -> int | None:
    """When the next incarnation of a peer began."""
    peer, incarnation = node
    own = next((begin for one, begin, _ in spans.get(peer, []) if one == incarnation), None)
    later = (begin for one, begin, _ in spans.get(peer, []) if one > incarnation)
    return min((begin for begin in later if own is None or begin > own), default=None)


def _group_overlapping(intervals: list[_Interval]) -> Iterator[list[_Interval]]:
    """Groups of intervals that overlap. The intervals are sorted by their start."""
    group: list[_Interval] = []
    until: int | None = 0
    for interval in intervals:
        if group and (until is None or interval.begin <= until):
            group.append(interval)
            until = None if until is None or interval.end is None else max(until, interval.end)
            continue
        if group:
            yield group
        group, until = [interval], interval.end
    if group:
        yield group


def _outages_at_end(peer: int, changes: list[dict[str, Any]], offset: int, restart: int | None) -> list[_Interval]:
    """The outages that one end saw in one incarnation."""
    intervals, begin, detection = [], None, 0
    for row in sorted(changes, key=lambda row: (row["time_ns"], row["state"], row["heard_ns"])):
        delay = row.get("delay_ns") or 0
        if row["state"] in DOWN_STATES and begin is None:
            begin, detection = row["heard_ns"] - delay, row["detection_ns"]
        elif row["state"] in UP_STATES and begin is not None:
            end = max(begin, row["time_ns"] - delay)
            intervals.append(_Interval(begin - offset, end - offset, peer, detection, delay))
            begin = None
    if begin is not None:
        intervals.append(_Interval(begin - offset, restart, peer, detection, 0))
    return intervals


def _merge_both_ends(a: int, b: int, group: list[_Interval], spans: Spans) -> dict[str, Any]:
    """Overlapping outages of both ends as one."""
    firsts: dict[int, int] = {}
    lasts: dict[int, _Interval] = {}
    for interval in group:
        firsts.setdefault(interval.peer, interval.begin)
        lasts[interval.peer] = interval
    begin, ends = max(firsts.values()), _recovery_times([*lasts.values()])
    end = min(ends, default=None)
    if end is not None and end <= begin:  # the ends saw different things, so take the whole time
        begin, end = min(firsts.values()), max(ends)
    last = begin if end is None else end
    observed = any(
        first <= begin and last <= final for peer in {a, b} - firsts.keys() for _, first, final in spans.get(peer, [])
    )
    detection_ns = max(interval.detection_ns for interval in group)
    return {
        "a": a, "b": b, "begin_ns": begin, "end_ns": end, "ends": len(firsts), "agreed": not observed,
        "detection_ns": detection_ns,
    }  # fmt: skip


def _recovery_times(lasts: list[_Interval]) -> list[int]:
    """When the link worked again, by each end that came up. If both came up, the first to do so had an answer."""
    ended = [interval for interval in lasts if interval.end is not None]
    asked = len(lasts) > 1 and len(ended) == len(lasts)
    return [interval.end - (interval.delay_ns if asked else 0) for interval in ended if interval.end is not None]
