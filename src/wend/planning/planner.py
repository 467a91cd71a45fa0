"""Making a plan from a network and a workload: paths, delivery graphs, linear program, forwarding tables."""

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wend.model.compiled import compiled
from wend.model.errors import ConfigError
from wend.model.plan import Plan, PlanHeader
from wend.planning.arrays import TOLERANCE, Floats, Ints, Longs, round_noise, run_numbers, run_offsets
from wend.planning.delivery_graphs import DeliveryGraphs, Find
from wend.planning.failure_routes import (
    SURVIVABLE,
    FailurePlanner,
    RoutesAfterFailure,
    RoutesInUse,
    routes_after_failures,
)
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import BITS, MESSAGES, FlowWorkload
from wend.planning.graph_delays import compute_graph_delays
from wend.planning.model_files import write_model
from wend.planning.models import Goal, balance
from wend.planning.partial_plan import find_most_valuable
from wend.planning.path_ranking import BOTTLENECK_DISJOINT
from wend.planning.plan_changes import find_running_graphs
from wend.planning.problem import Problem, make_capacity_rows
from wend.planning.problem_reduction import reduce_problem
from wend.planning.route_choice import Allocation, check_limits, choose_routes


class PlanSearch(NamedTuple):
    """The searches of a plan, which other processes can do."""

    paths: Find | None = None
    """By default, that of the ranking."""
    failures: FailurePlanner = routes_after_failures


IN_THIS_PROCESS = PlanSearch()
UNITS = ("msg/s", "bit/s")
SUFFIX = ("msgs", "bps")
MILLISECONDS = 1e3


def make_plan(
    network: FlowNetwork,
    workload: FlowWorkload,
    goal: Goal,
    k: int | None,
    *,
    ranking: str = BOTTLENECK_DISJOINT,
    partial: bool = False,
    survive: int = 0,
    max_load: float = 1.0,
    room: float = inf,
    running: Plan | None = None,
    model: Path | None = None,
    search: PlanSearch = IN_THIS_PROCESS,
) -> Plan:
    """A plan that carries all flows. If none does: an error, or with `partial` the most valuable part that fits.

    Without `k` it has the least k with which everything fits. With `survive` it also carries the flows after the
    failure of that many links. While nothing fails, no load is above `max_load` of a capacity, nor
    above `room` times that of the balanced plan without deadlines. The plan moves as few
    flows of the `running` one as its goal allows. Its linear model is written to `model`. `search` gives the same plan
    as the default.
    """
    check_limits(k, max_load, room)
    if survive not in SURVIVABLE:
        raise ConfigError(f"a plan survives the failure of 0 or 1 links, not of {survive}")
    if survive and partial:
        raise ConfigError("a plan that survives failures carries everything: leave out --partial")
    old = None if running is None else find_running_graphs(running, network, workload)
    candidates, choice = choose_routes(
        network, workload, goal, k, ranking=ranking, max_load=max_load, room=room, running=old, find=search.paths
    )
    limit = candidates.max_load
    if model is not None:
        write_model(model, candidates, goal, make_capacity_rows(network), network.names)
    if choice is not None:
        used = choice
    elif partial:
        part = find_most_valuable(network.scale(limit), workload, candidates.graphs)
        used = Allocation(part.graphs, part.shares)
    else:
        raise ConfigError(_misfit_sentence(network, candidates.problem, candidates.k, limit))
    after: list[RoutesAfterFailure] = []
    if survive:
        after = search.failures(RoutesInUse(network, workload, *used, candidates.k, ranking))
    joined, failed = _add_backups(used, after)
    one = Allocation(candidates.single, np.ones(len(workload)))
    plan = _assemble_plan(network, workload, goal, candidates.k, ranking, joined, one, choice is None, failed, limit)
    if plan.head.highest_load > 1 + TOLERANCE:
        over = f"to {plan.head.highest_load:.6g} times its capacity"
        raise ConfigError(f"rounding loads a link or peer {over}: demands and capacities differ by too much")
    return plan


