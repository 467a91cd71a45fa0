"""Routes from this peer: the delay to every destination over each neighbour, computed from the link-state graph.

The delay over a hop is that of the link to it plus the shortest delay from there to the destination without this peer.
A `Leg` is a link further on, with the delay of the route if the peer before that link avoids it. The table
computes each result on demand, once per state of the graph, since a peer forwards to few of its destinations.
All delays are exact integers. Of equal routes the one over the peer with the lower id wins.

The table assumes that no link is down. Failures change often, so `UsableRoutes` takes unaffected routes from the table,
and searches for a detour only if a failure cuts a route.
"""

import heapq
from collections.abc import Collection, Mapping
from itertools import pairwise

import msgspec

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import View
from wend.topology.paths import path_in_tree, shortest_path_tree

FAR: Nanos = 10**18
"""The delay that stands for "no route"."""

Edge = tuple[PeerId, PeerId]
Costs = dict[PeerId, dict[PeerId, Nanos]]
NO_EDGES: frozenset[Edge] = frozenset()
Cut = Mapping[PeerId, Collection[PeerId]]
"""By peer, the neighbours to which its link is down."""
_NOBODY: frozenset[PeerId] = frozenset()


class Route(msgspec.Struct, frozen=True, gc=False):
    """The shortest route to a destination over one next hop."""

    hop: PeerId
    delay_ns: Nanos
    """The delay from this peer to the destination over this hop, if nothing fails."""
    dest: PeerId
    beyond: frozenset[Edge]
    """The links after the one from here to the hop; lower id first."""
    path: tuple[PeerId, ...] = ()
    """The peers from the hop to the destination."""
    links: frozenset[Edge] = NO_EDGES
    """All links; the first is (this peer, hop)."""

    @property
    def hops(self) -> int:
        return 1 + len(self.beyond)


class Leg(msgspec.Struct, frozen=True, gc=False):
    """A link of a route, after the one from here to the hop."""

    edge: Edge
    start: PeerId
    """The peer that sends over the link."""
    end: PeerId
    reach_ns: Nanos
    """The delay from this peer to `start`."""
    delay_ns: Nanos
    detour_ns: Nanos
    """The delay to the destination if `start` knows that the link is down; FAR if there is no other route."""
    detour: frozenset[Edge]
    """The links of the detour after `start`."""


