"""The linear program of a plan, solved by column generation: it contains only delivery graphs that help.

Each flow has a default graph. Solving the program gives each binding row a price (its dual value). A graph that is
cheaper at these prices than all columns of its flow becomes a column. If there is none, no further graph can improve
the optimum. So the optimum over all graphs is found with a fraction of them, and a flow has several graphs only if
there is a bottleneck.

The load of a default graph is a constant. The column of another graph is its difference to the default graph, and its
share is a number from 0 to 1. A flow with one such column needs no row; with more, a row keeps their sum at 1. So the
size of the basis is about the number of capacities, not of flows.

The program's first prices jump: all weight is on the row with the highest load, then on the next. So multiplicative
weights come first: the price of a row grows exponentially with its load, each flow takes its cheapest graph, and these
graphs become columns.

Several objectives are optimised one after the other. After each, a row holds its value, and the next one chooses among
the optima that are left.
"""

from collections.abc import Sequence
from typing import NamedTuple

import highspy
import numpy as np

from wend.model.compiled import compiled
from wend.planning.arrays import Floats, Ints, Longs, run_numbers, run_offsets
from wend.planning.problem import Objective, Problem
from wend.planning.solver import LinearProgram, LpSolution

EQUAL = 1e-7
"""The tolerance of the solver."""
MAX_SLACK = 1e-4
"""The most by which the row of an earlier stage may give way."""
CHEAPER = 1e-9
"""How much cheaper a graph must be to become a column, relative to the sum of prices and the highest cost."""
ROUNDS, EAGER = 60, 10.0
"""The rounds of multiplicative weights, and how steeply prices grow with load in the first round."""


class MasterSolution(NamedTuple):
    shares: Floats
    columns: int
    """The number of graphs in the program, without default graphs."""
    prices: Floats
    """What a unit of load on each row costs, in units of the last objective; 0 for rows that do not bind."""


def optimise(problem: Problem, objectives: Sequence[Objective], *, limit: float | None) -> MasterSolution | None:
    """Minimise the objectives in their order, with y at most `limit`; None if that is infeasible. Without any, minimise
    y."""
    floor = float((problem.base / problem.capacity).max(initial=0.0))
    if limit is not None and floor > limit * (1 + EQUAL):
        return None
    free = np.zeros(len(problem.capacity))
    if not len(problem.rows):
        return MasterSolution(_select_one(problem, _find_cheapest(problem.of_flow, problem.ranks(objectives))), 0, free)
    if limit == 0:
        return _solve_without_load(problem, problem.ranks(objectives))
    # The solver's tolerances are absolute. In units of the limit, or of the load of single paths, loads are about 1.
    scale = limit or float((problem.loads(problem.single_path_shares()) / problem.capacity).max()) or 1.0
    scaled = problem._replace(capacity=problem.capacity * scale)
    master = _Master(scaled, floor / scale, *_multiplicative_weights(scaled))
    y = master.improve(Objective(y=1.0), enough=None if limit is None or not objectives else 1.0)
    if limit is not None and y > 1 + EQUAL:
        return None
    if objectives:
        master.bound(max(1.0, y) if limit is not None else highspy.kHighsInf)
    for number, objective in enumerate(objectives, 1):
        in_units = objective._replace(y=objective.y * scale)
        master.improve(in_units)
        if number < len(objectives):
            master.hold(in_units)
    return MasterSolution(master.shares, int((master.column >= 0).sum()), master.prices / scaled.capacity)


def _solve_without_load(problem: Problem, ranks: Floats) -> MasterSolution | None:
    """The solution with no load on any row: each flow's best graph that loads none. None if a flow has no such
    graph."""
    each = run_numbers(problem.of_flow)
    loading = problem.demand[problem.unit[problem.rows], np.repeat(each, np.diff(problem.ptr))] > 0
    ends = run_offsets(loading)[problem.ptr]
    free = np.where(np.diff(ends) == 0, ranks, np.inf)
    best = _find_cheapest(problem.of_flow, free)
    if not np.isfinite(free[best]).all():
        return None
    return MasterSolution(_select_one(problem, best), 0, np.zeros(len(problem.capacity)))


class _HeldObjective(NamedTuple):
    """The row that keeps an objective of an earlier stage at its value."""

    row: int
    most: float
    extra: Floats
    """What each graph costs beyond its flow's default graph, in the unit of the row."""