def _misfit_sentence(network: FlowNetwork, problem: Problem, k: int, max_load: float) -> str:
    """An error that names the bottleneck: of the rows with the highest load at the optimum, the one with the most load
    that no choice of graphs can move."""
    loads = problem.loads(balance(problem).shares)
    full = loads / problem.capacity
    fixed = reduce_problem(problem, limit=None).problem.base / problem.capacity
    worst = int(np.where(full > full.max() * (1 - 1e-6), 1 + fixed, 0.0).argmax())
    overload = make_capacity_rows(network).overload(worst, float(loads[worst]), network.names)
    allowed = "" if max_load == 1 else f", of which the plan may use {100 * max_load:g} %"
    return f"the workload does not fit with k = {k}: at best, {overload}{allowed}"


def _assemble_plan(
    network: FlowNetwork,
    workload: FlowWorkload,
    goal: Goal,
    k: int,
    ranking: str,
    used: Allocation,
    single: Allocation,
    partial: bool,
    failed: dict[str, Any],
    max_load: float,
) -> Plan:
    head = network.graph.head
    before, after = compute_arc_loads(workload, single, head), compute_arc_loads(workload, used, head)
    reached = count_deliveries(workload, used, head)
    has_message_rates = np.isfinite([network.arc_capacity[MESSAGES].min(), network.peer_capacity[MESSAGES].min()]).any()
    unit = MESSAGES if has_message_rates else BITS
    worth = workload.demand[MESSAGES] * workload.weight
    header = PlanHeader(
        topology=network.fingerprint,
        goal=str(goal),
        k=k,
        ranking=ranking,
        partial=partial,
        peers=network.peers,
        links=len(network.overlay.links),
        flows=len(workload),
        graphs=len(used.shares),
        highest_load=round_noise(highest_utilisation(network, after)),
        highest_load_single=round_noise(highest_utilisation(network, before)),
        survive=int(len(failed["failures"]["failure"]) > 0),
        highest_load_failed=round_noise(float(failed["failures"]["highest_load"].max(initial=0.0))),
        usage=round_noise(float(after[unit].sum())),
        usage_single=round_noise(float(before[unit].sum())),
        usage_unit=UNITS[unit],
        delivered=round_noise(float(reached @ workload.demand[MESSAGES])),
        wanted=workload.deliveries(),
        value=round_noise(float(reached @ worth)),
        whole_value=float(np.diff(workload.ptr) @ worth),
        delay_ms=round_noise(_mean_delay(network, workload, used) * MILLISECONDS),
        delay_ms_single=round_noise(_mean_delay(network, workload, single) * MILLISECONDS),
        late=_count_late(network, workload, used),
        max_load=max_load,
    )
    tables = {**_network_tables(network, before, after), **_flow_tables(network, workload, used), **failed}
    return Plan(header, tables)


def _network_tables(network: FlowNetwork, before: Floats, after: Floats) -> dict[str, Any]:
    """The tables of peers and arcs, with their capacities and their loads on single paths and as planned."""
    graph = network.graph
    x, y = np.array(network.overlay.positions, dtype=float).reshape(-1, 2).T.copy()
    peers = {"peer": np.arange(network.peers, dtype=np.int32), "name": list(network.names), "x": x, "y": y}
    arcs = {"a": graph.tail, "b": graph.head, "delay_ns": graph.delay}
    for unit, suffix in enumerate(SUFFIX):
        arcs[f"capacity_{suffix}"] = network.arc_capacity[unit]
        peers[f"capacity_{suffix}"] = network.peer_capacity[unit]
        for name, loads in (("before", before[unit]), ("after", after[unit])):
            arcs[f"{name}_{suffix}"] = loads
            peers[f"{name}_{suffix}"] = peer_loads(loads, network)
    return {"peers": peers, "arcs": arcs}


