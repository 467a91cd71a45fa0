"""The canonical text of a normal form. `parse` reads it back as the same filter.

A cut between two neighbouring values has two texts (`x <= 10` is `x < 10.000000000000002`). The printer chooses the
shorter one, which is the one that a user would write.
"""

import re
from collections.abc import Iterable, Iterator
from math import inf

from wend.matching.conjunctions import SIGNS, Binding, Conjunction
from wend.matching.values import (
    ABSENT,
    PRESENT,
    Cuts,
    Values,
    after_prefix,
    gaps,
    list_values,
    next_value,
    previous_value,
)
from wend.model.events import Scalar

WORDS = frozenset({"and", "or", "not", "in", "prefix", "exists", "absent", "true", "false"})
NUMBERS_NOT_NAMES = frozenset({"nan", "inf", "infinity"})
NAME = re.compile(r"[A-Za-z_][\w.-]*")
MAX_SET = 1024
LONG_DIGITS = 10**24
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def filter_text(conjunctions: Iterable[Conjunction]) -> str:
    return " or ".join(conjunction_text(c) for c in conjunctions) or "false"


def conjunction_text(conjunction: Conjunction) -> str:
    return " and ".join(predicate_texts(conjunction)) or "true"


def predicate_texts(conjunction: Conjunction) -> list[str]:
    sides = [p for name, values in conjunction.values for p in predicates(name_text(name), values)]
    return [*sides, *(binding_text(b) for b in conjunction.bindings)]


def binding_text(binding: Binding) -> str:
    factor = "" if binding.factor == 1 else f"{value_text(binding.factor)} * "
    return f"{name_text(binding.left)} {SIGNS[binding.outcomes]} {factor}{name_text(binding.right)}"


def name_text(name: str) -> str:
    plain = NAME.fullmatch(name) and name not in WORDS and name.lower() not in NUMBERS_NOT_NAMES
    return name if plain else quote(name, "`")


def quote(text: str, quote: str = "'") -> str:
    inner = (
        _ESCAPES.get(c) or (f"\\{c}" if c == quote else c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text
    )
    return f"{quote}{''.join(inner)}{quote}"


def value_text(value: Scalar) -> str:
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= LONG_DIGITS and abs(value) < 10**308 and float(value) == value:
        return repr(float(value))
    return repr(value)


def is_expressible(values: Values) -> bool:
    """Whether predicates joined by `and` can express a set: of one kind, as single values or an interval with holes."""
    if values in (ABSENT, PRESENT):
        return True
    if values.absent or sum(values.kinds) != 1:
        return False
    cuts = values.numbers or values.strings
    if cuts == (-inf,):
        return False
    return (
        not cuts or _has_only_singles(cuts) or _find_holes(cuts) is not None or list_values(cuts, MAX_SET) is not None
    )


def _find_holes(cuts: Cuts) -> list[Scalar] | None:
    return list_values(gaps(cuts), MAX_SET)


def _has_only_singles(cuts: Cuts) -> bool:
    """Whether the set has single values only. This common case needs no walk from value to value."""
    return len(cuts) % 2 == 0 and all(next_value(low) == high for low, high in zip(cuts[::2], cuts[1::2], strict=True))


def predicates(name: str, values: Values) -> Iterator[str]:
    if values == ABSENT:
        yield f"{name} absent"
    elif values == PRESENT:
        yield f"{name} exists"
    elif values.booleans:
        yield _print_one_of(name, list(values.booleans))
    else:
        yield from _print_side(name, values.numbers or values.strings)


def _print_side(name: str, cuts: Cuts) -> Iterator[str]:
    if _has_only_singles(cuts):
        yield _print_one_of(name, list(cuts[::2]))
        return
    holes = _find_holes(cuts)
    if holes is None:
        yield _print_one_of(name, list_values(cuts, 4 * MAX_SET) or [])
        return
    whole = _print_interval(name, cuts[0], cuts[-1] if len(cuts) % 2 == 0 else None, bool(holes))
    if whole:
        yield whole
    yield from (f"{name} != {value_text(hole)}" for hole in holes)


def _print_one_of(name: str, values: list[Scalar]) -> str:
    if len(values) == 1:
        return f"{name} = {value_text(values[0])}"
    return f"{name} in {{{', '.join(map(value_text, values))}}}"


def _print_interval(name: str, low: Scalar, end: Scalar | None, holes: bool) -> str:
    """An interval as a predicate. Empty for a whole kind with holes, because the holes imply the kind."""
    if low in (-inf, "") and end is None:
        return "" if holes else f"{name} prefix ''"
    if isinstance(low, str) and low and end == after_prefix(low):
        return f"{name} prefix {quote(low)}"
    low_in, low_text = _print_end(low, lower=True)
    if end is None:
        return f"{name} {'>=' if low_in else '>'} {low_text}"
    end_out, end_text = _print_end(end, lower=False)
    # An upper cut that is printed as its own value excludes that value.
    if low in (-inf, ""):
        return f"{name} {'<' if end_out else '<='} {end_text}"
    return f"{name} in {'[' if low_in else ']'}{low_text}, {end_text}{'[' if end_out else ']'}"


def _print_end(cut: Scalar, lower: bool) -> tuple[bool, str]:
    """A cut as the value above it (True) or as the one below it: the shorter text, and the closed end in a tie."""
    above, neighbour = value_text(cut), previous_value(cut)
    if neighbour is None:
        return True, above
    below = value_text(neighbour)
    return (True, above) if len(above) + (not lower) <= len(below) else (False, below)
