"""Sums of link samples, and the rows for each link and window to which they merge.

A segment becomes one row for each neighbour and window: counts, sums, extremes, and a histogram of delays on a fixed
logarithmic scale. All are whole numbers, so their sums do not depend on the order: a stream and a batch give equal
rows. Quantiles come from the histogram. A bin is 4.4 % wide, so the error of a quantile is at most 4.4 %.

There are as many sums and windows as links have minutes, however few samples a minute has. So all windows of a task are
merged at once, as columns, and a histogram is one value of bytes, which Spark passes on as it is.
"""

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from wend.model.telemetry import Segment
from wend.pipeline.spark.arrow_schema import int_fields
from wend.pipeline.telemetry.clocks import Node
from wend.pipeline.telemetry.segment_rows import Ints, int_column

_BINS_PER_OCTAVE = 16
_FIRST_OCTAVE = 10
"""The first bin begins at 2**10 ns, a microsecond."""
BINS = 30 * _BINS_PER_OCTAVE
_US = 1000
_HALF = 32
_COUNT = 2**_HALF - 1
_CELL_BYTES = 8
_NEVER = np.iinfo(np.int64).max
_SUM_COLUMNS = (
    "samples", "delays", "delay_sum_ns", "delay_square_us2", "sent", "acknowledged", "lost", "queue_sum_ns",
    "observed_ns",
)  # fmt: skip
SAMPLES = pa.schema(
    [
        *int_fields("bucket", "begin_ns", "peer", "incarnation", "neighbour", *_SUM_COLUMNS),
        *int_fields("delay_min_ns", "delay_max_ns", "queue_max_ns", "capacity_bps"), ("histogram", pa.binary()),
    ]
)  # fmt: skip
"""The sums of one segment for one end of a link in one window, by the clock of the reference. A histogram has a number
of 64 bits for each bin that is not empty: the bin in the upper half, the count in the lower."""
LINKS = pa.schema(
    [
        *int_fields("begin_ns", "window_ns", "a", "b", "samples", "ends"),
        *int_fields("delay_mean_ns", "delay_std_ns", "delay_min_ns", "delay_p50_ns", "delay_p90_ns", "delay_p99_ns"),
        *int_fields("delay_max_ns", "delay_ab_p50_ns", "delay_ba_p50_ns", "asymmetry_ns", "sent_ab", "sent_ba"),
        ("loss_ab", pa.float64()), ("loss_ba", pa.float64()),
        *int_fields("queue_mean_ns", "queue_max_ns", "capacity_ab_bps", "capacity_ba_bps"),
        *int_fields("observed_ns", "down_ns", "outages"), ("availability", pa.float64()),
    ]
)  # fmt: skip
"""One link in one window, a < b. Columns with `ab` in their names are what a measured about sending to b. A capacity is
the highest that was measured, and null if none was."""


class Windowing(NamedTuple):
    """The windows of a job, and the buckets of windows that are rewritten together."""

    window_ns: int
    bucket_windows: int = 60

    def bucket(self, begin_ns: Any) -> Any:
        return begin_ns // (self.window_ns * self.bucket_windows)


def delay_bins(delays_ns: Ints) -> Ints:
    """The bin of each delay."""
    octaves = np.log2(np.maximum(delays_ns, 1).astype(np.float64)) - _FIRST_OCTAVE
    bins: Ints = np.clip(np.floor(octaves * _BINS_PER_OCTAVE), 0, BINS - 1).astype(np.int64)
    return bins


_MIDDLES = np.rint(2.0 ** (_FIRST_OCTAVE + (np.arange(BINS) + 0.5) / _BINS_PER_OCTAVE)).astype(np.int64)


