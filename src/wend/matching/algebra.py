"""Relations between filters: covers and intersects.

For conjunctions without bindings both relations are exact, over all events with single values: a conjunction is a box,
and boxes compare side by side. Otherwise they err on the safe side:

    covers       True is always right. It looks for one conjunction that covers each conjunction of the other filter, so
                 it misses a cover by several conjunctions together. Of bindings it detects equal and weaker ones.
    intersects   False is always right; without bindings True is right, too. It assumes that bindings can hold.

Events with ranges: a range matches if some value in it matches. So a filter that covers another also matches all its
ranges, and `covers` holds for them, too. `intersects` does not: the range [1, 9] matches `x = 1` and `x = 9`, though no
single value matches both. With `ranges=True` it takes ranges into account; then two filters are disjoint only if they
require different kinds of values, or if one requires an attribute that the other forbids.
"""

from wend.matching.filters import Filter


def covers(a: Filter, b: Filter) -> bool:
    """Whether a matches every event that b matches."""
    return all(any(mine.covers(theirs) for mine in a.conjunctions) for theirs in b.conjunctions)


def intersects(a: Filter, b: Filter, ranges: bool = False) -> bool:
    """Whether some event matches both."""
    return a.intersects(b, ranges)
