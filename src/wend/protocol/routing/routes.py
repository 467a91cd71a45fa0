"""Routes from this peer: the delay to every destination over each neighbour, computed from the link-state graph.

The delay over a hop is that of the link to it plus the shortest delay from there to the destination without this peer.
A `Leg` is a link further on, with the delay of the route if the peer before that link has to go round it. The table
computes each result on demand, once per state of the graph: a peer forwards to few of the destinations that it knows.
All delays are exact integers. Of equal routes the one over the peer with the lower id wins.

A table may leave out links that are down. It takes from the complete table what these links do not change.
"""

import heapq
from collections.abc import Mapping
from itertools import pairwise

import msgspec

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import View
from wend.topology.paths import tree, walk

FAR: Nanos = 10**18
"""The delay where there is no detour."""

Edge = tuple[PeerId, PeerId]
Costs = dict[PeerId, dict[PeerId, Nanos]]
NONE: frozenset[Edge] = frozenset()


class Route(msgspec.Struct, frozen=True, gc=False):
    """The shortest route to a destination over one next hop."""

    hop: PeerId
    delay_ns: Nanos
    """From here to the destination over this hop, if nothing fails."""
    dest: PeerId
    beyond: frozenset[Edge]
    """The links after the one from here to the hop; lower id first."""
    path: tuple[PeerId, ...] = ()
    """The peers from the hop to the destination."""
    links: frozenset[Edge] = NONE
    """All links, the first one as (this peer, hop)."""

    @property
    def hops(self) -> int:
        return 1 + len(self.beyond)


class Leg(msgspec.Struct, frozen=True, gc=False):
    """A link of a route, after the one from here to the hop."""

    edge: Edge
    start: PeerId
    """The peer that sends over it."""
    end: PeerId
    reach_ns: Nanos
    """From here to `start`."""
    delay_ns: Nanos
    detour_ns: Nanos
    """From here to the destination, if `start` knows that the link is down; FAR where there is no other route."""
    detour: frozenset[Edge]
    """The links of that route after `start`."""


