"""The three path rankings of the CAMPR thesis (section 3.5) on the same networks and workloads: how many paths are
needed until everything fits, how full the fullest link of a balanced plan is, how slow its routes are, and how long the
paths take.

    python -m benchmarks.path_rankings
"""

from time import process_time
from typing import NamedTuple

import msgspec
import numpy as np

from wend.drivers.scenarios import Scenario
from wend.drivers.world import build_world
from wend.planning.delivery_graphs import limit_k, make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import draw_workload
from wend.planning.models import DELAY, TIGHT, USAGE, balance, optimise_reduced
from wend.planning.path_ranking import RANKINGS, find_ranking
from wend.planning.problem import make_problem
from wend.topology.graph import Overlay

PEERS, DEGREE, MESSAGES = 30, 5, 60
SEEDS = range(1, 6)
MAX_K = 8
OVERLOADS = (1.25, 1.5, 2.0)
"""The offered load: the highest load of single shortest paths."""


class RankedPlans(NamedTuple):
    """One ranking on one network and workload."""

    paths_s: float
    """Seconds of CPU for `MAX_K` paths to each receiver, and the trees."""
    loads: tuple[float, ...]
    """The highest load of the balanced plan with k = 1, 2, ..., in units of that of single shortest paths."""

    delay: float
    """The mean delay of the balanced plan with k = 5 on idle links, in units of that of single shortest paths."""

    def required_k(self, overload: float) -> float:
        """The least k with which the workload fits; not a number if none does."""
        fitting = [k for k, load in enumerate(self.loads, 1) if load * overload <= 1]
        return fitting[0] if fitting else np.nan


def compare(seed: int) -> dict[str, RankedPlans]:
    """All rankings on one network, whose links carry 20 to 60 messages a second."""
    overlay = build_world(Scenario(peers=PEERS, degree=DEGREE, seed=seed, topics=1)).overlay
    drawn = np.random.Generator(np.random.PCG64(seed)).integers(2, 7, len(overlay.links)) * 10.0
    links = [
        msgspec.structs.replace(link, capacity_msgs=capacity)
        for link, capacity in zip(overlay.links, drawn.tolist(), strict=True)
    ]
    network = FlowNetwork(Overlay(overlay.peers, links, overlay.names))
    flows = draw_workload(PEERS, MESSAGES, popularity=0.2, seed=seed, publishers=0.3)
    shortest = make_problem(network, flows, make_delivery_graphs(network, flows, 1))
    single, single_delay = balance(shortest).y, shortest.costs(DELAY).sum()
    plans = {}
    for name in RANKINGS:
        began = process_time()
        graphs = make_delivery_graphs(network, flows, MAX_K, find_ranking(name))
        paths_s = process_time() - began
        each = [balance(make_problem(network, flows, limit_k(graphs, k))).y / single for k in range(1, MAX_K + 1)]
        five = make_problem(network, flows, limit_k(graphs, 5))
        best = optimise_reduced(five, (USAGE, DELAY), limit=balance(five).y * (1 + TIGHT))
        assert best is not None, "the balanced plan keeps the limit"
        plans[name] = RankedPlans(paths_s, tuple(each), float(five.costs(DELAY) @ best.shares) / single_delay)
    return plans


def main() -> None:
    compare(0)  # compiles
    runs = [compare(seed) for seed in SEEDS]
    needed = " | ".join(f"k at {overload:g} x" for overload in OVERLOADS)
    print(f"| ranking | {needed} | load, k = 2 | load, k = 5 | load, k = {MAX_K} | delay, k = 5 | paths |")
    print("| --- " * (len(OVERLOADS) + 6) + "|")
    for name in RANKINGS:
        each = [run[name] for run in runs]
        cells = [_mean_text([plans.required_k(overload) for plans in each]) for overload in OVERLOADS]
        cells += [f"{np.mean([plans.loads[k - 1] for plans in each]):.3f}" for k in (2, 5, MAX_K)]
        cells.append(f"{np.mean([plans.delay for plans in each]):.2f}")
        print(f"| {name} | {' | '.join(cells)} | {1000 * np.mean([plans.paths_s for plans in each]):.0f} ms |")


def _mean_text(values: list[float]) -> str:
    """The mean of those that fit, and how many do."""
    fitting = [value for value in values if np.isfinite(value)]
    return f"{np.mean(fitting):.1f} ({len(fitting)} of {len(values)})" if fitting else "never"


if __name__ == "__main__":
    main()
