"""Buckets: the possible values of one attribute, divided into a few rows of the bitmap table.

The rows of an attribute are, in this order: missing, NaN, false, true, buckets of numbers, buckets of texts. So almost
every constraint is one run of rows. The borders of buckets come from the filters: all cuts if they are few, else those
that matter for integers, else quantiles of these.

A row is exact for a value if every constraint that contains part of the row allows the value. A bucket without cuts
inside is exact for all its values. If intervals only end inside a bucket, it is exact for the values before the first
end. So integers are exact with one row each, although every interval of integers ends between two of them.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from wend.matching.conjunctions import Conjunction
from wend.matching.values import Cuts, Values, interval, pieces
from wend.model.events import Range

MISSING, NOTHING, FALSE, TRUE, FIRST_NUMBER = range(5)
MAX_ROWS = 320
"""The most borders of one type. More borders make doubt rarer and take more memory."""

MAX_SIDES = 64
RARE = 256
"""An attribute has no rows if fewer than one in this many conjunctions constrains it."""

Run = tuple[int, int]

CACHED = 4096


Cell = tuple[int, bool, float]
"""The value of an event: its row, whether the row is exact for it, and the value as a double for the exact test."""


class TypeBuckets:
    """The buckets of one type of values, numbers or texts."""

    def __init__(self, first: int, borders: list[Any], bottom: Any) -> None:
        self.first = first
        self.borders = borders
        self.bottom = bottom
        self.limits: list[Any] = [None] * (len(borders) + 1)
        """A bucket is exact below its limit; with None it is exact everywhere."""
        self.begins_inside = False
        self.changes = 0

    @property
    def rows(self) -> int:
        return len(self.limits)

    def run(self, low: Any, end: Any) -> Run:
        """The rows that low <= v < end overlaps."""
        last = len(self.borders) if end is None else bisect_left(self.borders, end)
        return self.first + bisect_right(self.borders, low), self.first + last

    def inner(self, cut: Any) -> int | None:
        """The bucket that a cut divides; None for a cut on a border."""
        at = bisect_right(self.borders, cut)
        if cut == self.bottom or (at and self.borders[at - 1] == cut):
            return None
        return at

    def note(self, cuts: Cuts) -> list[int]:
        """Record the cuts inside buckets; returns the rows of these buckets."""
        rows = []
        for order, cut in enumerate(cuts):
            at = self.inner(cut)
            if at is None:
                continue
            rows.append(self.first + at)
            limit = self.limits[at]
            below = self.bottom if order % 2 == 0 else cut
            self.begins_inside = self.begins_inside or order % 2 == 0
            if limit is None or below < limit:
                self.limits[at] = below
                self.changes += 1
        return rows

    def cell(self, value: Any) -> tuple[int, bool]:
        at = bisect_right(self.borders, value)
        limit = self.limits[at]
        return self.first + at, limit is None or value < limit


class AttributeBuckets:
    """The rows of one attribute. `base` is its first row in the table; `edges` is the first of the rows with a bit for
    each slot that divides a bucket."""

    def __init__(self, name: str, numbers: list[Any], strings: list[Any], base: int) -> None:
        self.name = name
        self.base = base
        self.edges = 0
        self.numbers = TypeBuckets(FIRST_NUMBER, numbers, -math.inf)
        self.strings = TypeBuckets(FIRST_NUMBER + self.numbers.rows, strings, "")
        self.rows = self.strings.first + self.strings.rows
        self.names: dict[str, int] = {}
        """Numbers for the texts that filters compare with `=`."""
        self.doubtful = False
        """Whether an event had a value for which its row was not exact."""
        self._cells: dict[int | str, Cell] = {}
        """A cache of cells."""

    @property
    def begins_inside(self) -> bool:
        """Whether some interval begins inside a bucket. Then that bucket is not exact for any value."""
        return self.numbers.begins_inside or self.strings.begins_inside

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
        return _joined(runs)

    def note(self, values: Values) -> list[int]:
        """Record a set; returns the rows that it divides, which may be inexact from now on."""
        before = self.numbers.changes + self.strings.changes
        rows = self.numbers.note(values.numbers) if values.numbers else []
        if values.strings:
            rows += self.strings.note(values.strings)
        if self.numbers.changes + self.strings.changes != before:
            self._cells.clear()  # some rows are no longer exact
        return rows

    def ends(self, values: Values) -> tuple[float, float] | None:
        """A set as low <= v < end in doubles, with texts as their numbers; None if that is impossible."""
        if len(values.numbers) == 2 and not values.strings:
            low, end = values.numbers
            return (float(low), float(end)) if is_double(low) and is_double(end) else None
        if len(values.strings) == 2 and not values.numbers and values.strings[1] == values.strings[0] + "\0":
            if values.strings[0] not in self.names:
                self.names[values.strings[0]] = len(self.names)
                self._cells.clear()
            number = float(self.names[values.strings[0]])
            return number, number + 0.5
        return None

    def cell(self, value: object) -> Cell:
        """The cell of a single value; None is a missing attribute."""
        # Truth values and doubles are not cached: they can be equal to an integer.
        if type(value) is not int and type(value) is not str:
            return self.find(value)
        cell = self._cells.get(value)
        if cell is None:
            if len(self._cells) >= CACHED:
                self._cells.clear()
            cell = self._cells[value] = self.find(value)
        return cell

    def find(self, value: Any) -> Cell:
        """The cell of a single value, without the cache."""
        if value is None:
            return MISSING, True, 0.0
        if isinstance(value, str):
            return *self.strings.cell(value), float(self.names.get(value, -1))
        if isinstance(value, bool):
            return FALSE + value, True, 0.0
        if isinstance(value, float) and math.isnan(value):
            return NOTHING, True, 0.0
        row, exact = self.numbers.cell(value)
        if exact:
            return row, True, 0.0
        return row, False, float(value) if is_double(value) else math.nan

    def touched(self, value: Range) -> Run:
        """The rows of all values in a range."""
        cuts = interval(value.low, value.high, value.low_open, value.high_open)
        if not cuts:
            return NOTHING, NOTHING
        kind = self.strings if isinstance(cuts[0], str) else self.numbers
        return kind.run(cuts[0], cuts[1] if len(cuts) > 1 else None)


def with_rows(conjunctions: Sequence[Conjunction]) -> dict[str, tuple[list[int], list[Values]]]:
    """The attributes that need rows for these conjunctions. For each: the positions and the sets of those
    that constrain it.

    All other attributes are rare. Conjunctions that constrain them are tested one by one.
    """
    groups: dict[str, tuple[list[int], list[Values]]] = {}
    for slot, one in enumerate(conjunctions):
        for name, values in constraints(one):
            group = groups.get(name)
            if group is None:
                group = groups[name] = ([], [])
            group[0].append(slot)
            group[1].append(values)
    most = sorted(groups, key=lambda name: (-len(groups[name][0]), name))[:MAX_SIDES]
    return {name: groups[name] for name in sorted(most) if len(groups[name][0]) * RARE >= len(conjunctions)}


def borders(kind: str, sets: Iterable[Values]) -> list[Any]:
    """The borders between the buckets of one type, for these sets.

    If the next cut after an end is a beginning, the end needs no border: for integers no value is between them."""
    cuts: dict[Any, bool] = {}
    for one in sets:
        found = one.numbers if kind == "numbers" else one.strings
        cuts.update((cut, True) for cut in found[::2])
        for cut in found[1::2]:
            cuts.setdefault(cut, False)
    cuts.pop(-math.inf if kind == "numbers" else "", None)
    chosen = sorted(cuts)
    if len(chosen) > MAX_ROWS:
        chosen = [cut for cut, after in zip_longest(chosen, chosen[1:]) if cuts[cut] or not cuts.get(after, False)]
    if len(chosen) <= MAX_ROWS:
        return chosen
    return [chosen[at * len(chosen) // MAX_ROWS] for at in range(MAX_ROWS)]


def is_double(value: Any) -> bool:
    """Whether a number is exactly a double."""
    if isinstance(value, float):
        return True
    try:
        return bool(float(value) == value)
    except OverflowError:
        return False


def _joined(runs: Iterable[Run]) -> list[Run]:
    joined: list[Run] = []
    for first, last in runs:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def others(runs: list[Run], rows: int) -> Iterator[Run]:
    """The rows outside of these runs."""
    begin = 0
    for first, last in runs:
        if first > begin:
            yield begin, first - 1
        begin = last + 1
    if begin < rows:
        yield begin, rows - 1


def constraints(one: Conjunction) -> Iterable[tuple[str, Values]]:
    """The sets of values that a conjunction allows, by attribute."""
    return one.allowed().items() if one.bindings else one.values


def required(one: Conjunction) -> str:
    """An attribute that an event must have to match; '' if there is none."""
    return next((name for name, values in constraints(one) if not values.absent), "")
