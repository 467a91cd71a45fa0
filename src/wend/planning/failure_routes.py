"""Plans that survive the failure of any single link: for every failure, routes that avoid it within all capacities.

Routes after a failure are chosen before it. For each link the planner solves the balance problem on the network without
it. No choice of routes can promise less than the highest of these loads, `highest`. A failure should move few flows. So
the planner first moves only the flows that cross the failed link. If the load is then at most `highest`, that is the
plan for this failure; otherwise all flows may move.

The failure of a bridge cuts receivers off. They are left out of that failure's plan and counted.
"""

from typing import NamedTuple

import numpy as np

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.planning.arrays import Floats, Longs, offsets, owners
from wend.planning.delivery_graphs import DeliveryGraphs, Find, chosen, delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import FlowWorkload
from wend.planning.models import TIGHT, Solution, balance, least_usage
from wend.planning.problem import Problem, problem_of, rows_of
from wend.topology.underlay import components

SURVIVABLE = (0, 1)
"""How many links may fail at once."""


class RoutesAfterFailure(NamedTuple):
    """The routes of flows after the failure of one link."""

    a: PeerId
    b: PeerId
    flows: Longs
    """The flows that move."""
    graphs: DeliveryGraphs
    """The graphs in use of these flows, in the arcs of the whole network."""
    shares: Floats
    highest: float
    """The highest load of a link or peer."""
    cut: int
    """The receivers of flows that the failure cuts off."""


class _Failure(NamedTuple):
    """One failure, before its routes are chosen."""

    a: PeerId
    b: PeerId
    network: FlowNetwork
    arcs: Longs
    """The numbers of this network's arcs in the whole one."""
    flows: Longs
    """The flows that still have receivers."""
    workload: FlowWorkload
    graphs: DeliveryGraphs
    problem: Problem
    best: Solution
    """With the least load, if every flow may move."""
    cut: int


def routes_after_failures(
    network: FlowNetwork,
    workload: FlowWorkload,
    graphs: DeliveryGraphs,
    shares: Floats,
    k: int,
    find: Find,
) -> list[RoutesAfterFailure]:
    """The routes after each failure, by link, if `graphs` with `shares` are in use before. Raises `ConfigError` for a
    failure after which the workload does not fit."""
    failures = []
    for link in network.overlay.links:
        failure = _failure(network, workload, min(link.a, link.b), max(link.a, link.b), k, find)
        if failure.best.y > 1 + TIGHT:
            raise ConfigError(_overload(failure, k))
        failures.append(failure)
    highest = max((each.best.y for each in failures), default=0.0)
    routes = [_routes(each, workload, graphs, shares, highest) for each in failures]
    return sorted(routes, key=lambda each: (each.a, each.b))


def _failure(network: FlowNetwork, workload: FlowWorkload, a: PeerId, b: PeerId, k: int, find: Find) -> _Failure:
    left, arcs = network.without(a, b)
    flows, rest = _still_connected(left, workload, a, b)
    cut = len(workload.receivers) - len(rest.receivers)
    if not len(rest):
        no_arcs = np.zeros(0, dtype=np.int32)
        nothing = DeliveryGraphs(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), no_arcs, no_arcs)
        return _Failure(a, b, left, arcs, flows, rest, nothing, problem_of(left, rest, nothing), _NOTHING, cut)
    graphs = delivery_graphs(left, rest, k, find)
    problem = problem_of(left, rest, graphs)
    return _Failure(a, b, left, arcs, flows, rest, graphs, problem, balance(problem), cut)


_NOTHING = Solution(np.zeros(0), 0.0, 0.0, 0)


def _still_connected(left: FlowNetwork, workload: FlowWorkload, a: PeerId, b: PeerId) -> tuple[Longs, FlowWorkload]:
    """The flows without the receivers that their publisher no longer reaches, and their numbers."""
    _, side = components(left.peers, np.column_stack((left.graph.tail, left.graph.head)))
    if side[a] == side[b]:
        return np.arange(len(workload)), workload
    whose = owners(workload.ptr)
    kept = side[workload.receivers] == side[workload.publisher[whose]]
    flows = np.unique(whose[kept])
    return flows, workload.some(flows, kept)


def _routes(
    failure: _Failure, workload: FlowWorkload, graphs: DeliveryGraphs, shares: Floats, highest: float
) -> RoutesAfterFailure:
    local = _local(failure, workload, graphs, shares, highest)
    if local is not None:
        return local
    solution = least_usage(failure.problem, limit=failure.best.y * (1 + TIGHT)) or failure.best
    return _as_routes(failure, failure.flows, failure.graphs, solution)


def _local(
    failure: _Failure, workload: FlowWorkload, graphs: DeliveryGraphs, shares: Floats, highest: float
) -> RoutesAfterFailure | None:
    """Routes that move only flows across the failed link; None if a link or peer then has a load above `highest`."""
    back = np.full(len(graphs.arcs) and int(graphs.arcs.max()) + 1, -1, dtype=np.int64)
    known = failure.arcs[failure.arcs < len(back)]
    back[known] = np.arange(len(failure.arcs))[failure.arcs < len(back)]
    crossing = np.add.reduceat(back[graphs.arcs] < 0, graphs.ptr[:-1]) > 0
    of = owners(graphs.of_flow)
    moved = np.unique(of[crossing & (shares > 0)])
    stay = np.setdiff1d(np.arange(len(workload)), moved)
    unmoved = chosen(graphs, np.flatnonzero(np.isin(of, stay)))
    of_stay = offsets(np.diff(graphs.of_flow)[stay])
    some = unmoved._replace(of_flow=of_stay, arcs=back[unmoved.arcs].astype(np.int32))
    base = problem_of(failure.network, workload.some(stay), some).loads(shares[np.isin(of, stay)])
    mine = np.flatnonzero(np.isin(failure.flows, moved))
    picked = chosen(failure.graphs, np.flatnonzero(np.isin(owners(failure.graphs.of_flow), mine)))
    candidates = picked._replace(of_flow=offsets(np.diff(failure.graphs.of_flow)[mine]))
    problem = problem_of(failure.network, failure.workload.some(mine), candidates)._replace(base=base)
    limit = highest * (1 + TIGHT)
    if not len(mine):
        load = float((base / problem.capacity).max(initial=0.0))
        return _as_routes(failure, mine, candidates, Solution(np.zeros(0), load, 0.0, 0)) if load <= limit else None
    best = balance(problem)
    if best.y > limit:
        return None
    solution = least_usage(problem, limit=best.y * (1 + TIGHT)) or best
    return _as_routes(failure, failure.flows[mine], candidates, solution)


def _as_routes(failure: _Failure, flows: Longs, graphs: DeliveryGraphs, solution: Solution) -> RoutesAfterFailure:
    used = np.flatnonzero(solution.shares > 0)
    some = chosen(graphs, used)
    whole = some._replace(arcs=failure.arcs[some.arcs].astype(np.int32))
    return RoutesAfterFailure(failure.a, failure.b, flows, whole, solution.shares[used], solution.y, failure.cut)


def _overload(failure: _Failure, k: int) -> str:
    loads, names = failure.problem.loads(failure.best.shares), failure.network.names
    worst = int((loads / failure.problem.capacity).argmax())
    return (
        f"the workload does not survive the failure of link {names[failure.a]}-{names[failure.b]} with k = {k}: at "
        f"best, {rows_of(failure.network).overload(worst, float(loads[worst]), names)}"
    )
