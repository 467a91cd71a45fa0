"""An upper bound on the share of deliveries that any strategy can make in time, with any knowledge of the future.

A linear program decides which share of each flow's events reaches each receiver, and over which arcs. Its constraints
hold for every run of every strategy, so its optimum is at least what a run achieves. Take an event that a receiver gets
in time, and follow the first copy that it gets back to the publisher. That route fits the deadline, with the time that
each queue on it serves a packet. Average the routes of all events of a flow:

- **A flow to each receiver.** The averages are a flow from the publisher to the receiver, of at most 1.
- **Shared copies.** A copy on an arc may serve several receivers. The share of events with a copy on an arc, `use`, is
  at least the flow to each receiver over this arc. The load of an arc is the sum of `use` times the rates.
- **Capacities.** An arc or peer carries at most its capacity, in the time from the first publication to the last
  deadline.
- **Deadlines.** An arc that is on no route in time carries nothing. The mean delay of the routes to a receiver is at
  most its deadline.

It is a relaxation: no run has to achieve it. Shares are fractions, and flows to several receivers may share copies that
no single tree has. Packets never wait for each other. Routes later than the deadline may be averaged with earlier ones.
"""

from collections.abc import Callable
from typing import NamedTuple

import highspy
import numpy as np

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.planning.arrays import Floats, Ints
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import BITS, MESSAGES, FlowWorkload
from wend.planning.problem import charged_rows, make_capacity_rows
from wend.planning.solver import LinearProgram
from wend.topology.graph import Overlay, OverlayLink
from wend.topology.overlay_routes import shortest_delays


class OnTimeBound(NamedTuple):
    """The highest possible share of deliveries in time."""

    share: float
    by_flow: Floats
    """The part of each flow's deliveries in one optimum."""


def on_time_bound(
    network: FlowNetwork,
    workload: FlowWorkload,
    deadline_ns: Callable[[PeerId, PeerId], Nanos],
    duration_ns: Nanos | None = None,
) -> OnTimeBound:
    """The bound for flows that last for `duration_ns`, or without end. Deadlines are by publisher and receiver."""
    model = _Model(network, workload)
    longest = 0
    for flow in range(len(workload)):
        publisher = int(workload.publisher[flow])
        for receiver in workload.flow_receivers(flow).tolist():
            longest = max(longest, deadline_ns(publisher, receiver))
            model.add_receiver(flow, receiver, deadline_ns(publisher, receiver))
    return model.solve(1.0 if duration_ns is None else 1.0 + longest / duration_ns)


