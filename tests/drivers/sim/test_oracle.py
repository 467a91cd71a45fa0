"""The oracle is a bound: against brute force on tiny graphs, and above every strategy."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scenarios import random_scenario
from wend.drivers.arrivals import earliest_arrivals
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.world import World, build
from wend.strategies.registry import linked_strategies
from wend.topology.faults import Intervals, Outage
from wend.topology.graph import Overlay, OverlayLink


def by_force(world: World, publisher: int, now: int) -> dict[int, int]:
    """Over every simple path, leaving each peer as soon as the next link is up: waiting longer never helps."""
    best = {publisher: now}

    def go(path: tuple[int, ...], at: int) -> None:
        for there in world.overlay.neighbours(path[-1]):
            if there in path:
                continue
            index = world.overlay.link(path[-1], there)
            leave = at
            while leave <= world.end_ns and not world.faults.is_up(index, leave):
                leave += 1
            arrival = leave + world.overlay.links[index].delay_ns
            if arrival <= world.end_ns:
                best[there] = min(best.get(there, arrival), arrival)
                go((*path, there), arrival)

    go((publisher,), now)
    return best


@st.composite
def tiny_worlds(draw: st.DrawFn) -> World:
    peers = draw(st.integers(2, 5))
    pairs = [(a, b) for a in range(peers) for b in range(a + 1, peers)]
    chosen = sorted(draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1)))
    links = [OverlayLink(a, b, draw(st.integers(1, 9))) for a, b in chosen]
    outage = st.tuples(st.integers(0, len(links) - 1), st.integers(0, 30), st.integers(0, 30))
    outages: list[Outage] = [(p, min(a, b), max(a, b)) for p, a, b in draw(st.lists(outage, max_size=6))]
    world = World(Scenario(topics=1, peers=20), Overlay(peers, links))
    world.end_ns = 50  # a world of nanoseconds
    world.faults = Intervals(len(links), outages)
    return world


@settings(deadline=None)
@given(tiny_worlds(), st.integers(0, 20))
def test_arrivals_are_the_earliest_over_all_paths_with_waiting(world: World, now: int) -> None:
    arrival, parent = earliest_arrivals(world, 0, now)
    assert arrival == by_force(world, 0, now)
    for peer, before in parent.items():
        if peer in arrival:
            assert arrival[before] < arrival[peer]


def test_waiting_for_the_next_second_beats_a_detour_only_if_it_is_sooner() -> None:
    world = World(Scenario(topics=1), Overlay(3, [OverlayLink(0, 1, 5), OverlayLink(0, 2, 5), OverlayLink(1, 2, 5)]))
    world.end_ns = 100
    world.faults = Intervals(3, [(0, 0, 3)])
    assert earliest_arrivals(world, 0, 0)[0] == {0: 0, 2: 5, 1: 8}
    world.faults = Intervals(3, [(0, 0, 20)])
    assert earliest_arrivals(world, 0, 0)[0] == {0: 0, 2: 5, 1: 10}


@pytest.mark.parametrize("seed", range(12))
def test_no_strategy_beats_the_oracle(seed: int) -> None:
    scenario = random_scenario(seed, ("oracle",)).with_(peer_outages=None, duration="5s", drain="5s")
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
    world = build(Scenario(pf=0.0, duration="1s"))
    for publisher in range(world.overlay.peers):
        arrival, parent = earliest_arrivals(world, publisher, 7)
        assert [arrival[p] - 7 for p in range(world.overlay.peers)] == world.shortest_ns[publisher]
        for peer, before in pairwise([(p, parent.get(p)) for p in arrival]):
            assert peer is not before