def sum_samples(table: pa.Table, segment: Segment, *, offsets: dict[Node, int], windowing: Windowing) -> pa.Table:
    """The rows of a segment of samples as sums for each neighbour and window."""
    offset = offsets.get((segment.peer, segment.incarnation), 0)
    window = windowing.window_ns
    neighbour = int_column(table, "neighbour")
    begin = (int_column(table, "time_ns") - offset) // window * window
    order = np.lexsort((begin, neighbour))
    neighbour, begin = neighbour[order], begin[order]
    starts = np.flatnonzero(_group_starts(neighbour) | _group_starts(begin))
    group = np.cumsum(_group_starts(neighbour) | _group_starts(begin)) - 1
    delay = int_column(table, "delay_ns")[order]
    has_delay = delay > 0
    micros = np.minimum(delay, 60_000_000_000) // _US
    queue = int_column(table, "queue_ns")[order]
    sums = {
        "samples": np.ones(len(order), np.int64),
        "delays": has_delay.astype(np.int64),
        "delay_sum_ns": delay,
        "delay_square_us2": micros * micros,
        "sent": int_column(table, "sent")[order],
        "acknowledged": int_column(table, "acknowledged")[order],
        "lost": int_column(table, "lost")[order],
        "queue_sum_ns": queue,
        "observed_ns": np.minimum(int_column(table, "period_ns")[order], window),
    }
    cells, counts = np.unique(group[has_delay] * BINS + delay_bins(delay[has_delay]), return_counts=True)
    cuts = np.searchsorted(cells, np.arange(len(starts) + 1) * BINS)
    many = len(starts)
    columns = {
        "bucket": windowing.bucket(begin[starts]),
        "begin_ns": begin[starts],
        "peer": np.full(many, segment.peer),
        "incarnation": np.full(many, segment.incarnation),
        "neighbour": neighbour[starts],
        **{name: np.add.reduceat(values, starts) for name, values in sums.items()},
        "delay_min_ns": np.minimum.reduceat(np.where(has_delay, delay, _NEVER), starts),
        "delay_max_ns": np.maximum.reduceat(delay, starts),
        "queue_max_ns": np.maximum.reduceat(queue, starts),
        "capacity_bps": np.maximum.reduceat(int_column(table, "capacity_bps")[order], starts),
        "histogram": _pack_histograms(cells % BINS, counts, cuts),
    }
    return pa.table(columns, schema=SAMPLES)


def _group_starts(values: Ints) -> NDArray[np.bool_]:
    return np.concatenate([[True], values[1:] != values[:-1]])


def _pack_histograms(bins: Ints, counts: Ints, cuts: Ints) -> pa.Array:
    """Histograms as bytes, from their cells and the bounds of each histogram."""
    cells = (bins << _HALF | counts).astype("<i8")
    offsets = (cuts * _CELL_BYTES).astype(np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(cuts) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(cells)])


def _unpack_histograms(histograms: pa.Array) -> tuple[Ints, Ints, Ints]:
    """The cells of all histograms: whose they are, their bins and their counts."""
    _, offsets, content = histograms.buffers()
    begin, end = histograms.offset, histograms.offset + len(histograms)
    cuts = np.frombuffer(offsets, np.int32)[begin : end + 1].astype(np.int64) // _CELL_BYTES
    cells = np.frombuffer(content, "<i8")[cuts[0] : cuts[-1]].astype(np.int64) if content is not None else cuts[:0]
    return np.repeat(np.arange(len(histograms)), np.diff(cuts)), cells >> _HALF, cells & _COUNT


class _WindowSums:
    """The sums of one end, or of both, in each window."""

    def __init__(self, rows: pa.Table, starts: Ints, selection: NDArray[np.bool_]) -> None:
        def sum_of(name: str) -> Ints:
            return np.add.reduceat(np.where(selection, int_column(rows, name), 0), starts)

        def max_of(name: str) -> Ints:
            return np.maximum.reduceat(np.where(selection, int_column(rows, name), 0), starts)

        self.sums = {name: sum_of(name) for name in _SUM_COLUMNS}
        self.low = np.minimum.reduceat(np.where(selection, int_column(rows, "delay_min_ns"), _NEVER), starts)
        self.high = max_of("delay_max_ns")
        self.queue_high = max_of("queue_max_ns")
        self.capacity = max_of("capacity_bps")

    def loss(self) -> pa.Array:
        answered = self.sums["acknowledged"] + self.sums["lost"]
        return _null_unless(answered > 0, self.sums["lost"] / np.maximum(answered, 1))


class _Histograms:
    """The histograms of all windows, in the order of windows and bins."""

    def __init__(self, rows: pa.Table, window: Ints) -> None:
        owner, bins, counts = _unpack_histograms(rows["histogram"].cast(pa.binary()).combine_chunks())
        order = np.argsort(window[owner] * BINS + bins, kind="stable")
        self._row, self._bins, self._counts = owner[order], bins[order], counts[order]

    def quantiles(self, merged: _WindowSums, selection: NDArray[np.bool_], *shares: float) -> list[pa.Array]:
        """The delay quantiles of each window, one array per share."""
        total = merged.sums["delays"]
        before = np.concatenate([[0], np.cumsum(total)[:-1]])
        upto = np.cumsum(np.where(selection[self._row], self._counts, 0))
        low = np.minimum(merged.low, merged.high)
        results = []
        for share in shares:
            rank = np.maximum(1, np.ceil(share * total)).astype(np.int64)
            cell = np.minimum(np.searchsorted(upto, before + rank), len(upto) - 1)
            values = _MIDDLES[self._bins[cell]] if len(upto) else low
            results.append(_null_unless(total > 0, np.clip(values, low, merged.high)))
        return results


def _null_unless(known: NDArray[np.bool_], values: NDArray[Any]) -> pa.Array:
    """Values, null if they are not known."""
    return pa.array(values, mask=~known)


