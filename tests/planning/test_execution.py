"""Plans in the simulator, at the load that they were made for: evenly spaced events, bounded queues, free ACKs.

Queues hold `QUEUE` packets. The load is such that the fullest link has a utilisation of 100 %: a feasible plan must run
without drops.
"""

from collections import Counter
from math import inf
from pathlib import Path

import numpy as np
import pytest

from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.checks import check
from wend.drivers.sim.drop_ledger import PEER_BUSY, QUEUE_FULL
from wend.drivers.sim.engine import Engine
from wend.drivers.sim.run import Outcome, play_world
from wend.drivers.world import World, build_world
from wend.model.forwarding import Forwarding
from wend.model.plan import Plan
from wend.model.randomness import stream
from wend.model.units import MS, SECOND
from wend.planning.delivery_graphs import make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import MESSAGES, FlowWorkload, draw_workload, write_workload
from wend.planning.models import balance, parse_goal
from wend.planning.planner import make_plan
from wend.planning.problem import make_problem
from wend.protocol.notices import REFUSED
from wend.topology.graph import Overlay

QUEUE = 8
K = 4
SECONDS = 6.0
WORLD = Scenario(
    peers=16, degree=4, pf=0.0, pl=0.0, link_capacity="40msg/s", queue=QUEUE, duration=f"{SECONDS}s",
    drain="20s", seed=3, topics=1, strategy="planned",
)  # fmt: skip


class Case:
    """A network, a workload that just fits it, and the folder of its files."""

    def __init__(self, folder: Path, overlay: Overlay) -> None:
        self.folder = folder
        self.network = FlowNetwork(overlay)
        self.workload = draw_workload(WORLD.peers, 24, popularity=0.3, seed=3, publishers=0.3)
        self.workload.weight[:] = stream(3, "tests", "weights").integers(1, 6, len(self.workload))
        problem = make_problem(self.network, self.workload, make_delivery_graphs(self.network, self.workload, K))
        self.fits = self.workload.demand / balance(problem).y

    def offer(self, load: float) -> FlowWorkload:
        """The workload, at `load` times the rates that just fit."""
        self.workload.demand = self.fits * load
        write_workload(self.workload, self.folder / "flows.jsonl")
        return self.workload

    def plan(self, load: float, goal: str, *, partial: bool = False) -> Plan:
        plan = make_plan(self.network, self.offer(load), parse_goal(goal), K, partial=partial)
        plan.write(self.folder / "plan")
        return plan

    @property
    def scenario(self) -> Scenario:
        return WORLD.with_(flows=str(self.folder / "flows.jsonl"), plan=str(self.folder / "plan"))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("plan"), build_world(WORLD).overlay)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The thesis's model: peers that receive from 30 to 110 messages a second, and links without limits."""
    ring = build_world(WORLD.with_(link_capacity=None)).overlay
    takes = stream(3, "tests", "peers").integers(30, 110, ring.peers).tolist()
    return Case(
        tmp_path_factory.mktemp("narrow"), Overlay(ring.peers, ring.links, ring.names, tuple((t, inf) for t in takes))
    )


def value(outcome: Outcome) -> float:
    """Weighted deliveries per second."""
    weights = {number: topic.weight for number, topic in enumerate(outcome.world.topics)}
    return sum(weights[row[5]] for row in outcome.trace.deliveries.rows()) / SECONDS


@pytest.mark.parametrize("goal", ["min-usage", "balance"])
def test_at_the_planned_load_nothing_is_dropped(case: Case, goal: str) -> None:
    plan = case.plan(1.0, goal)
    assert plan.head.highest_load == pytest.approx(1.0, rel=1e-6)
    outcome = simulate(case.scenario)
    assert outcome.summary.drops == {}
    assert outcome.summary.delivery == 1.0
    assert set(outcome.summary.notices) == {"plan-adopted"}
    assert check(outcome) == []


def test_the_links_have_the_planned_loads(case: Case) -> None:
    plan = case.plan(1.0, "balance")
    outcome = simulate(case.scenario.with_(trace_level="hops", duration="12s"))
    carried = Counter((row[1], row[2]) for row in outcome.trace.hops.rows())
    arcs = zip(plan.arcs["a"].tolist(), plan.arcs["b"].tolist(), plan.arcs["after_msgs"].tolist(), strict=True)
    for a, b, planned in arcs:
        graphs = np.count_nonzero((plan.hops["peer"] == a) & (plan.hops["next"] == b))
        assert abs(carried[a, b] - 12 * planned) <= 2 * graphs  # each graph's share to within one, and one at each end


