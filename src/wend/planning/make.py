"""Making a plan from a network and a workload: paths, delivery graphs, linear program, forwarding tables."""

from typing import Any, NamedTuple

import numpy as np

from wend.model.compiled import compiled
from wend.model.errors import ConfigError
from wend.model.plan import Plan, PlanHeader
from wend.planning.arrays import TOLERANCE, Floats, Ints, Longs, tidy
from wend.planning.graphs import DeliveryGraphs, chosen, delivery_graphs
from wend.planning.models import Goal, balance, solve
from wend.planning.network import FlowNetwork
from wend.planning.partial import most_valuable
from wend.planning.problem import Problem, problem_of, rows_of
from wend.planning.ranking import ranking as ranking_of
from wend.planning.reduce import reduce
from wend.planning.workload import BITS, MESSAGES, FlowWorkload

UNITS = ("msg/s", "bit/s")
SUFFIX = ("msgs", "bps")


class Allocation(NamedTuple):
    """The delivery graphs in use, and the share of its flow that each carries."""

    graphs: DeliveryGraphs
    shares: Floats


def make_plan(
    network: FlowNetwork,
    workload: FlowWorkload,
    goal: Goal,
    k: int,
    *,
    ranking: str = "bottleneck-disjoint",
    partial: bool = False,
) -> Plan:
    """A plan that carries all flows. If there is none: an error, or with `partial` the most valuable part that fits."""
    graphs = delivery_graphs(network, workload, k, ranking_of(ranking))
    problem = problem_of(network, workload, graphs)
    found = solve(problem, goal)
    if found is not None:
        used = Allocation(chosen(graphs, np.flatnonzero(found.shares > 0)), found.shares[found.shares > 0])
    elif partial:
        part = most_valuable(network, workload, graphs)
        used = Allocation(part.graphs, part.shares)
    else:
        raise ConfigError(_does_not_fit(network, problem, k))
    single = chosen(graphs, graphs.of_flow[:-1])
    plan = _plan(network, workload, goal, k, ranking, used, Allocation(single, np.ones(len(workload))), found is None)
    if plan.head.highest_load > 1 + TOLERANCE:
        over = f"to {plan.head.highest_load:.6g} times its capacity"
        raise ConfigError(f"rounding loads a link or peer {over}: demands and capacities differ by too much")
    return plan


def _does_not_fit(network: FlowNetwork, problem: Problem, k: int) -> str:
    """An error that names the bottleneck: of the rows with the highest load at the optimum, the one with the most load
    that no choice of graphs can move."""
    loads = problem.loads(balance(problem).shares)
    full = loads / problem.capacity
    fixed = reduce(problem, limit=None, priced=False).problem.base / problem.capacity
    worst = int(np.where(full > full.max() * (1 - 1e-6), 1 + fixed, 0.0).argmax())
    rows = rows_of(network)
    load, capacity = rows.rate(worst, float(loads[worst])), rows.rate(worst, float(problem.capacity[worst]))
    where = rows.name(worst, network.names)
    return f"the workload does not fit with k = {k}: at best, {where} would carry {load} and can carry {capacity}"


def _plan(
    network: FlowNetwork,
    workload: FlowWorkload,
    goal: Goal,
    k: int,
    ranking: str,
    used: Allocation,
    single: Allocation,
    partial: bool,
) -> Plan:
    graph = network.graph
    before, after = arc_loads(workload, single, graph.head), arc_loads(workload, used, graph.head)
    tables = {
        "peers": {
            "peer": np.arange(network.peers, dtype=np.int32),
            "name": list(network.names),
            **dict(
                zip(("x", "y"), np.array(network.overlay.positions, dtype=float).reshape(-1, 2).T.copy(), strict=True)
            ),
        },
        "arcs": {"a": graph.tail, "b": graph.head, "delay_ns": graph.delay},
        "flows": {
            "flow": np.arange(len(workload), dtype=np.int32),
            "publisher": workload.publisher,
            "receivers": workload.receivers,
            "receivers_ptr": workload.ptr,
            "rate_msgs": workload.demand[MESSAGES],
            "rate_bps": workload.demand[BITS],
            "weight": workload.weight,
        },
        "graphs": {
            "graph": np.arange(len(used.shares), dtype=np.int32),
            "flow": flow_of(used.graphs).astype(np.int32),
            "share": used.shares,
            "level": used.graphs.level,
        },
        "hops": _hops(network, used.graphs),
    }
    for unit, suffix in enumerate(SUFFIX):
        tables["arcs"][f"capacity_{suffix}"] = network.arc_capacity[unit]
        tables["peers"][f"capacity_{suffix}"] = network.peer_capacity[unit]
        for name, loads in (("before", before[unit]), ("after", after[unit])):
            tables["arcs"][f"{name}_{suffix}"] = loads
            tables["peers"][f"{name}_{suffix}"] = received(loads, network)
    reached = deliveries(workload, used, graph.head)
    unit = (
        MESSAGES
        if np.isfinite([network.arc_capacity[MESSAGES].min(), network.peer_capacity[MESSAGES].min()]).any()
        else BITS
    )
    head = PlanHeader(
        topology=network.fingerprint,
        goal=str(goal),
        k=k,
        ranking=ranking,
        partial=partial,
        peers=network.peers,
        links=len(network.overlay.links),
        flows=len(workload),
        graphs=len(used.shares),
        highest_load=tidy(highest(network, after)),
        highest_load_single=tidy(highest(network, before)),
        usage=tidy(float(after[unit].sum())),
        usage_single=tidy(float(before[unit].sum())),
        usage_unit=UNITS[unit],
        delivered=tidy(float(reached @ workload.demand[MESSAGES])),
        wanted=workload.deliveries(),
        value=tidy(float(reached @ (workload.demand[MESSAGES] * workload.weight))),
        whole_value=float(np.diff(workload.ptr) @ (workload.demand[MESSAGES] * workload.weight)),
    )
    return Plan(head, tables)


