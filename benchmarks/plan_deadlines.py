"""What deadlines do to plans: deliveries on time in the simulator, and the load of the fullest link.

20 peers of degree 5, whose links single shortest paths fill to at most one half; deadlines of 3 x the shortest delay.

    python -m benchmarks.plan_deadlines
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from wend.drivers.scenarios import Scenario
from wend.drivers.sim.run import play
from wend.drivers.world import build
from wend.model.flows import Deadline
from wend.model.forwarding import Forwarding
from wend.model.rates import Rate
from wend.planning.delivery_graphs import make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import draw_workload, write_workload
from wend.planning.graph_delays import compute_graph_delays
from wend.planning.models import DELAY, balance, optimise_reduced, parse_goal
from wend.planning.planner import make_plan
from wend.planning.problem import make_problem
from wend.planning.route_choice import add_running_graphs

SEEDS = range(1, 11)
FACTOR, CAPACITY, K = 3.0, 40.0, 5
GOALS = ("balance", "min-usage", "min-delay")
ROOM = (1.1, 1.25, 1.5, 2.0)
"""Highest loads, in units of that of the balanced plan without deadlines."""


class Row(NamedTuple):
    on_time: float
    load: float


class Case:
    """One network and its workload."""

    def __init__(self, seed: int) -> None:
        self.world = Scenario(peers=20, degree=5, seed=seed, pf=0.0, pl=0.0, topics=1, factor=FACTOR)
        self.network = FlowNetwork(build(self.world).overlay, link=Rate(CAPACITY))
        self.flows = draw_workload(20, 200, popularity=0.3, seed=seed, publishers=0.3)
        single = balance(make_problem(self.network, self.flows, make_delivery_graphs(self.network, self.flows, 1))).y
        self.flows.demand = self.flows.demand * 0.5 / single
        self.urgent = self.flows.with_deadline(Deadline(factor=FACTOR))

    def simulate(self, goal: str | None, urgent: bool) -> Row:
        """A plan in the simulator; without a goal, a tree."""
        with TemporaryDirectory() as folder:
            flows = Path(folder) / "flows.jsonl"
            write_workload(self.flows, flows)
            world = build(
                self.world.with_(
                    strategy="planned" if goal else "d-tree",
                    link_capacity=f"{CAPACITY:g}msg/s",
                    queue=32,
                    flows=str(flows),
                    duration="10s",
                    drain="20s",
                )
            )
            load = 0.5
            if goal:
                plan = make_plan(self.network, self.urgent if urgent else self.flows, parse_goal(goal), K)
                world.plan, load = Forwarding(plan), plan.head.highest_load
            return Row(play(world).summary.on_time, load)

    def bounds(self) -> list[Row]:
        """The most deliveries that the candidate graphs bring in time on idle links, for each `ROOM`."""
        plain = make_delivery_graphs(self.network, self.flows, K)
        least = balance(make_problem(self.network, self.flows, plain)).y
        timely = make_delivery_graphs(self.network, self.urgent, K)
        graphs = add_running_graphs(plain, [
            [(timely.arcs[timely.ptr[g] : timely.ptr[g + 1]], 1, 0.0) for g in range(first, last)]
            for first, last in zip(timely.of_flow[:-1].tolist(), timely.of_flow[1:].tolist(), strict=True)
        ])  # fmt: skip
        late = compute_graph_delays(self.network, self.urgent, graphs.of_flow, graphs.ptr, graphs.arcs).late
        problem = make_problem(self.network, self.urgent, graphs)._replace(delay=late.astype(float))
        rows = []
        for room in ROOM:
            best = optimise_reduced(problem, (DELAY,), limit=room * least)
            assert best is not None, "the balanced plan fits"
            rows.append(Row(1 - float(problem.costs(DELAY) @ best.shares) / self.flows.deliveries(), room * least))
        return rows


def main() -> None:
    cases = [Case(seed) for seed in SEEDS]
    tree = [case.simulate(None, False) for case in cases]
    print("| | on time | as often as the tree, of 10 | fullest link |\n| --- | --- | --- | --- |")
    for goal, urgent in ((None, False), *((goal, urgent) for goal in GOALS for urgent in (False, True))):
        rows = [case.simulate(goal, urgent) for case in cases] if goal else tree
        _print(f"{goal or '`d-tree`'}{', deadlines' if urgent else ''}", rows, tree)
    for room, rows in zip(ROOM, zip(*(case.bounds() for case in cases), strict=True), strict=True):
        _print(f"at most {room:g} x of balance: bound on idle links", list(rows), tree)


def _print(name: str, rows: list[Row], tree: list[Row]) -> None:
    reached = sum(row.on_time >= other.on_time for row, other in zip(rows, tree, strict=True))
    on_time, load = np.mean(rows, axis=0)
    print(f"| {name} | {100 * on_time:.1f} % | {reached} | {100 * load:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
