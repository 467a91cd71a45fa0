"""The address plan: addresses are unique, and routes are shortest paths."""

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.labs import triangle
from wend.lab import address_plan
from wend.lab.address_plan import StaticRoute
from wend.model.errors import ConfigError
from wend.model.units import MS
from wend.topology.graph import Overlay, OverlayLink
from wend.topology.overlay_routes import shortest_delays


@st.composite
def overlays(draw: st.DrawFn) -> Overlay:
    """Connected overlays in which many links have equal delays."""
    peers = draw(st.integers(2, 8))
    pairs = {(draw(st.integers(0, n - 1)), n) for n in range(1, peers)}
    pairs |= set(draw(st.lists(st.sampled_from([(a, b) for a in range(peers) for b in range(a + 1, peers)]))))
    return Overlay(peers, [OverlayLink(a, b, draw(st.integers(1, 4)) * MS) for a, b in sorted(pairs)])


@given(overlays())
def test_every_address_is_unique_and_both_ends_of_a_link_agree(overlay: Overlay) -> None:
    network = address_plan.make_nodes("lab", overlay)
    given_out = [host.address for host in network] + [
        interface.local for host in network for interface in host.interfaces
    ]
    assert len(set(given_out)) == len(given_out)
    for host in network:
        assert len({interface.device for interface in host.interfaces}) == len(host.interfaces)
        for interface in host.interfaces:
            back = next(w for w in network[interface.neighbour].interfaces if w.link == interface.link)
            assert (back.local, back.remote, back.neighbour) == (interface.remote, interface.local, host.number)
            assert {IPv4Address(interface.local), IPv4Address(interface.remote)} == set(
                IPv4Network(address_plan.link_network(interface.link)).hosts()
            )


@given(overlays())
def test_following_the_routes_takes_the_shortest_delay_to_every_node(overlay: Overlay) -> None:
    network = address_plan.make_nodes("lab", overlay)
    tables = [
        {route.target: route for route in routes} for routes in address_plan.find_shortest_routes(overlay, network)
    ]
    shortest = shortest_delays(overlay)
    for source in network:
        for target in network:
            here, total, steps = source.number, 0, 0
            while here != target.number:
                here, delay = _follow(network[here], tables[here][target.address])
                total, steps = total + delay, steps + 1
                assert steps < overlay.peers
            assert total == shortest[source.number][target.number]


@given(overlays())
def test_following_the_routes_leads_to_an_end_of_every_link(overlay: Overlay) -> None:
    network = address_plan.make_nodes("lab", overlay)
    tables = [
        {route.target: route for route in routes} for routes in address_plan.find_shortest_routes(overlay, network)
    ]
    for here in range(overlay.peers):
        for number, link in enumerate(overlay.links):
            at, steps = here, 0
            while at not in (link.a, link.b):
                at, _ = _follow(network[at], tables[at][address_plan.link_network(number)])
                steps += 1
                assert steps < overlay.peers


def _follow(host: address_plan.LabNode, route: StaticRoute) -> tuple[int, int]:
    interface = next(w for w in host.interfaces if w.device == route.device)
    assert route.via == interface.remote
    return interface.neighbour, interface.delay_ns


def test_the_plan_of_a_triangle() -> None:
    network = address_plan.make_nodes("lab", triangle(), routers=[1])
    assert [(h.namespace, h.address, h.router) for h in network] == [
        ("wend-lab-0", "10.255.0.1", False),
        ("wend-lab-1", "10.255.0.2", True),
        ("wend-lab-2", "10.255.0.3", False),
    ]
    assert address_plan.find_shortest_routes(triangle(), network)[0] == [
        StaticRoute("10.255.0.2", "10.0.0.2", "to1"),
        StaticRoute("10.255.0.3", "10.0.0.2", "to1"),
        StaticRoute("10.0.0.8/30", "10.0.0.2", "to1"),
    ]


def test_the_address_space_holds_four_thousand_links() -> None:
    far = address_plan.MAX_NODES - 1
    assert IPv4Network(address_plan.link_network(address_plan.MAX_LINKS - 1)).broadcast_address < IPv4Address(
        "10.255.0.0"
    )
    assert IPv4Address(address_plan.node_address(far)) < IPv4Address("10.255.255.255")
    assert len(f"to{far}") <= 15


def test_a_namespace_belongs_to_its_lab() -> None:
    assert address_plan.find_lab_name(address_plan.namespace_name("a-1", 7)) == "a-1"
    assert address_plan.find_lab_name(address_plan.namespace_name("a", 1)) == "a"
    assert address_plan.find_lab_name("wend-lab") is None
    assert address_plan.find_lab_name("other-lab-1") is None


@pytest.mark.parametrize("name", ["", "A", "../up", "a b", "bin", "-x", "x" * 25])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no name for a lab"):
        address_plan.make_nodes(name, triangle())


def test_routers_must_exist_and_leave_hosts() -> None:
    with pytest.raises(ConfigError, match="router 9"):
        address_plan.make_nodes("lab", triangle(), routers=[9])
    with pytest.raises(ConfigError, match="needs hosts"):
        address_plan.make_nodes("lab", triangle(), routers=[0, 1, 2])
