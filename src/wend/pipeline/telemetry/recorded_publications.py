"""The times at which events were published, for replays: events of one publisher for the same peers, by window.

`wend data workload` has a row for each event, by the clock of its publisher. Here the event gets its time by the clock
of the reference. Only publishers that record every event count, because a sample gives rates, but not all times. Rows
that were lost to a full disk are still missing; heartbeats count them as `unwritten`.

A strategy may lose events at some of their receivers. A publisher knows how many peers an event is for. An event that
reached fewer counts for the flow of its publisher with that many receivers, which include the peers that it reached.
Otherwise a replay would not expect the lost events, and the strategy that ran would look better than it was.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wend.drivers.recorded import RecordedFlow
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.pipeline.spark.arrow_schema import int_fields
from wend.pipeline.storage.versioned_tables import TableFolder
from wend.pipeline.telemetry.clocks import Node, numbers_by_node
from wend.pipeline.telemetry.event_rows import BUCKET_NS, add_adjacent_buckets
from wend.pipeline.telemetry.segment_rows import Ints, int_column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "publications"
MIN_SAMPLE = 0.999
"""A publisher that records at least this share of its events counts as recording all."""
MAX_PUBLICATIONS = 200_000
"""A window with more publications is played by its rates: each run would have them all in memory, and on the wire."""
Receivers = tuple[PeerId, ...]
_TIME_COLUMNS = ("time_ns", "publisher", "publisher_incarnation")


class RecordedPublications:
    """The publications of a workload, read window by window."""

    def __init__(self, spark: "SparkSession | None", folder: str) -> None:
        self._tables = TableFolder(spark, folder)
        self._version = self._tables.require_newest_version()
        self._offsets: dict[Node, Nanos] = numbers_by_node(self._version.facts.get("clocks", []))
        flows = self._tables.read(self._version, "flows") if TABLE in self._version.tables else pa.table({})
        shares = zip(*(flows[name].to_pylist() for name in ("publisher", "sample")), strict=True) if len(flows) else ()
        self.complete_publishers = frozenset(
            publisher for publisher, sample in shares if sample is not None and sample >= MIN_SAMPLE
        )
        """The publishers that record every event."""

    def read_between(self, begin_ns: Nanos, end_ns: Nanos, most: int = MAX_PUBLICATIONS) -> pa.Table | None:
        """The publications of these publishers between two times by the clock of the reference, which `time_ns` has;
        None if there are more than `most`."""
        if not self.complete_publishers:
            return _NO_PUBLICATIONS
        buckets = add_adjacent_buckets(range(begin_ns // BUCKET_NS, end_ns // BUCKET_NS + 1))
        _, inside = self._filter_times(
            self._tables.read(self._version, TABLE, buckets, _TIME_COLUMNS), begin_ns, end_ns
        )
        if np.count_nonzero(inside) > most:
            return None
        rows = (
            self._tables.read(self._version, TABLE, buckets, _NO_PUBLICATIONS.schema.names)
            .select(_NO_PUBLICATIONS.schema.names)
            .cast(_NO_PUBLICATIONS.schema)
        )
        times, inside = self._filter_times(rows, begin_ns, end_ns)
        rows = rows.set_column(0, "time_ns", pa.array(times)).filter(pa.array(inside))
        return rows.sort_by([(name, "ascending") for name in ("time_ns", "publisher", "sequence")])

    def _filter_times(self, rows: pa.Table, begin_ns: Nanos, end_ns: Nanos) -> tuple[Ints, NDArray[np.bool_]]:
        """The times of rows by the clock of the reference, and which rows are between the two times."""
        publishers, incarnations = int_column(rows, "publisher"), int_column(rows, "publisher_incarnation")
        times = int_column(rows, "time_ns").copy()
        for (publisher, incarnation), ahead in self._offsets.items():
            times[(publishers == publisher) & (incarnations == incarnation)] -= ahead
        return times, (times >= begin_ns) & (times < end_ns) & np.isin(publishers, sorted(self.complete_publishers))


_NO_PUBLICATIONS = pa.schema(
    [
        *int_fields("time_ns", "publisher", "publisher_incarnation", "sequence"), ("receivers", pa.list_(pa.int64())),
        *int_fields("expected", "size_bytes"),
    ]
).empty_table()  # fmt: skip


def timed_flows(
    published: pa.Table, begin_ns: Nanos, duration_ns: Nanos, deadlines_ns: Mapping[tuple[PeerId, PeerId], Nanos]
) -> list[RecordedFlow]:
    """Publications as flows with their times since `begin_ns`."""
    columns = (published[name].to_pylist() for name in ("publisher", "receivers", "expected"))
    rows = [(publisher, tuple(reached or ()), expected) for publisher, reached, expected in zip(*columns, strict=True)]
    counts = Counter((publisher, reached) for publisher, reached, _ in rows if reached)
    by_flow: dict[tuple[PeerId, Receivers], list[int]] = defaultdict(list)
    for number, (publisher, reached, expected) in enumerate(rows):
        receivers = _intended_receivers(publisher, reached, expected, counts)
        if receivers:
            by_flow[publisher, receivers].append(number)
    times, sizes = int_column(published, "time_ns") - begin_ns, int_column(published, "size_bytes")
    return [
        RecordedFlow(
            publisher,
            receivers,
            len(places) * SECOND / duration_ns,
            round(float(sizes[places].mean())),
            deadlines_ns=tuple(deadlines_ns.get((publisher, peer), 0) for peer in receivers),
            times_ns=tuple(times[places].tolist()),
        )
        for (publisher, receivers), places in sorted(by_flow.items())
    ]


def _intended_receivers(
    publisher: PeerId, reached: Receivers, expected: int | None, counts: Mapping[tuple[PeerId, Receivers], int]
) -> Receivers:
    """The peers that an event was for."""
    if expected is None or expected <= len(reached):
        return reached
    fitting = [
        (-count, receivers)
        for (one, receivers), count in counts.items()
        if one == publisher and len(receivers) == expected and set(reached) <= set(receivers)
    ]
    return min(fitting)[1] if fitting else reached


def collect_deadlines(flows: Sequence[RecordedFlow]) -> dict[tuple[PeerId, PeerId], Nanos]:
    """The deadlines by publisher and receiver."""
    return {
        (flow.publisher, peer): deadline
        for flow in flows
        for peer, deadline in zip(flow.receivers, flow.deadlines_ns, strict=False)
    }