class _Master:
    """The restricted master problem. Column 0 is y and column `column[g]` is graph g. Rows are capacities, then those
    of the flows in `row`."""

    def __init__(self, problem: Problem, floor: float, default: Longs, start: Longs) -> None:
        self.problem, self.floor, self.default = problem, floor, default
        self.flow = run_numbers(problem.of_flow)
        self.used = np.unique(problem.rows)
        self.place = np.full(len(problem.capacity), -1, dtype=np.int32)
        self.place[self.used] = np.arange(len(self.used), dtype=np.int32)
        self.column = np.full(len(problem.hops), -1, dtype=np.int32)
        self.row = np.full(len(default), -1, dtype=np.int32)
        self.costs = np.zeros(len(problem.hops))
        self.objective = 0.0
        """The value of the current objective, without what the default graphs cost."""
        self.prices = np.zeros(len(problem.capacity))
        """The price of each row as the program last had it, for all of its capacity."""
        self.held: list[_HeldObjective] = []
        self.shares = _select_one(problem, default)
        self.model = LinearProgram()
        rows, free = len(self.used), highspy.kHighsInf
        self.model.load(
            cost=np.ones(1),
            lower=np.array([floor]),
            upper=np.array([free]),
            row_lower=np.full(rows, -free),
            row_upper=-(problem.loads(self.shares) / problem.capacity)[self.used],
            ptr=np.array([0, rows], dtype=np.int32),
            index=np.arange(rows, dtype=np.int32),
            value=np.full(rows, -1.0),
        )
        self._add_columns(start[self.shares[start] == 0])

    def bound(self, most: float) -> None:
        """Set the highest y."""
        self.model.set_bounds(0, min(self.floor, most), most)

    def hold(self, objective: Objective) -> None:
        """Keep the current objective, which has just been optimised, at its value, or within its slack."""
        whole = self.objective + float(self.costs[self.default].sum()) + self.problem.fixed_part(objective)
        inside = np.flatnonzero(self.column >= 0)
        extra = self.costs - self.costs[self.default[self.flow]]
        unit = max(abs(whole), float(np.abs(extra).max(initial=0.0)), 1e-12)
        # Without slack of its own the row has none: any would become tiny shares of further graphs.
        most = (self.objective + objective.slack * abs(whole)) / unit
        held = _HeldObjective(self.model.row_count, most, extra / unit)
        columns = np.append(0, self.column[inside]).astype(np.int32)
        values = np.append(objective.y / unit, held.extra[inside])
        self.model.add_rows(np.array([most]), np.zeros(1, dtype=np.int32), columns, values)
        self.held.append(held)

    def improve(self, objective: Objective, enough: float | None = None) -> float:
        """Solve and add cheaper graphs until there are none, or until y is at most `enough`. Returns y."""
        p = self.problem
        self.costs = p.costs(objective)
        inside = np.flatnonzero(self.column >= 0)
        self.model.set_cost(np.append(0, self.column[inside]), np.append(objective.y, self._extra_costs(inside)))
        while True:
            answer = self._solve()
            y = float(answer.values[0])
            prices = np.zeros(len(p.capacity))
            prices[self.used] = -answer.row_duals[: len(self.used)]
            self.objective, self.prices = answer.objective, prices
            costs = self.costs + sum((-answer.row_duals[held.row] * held.extra for held in self.held), np.zeros(1))
            totals = price_graphs(p.of_flow, p.ptr, p.rows, p.demand, p.unit, prices / p.capacity, costs)
            best = _find_cheapest(p.of_flow, totals)
            known = np.where((self.column >= 0) | (self.default[self.flow] == np.arange(len(totals))), totals, np.inf)
            least = np.minimum.reduceat(known, p.of_flow[:-1])
            fresh = best[totals[best] < least - CHEAPER * max(float(prices.sum()), float(np.abs(totals).max()))]
            if not len(fresh) or (enough is not None and y <= enough):
                self._read_solution(answer.values)
                return y
            self._add_columns(fresh)

    def _solve(self) -> LpSolution:
        """Solve the program. The value of an earlier stage may have been reached only within the solver's tolerance,
        and be out of reach for exact arithmetic; then the rows that hold such values give way."""
        slack = EQUAL
        while (answer := self.model.solve()) is None:
            assert slack < MAX_SLACK, "y is unbounded, or at least as high as found before"
            for held in self.held:
                self.model.bound_row(held.row, held.most + slack)
            slack *= 10
        return answer

    def _extra_costs(self, graphs: Longs) -> Floats:
        """How much more the graphs cost than the default graphs of their flows."""
        return np.asarray(self.costs[graphs] - self.costs[self.default[self.flow[graphs]]], dtype=np.float64)

    def _add_columns(self, graphs: Longs) -> None:
        p = self.problem
        before = 1 + int((self.column >= 0).sum())
        self.column[graphs] = before + np.arange(len(graphs), dtype=np.int32)
        ptr, index, value = _make_columns(
            graphs, self.flow, self.default, self.row, p.ptr, p.rows, p.demand, p.unit, p.capacity, self.place
        )
        self.model.add(self._extra_costs(graphs), ptr, index, value, upper=1.0)
        for held in self.held:
            for graph in graphs.tolist():
                self.model.set_value(held.row, int(self.column[graph]), float(held.extra[graph]))
        # A flow with a second column needs a row for both.
        inside = np.flatnonzero(self.column >= 0)
        several = np.bincount(self.flow[inside], minlength=len(self.default)) > 1
        anew = np.flatnonzero(several & (self.row < 0))
        members = inside[np.isin(self.flow[inside], anew)]
        self.row[anew] = self.model.row_count + np.arange(len(anew), dtype=np.int32)
        starts = np.searchsorted(self.flow[members], anew).astype(np.int32)
        self.model.add_rows(np.ones(len(anew)), starts, self.column[members], np.ones(len(members)))

    def _read_solution(self, values: Floats) -> None:
        inside = np.flatnonzero(self.column >= 0)
        self.shares = _select_one(self.problem, self.default)
        self.shares[inside] = values[self.column[inside]]
        assigned = np.bincount(self.flow[inside], weights=self.shares[inside], minlength=len(self.default))
        self.shares[self.default] = np.maximum(1 - assigned, 0.0)


