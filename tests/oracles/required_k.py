"""The least k with which a workload fits, found by trying one k after the other (CAMPR thesis, section 4.5.1)."""

from math import isfinite
from typing import NamedTuple

from wend.planning.candidate_paths import find_paths
from wend.planning.delivery_graphs import Find, limit_k, make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import FlowWorkload
from wend.planning.models import TIGHT, balance
from wend.planning.problem import make_problem
from wend.studies.campr.receivers_floor import compute_floor


class Required(NamedTuple):
    k: int | None
    """The least k with which everything fits; None if no tried k is enough."""
    y: tuple[float, ...]
    """The least y with 1, 2, ... paths, for each k tried."""
    floor: float


def required_k(network: FlowNetwork, workload: FlowWorkload, most: int, find: Find = find_paths) -> Required:
    """Try k = 1, 2, ... and stop at the first that fits, at the floor, or at `most`."""
    floor = compute_floor(network, workload)
    graphs = make_delivery_graphs(network, workload, 1, find)
    tried: list[float] = []
    for k in range(1, most + 1):
        if k == 2:
            graphs = make_delivery_graphs(network, workload, most, find)
        tried.append(balance(make_problem(network, workload, limit_k(graphs, k))).y)
        if tried[-1] <= 1 + TIGHT:
            return Required(k, tuple(tried), floor)
        if isfinite(floor) and tried[-1] <= floor * (1 + TIGHT):
            break
    return Required(None, tuple(tried), floor)
