"""What deadlines do to plans: deliveries on time in the simulator, and the load of the fullest link.

20 peers of degree 5, whose links single shortest paths fill to at most one half; deadlines of 3 x the shortest delay.

    python -m benchmarks.plan_deadlines
"""

from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from benchmarks.on_time_bound import on_time_bound
from wend.drivers.scenarios import Scenario
from wend.drivers.sim.run import play_world
from wend.drivers.world import build_world
from wend.model.flows import Deadline
from wend.model.forwarding import Forwarding
from wend.model.rates import Rate
from wend.planning.candidate_paths import shortest_delays
from wend.planning.delivery_graphs import make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import draw_workload, write_workload
from wend.planning.models import balance, parse_goal
from wend.planning.planner import make_plan
from wend.planning.problem import make_problem

SEEDS = range(1, 11)
FACTOR, CAPACITY, K = 3.0, 40.0, 5
GOALS = ("balance", "min-usage", "min-delay")
ROOM = (1.1, 1.25, 1.5)
"""Highest loads, in units of that of the balanced plan without deadlines."""


class Row(NamedTuple):
    on_time: float
    load: float


class Case:
    """One network and its workload."""

    def __init__(self, seed: int) -> None:
        self.world = Scenario(peers=20, degree=5, seed=seed, pf=0.0, pl=0.0, topics=1, factor=FACTOR)
        self.network = FlowNetwork(build_world(self.world).overlay, link=Rate(CAPACITY))
        self.flows = draw_workload(20, 200, popularity=0.3, seed=seed, publishers=0.3)
        single = balance(make_problem(self.network, self.flows, make_delivery_graphs(self.network, self.flows, 1))).y
        self.flows.demand = self.flows.demand * 0.5 / single
        self.urgent = self.flows.with_deadline(Deadline(factor=FACTOR))

    def simulate(self, goal: str | None, urgent: bool, room: float = inf) -> Row:
        """A plan in the simulator; without a goal, a tree."""
        with TemporaryDirectory() as folder:
            flows = Path(folder) / "flows.jsonl"
            write_workload(self.flows, flows)
            world = build_world(
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
                wanted = self.urgent if urgent else self.flows
                plan = make_plan(self.network, wanted, parse_goal(goal), K, room=room)
                world.plan, load = Forwarding(plan), plan.head.highest_load
            return Row(play_world(world).summary.on_time, load)

    def bound(self, room: float) -> Row:
        """The most deliveries that any routes bring in time if packets never wait, with no load above this multiple of
        the balanced plan's."""
        least = balance(make_problem(self.network, self.flows, make_delivery_graphs(self.network, self.flows, K))).y
        larger = self.flows.without_deadlines()
        larger.demand = larger.demand / (room * least)
        shortest = {peer: shortest_delays(self.network.graph, peer) for peer in set(larger.publisher.tolist())}
        best = on_time_bound(self.network, larger, lambda a, b: int(FACTOR * shortest[a][b]))
        return Row(best.share, room * least)


def main() -> None:
    cases = [Case(seed) for seed in SEEDS]
    tree = [case.simulate(None, False) for case in cases]
    print("| | on time | as often as the tree, of 10 | fullest link |\n| --- | --- | --- | --- |")
    for goal, urgent in ((None, False), *((goal, urgent) for goal in GOALS for urgent in (False, True))):
        rows = [case.simulate(goal, urgent) for case in cases] if goal else tree
        _print(f"{goal or '`d-tree`'}{', deadlines' if urgent else ''}", rows, tree)
    for room in ROOM:
        _print(
            f"on-time, deadlines, at most {room:g} x", [case.simulate("on-time", True, room) for case in cases], tree
        )
        _print(f"bound at {room:g} x", [case.bound(room) for case in cases], tree)


def _print(name: str, rows: list[Row], tree: list[Row]) -> None:
    reached = sum(row.on_time >= other.on_time for row, other in zip(rows, tree, strict=True))
    on_time, load = np.mean(rows, axis=0)
    print(f"| {name} | {100 * on_time:.1f} % | {reached} | {100 * load:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
