"""Which filters of a changing set no other one covers, found by an index instead of pair by pair.

A filter that covers a conjunction matches its lowest and its highest event: those with, for every attribute, the least
or the greatest value that the conjunction allows. So the index of uncovered filters answers with a few candidates, and
`covers` decides among them.
"""

from typing import Any, Generic

from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.matching.index import Index, K
from wend.matching.values import Cuts, Values, before
from wend.model.events import Attributes


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

    def uncovered(self, key: K) -> bool:
        return key in self._filters and key not in self._coverer

    @property
    def all_uncovered(self) -> list[K]:
        return [key for key in self._filters if key not in self._coverer]

    def add(self, key: K, wanted: Filter) -> list[K]:
        """Add a filter, or replace the one with this key. Returns the keys that became uncovered."""
        uncovered = self.discard(key)
        self._filters[key] = wanted
        if self._place(key):
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
        return [orphan for orphan in orphans if self._place(orphan)]

    def _place(self, key: K) -> bool:
        """Find a filter that covers this one. Returns True if no filter does."""
        wanted = self._filters[key]
        coverer = self._find(wanted)
        if coverer is None:
            self._uncovered.add(key, wanted)
            return True
        self._coverer[key] = coverer
        self._covered.setdefault(coverer, {})[key] = None
        return False

    def _find(self, wanted: Filter) -> K | None:
        if len(wanted.conjunctions) != 1 or not len(self._uncovered):
            return None
        (one,) = wanted.conjunctions
        ends = _ends(one)
        if ends is None:
            return None
        low, high = ends
        candidates = self._uncovered.match(low)
        if low != high and candidates:
            also = set(self._uncovered.match(high))
            candidates = tuple([key for key in candidates if key in also])
        for key in candidates:
            if any(theirs.covers(one) for theirs in self._filters[key].conjunctions):
                return key
        return None


def _ends(one: Conjunction) -> tuple[Attributes, Attributes] | None:
    """The lowest and the highest event that the conjunction matches; None if it matches no event. An
    attribute that may be missing is missing in both."""
    low: Attributes = {}
    high: Attributes = {}
    for name, values in one.allowed().items() if one.bindings else one.values:
        if values.absent:
            continue
        ends = _least_and_greatest(values)
        if ends is None:
            return None
        low[name], high[name] = ends
    return low, high


def _least_and_greatest(values: Values) -> tuple[Any, Any] | None:
    if values.numbers:
        return _of_cuts(values.numbers, float("inf"))
    if values.strings:
        return _of_cuts(values.strings, None)
    return (values.booleans[0], values.booleans[-1]) if values.booleans else None


def _of_cuts(cuts: Cuts, endless: Any) -> tuple[Any, Any] | None:
    highest = endless if len(cuts) % 2 else before(cuts[-1])
    return None if highest is None else (cuts[0], highest)
