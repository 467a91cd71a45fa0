"""Linear models over delivery graphs (thesis, section 3.6.2): which share of each flow takes which graph.

Shares are fractions of a flow; the thesis's counts of messages are these times the flow's size. Loads are in units of
the capacity that carries them, so `y`, the highest of them, is a utilisation: at most 1 is a plan that drops nothing.

- balance: least y, and of all plans that reach it one that uses the fewest links;
- min-usage: the fewest messages on links, with no load above its capacity;
- blend: (1 - b) x usage + b x y, each measured in what single shortest paths would need.
"""

from typing import Literal, NamedTuple

import highspy
import msgspec
import numpy as np

from wend.model.errors import ConfigError
from wend.planning.compiled import Floats, Ints, Longs, compiled
from wend.planning.problem import Problem
from wend.planning.reduce import reduce
from wend.planning.solver import Model

TIGHT = 1e-7
"""By how much, relatively, a bound that was just computed is relaxed before it is used: what the solver calls equal."""
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
    usage, y = problem.usage(single), float((problem.loads(single) / problem.capacity).max())
    return _optimise(problem, cost=(1 - weight) / usage, cost_y=weight / y, limit=1.0, reduced=reduced)


def _optimise(problem: Problem, *, cost: float, cost_y: float, limit: float | None, reduced: bool) -> Solution | None:
    """Minimise cost x usage + cost_y x y with y at most `limit`, on the reduced problem or, to compare, on the raw."""
    if reduced:
        bound = limit if cost_y == 0 else None
        small = reduce(problem, limit=bound, priced=cost > 0)
        answer = _run(small.problem, cost, cost_y, limit)
        shares = None if answer is None else small.shares(problem, _tidy(small.problem.of_flow, answer))
    else:
        answer = _run(problem, cost, cost_y, limit)
        shares = None if answer is None else _tidy(problem.of_flow, answer)
    if shares is None:
        return None
    y = float((problem.loads(shares) / problem.capacity).max(initial=0.0))
    return Solution(shares, y, problem.usage(shares))


def _run(problem: Problem, cost: float, cost_y: float, limit: float | None) -> Floats | None:
    """Values of the graphs' columns, in the problem's order."""
    flows, graphs = len(problem.of_flow) - 1, len(problem.hops)
    used = np.unique(problem.rows)
    base = problem.base / problem.capacity
    floor = float(base.max(initial=0.0))
    if limit is not None and floor > limit * (1 + TIGHT):
        return None
    if not graphs:
        return np.zeros(0)
    # The solver's tolerances are absolute: in units of the bound, or of what single paths need, loads are about 1.
    scale = limit or float((problem.loads(problem.first()) / problem.capacity).max())
    place = np.full(len(problem.capacity), -1, dtype=np.int32)
    place[used] = np.arange(len(used), dtype=np.int32)
    ptr, index, value = _columns(
        problem.of_flow, problem.ptr, problem.rows, problem.demand, problem.unit, problem.capacity * scale, place
    )
    ptr = np.append(ptr, ptr[-1] + len(used)).astype(np.int32)
    index = np.concatenate([index, flows + np.arange(len(used), dtype=np.int32)])
    value = np.concatenate([value, np.full(len(used), -1.0)])
    each = np.repeat(problem.demand[problem.usage_unit], np.diff(problem.of_flow))
    free = highspy.kHighsInf
    model = Model()
    model.load(
        cost=np.append(cost * each * problem.hops, cost_y * scale),
        lower=np.append(np.zeros(graphs), min(floor / scale, 1.0)),
        upper=np.append(np.full(graphs, free), free if limit is None else 1.0),
        row_lower=np.concatenate([np.ones(flows), np.full(len(used), -free)]),
        row_upper=np.concatenate([np.ones(flows), -base[used] / scale]),
        ptr=ptr,
        index=index,
        value=value,
    )
    answer = model.solve()
    return None if answer is None else answer.values[:graphs]


@compiled
def _columns(
    of_flow: Longs, ptr: Longs, rows: Ints, demand: Floats, unit: Ints, capacity: Floats, place: Ints
) -> tuple[Ints, Ints, Floats]:
    """One column per graph: 1 in its flow's row, then its load in each row, as a share of the capacity."""
    flows, graphs = len(of_flow) - 1, len(ptr) - 1
    starts = np.zeros(graphs + 1, dtype=np.int32)
    index = np.empty(len(rows) + graphs, dtype=np.int32)
    value = np.empty(len(rows) + graphs)
    used = 0
    for f in range(flows):
        for g in range(of_flow[f], of_flow[f + 1]):
            index[used] = f
            value[used] = 1.0
            used += 1
            for j in range(ptr[g], ptr[g + 1]):
                row = rows[j]
                index[used] = flows + place[row]
                value[used] = demand[unit[row], f] / capacity[row]
                used += 1
            starts[g + 1] = used
    return starts, index, value


def _tidy(of_flow: Longs, values: Floats) -> Floats:
    """Without the solver's dust: no share below `DUST`, and the shares of a flow sum to one."""
    if not len(values):
        return values
    clean = np.where(values < DUST, 0.0, values)
    sums: Floats = np.add.reduceat(clean, of_flow[:-1])
    return np.asarray(clean / np.repeat(sums, np.diff(of_flow)))
