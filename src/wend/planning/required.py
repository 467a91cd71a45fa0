"""How many paths it takes: k is raised only while that can help (thesis, section 4.5.1).

Whatever the ways, receivers must receive: over all links into a peer comes at least what it wants. No k moves that
floor, so where it is above 1 there is no plan, and where a plan has reached it more paths change nothing.
"""

from math import isfinite
from typing import NamedTuple

import numpy as np

from wend.planning.graphs import Find, delivery_graphs, up_to
from wend.planning.models import TIGHT, balance
from wend.planning.network import Network
from wend.planning.paths import paths_from
from wend.planning.problem import problem_of
from wend.planning.workload import Workload


class Required(NamedTuple):
    k: int | None
    """The least k with which everything fits; None if none up to the last one tried does."""
    y: tuple[float, ...]
    """The least highest load with 1, 2, ... paths, as far as they were tried."""
    floor: float


def receivers_floor(network: Network, workload: Workload) -> float:
    """No plan has a lower y than this: what the peers receive, over what they and their links can take."""
    whose = np.repeat(np.arange(len(workload)), np.diff(workload.ptr))
    floor = 0.0
    for unit in range(2):
        wanted = np.bincount(workload.receivers, weights=workload.demand[unit][whose], minlength=network.peers)
        links = np.bincount(network.graph.head, weights=network.arc_capacity[unit], minlength=network.peers)
        floor = max(floor, float((wanted / np.minimum(network.peer_capacity[unit], links)).max()))
    return floor


def required_k(network: Network, workload: Workload, most: int, find: Find = paths_from) -> Required:
    """Tries 1, 2, ... and stops at the first that fits, at the floor, or at `most`."""
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
