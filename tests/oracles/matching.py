"""Oracles of regions and merges: slow, short and obviously right."""

from collections.abc import Iterable, Iterator
from math import inf

from wend.matching.filters import Filter
from wend.matching.zcode import Box, Space, side_code, woven
from wend.model.events import Attributes


def leaves(space: Space) -> Iterator[str]:
    """Every region of a single cell, for small spaces."""
    open_codes = [""]
    while open_codes:
        code = open_codes.pop()
        both = space.children(code)
        if both is None:
            yield code
        else:
            open_codes.extend(reversed(both))


def printed_code(space: Space, box: Box) -> str:
    """The string of Figures 2 and 3, which has whole rounds only."""
    return woven([side_code(side, whole) for side, whole in zip(box.sides, space.whole.sides, strict=True)])


def overreach(merged: Filter, parts: Iterable[Filter], events: Iterable[Attributes]) -> float:
    """The number of these events that the merged filter matches, per event that a part matches. 1 if it adds none."""
    known = list(parts)
    matched = wanted = 0
    for event in events:
        if merged.matches(event):
            matched += 1
            wanted += any(part.matches(event) for part in known)
    if not wanted:
        return inf if matched else 1.0
    return matched / wanted
