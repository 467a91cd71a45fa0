"""Scenarios on an underlay: links are as slow as their ways, and fail exactly with what is on them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scenarios import random_scenario
from tests.topology.placements import overlays, placements, row
from wend.drivers.scenario_underlay import SimulatedTraceroutes, compute_component_pf
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.checks import check
from wend.drivers.sim.run import play_world
from wend.drivers.world import World, build_world
from wend.model.units import MS, SECOND
from wend.strategies.registry import linked_strategies
from wend.topology.faults import Intervals
from wend.topology.underlay_faults import UnderlayFaults

CRASH = {"up": {"kind": "exponential", "mean_s": 9.0}, "down": {"kind": "exponential", "mean_s": 0.7}}
FAILING: list[dict[str, Any]] = [
    {"pf": 0.2},
    {"mean_outage": "0.5s"},
    {"outages": CRASH},
    {"router_outages": CRASH},
    {"outages": CRASH, "router_outages": CRASH},
]


def on(underlay: str, **changes: Any) -> Scenario:
    fields = {"peers": 12, "degree": 4, "topics": 4, "duration": "8s", "drain": "4s", "underlay": underlay}
    return Scenario().with_(**{**fields, **changes})


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(FAILING), st.integers(0, 99))
def test_a_packet_arrives_if_all_is_up_that_its_link_runs_over(
    data: st.DataObject, failing: dict[str, Any], seed: int
) -> None:
    """Components are asked one by one, as the engine never does."""
    placement = data.draw(placements())
    overlay = data.draw(overlays(placement))
    scenario = on(
        "power-law", seed=seed, topics=1, duration="2s", pl=0.0, trace_level="hops", strategy="adaptive", **failing
    )
    world = World(scenario, overlay, placement)
    assert isinstance(world.faults, UnderlayFaults)
    starts, parts = placement.link_components(overlay)
    outcome = play_world(world)
    sent = [(*row[:3], row[-1]) for table in (outcome.trace.hops, outcome.trace.probes) for row in table.rows()]
    assert sent
    for now, sender, receiver, arrived in sent:
        link = overlay.link(sender, receiver)
        made_of = parts[starts[link] : starts[link + 1]].tolist()
        assert bool(arrived) == all(world.faults.is_component_up(part, now) for part in made_of)


def test_every_failure_model_makes_links_fail_together() -> None:
    for failing in FAILING:
        world = build_world(on("power-law", duration="60s", **failing))
        assert world.placement is not None
        began = [(start, until) for _, start, until in world.faults.outages()]
        assert len(set(began)) < len(began), failing
        assert all(world.begin_ns <= start < until <= world.end_ns for start, until in began)


@settings(max_examples=60)
@given(st.floats(0.0, 1.0), st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_components_fail_as_often_as_links_shall(pf: float, lengths: list[int]) -> None:
    chance = compute_component_pf(pf, np.array(lengths))
    assert sum(1 - (1 - chance) ** length for length in lengths) / len(lengths) == pytest.approx(pf, abs=1e-6)


def test_links_are_down_as_often_as_without_an_underlay() -> None:
    world = build_world(on("power-law", pf=0.06, duration="2000s"))
    down = sum(until - start for _, start, until in world.faults.outages())
    assert down / len(world.overlay.links) / (world.end_ns - world.begin_ns) == pytest.approx(0.06, rel=0.1)


def test_a_link_is_as_slow_as_its_path() -> None:
    for topology in ("regular", "full-mesh"):
        world = build_world(on("transit-stub", topology=topology, last_mile="3ms"))
        assert world.placement is not None
        for link in world.overlay.links:
            assert link.delay_ns == 6 * MS + world.placement.direct_ns[link.a, link.b]
    plain = build_world(Scenario(peers=12, degree=4, topics=4))
    links = build_world(on("transit-stub")).overlay.links
    assert [(link.a, link.b) for link in links] == [(link.a, link.b) for link in plain.overlay.links]


def test_another_peer_moves_no_failure() -> None:
    crashes = [build_world(on("power-law", peers=peers, outages=CRASH)) for peers in (12, 14)]
    for part in range(800):
        states = []
        for world in crashes:
            assert isinstance(world.faults, UnderlayFaults)
            states.append([world.faults.is_component_up(part, now) for now in range(0, world.end_ns, SECOND // 2)])
        assert states[0] == states[1]


def test_a_traceroute_ends_where_the_path_is_broken() -> None:
    placement = row(4, [0, 3])
    overlay = placement.overlay([(0, 1)])
    world = World(on("power-law", topics=1, pf=0.0), overlay, placement)
    assert world.find_path(0, 1) == (0, 1, 2, 3)
    for part, found in (
        (placement.first_last_mile, None),
        (0, (None,)),
        (placement.first_link, (0, None)),
        (1, (0, None)),
        (2, (0, 1, None)),
        (3, (0, 1, 2, None)),
        (placement.first_last_mile + 1, (0, 1, 2, 3, None)),
    ):
        broken = UnderlayFaults(placement, overlay, Intervals(placement.components, [(part, SECOND, 2 * SECOND)]))
        traced = SimulatedTraceroutes(on("power-law"), placement, broken)
        assert traced.trace_route(0, 1, SECOND, 0) == found
        assert traced.trace_route(0, 1, 2 * SECOND, 0) == (0, 1, 2, 3)


def test_routers_stay_silent_always_and_answers_get_lost_now_and_then() -> None:
    """Each pair asks twice."""
    asked = [(a, b) for a in range(12) for b in range(12) if a != b]
    for changes, same in (({"anonymous": 0.2}, True), ({"traceroute_loss": 0.2}, False)):
        world = build_world(on("brite", **changes))
        assert world.placement is not None
        found = [[world.find_path(a, b, attempt=attempt) for a, b in asked] for attempt in (0, 1)]
        assert (found[0] == found[1]) == same
        holes = said = 0
        for (a, b), hops in zip(asked, found[0], strict=True):
            assert hops is not None
            assert all(hop in (None, router) for hop, router in zip(hops, world.placement.path(a, b), strict=True))
            holes, said = holes + hops.count(None), said + len(hops)
        assert 0.1 < holes / said < 0.3


@pytest.mark.parametrize("seed", range(5))
def test_no_strategy_beats_the_oracle(seed: int) -> None:
    scenario = random_scenario(seed, ("oracle",)).with_(
        underlay="power-law", peer_outages=None, **FAILING[seed % len(FAILING)] | {"duration": "3s", "drain": "3s"}
    )
    if scenario.mean_outage_ns is not None:
        scenario = scenario.with_(outages=None)
    bound = {row[1:5]: row[0] for row in simulate(scenario).trace.deliveries.rows()}
    assert bound
    for strategy in linked_strategies():
        outcome = simulate(scenario.with_(strategy=strategy))
        assert check(outcome) == []
        for row_ in outcome.trace.deliveries.rows():
            assert row_[0] >= bound[row_[1:5]]


def test_peers_choose_their_links_by_the_underlay() -> None:
    chosen = on("brite", topology="full-mesh", strategy="adaptive", pf=0.0, membership="tdo-landmark", warmup="25s")
    outcome = simulate(chosen)
    assert outcome.summary.delivery == 1.0
    assert outcome.summary.notices["paths"] > 0


@pytest.mark.parametrize("first", (0, 20))
def test_adaptive_holds_its_promises_when_it_knows_the_underlay(first: int) -> None:
    broken, traced = {}, 0
    for seed in range(first, first + 20):
        failing: dict[str, Any] = [{}, {"router_outages": CRASH}, {"anonymous": 0.3, "traceroute_loss": 0.3}][seed % 3]
        outcome = simulate(random_scenario(seed, ("adaptive",)).with_(underlay="power-law", **failing))
        traced += outcome.summary.notices["paths"]
        if violations := check(outcome):
            broken[seed] = str(violations[0])
    assert not broken
    assert traced


def test_who_finds_out_nothing_does_nothing_else() -> None:
    """Where no router gives its name, everything is as if nobody had asked."""
    blind = on("power-law", strategy="adaptive", pf=0.1, anonymous=1.0, trace_level="hops")
    asked, silent = simulate(blind), simulate(blind.with_(trace_paths=False))
    assert asked.summary.notices.pop("paths") > 0
    assert asked.summary.notices == silent.summary.notices
    assert asked.summary.trace_sha256 == silent.summary.trace_sha256
    knowing = simulate(blind.with_(anonymous=0.0))
    assert knowing.summary.trace_sha256 != silent.summary.trace_sha256
