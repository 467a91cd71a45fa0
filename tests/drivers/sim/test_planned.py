"""Small random worlds in which links and peers fail while their peers follow plans, and are told others."""

import random
from pathlib import Path

import pytest

from tests.errors import raises
from tests.plans import Flow, plan_of
from tests.scenarios import random_scenario
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.checks import check, check_properties
from wend.drivers.sim.run import Outcome, play_world
from wend.drivers.world import World, build_world
from wend.model.forwarding import Forwarding
from wend.model.units import SECOND
from wend.protocol.notices import REFUSED

WORLDS = 60


def random_tree(world: World, root: int, wanted: tuple[int, ...], draw: random.Random) -> list[tuple[int, int]]:
    """Some tree from the root, cut back to what leads to somebody who wants it."""
    parent: dict[int, int] = {}
    border = [root]
    while border:
        here = border.pop(draw.randrange(len(border)))
        for there in draw.sample(world.overlay.neighbours(here), len(world.overlay.neighbours(here))):
            if there != root and there not in parent:
                parent[there] = here
                border.append(there)
    needed: set[int] = set()
    for here in wanted:
        while here != root and here not in needed:
            needed.add(here)
            here = parent[here]
    return sorted((parent[here], here) for here in needed)


def random_plan(world: World, draw: random.Random, refuse: bool) -> Forwarding:
    flows: list[Flow] = []
    for topic in world.topics:
        if topic.subscribers and draw.random() < 0.9:
            trees = [random_tree(world, topic.publisher, topic.subscribers, draw) for _ in range(draw.randint(1, 3))]
            share = draw.choice([0.5, 1.0] if refuse else [1.0]) / len(trees)
            flows.append((topic.publisher, topic.subscribers, 1.0, [(share, tree) for tree in trees]))
    links = [(link.a, link.b) for link in world.overlay.links]
    return Forwarding(plan_of(world.overlay.peers, links, *flows))


def random_run(seed: int, refuse: bool = True, strategy: str = "planned") -> Outcome:
    draw = random.Random(f"plans {seed}")
    world = build_world(random_scenario(seed, (strategy,)))
    world.plan = random_plan(world, draw, refuse)
    for _ in range(draw.randint(0, 3)):
        plan, when = random_plan(world, draw, refuse), world.begin_ns + draw.randrange(6 * SECOND)
        for peer in range(world.overlay.peers):
            world.switches.append((when + draw.choice([0, draw.randrange(SECOND)]), peer, plan))
    return play_world(world)


@pytest.mark.parametrize("strategy", ["planned", "planned-failover"])
def test_promises_hold_whatever_the_plan_and_whatever_fails(strategy: str) -> None:
    followed = refused = 0
    for seed in range(WORLDS):
        outcome = random_run(seed, strategy=strategy)
        assert [str(violation) for violation in check(outcome)] == [], f"seed {seed}"
        followed += outcome.summary.notices["plan-adopted"]
        refused += outcome.summary.drops.get(REFUSED, 0)
    assert followed and refused


def test_with_nothing_failing_every_event_arrives_once_through_every_switch() -> None:
    for seed in range(20):
        draw = random.Random(seed)
        scenario = random_scenario(seed, ("planned",)).with_(
            pf=0.0, pl=0.0, outages=None, peer_outages=None, content=None, drain="5s", rate=20.0, duration="4s"
        )
        world = build_world(scenario)
        world.plan = random_plan(world, draw, refuse=False)
        for turn in range(4):
            plan = random_plan(world, draw, refuse=False)
            for peer in range(world.overlay.peers):
                world.switches.append((world.begin_ns + turn * SECOND + draw.randrange(SECOND), peer, plan))
        outcome = play_world(world)
        assert outcome.summary.delivered == outcome.summary.expected and not outcome.summary.drops, f"seed {seed}"
        assert check_properties(outcome, ("safety", "integrity", "agreement", "validity")) == []


def test_the_same_run_twice_is_the_same_run() -> None:
    one, two = (random_run(7).summary.trace_sha256 for _ in range(2))
    assert one == two


def test_a_plan_for_another_topology_is_one_sentence(tmp_path: Path) -> None:
    plan_of(3, [(0, 1), (1, 2)], (0, (2,), 1.0, [(1.0, [(0, 1), (1, 2)])])).write(tmp_path)
    with raises("invalid-setting", match="is a plan for another topology"):
        simulate(Scenario(strategy="planned", plan=str(tmp_path)))
    with raises("unreadable", match=r"is not a plan: cannot read plan\.json"):
        simulate(Scenario(strategy="planned", plan=str(tmp_path / "nowhere")))
    with raises("unreadable", match=r"cannot read .*nowhere: No such file"):
        simulate(Scenario(flows=str(tmp_path / "nowhere")))
