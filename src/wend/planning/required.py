"""The number of paths that a workload requires: k grows only while that can help (thesis, section 4.5.1).

On any routes, a receiver's links carry at least all messages that it wants. This floor of the load does not depend on
k. If it is above 1, there is no plan; if a plan has reached it, more paths change nothing.
"""

from collections.abc import Iterator
from math import isfinite
from typing import NamedTuple

import numpy as np

from wend.planning.arrays import Floats
from wend.planning.graphs import Find, delivery_graphs, up_to
from wend.planning.models import TIGHT, balance
from wend.planning.network import FlowNetwork
from wend.planning.paths import paths_from
from wend.planning.problem import problem_of
from wend.planning.workload import BITS, MESSAGES, FlowWorkload


class Required(NamedTuple):
    k: int | None
    """The least k with which everything fits; None if no tried k is enough."""
    y: tuple[float, ...]
    """The least y with 1, 2, ... paths, for each k tried."""
    floor: float


def receivers_floor(network: FlowNetwork, workload: FlowWorkload) -> float:
    """A lower bound of y: the highest ratio of a peer's demand to the capacity of the peer and its links."""
    return max(float((wanted / takes).max()) for wanted, takes in _at_receivers(network, workload))


def floor_loss(network: FlowNetwork, workload: FlowWorkload, times: float = 1.0) -> float:
    """The share of messages or bits, whichever is more, that receivers lose under any routing, with capacities
    multiplied by `times`."""
    rows = [(wanted, times * takes) for wanted, takes in _at_receivers(network, workload) if wanted.any()]
    return max(float(np.maximum(wanted - takes, 0.0).sum() / wanted.sum()) for wanted, takes in rows)


def _at_receivers(network: FlowNetwork, workload: FlowWorkload) -> Iterator[tuple[Floats, Floats]]:
    """By unit: the demand of each peer, and the capacity of the peer and its links."""
    whose = np.repeat(np.arange(len(workload)), np.diff(workload.ptr))
    for unit in (MESSAGES, BITS):
        wanted = np.bincount(workload.receivers, weights=workload.demand[unit][whose], minlength=network.peers)
        links = np.bincount(network.graph.head, weights=network.arc_capacity[unit], minlength=network.peers)
        yield wanted.astype(float), np.minimum(network.peer_capacity[unit], links)


def required_k(network: FlowNetwork, workload: FlowWorkload, most: int, find: Find = paths_from) -> Required:
    """Try k = 1, 2, ... and stop at the first that fits, at the floor, or at `most`."""
    floor = receivers_floor(network, workload)
    graphs = delivery_graphs(network, workload, 1, find)
    tried: list[float] = []
    for k in range(1, most + 1):
        if k == 2:
            graphs = delivery_graphs(network, workload, most, find)
        tried.append(balance(problem_of(network, workload, up_to(graphs, k))).y)
        if tried[-1] <= 1 + TIGHT:
            return Required(k, tuple(tried), floor)
        if isfinite(floor) and tried[-1] <= floor * (1 + TIGHT):
            break
    return Required(None, tuple(tried), floor)
