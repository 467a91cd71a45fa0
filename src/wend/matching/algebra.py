"""What filters say about each other, without any event.

For conjunctions of unbound predicates both answers are exact, over all events that carry single values: a
conjunction is a box, and boxes compare side by side. Otherwise they err to the safe side:

    covers       True is always right. It asks for one conjunction that covers each conjunction of the other, so it
                 misses a cover by several together, and it knows of bindings only whether they are the same or weaker.
    intersects   False is always right, and for unbound disjunctions True is as well. Bindings are taken as possible.

Events with ranges: a range matches where some value in it does, so whoever covers another also gets all
its ranges, and `covers` holds for them as it stands. `intersects` does not: the range [1, 9] matches `x = 1` and
`x = 9`, though no single value does. Ask with `ranges=True` where that matters; then only kinds and absence separate.
"""

from wend.matching.filters import Filter


def covers(a: Filter, b: Filter) -> bool:
    """Whether every event that b matches is matched by a."""
    return all(any(mine.covers(theirs) for mine in a.conjunctions) for theirs in b.conjunctions)


def intersects(a: Filter, b: Filter, ranges: bool = False) -> bool:
    """Whether some event matches both."""
    return a.intersects(b, ranges)
