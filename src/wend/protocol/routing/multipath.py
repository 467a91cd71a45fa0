"""Multipath, the paper's third baseline: each subscriber gets two copies on two source routes.

The first route has the shortest delay; the second, of the five shortest, shares the fewest links with
it. Copies that leave a peer at the same moment for the same next hop travel as one packet.
"""

from itertools import pairwise
from typing import Any, ClassVar

import msgspec

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.copy_ranks import subset
from wend.protocol.plugins import (
    Arrived,
    Changed,
    Failed,
    Forward,
    GiveUp,
    PluginEffect,
    PluginInput,
    Routing,
    View,
    unanswered,
)
from wend.topology import paths

CANDIDATES = 5
Route = tuple[PeerId, ...]


class SourceRoutes(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """For each destination of a packet, in order: the peers that it still has to visit, the destination last."""

    routes: tuple[Route, ...]


class Multipath(Routing):
    header: ClassVar[Any] = SourceRoutes
    effort: ClassVar[float] = 1.5

    def __init__(self, config: PeerConfig) -> None:
        self._routes: dict[PeerId, tuple[Route, ...]] = {}

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Arrived():
                return self._arrived(event, view)
            case Failed(forward):
                return [unanswered(forward)]
            case Changed():
                self._routes.clear()
        return []

    def _arrived(self, packet: Arrived, view: View) -> list[PluginEffect]:
        if packet.sender == view.me:
            copies = 2 if packet.event.id[0] == view.me else 1  # a kept copy stays one
            legs = [(dest, route) for dest in dict.fromkeys(packet.dests) for route in self._two(dest, view)[:copies]]
        else:
            legs = _legs(packet)
        groups: dict[PeerId, list[tuple[PeerId, Route]]] = {}
        for dest, route in legs:
            if route and route[0] in view.links:
                groups.setdefault(route[0], []).append((dest, route[1:]))
        effects: list[PluginEffect] = [
            Forward(
                hop,
                packet.event,
                packet.born_ns,
                tuple(d for d, _ in group),
                packet.path,
                SourceRoutes(tuple(r for _, r in group)),
                subset(tuple(d for d, _ in group), packet.dests, packet.ranks),
            )
            for hop, group in groups.items()
        ]
        sent = {dest for group in groups.values() for dest, _ in group}
        stuck = tuple(d for d in dict.fromkeys(packet.dests) if d not in sent)
        if stuck:
            ranks = subset(stuck, packet.dests, packet.ranks)
            effects.append(GiveUp(packet.event, packet.born_ns, stuck, "no route", ranks))
        return effects

    def _two(self, dest: PeerId, view: View) -> tuple[Route, ...]:
        """What is still to be visited, for both routes; one where the graph has no second."""
        routes = self._routes.get(dest)
        if routes is None:
            if dest not in view.graph.costs:  # nobody remembers what anybody can invent
                return ()
            found = paths.k_shortest(view.graph.costs, view.me, dest, CANDIDATES)
            if len(found) > 1:
                first = _links(found[0])
                found = [found[0], min(found[1:], key=lambda path: len(first & _links(path)))]
            routes = self._routes[dest] = tuple(path[1:] for path in found)
        return routes


def _legs(packet: Arrived) -> list[tuple[PeerId, Route]]:
    """The destinations that are left, each with its route. A neighbour may send routes that lead to none of them."""
    header = packet.header
    routes = header.routes if isinstance(header, SourceRoutes) else ()
    return [(route[-1], route) for route in routes if route and route[-1] in packet.dests]


def _links(path: Route) -> set[tuple[PeerId, PeerId]]:
    return {(min(a, b), max(a, b)) for a, b in pairwise(path)}
