"""Plans that survive the failure of any single link: for every failure, routes that avoid it within all capacities.

Routes after a failure are chosen before it. For each link the planner solves the balance problem on the network without
it. No choice of routes can promise less than the highest of these loads. A failure should move few flows. So the
planner first moves only the flows that cross the failed link. If the load is then at most the highest one, that is the
plan for this failure; otherwise all flows may move.

A failure needs the network and the plan in use, and nothing of the other failures but that highest load. So each is
analysed on its own (`analyse_failure`), here or by another process (`wend.pipeline.failures_job`). Few failures need
the second step (`move_all_flows`).

The failure of a bridge cuts receivers off. They are left out of that failure's plan and counted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.planning.arrays import Floats, Longs, run_numbers, run_offsets
from wend.planning.delivery_graphs import DeliveryGraphs, make_delivery_graphs, select_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import FlowWorkload
from wend.planning.models import TIGHT, Solution, balance, minimise_usage
from wend.planning.path_ranking import find_ranking
from wend.planning.problem import Problem, make_capacity_rows, make_problem
from wend.topology.underlay import find_components

SURVIVABLE = (0, 1)
"""How many links may fail at once."""
MAX_HELD_BYTES = 2**28
"""The most memory for the problems of failures that may need the second step. Others are made again."""

Link = tuple[PeerId, PeerId]


class RoutesInUse(NamedTuple):
    """The routes of a plan while nothing fails, and what its planner knows."""

    network: FlowNetwork
    workload: FlowWorkload
    graphs: DeliveryGraphs
    shares: Floats
    k: int
    ranking: str

    @property
    def links(self) -> list[Link]:
        """The links that may fail, each with its lower end first."""
        return [(min(link.a, link.b), max(link.a, link.b)) for link in self.network.overlay.links]


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


class FailureAnalysis(NamedTuple):
    """The failure of one link, considered alone."""

    least: float
    """The highest load if every flow may move."""
    local_least: float
    """The highest load if only the flows across the link move."""
    local: RoutesAfterFailure
    """The routes if only these move."""


FailurePlanner = Callable[[RoutesInUse], list[RoutesAfterFailure]]


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

    @property
    def bytes(self) -> int:
        """About the memory of this failure."""
        return int(self.graphs.arcs.nbytes + self.problem.rows.nbytes + 8 * len(self.problem.hops))


def routes_after_failures(in_use: RoutesInUse) -> list[RoutesAfterFailure]:
    """The routes after each failure, by link. Raises `ConfigError` for a failure after which the workload does not
    fit."""
    held: dict[Link, _Failure] = {}
    room = MAX_HELD_BYTES

    def analyse() -> Iterator[FailureAnalysis]:
        nonlocal room
        for link in in_use.links:
            failure = _make_failure(in_use, link)
            analysis = _analyse_failure(failure, in_use)
            if analysis.local_least > analysis.least * (1 + TIGHT) and failure.bytes <= room:
                held[link] = failure
                room -= failure.bytes
            yield analysis

    def move_all(links: Sequence[Link]) -> Iterator[RoutesAfterFailure]:
        for link in links:
            yield _move_all_flows(held.pop(link) if link in held else _make_failure(in_use, link))

    return combine_failures(analyse(), move_all)


def combine_failures(
    analyses: Iterable[FailureAnalysis], move_all: Callable[[Sequence[Link]], Iterable[RoutesAfterFailure]]
) -> list[RoutesAfterFailure]:
    """The routes after each failure, by link, from the analyses of all failures. `move_all` gives routes for failures
    after which all flows may move."""
    found = list(analyses)
    highest = max((each.least for each in found), default=0.0)
    limit = highest * (1 + TIGHT)
    local = [each.local for each in found if each.local_least <= limit]
    others = [(each.local.a, each.local.b) for each in found if each.local_least > limit]
    return sorted((*local, *move_all(others)), key=lambda each: (each.a, each.b))


def analyse_failure(in_use: RoutesInUse, link: Link) -> FailureAnalysis:
    """Consider the failure of one link. Raises `ConfigError` if the workload does not fit after it."""
    return _analyse_failure(_make_failure(in_use, link), in_use)


def move_all_flows(in_use: RoutesInUse, link: Link) -> RoutesAfterFailure:
    """The routes after a failure if all flows may move: of those with the least load, the ones with the least usage."""
    return _move_all_flows(_make_failure(in_use, link))


def _make_failure(in_use: RoutesInUse, link: Link) -> _Failure:
    network, workload, k = in_use.network, in_use.workload, in_use.k
    a, b = link
    left, arcs = network.remove_link(a, b)
    flows, rest = _drop_cut_off(left, workload, a, b)
    cut = len(workload.receivers) - len(rest.receivers)
    if not len(rest):
        no_arcs = np.zeros(0, dtype=np.int32)
        nothing = DeliveryGraphs(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), no_arcs, no_arcs)
        return _Failure(a, b, left, arcs, flows, rest, nothing, make_problem(left, rest, nothing), _NOTHING, cut)
    graphs = make_delivery_graphs(left, rest, k, find_ranking(in_use.ranking))
    problem = make_problem(left, rest, graphs)
    return _Failure(a, b, left, arcs, flows, rest, graphs, problem, balance(problem), cut)


_NOTHING = Solution(np.zeros(0), 0.0, 0.0, 0)


def _drop_cut_off(left: FlowNetwork, workload: FlowWorkload, a: PeerId, b: PeerId) -> tuple[Longs, FlowWorkload]:
    """The flows without the receivers that their publisher no longer reaches, and their numbers."""
    _, side = find_components(left.peers, np.column_stack((left.graph.tail, left.graph.head)))
    if side[a] == side[b]:
        return np.arange(len(workload)), workload
    whose = run_numbers(workload.ptr)
    kept = side[workload.receivers] == side[workload.publisher[whose]]
    flows = np.unique(whose[kept])
    return flows, workload.select_flows(flows, kept)


def _analyse_failure(failure: _Failure, in_use: RoutesInUse) -> FailureAnalysis:
    if failure.best.y > 1 + TIGHT:
        raise ConfigError(_overload_sentence(failure, in_use.k))
    least, routes = _move_crossing_flows(failure, in_use)
    return FailureAnalysis(failure.best.y, least, routes)


def _move_all_flows(failure: _Failure) -> RoutesAfterFailure:
    solution = minimise_usage(failure.problem, limit=failure.best.y * (1 + TIGHT)) or failure.best
    return _make_routes(failure, failure.flows, failure.graphs, solution)


def _move_crossing_flows(failure: _Failure, in_use: RoutesInUse) -> tuple[float, RoutesAfterFailure]:
    """Routes that move only flows across the failed link, and the least load of such routes."""
    workload, graphs, shares = in_use.workload, in_use.graphs, in_use.shares
    back = np.full(len(graphs.arcs) and int(graphs.arcs.max()) + 1, -1, dtype=np.int64)
    known = failure.arcs[failure.arcs < len(back)]
    back[known] = np.arange(len(failure.arcs))[failure.arcs < len(back)]
    crossing = np.add.reduceat(back[graphs.arcs] < 0, graphs.ptr[:-1]) > 0
    of = run_numbers(graphs.of_flow)
    moved = np.unique(of[crossing & (shares > 0)])
    stay = np.setdiff1d(np.arange(len(workload)), moved)
    unmoved = select_graphs(graphs, np.flatnonzero(np.isin(of, stay)))
    of_stay = run_offsets(np.diff(graphs.of_flow)[stay])
    some = unmoved._replace(of_flow=of_stay, arcs=back[unmoved.arcs].astype(np.int32))
    base = make_problem(failure.network, workload.select_flows(stay), some).loads(shares[np.isin(of, stay)])
    mine = np.flatnonzero(np.isin(failure.flows, moved))
    picked = select_graphs(failure.graphs, np.flatnonzero(np.isin(run_numbers(failure.graphs.of_flow), mine)))
    candidates = picked._replace(of_flow=run_offsets(np.diff(failure.graphs.of_flow)[mine]))
    problem = make_problem(failure.network, failure.workload.select_flows(mine), candidates)._replace(base=base)
    if not len(mine):
        load = float((base / problem.capacity).max(initial=0.0))
        return load, _make_routes(failure, mine, candidates, Solution(np.zeros(0), load, 0.0, 0))
    best = balance(problem)
    fits = best.y <= (1 + TIGHT) ** 2
    solution = (minimise_usage(problem, limit=best.y * (1 + TIGHT)) if fits else None) or best
    return best.y, _make_routes(failure, failure.flows[mine], candidates, solution)


def _make_routes(failure: _Failure, flows: Longs, graphs: DeliveryGraphs, solution: Solution) -> RoutesAfterFailure:
    used = np.flatnonzero(solution.shares > 0)
    some = select_graphs(graphs, used)
    whole = some._replace(arcs=failure.arcs[some.arcs].astype(np.int32))
    return RoutesAfterFailure(failure.a, failure.b, flows, whole, solution.shares[used], solution.y, failure.cut)


def _overload_sentence(failure: _Failure, k: int) -> str:
    loads, names = failure.problem.loads(failure.best.shares), failure.network.names
    worst = int((loads / failure.problem.capacity).argmax())
    return (
        f"the workload does not survive the failure of link {names[failure.a]}-{names[failure.b]} with k = {k}: at "
        f"best, {make_capacity_rows(failure.network).overload(worst, float(loads[worst]), names)}"
    )