def _hops(network: FlowNetwork, graphs: DeliveryGraphs) -> dict[str, Any]:
    """The table of hops, sorted by peer, graph and next hop."""
    peer, graph, following = _dealt(graphs.ptr, graphs.arcs, network.graph.tail, network.graph.head, network.peers)
    return {"peer": peer, "graph": graph, "next": following}


@compiled
def _dealt(ptr: Longs, arcs: Ints, tail: Ints, head: Ints, peers: int) -> tuple[Ints, Ints, Ints]:
    """Counting sort of all arcs by tail. Within a tail they are ordered by graph, then by head."""
    at = np.zeros(peers + 1, dtype=np.int64)
    for arc in arcs:
        at[tail[arc] + 1] += 1
    for place in range(peers):
        at[place + 1] += at[place]
    peer = np.empty(len(arcs), dtype=np.int32)
    graph = np.empty(len(arcs), dtype=np.int32)
    following = np.empty(len(arcs), dtype=np.int32)
    for g in range(len(ptr) - 1):
        for arc in np.sort(arcs[ptr[g] : ptr[g + 1]]):
            place = at[tail[arc]]
            at[tail[arc]] += 1
            peer[place] = tail[arc]
            graph[place] = g
            following[place] = head[arc]
    return peer, graph, following


def flow_of(graphs: DeliveryGraphs) -> Longs:
    """The flow that each graph belongs to."""
    return np.repeat(np.arange(len(graphs.of_flow) - 1), np.diff(graphs.of_flow))


def arc_loads(workload: FlowWorkload, used: Allocation, head: Any) -> Floats:
    """The load of each arc, by unit."""
    each = workload.demand[:, flow_of(used.graphs)] * used.shares
    lengths = np.diff(used.graphs.ptr)
    return np.array([np.bincount(used.graphs.arcs, np.repeat(e, lengths), minlength=len(head)) for e in each])


def received(loads: Floats, network: FlowNetwork) -> Floats:
    """The load that each peer receives over all its links."""
    return np.asarray(np.bincount(network.graph.head, weights=loads, minlength=network.peers), dtype=np.float64)


def highest(network: FlowNetwork, loads: Floats) -> float:
    """The highest utilisation of an arc or peer."""
    most = 0.0
    for unit in (MESSAGES, BITS):
        most = max(most, float((loads[unit] / network.arc_capacity[unit]).max(initial=0.0)))
        most = max(most, float((received(loads[unit], network) / network.peer_capacity[unit]).max(initial=0.0)))
    return most


def deliveries(workload: FlowWorkload, used: Allocation, head: Any) -> Floats:
    """For each flow the number of receivers that a message reaches, on average over its graphs."""
    return _deliveries(
        workload.ptr, workload.receivers, used.graphs.of_flow, used.graphs.ptr, used.graphs.arcs, head, used.shares,
        int(head.max()) + 1,
    )  # fmt: skip


@compiled
def _deliveries(
    receiver_ptr: Longs, receivers: Ints, of_flow: Longs, ptr: Longs, arcs: Ints, head: Ints, shares: Floats, peers: int
) -> Floats:
    found = np.zeros(len(of_flow) - 1)
    wants = np.full(peers, -1, dtype=np.int64)
    for f in range(len(found)):
        for j in range(receiver_ptr[f], receiver_ptr[f + 1]):
            wants[receivers[j]] = f
        for g in range(of_flow[f], of_flow[f + 1]):
            for j in range(ptr[g], ptr[g + 1]):
                if wants[head[arcs[j]]] == f:
                    found[f] += shares[g]
    return found
