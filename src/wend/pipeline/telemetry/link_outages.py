"""Outages of links, with a begin and an end on which both ends agree.

Each end writes when it declared its neighbour down, when it had heard it last before, and when the link came up again.
The outage lies between: the link worked when the last message was sent, and when the first one after the outage was.
Both were sent a delay of the link before they were heard. So the latest of the two last messages, and the earliest of
the two first ones, are the narrowest bounds that the two ends give. Outages of both ends that overlap are one.

If both ends saw an outage, each told the other that it does not hear it. Then a link comes up where a message says
that this is over: it answers one that went the other way before. So the link worked two delays before that.

An end that does not hear its neighbour says so in its messages. So an outage of one direction is seen by both ends,
too. What one end alone saw, while the other one was observed, is a mistake of its failure detector: they do not agree.

A peer that restarts does not say that its outages are over; they end with the start of its next incarnation.
"""

from collections import defaultdict
from typing import Any, NamedTuple

import pyarrow as pa

from wend.model.telemetry import Segment
from wend.pipeline.telemetry.clocks import Node
from wend.pipeline.telemetry.segment_rows import numbers

DOWN = ("down", "one-way")
UP = ("up", "unlinked")
"""A link that is one no more is not down any more."""
CHANGES = pa.schema(
    [
        ("peer", pa.int64()), ("incarnation", pa.int64()), ("neighbour", pa.int64()), ("time_ns", pa.int64()),
        ("state", pa.string()), ("heard_ns", pa.int64()), ("detection_ns", pa.int64()), ("delay_ns", pa.int64()),
    ]
)  # fmt: skip
"""By the clock of the peer."""
OUTAGES = pa.schema(
    [
        ("a", pa.int64()), ("b", pa.int64()), ("begin_ns", pa.int64()), ("end_ns", pa.int64()), ("ends", pa.int64()),
        ("agreed", pa.bool_()), ("detection_ns", pa.int64()),
    ]
)  # fmt: skip
"""An outage of the link between a and b. `end_ns` is null while it lasts; `ends` says how many ends saw it. It is
agreed if both did, or if the other one was not observed then."""

Spans = dict[int, list[tuple[int, int, int]]]
"""peer -> its incarnations, with their first and last rows by the clock of the reference"""


class _Interval(NamedTuple):
    """An outage as one end saw it, from the sending of the last message to that of the first one after it."""

    begin: int
    end: int | None
    peer: int
    detection_ns: int
    delay_ns: int
    """Of the link, when it came up."""


def change_rows(table: pa.Table, segment: Segment) -> pa.Table:
    """The changes of a segment, as they are."""
    many = table.num_rows
    own = {
        "peer": pa.repeat(pa.scalar(segment.peer, pa.int64()), many),
        "incarnation": pa.repeat(pa.scalar(segment.incarnation, pa.int64()), many),
        "delay_ns": pa.array(numbers(table, "delay_ns")),
    }
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
        peer, incarnation = node
        own = next((begin for one, begin, _ in spans.get(peer, []) if one == incarnation), None)
        after = [begin for one, begin, _ in spans.get(peer, []) if one > incarnation and (own is None or begin > own)]
        intervals += _of_end(peer, changes, offsets.get(node, 0), min(after, default=None))
    intervals.sort(key=lambda one: (one.begin, one.peer))
    found, group, until = [], list[_Interval](), None
    for one in intervals:
        if group and (until is None or one.begin <= until):
            group.append(one)
            until = None if until is None or one.end is None else max(until, one.end)
            continue
        if group:
            found.append(_agreed(a, b, group, spans))
        group, until = [one], one.end
    if group:
        found.append(_agreed(a, b, group, spans))
    return found


def _of_end(peer: int, changes: list[dict[str, Any]], offset: int, restart: int | None) -> list[_Interval]:
    """The outages that one end saw in one incarnation."""
    found, begin, detection = [], None, 0
    for row in sorted(changes, key=lambda row: (row["time_ns"], row["state"], row["heard_ns"])):
        delay = row.get("delay_ns") or 0
        if row["state"] in DOWN and begin is None:
            begin, detection = row["heard_ns"] - delay, row["detection_ns"]
        elif row["state"] in UP and begin is not None:
            end = max(begin, row["time_ns"] - delay)
            found.append(_Interval(begin - offset, end - offset, peer, detection, delay))
            begin = None
    if begin is not None:
        found.append(_Interval(begin - offset, restart, peer, detection, 0))
    return found


def _agreed(a: int, b: int, group: list[_Interval], spans: Spans) -> dict[str, Any]:
    """Overlapping outages of both ends as one."""
    firsts: dict[int, int] = {}
    lasts: dict[int, _Interval] = {}
    for one in group:
        firsts.setdefault(one.peer, one.begin)
        lasts[one.peer] = one
    begin = max(firsts.values())
    # Where both ends came up, the first to do so had an answer.
    asked = len(lasts) > 1 and all(one.end is not None for one in lasts.values())
    ends = [one.end - (one.delay_ns if asked else 0) for one in lasts.values() if one.end is not None]
    end = min(ends) if ends else None
    if end is not None and end <= begin:  # the ends saw different things: the whole time, then
        begin, end = min(firsts.values()), max(ends)
    detection = max(one.detection_ns for one in group)
    last = begin if end is None else end
    silent = [peer for peer in (a, b) if peer not in firsts]
    observed = any(one <= begin and last <= other for peer in silent for _, one, other in spans.get(peer, []))
    found = {"a": a, "b": b, "begin_ns": begin, "end_ns": end, "ends": len(firsts)}
    return {**found, "agreed": not observed, "detection_ns": detection}
