"""Plans that survive the failure of a link, on maps of real networks: their price, and every failure simulated.

python -m benchmarks.survive [MAP ...]

Prints for each map (of topohub's Topology Zoo) the highest load without a failure and after the worst one, and what
became of the events when each link in turn failed while they flowed.
"""

import sys
import tempfile
from pathlib import Path

from wend.drivers.scenarios import Scenario
from wend.drivers.sim.run import Outcome, play_world
from wend.drivers.world import build_world
from wend.model.plan import Plan
from wend.model.units import SECOND
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import FlowWorkload, draw_workload, write_workload
from wend.planning.models import parse_goal
from wend.planning.planner import make_plan
from wend.topology.faults import Intervals

MAPS = ("Abilene", "Arpanet19728", "BtNorthAmerica")
LOAD = 0.95
"""Of the fullest link after the worst failure."""
K = 4
FAILS_S = 1.0
"""When the link fails, after the first publication."""


class SurvivablePlan:
    """A plan for a map, at the highest load that it survives, in a scenario with bounded queues."""

    def __init__(self, name: str, folder: Path, strategy: str = "planned-failover") -> None:
        scenario = Scenario(
            topology=f"topohub:topozoo/{name}", pf=0.0, pl=0.0, link_capacity="40msg/s", queue=16, duration="4s",
            drain="20s", seed=3, topics=1, strategy=strategy, detection="600ms",
        )  # fmt: skip
        self.overlay = build_world(scenario.with_(strategy="d-tree")).overlay
        self.network = FlowNetwork(self.overlay)
        flows = draw_workload(self.overlay.peers, 40, popularity=0.3, seed=3, publishers=0.3)
        self.plan = fit_plan(self.network, flows, LOAD)
        self.plan.write(folder / "plan")
        write_workload(flows, folder / "flows.jsonl", self.overlay.names)
        self._scenario = scenario.with_(flows=str(folder / "flows.jsonl"), plan=str(folder / "plan"))

    def run(self, link: int) -> Outcome:
        """Simulate the scenario with one link that fails and stays down."""
        world = build_world(self._scenario)
        begin = world.begin_ns + int(FAILS_S * SECOND)
        world.faults = Intervals(len(self.overlay.links), [(link, begin, begin + 600 * SECOND)])
        return play_world(world)


def fit_plan(network: FlowNetwork, flows: FlowWorkload, load: float) -> Plan:
    """A plan whose highest load, before or after any failure, is `load`."""
    flows.demand = flows.demand / 1000
    head = make_plan(network, flows, parse_goal("balance"), K, survive=1).head
    highest = max(head.highest_load, head.highest_load_failed)  # a failure may also cut much off
    flows.demand = flows.demand * (load / highest if highest else 1.0)
    return make_plan(network, flows, parse_goal("balance"), K, survive=1)


def main(names: list[str]) -> None:
    for name in names or MAPS:
        with tempfile.TemporaryDirectory() as folder:
            survivor = SurvivablePlan(name, Path(folder))
            head, links = survivor.plan.head, survivor.overlay.links
            price = head.highest_load_failed / head.highest_load
            print(
                f"{name}: {survivor.overlay.peers} peers, {len(links)} links, {head.flows} flows; highest load "
                f"{100 * head.highest_load:.1f} %, after the worst failure {100 * head.highest_load_failed:.1f} %, "
                f"{price:.2f} x; {survivor.plan.failures['moved'].mean():.1f} flows move",
                flush=True,
            )
            expected = delivered = dropped = rerouted = 0
            for link in range(len(links)):
                summary = survivor.run(link).summary
                expected += summary.expected
                delivered += round(summary.delivery * summary.expected)
                dropped += sum(summary.drops.values())
                rerouted += summary.notices.get("reroute", 0)
            print(
                f"  {len(links)} failures: {delivered} of {expected} deliveries, {dropped} drops, {rerouted} packets "
                f"took a detour",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
