"""Conjunctions: predicates joined by `and`, as a set of values for each attribute and bindings between attributes.

All predicates on one attribute become one set, so a conjunction without bindings is a box with one side per attribute.
So covering and intersecting are exact: a box contains another if each of its sides does.

A published range stands for the values in it. It matches a box if, for each attribute, some value is in the side. Each
binding is tested alone: it matches if some pair of values from both ranges does.
"""

import math
import operator as compare
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import inf
from typing import Any, NamedTuple

import msgspec

from wend.matching.values import ANYTHING, NUMBERS, PRESENT, Number, Values, is_nan
from wend.model.events import Attributes, Range

# Each comparison as the set of its outcomes: 1 below, 2 equal, 4 above. So `and` is `&`.
OUTCOMES = {"<": 1, "=": 2, "<=": 3, ">": 4, "!=": 5, ">=": 6}
SIGNS = {outcomes: sign for sign, outcomes in OUTCOMES.items()}
FLIPPED = {1: 4, 2: 2, 3: 6, 4: 1, 5: 5, 6: 3}
_COMPARE = {1: compare.lt, 2: compare.eq, 3: compare.le, 4: compare.gt, 5: compare.ne, 6: compare.ge}


class Binding(msgspec.Struct, frozen=True, gc=False, order=True):
    """A comparison of `left` with `factor * right`. With a factor of 1 both may be of any one kind."""

    left: str
    right: str
    factor: Number
    outcomes: int

    @property
    def implied_values(self) -> Values:
        """The constraint that it implies for each of the two attributes."""
        return PRESENT if self.factor == 1 else NUMBERS

    def matches(self, attributes: Attributes) -> bool:
        left, right = attributes.get(self.left), attributes.get(self.right)
        if left is None or right is None:
            return False
        if isinstance(left, Range) or isinstance(right, Range):
            return self._is_possible(left, right)
        if isinstance(left, str) or isinstance(right, str):
            fits = isinstance(left, str) and isinstance(right, str) and self.factor == 1
        elif isinstance(left, bool) or isinstance(right, bool):
            fits = isinstance(left, bool) and isinstance(right, bool) and self.factor == 1
        else:
            right = multiply_exactly(self.factor, right)
            fits = not is_nan(left) and not is_nan(right)
        return fits and _COMPARE[self.outcomes](left, right)

    def _is_possible(self, left: object, right: object) -> bool:
        a, b = find_span(left), find_span(right)
        if a is None or b is None or a.text != b.text or (a.text and self.factor != 1):
            return False
        if self.factor != 1:
            b = b.times(self.factor)
        single = a.low == a.high and b.low == b.high and a.low == b.low
        match self.outcomes:
            case 1 | 3:
                return a.reaches_below(b, self.outcomes == 3)
            case 4 | 6:
                return b.reaches_below(a, self.outcomes == 6)
            case 5:
                return not single
        return a.reaches_below(b, True) and b.reaches_below(a, True)


class Span(NamedTuple):
    """The ends of a value or a range. A range of texts without an upper end has None."""

    low: Any
    high: Any
    low_in: bool
    high_in: bool
    text: bool

    def reaches_below(self, other: "Span", or_equal: bool) -> bool:
        """Whether some value of this span is below some value of the other."""
        if other.high is None or self.low < other.high:
            return True
        return or_equal and bool(self.low == other.high) and self.low_in and other.high_in

    def times(self, factor: Number) -> "Span":
        if factor == 0:
            return Span(0, 0, True, True, False)
        ends = (multiply_exactly(factor, self.low), self.low_in), (multiply_exactly(factor, self.high), self.high_in)
        (low, low_in), (high, high_in) = ends if factor > 0 else ends[::-1]
        return Span(low, high, low_in, high_in, False)


def find_span(value: object) -> Span | None:
    """The span of a value; None for truth values and NaN, which have no order here."""
    if isinstance(value, Range):
        text = isinstance(value.low, str) or isinstance(value.high, str)
        low = ("" if text else -inf) if value.low is None else value.low
        high = (None if text else inf) if value.high is None else value.high
        low_in = not value.low_open and (text or value.low is not None)
        return Span(low, high, low_in, not value.high_open and value.high is not None, text)
    if isinstance(value, bool) or not isinstance(value, int | float | str) or is_nan(value):
        return None
    return Span(value, value, True, True, isinstance(value, str))


def multiply_exactly(factor: Number, value: Any) -> Any:
    """The exact product, without the rounding of doubles."""
    if isinstance(value, float) and not math.isfinite(value):
        return ((factor > 0) - (factor < 0)) * value  # only the sign counts: a factor may be larger than any double
    if factor == 1 or (isinstance(factor, int) and isinstance(value, int)):
        return factor * value
    return Fraction(factor) * Fraction(value)


