"""Regions and merges, counted out: slow, short, and beyond doubt."""

from collections.abc import Iterable, Iterator
from math import inf

from wend.matching.filters import Filter
from wend.matching.zcode import Box, Space, side_code, woven
from wend.model.events import Attributes


def leaves(space: Space) -> Iterator[str]:
    """Every region of a single cell: for small spaces."""
    open_codes = [""]
    while open_codes:
        code = open_codes.pop()
        both = space.children(code)
        if both is None:
            yield code
        else:
            open_codes.extend(reversed(both))


def printed_code(space: Space, box: Box) -> str:
    """The string as Figures 2 and 3 make it, whole rounds only."""
    return woven([side_code(side, whole) for side, whole in zip(box.sides, space.whole.sides, strict=True)])


def overreach(merged: Filter, parts: Iterable[Filter], events: Iterable[Attributes]) -> float:
    """How many of these events the merged filter matches for each one that is wanted: 1 where it adds nothing."""
    known = list(parts)
    matched = wanted = 0
    for event in events:
        if merged.matches(event):
            matched += 1
            wanted += any(part.matches(event) for part in known)
    if not wanted:
        return inf if matched else 1.0
    return matched / wanted
