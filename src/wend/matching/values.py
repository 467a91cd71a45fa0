"""Exact sets of the values of one attribute.

Values of different kinds do not compare, so there is one set per kind. Within a kind, values are ordered and have
neighbours: the next text is the text with a zero character appended; the next number is the next double or integer. So
every open or closed end is a cut between two neighbours, and a set is a sorted tuple of cuts: `(a, b, c)` contains
a <= v < b and c <= v. Nothing is rounded, ends need no flags, and two sets are equal if and only if their tuples are.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from wend.model.events import Range, Scalar

Cuts = tuple[Any, ...]
"""Sorted values, all numbers or all texts. If their number is odd, the last interval has no end."""

Number = int | float
WHOLE = 2**53
"""Below it every integer is a double; above it every double is an integer."""


def normal_number(value: Number) -> Number:
    """The canonical form of a number: an integer if it is integral. Minus zero becomes zero."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def next_value(value: Any) -> Any:
    """The next value of the same kind, numbers or texts."""
    if isinstance(value, str):
        return value + "\0"
    if -WHOLE <= value < WHOLE:
        return normal_number(math.nextafter(float(value), math.inf))
    return normal_number(value) + 1


def is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def previous_value(value: Any) -> Any:
    """The previous value; None for a text without one, which is the limit of longer texts."""
    if isinstance(value, str):
        return value[:-1] if value.endswith("\0") else None
    return -next_value(-value)


def after_prefix(prefix: str) -> str | None:
    """The first text after all texts that begin with the prefix; None if there is none."""
    for at in range(len(prefix) - 1, -1, -1):
        if prefix[at] != "\U0010ffff":
            return prefix[:at] + chr(ord(prefix[at]) + 1)
    return None


ALL_NUMBERS: Cuts = (-math.inf,)
ALL_TEXTS: Cuts = ("",)


def interval(low: Any, high: Any, low_open: bool = False, high_open: bool = False) -> Cuts:
    """The cuts of one interval of numbers or texts. None means that it has no such end."""
    bottom = "" if isinstance(low, str) or isinstance(high, str) else -math.inf
    first = bottom if low is None else next_value(low) if low_open else low
    if high is None:
        return (first,)
    end = high if high_open else next_value(high)
    return (first, end) if first < end else ()


def single_values(values: Iterable[Any]) -> Cuts:
    return join_intervals(*((v, next_value(v)) for v in sorted(set(values))))


def join_intervals(*sorted_intervals: Cuts) -> Cuts:
    """The union of disjoint intervals, sorted by their beginnings."""
    cuts: list[Any] = []
    for one in sorted_intervals:
        if cuts and cuts[-1] == one[0]:
            cuts.pop()
            cuts.extend(one[1:])
        else:
            cuts.extend(one)
    return tuple(cuts)


def combine(a: Cuts, b: Cuts, parts: tuple[bool, bool, bool]) -> Cuts:
    """Combine two sets in one sweep. `parts` says whether the result contains values of a alone, b alone, and both."""
    table = (False, *parts)
    cuts: list[Any] = []
    i = j = 0
    inside = False
    while i < len(a) or j < len(b):
        if j == len(b) or (i < len(a) and a[i] <= b[j]):
            cut = a[i]
        else:
            cut = b[j]
        i += i < len(a) and a[i] == cut
        j += j < len(b) and b[j] == cut
        now = table[(i & 1) + 2 * (j & 1)]
        if now != inside:
            cuts.append(cut)
            inside = now
    return tuple(cuts)


BOTH = (False, False, True)
EITHER = (True, True, True)
ONLY_A = (True, False, False)


def pieces(cuts: Cuts) -> Iterator[tuple[Any, Any]]:
    """The intervals, from low (inclusive) to high (exclusive). High is None if the interval has no end."""
    for at in range(0, len(cuts), 2):
        yield cuts[at], cuts[at + 1] if at + 1 < len(cuts) else None


def gaps(cuts: Cuts) -> Cuts:
    """The gaps between the intervals, as cuts."""
    return cuts[1 : len(cuts) - (1 - len(cuts) % 2)]


def list_values(cuts: Cuts, limit: int) -> list[Any] | None:
    """All values, if there are at most `limit`."""
    values: list[Any] = []
    for low, high in pieces(cuts):
        if high is None or low == -math.inf:
            return None
        while low < high:
            if len(values) == limit:
                return None
            values.append(low)
            low = next_value(low)
    return values


def overlaps(a: Cuts, b: Cuts) -> bool:
    """Whether some value is in both sets."""
    if not a or not b:
        return False
    if len(a) == len(b) == 2:  # most sets are one interval
        return bool(a[0] < b[1] and b[0] < a[1])
    return bool(combine(a, b, BOTH))


def overlaps_interval(cuts: Cuts, low: Any, end: Any) -> bool:
    """Whether some value in low <= v < end is in the set. An end of None means that there is none."""
    if end is not None and low >= end:
        return False
    at = bisect_right(cuts, low)
    return bool(at & 1) or (at < len(cuts) and (end is None or cuts[at] < end))


