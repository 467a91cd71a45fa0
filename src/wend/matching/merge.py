"""One filter in place of two, so that a table holds fewer.

The union of two boxes is a box if one lies in the other or if they differ on one side only, and that side's
union can be said by predicates. Then the merge is perfect: it matches what the two match and nothing else. If not,
each side grows to the smallest one that predicates can say, and what only one of the two asks for is asked no
more. No event is lost in either case; what is gained is said with the result.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from wend.matching.conjunctions import Binding, Conjunction, conjoined
from wend.matching.filters import MAX_FILTER_CHARS, Filter
from wend.matching.normal import MAX_STEPS, TRUE
from wend.matching.printer import conjunction_text, sayable
from wend.matching.values import ANYTHING, PRESENT, Cuts, Values, after, joined, of_kind, pieces

MERGED_VALUES = 128
"""Sets that grow beyond it become intervals: a table that is merged shall get smaller."""
MERGED_HOLES = 16


class Merged(NamedTuple):
    filter: Filter
    perfect: bool
    """It matches exactly what the two match."""
    widened: tuple[str, ...] = ()
    """Attributes that may have more values than in either."""
    dropped: tuple[str, ...] = ()
    """Attributes that are not asked for any more. With bindings: both of their names."""


def merge(*filters: Filter) -> Merged:
    """One conjunction that matches all that any of these match."""
    parts = [part for one in filters for part in one.conjunctions]
    if not parts:
        return Merged(Filter(()), True)
    box, all_perfect = parts[0], True
    all_widened: set[str] = set()
    all_dropped: set[str] = set()
    for part in parts[1:]:
        box, perfect, widened, dropped = _merged(box, part)
        all_perfect = all_perfect and perfect
        all_widened |= widened
        all_dropped |= dropped
    if len(conjunction_text(box)) > MAX_FILTER_CHARS or box.weight > MAX_STEPS // 2:
        # A merged filter is told to others, so it has to be one that they can read.
        box, all_perfect, all_dropped = TRUE, False, all_dropped | set(box.allowed())
    return Merged(Filter((box,)), all_perfect, tuple(sorted(all_widened - all_dropped)), tuple(sorted(all_dropped)))


def _merged(a: Conjunction, b: Conjunction) -> tuple[Conjunction, bool, set[str], set[str]]:
    if a.covers(b):
        return a, True, set(), set()
    if b.covers(a):
        return b, True, set(), set()
    same = a.bindings == b.bindings
    mine, theirs = (dict(a.values), dict(b.values)) if same else (a.allowed(), b.allowed())
    sides: dict[str, Values] = {}
    widened: set[str] = set()
    differing = 0
    for name in sorted(mine.keys() | theirs.keys()):
        left, right = mine.get(name, ANYTHING), theirs.get(name, ANYTHING)
        union = left | right
        hull = union if left == right and sayable(union) else _hull(union)
        differing += left != right
        if hull != union or (union == ANYTHING and ANYTHING not in (left, right)):
            widened.add(name)  # the latter is asked no more, and only then may it be NaN
        if hull != ANYTHING:
            sides[name] = hull
    bindings = _common(a.bindings, b.bindings)
    merged = conjoined(sides.items(), bindings) or TRUE
    kept = merged.allowed().keys()
    dropped = {name for name in mine.keys() | theirs.keys() if name not in kept}
    dropped |= {n for one in {*a.bindings, *b.bindings} - {*bindings} for n in (one.left, one.right)}
    perfect = differing <= 1 and not widened and same
    return merged, perfect, widened - dropped, set() if perfect else dropped


def _common(a: Iterable[Binding], b: Iterable[Binding]) -> list[Binding]:
    """The bindings that both ask for; where they differ in the sign, what either sign allows."""
    theirs = {(one.left, one.right, one.factor): one.outcomes for one in b}
    either = [
        Binding(one.left, one.right, one.factor, one.outcomes | theirs[key])
        for one in a
        if (key := (one.left, one.right, one.factor)) in theirs
    ]
    return [one for one in either if one.outcomes != 7]


def _hull(union: Values) -> Values:
    """The smallest set around it that predicates can say."""
    if union.absent:
        return union if not any(union.kinds) else ANYTHING
    if sayable(union) and _short(union):
        return union
    if sum(union.kinds) != 1 or union.booleans:
        return PRESENT
    filled = of_kind(_filled(union.numbers or union.strings))
    return filled if sayable(filled) and _short(filled) else PRESENT


def _short(values: Values) -> bool:
    return values.weight <= MERGED_VALUES


def _filled(cuts: Cuts) -> Cuts:
    """Without the gaps, except those of a single value as long as they are few: these can be said by `!=`."""
    last_end = cuts[-1] if len(cuts) % 2 == 0 else None
    known = list(pieces(cuts))
    starts = [low for (_, end), (low, _) in pairwise(known) if after(end) == low]
    if len(starts) > MERGED_HOLES:
        starts = []
    ends = [end for (_, end), (low, _) in pairwise(known) if low in starts]
    lows, highs = [cuts[0], *starts], [*ends, last_end]
    return joined(*((low,) if high is None else (low, high) for low, high in zip(lows, highs, strict=True)))