class RouteTable:
    """The routes for one state of the graph and the link estimates. A new state needs a new table."""

    def __init__(self, view: View) -> None:
        self._me = view.me
        self._neighbours = _neighbours(view)
        self.first_ns = dict(self._neighbours)
        """The delay to each neighbour."""
        self.costs: Costs = {peer: dict(costs) for peer, costs in view.graph.costs.items()}
        self._reversed = reverse_without(self.costs, view.me)
        self._routes: dict[PeerId, tuple[Route, ...]] = {}
        self._towards: dict[PeerId, tuple[dict[PeerId, Nanos], dict[PeerId, PeerId]]] = {}
        """By destination: the delay from every peer to it, and the next hop of every peer towards it."""
        self._later_links: dict[tuple[PeerId, PeerId], tuple[Leg, ...]] = {}
        """By hop and destination."""
        self._early_routes: dict[tuple[PeerId, PeerId, Edge], tuple[Nanos, frozenset[Edge]]] = {}

    def is_valid(self, view: View) -> bool:
        """Whether the graph and the link delays are still those of the table."""
        return self.costs == view.graph.costs and self._neighbours == _neighbours(view)

    def find_routes(self, dest: PeerId) -> tuple[Route, ...]:
        """The routes to a destination, shortest first; the hop's id breaks ties."""
        routes = self._routes.get(dest)
        if routes is None:
            if dest not in self._reversed:  # a neighbour can invent peers: do not cache those
                return ()
            routes = self._routes[dest] = self._compute_routes(dest)
        return routes

    def later_links(self, route: Route) -> tuple[Leg, ...]:
        """The links of a route after its first one, in order."""
        key = (route.hop, route.dest)
        later_links = self._later_links.get(key)
        if later_links is None:
            numbers = range(len(route.path) - 1)
            later_links = self._later_links[key] = tuple([self.leg(number, route, {}) for number in numbers])
        return later_links

    def early_route(self, route: Route, without: Edge) -> tuple[Nanos, frozenset[Edge]]:
        """The delay of a route if its hop knows that a link of it is down, and the links after the hop.

        The delay is FAR if there is no other route."""
        key = (route.hop, route.dest, without)
        result = self._early_routes.get(key)
        if result is None:
            around, path = self.search(route.hop, route.dest, {}, without)
            result = self._early_routes[key] = (min(FAR, self.first_ns[route.hop] + around), _links(path))
        return result

    def leg(self, number: int, route: Route, cut: Cut) -> Leg:
        """A link of a route after its first one, given which links are down."""
        costs, path = self.costs, route.path
        a, b = path[number], path[number + 1]
        reach = self.first_ns[route.hop]
        for i in range(number):
            reach += costs[path[i]][path[i + 1]]
        edge = (a, b) if a < b else (b, a)
        around, detour = self.search(a, route.dest, cut, edge, path[:number])
        return Leg(edge, a, b, reach, costs[a][b], min(FAR, reach + around), _links(detour))

    def find_detour(self, route: Route, cut: Cut) -> Route | None:
        """The shortest route over the same hop without links that are down; None if there is none."""
        delay, path = self.search(route.hop, route.dest, cut)
        if delay == FAR:
            return None
        beyond = _links(path)
        first = self.first_ns[route.hop]
        return Route(route.hop, first + delay, route.dest, beyond, path, beyond | {(self._me, route.hop)})

    def _compute_routes(self, dest: PeerId) -> tuple[Route, ...]:
        distance, following = self._towards[dest] = shortest_path_tree(self._reversed, dest)
        routes = []
        for hop, delay in self._neighbours:
            if hop in distance:
                path = path_in_tree(following, dest, hop)[::-1]
                beyond = _links(path)
                routes.append(Route(hop, delay + distance[hop], dest, beyond, path, beyond | {(self._me, hop)}))
        return tuple(sorted(routes, key=_by_delay))

    def search(
        self,
        start: PeerId,
        dest: PeerId,
        cut: Cut,
        without: Edge | None = None,
        passed: tuple[PeerId, ...] = (),
    ) -> tuple[Nanos, tuple[PeerId, ...]]:
        """The shortest path from a peer to the destination that avoids links that are down, the link `without`, and the
        peers in `passed`. The delay is FAR if there is no path.

        This is A*. The estimate for a peer is its delay to the destination if nothing is down. That is mostly exact, so
        the search ends at the first peer whose path is not cut.
        """
        distance, following = self._towards[dest]
        costs = self.costs
        one, other = without or (-1, -1)
        done = set(passed)
        previous: dict[PeerId, PeerId] = {}
        known: dict[PeerId, Nanos] = {start: 0}
        heap: list[tuple[Nanos, Nanos, PeerId]] = [(distance[start], 0, start)]
        while heap:
            estimate, so_far, here = heapq.heappop(heap)
            if here in done:
                continue
            onward = [here]
            peer = here
            while peer != dest:  # is the rest of its shortest path up?
                there = following[peer]
                if there in done or (peer in cut and there in cut[peer]) or (peer == one and there == other):
                    break
                if peer == other and there == one:
                    break
                onward.append(there)
                peer = there
            else:
                path = [here]
                while path[-1] != start:
                    path.append(previous[path[-1]])
                return estimate, (*path[:0:-1], *onward)
            done.add(here)
            closed = cut.get(here, _NOBODY)
            far = other if here == one else one if here == other else -1
            for there, delay in costs[here].items():
                if there in done or there not in distance or there in closed or there == far:
                    continue
                total = so_far + delay
                if total < known.get(there, FAR):
                    known[there] = total
                    previous[there] = here
                    heapq.heappush(heap, (total + distance[there], total, there))
        return FAR, ()


