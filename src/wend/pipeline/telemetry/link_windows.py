"""Samples of links, reduced to sums that merge, and merged to one row for each link and window.

A segment becomes one row for each neighbour and window: counts, sums, extremes, and a histogram of delays on a fixed
logarithmic scale. All are whole numbers, so they add up to the same in any order: a stream and a batch give equal rows.
Quantiles come from the histogram. A bin is 4.4 % wide, and so is the error of a quantile, at most.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wend.model.telemetry import Segment
from wend.pipeline.telemetry.clocks import Node
from wend.pipeline.telemetry.segments import Ints, numbers

_BINS_PER_OCTAVE = 16
_FIRST_OCTAVE = 10
"""The first bin begins at 2**10 ns, a microsecond."""
BINS = 30 * _BINS_PER_OCTAVE
_US = 1000
_SUMS = (
    "samples", "delays", "delay_sum_ns", "delay_square_us2", "sent", "acknowledged", "lost", "queue_sum_ns",
    "observed_ns",
)  # fmt: skip
SAMPLES = pa.schema(
    [
        ("bucket", pa.int64()), ("begin_ns", pa.int64()), ("peer", pa.int64()), ("incarnation", pa.int64()),
        ("neighbour", pa.int64()),
        *((name, pa.int64()) for name in _SUMS),
        ("delay_min_ns", pa.int64()), ("delay_max_ns", pa.int64()), ("queue_max_ns", pa.int64()),
        ("capacity_bps", pa.int64()),
        ("bins", pa.list_(pa.int32())), ("counts", pa.list_(pa.int32())),
    ]
)  # fmt: skip
"""The sums of one segment for one end of a link in one window, by the clock of the reference."""
LINKS = pa.schema(
    [
        ("begin_ns", pa.int64()), ("window_ns", pa.int64()), ("a", pa.int64()), ("b", pa.int64()),
        ("samples", pa.int64()), ("ends", pa.int64()),
        ("delay_mean_ns", pa.int64()), ("delay_std_ns", pa.int64()), ("delay_min_ns", pa.int64()),
        ("delay_p50_ns", pa.int64()), ("delay_p90_ns", pa.int64()), ("delay_p99_ns", pa.int64()),
        ("delay_max_ns", pa.int64()), ("delay_ab_p50_ns", pa.int64()), ("delay_ba_p50_ns", pa.int64()),
        ("asymmetry_ns", pa.int64()),
        ("sent_ab", pa.int64()), ("sent_ba", pa.int64()), ("loss_ab", pa.float64()), ("loss_ba", pa.float64()),
        ("queue_mean_ns", pa.int64()), ("queue_max_ns", pa.int64()),
        ("capacity_ab_bps", pa.int64()), ("capacity_ba_bps", pa.int64()),
        ("observed_ns", pa.int64()), ("down_ns", pa.int64()), ("outages", pa.int64()),
        ("availability", pa.float64()),
    ]
)  # fmt: skip
"""One link in one window, a < b. What a measured about sending to b has `ab` in its name. A capacity is the highest
that was measured, and null where none was."""


class Windowing(NamedTuple):
    """The windows of a job, and the buckets of windows that are rewritten together."""

    window_ns: int
    bucket_windows: int = 60

    def bucket(self, begin_ns: Any) -> Any:
        return begin_ns // (self.window_ns * self.bucket_windows)


def bin_of(delays_ns: Ints) -> Ints:
    """The bin of each delay."""
    octaves = np.log2(np.maximum(delays_ns, 1).astype(np.float64)) - _FIRST_OCTAVE
    bins: Ints = np.clip(np.floor(octaves * _BINS_PER_OCTAVE), 0, BINS - 1).astype(np.int64)
    return bins


_MIDDLES = np.rint(2.0 ** (_FIRST_OCTAVE + (np.arange(BINS) + 0.5) / _BINS_PER_OCTAVE)).astype(np.int64)


def link_sums(table: pa.Table, segment: Segment, *, offsets: dict[Node, int], windowing: Windowing) -> pa.Table:
    """The rows of a segment of samples as sums for each neighbour and window."""
    offset = offsets.get((segment.peer, segment.incarnation), 0)
    window = windowing.window_ns
    neighbour = numbers(table, "neighbour")
    begin = (numbers(table, "time_ns") - offset) // window * window
    order = np.lexsort((begin, neighbour))
    neighbour, begin = neighbour[order], begin[order]
    starts = np.flatnonzero(_changes(neighbour) | _changes(begin))
    group = np.cumsum(_changes(neighbour) | _changes(begin)) - 1
    delay = numbers(table, "delay_ns")[order]
    known = delay > 0
    micros = np.minimum(delay, 60_000_000_000) // _US
    queue = numbers(table, "queue_ns")[order]
    sums = {
        "samples": np.ones(len(order), np.int64),
        "delays": known.astype(np.int64),
        "delay_sum_ns": delay,
        "delay_square_us2": micros * micros,
        "sent": numbers(table, "sent")[order],
        "acknowledged": numbers(table, "acknowledged")[order],
        "lost": numbers(table, "lost")[order],
        "queue_sum_ns": queue,
        "observed_ns": np.minimum(numbers(table, "period_ns")[order], window),
    }
    cells, counts = np.unique(group[known] * BINS + bin_of(delay[known]), return_counts=True)
    lists = pa.array(np.searchsorted(cells, np.arange(len(starts) + 1) * BINS).astype(np.int32))
    many = len(starts)
    found = {
        "bucket": windowing.bucket(begin[starts]),
        "begin_ns": begin[starts],
        "peer": np.full(many, segment.peer),
        "incarnation": np.full(many, segment.incarnation),
        "neighbour": neighbour[starts],
        **{name: np.add.reduceat(values, starts) for name, values in sums.items()},
        "delay_min_ns": np.minimum.reduceat(np.where(known, delay, np.iinfo(np.int64).max), starts),
        "delay_max_ns": np.maximum.reduceat(delay, starts),
        "queue_max_ns": np.maximum.reduceat(queue, starts),
        "capacity_bps": np.maximum.reduceat(numbers(table, "capacity_bps")[order], starts),
        "bins": pa.ListArray.from_arrays(lists, pa.array((cells % BINS).astype(np.int32))),
        "counts": pa.ListArray.from_arrays(lists, pa.array(counts.astype(np.int32))),
    }
    return pa.table(found, schema=SAMPLES)


def _changes(values: Ints) -> NDArray[np.bool_]:
    return np.concatenate([[True], values[1:] != values[:-1]])


class _Merged:
    """The sums of one end, or of both, by window."""

    def __init__(self, rows: pa.Table, place: Ints, many: int, wanted: NDArray[np.bool_]) -> None:
        at = place[wanted]
        self.sums = {name: _added(numbers(rows, name)[wanted], at, many) for name in _SUMS}
        self.low = np.full(many, np.iinfo(np.int64).max)
        np.minimum.at(self.low, at, numbers(rows, "delay_min_ns")[wanted])
        self.high = np.zeros(many, np.int64)
        np.maximum.at(self.high, at, numbers(rows, "delay_max_ns")[wanted])
        self.queue_high = np.zeros(many, np.int64)
        np.maximum.at(self.queue_high, at, numbers(rows, "queue_max_ns")[wanted])
        self.capacity = np.zeros(many, np.int64)
        np.maximum.at(self.capacity, at, numbers(rows, "capacity_bps")[wanted])
        bins = rows["bins"].combine_chunks()
        lengths = bins.value_lengths().to_numpy()
        each = np.repeat(np.where(wanted, place, -1), lengths)
        cell = bins.flatten().to_numpy().astype(np.int64)
        count = rows["counts"].combine_chunks().flatten().to_numpy().astype(np.int64)
        used = each >= 0
        self.histogram = _added(count[used], each[used] * BINS + cell[used], many * BINS).reshape(many, BINS)

    def quantile(self, share: float) -> list[int | None]:
        """The delay below which this share of the samples lies, in each window."""
        total = self.sums["delays"]
        rank = np.maximum(1, np.ceil(share * total)).astype(np.int64)
        cell = np.argmax(np.cumsum(self.histogram, axis=1) >= rank[:, None], axis=1)
        values = np.clip(_MIDDLES[cell], np.minimum(self.low, self.high), self.high)
        return _or_none(values, total > 0)

    def loss(self) -> list[float | None]:
        answered = self.sums["acknowledged"] + self.sums["lost"]
        shares = self.sums["lost"] / np.maximum(answered, 1)
        return [float(share) if many else None for share, many in zip(shares, answered, strict=True)]


def _added(values: Ints, at: Ints, many: int) -> Ints:
    """The sums of values by place, as whole numbers."""
    found = np.zeros(many, np.int64)
    np.add.at(found, at, values)
    return found


def _or_none(values: Ints, known: NDArray[np.bool_]) -> list[int | None]:
    return [int(value) if there else None for value, there in zip(values, known, strict=True)]


def link_rows(a: int, b: int, rows: pa.Table, down: list[tuple[int, int | None]], window_ns: int) -> pa.Table:
    """One row for each window of the link between a and b. `rows` are the sums of both ends, `down` its outages."""
    begins, place = np.unique(numbers(rows, "begin_ns"), return_inverse=True)
    place, many = place.ravel().astype(np.int64), len(begins)
    of_a = numbers(rows, "peer") == a
    both, ab, ba = (_Merged(rows, place, many, wanted) for wanted in (np.ones(len(of_a), bool), of_a, ~of_a))
    seen = np.minimum(window_ns, np.maximum(ab.sums["observed_ns"], ba.sums["observed_ns"]))
    down_ns, outages = _down(begins, window_ns, down)
    seen = np.maximum(seen, down_ns)
    total = both.sums["delays"]
    mean = both.sums["delay_sum_ns"] // np.maximum(total, 1)
    square = both.sums["delay_square_us2"] / np.maximum(total, 1) * (_US * _US)
    std = np.sqrt(np.maximum(0.0, square - mean.astype(np.float64) ** 2))
    middle_ab, middle_ba = ab.quantile(0.5), ba.quantile(0.5)
    found: dict[str, Any] = {
        "begin_ns": begins,
        "window_ns": np.full(many, window_ns),
        "a": np.full(many, a),
        "b": np.full(many, b),
        "samples": both.sums["samples"],
        "ends": (ab.sums["samples"] > 0).astype(np.int64) + (ba.sums["samples"] > 0),
        "delay_mean_ns": _or_none(mean, total > 0),
        "delay_std_ns": _or_none(np.rint(std).astype(np.int64), total > 0),
        "delay_min_ns": _or_none(both.low, total > 0),
        "delay_p50_ns": both.quantile(0.5),
        "delay_p90_ns": both.quantile(0.9),
        "delay_p99_ns": both.quantile(0.99),
        "delay_max_ns": _or_none(both.high, total > 0),
        "delay_ab_p50_ns": middle_ab,
        "delay_ba_p50_ns": middle_ba,
        "asymmetry_ns": [None if x is None or y is None else x - y for x, y in zip(middle_ab, middle_ba, strict=True)],
        "sent_ab": ab.sums["sent"],
        "sent_ba": ba.sums["sent"],
        "loss_ab": ab.loss(),
        "loss_ba": ba.loss(),
        "queue_mean_ns": both.sums["queue_sum_ns"] // np.maximum(both.sums["samples"], 1),
        "queue_max_ns": both.queue_high,
        "capacity_ab_bps": _or_none(ab.capacity, ab.capacity > 0),
        "capacity_ba_bps": _or_none(ba.capacity, ba.capacity > 0),
        "observed_ns": seen,
        "down_ns": down_ns,
        "outages": outages,
        "availability": [1 - int(x) / int(y) if y else None for x, y in zip(down_ns, seen, strict=True)],
    }
    return pa.table(found, schema=LINKS)


def _down(begins: Ints, window_ns: int, down: list[tuple[int, int | None]]) -> tuple[Ints, Ints]:
    """For each window, how long the link was down in it, and how many outages began in it."""
    time, count = np.zeros(len(begins), np.int64), np.zeros(len(begins), np.int64)
    for begin, until in down:
        end = until if until is not None else int(begins[-1]) + window_ns
        first = int(np.searchsorted(begins, begin - window_ns, "right"))
        last = int(np.searchsorted(begins, end, "left"))
        here = begins[first:last]
        time[first:last] += np.maximum(0, np.minimum(here + window_ns, end) - np.maximum(here, begin))
        if first < len(begins) and begins[first] <= begin < begins[first] + window_ns:
            count[first] += 1
    return time, count
