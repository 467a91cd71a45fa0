"""The choice of routes: candidate graphs, the least k with which the workload fits, and the shares of the graphs.

A plan that follows a running one has the graphs of that one as further candidates. For each of them its part of the
flow is a flow of its own here, which moves if it leaves its graph. So the moved demand is linear, and a flow with
several graphs may move in part.
"""

from math import inf
from typing import NamedTuple

import numpy as np

from wend.model.errors import ConfigError
from wend.planning.arrays import TOLERANCE, Floats, Ints, Longs, run_numbers, run_offsets
from wend.planning.candidate_paths import CandidatePaths, PathSearch
from wend.planning.delivery_graphs import (
    DeliveryGraphs,
    Find,
    arcs_key,
    find_least_late,
    gather,
    make_delivery_graphs,
    select_graphs,
    unite_graphs,
)
from wend.planning.flow_network import CsrGraph, FlowNetwork
from wend.planning.flow_workload import FlowWorkload
from wend.planning.graph_delays import compute_graph_delays
from wend.planning.models import LATE, Goal, balance, solve
from wend.planning.path_ranking import BOTTLENECK_DISJOINT
from wend.planning.path_ranking import find_ranking as ranking_of
from wend.planning.priced_trees import add_priced_trees
from wend.planning.problem import Problem, make_problem

MAX_K = 100
"""The highest k that `--k auto` tries, as in the thesis (section 3.2)."""

RunningGraphs = list[list[tuple[Ints, int, float]]]
"""For each flow the arcs, levels and shares of its graphs in the running plan."""


class Allocation(NamedTuple):
    """The delivery graphs in use, and the share of its flow that each carries."""

    graphs: DeliveryGraphs
    shares: Floats


class Candidates(NamedTuple):
    """The graphs that a plan may use, and the shortest-path tree of each flow."""

    graphs: DeliveryGraphs
    single: DeliveryGraphs
    problem: Problem
    k: int
    max_load: float
    """The highest load that the plan may have."""


class Choice(NamedTuple):
    candidates: Candidates
    used: Allocation | None
    """None if the workload does not fit."""


def choose_routes(
    network: FlowNetwork,
    workload: FlowWorkload,
    goal: Goal,
    k: int | None,
    *,
    ranking: str = BOTTLENECK_DISJOINT,
    max_load: float = 1.0,
    room: float = inf,
    running: RunningGraphs | None = None,
    find: Find | None = None,
) -> Choice:
    """The best shares of the candidates of this k; with None, of the least k with which the workload fits. No load is
    above `max_load`, nor above `room` times that of the balanced plan without deadlines. `find` gives the same paths as
    the ranking."""
    limit = LoadLimit(max_load, room)
    if k is not None:
        made = make_candidates(network, workload, goal, k, find or ranking_of(ranking), limit, running)
        return Choice(made, _choose_allocation(made, goal, running))
    counter = _PathCounter(find or (PathSearch() if ranking == BOTTLENECK_DISJOINT else ranking_of(ranking)))
    for least in range(1, MAX_K + 1):
        made = make_candidates(network, workload, goal, least, counter.find, limit, running)
        used = _choose_allocation(made, goal, running)
        if used is not None or counter.most < least:
            break  # it fits, or no receiver has a further path
    return Choice(made, used)