@pytest.mark.parametrize("strategy", ["d-tree", "dcrd", "multipath"])
def test_strategies_that_ignore_capacities_drop_at_the_same_load(case: Case, strategy: str) -> None:
    case.offer(1.0)
    outcome = simulate(case.scenario.with_(strategy=strategy, plan=None))
    assert outcome.summary.drops[QUEUE_FULL] > 0
    assert outcome.summary.delivery < 0.9


def test_of_an_overload_the_most_valuable_part_arrives(case: Case) -> None:
    plan = case.plan(1.5, "balance", partial=True)
    assert plan.head.partial and plan.head.value < plan.head.whole_value
    outcome = simulate(case.scenario)
    assert value(outcome) >= 0.95 * plan.head.value
    assert set(outcome.summary.drops) == {REFUSED}
    assert outcome.summary.delivered + outcome.summary.drops[REFUSED] == outcome.summary.expected
    assert check(outcome) == []
    # A tree refuses no event, and delivers fewer of the valuable ones.
    assert value(simulate(case.scenario.with_(strategy="d-tree", plan=None))) < 0.9 * plan.head.value


def test_peers_have_capacities(case: Case) -> None:
    network = FlowNetwork(build_world(WORLD).overlay, peer="links")
    workload = case.offer(1.0)
    plan = make_plan(network, workload, parse_goal("balance"), K)
    plan.write(case.folder / "plan")
    assert simulate(case.scenario.with_(peer_capacity="links", queue=2 * QUEUE)).summary.drops == {}


@pytest.mark.parametrize("goal", ["min-usage", "balance"])
def test_at_the_load_planned_for_peers_nothing_is_dropped(narrow: Case, goal: str) -> None:
    plan = narrow.plan(1.0, goal)
    assert plan.head.highest_load == pytest.approx(1.0, rel=1e-6)
    stated = narrow.scenario.with_(link_capacity=None, peer_capacity="stated")
    outcome = play_world(World(stated, narrow.network.overlay))
    assert outcome.summary.drops == {} and outcome.summary.delivery == 1.0
    assert check(outcome) == []
    full = play_world(World(stated.with_(strategy="d-tree", plan=None), narrow.network.overlay)).summary
    assert full.drops[PEER_BUSY] > 0 and full.delivery < 0.95
    assert full.delivered + full.drops[PEER_BUSY] == full.expected


@pytest.mark.parametrize("apart_ms", [0, 3, 250])
def test_plans_are_switched_without_loss(case: Case, apart_ms: int) -> None:
    """Peers load the other plan one after the other, so that some packets reach peers that do not have it yet."""
    low = 0.5  # half empty links have capacity for the packets that take the shortest path meanwhile
    plans = [Forwarding(case.plan(low, goal)) for goal in ("min-usage", "balance")]
    assert plans[0].id != plans[1].id
    world = build_world(case.scenario.with_(queue=64))
    world.plan = plans[0]
    begin = world.begin_ns + SECOND
    for turn in range(8):
        for peer in range(WORLD.peers):
            when = begin + turn * SECOND + peer * apart_ms * MS // WORLD.peers
            world.switches.append((when, peer, plans[(turn + 1) % 2]))
    engine = Engine(world)
    engine.run()
    expected = sum(len(subscribers) for _, subscribers in engine.expected.values())
    got = Counter(row[1:5] for row in engine.trace.deliveries.rows())
    assert len(got) == expected and set(got.values()) == {1}
    assert engine.drops == {}
    assert engine.notices["plan-adopted"] == 9 * WORLD.peers
    assert (engine.notices["unknown-plan"] > 0) == (apart_ms == 250)


def test_a_value_is_counted_in_messages(case: Case) -> None:
    plan = case.plan(1.0, "balance")
    receivers = np.diff(case.workload.ptr)
    assert plan.head.value == pytest.approx(float(receivers @ (case.workload.demand[MESSAGES] * case.workload.weight)))
    assert value(simulate(case.scenario)) == pytest.approx(plan.head.value, rel=0.02)
