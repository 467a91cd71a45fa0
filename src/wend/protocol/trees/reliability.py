"""How likely an event gets there on some of the trees, and how few of them are enough for a target.

A way on a tree is known by two costs, each the sum of -ln r: over links that no other tree uses, and over what other
trees use too (and the peers between, which may be on any). Ways on several trees fail independently as far as their own
links go. What they share is counted as if every tree needed its own luck there. So the estimate is never above the
truth, if links fail independently with the reliabilities that the trees were built from.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from wend.protocol.trees.sptk import SCALE

SURE = 1.0
"""The target of those who state none: all trees."""


class RouteCost(NamedTuple):
    """Costs in units of 1 / SCALE, whole numbers, so that sums do not depend on their order."""

    own: int = 0
    shared: int = 0

    def over(self, cost: int, shared: bool) -> "RouteCost":
        return RouteCost(self.own, self.shared + cost) if shared else RouteCost(self.own + cost, self.shared)

    def worse(self, other: "RouteCost") -> "RouteCost":
        """Not better than either."""
        return RouteCost(max(self.own, other.own), max(self.shared, other.shared))


def joint(ways: Sequence[RouteCost]) -> float:
    """That one of the ways works, at least."""
    shared = math.exp(-sum(way.shared for way in ways) / SCALE)
    return shared * (1.0 - math.prod(-math.expm1(-way.own / SCALE) for way in ways))


@lru_cache(maxsize=4096)
def fewest(ways: tuple[RouteCost, ...], need: float) -> tuple[int, ...]:
    """The trees to use: as few as reach the target, the best of so few; all, where that is not enough either."""
    every = tuple(range(len(ways)))
    for count in range(1, len(ways)) if need < SURE else ():
        best = max(combinations(every, count), key=lambda chosen: joint([ways[tree] for tree in chosen]))
        if joint([ways[tree] for tree in best]) >= need:
            return best
    return every