class _PathCounter:
    """Records the most paths to a receiver in the last search."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._k = 0
        self.most = 0

    def find(self, graph: CsrGraph, source: int, receivers: Ints, k: int) -> CandidatePaths:
        paths = self._find(graph, source, receivers, k)
        if k != self._k:
            self._k, self.most = k, 0
        self.most = max(self.most, int(np.diff(paths.first).max(initial=0)))
        return paths


class LoadLimit(NamedTuple):
    """How high loads may be: as a share of capacities, and as a multiple of the load of the balanced plan."""

    share: float = 1.0
    multiple: float = inf


NO_LIMIT = LoadLimit()


def parse_load_limit(text: str) -> LoadLimit:
    """Parse a share of capacities (0.8), or a multiple of the load of the balanced plan (1.1x)."""
    try:
        limit = LoadLimit(multiple=float(text[:-1])) if text.endswith("x") else LoadLimit(float(text))
    except ValueError:
        raise ConfigError(
            f"the highest load must be a share such as 0.8, or a multiple such as 1.1x, got {text!r}"
        ) from None
    check_limits(None, *limit)
    return limit


def make_candidates(
    network: FlowNetwork,
    workload: FlowWorkload,
    goal: Goal,
    k: int,
    find: Find,
    limit: LoadLimit = NO_LIMIT,
    running: RunningGraphs | None = None,
) -> Candidates:
    """The graphs of each flow that are late for the fewest receivers, with those of a running plan: first on idle
    links, then with some waiting. For the goal `on-time` late graphs are candidates, too, and priced trees."""
    graphs = make_delivery_graphs(network, workload, k, find)
    single = select_graphs(graphs, graphs.of_flow[:-1])
    has_deadlines = bool(np.isfinite(workload.deadline).any())
    max_load = limit.share
    if has_deadlines and (goal.kind == "on-time" or limit.multiple < inf):
        unhurried = make_delivery_graphs(network, workload.without_deadlines(), k, find)
    else:
        unhurried = graphs
    if limit.multiple < inf:
        max_load = min(max_load, limit.multiple * balance(make_problem(network, workload, unhurried)).y)
    if goal.kind == "on-time":
        graphs = unite_graphs(unhurried, graphs)
    if running is not None:
        graphs = unite_graphs(graphs, _collect_graphs(running))
    if goal.kind == "on-time":
        graphs = add_priced_trees(network, workload, graphs, LATE, max_load)
    elif has_deadlines:
        for waits in (False, True):
            delays = compute_graph_delays(network, workload, graphs.of_flow, graphs.ptr, graphs.arcs)
            late = delays.late_if_waiting if waits else delays.late
            graphs = select_graphs(graphs, np.flatnonzero(find_least_late(graphs, late)))
    return Candidates(graphs, single, make_problem(network, workload, graphs), k, max_load)


def _collect_graphs(running: RunningGraphs) -> DeliveryGraphs:
    each = [graph for own in running for graph in own]
    return DeliveryGraphs(
        run_offsets([len(own) for own in running]),
        run_offsets([len(arcs) for arcs, *_ in each]),
        np.concatenate([np.zeros(0, dtype=np.int32), *(arcs for arcs, *_ in each)]).astype(np.int32),
        np.array([level for _, level, _ in each], dtype=np.int32),
    )


def _choose_allocation(made: Candidates, goal: Goal, running: RunningGraphs | None) -> Allocation | None:
    if running is None:
        solution = solve(made.problem, goal, most=made.max_load)
        shares = None if solution is None else solution.shares
    else:
        shares = _shares_near_running(made, goal, running)
    return None if shares is None else make_allocation(made.graphs, shares)


def make_allocation(graphs: DeliveryGraphs, shares: Floats) -> Allocation:
    return Allocation(select_graphs(graphs, np.flatnonzero(shares > 0)), shares[shares > 0])


# ---------------------------------------------------------------- a running plan


class _SubFlows(NamedTuple):
    """The parts of flows: for each its flow, its share of the flow, and its graph in the running plan or -1."""

    flow: Longs
    share: Floats
    graph: Longs


def _split_flows(graphs: DeliveryGraphs, running: RunningGraphs) -> _SubFlows:
    rows: list[tuple[int, float, int]] = []
    for flow, own in enumerate(running):
        first, last = int(graphs.of_flow[flow]), int(graphs.of_flow[flow + 1])
        numbers = {arcs_key(graphs.arcs[graphs.ptr[g] : graphs.ptr[g + 1]]): g for g in range(first, last)}
        mine = [(flow, share, numbers[arcs_key(tree)]) for tree, _, share in own if arcs_key(tree) in numbers]
        whole = sum(share for _, share, _ in mine)
        if whole > 1 - TOLERANCE:
            rows += [(flow, share / whole, graph) for _, share, graph in mine]
        else:
            rows += [*mine, (flow, 1 - whole, -1)]
    flows, shares, numbers_of = zip(*rows, strict=True)
    return _SubFlows(np.array(flows, dtype=np.int64), np.array(shares), np.array(numbers_of, dtype=np.int64))


def _shares_near_running(made: Candidates, goal: Goal, running: RunningGraphs) -> Floats | None:
    """The shares of a plan that moves as little as the goal allows."""
    problem, graphs = made.problem, made.graphs
    subs = _split_flows(graphs, running)
    of_sub = run_offsets(np.diff(graphs.of_flow)[subs.flow])
    numbers = np.arange(of_sub[-1]) + np.repeat(graphs.of_flow[subs.flow] - of_sub[:-1], np.diff(of_sub))
    whose = run_numbers(of_sub)
    ptr = run_offsets(np.diff(problem.ptr)[numbers])
    split = problem._replace(
        of_flow=of_sub,
        ptr=ptr,
        rows=gather(problem.ptr, problem.rows, numbers, ptr),
        hops=problem.hops[numbers],
        delay=problem.delay[numbers],
        moved=((subs.graph[whose] >= 0) & (subs.graph[whose] != numbers)).astype(float),
        late=problem.late[numbers],
        demand=problem.demand[:, subs.flow] * subs.share,
    )
    solution = solve(split, goal, most=made.max_load, stays=True)
    if solution is None:
        return None
    weights = solution.shares * subs.share[whose]
    return np.asarray(np.bincount(numbers, weights=weights, minlength=len(problem.hops)), dtype=np.float64)


def check_limits(k: int | None, max_load: float, room: float = inf) -> None:
    if k is not None and k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    if not 0 < max_load <= 1:
        raise ConfigError(f"the highest load must be above 0 and at most 1, got {max_load:g}")
    if not room >= 1:
        raise ConfigError(f"the highest load must be at least 1x that of the balanced plan, got {room:g}x")
