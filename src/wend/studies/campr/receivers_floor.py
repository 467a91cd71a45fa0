"""The receivers' floor: the load of peers, and their loss, that no routing can avoid (thesis, section 4.5.1).

On any routes, a receiver's links carry at least all messages that it wants, so the floor does not depend on k. If it is
above 1, there is no plan; if a plan has reached it, more paths change nothing.
"""

from collections.abc import Iterator

import numpy as np

from wend.planning.arrays import Floats
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import BITS, MESSAGES, FlowWorkload


def compute_floor(network: FlowNetwork, workload: FlowWorkload) -> float:
    """A lower bound of y: the highest ratio of a peer's demand to the capacity of the peer and its links."""
    return max(float((demand / takes).max()) for demand, takes in _list_demands(network, workload))


def compute_floor_loss(network: FlowNetwork, workload: FlowWorkload, times: float = 1.0) -> float:
    """The share of messages or bits, whichever is more, that receivers lose under any routing, with capacities
    multiplied by `times`."""
    rows = [(demand, times * takes) for demand, takes in _list_demands(network, workload) if demand.any()]
    return max(float(np.maximum(demand - takes, 0.0).sum() / demand.sum()) for demand, takes in rows)


def _list_demands(network: FlowNetwork, workload: FlowWorkload) -> Iterator[tuple[Floats, Floats]]:
    """By unit: the demand of each peer, and the capacity of the peer and its links."""
    whose = np.repeat(np.arange(len(workload)), np.diff(workload.ptr))
    for unit in (MESSAGES, BITS):
        demand = np.bincount(workload.receivers, weights=workload.demand[unit][whose], minlength=network.peers)
        links = np.bincount(network.graph.head, weights=network.arc_capacity[unit], minlength=network.peers)
        yield demand.astype(float), np.minimum(network.peer_capacity[unit], links)
