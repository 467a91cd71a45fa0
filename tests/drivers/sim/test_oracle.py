"""The oracle is a bound: against brute force on tiny graphs, and above every strategy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scenarios import random_scenario
from wend.drivers.arrivals import find_earliest_arrivals
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.world import World, build_world
from wend.strategies.registry import linked_strategies
from wend.topology.faults import Intervals, Outage
from wend.topology.graph import Overlay, OverlayLink


def by_force(world: World, publisher: int, now: int) -> dict[int, int]:
    """Flood nanosecond by nanosecond: every holder sends to every neighbour at every moment."""
    best: dict[int, int] = {}
    coming: dict[int, set[int]] = {now: {publisher}}
    holding: set[int] = set()
    for at in range(now, world.end_ns + 1):
        if not world.scenario.settings["persistence"]:
            holding = {peer for peer in holding if world.peer_faults.is_up(peer, at)}
        arriving = {peer for peer in coming.pop(at, set()) if world.peer_faults.is_up(peer, at)}
        for peer in arriving:
            best.setdefault(peer, at)
        holding |= arriving
        for peer in holding:
            for there in world.overlay.neighbours(peer):
                index = world.overlay.link(peer, there)
                if world.faults.is_up(index, at) and world.peer_faults.is_up(peer, at):
                    coming.setdefault(at + world.overlay.links[index].delay_ns, set()).add(there)
    return best


@st.composite
def tiny_worlds(draw: st.DrawFn) -> World:
    peers = draw(st.integers(2, 5))
    pairs = [(a, b) for a in range(peers) for b in range(a + 1, peers)]
    chosen = sorted(draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1)))
    links = [OverlayLink(a, b, draw(st.integers(1, 9))) for a, b in chosen]
    outage = st.tuples(st.integers(0, len(links) - 1), st.integers(0, 30), st.integers(0, 30))
    outages: list[Outage] = [(p, min(a, b), max(a, b)) for p, a, b in draw(st.lists(outage, max_size=6))]
    crash = st.tuples(st.integers(0, peers - 1), st.integers(1, 40), st.integers(1, 40))
    crashes: list[Outage] = [(p, min(a, b), max(a, b)) for p, a, b in draw(st.lists(crash, max_size=6))]
    world = World(Scenario(topics=1, peers=20, persistence=draw(st.booleans())), Overlay(peers, links))
    world.end_ns = 50  # a world of nanoseconds
    world.faults = Intervals(len(links), outages)
    world.peer_faults = Intervals(peers, crashes)
    return world


@settings(deadline=None)
@given(tiny_worlds(), st.integers(0, 20))
def test_arrivals_are_the_earliest_over_all_paths_with_waiting(world: World, now: int) -> None:
    arrivals = find_earliest_arrivals(world, 0, now)
    assert arrivals.times == by_force(world, 0, now)
    for peer, time in arrivals.times.items():
        over = [hop for hop, _ in arrivals.holders_before(peer)]
        assert over[:1] == [peer] or peer == 0
        assert all(arrivals.times[hop] <= time for hop in over)


def test_waiting_for_the_next_second_beats_a_detour_only_if_it_is_sooner() -> None:
    world = World(Scenario(topics=1), Overlay(3, [OverlayLink(0, 1, 5), OverlayLink(0, 2, 5), OverlayLink(1, 2, 5)]))
    world.end_ns = 100
    world.faults = Intervals(3, [(0, 0, 3)])
    assert find_earliest_arrivals(world, 0, 0).times == {0: 0, 2: 5, 1: 8}
    world.faults = Intervals(3, [(0, 0, 20)])
    assert find_earliest_arrivals(world, 0, 0).times == {0: 0, 2: 5, 1: 10}


def spread(mean_s: float) -> dict[str, object]:
    return {"kind": "exponential", "mean_s": mean_s}


@pytest.mark.parametrize("seed", range(12))
def test_no_strategy_beats_the_oracle(seed: int) -> None:
    crashes = None if seed % 2 else {"up": spread(3.0), "down": spread(0.5)}
    scenario = random_scenario(seed, ("oracle",)).with_(peer_outages=crashes, duration="5s", drain="5s")
    oracle = simulate(scenario)
    bound = {row[1:5]: row[0] for row in oracle.trace.deliveries.rows()}
    for strategy in linked_strategies():
        outcome = simulate(scenario.with_(strategy=strategy))
        assert outcome.summary.expected == oracle.summary.expected
        assert outcome.summary.on_time <= oracle.summary.on_time, (strategy, seed)
        assert outcome.summary.delivery <= oracle.summary.delivery, (strategy, seed)
        assert all(bound[row[1:5]] <= row[0] for row in outcome.trace.deliveries.rows()), (strategy, seed)


def test_the_oracle_counts_what_cannot_arrive() -> None:
    outcome = simulate(Scenario(strategy="oracle", pf=1.0, duration="3s", drain="1s"))
    assert outcome.summary.delivery == 0.0
    assert outcome.summary.drops == {"no route in time": outcome.summary.expected}
    assert len(outcome.trace.drops) == outcome.summary.expected


def test_without_failures_every_packet_takes_the_shortest_route() -> None:
    world = build_world(Scenario(pf=0.0, duration="1s"))
    for publisher in range(world.overlay.peers):
        times = find_earliest_arrivals(world, publisher, 7).times
        assert [times[p] - 7 for p in range(world.overlay.peers)] == world.shortest_ns[publisher]