class Conjunction(msgspec.Struct, frozen=True, gc=False):
    """Constraints on attributes, sorted by name, and bindings. `conjoin` makes one; no set of values is empty."""

    values: tuple[tuple[str, Values], ...]
    bindings: tuple[Binding, ...] = ()

    def matches(self, attributes: Attributes) -> bool:
        for name, allowed in self.values:
            value = attributes.get(name)
            if type(value) is int:  # most values are numbers or texts: no call for these
                if not bisect_right(allowed.numbers, value) & 1:
                    return False
            elif type(value) is str:
                if not bisect_right(allowed.strings, value) & 1:
                    return False
            elif not (allowed.absent if value is None else allowed.allows(value)):
                return False
        return not self.bindings or all(binding.matches(attributes) for binding in self.bindings)

    @property
    def weight(self) -> int:
        return 1 + len(self.bindings) + sum(values.weight for _, values in self.values)

    def constraints(self) -> Iterable[tuple[str, Values]]:
        """The possible values by constrained attribute, with the constraints that bindings imply."""
        return self.allowed().items() if self.bindings else self.values

    def allowed(self) -> dict[str, Values]:
        """`constraints` as a dictionary."""
        allowed = dict(self.values)
        for binding in self.bindings:
            for name in (binding.left, binding.right):
                allowed[name] = allowed.get(name, ANYTHING) & binding.implied_values
        return allowed

    def covers(self, other: "Conjunction") -> bool:
        """Whether it matches every event that the other matches. Exact without bindings; with them False may be
        wrong."""
        theirs = other.allowed()
        for name, mine in self.values:
            allowed = theirs.get(name)
            if allowed is None or (allowed is not mine and not mine >= allowed):
                return False
        return all(any(_implies(theirs, mine) for theirs in other.bindings) for mine in self.bindings)

    def intersects(self, other: "Conjunction") -> bool:
        """Whether some event without ranges matches both. Exact without bindings; with them True may be wrong."""
        theirs = other.allowed()
        for name, mine in self.constraints():
            allowed = theirs.get(name)
            if allowed is not None and not mine.intersects(allowed):
                return False
        return True


def _implies(theirs: Binding, mine: Binding) -> bool:
    same = theirs.left == mine.left and theirs.right == mine.right and theirs.factor == mine.factor
    return same and theirs.outcomes & ~mine.outcomes == 0


def make_binding(left: str, outcomes: int, factor: Number, right: str) -> Binding:
    """A binding in canonical form: without a factor the names are in order."""
    if factor == 1 and right < left:
        return Binding(right, left, 1, FLIPPED[outcomes])
    return Binding(left, right, factor, outcomes)


def conjoin(sides: Iterable[tuple[str, Values]], bindings: Iterable[Binding]) -> Conjunction | None:
    """The conjunction of constraints and bindings, in canonical form; None if nothing can match."""
    by_name: dict[str, list[Values]] = {}
    for name, one_set in sides:
        by_name.setdefault(name, []).append(one_set)
    values = {name: sets[0] if len(sets) == 1 else _intersect(sets) for name, sets in by_name.items()}
    merged = _merged_bindings(bindings)
    if merged is None or not all(values.values()) or (merged and not _are_bindable(values, merged)):
        return None
    for binding in merged:
        for name in (binding.left, binding.right):
            if name in values and values[name] >= binding.implied_values:
                del values[name]
    constrained = {name: allowed for name, allowed in values.items() if allowed != ANYTHING}
    return Conjunction(tuple(sorted(constrained.items())), merged)


def _merged_bindings(bindings: Iterable[Binding]) -> tuple[Binding, ...] | None:
    """One binding for each two attributes and factor, sorted; None if two of them contradict each other."""
    outcomes: dict[tuple[str, str, Number], int] = {}
    for one in bindings:
        key = (one.left, one.right, one.factor)
        outcomes[key] = outcomes.get(key, 7) & one.outcomes
    if not all(outcomes.values()):
        return None
    return tuple(Binding(*key, both) for key, both in sorted(outcomes.items()))


def _intersect(sets: list[Values]) -> Values:
    """The intersection, by pairs: so the cost of five hundred holes in one attribute is not quadratic."""
    while len(sets) > 1:
        odd = sets[-1:] if len(sets) % 2 else []
        sets = [a & b for a, b in zip(sets[::2], sets[1::2], strict=False)] + odd
    return sets[0]


def _are_bindable(values: dict[str, Values], bindings: tuple[Binding, ...]) -> bool:
    """Whether both attributes of each binding can be of the same kind."""
    for one in bindings:
        left = values.get(one.left, ANYTHING) & one.implied_values
        right = values.get(one.right, ANYTHING) & one.implied_values
        if not any(a and b for a, b in zip(left.kinds, right.kinds, strict=True)):
            return False
    return True


def conjoin_all(a: Iterable[Conjunction], b: list[Conjunction]) -> Iterator[Conjunction]:
    """The conjunctions of `a and b`, for two disjunctions."""
    for left in a:
        for right in b:
            both = conjoin((*left.values, *right.values), (*left.bindings, *right.bindings))
            if both is not None:
                yield both
