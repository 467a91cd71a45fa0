"""Random filters and events for the tests of matching."""

from functools import cache

import numpy as np

from wend.matching.conjunctions import conjoin
from wend.matching.filters import Filter
from wend.matching.values import Values, values_between
from wend.model.events import Attributes

NAMES = [f"a{i}" for i in range(10)]


@cache
def _side(low: int, high: int) -> Values:
    return values_between(low, high)


def boxes(seed: int, count: int, widest: int = 256, fewest: int = 1, most: int = 5) -> list[Filter]:
    """dmm, section VI: ranges on 1 to 5 of 10 attributes in [1, 256]; `widest` makes them narrow."""
    rng = np.random.default_rng(seed)
    found = []
    for size in rng.integers(fewest, most + 1, count):
        names = rng.permutation(10)[:size]
        if widest >= 256:
            ends = np.sort(rng.integers(1, 257, (size, 2)), axis=1)
        else:
            lows = rng.integers(1, 257 - widest, size)
            ends = np.stack([lows, lows + rng.integers(0, widest, size)], axis=1)
        sides = [(NAMES[n], _side(int(low), int(high))) for n, (low, high) in zip(names, ends, strict=True)]
        one = conjoin(sides, ())
        assert one is not None
        found.append(Filter((one,)))
    return found


def events(seed: int, count: int) -> list[Attributes]:
    rng = np.random.default_rng(seed)
    return [dict(zip(NAMES, map(int, row), strict=True)) for row in rng.integers(1, 257, (count, 10))]
