"""The speed of the compiled index, compared with a NumPy scan over columns.

The workload is that of dmm, section VI: events with 10 attributes, uniform in [1, 256]; filters with ranges on 1 to 5
of them, of any width or of at most a tenth of the domain. Both sides return arrays of the keys that match each event.
The scan holds the low and the high end of every filter for every attribute as 64-bit integers, because filters may
have any numbers; attributes that a filter does not constrain are unbounded. It compares whole columns with an event's
value, into preallocated arrays: two comparisons and two `and`s for each attribute, then the positions.

    python -m benchmarks.matching                      the table of 10^5 and 10^6 filters
    python -m benchmarks.matching --curve FILE.json    events/s against the number of filters, for scripts/pictures.py
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import Row
from wend.matching.batch import Batch
from wend.matching.batch_index import BatchIndex
from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.matching.values import Values, values_between
from wend.model.randomness import stream

NAMES = [f"a{i}" for i in range(10)]
TOP = 256
NARROW = 26
BATCH = 1000
SEED = 4
SIZES = (100_000, 1_000_000)
CURVE = (1_000, 10_000, 100_000, 1_000_000)


class Boxes(NamedTuple):
    """The ends of each filter for each attribute; `named` tells which attributes a filter constrains."""

    lows: NDArray[np.int64]
    highs: NDArray[np.int64]
    named: NDArray[np.bool_]


def draw_boxes(count: int, narrow: bool) -> Boxes:
    rng = stream(SEED, "matching", "filters", count, "narrow" if narrow else "wide")
    shape = (count, len(NAMES))
    if narrow:
        width = rng.integers(1, NARROW + 1, shape)
        lows = rng.integers(1, TOP + 2 - width)
        highs = lows + width - 1
    else:
        ends = np.sort(rng.integers(1, TOP + 1, (*shape, 2)), axis=2)
        lows, highs = ends[:, :, 0], ends[:, :, 1]
    order = np.argsort(rng.random(shape), axis=1)
    return Boxes(lows, highs, order < rng.integers(1, 6, count)[:, None])


@cache
def range_values(low: int, high: int) -> Values:
    return values_between(low, high)


def make_filters(found: Boxes) -> Iterator[Filter]:
    for lows, highs, named in zip(found.lows.tolist(), found.highs.tolist(), found.named.tolist(), strict=True):
        sides = tuple((NAMES[a], range_values(lows[a], highs[a])) for a in range(len(NAMES)) if named[a])
        yield Filter((Conjunction(sides),))


def draw_events(count: int) -> NDArray[np.int64]:
    return stream(SEED, "matching", "events").integers(1, TOP + 1, (count, len(NAMES)))


class Scan:
    """The competitor: it compares whole columns, one event after the other."""

    def __init__(self, found: Boxes) -> None:
        self.lows = np.ascontiguousarray(np.where(found.named, found.lows, 0).T)
        self.highs = np.ascontiguousarray(np.where(found.named, found.highs, TOP + 1).T)
        self.fits = np.empty(len(found.named), dtype=bool)
        self.part = np.empty(len(found.named), dtype=bool)

    def match(self, event: NDArray[np.int64]) -> NDArray[np.int64]:
        self.fits[:] = True
        for a, value in enumerate(event):
            np.less_equal(self.lows[a], value, out=self.part)
            np.logical_and(self.fits, self.part, out=self.fits)
            np.greater_equal(self.highs[a], value, out=self.part)
            np.logical_and(self.fits, self.part, out=self.fits)
        return np.flatnonzero(self.fits)


def cpu_seconds(action: Callable[[], object]) -> float:
    began = time.thread_time()
    action()
    return time.thread_time() - began


class Metrics(NamedTuple):
    """Rates are per CPU second."""

    batch: float
    scan: float
    build_s: float
    array_bytes: float
    """Per filter."""
    resident_bytes: float
    """The growth of the process per filter."""
    wanted: float
    """The number of filters that match an event, on average."""


def resident_bytes() -> int:
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * resource.getpagesize() if pages.exists() else 0


def measure(count: int, narrow: bool) -> Metrics:
    found = draw_boxes(count, narrow)
    known = list(make_filters(found))
    before, began = resident_bytes(), time.thread_time()
    index = BatchIndex(known)
    build, grown = time.thread_time() - began, resident_bytes() - before
    drawn = draw_events(BATCH)
    batch = Batch.of_columns(BATCH, {name: np.ascontiguousarray(drawn[:, a]) for a, name in enumerate(NAMES)})
    offsets, ids = index.match_batch(batch)
    scan = Scan(found)
    for at in range(0, BATCH, BATCH // 5):
        assert np.array_equal(ids[offsets[at] : offsets[at + 1]], scan.match(drawn[at])), "index and scan differ"
    batches = min(cpu_seconds(lambda: index.match_batch(batch)) for _ in range(5))
    looks = drawn[: min(BATCH, max(5, 3_000_000 // count))]
    scans = min(cpu_seconds(lambda: [scan.match(one) for one in looks]) for _ in range(3))
    return Metrics(
        batch=BATCH / batches,
        scan=len(looks) / scans,
        build_s=build,
        array_bytes=index.nbytes / count,
        resident_bytes=grown / count,
        wanted=len(ids) / BATCH,
    )


def measure_all() -> dict[tuple[int, str], Metrics]:
    return {
        (count, "narrow" if narrow else "wide"): measure(count, narrow) for count in SIZES for narrow in (False, True)
    }


def write_curve(name: str) -> None:
    """Write events/s against the number of filters."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for narrow, width in ((False, "wide"), (True, "narrow")):
        metrics = {count: measure(count, narrow) for count in CURVE}
        found[width] = {
            kind: {str(count): float(f"{getattr(one, kind):.4g}") for count, one in metrics.items()}
            for kind in ("batch", "scan")
        }
    about = "events per second of one core, by the width of ranges, the kind of matching and the number of filters"
    made = {"made by": f"python -m benchmarks.matching --curve {name}", "metric": about, "events_per_s": found}
    Path(name).write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def rows() -> list[Row]:
    found = []
    for (count, width), one in measure_all().items():
        name, against = f"matching.{count}.{width}", f"{count:,} {width} filters"
        found += [
            Row(f"{name}.events_per_s", f"events/s in batches, {against} (NumPy scan)", one.batch, one.scan),
            Row(f"{name}.bytes", "  bytes per filter", one.array_bytes),
        ]
    return found


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--curve":
        write_curve(sys.argv[2])
        return
    for (count, width), found in measure_all().items():
        print(f"{count:>9,} {width:<6}", *(f"{name} {value:,.0f}" for name, value in found._asdict().items()), sep="  ")


if __name__ == "__main__":
    main()