def _multiplicative_weights(problem: Problem) -> tuple[Longs, Longs]:
    """The graph of each flow in the last round, and the graphs of all rounds. Prices follow the mean load so far."""
    rows = np.unique(problem.rows)
    prices = np.zeros(len(problem.capacity))
    prices[rows] = 1 / len(rows)
    nothing = np.zeros(len(problem.hops))
    chosen = np.zeros(len(problem.hops), dtype=bool)
    total = np.zeros(len(rows))
    for number in range(1, ROUNDS + 1):
        totals = price_graphs(
            problem.of_flow, problem.ptr, problem.rows, problem.demand, problem.unit, prices / problem.capacity, nothing
        )
        best = _find_cheapest(problem.of_flow, totals)
        chosen[best] = True
        total += (problem.loads(_select_one(problem, best)) / problem.capacity)[rows]
        steep = np.exp(EAGER * np.sqrt(number) * (total / (total.max() or 1.0) - 1))
        prices[rows] = steep / steep.sum()
    return best, np.flatnonzero(chosen)


def _select_one(problem: Problem, graphs: Longs) -> Floats:
    shares = np.zeros(len(problem.hops))
    shares[graphs] = 1.0
    return shares


@compiled
def price_graphs(
    of_flow: Longs, ptr: Longs, rows: Ints, demand: Floats, unit: Ints, prices: Floats, costs: Floats
) -> Floats:
    """The cost of each graph at these prices of the rows that it loads."""
    totals = np.empty(len(costs))
    for f in range(len(of_flow) - 1):
        for g in range(of_flow[f], of_flow[f + 1]):
            total = costs[g]
            for j in range(ptr[g], ptr[g + 1]):
                total += prices[rows[j]] * demand[unit[rows[j]], f]
            totals[g] = total
    return totals


@compiled
def _find_cheapest(of_flow: Longs, priced: Floats) -> Longs:
    """The cheapest graph of each flow; of several, the first."""
    cheapest = np.empty(len(of_flow) - 1, dtype=np.int64)
    for f in range(len(cheapest)):
        best = of_flow[f]
        for g in range(of_flow[f], of_flow[f + 1]):
            if priced[g] < priced[best]:
                best = g
        cheapest[f] = best
    return cheapest


@compiled
def _make_columns(
    graphs: Longs, flow: Longs, default: Longs, row: Ints, ptr: Longs, rows: Ints, demand: Floats, unit: Ints,
    capacity: Floats, place: Ints,
) -> tuple[Ints, Ints, Floats]:  # fmt: skip
    """A column for each of the graphs: how much more it loads each capacity than its flow's default graph."""
    size = 0
    for g in graphs:
        u = default[flow[g]]
        size += ptr[g + 1] - ptr[g] + ptr[u + 1] - ptr[u] + 1
    starts = np.zeros(len(graphs) + 1, dtype=np.int32)
    index = np.empty(size, dtype=np.int32)
    value = np.empty(size)
    count = np.zeros(len(place), dtype=np.int32)
    used = 0
    for i in range(len(graphs)):
        g, f = graphs[i], flow[graphs[i]]
        u = default[f]
        for j in range(ptr[g], ptr[g + 1]):
            count[rows[j]] += 1
        for j in range(ptr[u], ptr[u + 1]):
            count[rows[j]] -= 1
        for side in (g, u):
            for j in range(ptr[side], ptr[side + 1]):
                r = rows[j]
                if count[r]:
                    index[used] = place[r]
                    value[used] = count[r] * demand[unit[r], f] / capacity[r]
                    used += 1
                    count[r] = 0
        if row[f] >= 0:
            index[used] = row[f]
            value[used] = 1.0
            used += 1
        starts[i + 1] = used
    return starts, index[:used].copy(), value[:used].copy()
