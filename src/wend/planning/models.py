"""Linear models over delivery graphs (thesis, section 3.6.2): which share of each flow takes which graph.

Shares are fractions of a flow; the thesis's counts of messages are these times the flow's size. Loads are in units of
the capacity that carries them, so `y`, the highest of them, is a utilisation: at most 1 is a plan that drops nothing.

- balance: least y, and of all plans that reach it one that uses the fewest links;
- min-usage: the fewest messages on links, with no load above its capacity;
- blend: (1 - b) x usage + b x y, each measured in what single shortest paths would need, or plain if they need none.
"""

from typing import Literal, NamedTuple

import msgspec
import numpy as np

from wend.model.errors import ConfigError
from wend.planning.arrays import Floats, Longs
from wend.planning.master import EQUAL, optimise
from wend.planning.problem import Problem
from wend.planning.reduce import reduce

TIGHT = EQUAL
"""By how much, relatively, a bound that was just computed is relaxed before it is used."""
DUST = 1e-9
"""Shares below this are the solver's rounding."""


class Goal(msgspec.Struct, frozen=True):
    kind: Literal["min-usage", "balance", "blend"]
    weight: float = 0.0
    """The part of balance in a blend."""

    def __str__(self) -> str:
        return f"blend:{self.weight:g}" if self.kind == "blend" else self.kind


def parse_goal(text: str) -> Goal:
    if text == "min-usage":
        return Goal("min-usage")
    if text == "balance":
        return Goal("balance")
    kind, _, weight = text.partition(":")
    try:
        if kind == "blend" and 0 <= float(weight) <= 1:
            return Goal("blend", float(weight))
    except ValueError:
        pass
    raise ConfigError(f"the goal is min-usage, balance or blend:B with B in 0..1, got {text!r}")


class Solution(NamedTuple):
    """Shares of the problem's graphs, and what they come to."""

    shares: Floats
    y: float
    usage: float
    columns: int
    """Of how many graphs the solver was told, beyond one for each flow."""


def solve(problem: Problem, goal: Goal, *, reduced: bool = True) -> Solution | None:
    """None if no choice keeps every load within its capacity."""
    if goal.kind == "balance":
        best = balance(problem, reduced=reduced)
        if best.y > 1 + TIGHT:
            return None
        return least_usage(problem, limit=best.y * (1 + TIGHT), reduced=reduced) or best
    if goal.kind == "min-usage":
        return least_usage(problem, reduced=reduced)
    return blend(problem, goal.weight, reduced=reduced)


def balance(problem: Problem, *, reduced: bool = True) -> Solution:
    """The least y there is, above 1 too; `y <= 1` decides whether the workload fits."""
    found = _optimise(problem, cost=0.0, cost_y=1.0, limit=None, reduced=reduced)
    assert found is not None, "without a limit every choice is feasible"
    return found


def least_usage(problem: Problem, *, limit: float = 1.0, reduced: bool = True) -> Solution | None:
    return _optimise(problem, cost=1.0, cost_y=0.0, limit=limit, reduced=reduced)


def blend(problem: Problem, weight: float, *, reduced: bool = True) -> Solution | None:
    single = problem.first()
    # What single paths need nothing of has no such unit: it counts as it is.
    usage, y = problem.usage(single) or 1.0, float((problem.loads(single) / problem.capacity).max()) or 1.0
    return _optimise(problem, cost=(1 - weight) / usage, cost_y=weight / y, limit=1.0, reduced=reduced)


def _optimise(problem: Problem, *, cost: float, cost_y: float, limit: float | None, reduced: bool) -> Solution | None:
    """Minimise cost x usage + cost_y x y with y at most `limit`, on the reduced problem or, to compare, on the raw."""
    small = reduce(problem, limit=limit if cost_y == 0 else None, priced=cost > 0) if reduced else None
    asked = problem if small is None else small.problem
    found = optimise(asked, cost=cost, cost_y=cost_y, limit=limit)
    if found is None:
        return None
    shares = _tidy(asked.of_flow, found.shares)
    if small is not None:
        shares = small.shares(problem, shares)
    y = float((problem.loads(shares) / problem.capacity).max(initial=0.0))
    return Solution(shares, y, problem.usage(shares), found.columns)


def _tidy(of_flow: Longs, values: Floats) -> Floats:
    """Without the solver's dust: no share below `DUST`, and the shares of a flow sum to one."""
    if not len(values):
        return values
    clean = np.where(values < DUST, 0.0, values)
    sums: Floats = np.add.reduceat(clean, of_flow[:-1])
    return np.asarray(clean / np.repeat(sums, np.diff(of_flow)))
