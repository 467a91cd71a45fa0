"""Regions of the attribute space, in which the partitioned plan brings events and subscriptions together.

A plane is a z-code space (`matching/zcode.py`) of one to three attributes. A subscription goes to the plane on which it
covers the smallest share, and there to a few disjoint regions that cover its box. An event goes to every region that
holds it, on every plane. A subscription that is selective on no plane gets all events. The bounds that a sample of the
filters names become the cell bounds of an attribute, so cells are finer in ranges that many filters use. Events that
lack the attribute, or carry a truth value, have cells of their own.

**Each pair meets once.** An event with single values is a point, and a point is in at most one of the regions of a
subscription. An event with a range may be in several. Then only one region reports the pair: the one that holds the
lowest corner that the event and the subscription share.

A region only finds candidates; its index decides. So cells may be coarse, and the bounding box stands for a filter
with `or` or with a set of values.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from wend.matching.batch import Batch, Column
from wend.matching.batch_table import SLOTS
from wend.matching.filters import Filter
from wend.matching.values import WHOLE, Cuts, Values
from wend.matching.zcode import Box, Cells, NumberDomain, ZCodeSpace
from wend.model.events import Range

Ints = NDArray[np.int64]

MISSING, FALSE, FIRST_NUMBER = 0, 1, 3
"""The cells of an attribute, in order: missing, false, true, numbers, texts."""

MAX_CUTS = {1: 64, 2: 24, 3: 10}
MIN_CUTS = 3
"""Cell bounds of each kind on an attribute, by the number of attributes of a plane: a few thousand cells at most."""

MAX_REGIONS = 4
MAX_PLANES = 12
MAX_COMBINED = 5
MAX_RATED = 400
"""Planes of two and three attributes are built from the most selective attributes, and rated on some filters."""

COPY_COST = 0.02
"""One more plane costs one more copy of every event. It must save events this share of all subscriptions."""

EVERYWHERE = -1
"""The number of the plane without attributes. It has one region, which every event reaches."""


class AttributeAxis(msgspec.Struct, frozen=True):
    """One attribute, cut into cells. A larger value never has a smaller cell, even if doubles round."""

    name: str
    numbers: tuple[float, ...]
    texts: tuple[str, ...]

    @property
    def first_text_cell(self) -> int:
        return FIRST_NUMBER + len(self.numbers) + 1

    @property
    def cells(self) -> int:
        return self.first_text_cell + len(self.texts) + 1

    def cell_range(self, values: Values) -> Cells:
        """The first and the last cell that hold any of these values."""
        cells = [MISSING] if values.absent else []
        cells += [FALSE + one for one in values.booleans]
        if values.numbers:
            cells += [self._number_cell(values.numbers[0]), self._last_number_cell(values.numbers)]
        if values.strings:
            cells += [self._text_cell(values.strings[0]), self._last_text_cell(values.strings)]
        return min(cells), max(cells)

    def _number_cell(self, value: Any) -> int:
        return FIRST_NUMBER + bisect_right(self.numbers, as_double(value))

    def _last_number_cell(self, cuts: Cuts) -> int:
        if len(cuts) % 2:
            return self.first_text_cell - 1
        # Values below an end may round up to it if doubles are sparse.
        exact = -WHOLE < cuts[-1] < WHOLE
        return FIRST_NUMBER + (bisect_left if exact else bisect_right)(self.numbers, as_double(cuts[-1]))

    def _text_cell(self, value: str) -> int:
        return self.first_text_cell + bisect_right(self.texts, value)

    def _last_text_cell(self, cuts: Cuts) -> int:
        return self.cells - 1 if len(cuts) % 2 else self.first_text_cell + bisect_left(self.texts, cuts[-1])

    def event_cells(self, column: Column | None, length: int) -> tuple[Ints, Ints]:
        """The first and the last cell of each event of a batch."""
        if column is None:
            nothing = np.full(length, MISSING)
            return nothing, nothing
        if isinstance(column, np.ndarray):
            if column.dtype.kind == "b":
                cells = FALSE + column.astype(np.int64)
            else:
                cuts = np.array(self.numbers, np.float64)
                cells = FIRST_NUMBER + np.searchsorted(cuts, column.astype(np.float64), side="right")
            return cells, cells
        both = np.array([self._value_cells(value) for value in column], np.int64).reshape(length, 2)
        return both[:, 0], both[:, 1]

    def _value_cells(self, value: Any) -> Cells:
        if isinstance(value, Range):
            text = isinstance(value.low, str) or isinstance(value.high, str)
            first, last = (self.first_text_cell, self.cells - 1) if text else (FIRST_NUMBER, self.first_text_cell - 1)
            cell: Callable[[Any], int] = self._text_cell if text else self._number_cell
            return first if value.low is None else cell(value.low), last if value.high is None else cell(value.high)
        if value is None:
            return MISSING, MISSING
        if isinstance(value, bool):
            return FALSE + value, FALSE + value
        at = self._text_cell(value) if isinstance(value, str) else self._number_cell(value)
        return at, at


def as_double(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


class AttributePlane:
    """The z-code space of one to three attributes."""

    def __init__(self, axes: Iterable[AttributeAxis]) -> None:
        self.axes = tuple(sorted(axes, key=lambda axis: axis.name))
        self.space = ZCodeSpace({axis.name: NumberDomain(0, axis.cells - 1) for axis in self.axes})
        self._covers: dict[Box, tuple[list[str], float]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return self.space.names

    def box(self, wanted: dict[str, Values]) -> Box:
        whole = self.space.whole.sides
        pairs = zip(self.axes, whole, strict=True)
        return Box(tuple(axis.cell_range(wanted[axis.name]) if axis.name in wanted else side for axis, side in pairs))

    def cover(self, box: Box) -> tuple[list[str], float]:
        """Cover a box by a few regions; also return their share of the plane. Filters share boxes, so this caches."""
        covered = self._covers.get(box)
        if covered is None:
            codes = self.space.cover(box, MAX_REGIONS)
            covered = codes, sum(self.space.region(code).volume for code in codes) / self.space.whole.volume
            self._covers[box] = covered
        return covered

    def corners(self, batch: Batch) -> tuple[Ints, Ints]:
        """The lowest and the highest cell of each event, a column for each axis."""
        sides = [axis.event_cells(batch.columns.get(axis.name), len(batch)) for axis in self.axes]
        return np.stack([low for low, _ in sides], axis=1), np.stack([high for _, high in sides], axis=1)


def required_values(wanted: Filter) -> dict[str, Values]:
    """The values that each attribute must have for the filter to match."""
    boxes = [dict(one.values) for one in wanted.conjunctions]
    names = set.intersection(*(set(box) for box in boxes)) if boxes else set()
    return {name: reduce(or_, (box[name] for box in boxes)) for name in sorted(names)}


def choose_planes(sample: Sequence[Filter], count: int) -> list[AttributePlane]:
    """Choose the planes that leave the fewest comparisons. A plane is chosen if it saves more than its copy of the
    events costs.

    `count` is the number of filters. It decides how fine the regions are: each region should be worth an index."""
    regions = count / SLOTS
    cuts = {size: min(most, max(MIN_CUTS, round(regions ** (1 / size)))) for size, most in MAX_CUTS.items()}
    filters = [required_values(one) for one in sample if one.conjunctions]
    weighed = filters[:MAX_RATED]
    singles = [AttributePlane([axis]) for axis in _make_axes(filters, cuts[1])]
    if not singles:
        return []
    gains = {plane.names[0]: float(np.sum(1 - _plane_shares(plane, weighed))) for plane in singles}
    best = sorted(gains, key=lambda name: (-gains[name], name))[:MAX_COMBINED]
    candidates = list(singles)
    for size in (2, 3):
        coarser = {axis.name: axis for axis in _make_axes(filters, cuts[size])}
        candidates += [
            AttributePlane(coarser[name] for name in names) for names in itertools.combinations(sorted(best), size)
        ]
    table = np.array([_plane_shares(plane, weighed) for plane in candidates])
    chosen: list[int] = []
    shares = np.ones(len(weighed))
    while len(chosen) < MAX_PLANES:
        means = np.minimum(table, shares).mean(axis=1)
        first = int(np.argmin(means))
        if shares.mean() - means[first] <= COPY_COST:
            break
        chosen.append(first)
        shares = np.minimum(shares, table[first])
    return [candidates[at] for at in chosen]


def _plane_shares(plane: AttributePlane, asked: list[dict[str, Values]]) -> NDArray[np.float64]:
    """The share of the plane that the regions of each filter cover, which is at least the share of its box."""
    return np.array([plane.cover(plane.box(wanted))[1] for wanted in asked])


def _make_axes(asked: list[dict[str, Values]], most: int) -> list[AttributeAxis]:
    numbers: dict[str, list[float]] = {}
    texts: dict[str, list[str]] = {}
    for wanted in asked:
        for name, values in wanted.items():
            ends = (as_double(cut) for cut in values.numbers)
            numbers.setdefault(name, []).extend(end for end in ends if np.isfinite(end))
            texts.setdefault(name, []).extend(values.strings)
    return [
        AttributeAxis(name, _pick_bounds(numbers[name], most), _pick_bounds(texts[name], most))
        for name in sorted(numbers)
    ]


def _pick_bounds(ends: list[Any], most: int) -> tuple[Any, ...]:
    """Choose at most `most` bounds, with the same number of bounds between any two of them."""
    ends = sorted(ends)
    if len(set(ends)) <= most:
        return tuple(sorted(set(ends)))
    return tuple(sorted({ends[(2 * at + 1) * len(ends) // (2 * most)] for at in range(most)}))


class Region(NamedTuple):
    """A region and its load. Its groups have numbers from `first` on: block by block, slice by slice."""

    plane: int
    code: str
    subscriptions: int
    blocks: int = 1
    slices: int = 1
    first: int = 0


def choose_regions(planes: Sequence[AttributePlane], subscription: Filter) -> tuple[int, list[str]]:
    """The plane and the regions of a filter. A filter that matches nothing has no region."""
    if not subscription.conjunctions:
        return EVERYWHERE, []
    asked = required_values(subscription)
    covers = [plane.cover(plane.box(asked)) for plane in planes]
    # With equal shares the first plane is chosen: it saves the most comparisons.
    best = min(range(len(planes)), key=lambda at: covers[at][1], default=EVERYWHERE)
    if best == EVERYWHERE or covers[best][0] == [""]:
        return EVERYWHERE, [""]
    return best, covers[best][0]


class RegionRouter:
    """Finds the regions of each event of a batch."""

    def __init__(self, planes: Sequence[AttributePlane], regions: Sequence[Region]) -> None:
        self._everywhere = [at for at, region in enumerate(regions) if region.plane == EVERYWHERE]
        self._grids = []
        for number, plane in enumerate(planes):
            positions = [at for at, region in enumerate(regions) if region.plane == number]
            if positions:
                self._grids.append(
                    RegionGrid(plane, positions, [plane.space.region(regions[at].code) for at in positions])
                )

    def find_regions(self, batch: Batch) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """Pairs of row and region, and whether the event is more than a point on the plane of that region."""
        rows = [np.tile(np.arange(len(batch)), len(self._everywhere))]
        regions = [np.repeat(np.array(self._everywhere, np.int64), len(batch))]
        wide = [np.zeros(len(rows[0]), bool)]
        for grid in self._grids:
            for found in grid.find_regions(batch):
                rows.append(found[0])
                regions.append(found[1])
                wide.append(np.full(len(found[0]), found[2]))
        return np.concatenate(rows), np.concatenate(regions), np.concatenate(wide)


class RegionGrid:
    """Maps each cell of a plane to the regions that contain it."""

    def __init__(self, plane: AttributePlane, regions: list[int], boxes: list[Box]) -> None:
        self._plane = plane
        self._regions = np.array(regions, np.int64)
        self._shape = tuple(axis.cells for axis in plane.axes)
        numbers = np.arange(np.prod(self._shape)).reshape(self._shape)
        find_cells = [numbers[tuple(slice(low, high + 1) for low, high in box.sides)].ravel() for box in boxes]
        cells = np.concatenate(find_cells)
        order = np.argsort(cells, kind="stable")
        self._held = np.repeat(self._regions, [len(one) for one in find_cells])[order]
        self._starts = np.searchsorted(cells[order], np.arange(numbers.size + 1))
        self._lows = np.array([[low for low, _ in box.sides] for box in boxes])
        self._highs = np.array([[high for _, high in box.sides] for box in boxes])

    def find_regions(self, batch: Batch) -> Iterable[tuple[Ints, Ints, bool]]:
        lows, highs = self._plane.corners(batch)
        wide = (lows != highs).any(axis=1)
        points = np.flatnonzero(~wide)
        cells = np.ravel_multi_index(tuple(lows[points].T), self._shape)
        starts, sizes = self._starts[cells], self._starts[cells + 1] - self._starts[cells]
        ends = np.cumsum(sizes)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)
        yield np.repeat(points, sizes), self._held[np.repeat(starts, sizes) + within], False
        for row in np.flatnonzero(wide):
            met = self._regions[((self._lows <= highs[row]) & (lows[row] <= self._highs)).all(axis=1)]
            yield np.full(len(met), row), met, True


def is_reported_here(plane: AttributePlane, code: str, events: Ints, subscriptions: Ints) -> NDArray[np.bool_]:
    """Whether this region reports each pair, given the lowest corners of its event and of its subscription."""
    sides = np.array(plane.space.region(code).sides)
    shared = np.maximum(events, subscriptions)
    inside: NDArray[np.bool_] = np.all((sides[:, 0] <= shared) & (shared <= sides[:, 1]), axis=1)
    return inside