def merge_windows(rows: pa.Table, down: pa.Table, window_ns: int) -> pa.Table:
    """One row for each link and window. `rows` are the sums of both ends of links, with `a` and `b`; `down` has the
    outages of these links. An outage that lasts over several buckets may be there several times; it counts once."""
    if not rows.num_rows:
        return LINKS.empty_table()
    rows = rows.take(pa.array(np.lexsort([int_column(rows, name) for name in ("b", "a", "begin_ns")])))
    a, b, begin = (int_column(rows, name) for name in ("a", "b", "begin_ns"))
    new = _group_starts(a) | _group_starts(b) | _group_starts(begin)
    starts = np.flatnonzero(new)
    of_a = int_column(rows, "peer") == a
    all_rows = np.ones(len(a), bool)
    both, ab, ba = (_WindowSums(rows, starts, selection) for selection in (all_rows, of_a, ~of_a))
    histograms = _Histograms(rows, np.cumsum(new) - 1)
    a, b, begin, many = a[starts], b[starts], begin[starts], len(starts)
    down_ns, outages = _downtimes(a, b, begin, window_ns, down)
    seen = np.minimum(window_ns, np.maximum(ab.sums["observed_ns"], ba.sums["observed_ns"]))
    seen = np.maximum(seen, down_ns)
    total = both.sums["delays"]
    mean = both.sums["delay_sum_ns"] // np.maximum(total, 1)
    square = both.sums["delay_square_us2"] / np.maximum(total, 1) * (_US * _US)
    std = np.sqrt(np.maximum(0.0, square - mean.astype(np.float64) ** 2))
    p50, p90, p99 = histograms.quantiles(both, all_rows, 0.5, 0.9, 0.99)
    (middle_ab,), (middle_ba,) = histograms.quantiles(ab, of_a, 0.5), histograms.quantiles(ba, ~of_a, 0.5)
    columns: dict[str, Any] = {
        "begin_ns": begin,
        "window_ns": np.full(many, window_ns),
        "a": a,
        "b": b,
        "samples": both.sums["samples"],
        "ends": (ab.sums["samples"] > 0).astype(np.int64) + (ba.sums["samples"] > 0),
        "delay_mean_ns": _null_unless(total > 0, mean),
        "delay_std_ns": _null_unless(total > 0, np.rint(std).astype(np.int64)),
        "delay_min_ns": _null_unless(total > 0, both.low),
        "delay_p50_ns": p50,
        "delay_p90_ns": p90,
        "delay_p99_ns": p99,
        "delay_max_ns": _null_unless(total > 0, both.high),
        "delay_ab_p50_ns": middle_ab,
        "delay_ba_p50_ns": middle_ba,
        "asymmetry_ns": compute.subtract(middle_ab, middle_ba),
        "sent_ab": ab.sums["sent"],
        "sent_ba": ba.sums["sent"],
        "loss_ab": ab.loss(),
        "loss_ba": ba.loss(),
        "queue_mean_ns": both.sums["queue_sum_ns"] // np.maximum(both.sums["samples"], 1),
        "queue_max_ns": both.queue_high,
        "capacity_ab_bps": _null_unless(ab.capacity > 0, ab.capacity),
        "capacity_ba_bps": _null_unless(ba.capacity > 0, ba.capacity),
        "observed_ns": seen,
        "down_ns": down_ns,
        "outages": outages,
        "availability": _null_unless(seen > 0, 1 - down_ns / np.maximum(seen, 1)),
    }
    return pa.table(columns, schema=LINKS)


def _downtimes(a: Ints, b: Ints, begins: Ints, window_ns: int, down: pa.Table) -> tuple[Ints, Ints]:
    """For each link and window, how long the link was down in it, and how many outages began in it."""
    time, count = np.zeros(len(begins), np.int64), np.zeros(len(begins), np.int64)
    windows: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at, link in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        windows[link].append(at)
    places = {link: np.array(each, np.int64) for link, each in windows.items()}
    columns = (down[name].to_pylist() for name in ("a", "b", "begin_ns", "end_ns"))
    for of_a, of_b, begin, until in dict.fromkeys(zip(*columns, strict=True)):
        each = places.get((of_a, of_b))
        if each is None:
            continue
        own = begins[each]
        end = until if until is not None else int(own[-1]) + window_ns
        first, last = int(np.searchsorted(own, begin - window_ns, "right")), int(np.searchsorted(own, end, "left"))
        here = own[first:last]
        time[each[first:last]] += np.maximum(0, np.minimum(here + window_ns, end) - np.maximum(here, begin))
        if first < len(own) and own[first] <= begin < own[first] + window_ns:
            count[each[first]] += 1
    return time, count
