"""The optimisation problem of a plan: flows, their delivery graphs, and the capacity rows that can bind.

A row is one capacity: of an arc or of a peer, in messages/s or bit/s. A graph is represented by the rows that it loads.
A share of a flow loads each of them with that share of the flow's demand, in the row's unit.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wend.model.compiled import compiled
from wend.model.events import PeerId
from wend.model.rates import Rate
from wend.planning.arrays import Floats, Ints, Longs, run_numbers
from wend.planning.delivery_graphs import DeliveryGraphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import BITS, MESSAGES, FlowWorkload
from wend.planning.graph_delays import compute_graph_delays


class CapacityRows(NamedTuple):
    """All finite capacities. `a[r]` is the tail of an arc or a peer, `b[r]` the head of the arc or -1."""

    a: Ints
    b: Ints
    unit: Ints
    capacity: Floats

    def name(self, row: int, names: tuple[str, ...]) -> str:
        a: PeerId = int(self.a[row])
        b: PeerId = int(self.b[row])
        return f"peer {names[a]}" if b < 0 else f"link {names[a]} -> {names[b]}"

    def overload(self, row: int, load: float, names: tuple[str, ...]) -> str:
        """A clause about a row that would carry too much."""
        carried, capacity = (Rate(value, bool(self.unit[row])) for value in (load, float(self.capacity[row])))
        return f"{self.name(row, names)} would carry {carried} and can carry {capacity}"


class Objective(NamedTuple):
    """The weighted sum that one stage of the optimisation minimises."""

    usage: float = 0.0
    delay: float = 0.0
    moved: float = 0.0
    late: float = 0.0
    y: float = 0.0
    """The weight of the highest load."""
    slack: float = 0.0
    """How much of its optimum this stage may lose to later stages, as a share."""


class Problem(NamedTuple):
    """Flow `f` may use graphs `of_flow[f]` to `of_flow[f + 1]`; graph `g` loads `rows[ptr[g]:ptr[g + 1]]`."""

    of_flow: Longs
    ptr: Longs
    rows: Ints
    hops: Floats
    """The usage of a graph per unit of demand: its number of links."""
    delay: Floats
    """The weight of its flow times the sum of the delays of its receivers, in seconds."""
    moved: Floats
    """1 if the flow would leave the graph that a running plan has for it, else 0."""
    late: Floats
    """The weight of its flow times the number of its late receivers, with allowance for waiting."""
    demand: Floats
    """By unit and flow."""
    usage_unit: int
    """The unit of usage: messages, unless all capacities are in bits."""
    unit: Ints
    capacity: Floats
    base: Floats
    """The load of each row that is the same for every choice."""
    constant: Objective = Objective()
    """The usage, delay, moved demand and late deliveries that are the same for every choice."""

    def costs(self, objective: Objective) -> Floats:
        """The cost of each graph if it carries all of its flow."""
        flow = run_numbers(self.of_flow)
        total = np.zeros(len(self.hops))
        for weight, each, unit in (
            (objective.usage, self.hops, self.usage_unit),
            (objective.delay, self.delay, MESSAGES),
            (objective.moved, self.moved, MESSAGES),
            (objective.late, self.late, MESSAGES),
        ):
            if weight:
                total += weight * each * self.demand[unit][flow]
        return total

    def fixed_part(self, objective: Objective) -> float:
        """The part of an objective that is the same for every choice."""
        return sum(weight * each for weight, each in zip(objective[:4], self.constant[:4], strict=True))

    def ranks(self, objectives: Sequence[Objective]) -> Floats:
        """A number for each graph, lower if its costs are: by the first objective, of equal ones by the next."""
        keys = [costs for each in objectives if (costs := self.costs(each)).any()] or [self.hops]
        order = np.lexsort([key.round(12) for key in reversed(keys)])
        steps = np.zeros(len(order), dtype=bool)
        for key in keys:
            steps[1:] |= np.diff(key.round(12)[order]) != 0
        ranks = np.empty(len(order))
        ranks[order] = np.cumsum(steps)
        return ranks

    def loads(self, shares: Floats) -> Floats:
        """The load of each row."""
        return self.base + _compute_loads(self.of_flow, self.ptr, self.rows, self.demand, self.unit, shares)

    def usage(self, shares: Floats) -> float:
        """The sum of the loads of all links."""
        each = self.demand[self.usage_unit][run_numbers(self.of_flow)]
        return float((each * self.hops * shares).sum())

    def single_path_shares(self) -> Floats:
        """The shares of single shortest paths: all of each flow on its first graph."""
        shares = np.zeros(len(self.hops))
        shares[self.of_flow[:-1]] = 1.0
        return shares


def make_capacity_rows(network: FlowNetwork) -> CapacityRows:
    """All finite capacities, arcs before peers, messages before bits."""
    graph = network.graph
    peers = np.arange(network.peers, dtype=np.int32)
    no_head = np.full(network.peers, -1, dtype=np.int32)
    parts = []
    for a, b, capacities in ((graph.tail, graph.head, network.arc_capacity), (peers, no_head, network.peer_capacity)):
        for unit in (MESSAGES, BITS):
            finite = np.isfinite(capacities[unit])
            units = np.full(finite.sum(), unit, dtype=np.int32)
            parts.append((a[finite], b[finite], units, capacities[unit][finite]))
    return CapacityRows(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def make_problem(network: FlowNetwork, workload: FlowWorkload, graphs: DeliveryGraphs) -> Problem:
    rows = make_capacity_rows(network)
    charged = charged_rows(network)
    ptr, loaded = _loaded_rows(graphs.ptr, graphs.arcs, charged)
    usage_unit = MESSAGES if (rows.unit == MESSAGES).any() else BITS
    hops = np.diff(graphs.ptr).astype(float)
    base = np.zeros(len(rows.capacity))
    flow = run_numbers(graphs.of_flow)
    delays = compute_graph_delays(network, workload, graphs.of_flow, graphs.ptr, graphs.arcs)
    weight = workload.weight[flow]
    return Problem(
        graphs.of_flow, ptr, loaded, hops, weight * delays.total, np.zeros(len(hops)), weight * delays.expected_late,
        workload.demand, usage_unit, rows.unit, rows.capacity, base,
    )  # fmt: skip


def charged_rows(network: FlowNetwork) -> Ints:
    """The rows that a message on an arc loads, by kind of capacity and arc; -1 for none."""
    head = network.graph.head
    rows_by_kind = []
    start = 0
    for capacity, place in (
        (network.arc_capacity[MESSAGES], np.arange(len(head))),
        (network.arc_capacity[BITS], np.arange(len(head))),
        (network.peer_capacity[MESSAGES], head),
        (network.peer_capacity[BITS], head),
    ):
        finite = np.isfinite(capacity)
        if finite.any():
            numbers = np.where(finite, start + np.cumsum(finite) - 1, -1)
            rows_by_kind.append(numbers[place].astype(np.int32))
            start += int(finite.sum())
    return np.array(rows_by_kind, dtype=np.int32).reshape(len(rows_by_kind), len(head))


@compiled
def _loaded_rows(ptr: Longs, arcs: Ints, charged: Ints) -> tuple[Longs, Ints]:
    kinds = len(charged)
    out = np.empty(len(arcs) * kinds, dtype=np.int32)
    starts = np.zeros(len(ptr), dtype=np.int64)
    used = 0
    for g in range(len(ptr) - 1):
        for j in range(ptr[g], ptr[g + 1]):
            for kind in range(kinds):
                row = charged[kind, arcs[j]]
                if row >= 0:
                    out[used] = row
                    used += 1
        starts[g + 1] = used
    return starts, out[:used].copy()


@compiled
def _compute_loads(of_flow: Longs, ptr: Longs, rows: Ints, demand: Floats, unit: Ints, shares: Floats) -> Floats:
    loads = np.zeros(len(unit))
    for f in range(len(of_flow) - 1):
        for g in range(of_flow[f], of_flow[f + 1]):
            if shares[g] > 0:
                for j in range(ptr[g], ptr[g + 1]):
                    loads[rows[j]] += shares[g] * demand[unit[rows[j]], f]
    return loads
