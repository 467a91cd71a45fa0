"""Routes from this peer: the delay to every destination over each neighbour, computed from the link-state graph.

The delay over a hop is that of the link to it plus the shortest delay from there to the destination without this peer.
`detour_ns` is the delay if the hop has to avoid one link of its route. The table computes each result on demand, once
per state of the graph: a peer forwards to few of the destinations that it knows. All delays are exact integers. Of
equal routes the one over the peer with the lower id wins.
"""

import heapq
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


class Route(msgspec.Struct, frozen=True, gc=False):
    """The shortest route to a destination over one next hop."""

    hop: PeerId
    delay_ns: Nanos
    """From here to the destination over this hop, if nothing fails."""
    dest: PeerId
    beyond: frozenset[Edge]
    """The links after the one from here to the hop; lower id first."""

    @property
    def hops(self) -> int:
        return 1 + len(self.beyond)


class RouteTable:
    """The routes for one state of the graph and the link estimates. A new state needs a new table."""

    def __init__(self, view: View) -> None:
        self._neighbours = _neighbours(view)
        self._costs = {peer: dict(costs) for peer, costs in view.graph.costs.items()}
        self._turned = _turned(self._costs, view.me)
        self._found: dict[PeerId, tuple[Route, ...]] = {}
        self._towards: dict[PeerId, tuple[dict[PeerId, Nanos], dict[PeerId, PeerId]]] = {}
        """By destination: the delay of every peer to it, and every peer's next hop towards it."""
        self._detours: dict[tuple[PeerId, PeerId, Edge], Nanos] = {}
        """By hop, destination and link."""
        self._longest: dict[tuple[PeerId, PeerId], Nanos] = {}
        """By hop and destination."""

    def hold(self, view: View) -> bool:
        """Whether the graph and the link delays are still those of the table."""
        return self._costs == view.graph.costs and self._neighbours == _neighbours(view)

    def to(self, dest: PeerId) -> tuple[Route, ...]:
        """The routes to a destination, shortest first; the hop's id breaks ties."""
        found = self._found.get(dest)
        if found is None:
            if dest not in self._turned:  # a neighbour can invent others: do not cache those
                return ()
            found = self._found[dest] = self._find(dest)
        return found

    def detour_ns(self, route: Route, without: Edge) -> Nanos:
        """The delay of a route if its hop has to avoid a link."""
        key = (route.hop, route.dest, without)
        found = self._detours.get(key)
        if found is None:
            distance, _ = self._towards[route.dest]
            around = self._around_ns(route.hop, route.dest, without)
            found = self._detours[key] = route.delay_ns - distance[route.hop] + around
        return found

    def longest_detour_ns(self, route: Route) -> Nanos:
        """The delay of a route if its hop has to avoid a link, whichever it is."""
        key = (route.hop, route.dest)
        found = self._longest.get(key)
        if found is None:
            detours = [self.detour_ns(route, edge) for edge in route.beyond]
            found = self._longest[key] = max(detours, default=route.delay_ns)
        return found

    def _find(self, dest: PeerId) -> tuple[Route, ...]:
        distance, following = self._towards[dest] = tree(self._turned, dest)
        routes = [
            Route(hop, delay + distance[hop], dest, _links(walk(following, dest, hop)))
            for hop, delay in self._neighbours
            if hop in distance
        ]
        return tuple(sorted(routes, key=lambda route: (route.delay_ns, route.hop)))

    def _around_ns(self, start: PeerId, dest: PeerId, without: Edge) -> Nanos:
        """The shortest delay from a peer to the destination without a link.

        Without the link, only the peers behind it need another route. The search stays among them, and ends with the
        first arc that leads out of them: from there on, the known delay still holds.
        """
        distance, following = self._towards[dest]
        a, b = without
        if following.get(a) == b:
            near, far = a, b
        elif following.get(b) == a:
            near, far = b, a
        else:
            return distance[start]
        behind: dict[PeerId, bool] = {dest: False, near: True}
        if not _is_behind(start, following, behind):
            return distance[start]
        best = FAR
        done: set[PeerId] = set()
        heap: list[tuple[Nanos, PeerId]] = [(0, start)]
        while heap and heap[0][0] < best:
            so_far, here = heapq.heappop(heap)
            if here in done:
                continue
            done.add(here)
            for there, delay in self._costs[here].items():
                if there not in distance or (here == near and there == far):
                    continue
                if not _is_behind(there, following, behind):
                    best = min(best, so_far + delay + distance[there])
                elif there not in done:
                    heapq.heappush(heap, (so_far + delay, there))
        return best


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


def _turned(costs: Costs, me: PeerId) -> Costs:
    """The graph without this peer, with reversed arcs: a search in it gives the delays *to* its start."""
    turned: Costs = {peer: {} for peer in costs if peer != me}
    for a in turned:
        for b, delay in costs[a].items():
            if b in turned:
                turned[b][a] = delay
    return turned


def _links(path: tuple[PeerId, ...]) -> frozenset[Edge]:
    return frozenset((min(a, b), max(a, b)) for a, b in pairwise(path))


def _neighbours(view: View) -> tuple[tuple[PeerId, Nanos], ...]:
    return tuple((n, view.links[n].delay_ns) for n in view.neighbours)
