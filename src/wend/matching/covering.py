"""The filters of a set that no other filter of it covers, found by an index instead of pair by pair.

A box that covers a conjunction matches its lowest and its highest event: those with, for every attribute, the least
or the greatest value that the conjunction allows. So an index of filters proposes a few candidates, and `covers`
decides.
"""

from collections.abc import Sequence
from typing import Any, Generic

from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.matching.index import Index, K
from wend.matching.values import Values, previous_value
from wend.model.events import Attributes


def find_uncovered(filters: Sequence[Filter]) -> list[int]:
    """The positions of the filters that no other one covers, in order. Of equal filters the first stays.

    It is exact for conjunctions. A disjunction stays unless it equals an earlier filter. A filter that matches nothing
    does not stay."""
    first: dict[Filter, int] = {}
    for at, one in enumerate(filters):
        first.setdefault(one, at)
    boxes: Index[int] = Index()
    bound: dict[int, Conjunction] = {}
    for one, at in first.items():
        if len(one.conjunctions) == 1:
            if one.conjunctions[0].bindings:
                bound[at] = one.conjunctions[0]
            else:
                boxes.add(at, one)

    def is_covered(at: int, one: Conjunction) -> bool:
        if any(key != at and filters[key].conjunctions[0].covers(one) for key in _candidates(one, boxes)):
            return True
        # conjunctions with bindings are few, so each pair is tested
        coverers = [key for key, other in bound.items() if key != at and other.covers(one)] if at in bound else []
        return any(key < at or not one.covers(bound[key]) for key in coverers)

    return [
        at
        for one, at in first.items()
        if one.conjunctions and (len(one.conjunctions) > 1 or not is_covered(at, one.conjunctions[0]))
    ]


class CoveringIndex(Generic[K]):
    """Filters of one conjunction each, by key. A filter is either uncovered, or has one uncovered filter that covers
    it. Of two that cover each other the first stays uncovered."""

    def __init__(self) -> None:
        self._filters: dict[K, Filter] = {}
        self._uncovered: Index[K] = Index()
        self._coverer: dict[K, K] = {}
        self._covered: dict[K, dict[K, None]] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, key: K) -> bool:
        return key in self._filters

    def is_uncovered(self, key: K) -> bool:
        return key in self._filters and key not in self._coverer

    @property
    def uncovered_keys(self) -> list[K]:
        return [key for key in self._filters if key not in self._coverer]

    def add(self, key: K, wanted: Filter) -> list[K]:
        """Add a filter, or replace the one with this key. Returns the keys that became uncovered."""
        uncovered = self.discard(key)
        self._filters[key] = wanted
        if self._assign_cover(key):
            uncovered.append(key)
        return uncovered

    def discard(self, key: K) -> list[K]:
        """Remove a filter. Returns the keys that became uncovered, because it had covered them."""
        if self._filters.pop(key, None) is None:
            return []
        coverer = self._coverer.pop(key, None)
        if coverer is not None:
            del self._covered[coverer][key]
            return []
        self._uncovered.discard(key)
        orphans = self._covered.pop(key, {})
        for orphan in orphans:
            del self._coverer[orphan]
        return [orphan for orphan in orphans if self._assign_cover(orphan)]

    def _assign_cover(self, key: K) -> bool:
        """Find a filter that covers this one. Returns True if no filter does."""
        wanted = self._filters[key]
        coverer = self._find_cover(wanted)
        if coverer is None:
            self._uncovered.add(key, wanted)
            return True
        self._coverer[key] = coverer
        self._covered.setdefault(coverer, {})[key] = None
        return False

    def _find_cover(self, wanted: Filter) -> K | None:
        if len(wanted.conjunctions) != 1 or not len(self._uncovered):
            return None
        (one,) = wanted.conjunctions
        for key in _candidates(one, self._uncovered):
            if any(theirs.covers(one) for theirs in self._filters[key].conjunctions):
                return key
        return None


def _candidates(one: Conjunction, index: Index[K]) -> tuple[K, ...]:
    """The keys of the filters that may cover a conjunction."""
    low, high = _extreme_events(one)
    keys = index.match(low)
    if low != high and keys:
        also = set(index.match(high))
        keys = tuple([key for key in keys if key in also])
    return keys


def _extreme_events(one: Conjunction) -> tuple[Attributes, Attributes]:
    """The lowest and the highest event that the conjunction matches. An attribute that may be missing is missing in
    both. If a set of texts has no greatest value, the least one stands for it."""
    low: Attributes = {}
    high: Attributes = {}
    for name, values in one.constraints():
        if any(values.kinds) and not values.absent:
            low[name], high[name] = _least_and_greatest(values)
    return low, high


def _least_and_greatest(values: Values) -> tuple[Any, Any]:
    cuts = values.numbers or values.strings
    if not cuts:
        return values.booleans[0], values.booleans[-1]
    if len(cuts) % 2:
        return cuts[0], float("inf") if values.numbers else cuts[0]
    greatest = previous_value(cuts[-1])
    return cuts[0], cuts[0] if greatest is None else greatest
