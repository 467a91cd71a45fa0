"""Recordings from tables: links with their outages, and flows, for each window to replay.

The tables are those of `wend data links` (links, outages) and of `wend data workload` (flows, deadlines). A window
whose links were observed for a part of it is played for that part: unobserved time has no outages, and would make every
strategy look better than it was.

If the publications of all publishers are known (`recorded_publications.py`), a window has the flows that published in
it, with their times, and its played part contains all of them. A short window at the start or the end of the observed
time is joined with its neighbour, so that every publication is played.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from wend.drivers.recorded import DRAIN_NS, WARMUP_NS, RecordedFlow, RecordedLink, Recording
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.rates import BITS_PER_BYTE, parse_rate
from wend.model.units import SECOND, Nanos
from wend.pipeline.storage.versioned_tables import TableFolder
from wend.pipeline.telemetry.recorded_publications import (
    MAX_PUBLICATIONS,
    RecordedPublications,
    collect_deadlines,
    timed_flows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIN_WINDOW_NS: Nanos = 5 * SECOND
"""Shorter windows say nothing."""
BOTH_ENDS = 2
"""The number of ends that see an outage of a link. If only one end sees it, the other did not run, or a host was busy.
That is not an outage of the link, unless nobody knows what the other end saw."""
PRIOR_PACKETS = 20
"""Answered packets that are assumed of each end: one lost packet of three is not a loss of a third."""
Row = dict[str, Any]
Outages = dict[tuple[PeerId, PeerId], list[tuple[Nanos, Nanos | None]]]
"""By link."""


def read_workload(spark: "SparkSession | None", folder: str) -> list[RecordedFlow]:
    """The flows of a workload, with the known deadlines of each receiver."""
    deadlines: dict[tuple[int, int], Nanos] = {}
    tables = TableFolder(spark, folder)
    version = tables.require_newest_version()
    if "deadlines" in version.tables:
        for row in tables.read(version, "deadlines").to_pylist():
            if row["deadline_ns"] is not None:
                deadlines[row["publisher"], row["receiver"]] = row["deadline_ns"]
    rows = tables.read(version, "flows").to_pylist()
    return [recorded_flow(row, number, deadlines) for number, row in enumerate(rows, 1)]


def make_recordings(
    links: pa.Table,
    outages: pa.Table,
    flows: Sequence[RecordedFlow],
    most: int,
    publications: RecordedPublications | None = None,
) -> list[Recording]:
    """One recording for each window of the links, at most so many, evenly spread over time. Raises `ConfigError` if
    there is nothing to play."""
    if not flows:
        raise ConfigError("the workload has no flows")
    down, by_window = _outages_by_link(links, outages), _measured_windows(links)
    begins = sorted(set(links.column("begin_ns").to_pylist()))
    playable: list[Recording | None] = []
    if publications is not None and {flow.publisher for flow in flows} <= publications.complete_publishers:
        spans = _join_short_windows(by_window)
        for begin in _spread_evenly(sorted(spans), most):
            published = publications.read_between(*spans[begin], MAX_PUBLICATIONS)
            if published is None:
                playable.append(_make_rated_recording(by_window[begin], down, tuple(flows), begins))
            elif published.num_rows:
                playable.append(_make_timed_recording(by_window[begin], down, flows, published, begins))
    if not any(playable):
        chosen = [begin for begin in _spread_evenly(begins, most) if begin in by_window]
        playable = [_make_rated_recording(by_window[begin], down, tuple(flows), begins) for begin in chosen]
    if not any(playable):
        raise ConfigError(f"no window of the links is observed for {MIN_WINDOW_NS // SECOND} s and has delays")
    return [recording for recording in playable if recording is not None]


def _outages_by_link(links: pa.Table, outages: pa.Table) -> Outages:
    down: Outages = defaultdict(list)
    watched = {(row["a"], row["b"]) for row in links.select(["a", "b", "ends"]).to_pylist() if row["ends"] == BOTH_ENDS}
    for row in outages.to_pylist():
        if row["ends"] == BOTH_ENDS or (row["a"], row["b"]) not in watched:
            down[row["a"], row["b"]].append((row["begin_ns"], row["end_ns"]))
    return down


def _measured_windows(links: pa.Table) -> dict[Nanos, list[Row]]:
    """The links of each window whose delay was measured."""
    by_window: dict[Nanos, list[Row]] = defaultdict(list)
    for row in links.to_pylist():
        if row["delay_mean_ns"]:
            by_window[row["begin_ns"]].append(row)
    return by_window


def _spread_evenly(begins: Sequence[Nanos], most: int) -> list[Nanos]:
    if len(begins) <= most:
        return list(begins)
    return [begins[(2 * number + 1) * len(begins) // (2 * most)] for number in range(most)]


def _observed_ns(rows: list[Row]) -> Nanos:
    longest: Nanos = max(row["observed_ns"] for row in rows)
    window: Nanos = rows[0]["window_ns"]
    return min(longest, window)


def _join_short_windows(by_window: Mapping[Nanos, list[Row]]) -> dict[Nanos, tuple[Nanos, Nanos]]:
    """The start and the end of each window that is long enough. A shorter window is joined with the next one, or with
    the previous one."""
    long = {begin for begin, rows in by_window.items() if _observed_ns(rows) >= MIN_WINDOW_NS}
    spans = {begin: (begin, begin + by_window[begin][0]["window_ns"]) for begin in sorted(long)}
    for begin in sorted(by_window.keys() - long):
        end = begin + by_window[begin][0]["window_ns"]
        before = 2 * begin - end
        if end in spans:
            spans[end] = (begin, spans[end][1])
        elif before in spans:
            spans[before] = (spans[before][0], end)
    return spans


def _make_timed_recording(
    rows: list[Row], down: Outages, flows: Sequence[RecordedFlow], published: pa.Table, begins: Sequence[Nanos]
) -> Recording | None:
    """The observed part of a window and the publications, which come in order of time."""
    times, (start_ns, observed_ns) = published["time_ns"], _observed_part(rows, down, begins)
    first = min(times[0].as_py(), start_ns)
    duration = max(times[-1].as_py() + 1, start_ns + observed_ns) - first
    timed = timed_flows(published, first, duration, collect_deadlines(flows))
    return Recording(first, duration, _recorded_links(rows, down, first, duration), tuple(timed)) if timed else None


def _make_rated_recording(
    rows: list[Row], down: Outages, flows: tuple[RecordedFlow, ...], begins: Sequence[Nanos]
) -> Recording | None:
    """A window with flows of which the rates are known."""
    start_ns, observed_ns = _observed_part(rows, down, begins)
    if observed_ns < MIN_WINDOW_NS:
        return None
    return Recording(start_ns, observed_ns, _recorded_links(rows, down, start_ns, observed_ns), flows)


def _observed_part(rows: list[Row], down: Outages, begins: Sequence[Nanos]) -> tuple[Nanos, Nanos]:
    """When the observed part of a window begins, and how long it is."""
    begin_ns, window_ns, observed_ns = rows[0]["begin_ns"], rows[0]["window_ns"], _observed_ns(rows)
    until_ns = begin_ns + window_ns + DRAIN_NS
    in_window = [_clip_outages(down[row["a"], row["b"]], begin_ns, until_ns) for row in rows]
    return begin_ns + _observed_start(window_ns, observed_ns, begin_ns, begins, in_window), observed_ns


def _recorded_links(rows: list[Row], down: Outages, start_ns: Nanos, duration_ns: Nanos) -> tuple[RecordedLink, ...]:
    """The links of a window, with the outages that peers know of when it begins, and those of events in transit when
    it ends."""
    links = []
    for row in sorted(rows, key=lambda row: (row["a"], row["b"])):
        times = _clip_outages(down[row["a"], row["b"]], start_ns - WARMUP_NS, start_ns + duration_ns + DRAIN_NS)
        since = tuple((begin - start_ns, end - start_ns) for begin, end in times)
        links.append(RecordedLink(row["a"], row["b"], row["delay_mean_ns"], one_way_loss(row), since))
    return tuple(links)


def _observed_start(
    window_ns: Nanos, observed_ns: Nanos, begin_ns: Nanos, begins: Sequence[Nanos], outages: Iterable[Any]
) -> Nanos:
    """When in a window the observed time begins. If there are several windows, it is at the end of the first and at the
    start of the others. In a single window it contains the outages, as far as possible."""
    if observed_ns >= window_ns:
        return 0
    place = bisect_left(begins, begin_ns)
    if len(begins) > 1:
        alone_before = place == 0 or begins[place - 1] < begin_ns - window_ns
        return window_ns - observed_ns if alone_before else 0
    first = min((begin for times in outages for begin, _ in times), default=begin_ns)
    return max(0, min(first - begin_ns, window_ns - observed_ns))


def _clip_outages(
    times: Iterable[tuple[Nanos, Nanos | None]], begin_ns: Nanos, end_ns: Nanos
) -> list[tuple[Nanos, Nanos]]:
    """The outages between two times, cut to them. An outage without an end lasts."""
    cut = ((max(begin, begin_ns), min(end_ns if end is None else end, end_ns)) for begin, end in times)
    return [(begin, end) for begin, end in cut if begin < end]


def one_way_loss(row: Row) -> float:
    """The share of packets that a link loses in one direction. Its ends count a packet as lost if its ACK did not come,
    so they count losses in both directions."""
    seen = [end for end in ("ab", "ba") if row.get(f"loss_{end}") is not None]
    ends = [(row[f"loss_{end}"], row.get(f"sent_{end}") or 0) for end in seen]
    lost, sent = sum(share * count for share, count in ends), sum(count + PRIOR_PACKETS for _, count in ends)
    return 1 - sqrt(1 - min(0.99, lost / sent)) if sent else 0.0


def recorded_flow(
    row: Row, number: int, deadlines_ns: Mapping[tuple[int, int], Nanos] = MappingProxyType({})
) -> RecordedFlow:
    """A flow of a workload. Deadlines are by publisher and receiver; a pair that has none has that of the flow."""
    what = f"the workload, flow {number}"
    rate = parse_rate(row.get("rate", 1.0), f"{what}: rate")
    size = row.get("size_bytes") or 0.0
    if rate.bits and not size:
        raise ConfigError(f"{what}: a rate in bits needs size_bytes, the size of the messages")
    messages = rate.value / (size * BITS_PER_BYTE) if rate.bits else rate.value
    try:
        publisher, receivers = int(row["publisher"]), tuple(int(peer) for peer in row["receivers"])
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f"{what}: publisher and receivers must be ids of peers") from None
    one = max(0, row.get("deadline_ns") or 0)
    deadlines = tuple(deadlines_ns.get((publisher, peer), one) for peer in receivers)
    weight = row.get("weight")
    return RecordedFlow(publisher, receivers, messages, round(size), 1.0 if weight is None else weight, deadlines)
