"""Reductions of a problem that preserve its optimum:

- drop a row that stays within its limit for every choice;
- if all graphs of a flow load a row, treat that load as a constant;
- drop a graph that loads all rows of another graph and does not cost less, by the objectives in their order;
- merge flows whose remaining graphs load the same rows at the same costs.

Each reduction enables others, so they repeat until nothing changes. Hardly anything remains of popular messages: most
peers receive most of them on any route.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wend.model.compiled import compiled
from wend.planning.arrays import Flags, Floats, Ints, Longs
from wend.planning.flow_workload import MESSAGES
from wend.planning.problem import Objective, Problem

SLACK = 1e-12


class ReducedProblem(NamedTuple):
    """A smaller problem, and the mapping back to the original one."""

    problem: Problem
    graphs: Longs
    """The remaining graphs, by their numbers in the original problem; flow by flow, before merging."""
    of_flow: Longs
    """For every flow of the original problem the span of its graphs in `graphs`."""
    choice: Longs
    """For each of `graphs` the graph of the merged problem whose share it has. -1 if it is its flow's only graph, with
    share 1."""

    def shares(self, original: Problem, merged: Floats) -> Floats:
        """The shares of the original problem's graphs, from those of the merged problem."""
        shares = np.zeros(len(original.hops))
        shares[self.graphs] = np.where(self.choice >= 0, merged[self.choice] if len(merged) else 0.0, 1.0)
        return shares


def reduce_problem(problem: Problem, *, limit: float | None, objectives: Sequence[Objective] = ()) -> ReducedProblem:
    """Reduce a problem. `limit` is the highest allowed utilisation; with None the solver minimises it, and constant
    loads bound it from below. Without objectives, loads alone matter."""
    priced, ranks = len(objectives) > 0, problem.ranks(objectives)
    flows = len(problem.of_flow) - 1
    graphs = np.arange(len(problem.hops), dtype=np.int64)
    of_flow, ptr, rows = problem.of_flow, problem.ptr, problem.rows
    base = problem.base.copy()
    while True:
        low = float((base / problem.capacity).max(initial=0.0)) if limit is None else limit
        most = base + _highest_possible_loads(of_flow, ptr, rows, problem.demand, problem.unit)
        kept = most > (low + SLACK) * problem.capacity
        before = (len(graphs), len(rows))
        of_flow, ptr, rows, places = _reduce_once(
            of_flow, ptr, rows, ranks[graphs], problem.demand, problem.unit, kept, base, priced
        )
        graphs = graphs[places]
        if (len(graphs), len(rows)) == before:
            break
    extra, least = [], []
    for each in (problem.hops, problem.delay, problem.moved, problem.late):
        lowest = np.minimum.reduceat(each[graphs], of_flow[:-1]) if flows else np.zeros(0)
        extra.append((each[graphs] - np.repeat(lowest, np.diff(of_flow))).round(12))
        least.append(lowest)
    merged, choice = _merge_flows(problem, of_flow, ptr, rows, np.array(extra), priced)
    messages = problem.demand[MESSAGES]
    constant = Objective(
        problem.constant.usage + float(least[0] @ problem.demand[problem.usage_unit]),
        problem.constant.delay + float(least[1] @ messages),
        problem.constant.moved + float(least[2] @ messages),
        problem.constant.late + float(least[3] @ messages),
    )
    return ReducedProblem(merged._replace(base=base, constant=constant), graphs, of_flow, choice)


@compiled
def _highest_possible_loads(of_flow: Longs, ptr: Longs, rows: Ints, demand: Floats, unit: Ints) -> Floats:
    """The highest possible load of each row beyond its base."""
    most = np.zeros(len(unit))
    last = np.full(len(unit), -1, dtype=np.int64)
    for f in range(len(of_flow) - 1):
        for j in range(ptr[of_flow[f]], ptr[of_flow[f + 1]]):
            if last[rows[j]] != f:
                last[rows[j]] = f
                most[rows[j]] += demand[unit[rows[j]], f]
    return most


@compiled
def _has_better(
    a: int, begin: int, choices: int, ptr: Longs, rows: Ints, ranks: Floats, places: Longs, keep: Flags, mark: Longs,
    stamp: int, priced: bool,
) -> bool:  # fmt: skip
    """Whether a kept graph of the flow makes graph `a` superfluous: it loads only rows of `a`, and does not rank behind
    it. Of two graphs that load the same rows the one of lower rank stays; of equal ones the first."""
    long = begin + a
    for j in range(ptr[long], ptr[long + 1]):
        mark[rows[j]] = stamp
    room = ptr[long + 1] - ptr[long]
    for b in range(choices):
        short = begin + b
        size = ptr[short + 1] - ptr[short]
        if a == b or not keep[b] or size > room:
            continue
        extra = ranks[places[short]] - ranks[places[long]]
        if (priced and extra > 0) or (size == room and (extra > 0 or (extra == 0 and b > a))):
            continue
        j = ptr[short]
        while j < ptr[short + 1] and mark[rows[j]] == stamp:
            j += 1
        if j == ptr[short + 1]:
            return True
    return False


