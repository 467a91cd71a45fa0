"""Linear models over delivery graphs (thesis, section 3.6.2): the share of each flow that takes each graph.

Shares are fractions of a flow; the thesis's numbers of messages are shares times the flow's size. Loads are divided by
capacities, so `y`, the highest load, is a utilisation. A plan with y of at most 1 drops nothing.

- balance: the least y; of all plans that reach it the least usage;
- min-usage: the fewest messages on links, with no load above its capacity;
- min-delay: the least delay, each delivery with the weight of its flow, with no load above its capacity;
- on-time: the fewest late deliveries, each with the weight of its flow, with no load above its capacity;
- blend: (1 - b) x usage + b x y, each divided by its value with single shortest paths, unless that is 0.

Of equally good plans each goal prefers the one with the least weighted delay, and `min-delay` the one with the least
usage. Each stage is a linear program of its own that holds the values of those before (to within the solver's
tolerance), so a later stage never overturns the goal. Weights therefore decide who gets the short routes, and never how
much is sent.

A plan that follows a running one may be worse than the best by `STAY`, and of these plans it moves the least demand.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from wend.model.errors import ConfigError
from wend.planning.arrays import Floats, Longs
from wend.planning.master_problem import EQUAL, optimise
from wend.planning.problem import Objective, Problem
from wend.planning.problem_reduction import reduce_problem

TIGHT = EQUAL
"""The relative slack of a bound that the solver has just computed."""
STAY = 0.1
"""How much worse than the best a plan may be, to stay close to the running one."""
DUST = 1e-9
"""Shares below this are rounding errors of the solver."""


class Goal(msgspec.Struct, frozen=True):
    """The objective of a plan."""

    kind: Literal["min-usage", "min-delay", "on-time", "balance", "blend"]
    weight: float = 0.0
    """The weight of balance in a blend."""

    def __str__(self) -> str:
        return f"blend:{self.weight:g}" if self.kind == "blend" else self.kind


def parse_goal(text: str) -> Goal:
    match text:
        case "min-usage" | "min-delay" | "on-time" | "balance":
            return Goal(text)
    kind, _, weight = text.partition(":")
    with suppress(ValueError):
        if kind == "blend" and 0 <= float(weight) <= 1:
            return Goal("blend", float(weight))
    raise ConfigError(
        f"the goal must be min-usage, min-delay, on-time, balance or blend:B with B in 0..1, got {text!r}"
    )


class Solution(NamedTuple):
    """The shares of the problem's graphs, with their y and usage."""

    shares: Floats
    y: float
    usage: float
    columns: int
    """The number of graphs in the linear program, beyond one for each flow."""


USAGE, DELAY, MOVED, LOAD = Objective(usage=1.0), Objective(delay=1.0), Objective(moved=1.0), Objective(y=1.0)
LATE = Objective(late=1.0)


def solve(
    problem: Problem, goal: Goal, *, most: float = 1.0, stays: bool = False, reduced: bool = True
) -> Solution | None:
    """The best shares; None if no choice keeps all loads at most at this share of the capacities. With `stays`, move as
    little demand as a goal within `STAY` of the best allows."""
    if goal.kind == "balance":
        best = balance(problem, reduced=reduced)
        if best.y > most * (1 + TIGHT):
            return None
        limit = min(best.y * (1 + STAY), max(most, best.y)) if stays else best.y
        ties = (MOVED, LOAD, USAGE, DELAY) if stays else (USAGE, DELAY)
        return optimise_reduced(problem, ties, limit=limit * (1 + TIGHT), reduced=reduced) or best
    first = first_objective(problem, goal)
    last = [each for each in (DELAY, USAGE) if each != first]
    stages = (first._replace(slack=STAY), MOVED, first, *last) if stays else (first, *last)
    return optimise_reduced(problem, stages, limit=most, reduced=reduced)


def first_objective(problem: Problem, goal: Goal) -> Objective:
    """The sum that a goal minimises first."""
    match goal.kind:
        case "balance":
            return LOAD
        case "min-usage":
            return USAGE
        case "min-delay":
            return DELAY
        case "on-time":
            return LATE
        case "blend":
            single = problem.single_path_shares()
            # A value that is 0 with single paths cannot be a unit: then the unit is 1.
            y = float((problem.loads(single) / problem.capacity).max()) or 1.0
            return Objective(usage=(1 - goal.weight) / (problem.usage(single) or 1.0), y=goal.weight / y)


def balance(problem: Problem, *, reduced: bool = True) -> Solution:
    """The solution with the least y, which may be above 1. The workload fits if `y <= 1`."""
    solution = optimise_reduced(problem, (), limit=None, reduced=reduced)
    assert solution is not None, "without a limit every choice is feasible"
    return solution


def minimise_usage(problem: Problem, *, limit: float = 1.0, reduced: bool = True) -> Solution | None:
    return optimise_reduced(problem, (USAGE, DELAY), limit=limit, reduced=reduced)


def optimise_reduced(
    problem: Problem, objectives: Sequence[Objective], *, limit: float | None, reduced: bool = True
) -> Solution | None:
    """Minimise the objectives one after the other, with y at most `limit`; without any, minimise y. Tests compare it
    with and without reduction."""
    minimises_y = not objectives or any(each.y for each in objectives)
    small = reduce_problem(problem, limit=None if minimises_y else limit, objectives=objectives) if reduced else None
    smaller = problem if small is None else small.problem
    solution = optimise(smaller, objectives, limit=limit)
    if solution is None:
        return None
    shares = _round_shares(smaller.of_flow, solution.shares)
    if small is not None:
        shares = small.shares(problem, shares)
    y = float((problem.loads(shares) / problem.capacity).max(initial=0.0))
    return Solution(shares, y, problem.usage(shares), solution.columns)


def _round_shares(of_flow: Longs, values: Floats) -> Floats:
    """Shares without rounding errors: none is below `DUST`, and those of a flow sum to one."""
    if not len(values):
        return values
    clean = np.where(values < DUST, 0.0, values)
    sums: Floats = np.add.reduceat(clean, of_flow[:-1])
    return np.asarray(clean / np.repeat(sums, np.diff(of_flow)))