def _flow_tables(network: FlowNetwork, workload: FlowWorkload, used: Allocation) -> dict[str, Any]:
    return {
        "flows": {
            "flow": np.arange(len(workload), dtype=np.int32),
            "publisher": workload.publisher,
            "receivers": workload.receivers,
            "receivers_ptr": workload.ptr,
            "rate_msgs": workload.demand[MESSAGES],
            "rate_bps": workload.demand[BITS],
            "weight": workload.weight,
            "deadline_s": workload.deadline[0],
            "deadline_factor": workload.deadline[1],
        },
        "graphs": {
            "graph": np.arange(len(used.shares), dtype=np.int32),
            "flow": run_numbers(used.graphs.of_flow).astype(np.int32),
            "share": used.shares,
            "level": used.graphs.level,
        },
        "hops": _make_hop_table(network, used.graphs),
    }


def _mean_delay(network: FlowNetwork, workload: FlowWorkload, used: Allocation) -> float:
    """The mean delay of deliveries on idle links, in seconds."""
    graphs = used.graphs
    rates = workload.demand[MESSAGES]
    totals = compute_graph_delays(network, workload, graphs.of_flow, graphs.ptr, graphs.arcs).total
    deliveries_per_s = float(count_deliveries(workload, used, network.graph.head) @ rates)
    return float((totals * used.shares) @ rates[run_numbers(graphs.of_flow)]) / (deliveries_per_s or 1.0)


def _count_late(network: FlowNetwork, workload: FlowWorkload, used: Allocation) -> int:
    """The number of receivers of flows that are late on idle links, on the worst graph in use of each flow."""
    graphs = used.graphs
    late = compute_graph_delays(network, workload, graphs.of_flow, graphs.ptr, graphs.arcs).late
    worst = np.zeros(len(workload), dtype=np.int64)
    np.maximum.at(worst, run_numbers(graphs.of_flow), np.where(used.shares > 0, late, 0))
    return int(worst.sum())


class _GraphSet:
    """The distinct graphs of all flows, numbered for each flow in the order in which they were added."""

    def __init__(self, flows: int) -> None:
        self._numbers: list[dict[bytes, int]] = [{} for _ in range(flows)]
        self._graphs: list[list[tuple[Ints, int, float]]] = [[] for _ in range(flows)]

    def add(self, flow: int, arcs: Ints, level: int, share: float) -> int:
        """The number of a graph in its flow. An equal graph that was added earlier keeps its share."""
        key, graphs = np.sort(arcs).tobytes(), self._graphs[flow]
        if key not in self._numbers[flow]:
            self._numbers[flow][key] = len(graphs)
            graphs.append((arcs, level, share))
        return self._numbers[flow][key]

    def allocation(self) -> Allocation:
        every = [graph for graphs in self._graphs for graph in graphs]
        graphs = DeliveryGraphs(
            run_offsets([len(graphs) for graphs in self._graphs]),
            run_offsets([len(arcs) for arcs, *_ in every]),
            np.concatenate([arcs for arcs, *_ in every]).astype(np.int32),
            np.array([level for _, level, _ in every], dtype=np.int32),
        )
        return Allocation(graphs, np.array([share for *_, share in every], dtype=np.float64))


def _add_backups(used: Allocation, after: list[RoutesAfterFailure]) -> tuple[Allocation, dict[str, Any]]:
    """All graphs of a plan, those in use only after a failure with a share of 0, and the tables of failures."""
    flows = len(used.graphs.of_flow) - 1
    graphs = _GraphSet(flows)
    for flow, arcs, level, share in _list_graphs(np.arange(flows), used.graphs, used.shares):
        graphs.add(flow, arcs, level, share)
    backups = [
        (number, flow, graphs.add(flow, arcs, level, 0.0), share)
        for number, failure in enumerate(after)
        for flow, arcs, level, share in _list_graphs(failure.flows, failure.graphs, failure.shares)
    ]
    allocation = graphs.allocation()
    failures, flows_of, numbers, shares = np.array(backups, dtype=np.float64).reshape(-1, 4).T.copy()
    backup_flows = flows_of.astype(np.int32)
    tables = {
        "failures": {
            "failure": np.arange(len(after), dtype=np.int32),
            "a": np.array([each.a for each in after], dtype=np.int32),
            "b": np.array([each.b for each in after], dtype=np.int32),
            "highest_load": np.array([each.highest for each in after], dtype=np.float64),
            "moved": np.array([len(each.flows) for each in after], dtype=np.int32),
            "cut": np.array([each.cut for each in after], dtype=np.int32),
        },
        "backups": {
            "failure": failures.astype(np.int32),
            "flow": backup_flows,
            "graph": (allocation.graphs.of_flow[backup_flows] + numbers).astype(np.int32),
            "share": shares,
        },
    }
    return allocation, tables


