"""Conjunctions in little memory, for indexes of very many filters.

Most conjunctions are boxes whose sides are single intervals of numbers or texts. A box is one flat tuple: name, low
end (inclusive) and high end (exclusive, None if there is none) of each side. It takes a third of the memory of a
`Conjunction`. All other conjunctions stay as they are.
"""

from collections.abc import Iterator
from typing import Any

from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.matching.values import Values
from wend.model.events import Attributes

Box = tuple[Any, ...]
Compact = Box | Conjunction

NAMES = 4096
_names: dict[str, str] = {}
"""Names of attributes, so that all boxes share them."""


def compact_conjunction(one: Conjunction) -> Compact:
    """The conjunction as a box if it is one."""
    if one.bindings:
        return one
    sides: list[Any] = []
    for name, values in one.values:
        ends = _interval(values)
        if ends is None:
            return one
        sides.append(_names.get(name) or _intern_name(name))
        sides.extend(ends)
    return tuple(sides)


def _intern_name(name: str) -> str:
    if len(_names) >= NAMES:
        _names.clear()
    return _names.setdefault(name, name)


def _interval(values: Values) -> tuple[Any, Any] | None:
    if values.absent or values.booleans or bool(values.numbers) == bool(values.strings):
        return None
    cuts = values.numbers or values.strings
    return None if len(cuts) > 2 else (cuts[0], cuts[1] if len(cuts) == 2 else None)


def expand_box(one: Compact) -> Conjunction:
    """The conjunction of a compact one: the inverse of `compact_conjunction`."""
    if isinstance(one, Conjunction):
        return one
    return Conjunction(tuple([(name, _values(low, end)) for name, low, end in intervals(one)]))


def _values(low: Any, end: Any) -> Values:
    cuts = (low,) if end is None else (low, end)
    return Values(strings=cuts) if isinstance(low, str) else Values(numbers=cuts)


def intervals(one: Compact) -> Iterator[tuple[str, Any, Any]]:
    """For each side of numbers or of texts: its name, and an interval that contains all its values."""
    if isinstance(one, Conjunction):
        for name, values in one.constraints():
            if not values.absent and not values.booleans and bool(values.numbers) != bool(values.strings):
                cuts = values.numbers or values.strings
                yield name, cuts[0], cuts[-1] if len(cuts) % 2 == 0 else None
    else:
        for at in range(0, len(one), 3):
            yield one[at], one[at + 1], one[at + 2]


def compact_filter(one: Filter) -> Compact | Filter:
    """The filter as its only conjunction, if it has one."""
    return compact_conjunction(one.conjunctions[0]) if len(one.conjunctions) == 1 else one


def compact_matches(one: Compact | Filter, attributes: Attributes) -> bool:
    """Whether an event matches."""
    if type(one) is not tuple:
        return one.matches(attributes)  # type: ignore[union-attr]
    at, count = 0, len(one)
    while at < count:
        value: Any = attributes.get(one[at])
        low, end = one[at + 1], one[at + 2]
        at += 3
        kind = type(value)
        if kind is int or kind is float:
            if type(low) is str or not low <= value or (end is not None and value >= end):
                return False
        elif kind is str:
            if type(low) is not str or low > value or (end is not None and value >= end):
                return False
        elif value is None:
            return False
        else:
            return expand_box(one).matches(attributes)
    return True
