"""Peers with several access routers: which of them a path uses, and what fails with it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topology.placements import networks, row
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.checks import check
from wend.drivers.world import build_world
from wend.model.errors import ConfigError
from wend.topology.catalog import make
from wend.topology.link_overlap import meeting_routers
from wend.topology.overlays import chain, landmark
from wend.topology.placement import Placement, attach_peers
from wend.topology.underlay_faults import UnderlayFaults


@st.composite
def multihomed(draw: st.DrawFn) -> Placement:
    under = draw(networks(9, 3))
    router = st.integers(0, under.routers - 1)
    homes = draw(st.lists(router, min_size=2, max_size=4))
    peers = st.integers(0, len(homes) - 1)
    further = draw(st.lists(st.tuples(peers, router), unique=True, max_size=5))
    return Placement(under, homes, further=[(peer, other) for peer, other in further if other != homes[peer]])


@settings(max_examples=150, deadline=None)
@given(multihomed())
def test_a_path_joins_the_access_routers_that_are_nearest_to_each_other(placement: Placement) -> None:
    alone = Placement(placement.underlay, range(placement.underlay.routers))
    routers = [[router for owner, router in placement.accesses if owner == peer] for peer in range(placement.peers)]
    for a in range(placement.peers):
        for b in range(placement.peers):
            if a == b:
                continue
            path = placement.path(a, b)
            assert path[0] in routers[a] and path[-1] in routers[b]
            assert placement.path(b, a) == path[::-1]
            assert path == alone.path(path[0], path[-1])
            shortest = min(alone.direct_ns[one, other] for one in routers[a] for other in routers[b])
            assert placement.direct_ns[a, b] == alone.direct_ns[path[0], path[-1]] == shortest
            first, *between, last = placement.components_between(a, b)
            assert between == placement.paths(np.array([a]), np.array([b]))[0].tolist()
            assert placement.accesses[first - placement.first_last_mile] == (a, path[0])
            assert placement.accesses[last - placement.first_last_mile] == (b, path[-1])
    overlay = placement.overlay((a, b) for a in range(placement.peers) for b in range(a))
    starts, components = placement.link_components(overlay)
    for number, link in enumerate(overlay.links):
        found = components[starts[number] : starts[number + 1]].tolist()
        assert found == placement.components_between(link.a, link.b)


def test_a_last_mile_fails_alone() -> None:
    """Peer 1 is at both ends of a row, between peers 0 and 2."""
    line = row(6, [1, 0, 4])
    placement = Placement(line.underlay, line.homes.tolist(), further=[(1, 5)])
    assert placement.path(1, 0) == [0, 1] and placement.path(1, 2) == [5, 4]
    overlay = placement.overlay([(0, 1), (1, 2)])
    last_miles = [placement.components_between(1, other)[0] for other in (0, 2)]
    assert last_miles == [placement.first_last_mile + 1, placement.first_last_mile + 3]
    assert placement.components == placement.first_last_mile + 4
    assert meeting_routers(placement, overlay).tolist() == [0] * 6


def test_further_access_routers_are_near_in_other_domains_and_nobody_else_s() -> None:
    for name in ("power-law", "brite", "transit-stub"):
        under = make(name, 1)
        one, three = attach_peers(under, 20, 1), attach_peers(under, 20, 1, access_routers=3)
        assert three.homes.tolist() == one.homes.tolist(), "a peer keeps its first router"
        assert len({router for _, router in three.accesses}) == len(three.accesses) == 60
        for peer in range(20):
            assert len({int(under.domain[router]) for owner, router in three.accesses if owner == peer}) == 3
    with pytest.raises(ConfigError, match=r"200 peers with 2 access routers each need 400 of them, but .* has \d+$"):
        attach_peers(make("power-law", 1), 200, 1, access_routers=2)


def test_computed_overlays_link_no_peer_with_itself() -> None:
    placement = attach_peers(make("power-law", 1), 30, 1, access_routers=2)
    pairs = [(a, b) for a in range(30) for b in range(30) if a != b]
    for overlay in (landmark(placement, range(5)), chain(placement, pairs)):
        assert all(link.a != link.b for link in overlay.links)
        assert len(overlay.links) >= 29


@pytest.mark.parametrize("changes", [{}, {"strategy": "mrst", "pf": 0.0}, {"mean_outage": "0.5s"}])
def test_scenarios_have_such_peers(changes: dict[str, Any]) -> None:
    fields = {"underlay": "power-law", "peers": 16, "topics": 3, "duration": "5s", "drain": "5s", "access_routers": 2}
    fields |= {"topology": "full-mesh", "membership": "chain", "membership_k": 8, "warmup": "30s"}
    scenario = Scenario(**{**fields, **changes})  # type: ignore[arg-type]
    world = build_world(scenario)
    assert isinstance(world.faults, UnderlayFaults)
    outcome = simulate(scenario)
    assert check(outcome) == []
    assert outcome.summary.delivery > 0.9
