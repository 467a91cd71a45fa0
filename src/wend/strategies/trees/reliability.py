"""The delivery probability on a set of trees, and the fewest trees that reach a reliability target.

A route on a tree has two costs, each a sum of -ln r: over links that no other tree uses, and over links shared with
other trees and the peers between, which may be on any. Routes on several trees fail independently on their own links.
The estimate charges the shared cost once per tree. So it is never above the true probability, if links fail
independently with the reliabilities that the trees were built from.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from wend.strategies.subscriptions.table import SURE
from wend.strategies.trees.sptk import SCALE


class RouteCost(NamedTuple):
    """The costs of a route in units of 1 / SCALE. They are integers, so that sums do not depend on their order."""

    own: int = 0
    shared: int = 0

    def over(self, cost: int, shared: bool) -> "RouteCost":
        return RouteCost(self.own, self.shared + cost) if shared else RouteCost(self.own + cost, self.shared)

    def worse(self, other: "RouteCost") -> "RouteCost":
        """Costs that are not better than either."""
        return RouteCost(max(self.own, other.own), max(self.shared, other.shared))


def joint(routes: Sequence[RouteCost]) -> float:
    """A lower bound of the probability that at least one of the routes works."""
    shared = math.exp(-sum(route.shared for route in routes) / SCALE)
    return shared * (1.0 - math.prod(-math.expm1(-route.own / SCALE) for route in routes))


@lru_cache(maxsize=4096)
def fewest(routes: tuple[RouteCost, ...], need: float) -> tuple[int, ...]:
    """The best smallest set of trees that reaches the target, or all trees if none does."""
    every = tuple(range(len(routes)))
    for count in range(1, len(routes)) if need < SURE else ():
        best = max(combinations(every, count), key=lambda chosen: joint([routes[tree] for tree in chosen]))
        if joint([routes[tree] for tree in best]) >= need:
            return best
    return every
