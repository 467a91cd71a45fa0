"""The rankings of candidate paths that the thesis compares (section 3.5), on the same networks and workloads.

The thesis gives no numbers: it says that ranking by capacity selects roundabout paths, and that rejecting narrow paths
needs slightly fewer paths, takes much longer, and sometimes finds no plan. The capacity at which a ranking must find a
plan does not depend on the ranking. It lies halfway between what single shortest paths need and the receivers' floor.
"""

from functools import cache
from math import nan
from time import process_time
from typing import Literal

import msgspec
import numpy as np

from wend.model.rates import Rate
from wend.pipeline.sweeps.trials import TrialKind
from wend.planning.arrays import Floats, Ints, run_numbers
from wend.planning.candidate_paths import CandidatePaths
from wend.planning.delivery_graphs import limit_k, make_delivery_graphs
from wend.planning.flow_network import CsrGraph
from wend.planning.models import TIGHT, balance
from wend.planning.path_ranking import BOTTLENECK_DISJOINT, find_ranking
from wend.planning.problem import make_problem
from wend.studies.campr.brite_flat import Growth
from wend.studies.campr.receivers_floor import compute_floor
from wend.studies.campr.trials import MBIT, OWN_PARTS, CellTrial, draw_cell_workload, make_network

SHOWN = (1, 2, 3, 5, 10)
MAX_K = max(SHOWN)


class RankingTrial(msgspec.Struct, frozen=True):
    strategy: Literal["bottleneck-disjoint", "capacity", "rejecting"]
    nodes: int = 60
    messages: int = 500
    popularity: float = 0.25
    growth: Growth = "attached"


METRICS = (
    "required_k",
    "solved",
    "stretch",
    "stretch_first",
    "paths",
    "path_ms",
    "gain",
    *(f"needed_at_{k}" for k in SHOWN),
)
"""The least k with which a plan fits halfway (`required_k`), and whether up to 10 paths are enough (`solved`); the mean
delay over the shortest, of all candidate paths (`stretch`) and of the first (`stretch_first`); `paths` per receiver,
and the time to find them (`path_ms`); the capacity that k paths need, over that of single shortest paths, and by how
much further paths reduce it (`gain`)."""


def run_ranking(trial: RankingTrial, seed: int) -> dict[str, float]:
    _compile_functions()
    return _compare_ranking(trial, seed)


def _compare_ranking(trial: RankingTrial, seed: int) -> dict[str, float]:
    cell = CellTrial(
        "honest", nodes=trial.nodes, messages=trial.messages, popularity=trial.popularity, growth=trial.growth
    )
    network, workload = make_network(cell, seed, Rate(MBIT, bits=True)), draw_cell_workload(cell, seed)
    shortest = balance(make_problem(network, workload, make_delivery_graphs(network, workload, 1))).y
    search = _PathRecorder(trial.strategy)
    graphs = make_delivery_graphs(network, workload, MAX_K, search.find)
    needed = [balance(make_problem(network, workload, limit_k(graphs, k))).y for k in range(1, MAX_K + 1)]
    halfway = (shortest + compute_floor(network, workload)) / 2
    k = next((k for k, y in enumerate(needed, 1) if y <= halfway * (1 + TIGHT)), 0)
    return {
        "required_k": k or nan,
        "solved": float(k > 0),
        "stretch": float(np.mean(search.stretches)),
        "stretch_first": float(np.mean(search.first_stretches)),
        "paths": len(search.stretches) / search.receivers,
        "path_ms": 1000 * search.seconds / search.receivers,
        "gain": (needed[0] - needed[-1]) / shortest,
        **{f"needed_at_{k}": needed[k - 1] / shortest for k in SHOWN},
    }


class _PathRecorder:
    """Searches paths by a ranking, and records their properties."""

    def __init__(self, name: str) -> None:
        self._search = find_ranking(name)
        self._disjoint = find_ranking(BOTTLENECK_DISJOINT)
        self.receivers = 0
        self.seconds = 0.0
        self.stretches: list[float] = []
        """The delay of each path over the shortest to its receiver."""
        self.first_stretches: list[float] = []
        """The same, of the first path to each receiver."""

    def find(self, graph: CsrGraph, source: int, receivers: Ints, k: int) -> CandidatePaths:
        began = process_time()
        paths = self._search(graph, source, receivers, k)
        self.seconds += process_time() - began
        self.receivers += len(receivers)
        shortest = _compute_delays(graph, self._disjoint(graph, source, receivers, 1))
        stretches = _compute_delays(graph, paths) / shortest[run_numbers(paths.first)]
        self.stretches += stretches.tolist()
        self.first_stretches += stretches[paths.first[:-1]].tolist()
        return paths


def _compute_delays(graph: CsrGraph, paths: CandidatePaths) -> Floats:
    return np.add.reduceat(graph.delay[paths.arcs].astype(float), paths.ptr[:-1])


@cache
def _compile_functions() -> None:
    """Compile all functions before anything is timed."""
    _compare_ranking(RankingTrial("bottleneck-disjoint", nodes=12, messages=6), 1)


def estimate_cost(trial: RankingTrial) -> float:
    """Estimate the seconds: Yen's algorithm takes some milliseconds for each receiver."""
    pairs = 0.075 * trial.nodes**2
    return (
        1.0
        + pairs * trial.nodes / 60 * {"bottleneck-disjoint": 1e-4, "capacity": 3e-4, "rejecting": 1e-3}[trial.strategy]
    )


RANKING = TrialKind(
    "ranking",
    RankingTrial,
    run_ranking,
    METRICS,
    parts=("model", "topology", "planning", *OWN_PARTS, "studies/campr/trials.py"),
    cost=estimate_cost,
)