class RouteTable:
    """The routes for one state of the graph and the link estimates. A new state needs a new table."""

    def __init__(self, view: View, complete: "RouteTable | None" = None, without: frozenset[Edge] = NONE) -> None:
        """Without some links, the table is made from the `complete` one."""
        self.without = without
        self._complete = complete
        self._me = view.me
        self._neighbours = _neighbours(view)
        if complete is None:
            self.costs: Costs = {peer: dict(costs) for peer, costs in view.graph.costs.items()}
            self.turned = turned(self.costs, view.me)
        else:
            self.costs = _pruned(complete.costs, without)
            self.turned = _pruned(complete.turned, without)
        self._found: dict[PeerId, tuple[Route, ...]] = {}
        self.towards: dict[PeerId, tuple[dict[PeerId, Nanos], dict[PeerId, PeerId]]] = {}
        """By destination: the delay of every peer to it, and every peer's next hop towards it."""
        self._legs: dict[tuple[PeerId, PeerId], tuple[Leg, ...]] = {}
        """By hop and destination."""

    def hold(self, view: View) -> bool:
        """Whether the graph and the link delays are still those of the table."""
        return self.costs == view.graph.costs and self._neighbours == _neighbours(view)

    def to(self, dest: PeerId) -> tuple[Route, ...]:
        """The routes to a destination, shortest first; the hop's id breaks ties."""
        found = self._found.get(dest)
        if found is None:
            if dest not in self.turned:  # a neighbour can invent others: do not cache those
                return ()
            found = self._found[dest] = self._find(dest)
        return found

    def legs(self, route: Route) -> tuple[Leg, ...]:
        """The links of a route after its first one, in order."""
        key = (route.hop, route.dest)
        found = self._legs.get(key)
        if found is None:
            found = self._legs[key] = tuple([self._leg(number, route) for number in range(len(route.path) - 1)])
        return found

    def early_ns(self, route: Route, without: Edge) -> Nanos:
        """The delay of a route if its hop knows that a link of it is down; FAR where there is no other route."""
        distance, _ = self.towards[route.dest]
        return min(FAR, route.delay_ns - distance[route.hop] + self._around(route.hop, route.dest, without, ())[0])

    def _leg(self, number: int, route: Route) -> Leg:
        complete = self._complete
        if complete is not None and self.towards[route.dest] is complete.towards[route.dest]:
            leg = complete.legs(route)[number]
            if self.without.isdisjoint(leg.detour):
                return leg
        distance, _ = self.towards[route.dest]
        a, b = route.path[number], route.path[number + 1]
        reach = route.delay_ns - distance[a]
        edge = (a, b) if a < b else (b, a)
        around, detour = self._around(a, route.dest, edge, route.path[:number])
        return Leg(edge, a, b, reach, distance[a] - distance[b], min(FAR, reach + around), detour)

    def _find(self, dest: PeerId) -> tuple[Route, ...]:
        complete = self._complete
        if complete is not None:
            routes = complete.to(dest)
            _, following = complete.towards[dest]
            if not any(following.get(a) == b or following.get(b) == a for a, b in self.without):
                self.towards[dest] = complete.towards[dest]
                return routes
        distance, following = self.towards[dest] = tree(self.turned, dest)
        found = []
        for hop, delay in self._neighbours:
            if hop in distance:
                path = walk(following, dest, hop)[::-1]
                beyond = _links(path)
                found.append(Route(hop, delay + distance[hop], dest, beyond, path, beyond | {(self._me, hop)}))
        return tuple(sorted(found, key=_by_delay))

    def _around(
        self, start: PeerId, dest: PeerId, without: Edge, passed: tuple[PeerId, ...]
    ) -> tuple[Nanos, frozenset[Edge]]:
        """The shortest delay from a peer to the destination without a link, and not over peers that were passed; and
        the links of that route.

        Without the link, only the peers behind it need another route. The search stays among them, and ends with the
        first arc that leads out of them: from there on, the known delay still holds.
        """
        distance, following = self.towards[dest]
        a, b = without
        if following.get(a) == b:
            near, far = a, b
        elif following.get(b) == a:
            near, far = b, a
        else:
            return distance[start], _links(walk(following, dest, start))
        behind: dict[PeerId, bool] = {dest: False, near: True}
        if not _is_behind(start, following, behind):
            return distance[start], _links(walk(following, dest, start))
        best, leaves, enters = FAR, start, start
        came: dict[PeerId, PeerId] = {}
        done: set[PeerId] = set(passed)
        heap: list[tuple[Nanos, PeerId, PeerId]] = [(0, start, start)]
        while heap and heap[0][0] < best:
            so_far, here, before = heapq.heappop(heap)
            if here in done:
                continue
            done.add(here)
            came[here] = before
            for there, delay in self.costs[here].items():
                if there not in distance or there in done or (here == near and there == far):
                    continue
                if _is_behind(there, following, behind):
                    heapq.heappush(heap, (so_far + delay, there, here))
                elif so_far + delay + distance[there] < best:
                    best, leaves, enters = so_far + delay + distance[there], here, there
        if best == FAR:
            return FAR, NONE
        path = [*walk(following, dest, enters), leaves]
        while leaves != start:
            leaves = came[leaves]
            path.append(leaves)
        return best, _links(tuple(path))


def _is_behind(peer: PeerId, following: dict[PeerId, PeerId], behind: dict[PeerId, bool]) -> bool:
    """Whether a peer's route to the destination uses the link. `behind` has the known answers, and gets new ones."""
    passed = []
    while peer not in behind:
        passed.append(peer)
        peer = following[peer]
    answer = behind[peer]
    for each in passed:
        behind[each] = answer
    return answer


def turned(costs: Mapping[PeerId, Mapping[PeerId, Nanos]], me: PeerId) -> Costs:
    """The graph without this peer, with reversed arcs: a search in it gives the delays *to* its start."""
    found: Costs = {peer: {} for peer in costs if peer != me}
    for a in found:
        for b, delay in costs[a].items():
            if b in found:
                found[b][a] = delay
    return found


def _by_delay(route: Route) -> tuple[Nanos, PeerId]:
    return route.delay_ns, route.hop


def _pruned(costs: Costs, without: frozenset[Edge]) -> Costs:
    """The same graph without some links."""
    pruned = dict(costs)
    for edge in without:
        for a, b in (edge, edge[::-1]):
            if b in pruned.get(a, ()):
                pruned[a] = {peer: delay for peer, delay in pruned[a].items() if peer != b}
    return pruned


def _links(path: tuple[PeerId, ...]) -> frozenset[Edge]:
    return frozenset((min(a, b), max(a, b)) for a, b in pairwise(path))


def _neighbours(view: View) -> tuple[tuple[PeerId, Nanos], ...]:
    return tuple((n, view.links[n].delay_ns) for n in view.neighbours)