class Values(msgspec.Struct, frozen=True, gc=False):
    """A set of values of all kinds, and whether the attribute may be missing."""

    absent: bool = False
    booleans: tuple[bool, ...] = ()
    numbers: Cuts = ()
    strings: Cuts = ()

    def __bool__(self) -> bool:
        return self.absent or bool(self.booleans or self.numbers or self.strings)

    def allows(self, value: object) -> bool:
        """Whether the set contains the value or, for a range, some value in it. No set contains NaN."""
        if isinstance(value, str):
            return bool(bisect_right(self.strings, value) & 1)
        if isinstance(value, bool):
            return value in self.booleans
        if isinstance(value, int | float):
            return bool(bisect_right(self.numbers, value) & 1) and not is_nan(value)
        if isinstance(value, Range):
            cuts = interval(value.low, value.high, value.low_open, value.high_open)
            if not cuts:
                return False
            mine = self.strings if isinstance(cuts[0], str) else self.numbers
            return overlaps_interval(mine, cuts[0], cuts[1] if len(cuts) > 1 else None)
        return False

    def _combine(self, other: "Values", parts: tuple[bool, bool, bool]) -> "Values":
        table = (False, *parts)
        return Values(
            table[self.absent + 2 * other.absent],
            tuple(v for v in (False, True) if table[(v in self.booleans) + 2 * (v in other.booleans)]),
            combine(self.numbers, other.numbers, parts),
            combine(self.strings, other.strings, parts),
        )

    def __and__(self, other: "Values") -> "Values":
        return self if self is other else self._combine(other, BOTH)

    def intersects(self, other: "Values") -> bool:
        """Whether some value is in both sets: `bool(self & other)`, but faster."""
        return (
            (self.absent and other.absent)
            or (bool(self.booleans) and any(value in other.booleans for value in self.booleans))
            or overlaps(self.numbers, other.numbers)
            or overlaps(self.strings, other.strings)
        )

    def __or__(self, other: "Values") -> "Values":
        return self._combine(other, EITHER)

    def __sub__(self, other: "Values") -> "Values":
        return self._combine(other, ONLY_A)

    def __ge__(self, other: "Values") -> bool:
        """Whether it is a superset of the other."""
        return (
            (self.absent or not other.absent)
            and all(value in self.booleans for value in other.booleans)
            and not (other.numbers and combine(other.numbers, self.numbers, ONLY_A))
            and not (other.strings and combine(other.strings, self.strings, ONLY_A))
        )

    @property
    def kinds(self) -> tuple[bool, bool, bool]:
        return bool(self.booleans), bool(self.numbers), bool(self.strings)

    @property
    def weight(self) -> int:
        """The cost of combining it, in steps."""
        return 1 + (len(self.numbers) + len(self.strings)) // 2


NOTHING = Values()
ABSENT = Values(absent=True)
BOOLEANS = Values(booleans=(False, True))
NUMBERS = Values(numbers=ALL_NUMBERS)
STRINGS = Values(strings=ALL_TEXTS)
PRESENT = Values(False, (False, True), ALL_NUMBERS, ALL_TEXTS)
ANYTHING = Values(True, (False, True), ALL_NUMBERS, ALL_TEXTS)


def values_from_cuts(cuts: Cuts) -> Values:
    """The set of these cuts of numbers or of texts."""
    return Values(strings=cuts) if cuts and isinstance(cuts[0], str) else Values(numbers=cuts)


def kind_name(value: object) -> str:
    if isinstance(value, bool):
        return "truth value"
    return "text" if isinstance(value, str) else "number"


def equal_to(values: Iterable[Scalar]) -> Values:
    """The set of exactly these values, all of one kind."""
    values = list(values)
    if values and isinstance(values[0], bool):
        return Values(booleans=tuple(v for v in (False, True) if v in values))
    return values_from_cuts(single_values(values))


def values_between(low: Scalar | None, high: Scalar | None, low_open: bool = False, high_open: bool = False) -> Values:
    """The values of one kind between two ends. False is below true."""
    if isinstance(low, bool) or isinstance(high, bool):
        first = 0 if low is None else int(low) + low_open
        last = 1 if high is None else int(high) - high_open
        return Values(booleans=tuple(v for v in (False, True) if first <= v <= last))
    return values_from_cuts(interval(low, high, low_open, high_open))


def compare_values(operator: str, value: Scalar) -> Values:
    """The values for which the comparison with `value` holds."""
    match operator:
        case "=":
            return equal_to((value,))
        case "!=":
            everything = BOOLEANS if isinstance(value, bool) else STRINGS if isinstance(value, str) else NUMBERS
            return everything - equal_to((value,))
        case "<" | "<=":
            return values_between(None, value, high_open=operator == "<")
    return values_between(value, None, low_open=operator == ">")


def beginning_with(prefix: str) -> Values:
    end = after_prefix(prefix)
    return Values(strings=(prefix,) if end is None else (prefix, end))


def complement(values: Values) -> tuple[Values, ...]:
    """The complement of a set of single values or of a half-line, within its kind. The complement of `exists` is
    `absent`.

    It is one set, or none if the complement is empty."""
    if values.absent or values == PRESENT:
        return (PRESENT if values.absent else ABSENT,)
    everything = BOOLEANS if values.booleans else STRINGS if values.strings else NUMBERS
    rest = everything - values
    return (rest,) if rest else ()


def values_outside(low: Scalar, high: Scalar, low_open: bool, high_open: bool) -> tuple[Values, ...]:
    """The complement of an interval within its kind, below and above it, even if the interval is empty."""
    return tuple(
        filter(
            None,
            (values_between(None, low, high_open=not low_open), values_between(high, None, low_open=not high_open)),
        )
    )


def not_beginning_with(prefix: str) -> tuple[Values, ...]:
    end = after_prefix(prefix)
    below = values_between(None, prefix, high_open=True)
    return tuple(filter(None, (below, NOTHING if end is None else values_between(end, None))))
