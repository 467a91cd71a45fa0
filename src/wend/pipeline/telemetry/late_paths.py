"""Where late events lost their time: along the route of each, from its delivery back to its publisher.

A peer records the age of an event when it arrives, and how much of that the link took. The age on arrival, less the age
on arrival at the sender and the time on the link, is the time that the event waited at the sender: in a queue, or for
retransmissions. Time on a detour is time on its links. If an event arrived several times, the first arrival counts.
"""

import numpy as np
import pyarrow as pa

from wend.pipeline.spark.arrow_schema import int_fields
from wend.pipeline.telemetry.event_rows import DELIVERY, EVENT_ID, HOP
from wend.pipeline.telemetry.segment_rows import Ints, int_column

WAITING, ON_LINK, RECEIVING, LOCAL, INCOMPLETE = "waiting", "link", "receiving", "local", "incomplete"
CAUSES = pa.schema(
    [
        *int_fields("bucket"), ("cause", pa.string()),
        *int_fields("peer", "neighbour", "deliveries", "time_ns", "most_ns"),
    ]
)  # fmt: skip
"""Time that late deliveries spent: `waiting` at a peer for the link to its neighbour, on that `link`, in a queue of the
host of a peer that was `receiving` from its neighbour, or `local` in a peer, between arrival and delivery. The route of
an `incomplete` delivery to the peer is not known."""
_MAX_HOPS = 64
_NOBODY = -1


class _LostTimeCollector:
    """Time by place, collected step by step."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, Ints, Ints, Ints, Ints]] = []

    def add(self, cause: str, bucket: Ints, peer: Ints, neighbour: Ints, time: Ints) -> None:
        if len(bucket):
            self._rows.append((cause, bucket, peer, neighbour, np.maximum(time, 0)))

    def table(self) -> pa.Table:
        tables = []
        for cause in (WAITING, ON_LINK, RECEIVING, LOCAL, INCOMPLETE):
            rows = [row[1:] for row in self._rows if row[0] == cause]
            if not rows:
                continue
            bucket, peer, neighbour, time = (np.concatenate(column) for column in zip(*rows, strict=True))
            order = np.lexsort((neighbour, peer, bucket))
            bucket, peer, neighbour, time = bucket[order], peer[order], neighbour[order], time[order]
            new = np.ones(len(bucket), bool)
            new[1:] = (np.diff(bucket) != 0) | (np.diff(peer) != 0) | (np.diff(neighbour) != 0)
            at = np.flatnonzero(new)
            columns = {
                "bucket": bucket[at],
                "cause": [cause] * len(at),
                "peer": peer[at],
                "neighbour": pa.array(neighbour[at], mask=neighbour[at] == _NOBODY),
                "deliveries": np.diff(np.append(at, len(bucket))),
                "time_ns": np.add.reduceat(time, at),
                "most_ns": np.maximum.reduceat(time, at),
            }
            tables.append(pa.table(columns, schema=CAUSES))
        return pa.concat_tables(tables) if tables else CAUSES.empty_table()


def find_lost_time(rows: pa.Table) -> pa.Table:
    """The causes of all late deliveries among these rows, which have all rows of their events. `wanted` is true for
    deliveries in the requested buckets."""
    if not rows.num_rows:
        return CAUSES.empty_table()
    what, peer, age = (int_column(rows, name) for name in ("what", "peer", "age_ns"))
    event = _number_events(rows)
    deadline = rows["deadline_ns"].fill_null(-1).to_numpy()
    hops = np.flatnonzero(what == HOP)
    # The first arrival of each event at each peer.
    hops = hops[np.lexsort((age[hops], peer[hops], event[hops]))]
    first = np.ones(len(hops), bool)
    first[1:] = (event[hops][1:] != event[hops][:-1]) | (peer[hops][1:] != peer[hops][:-1])
    hops = hops[first]
    width = int(peer.max()) + 2
    keys = event[hops] * width + peer[hops]
    sender = rows["sender"].fill_null(_NOBODY).to_numpy()[hops]
    link, waited = (rows[name].fill_null(0).to_numpy()[hops] for name in ("link_ns", "waited_ns"))
    waited = np.minimum(waited, link)
    arrived, publisher = age[hops], int_column(rows, "publisher")
    late = np.flatnonzero((what == DELIVERY) & (deadline >= 0) & (age > deadline) & rows["wanted"].to_numpy())
    spent = _LostTimeCollector()
    # Deliveries on their way back: where they are, and their age when they left from there.
    bucket, of, here, departure = int_column(rows, "bucket")[late], event[late], peer[late], age[late]
    origin, onward = publisher[late], np.full(len(late), _NOBODY)
    for _ in range(_MAX_HOPS):
        home = here == origin
        begun = onward == _NOBODY
        for cause, some in ((LOCAL, home & begun), (WAITING, home & ~begun)):
            spent.add(cause, bucket[some], here[some], onward[some], departure[some])
        away = ~home
        bucket, of, here, departure, origin, onward = (
            values[away] for values in (bucket, of, here, departure, origin, onward)
        )
        if not len(of):
            break
        key = of * width + here
        at = np.minimum(np.searchsorted(keys, key), max(0, len(keys) - 1))
        has_arrival = (keys[at] == key) if len(keys) else np.zeros(len(key), bool)
        spent.add(INCOMPLETE, bucket[~has_arrival], here[~has_arrival], onward[~has_arrival], departure[~has_arrival])
        bucket, of, here, departure, origin, onward, at = (
            values[has_arrival] for values in (bucket, of, here, departure, origin, onward, at)
        )
        begun = onward == _NOBODY
        stayed = departure - arrived[at]
        for cause, some in ((LOCAL, begun), (WAITING, ~begun)):
            spent.add(cause, bucket[some], here[some], onward[some], stayed[some])
        spent.add(ON_LINK, bucket, sender[at], here, link[at] - waited[at])
        spent.add(RECEIVING, bucket, here, sender[at], waited[at])
        departure, onward, here = arrived[at] - link[at], here, sender[at]
    else:
        spent.add(INCOMPLETE, bucket, here, onward, departure)
    return spent.table()


def _number_events(rows: pa.Table) -> Ints:
    """A number for each event."""
    columns = [int_column(rows, name) for name in EVENT_ID]
    order = np.lexsort(columns)
    new = np.zeros(len(order), np.int64)
    for values in columns:
        new[1:] |= values[order][1:] != values[order][:-1]
    numbers_ = np.empty(len(order), np.int64)
    numbers_[order] = np.cumsum(new)
    return numbers_