class _Model:
    """The linear program. Columns are `use` by flow and arc, then the flows to receivers by arc."""

    def __init__(self, network: FlowNetwork, workload: FlowWorkload) -> None:
        self.network, self.workload = network, workload
        self.arcs = len(network.graph.head)
        self.capacities = make_capacity_rows(network)
        self.delays = [_arc_delays(network, workload, flow) for flow in range(len(workload))]
        self.distances = [self._distances(delay) for delay in self.delays]
        self.columns = len(workload) * self.arcs
        self.cost = [np.zeros(self.columns)]
        self.entries: list[tuple[Ints, Ints, Floats]] = []
        """Rows, columns and values of the matrix."""
        self.low: list[Floats] = []
        self.high: list[Floats] = []
        self.count = 0
        self.receivers: list[tuple[int, Ints]] = []
        """By receiver: its flow, and the columns into it."""

    def _distances(self, delay: Floats) -> Floats:
        graph = self.network.graph
        # An overlay has links, not arcs: the lower delay of the two directions keeps a lower bound.
        both = np.minimum(delay, delay[graph.back])
        links = zip(graph.tail.tolist(), graph.head.tolist(), both.astype(int).tolist(), strict=True)
        found = shortest_delays(Overlay(self.network.peers, [OverlayLink(a, b, d) for a, b, d in links if a < b]))
        return np.where(found < 0, np.inf, found.astype(float))

    def _rows(self, low: float, high: float, count: int) -> Ints:
        self.low.append(np.full(count, low))
        self.high.append(np.full(count, high))
        self.count += count
        return np.arange(self.count - count, self.count, dtype=np.int32)

    def _add(self, rows: Ints, columns: Ints, values: Floats | float) -> None:
        self.entries.append((rows, columns, np.broadcast_to(np.asarray(values, dtype=float), rows.shape)))

    def add_receiver(self, flow: int, receiver: PeerId, deadline_ns: Nanos) -> None:
        """Add the flow to one receiver, over the arcs of routes in time."""
        graph, publisher = self.network.graph, int(self.workload.publisher[flow])
        delay, distance = self.delays[flow], self.distances[flow]
        through = distance[publisher, graph.tail] + delay + distance[graph.head, receiver]
        usable = (through <= deadline_ns) & (graph.head != publisher) & (graph.tail != receiver)
        arcs = np.flatnonzero(usable).astype(np.int32)
        columns = np.arange(self.columns, self.columns + len(arcs), dtype=np.int32)
        self.columns += len(arcs)
        heads, tails = graph.head[arcs], graph.tail[arcs]
        ends = heads == receiver
        self.cost.append(np.where(ends, -float(self.workload.demand[MESSAGES, flow]), 0.0))
        self.receivers.append((flow, columns[ends]))

        served = self._rows(0.0, 1.0, 1)
        self._add(np.repeat(served, ends.sum()), columns[ends], 1.0)
        in_time = self._rows(-highspy.kHighsInf, 0.0, 1)
        self._add(np.repeat(in_time, len(arcs)), columns, (delay[arcs] - np.where(ends, deadline_ns, 0)) / SECOND)
        shared = self._rows(-highspy.kHighsInf, 0.0, len(arcs))
        self._add(shared, columns, 1.0)
        self._add(shared, flow * self.arcs + arcs, -1.0)
        peers = self._rows(0.0, 0.0, self.network.peers)
        self._add(peers[heads[~ends]], columns[~ends], 1.0)
        inner = tails != publisher
        self._add(peers[tails[inner]], columns[inner], -1.0)

    def solve(self, longer: float) -> OnTimeBound:
        """Solve with capacities that last `longer` than the flows."""
        rates, capacity = self.workload.demand, self.capacities.capacity * longer
        binding = self._rows(-highspy.kHighsInf, 1.0, len(capacity))
        for kind in charged_rows(self.network):
            arcs = np.flatnonzero(kind >= 0).astype(np.int32)
            charged = kind[arcs]
            for flow in range(len(self.workload)):
                load = rates[self.capacities.unit[charged], flow] / capacity[charged]
                self._add(binding[charged], flow * self.arcs + arcs, load)
        rows, columns, values = (np.concatenate(part) for part in zip(*self.entries, strict=True))
        order = np.lexsort((rows, columns))
        model = LinearProgram()
        model.load(
            cost=np.concatenate(self.cost),
            lower=np.zeros(self.columns),
            upper=np.ones(self.columns),
            row_lower=np.concatenate(self.low),
            row_upper=np.concatenate(self.high),
            ptr=np.searchsorted(columns[order], np.arange(self.columns + 1)).astype(np.int32),
            index=rows[order].astype(np.int32),
            value=values[order],
        )
        found = model.solve()
        assert found is not None, "to serve nobody is feasible"
        by_flow = np.zeros(len(self.workload))
        for flow, into in self.receivers:
            by_flow[flow] += found.values[into].sum()
        return OnTimeBound(-found.objective / self.workload.deliveries(), by_flow / np.diff(self.workload.ptr))


def _arc_delays(network: FlowNetwork, workload: FlowWorkload, flow: int) -> Floats:
    """The delay of each arc, with the times for which the queues of the arc and of its head serve an event."""
    msgs, bits = workload.demand[MESSAGES, flow], workload.demand[BITS, flow]
    size = bits / msgs
    total = network.graph.delay.astype(float)
    for capacity in (network.arc_capacity, network.peer_capacity[:, network.graph.head]):
        total += SECOND * np.maximum(1 / capacity[MESSAGES], size / capacity[BITS])
    return np.asarray(np.floor(total))
