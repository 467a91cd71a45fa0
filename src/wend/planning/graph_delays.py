"""Delays of delivery graphs on idle links, and the deadlines that they meet.

A packet is stored and forwarded at each hop. It takes the delay of the link, the time that its bits or messages need at
the capacity of the link, and the same at the capacity of the peer. How long it waits for other packets depends on their
phases, so delays do not count that. Deadlines allow for it if possible: of the graphs that are in time on idle links,
those are candidates that would be late for the fewest receivers if a packet waited `WAIT` at each hop.
"""

from typing import NamedTuple

import numpy as np

from wend.model.compiled import compiled
from wend.planning.arrays import Floats, Ints, Longs
from wend.planning.candidate_paths import shortest_delays
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import BITS, MESSAGES, FlowWorkload

NANOSECONDS = 1e-9
WAIT = 0.25
"""The mean wait in a queue at a third of its capacity, in transmission times, if packets of one size arrive at random
(M/D/1: load / (2 - 2 x load))."""
CHANCE = 0.25
"""How much a delivery counts that is late only if packets wait so, for a goal that counts late deliveries."""
ROUNDING = 1e-9
"""Delays that exceed a deadline by less than this share of it are in time."""


class ArcTimes(NamedTuple):
    """The times of each arc, in seconds: the travel, and the time of one unit at the capacity of link and peer."""

    travel: Floats
    link: Floats
    """By unit: seconds per message, or per bit, at the capacity of the link."""
    peer: Floats
    """The same at the capacity of the peer at its end."""


class GraphDelays(NamedTuple):
    total: Floats
    """For each graph the sum of the delays of its flow's receivers, in seconds."""
    late: Ints
    """For each graph the number of its flow's receivers that miss their deadline."""
    late_if_waiting: Ints
    """The same if a packet waits `WAIT` of its transmission time at each hop."""

    @property
    def expected_late(self) -> Floats:
        """The late receivers, with a share of those that are late only if packets wait."""
        return np.asarray(self.late + CHANCE * (self.late_if_waiting - self.late), dtype=np.float64)


def compute_arc_times(network: FlowNetwork) -> ArcTimes:
    graph = network.graph
    travel = np.asarray(graph.delay * NANOSECONDS, dtype=np.float64)
    return ArcTimes(travel, 1 / network.arc_capacity, (1 / network.peer_capacity)[:, graph.head])


def message_bits(workload: FlowWorkload) -> Floats:
    """The size of a message of each flow."""
    return np.asarray(workload.demand[BITS] / workload.demand[MESSAGES], dtype=np.float64)


def receiver_limits(network: FlowNetwork, workload: FlowWorkload) -> Floats | None:
    """For each receiver of each flow the longest delay that is in time, in seconds; None if no flow has a deadline."""
    delay_s, factor = workload.deadline
    if np.isinf(workload.deadline).all():
        return None
    sizes = np.diff(workload.ptr)
    shortest = np.full(len(workload.receivers), np.inf)
    whose = np.repeat(workload.publisher, sizes)
    for publisher in np.unique(workload.publisher[np.isfinite(factor)]).tolist():
        mine = whose == publisher
        shortest[mine] = shortest_delays(network.graph, publisher)[workload.receivers[mine]] * NANOSECONDS
    return np.asarray(
        np.minimum(np.repeat(delay_s, sizes), np.repeat(factor, sizes) * shortest) * (1 + ROUNDING), dtype=np.float64
    )


def compute_graph_delays(
    network: FlowNetwork, workload: FlowWorkload, of_flow: Longs, ptr: Longs, arcs: Ints
) -> GraphDelays:
    """The delays of graphs. A receiver that a graph does not reach adds none, and is not late."""
    limits = receiver_limits(network, workload)
    if limits is None:
        limits = np.full(len(workload.receivers), np.inf)
    graph = network.graph
    return GraphDelays(*_compute_delays(
        *compute_arc_times(network), message_bits(workload), workload.publisher, workload.ptr, workload.receivers,
        limits, of_flow, ptr, arcs, graph.tail, graph.head, network.peers,
    ))  # fmt: skip


@compiled
def fill_times(travel: Floats, link: Floats, peer: Floats, bits: float, times: Floats) -> None:
    """Write how long a packet of this size takes on each arc."""
    for arc in range(len(travel)):
        times[arc] = travel[arc] + max(link[0, arc], bits * link[1, arc]) + max(peer[0, arc], bits * peer[1, arc])


@compiled
def _compute_delays(
    travel: Floats, link: Floats, peer: Floats, bits: Floats, publisher: Ints, receiver_ptr: Longs, receivers: Ints,
    limits: Floats, of_flow: Longs, ptr: Longs, arcs: Ints, tail: Ints, head: Ints, peers: int,
) -> tuple[Floats, Ints, Ints]:  # fmt: skip
    totals = np.zeros(len(ptr) - 1)
    late = np.zeros(len(ptr) - 1, dtype=np.int32)
    late_if_waiting = np.zeros(len(ptr) - 1, dtype=np.int32)
    waited = np.zeros(peers)
    times = np.zeros(len(travel))
    arrival = np.zeros(peers)
    reached = np.full(peers, -1, dtype=np.int64)
    size = -1.0
    for f in range(len(publisher)):
        if bits[f] != size:
            size = bits[f]
            fill_times(travel, link, peer, size, times)
        for g in range(of_flow[f], of_flow[f + 1]):
            arrival[publisher[f]] = waited[publisher[f]] = 0.0
            for j in range(ptr[g], ptr[g + 1]):
                arrival[head[arcs[j]]] = arrival[tail[arcs[j]]] + times[arcs[j]]
                sending = times[arcs[j]] - travel[arcs[j]]
                waited[head[arcs[j]]] = waited[tail[arcs[j]]] + WAIT * sending
                reached[head[arcs[j]]] = g
            for j in range(receiver_ptr[f], receiver_ptr[f + 1]):
                here = receivers[j]
                if reached[here] != g:
                    continue
                totals[g] += arrival[here]
                if arrival[here] > limits[j]:
                    late[g] += 1
                if arrival[here] + waited[here] > limits[j]:
                    late_if_waiting[g] += 1
    return totals, late, late_if_waiting
