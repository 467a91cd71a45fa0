"""Changes since a plan was made: its links, their capacities, its workload, and whether it still fits.

A plan states the workload and the capacities that it was made for, so no other memory is needed. The measures:

- workload: the rates that appeared or disappeared, as a share of all rates of the plan. A flow is identified by its
  publisher and receivers, so a flow with other receivers is a new one.
- links: the largest relative change of a capacity.
- load: the highest load that the plan would cause now, with the flows that it knows.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wend.model.plan import Plan
from wend.planning.arrays import TOLERANCE, Floats, Ints, Longs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import MESSAGES, FlowWorkload
from wend.planning.plan_check import compute_loads, highest_load
from wend.planning.route_choice import RunningGraphs

FULL = 1.0 + 1e-6


class PlanChanges(NamedTuple):
    """How much has changed, as shares."""

    topology: bool
    workload: float
    links: float
    load: float

    def reasons(self, noticeable: float) -> list[str]:
        """The reasons for a new plan, if changes above this share matter. Without a reason the plan can stay."""
        if self.topology:
            return ["the network has other links"]
        changes = []
        if self.workload > noticeable:
            changes.append(f"{100 * self.workload:.0f} % of the workload has changed")
        if self.links > noticeable:
            changes.append(f"the capacity of a link has changed by {100 * self.links:.0f} %")
        if self.load > FULL:
            changes.append(f"the plan would load a link or peer to {100 * self.load:.0f} %")
        return changes

    def __str__(self) -> str:
        shares = {"workload": self.workload, "links": self.links, "highest load": self.load}
        return ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())


def compare_plan(plan: Plan, network: FlowNetwork, workload: FlowWorkload) -> PlanChanges:
    """Compare a plan with the network and the workload of today."""
    if network.fingerprint != plan.head.topology:
        return PlanChanges(True, 0.0, 0.0, 0.0)
    before = _planned_rates(plan)
    now = _sum_rates(workload.publisher, workload.ptr, workload.receivers, workload.demand[MESSAGES])
    whole = sum(before.values())
    moved = sum(abs(now.get(flow, 0.0) - before.get(flow, 0.0)) for flow in before.keys() | now.keys())
    links = 0.0
    for unit, suffix in enumerate(("msgs", "bps")):
        for then, today in (
            (plan.arcs[f"capacity_{suffix}"], network.arc_capacity[unit]),
            (plan.peers[f"capacity_{suffix}"], network.peer_capacity[unit]),
        ):
            links = max(links, _largest_change(then, today))
    return PlanChanges(False, moved / whole if whole else float(bool(now)), links, _load_today(plan, network, now))


Flows = dict[tuple[int, tuple[int, ...]], float]
"""Publisher and receivers -> messages a second."""


def _sum_rates(publisher: Ints, ptr: Longs, receivers: Ints, rates: Floats) -> Flows:
    spans = pairwise(ptr.tolist())
    return {
        (source, tuple(receivers[first:last].tolist())): rate
        for source, (first, last), rate in zip(publisher.tolist(), spans, rates.tolist(), strict=True)
    }


class Moves(NamedTuple):
    """The flows that move from one plan to another, of those that both plans have."""

    flows: int
    """The flows whose routes or shares differ."""
    demand: float
    """The messages a second on other routes than before."""
    common: int
    """The flows of both plans."""


def count_moves(before: Plan, after: Plan) -> Moves:
    """How many flows move if one plan replaces another."""
    old, new = _used_routes(before), _used_routes(after)
    rates = _planned_rates(after)
    moved = {
        flow: sum(max(share - old[flow].get(tree, 0.0), 0.0) for tree, share in new[flow].items())
        for flow in old.keys() & new.keys()
    }
    many = sum(share > TOLERANCE for share in moved.values())
    return Moves(many, sum(rates[flow] * share for flow, share in moved.items()), len(moved))


def find_running_graphs(plan: Plan, network: FlowNetwork, workload: FlowWorkload) -> RunningGraphs:
    """The graphs that a plan has for each flow of the workload, as far as their links are still there."""
    graph = network.graph
    arcs = {ends: arc for arc, ends in enumerate(zip(graph.tail.tolist(), graph.head.tolist(), strict=True))}
    routes = _used_routes(plan) if plan.head.peers == network.peers else {}
    running: RunningGraphs = []
    for flow in _sum_rates(workload.publisher, workload.ptr, workload.receivers, workload.demand[MESSAGES]):
        own = [(tree, share) for tree, share in routes.get(flow, {}).items() if _has_all_receivers(tree, flow[1])]
        running.append(
            [
                (np.array([arcs[ends] for ends in _sort_from_root(tree, flow[0])], dtype=np.int32), 1, share)
                for tree, share in own
                if all(ends in arcs for ends in tree)
            ]
        )
    return running


Tree = frozenset[tuple[int, int]]


def _used_routes(plan: Plan) -> dict[tuple[int, tuple[int, ...]], dict[Tree, float]]:
    """For each flow, by publisher and receivers, the share of each of its trees in use."""
    hops: list[list[tuple[int, int]]] = [[] for _ in range(plan.head.graphs)]
    columns = (plan.hops[name].tolist() for name in ("graph", "peer", "next"))
    for number, peer, following in zip(*columns, strict=True):
        hops[number].append((peer, following))
    flows = list(_planned_rates(plan))
    routes: dict[tuple[int, tuple[int, ...]], dict[Tree, float]] = {flow: {} for flow in flows}
    for number, (flow, share) in enumerate(
        zip(plan.graphs["flow"].tolist(), plan.graphs["share"].tolist(), strict=True)
    ):
        if share > 0:
            routes[flows[flow]][frozenset(hops[number])] = share
    return routes


def _has_all_receivers(tree: Tree, receivers: tuple[int, ...]) -> bool:
    return {head for _, head in tree}.issuperset(receivers)


def _sort_from_root(tree: Tree, root: int) -> list[tuple[int, int]]:
    """The arcs of a tree, each after its predecessor."""
    following: dict[int, list[int]] = {}
    for tail, head in sorted(tree):
        following.setdefault(tail, []).append(head)
    ordered: list[tuple[int, int]] = []
    waiting = [root]
    while waiting:
        here = waiting.pop()
        ordered += [(here, there) for there in following.get(here, ())]
        waiting += following.get(here, ())
    return ordered


def _planned_rates(plan: Plan) -> Flows:
    flows = plan.flows
    return _sum_rates(flows["publisher"], flows["receivers_ptr"], flows["receivers"], flows["rate_msgs"])


def _largest_change(then: np.ndarray, today: np.ndarray) -> float:
    both = np.isfinite(then) & np.isfinite(today)
    if (np.isfinite(then) != np.isfinite(today)).any():
        return 1.0
    return float((np.abs(today[both] - then[both]) / then[both]).max(initial=0.0))


def _load_today(plan: Plan, network: FlowNetwork, now: Flows) -> float:
    """The highest load of the plan at today's rates of its flows."""
    factor = np.array([now.get(flow, 0.0) / rate if rate else 0.0 for flow, rate in _planned_rates(plan).items()])
    loads = compute_loads(plan, plan.graphs["share"] * factor[plan.graphs["flow"]])
    return highest_load(plan, loads, network.arc_capacity, network.peer_capacity)
