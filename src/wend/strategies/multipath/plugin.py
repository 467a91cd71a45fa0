"""Multipath, the paper's third baseline: each subscriber gets two copies on two source routes.

The first route has the shortest delay. The second is the one of the five shortest that shares the fewest links
with it. If copies leave a peer at the same time for the same next hop, they travel as one packet.
"""

from itertools import pairwise
from typing import Any, ClassVar

import msgspec

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Arrived,
    Changed,
    Failed,
    Forward,
    GiveUp,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Routing,
    View,
    give_up_failed,
    subset,
)
from wend.topology import paths

CANDIDATES = 5
Route = tuple[PeerId, ...]


class SourceRoutes(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The remaining source route per destination: the peers that the packet still visits, the destination last."""

    routes: tuple[Route, ...]


class Multipath(Routing):
    """Sends two copies of each event to each subscriber, on two source routes."""

    header: ClassVar[Any] = SourceRoutes
    effort: ClassVar[float] = 1.5

    def __init__(self, config: PeerConfig) -> None:
        self._routes: dict[PeerId, tuple[Route, ...]] = {}

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Arrived():
                return self._on_arrived(event, view)
            case Failed(forward):
                return [give_up_failed(forward)]
            case Changed():
                self._routes.clear()
        return []

    def _on_arrived(self, packet: Arrived, view: View) -> list[PluginEffect]:
        if packet.sender == view.me:
            copies = 2 if packet.event.id[0] == view.me else 1  # a retry of a stored copy sends one
            legs = [
                (dest, route)
                for dest in dict.fromkeys(packet.dests)
                for route in self._source_routes(dest, view)[:copies]
            ]
        else:
            legs = _remaining_routes(packet)
        groups: dict[PeerId, list[tuple[PeerId, Route]]] = {}
        for dest, route in legs:
            if route and route[0] in view.links:
                groups.setdefault(route[0], []).append((dest, route[1:]))
        effects: list[PluginEffect] = [_forward_along(packet, hop, group) for hop, group in groups.items()]
        sent = {dest for group in groups.values() for dest, _ in group}
        stuck = tuple(d for d in dict.fromkeys(packet.dests) if d not in sent)
        if stuck:
            ranks = subset(stuck, packet.dests, packet.ranks)
            effects.append(GiveUp(packet.event, packet.born_ns, stuck, "no-route", ranks))
        return effects

    def _source_routes(self, dest: PeerId, view: View) -> tuple[Route, ...]:
        """The two source routes to a destination, or one if the graph has no second."""
        routes = self._routes.get(dest)
        if routes is None:
            if dest not in view.graph.costs:  # a neighbour can invent a peer: do not cache that
                return ()
            shortest = paths.k_shortest_paths(view.graph.costs, view.me, dest, CANDIDATES)
            if len(shortest) > 1:
                first = _links_on(shortest[0])
                shortest = [shortest[0], min(shortest[1:], key=lambda path: len(first & _links_on(path)))]
            routes = self._routes[dest] = tuple(path[1:] for path in shortest)
        return routes


def _forward_along(packet: Arrived, hop: PeerId, legs: list[tuple[PeerId, Route]]) -> Forward:
    """The packet to one next hop, with the rest of the route to each destination."""
    dests = tuple([dest for dest, _ in legs])
    routes = SourceRoutes(tuple([route for _, route in legs]))
    ranks = subset(dests, packet.dests, packet.ranks)
    return Forward(hop, packet.event, packet.born_ns, dests, packet.path, routes, ranks)


def _remaining_routes(packet: Arrived) -> list[tuple[PeerId, Route]]:
    """The remaining destinations, each with its route. It ignores routes that lead to no destination of the packet."""
    header = packet.header
    routes = header.routes if isinstance(header, SourceRoutes) else ()
    return [(route[-1], route) for route in routes if route and route[-1] in packet.dests]


def _links_on(path: Route) -> set[tuple[PeerId, PeerId]]:
    return {(min(a, b), max(a, b)) for a, b in pairwise(path)}