@compiled
def _reduce_once(
    of_flow: Longs, ptr: Longs, rows: Ints, ranks: Floats, demand: Floats, unit: Ints, binding: Flags, base: Floats,
    priced: bool,
) -> tuple[Longs, Longs, Ints, Longs]:  # fmt: skip
    """One round: drop rows that cannot bind, move common rows to `base`, drop dominated graphs."""
    flows = len(of_flow) - 1
    out_flow = np.zeros(flows + 1, dtype=np.int64)
    out_ptr = np.zeros(len(ranks) + 1, dtype=np.int64)
    out_rows = np.empty(len(rows), dtype=np.int32)
    places = np.empty(len(ranks), dtype=np.int64)
    count = np.zeros(len(unit), dtype=np.int32)
    mark = np.full(len(unit), -1, dtype=np.int64)
    used, graphs = 0, 0
    for f in range(flows):
        first, last = of_flow[f], of_flow[f + 1]
        choices = last - first
        for j in range(ptr[first], ptr[last]):
            count[rows[j]] += 1
        begin = graphs
        for g in range(first, last):
            for j in range(ptr[g], ptr[g + 1]):
                if binding[rows[j]] and count[rows[j]] < choices:
                    out_rows[used] = rows[j]
                    used += 1
            places[graphs] = g
            graphs += 1
            out_ptr[graphs] = used
        for j in range(ptr[first], ptr[last]):
            row = rows[j]
            if count[row] == choices:
                base[row] += demand[unit[row], f]
            count[row] = 0
        keep = np.ones(choices, dtype=np.bool_)
        for a in range(choices):
            keep[a] = not _has_better(
                a, begin, choices, out_ptr, out_rows, ranks, places, keep, mark, first + a, priced
            )
        used, graphs = out_ptr[begin], begin
        for a in range(choices):
            if keep[a]:
                start, end = out_ptr[begin + a], out_ptr[begin + a + 1]
                for j in range(start, end):
                    out_rows[used + j - start] = out_rows[j]
                used += end - start
                places[graphs] = places[begin + a]
                graphs += 1
                out_ptr[graphs] = used
        out_flow[f + 1] = graphs
    return out_flow, out_ptr[: graphs + 1].copy(), out_rows[:used].copy(), places[:graphs].copy()


def _merge_flows(
    problem: Problem, of_flow: Longs, ptr: Longs, rows: Ints, extra: Floats, priced: bool
) -> tuple[Problem, Longs]:
    """Merge equal flows, and drop flows that have only one graph. `extra` is what a graph has more than its flow must:
    hops, delay, moved demand and late receivers."""
    both = priced or len(np.unique(problem.unit)) > 1
    ratio = problem.demand[1] / problem.demand[0] if both else np.zeros(problem.demand.shape[1])
    kind = (
        np.unique(extra, axis=1, return_inverse=True)[1].ravel().astype(float) if priced else np.zeros(extra.shape[1])
    )
    order, key = _sort_keys(of_flow, ptr, rows, kind, len(problem.unit))
    sizes = np.diff(of_flow)
    groups: dict[tuple[float, bytes], int] = {}
    choice = np.full(len(kind), -1, dtype=np.int64)
    firsts: list[int] = []
    starts: list[int] = [0]
    member = np.full(len(sizes), -1, dtype=np.int64)
    for f in np.flatnonzero(sizes > 1).tolist():
        first, last = of_flow[f], of_flow[f + 1]
        name = (float(ratio[f]), key[ptr[first] + first : ptr[last] + last].tobytes())
        group = groups.setdefault(name, len(firsts))
        if group == len(firsts):
            firsts.append(f)
            starts.append(starts[-1] + int(last - first))
        member[f] = group
        choice[order[first:last]] = starts[group] + np.arange(last - first)
    chosen = np.array([g for f in firsts for g in order[of_flow[f] : of_flow[f + 1]]], dtype=np.int64)
    inside = member >= 0
    demand = np.array([np.bincount(member[inside], weights=d[inside], minlength=len(firsts)) for d in problem.demand])
    lengths = np.diff(ptr)[chosen] if len(chosen) else np.zeros(0, dtype=np.int64)
    pieces = [rows[ptr[g] : ptr[g + 1]] for g in chosen.tolist()]
    merged = problem._replace(
        of_flow=np.array(starts, dtype=np.int64),
        ptr=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        rows=np.concatenate([*pieces, np.zeros(0, dtype=np.int32)]),
        hops=extra[0][chosen],
        delay=extra[1][chosen],
        moved=extra[2][chosen],
        late=extra[3][chosen],
        demand=demand.reshape(2, len(firsts)),
    )
    return merged, choice


@compiled
def _sort_keys(of_flow: Longs, ptr: Longs, rows: Ints, kind: Floats, none: int) -> tuple[Longs, Longs]:
    """The graphs of each flow in an order that depends only on their content, and this content as a run of numbers: for
    each graph the kind of its costs, negative, then its rows, ascending."""
    order = np.arange(len(kind), dtype=np.int64)
    key = np.empty(len(rows) + len(kind), dtype=np.int64)
    for f in range(len(of_flow) - 1):
        first, last = of_flow[f], of_flow[f + 1]
        for g in range(first, last):
            rows[ptr[g] : ptr[g + 1]].sort()
        for i in range(first + 1, last):
            j = i
            while j > first and _is_before(ptr, rows, kind, order[j], order[j - 1]):
                order[j], order[j - 1] = order[j - 1], order[j]
                j -= 1
        at = ptr[first] + first
        for i in range(first, last):
            g = order[i]
            key[at] = -1 - np.int64(kind[g])
            at += 1
            for j in range(ptr[g], ptr[g + 1]):
                key[at] = rows[j]
                at += 1
    return order, key


@compiled
def _is_before(ptr: Longs, rows: Ints, kind: Floats, a: int, b: int) -> bool:
    """Whether graph a comes before b: by the kind of their costs, then the one with fewer rows, then by rows."""
    if kind[a] != kind[b]:
        return bool(kind[a] < kind[b])
    sizes = ptr[a + 1] - ptr[a], ptr[b + 1] - ptr[b]
    if sizes[0] != sizes[1]:
        return bool(sizes[0] < sizes[1])
    for i in range(sizes[0]):
        if rows[ptr[a] + i] != rows[ptr[b] + i]:
            return bool(rows[ptr[a] + i] < rows[ptr[b] + i])
    return False