def _list_graphs(flows: Longs, graphs: DeliveryGraphs, shares: Floats) -> Iterator[tuple[int, Ints, int, float]]:
    """Flow, arcs, level and share of each graph."""
    for place, flow in enumerate(flows.tolist()):
        for g in range(int(graphs.of_flow[place]), int(graphs.of_flow[place + 1])):
            yield flow, graphs.arcs[graphs.ptr[g] : graphs.ptr[g + 1]], int(graphs.level[g]), float(shares[g])


def _make_hop_table(network: FlowNetwork, graphs: DeliveryGraphs) -> dict[str, Any]:
    """The table of hops, sorted by peer, graph and next hop."""
    peer, graph, following = _sort_by_tail(
        graphs.ptr, graphs.arcs, network.graph.tail, network.graph.head, network.peers
    )
    return {"peer": peer, "graph": graph, "next": following}


@compiled
def _sort_by_tail(ptr: Longs, arcs: Ints, tail: Ints, head: Ints, peers: int) -> tuple[Ints, Ints, Ints]:
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


def compute_arc_loads(workload: FlowWorkload, used: Allocation, head: Any) -> Floats:
    """The load of each arc, by unit."""
    each = workload.demand[:, run_numbers(used.graphs.of_flow)] * used.shares
    lengths = np.diff(used.graphs.ptr)
    return np.array([np.bincount(used.graphs.arcs, np.repeat(e, lengths), minlength=len(head)) for e in each])


def peer_loads(loads: Floats, network: FlowNetwork) -> Floats:
    """The load that each peer receives over all its links."""
    return np.asarray(np.bincount(network.graph.head, weights=loads, minlength=network.peers), dtype=np.float64)


def highest_utilisation(network: FlowNetwork, loads: Floats) -> float:
    """The highest utilisation of an arc or peer."""
    most = 0.0
    for unit in (MESSAGES, BITS):
        most = max(most, float((loads[unit] / network.arc_capacity[unit]).max(initial=0.0)))
        most = max(most, float((peer_loads(loads[unit], network) / network.peer_capacity[unit]).max(initial=0.0)))
    return most


def count_deliveries(workload: FlowWorkload, used: Allocation, head: Any) -> Floats:
    """For each flow the number of receivers that a message reaches, on average over its graphs."""
    return _count_deliveries(
        workload.ptr, workload.receivers, used.graphs.of_flow, used.graphs.ptr, used.graphs.arcs, head, used.shares,
        int(head.max()) + 1,
    )  # fmt: skip


@compiled
def _count_deliveries(
    receiver_ptr: Longs, receivers: Ints, of_flow: Longs, ptr: Longs, arcs: Ints, head: Ints, shares: Floats, peers: int
) -> Floats:
    reached = np.zeros(len(of_flow) - 1)
    wants = np.full(peers, -1, dtype=np.int64)
    for f in range(len(reached)):
        for j in range(receiver_ptr[f], receiver_ptr[f + 1]):
            wants[receivers[j]] = f
        for g in range(of_flow[f], of_flow[f + 1]):
            for j in range(ptr[g], ptr[g + 1]):
                if wants[head[arcs[j]]] == f:
                    reached[f] += shares[g]
    return reached
