"""Linear models over delivery graphs (thesis, section 3.6.2): the share of each flow that takes each graph.

Shares are fractions of a flow; the thesis's numbers of messages are shares times the flow's size. Loads are divided by
capacities, so `y`, the highest load, is a utilisation. A plan with y of at most 1 drops nothing.

- balance: the least y, and of all plans that reach it one with the least usage;
- min-usage: the fewest messages on links, with no load above its capacity;
- blend: (1 - b) x usage + b x y, each divided by its value with single shortest paths, unless that is 0.
"""

from contextlib import suppress
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from wend.model.errors import ConfigError
from wend.planning.arrays import Floats, Longs
from wend.planning.master_problem import EQUAL, optimise
from wend.planning.problem import Problem
from wend.planning.problem_reduction import reduce

TIGHT = EQUAL
"""The relative slack of a bound that the solver has just computed."""
DUST = 1e-9
"""Shares below this are rounding errors of the solver."""


class Goal(msgspec.Struct, frozen=True):
    """The objective of a plan."""

    kind: Literal["min-usage", "balance", "blend"]
    weight: float = 0.0
    """The weight of balance in a blend."""

    def __str__(self) -> str:
        return f"blend:{self.weight:g}" if self.kind == "blend" else self.kind


def parse_goal(text: str) -> Goal:
    if text == "min-usage":
        return Goal("min-usage")
    if text == "balance":
        return Goal("balance")
    kind, _, weight = text.partition(":")
    with suppress(ValueError):
        if kind == "blend" and 0 <= float(weight) <= 1:
            return Goal("blend", float(weight))
    raise ConfigError(f"the goal must be min-usage, balance or blend:B with B in 0..1, got {text!r}")


class Solution(NamedTuple):
    """The shares of the problem's graphs, with their y and usage."""

    shares: Floats
    y: float
    usage: float
    columns: int
    """The number of graphs in the linear program, beyond one for each flow."""


def solve(problem: Problem, goal: Goal, *, reduced: bool = True) -> Solution | None:
    """The best shares; None if no choice keeps all loads within capacities."""
    if goal.kind == "balance":
        best = balance(problem, reduced=reduced)
        if best.y > 1 + TIGHT:
            return None
        return least_usage(problem, limit=best.y * (1 + TIGHT), reduced=reduced) or best
    if goal.kind == "min-usage":
        return least_usage(problem, reduced=reduced)
    return blend(problem, goal.weight, reduced=reduced)


def balance(problem: Problem, *, reduced: bool = True) -> Solution:
    """The solution with the least y, which may be above 1. The workload fits if `y <= 1`."""
    solution = _optimise(problem, cost=0.0, cost_y=1.0, limit=None, reduced=reduced)
    assert solution is not None, "without a limit every choice is feasible"
    return solution


def least_usage(problem: Problem, *, limit: float = 1.0, reduced: bool = True) -> Solution | None:
    return _optimise(problem, cost=1.0, cost_y=0.0, limit=limit, reduced=reduced)


def blend(problem: Problem, weight: float, *, reduced: bool = True) -> Solution | None:
    single = problem.first()
    # A value that is 0 with single paths cannot be a unit: then the unit is 1.
    usage, y = problem.usage(single) or 1.0, float((problem.loads(single) / problem.capacity).max()) or 1.0
    return _optimise(problem, cost=(1 - weight) / usage, cost_y=weight / y, limit=1.0, reduced=reduced)


def _optimise(problem: Problem, *, cost: float, cost_y: float, limit: float | None, reduced: bool) -> Solution | None:
    """Minimise cost x usage + cost_y x y with y at most `limit`. Tests compare it with and without reduction."""
    small = reduce(problem, limit=limit if cost_y == 0 else None, priced=cost > 0) if reduced else None
    smaller = problem if small is None else small.problem
    solution = optimise(smaller, cost=cost, cost_y=cost_y, limit=limit)
    if solution is None:
        return None
    shares = _tidy(smaller.of_flow, solution.shares)
    if small is not None:
        shares = small.shares(problem, shares)
    y = float((problem.loads(shares) / problem.capacity).max(initial=0.0))
    return Solution(shares, y, problem.usage(shares), solution.columns)


def _tidy(of_flow: Longs, values: Floats) -> Floats:
    """Shares without rounding errors: none is below `DUST`, and those of a flow sum to one."""
    if not len(values):
        return values
    clean = np.where(values < DUST, 0.0, values)
    sums: Floats = np.add.reduceat(clean, of_flow[:-1])
    return np.asarray(clean / np.repeat(sums, np.diff(of_flow)))
