"""Telemetry: the tables that live peers write, in segments, and that jobs on Spark read.

A segment is one Parquet file of one table. It holds rows of one incarnation of one peer, in the order in which they
were written, and is complete when it has its name:

    links-v1-3-1763424000000000000-000017.parquet       table, schema, peer, incarnation, number

Every row also says its peer, incarnation and segment; with its place in the file it has a key that no other row has.
Copies of one segment are the same rows, so a reader takes one of them.

Times are nanoseconds of Unix time by the peer's host: the wall clock at the start of the incarnation, plus the
monotonic time since. So setting the clock while a peer runs changes nothing, and the clocks of two hosts may differ by
any amount. Ages do not depend on clocks: they are summed up hop by hop.

Events are sampled by their ids (`is_sampled`), so all peers write about the same events.
"""

import re
from typing import NamedTuple

from wend.model.events import EventId

SCHEMA = 1
"""Increased when a column changes its meaning. New columns do not count: readers ignore columns that they do not
know."""

TABLES: dict[str, tuple[tuple[str, str], ...]] = {
    # Once a period for each link: its state, and what happened since the row before. `sent` are transmissions of
    # events, `lost` those that timed out and that no outage explains. `round_trip_ns` is smoothed, and
    # `capacity_bps` measured while packets waited; both are 0 if unknown.
    "links": (
        ("time_ns", "q"), ("neighbour", "q"), ("state", "s"), ("delay_ns", "q"), ("reliability", "d"),
        ("sent", "q"), ("acknowledged", "q"), ("lost", "q"), ("queue_ns", "q"), ("queue_bytes", "q"),
        ("period_ns", "q"), ("round_trip_ns", "q"), ("capacity_bps", "q"),
    ),
    # A link went down or came up, or is one no more (`unlinked`). `heard_ns` is the last time that the neighbour was
    # heard before the outage; where it comes up, the row says the same `heard_ns` again. `delay_ns` is that of the
    # link: what was heard was sent so long before.
    "changes": (
        ("time_ns", "q"), ("neighbour", "q"), ("state", "s"), ("heard_ns", "q"), ("detection_ns", "q"),
        ("delay_ns", "q"),
    ),
    # A sampled event was published here. `expected` counts its other peers (-1: the interest does not name them).
    "publications": (
        ("time_ns", "q"), ("publisher", "q"), ("publisher_incarnation", "q"), ("sequence", "q"), ("topic", "s"),
        ("size_bytes", "q"), ("expected", "q"),
    ),
    # A sampled event arrived from a neighbour: its age then, how much of it the link took, and how much of that it
    # waited in a queue of this host.
    "hops": (
        ("time_ns", "q"), ("publisher", "q"), ("publisher_incarnation", "q"), ("sequence", "q"), ("sender", "q"),
        ("age_ns", "q"), ("link_ns", "q"), ("waited_ns", "q"),
    ),
    # A sampled event reached a subscription here. Without a deadline it is -1.
    "deliveries": (
        ("time_ns", "q"), ("publisher", "q"), ("publisher_incarnation", "q"), ("sequence", "q"), ("subscription", "q"),
        ("age_ns", "q"), ("deadline_ns", "q"), ("size_bytes", "q"),
    ),
    # Once a period: what was counted since the row before, where there was any. The kinds are `drop`, `refusal`,
    # `notice`, `failure` and `sent` (packets).
    "counts": (("time_ns", "q"), ("kind", "s"), ("reason", "s"), ("count", "q")),
    # Subscriptions and advertisements, as they `begin` and `end`. An advertisement has no number (-1). A deadline may
    # be a time (or -1), or a factor of the shortest delay (or 0).
    "interest": (
        ("time_ns", "q"), ("kind", "s"), ("change", "s"), ("number", "q"), ("filter", "s"), ("deadline_ns", "q"),
        ("factor", "d"),
    ),
    # Once a period, so that silence means that nothing happened. `wall_ns` is the wall clock; the counts are those
    # since the row before, of all events; `unwritten` are rows.
    "heartbeats": (
        ("time_ns", "q"), ("wall_ns", "q"), ("sample", "d"), ("published", "q"), ("delivered", "q"), ("late", "q"),
        ("unwritten", "q"),
    ),
}  # fmt: skip
"""name -> columns; "q" is int64, "d" is float64, "s" is string."""

KEY: tuple[tuple[str, str], ...] = (("peer", "q"), ("incarnation", "q"), ("segment", "q"))
"""The first columns of every table."""

_NAME = re.compile(r"([a-z]+)-v([0-9]{1,9})-([0-9]{1,18})-([0-9]{1,19})-([0-9]{6,12})\.parquet")
_STIR = 0x9E3779B97F4A7C15
_WORD = 0xFFFFFFFFFFFFFFFF


class Segment(NamedTuple):
    """The parts of a segment's name."""

    table: str
    schema: int
    peer: int
    incarnation: int
    number: int

    @property
    def name(self) -> str:
        return f"{self.table}-v{self.schema}-{self.peer}-{self.incarnation}-{self.number:06d}.parquet"


def parse_segment_name(name: str) -> Segment | None:
    """The parts of a file's name; None if it is not a segment."""
    match = _NAME.fullmatch(name)
    return None if match is None else Segment(match[1], *(int(match[at]) for at in range(2, 6)))


def sample_bound(share: float) -> int:
    """The bound for `is_sampled` under which this share of all events lies."""
    return min(_WORD, round(share * (_WORD + 1)) - 1)


def is_sampled(event: EventId, bound: int) -> bool:
    """Whether peers write about this event. The answer depends on its id alone, so they agree."""
    mixed = (event.sequence * _STIR + event.publisher * 0xBF58476D1CE4E5B9 + event.incarnation) & _WORD
    mixed = ((mixed ^ (mixed >> 29)) * _STIR) & _WORD
    return mixed <= bound
