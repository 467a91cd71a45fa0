"""Multipath, the paper's third baseline: each subscriber gets two copies on two source routes.

The first route has the shortest delay. The second is the one of the five shortest that shares the fewest links
with it. If copies leave a peer at the same time for the same next hop, they travel as one packet.

With more copies, further routes are chosen alike, of more candidates. With a code rate K/N, large events travel in
blocks on N such routes, and any K routes carry enough of them.
"""

from itertools import pairwise
from typing import Annotated, Any, ClassVar

import msgspec

from wend.model.blocks import MAX_ROUTES
from wend.model.events import Event, PeerId
from wend.model.settings import Settings, setting
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Arrived,
    Changed,
    Coder,
    Failed,
    Forward,
    GiveUp,
    Notice,
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
"""Of two routes; there are as many more for each further one."""
BLOCK_TRIES = 4
"""Transmissions of a block over a link. Fragments of whole events have as many."""
Route = tuple[PeerId, ...]


class SourceRoutes(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The remaining source route per destination: the peers that the packet still visits, the destination last."""

    routes: tuple[Route, ...]


class MultipathSettings(Settings, frozen=True, kw_only=True):
    """How many copies `multipath` sends."""

    title: ClassVar[str] = "Strategy multipath"

    copies: Annotated[
        int, setting("Copies of each event, on as many routes, unless it travels in blocks.", low=1, high=MAX_ROUTES)
    ] = 2


class Multipath(Routing):
    """Sends two copies of each event to each subscriber, on two source routes."""

    header: ClassVar[Any] = SourceRoutes
    settings: ClassVar[type[Settings]] = MultipathSettings
    effort: ClassVar[float] = 1.5

    def __init__(self, config: PeerConfig) -> None:
        self._coder = Coder(config)
        self._copies = config.of(MultipathSettings).copies
        self._most = max(self._copies, 2 if self._coder.rate is None else self._coder.rate.routes)
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
        if packet.sender != view.me:
            return _forward_on_routes(packet, _remaining_routes(packet), view)
        blocks = self._coder.cut(packet.event, view)
        if blocks:
            return self._send_blocks(packet, blocks, view)
        copies = self._copies if packet.event.id[0] == view.me else 1  # a retry of a stored copy sends one
        legs = [
            (dest, route) for dest in dict.fromkeys(packet.dests) for route in self._source_routes(dest, view)[:copies]
        ]
        return _forward_on_routes(packet, legs, view)

    def _send_blocks(self, packet: Arrived, blocks: list[Event], view: View) -> list[PluginEffect]:
        """Send each block on one route to each subscriber, in turn."""
        assert self._coder.rate is not None
        effects: list[PluginEffect] = [Notice("coded", view.me)]
        routes = {dest: self._source_routes(dest, view)[: self._coder.rate.routes] for dest in packet.dests}
        dests = tuple([dest for dest, few in routes.items() if few])
        for number, block in enumerate(blocks if dests else []):
            legs = [(dest, routes[dest][number % len(routes[dest])]) for dest in dests]
            effects += _forward_on_routes(_packet_to(dests, packet, block), legs, view)
        stuck = tuple([dest for dest, few in routes.items() if not few])
        return [*effects, *_forward_on_routes(_packet_to(stuck, packet, packet.event), [], view)]

    def _source_routes(self, dest: PeerId, view: View) -> tuple[Route, ...]:
        """The source routes to a destination, fewer if the graph has no more."""
        routes = self._routes.get(dest)
        if routes is None:
            if dest not in view.graph.costs:  # a neighbour can invent a peer: do not cache that
                return ()
            shortest = paths.k_shortest_paths(view.graph.costs, view.me, dest, CANDIDATES * (self._most - 1))
            routes = self._routes[dest] = tuple([path[1:] for path in _choose_apart(shortest, self._most)])
        return routes


def _choose_apart(shortest: list[Route], count: int) -> list[Route]:
    """The shortest route, and then each time the one that shares the fewest links with those before it."""
    chosen, rest = shortest[:1], shortest[1:]
    while rest and len(chosen) < count:
        used = set().union(*[_links_on(path) for path in chosen])
        best = min(rest, key=lambda path: len(used & _links_on(path)))
        rest.remove(best)
        chosen.append(best)
    return chosen


def _packet_to(dests: tuple[PeerId, ...], packet: Arrived, event: Event) -> Arrived:
    """A block of a packet's event, or the event itself, to some of its destinations."""
    return Arrived(packet.sender, event, packet.born_ns, dests, ranks=subset(dests, packet.dests, packet.ranks))


def _forward_on_routes(packet: Arrived, legs: list[tuple[PeerId, Route]], view: View) -> list[PluginEffect]:
    """Forward a packet on each of these routes. Give it up for destinations without a route."""
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


def _forward_along(packet: Arrived, hop: PeerId, legs: list[tuple[PeerId, Route]]) -> Forward:
    """The packet to one next hop, with the rest of the route to each destination."""
    dests = tuple([dest for dest, _ in legs])
    routes = SourceRoutes(tuple([route for _, route in legs]))
    ranks = subset(dests, packet.dests, packet.ranks)
    tries = 0 if packet.event.block is None else BLOCK_TRIES
    return Forward(hop, packet.event, packet.born_ns, dests, packet.path, routes, ranks, tries=tries)


def _remaining_routes(packet: Arrived) -> list[tuple[PeerId, Route]]:
    """The remaining destinations, each with its route. It ignores routes that lead to no destination of the packet."""
    header = packet.header
    routes = header.routes if isinstance(header, SourceRoutes) else ()
    return [(route[-1], route) for route in routes if route and route[-1] in packet.dests]


def _links_on(path: Route) -> set[tuple[PeerId, PeerId]]:
    return {(min(a, b), max(a, b)) for a, b in pairwise(path)}
