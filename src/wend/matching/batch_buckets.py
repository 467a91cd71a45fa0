"""Buckets: the possible values of one attribute, divided into a few rows of the bitmap table.

The rows of an attribute are, in this order: missing, NaN, false, true, buckets of numbers, buckets of texts. So almost
every constraint covers a single run of rows. The cuts of the filters are the borders of buckets. If there are too many,
only the cuts that matter for integers are used; if these are still too many, their quantiles.

A row is exact for a value if every constraint that contains part of the row allows the value. A bucket without cuts
inside is exact for all its values. If intervals only end inside a bucket, it is exact for the values before the first
end. So integers are exact with one row each, although every interval of integers ends between two of them.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wend.matching.borders import choose_borders
from wend.matching.conjunctions import Conjunction
from wend.matching.values import WHOLE, Cuts, Values, interval, is_nan, pieces
from wend.model.events import Range

MISSING, NAN, FALSE, TRUE, FIRST_NUMBER = range(5)
MAX_ROWS = 320
"""The most borders of one type. More borders make doubt rarer and take more memory."""

MAX_SIDES = 64
RARE = 256
"""An attribute has no rows if fewer than one in this many conjunctions constrains it."""

CACHED = 4096
"""With more cells than this, the cache of an attribute is emptied before the next column."""

Run = tuple[int, int]
Doubles = NDArray[np.float64]
ColumnCells = tuple[NDArray[np.int64], NDArray[np.bool_], Doubles]
"""The cells of a column: rows, whether each is inexact, and values."""


class BucketCell(NamedTuple):
    """The value of an event: its row, whether the row is exact for it, and the value as a double for the exact test."""

    row: int
    exact: bool
    value: float = 0.0


class TypeBuckets:
    """The buckets of one type of values, numbers or texts."""

    def __init__(self, first: int, borders: list[Any], bottom: Any) -> None:
        self.first = first
        self.borders = borders
        self.bottom = bottom
        self.limits: list[Any] = [None] * (len(borders) + 1)
        """A bucket is exact below its limit; with None it is exact everywhere."""
        self.begins_inside = False

    @property
    def rows(self) -> int:
        return len(self.limits)

    def run(self, low: Any, end: Any) -> Run:
        """The rows that low <= v < end overlaps."""
        last = len(self.borders) if end is None else bisect_left(self.borders, end)
        return self.first + bisect_right(self.borders, low), self.first + last

    def divide(self, cuts: Cuts) -> list[int]:
        """Record the cuts inside buckets. Return the rows of these buckets."""
        rows = []
        for order, cut in enumerate(cuts):
            at = bisect_right(self.borders, cut)
            if cut == self.bottom or (at and self.borders[at - 1] == cut):
                continue  # the cut is on a border
            rows.append(self.first + at)
            limit = self.limits[at]
            below = self.bottom if order % 2 == 0 else cut
            self.begins_inside = self.begins_inside or order % 2 == 0
            if limit is None or below < limit:
                self.limits[at] = below
        return rows

    def cell(self, value: Any) -> tuple[int, bool]:
        at = bisect_right(self.borders, value)
        limit = self.limits[at]
        return self.first + at, limit is None or value < limit

    @cached_property
    def as_doubles(self) -> tuple[Doubles, Doubles] | None:
        """Borders and limits, once all filters are recorded; None if a border is not a double."""
        if not all(is_double(border) for border in self.borders):
            return None
        limits = [math.inf if limit is None else limit if is_double(limit) else -math.inf for limit in self.limits]
        return np.array(self.borders, dtype=np.float64), np.array(limits, dtype=np.float64)


class AttributeBuckets:
    """The rows of one attribute. `base` is its first row in the table; `edges` is the first of its edge rows, which
    have a bit for each slot that divides a bucket."""

    def __init__(self, name: str, numbers: list[Any], strings: list[Any]) -> None:
        self.name = name
        self.base = 0
        self.edges = 0
        self.numbers = TypeBuckets(FIRST_NUMBER, numbers, -math.inf)
        self.strings = TypeBuckets(FIRST_NUMBER + self.numbers.rows, strings, "")
        self.rows = self.strings.first + self.strings.rows
        self.names: dict[str, int] = {}
        """Numbers for the texts that filters compare with `=`."""
        self.doubtful = False
        """Whether an event had a value for which its row was not exact."""
        self._cells: dict[int | str | None, BucketCell] = {}
        """A cache for columns without doubles and truth values, which can be equal to an integer."""

    @property
    def begins_inside(self) -> bool:
        """Whether some interval begins inside a bucket. Then that bucket is not exact for any value."""
        return self.numbers.begins_inside or self.strings.begins_inside

    # ---- filters

    def runs(self, values: Values) -> list[Run]:
        """The rows that a set overlaps, as runs in order."""
        if not values.absent and not values.booleans:
            # Most filters have a single interval.
            if len(values.numbers) == 2 and not values.strings:
                return [self.numbers.run(*values.numbers)]
            if len(values.strings) == 2 and not values.numbers:
                return [self.strings.run(*values.strings)]
        runs: list[Run] = [(MISSING, MISSING)] if values.absent else []
        runs.extend((FALSE + value, FALSE + value) for value in values.booleans)
        for kind, cuts in ((self.numbers, values.numbers), (self.strings, values.strings)):
            runs.extend(kind.run(low, end) for low, end in pieces(cuts))
        return _join_runs(runs)

    def divide(self, values: Values) -> list[int]:
        """Record a set. Return the rows that it divides, which may be inexact."""
        return [*self.numbers.divide(values.numbers), *self.strings.divide(values.strings)]

    def ends(self, values: Values) -> tuple[float, float] | None:
        """A set as low <= v < end in doubles, with texts as their numbers; None if that is impossible."""
        if len(values.numbers) == 2 and not values.strings:
            low, end = values.numbers
            return (float(low), float(end)) if is_double(low) and is_double(end) else None
        if len(values.strings) == 2 and not values.numbers and values.strings[1] == values.strings[0] + "\0":
            number = float(self.names.setdefault(values.strings[0], len(self.names)))
            return number, number + 0.5
        return None

    # ---- events

    def cell(self, value: Any) -> BucketCell:
        """The cell of a single value; None is a missing attribute."""
        if value is None:
            return BucketCell(MISSING, True)
        if isinstance(value, str):
            return BucketCell(*self.strings.cell(value), float(self.names.get(value, -1)))
        if isinstance(value, bool):
            return BucketCell(FALSE + value, True)
        if is_nan(value):
            return BucketCell(NAN, True)
        row, exact = self.numbers.cell(value)
        return (
            BucketCell(row, exact) if exact else BucketCell(row, False, float(value) if is_double(value) else math.nan)
        )

    def find_rows(self, value: Range) -> Run:
        """The rows of all values in a range."""
        cuts = interval(value.low, value.high, value.low_open, value.high_open)
        if not cuts:
            return NAN, NAN
        kind = self.strings if isinstance(cuts[0], str) else self.numbers
        return kind.run(cuts[0], cuts[1] if len(cuts) > 1 else None)

    def cells(self, column: Any, length: int) -> ColumnCells | None:
        """The cells of a column of this length, or of no column; None if the column has a range."""
        if column is None:
            return _exact_cells(np.full(length, MISSING))
        if isinstance(column, np.ndarray):
            if column.dtype == np.bool_:
                return _exact_cells(FALSE + column.astype(np.int64))
            fits = column.dtype == np.float64 or not len(column) or np.abs(column).max() <= WHOLE
            cells = self._find_double_cells(column.astype(np.float64, copy=False)) if fits else None
            return cells or self._find_list_cells(column.tolist(), repeats=column.dtype.kind == "i")
        kinds = set(map(type, column))
        if Range in kinds:
            return None
        fits = kinds <= {float} or (kinds == {int} and max(map(abs, column)) <= WHOLE)
        cells = self._find_double_cells(np.array(column, dtype=np.float64)) if fits else None
        return cells or self._find_list_cells(column, repeats=kinds <= {str, int, type(None)})

    def _find_list_cells(self, column: list[Any], repeats: bool = False) -> ColumnCells:
        """`repeats`: the values may occur several times, and equal ones are of one type, so each is looked up once."""
        if repeats:
            known = self._cells
            if len(known) > CACHED:
                known.clear()
            known.update({value: self.cell(value) for value in {*column}.difference(known)})
            cells = [known[value] for value in column]
        else:
            cells = [self.cell(value) for value in column]
        return (
            np.array([row for row, _, _ in cells], dtype=np.int64),
            np.array([not exact for _, exact, _ in cells], dtype=bool),
            np.array([value for _, _, value in cells], dtype=np.float64),
        )

    def _find_double_cells(self, column: Doubles) -> ColumnCells | None:
        """The cells of doubles; None if a border is not a double."""
        doubles = self.numbers.as_doubles
        if doubles is None:
            return None
        borders, limits = doubles
        at = np.searchsorted(borders, column, side="right")
        limit = limits[at]
        nan = np.isnan(column)
        inexact = ~((column < limit) | (limit == math.inf) | nan)
        return np.where(nan, NAN, FIRST_NUMBER + at), inexact, column


def common_attributes(conjunctions: Sequence[Conjunction]) -> dict[str, tuple[list[int], list[Values]]]:
    """The attributes that need rows for these conjunctions. For each: the positions and the sets of those that
    constrain it.

    All other attributes are rare. Conjunctions that constrain them are tested one by one."""
    groups: dict[str, tuple[list[int], list[Values]]] = {}
    for slot, one in enumerate(conjunctions):
        for name, values in one.constraints():
            group = groups.get(name)
            if group is None:
                group = groups[name] = ([], [])
            group[0].append(slot)
            group[1].append(values)
    most = sorted(groups, key=lambda name: (-len(groups[name][0]), name))[:MAX_SIDES]
    return {name: groups[name] for name in sorted(most) if len(groups[name][0]) * RARE >= len(conjunctions)}


def bucket_borders(kind: str, sets: Sequence[Values]) -> list[Any]:
    """The borders between the buckets of one type, for these sets."""
    cuts = [one.numbers if kind == "numbers" else one.strings for one in sets]
    lows, ends = (cut for one in cuts for cut in one[::2]), (cut for one in cuts for cut in one[1::2])
    return choose_borders(lows, ends, -math.inf if kind == "numbers" else "", MAX_ROWS)


def is_double(value: Any) -> bool:
    """Whether a number is exactly a double."""
    if isinstance(value, float):
        return True
    try:
        return bool(float(value) == value)
    except OverflowError:
        return False


def _join_runs(runs: Iterable[Run]) -> list[Run]:
    joined: list[Run] = []
    for first, last in runs:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def complement_runs(runs: list[Run], rows: int) -> Iterator[Run]:
    """The rows outside of these runs."""
    begin = 0
    for first, last in runs:
        if first > begin:
            yield begin, first - 1
        begin = last + 1
    if begin < rows:
        yield begin, rows - 1


def _exact_cells(rows: NDArray[np.int64]) -> ColumnCells:
    return rows, np.zeros(len(rows), dtype=bool), np.zeros(len(rows))
