"""Oracles of regions and merges: slow, short and obviously right."""

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any

from wend.matching.filters import Filter
from wend.matching.zcode import Box, ZCodeSpace, interleave, side_code
from wend.model.events import Attributes


def leaves(space: ZCodeSpace) -> Iterator[str]:
    """Every region of a single cell, for small spaces."""
    open_codes = [""]
    while open_codes:
        code = open_codes.pop()
        both = children(space, code)
        if both is None:
            yield code
        else:
            open_codes.extend(reversed(both))


def children(space: ZCodeSpace, code: str) -> tuple[str, str] | None:
    """The two halves of a region; None if it is a single cell."""
    return None if space.region(code).volume == 1 else (f"{code}0", f"{code}1")


def box_of(space: ZCodeSpace, ranges: Mapping[str, Any]) -> Box:
    """The box of closed ranges or single values. None, or a missing attribute, is unbounded."""
    sides = []
    for name, domain, (first, last) in zip(space.names, space.domains, space.whole.sides, strict=True):
        given = ranges.get(name)
        low, high = given if isinstance(given, tuple) else (given, given)
        sides.append((first if low is None else domain.cell(low), last if high is None else domain.cell(high)))
    return Box(tuple(sides))


def printed_code(space: ZCodeSpace, box: Box) -> str:
    """The string of Figures 2 and 3, which has whole rounds only."""
    return interleave([side_code(side, whole) for side, whole in zip(box.sides, space.whole.sides, strict=True)])


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