class UsableRoutes:
    """The routes of a table without links that are down. It shares the routes that these links do not affect."""

    __slots__ = ("_cut", "_detours", "_later_links", "_table", "without")

    def __init__(self, table: RouteTable, without: frozenset[Edge]) -> None:
        self.without = without
        self._table = table
        self._cut: dict[PeerId, set[PeerId]] = {}
        for a, b in without:
            self._cut.setdefault(a, set()).add(b)
            self._cut.setdefault(b, set()).add(a)
        self._detours: dict[tuple[PeerId, PeerId], Route | None] = {}
        self._later_links: dict[tuple[PeerId, PeerId], tuple[Leg, ...]] = {}
        """Both by hop and destination."""

    def best_routes(self, dest: PeerId, hops: Collection[PeerId], most: int) -> list[Route]:
        """The shortest routes to a destination over some hops, at most `most`; the hop's id breaks ties.

        A detour is no shorter than the route that it replaces, so detours that cannot be among them are not searched.
        """
        without = self.without
        routes: list[Route] = []
        detours: list[Route] = []
        for route in self._table.find_routes(dest):
            if route.hop not in hops:
                continue
            while detours and _by_delay(detours[0]) < _by_delay(route):
                routes.append(detours.pop(0))
            if len(routes) >= most:
                return routes[:most]
            if without.isdisjoint(route.beyond):
                routes.append(route)
            elif (detour := self._detour(route)) is not None:
                detours.append(detour)
                detours.sort(key=_by_delay)
        return (routes + detours)[:most]

    def later_links(self, route: Route) -> tuple[Leg, ...]:
        """The links of a route after its first one, in order."""
        key = (route.hop, route.dest)
        later_links = self._later_links.get(key)
        if later_links is None:
            later_links = self._later_links[key] = self._find_later_links(route)
        return later_links

    def early_ns(self, route: Route, without: Edge) -> Nanos:
        """The delay of a route if its hop knows that a link of it is down; FAR if there is no other route."""
        table = self._table
        delay, links = table.early_route(route, without)
        if self._cut and not links.isdisjoint(self.without):
            around, _ = table.search(route.hop, route.dest, self._cut, without)
            delay = min(FAR, table.first_ns[route.hop] + around)
        return delay

    def _detour(self, route: Route) -> Route | None:
        key = (route.hop, route.dest)
        if key not in self._detours:
            self._detours[key] = self._table.find_detour(route, self._cut)
        return self._detours[key]

    def _find_later_links(self, route: Route) -> tuple[Leg, ...]:
        table, without = self._table, self.without
        if route is self._detours.get((route.hop, route.dest)):
            return tuple([table.leg(number, route, self._cut) for number in range(len(route.path) - 1)])
        later_links = table.later_links(route)
        for leg in later_links:
            if not without.isdisjoint(leg.detour):
                break
        else:
            return later_links
        return tuple(
            [
                leg if without.isdisjoint(leg.detour) else table.leg(n, route, self._cut)
                for n, leg in enumerate(later_links)
            ]
        )


def reverse_without(costs: Mapping[PeerId, Mapping[PeerId, Nanos]], me: PeerId) -> Costs:
    """The graph without this peer, with reversed arcs: a search in it gives the delays *to* its start."""
    arcs: Costs = {peer: {} for peer in costs if peer != me}
    for a in arcs:
        for b, delay in costs[a].items():
            if b in arcs:
                arcs[b][a] = delay
    return arcs


def _by_delay(route: Route) -> tuple[Nanos, PeerId]:
    return route.delay_ns, route.hop


def _links(path: tuple[PeerId, ...]) -> frozenset[Edge]:
    return frozenset((min(a, b), max(a, b)) for a, b in pairwise(path))


def _neighbours(view: View) -> tuple[tuple[PeerId, Nanos], ...]:
    return tuple((n, view.links[n].delay_ns) for n in view.neighbours)
