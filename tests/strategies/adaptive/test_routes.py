"""The routes of `adaptive` against SciPy on the whole graph."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import dijkstra

from wend.protocol.config import PeerConfig
from wend.protocol.plugins import View
from wend.strategies.adaptive.routes import FAR, NO_EDGES, Edge, Leg, Route, RouteTable, UsableRoutes

Costs = dict[int, dict[int, int]]
ME = 3


class FakeLink:
    def __init__(self, delay_ns: int) -> None:
        self.delay_ns = delay_ns


def seen(costs: Costs) -> View:
    """A peer's view of a graph: what a route table looks at."""
    links: Any = {n: FakeLink(delay) for n, delay in sorted(costs[ME].items())}
    graph: Any = SimpleNamespace(costs=costs)
    view = View(PeerConfig(peer=ME), links, False)
    view.graph, view.neighbours = graph, tuple(links)
    return view


@st.composite
def directed(draw: st.DrawFn, delays: st.SearchStrategy[int]) -> Costs:
    """A graph whose links may have another delay in each direction, or miss one."""
    peers = draw(st.integers(ME + 1, 8))
    arcs = [(a, b) for a in range(peers) for b in range(peers) if a != b]
    costs: Costs = {p: {} for p in range(peers)}
    for a, b in draw(st.lists(st.sampled_from(arcs), unique=True, min_size=peers)):
        costs[a][b] = draw(delays)
    return costs


def shortest(costs: Costs, without: tuple[int, int] | None = None) -> Any:
    """The delays between all peers but this one, without a link."""
    dense = np.zeros((len(costs), len(costs)))
    for a, row in costs.items():
        for b, delay in row.items():
            if ME not in (a, b) and {a, b} != set(without or ()):
                dense[a, b] = delay
    return dijkstra(dense)


@given(directed(st.integers(1, 10**12) | st.integers(1, 3)))
def test_delays_and_detours_are_those_of_a_search_in_the_whole_graph(costs: Costs) -> None:
    view = seen(costs)
    table, distance = RouteTable(view), shortest(costs)
    usable = UsableRoutes(table, NO_EDGES)
    links = {(min(a, b), max(a, b)) for a in costs for b in costs[a] if ME not in (a, b)}
    around = {link: shortest(costs, link) for link in links}
    for dest in costs:
        routes = table.find_routes(dest)
        reached = [hop for hop in view.links if dest != ME and np.isfinite(distance[hop, dest])]
        assert sorted(route.hop for route in routes) == (reached if dest != ME else [])
        assert list(routes) == sorted(routes, key=lambda route: (route.delay_ns, route.hop))
        for route in routes:
            assert route.delay_ns == view.links[route.hop].delay_ns + int(distance[route.hop, dest])
            for link, detours in around.items():
                expected = detours[route.hop, dest]
                expected_ns = int(expected) if np.isfinite(expected) else FAR
                assert usable.early_ns(route, link) == min(FAR, view.links[route.hop].delay_ns + expected_ns)
            assert route.beyond <= around.keys()
            assert route.links == route.beyond | {(ME, route.hop)}
            for number, leg in enumerate(table.later_links(route)):
                check_leg(leg, number, route, costs, distance)


def check_leg(leg: Leg, number: int, route: Route, costs: Costs, distance: Any) -> None:
    """From here to the leg's start, and then round it without the peers that were passed."""
    passed = route.path[:number]
    left = {a: {b: delay for b, delay in row.items() if b not in passed} for a, row in costs.items() if a not in passed}
    expected = shortest({peer: left.get(peer, {}) for peer in costs}, leg.edge)[leg.start, route.dest]
    assert (leg.start, leg.end) == route.path[number : number + 2]
    assert leg.reach_ns == route.delay_ns - int(distance[leg.start, route.dest])
    assert leg.delay_ns == costs[leg.start][leg.end]
    assert leg.detour_ns == (leg.reach_ns + int(expected) if np.isfinite(expected) else FAR)
    assert leg.edge not in leg.detour


@given(directed(st.integers(1, 10**12) | st.integers(1, 3)), st.data())
def test_without_links_the_routes_are_those_of_the_graph_without_them(costs: Costs, data: st.DataObject) -> None:
    links = sorted({(min(a, b), max(a, b)) for a in costs for b in costs[a] if ME not in (a, b)})
    down: frozenset[Edge] = frozenset(data.draw(st.lists(st.sampled_from(links), max_size=3))) if links else NO_EDGES
    view = seen(costs)
    hops = data.draw(st.sets(st.sampled_from(sorted(view.links)))) if view.links else set()
    most = data.draw(st.integers(1, 4))
    usable = UsableRoutes(RouteTable(view), down)
    left = {a: {b: d for b, d in row.items() if (min(a, b), max(a, b)) not in down} for a, row in costs.items()}
    distance = shortest(left)
    for dest in costs:
        expected = [route for route in RouteTable(seen(left)).find_routes(dest) if route.hop in hops][:most]
        routes = usable.best_routes(dest, hops, most)
        assert [(route.hop, route.delay_ns) for route in routes] == [(one.hop, one.delay_ns) for one in expected]
        for route in routes:
            steps = list(pairwise(route.path))
            assert view.links[route.hop].delay_ns + sum(left[a][b] for a, b in steps) == route.delay_ns
            assert (route.path[0], route.path[-1]) == (route.hop, dest)
            assert route.beyond == {(min(a, b), max(a, b)) for a, b in steps}
            assert route.links == route.beyond | {(ME, route.hop)}
            for number, leg in enumerate(usable.later_links(route)):
                check_leg(leg, number, route, left, distance)
            for link in links:
                early_route = shortest(
                    {a: {b: d for b, d in row.items() if {a, b} != {*link}} for a, row in left.items()}
                )
                there = early_route[route.hop, dest]
                expected_ns = view.links[route.hop].delay_ns + int(there) if np.isfinite(there) else FAR
                assert usable.early_ns(route, link) == min(FAR, expected_ns)


@given(directed(st.integers(1, 2)))
def test_of_equal_routes_the_one_over_the_lower_id_wins(costs: Costs) -> None:
    view = seen(costs)
    table, distance = RouteTable(view), shortest(costs)
    for dest in costs:
        for route in table.find_routes(dest):
            path = [route.hop]
            while path[-1] != dest:
                onward = [n for n in costs[path[-1]] if n != ME]
                path.append(min((costs[path[-1]][n] + distance[n, dest], n) for n in onward)[1])
            assert route.beyond == {(min(a, b), max(a, b)) for a, b in pairwise(path)}
            assert route.hops == len(path)


def test_a_table_holds_until_the_graph_or_a_link_of_this_peer_changes() -> None:
    costs: Costs = {0: {1: 5, ME: 2}, 1: {0: 5}, ME: {0: 2}}
    table = RouteTable(view := seen(costs))
    assert table.is_valid(seen({p: dict(row) for p, row in costs.items()}))
    assert not table.is_valid(seen({**costs, 1: {0: 6}}))
    view.links[0].delay_ns = 3
    assert not table.is_valid(view)


def test_there_is_no_route_to_an_unknown_peer_nor_to_oneself() -> None:
    table = RouteTable(seen({0: {1: 5}, 1: {7: 1}, ME: {0: 2}}))
    assert [route.delay_ns for route in table.find_routes(1)] == [7]
    assert table.find_routes(7) == table.find_routes(ME) == ()
