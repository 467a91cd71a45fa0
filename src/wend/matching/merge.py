"""Merging of filters: one filter in place of several, so that a peer's table has fewer.

The union of two boxes is a box if one contains the other, or if they differ on one side only and predicates can express
the union of that side. Then the merge is perfect: it matches exactly the events that the two match. Otherwise each side
grows to the smallest set that predicates can express, and constraints of only one of the two are dropped. No event is
lost in either case. The result tells which attributes match more than before.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from wend.matching.conjunctions import Binding, Conjunction, conjoin
from wend.matching.filters import MAX_FILTER_CHARS, Filter
from wend.matching.normal_form import MAX_STEPS, TRUE
from wend.matching.printer import conjunction_text, is_expressible
from wend.matching.values import ANYTHING, PRESENT, Cuts, Values, join_intervals, next_value, pieces, values_from_cuts

MERGED_VALUES = 128
"""A merged set with more values becomes an interval, so that merging makes tables smaller."""
MERGED_HOLES = 16
"""An interval with more holes loses all of them."""


class Merged(NamedTuple):
    filter: Filter
    is_perfect: bool
    """Whether it matches exactly the events that the merged filters match."""
    widened: tuple[str, ...] = ()
    """Attributes that may have more values than in the merged filters."""
    dropped: tuple[str, ...] = ()
    """Attributes without constraints now. For a dropped binding: both of its attributes."""


def merge(*filters: Filter) -> Merged:
    """One conjunction that matches every event that one of these filters matches."""
    parts = [part for one in filters for part in one.conjunctions]
    if not parts:
        return Merged(Filter(()), True)
    box, all_perfect = parts[0], True
    all_widened: set[str] = set()
    all_dropped: set[str] = set()
    for part in parts[1:]:
        box, perfect, widened, dropped = _merge_two(box, part)
        all_perfect = all_perfect and perfect
        all_widened |= widened
        all_dropped |= dropped
    if len(conjunction_text(box)) > MAX_FILTER_CHARS or box.weight > MAX_STEPS // 2:
        # Peers send merged filters to others, so they must obey the limits of the parser.
        box, all_perfect, all_dropped = TRUE, False, all_dropped | set(box.allowed())
    return Merged(Filter((box,)), all_perfect, tuple(sorted(all_widened - all_dropped)), tuple(sorted(all_dropped)))


def _merge_two(a: Conjunction, b: Conjunction) -> tuple[Conjunction, bool, set[str], set[str]]:
    if a.covers(b):
        return a, True, set(), set()
    if b.covers(a):
        return b, True, set(), set()
    same = a.bindings == b.bindings
    mine, theirs = (dict(a.values), dict(b.values)) if same else (a.allowed(), b.allowed())
    names = sorted(mine.keys() | theirs.keys())
    pairs = {name: (mine.get(name, ANYTHING), theirs.get(name, ANYTHING)) for name in names}
    hulls = {name: _merge_side(left, right) for name, (left, right) in pairs.items()}
    widened = {name for name, (_, is_wider) in hulls.items() if is_wider}
    bindings = _common_bindings(a.bindings, b.bindings)
    merged = conjoin([(name, hull) for name, (hull, _) in hulls.items() if hull != ANYTHING], bindings) or TRUE
    dropped = (set(names) - merged.allowed().keys()) | _bound_attributes({*a.bindings, *b.bindings} - {*bindings})
    differing = sum(left != right for left, right in pairs.values())
    perfect = differing <= 1 and not widened and same
    return merged, perfect, widened - dropped, set() if perfect else dropped


def _bound_attributes(bindings: Iterable[Binding]) -> set[str]:
    return {name for one in bindings for name in (one.left, one.right)}


def _merge_side(left: Values, right: Values) -> tuple[Values, bool]:
    """The smallest set around both that predicates can express, and whether it has values that neither has."""
    union = left | right
    hull = union if left == right and is_expressible(union) else _hull(union)
    # An unconstrained attribute may also be NaN.
    return hull, hull != union or (union == ANYTHING and ANYTHING not in (left, right))


def _common_bindings(a: Iterable[Binding], b: Iterable[Binding]) -> list[Binding]:
    """The bindings that both have; if the signs differ, a binding with both signs."""
    theirs = {(one.left, one.right, one.factor): one.outcomes for one in b}
    either = [
        Binding(one.left, one.right, one.factor, one.outcomes | theirs[key])
        for one in a
        if (key := (one.left, one.right, one.factor)) in theirs
    ]
    return [one for one in either if one.outcomes != 7]


def _hull(union: Values) -> Values:
    """The smallest superset that predicates can express."""
    if union.absent:
        return union if not any(union.kinds) else ANYTHING
    if is_expressible(union) and _is_short(union):
        return union
    if sum(union.kinds) != 1 or union.booleans:
        return PRESENT
    filled = values_from_cuts(_fill_gaps(union.numbers or union.strings))
    return filled if is_expressible(filled) and _is_short(filled) else PRESENT


def _is_short(values: Values) -> bool:
    return values.weight <= MERGED_VALUES


def _fill_gaps(cuts: Cuts) -> Cuts:
    """The cuts with all gaps filled, except a few gaps of single values, which `!=` can express."""
    last_end = cuts[-1] if len(cuts) % 2 == 0 else None
    intervals = list(pieces(cuts))
    starts = [low for (_, end), (low, _) in pairwise(intervals) if next_value(end) == low]
    if len(starts) > MERGED_HOLES:
        starts = []
    ends = [end for (_, end), (low, _) in pairwise(intervals) if low in starts]
    lows, highs = [cuts[0], *starts], [*ends, last_end]
    return join_intervals(*((low,) if high is None else (low, high) for low, high in zip(lows, highs, strict=True)))
