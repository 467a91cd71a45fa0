"""Routes from this peer: the delay to every destination over each neighbour, computed from the link-state graph.

The delay over a hop is that of the link to it plus the shortest delay from there to the destination without
this peer. `detour_ns` is the delay if the hop has to avoid one link of its route. The table computes each
result on demand, once per state of the graph.
"""

from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import View

FAR = 1e18
"""The delay of a link that is removed."""

Edge = tuple[PeerId, PeerId]


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
        self._peers = sorted(p for p in view.graph.costs if p != view.me)
        self._place = {p: i for i, p in enumerate(self._peers)}
        turned = self._without_me(view)
        self._distance, self._before = self._shortest(turned)
        self._forward = csr_array(turned.T)
        self._hops = [self._place[n] for n, _ in self._neighbours if n in self._place]
        self._found: dict[PeerId, tuple[Route, ...]] = {}
        self._without: dict[Edge, Any] = {}
        """By link: the distances from the neighbours to all peers without it."""
        self._detours: dict[tuple[PeerId, PeerId, Edge], Nanos] = {}
        """By hop, destination and link."""
        self._costs = {peer: dict(costs) for peer, costs in view.graph.costs.items()}

    def hold(self, view: View) -> bool:
        """Whether the graph and the link delays are still those of the table."""
        return self._costs == view.graph.costs and self._neighbours == _neighbours(view)

    def to(self, dest: PeerId) -> tuple[Route, ...]:
        """The routes to a destination, shortest first; the hop's id breaks ties."""
        found = self._found.get(dest)
        if found is None:
            found = self._find(dest)
            if dest in self._place:  # a neighbour can invent others: do not cache those
                self._found[dest] = found
        return found

    def detour_ns(self, route: Route, without: Edge) -> Nanos:
        """The delay of a route if its hop has to avoid a link."""
        key = (route.hop, route.dest, without)
        found = self._detours.get(key)
        if found is None:
            found = self._detours[key] = self._detour_ns(route, without)
        return found

    def _detour_ns(self, route: Route, without: Edge) -> Nanos:
        distance = self._without.get(without)
        if distance is None:
            distance = self._without[without] = self._shortest_without(without)
        start, end = self._place[route.hop], self._place[route.dest]
        around = min(distance[self._hops.index(start), end], FAR)
        return route.delay_ns - int(self._distance[end, start]) + int(around)

    def _shortest_without(self, link: Edge) -> Any:
        a, b = self._place[link[0]], self._place[link[1]]
        base = self._forward
        delays = base.data.copy()
        for row, column in ((a, b), (b, a)):
            begin = base.indptr[row]
            arcs = base.indices[begin : base.indptr[row + 1]]
            delays[begin + np.flatnonzero(arcs == column)] = FAR
        return dijkstra(csr_array((delays, base.indices, base.indptr), shape=base.shape), indices=self._hops)

    def _find(self, dest: PeerId) -> tuple[Route, ...]:
        end = self._place.get(dest)
        if end is None:
            return ()
        routes = []
        for n, delay in self._neighbours:
            start = self._place.get(n)
            if start is not None and np.isfinite(self._distance[end, start]):
                routes.append(Route(n, delay + int(self._distance[end, start]), dest, self._walk(start, end)))
        return tuple(sorted(routes, key=lambda route: (route.delay_ns, route.hop)))

    def _walk(self, start: int, end: int) -> frozenset[Edge]:
        """The links on the shortest-path tree of the destination, from one peer to it."""
        path = [start]
        while path[-1] != end:
            path.append(int(self._before[end, path[-1]]))
        peers = [self._peers[i] for i in path]
        return frozenset((min(a, b), max(a, b)) for a, b in pairwise(peers))

    def _without_me(self, view: View) -> Any:
        """The graph without this peer, with reversed arcs: Dijkstra then gives the distances *to* a destination."""
        arcs = [
            (self._place[b], self._place[a], float(delay))
            for a in self._peers
            for b, delay in view.graph.costs[a].items()
            if b in self._place
        ]
        rows = np.array([row for row, _, _ in arcs], dtype=np.int32)
        columns = np.array([column for _, column, _ in arcs], dtype=np.int32)
        delays = np.array([delay for *_, delay in arcs])
        return csr_array((delays, (rows, columns)), shape=(len(self._peers), len(self._peers)))

    def _shortest(self, matrix: Any) -> Any:
        if not self._peers:
            return np.zeros((0, 0)), np.zeros((0, 0))
        return dijkstra(matrix, return_predecessors=True)


def _neighbours(view: View) -> tuple[tuple[PeerId, Nanos], ...]:
    return tuple((n, view.links[n].delay_ns) for n in view.neighbours)
