"""Borders: the cuts that divide the values of an attribute into the rows of an index."""

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any


def choose_borders(lows: Iterable[Any], ends: Iterable[Any], bottom: Any, most: int) -> list[Any]:
    """At most `most` borders that divide one kind of values into rows, for intervals with these ends.

    If the next cut after an end is a beginning, the end needs no border: for integers no value is between them."""
    begins: dict[Any, bool] = dict.fromkeys(ends, False)
    begins.update(dict.fromkeys(lows, True))
    begins.pop(bottom, None)
    borders = sorted(begins)
    if len(borders) > most:
        following = zip_longest(borders, borders[1:])
        borders = [cut for cut, after_it in following if begins[cut] or not begins.get(after_it, False)]
    if len(borders) <= most:
        return borders
    return [borders[at * len(borders) // most] for at in range(most)]
