"""Filters: `parse` reads the text of one, and `Filter.matches` applies it to attributes.

docs/reference/filters.md describes the language. A filter is in disjunctive normal form, and prints as the canonical
text of that form.
"""

from weakref import WeakValueDictionary

import msgspec

from wend.matching.conjunctions import Conjunction
from wend.matching.normal_form import normal_form
from wend.matching.printer import filter_text, predicate_texts
from wend.matching.syntax import MAX_FILTER_CHARS, MAX_PREDICATES, parse_tree
from wend.model.errors import FilterError
from wend.model.events import Attributes

__all__ = ["MAX_FILTER_CHARS", "Filter", "parse", "topic_filter"]

CACHED = 4096
CACHED_CHARS = 256
CACHED_CONJUNCTIONS = 4
"""Limits of the cache of parsed filters. Peers parse the same few texts again and again; large filters are not cached,
so that a full cache stays small."""

_recent: dict[str, "Filter"] = {}
_in_use: "WeakValueDictionary[str, Filter]" = WeakValueDictionary()
"""The filters that are still in use. The peers of a simulation share them, because several store one subscription."""


class Filter(msgspec.Struct, frozen=True, weakref=True):
    """A disjunction of conjunctions. `parse` and `merge` make one."""

    conjunctions: tuple[Conjunction, ...]

    def matches(self, attributes: Attributes) -> bool:
        conjunctions = self.conjunctions
        if len(conjunctions) == 1:
            return conjunctions[0].matches(attributes)
        return any(one.matches(attributes) for one in conjunctions)

    def covers(self, other: "Filter") -> bool:
        """Whether it matches every event that the other matches, with ranges, too. True is always right.

        False is right for conjunctions without bindings: they are boxes, and boxes compare side by side. Otherwise it
        may be wrong: several conjunctions can cover one together, and not all implications of bindings are detected."""
        return all(any(mine.covers(theirs) for mine in self.conjunctions) for theirs in other.conjunctions)

    def intersects(self, other: "Filter") -> bool:
        """Whether some event matches both filters. False is always right; True is right without bindings.

        An event with ranges may match two filters that do not intersect: [1, 9] matches `x = 1` and `x = 9`."""
        return any(a.intersects(b) for a in self.conjunctions for b in other.conjunctions)

    @property
    def topic(self) -> str | None:
        """The topic, if the whole filter is `topic = '…'`."""
        if len(self.conjunctions) != 1:
            return None
        only = self.conjunctions[0]
        if only.bindings or len(only.values) != 1 or only.values[0][0] != "topic":
            return None
        cuts = only.values[0][1].strings
        return cuts[0] if len(cuts) == 2 and cuts[1] == f"{cuts[0]}\0" else None

    def __str__(self) -> str:
        return filter_text(self.conjunctions)


def topic_filter(topic: str) -> str:
    """The filter text for one topic."""
    quoted = topic.replace("\\", "\\\\").replace("'", "\\'")
    return f"topic = '{quoted}'"


def parse(text: str) -> Filter:
    """Parse a filter. Raises FilterError, whose text shows the position of the error."""
    if len(text) > MAX_FILTER_CHARS:
        sentence = f"a filter may have {MAX_FILTER_CHARS} characters, this one has {len(text)}"
        raise FilterError(sentence, code="filter-too-large")
    parsed = _recent.get(text)
    if parsed is None:
        parsed = _in_use.get(text) or _parse(text)
        if len(text) <= CACHED_CHARS and len(parsed.conjunctions) <= CACHED_CONJUNCTIONS:
            if len(_recent) >= CACHED:
                _recent.clear()
            _recent[text] = _in_use[text] = parsed
    return parsed


def _parse(text: str) -> Filter:
    parsed = Filter(normal_form(parse_tree(text)))
    # Peers send each other the normal form, so it must obey the limits, too. Small and simple filters, which most are,
    # cannot exceed them.
    small = len(text) <= 256 and len(parsed.conjunctions) == 1 and parsed.conjunctions[0].weight <= 40
    if not small:
        predicates = sum(len(predicate_texts(one)) for one in parsed.conjunctions)
        chars = len(str(parsed))
        if predicates > MAX_PREDICATES or chars > MAX_FILTER_CHARS:
            raise FilterError(
                f"the filter is too large: in its normal form it has {predicates} predicates and {chars} characters, "
                f"and {MAX_PREDICATES} and {MAX_FILTER_CHARS} are allowed",
                code="filter-too-large",
            )
    return parsed
