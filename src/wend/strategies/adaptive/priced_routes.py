"""Routes under load: events leave the shortest route if links on it are full and a slower one is in time.

Full links have prices (`link/prices.py`), which peers flood with their link states. Of the routes that are in time a
packet takes the one with the least delay plus price. A link that the packet takes anyway, to another destination, costs
nothing more, so the full links carry few copies. Every event belongs to a class, which weighs prices by a factor of its
own: the more a price exceeds the cost of the detour, the more classes take the detour. `spread_trees.py` says when
classes follow a change of prices.

Nothing is hedged here: second copies would need capacity that is missing.
"""

from collections.abc import Collection, Mapping
from typing import Final

from wend.model.events import EventId, PeerId
from wend.model.units import FOREVER, MS, Nanos
from wend.protocol.plugins import View
from wend.strategies.adaptive.routes import Costs, reverse_without
from wend.topology.paths import shortest_path_tree

LINK_NS: Final = 25 * MS
"""The price of a link that is not full. While other links are full, each copy that is not sent frees capacity."""
WORTH_NS: Final = 200 * MS
"""The highest price that timely delivery to one destination is worth. If the links cannot carry everything in time, the
destinations whose routes need the most capacity wait."""
HOP_NS: Final = 12 * MS
"""The probable queueing time at each link of a busy overlay, in addition to the delay of the link."""
CLASSES: Final = 16

PricedLeg = tuple[Nanos, Nanos, PeerId]
"""A route from a peer to a destination: its delay, the price of all its links, and the next peer."""
Prices = Mapping[PeerId, Mapping[PeerId, Nanos]]


class PricedRoutes:
    """The routes for one state of the graph and of prices. A new state needs a new table."""

    def __init__(self, view: View, prices: Prices | None = None) -> None:
        """`prices` replaces the prices of the graph."""
        self._delays = {
            b: {a: delay + HOP_NS for a, delay in row.items()}
            for b, row in reverse_without(view.graph.costs, view.me).items()
        }
        self._me = view.me
        self._prices = view.graph.prices if prices is None else prices
        self._costs: Costs = {
            b: {a: delay + self._link_price(a, b) for a, delay in row.items()} for b, row in self._delays.items()
        }
        self._routes: dict[PeerId, tuple[dict[PeerId, PricedLeg], ...]] = {}

    def first_link_price(self, hop: PeerId) -> Nanos:
        """The price of this peer's link to a hop."""
        return self._link_price(self._me, hop)

    def find_routes(self, dest: PeerId) -> tuple[dict[PeerId, PricedLeg], ...]:
        """The routes to a destination by peer: those with the least delay, then those with the least delay plus
        price."""
        routes = self._routes.get(dest)
        if routes is None:
            if dest not in self._delays:  # a neighbour can invent peers: do not cache those
                return ()
            routes = self._routes[dest] = tuple([self._find_legs(costs, dest) for costs in (self._delays, self._costs)])
        return routes

    def _find_legs(self, costs: Costs, dest: PeerId) -> dict[PeerId, PricedLeg]:
        distance, following = shortest_path_tree(costs, dest)
        legs: dict[PeerId, PricedLeg] = {dest: (0, 0, dest)}
        for peer in sorted(distance, key=distance.__getitem__):
            if peer != dest:
                there = following[peer]
                delay, price, _ = legs[there]
                legs[peer] = (delay + self._delays[there][peer], price + self._link_price(peer, there), there)
        return legs

    def _link_price(self, a: PeerId, b: PeerId) -> Nanos:
        row = self._prices.get(a)
        return LINK_NS if row is None else LINK_NS + row.get(b, 0)


class SpreadRoutes:
    """Chooses routes to the destinations of one packet. Each route may branch off an earlier one at any peer."""

    def __init__(self, routes: PricedRoutes, view: View, weight: float, queues: bool = True) -> None:
        """`queues`: whether the time that a packet would now wait in this peer's queues counts as delay."""
        self._routes = routes
        self._me = view.me
        self._start = {
            hop: link.delay_ns + HOP_NS + (link.queue_ns if queues else 0) for hop, link in view.links.items()
        }
        self._weight = weight
        self._reached: dict[PeerId, tuple[PeerId, Nanos]] = {}
        """The peers that the packet reaches as far as this peer knows, each with the first hop and the delay."""
        self._parents: dict[PeerId, PeerId] = {}

    def choose(
        self, dest: PeerId, hops: Collection[PeerId], slack_ns: Nanos, worth_ns: Nanos = WORTH_NS
    ) -> tuple[PeerId, Nanos] | None:
        """Choose the best hop whose route is in time and worth its price. Return it with the delay from there."""
        weight, legs, reached = self._weight, self._routes.find_routes(dest), self._reached
        most = float(FOREVER if slack_ns == FOREVER else worth_ns)
        best: tuple[PeerId, dict[PeerId, PricedLeg], PeerId, Nanos] | None = None
        least = float(FOREVER)
        starts = [
            (hop, hop, self._start[hop], self._routes.first_link_price(hop)) for hop in hops if hop not in reached
        ]
        starts += [(peer, hop, start, 0) for peer, (hop, start) in reached.items() if hop in hops]
        for peer, hop, start, entry in starts:
            for by_peer in legs:
                if peer in by_peer:
                    delay, price, _ = by_peer[peer]
                    extra = weight * (price + entry)
                    if start + delay <= slack_ns and extra <= most and start + delay + extra < least:
                        best, least = (hop, by_peer, peer, start), start + delay + extra
        if best is None:
            return None
        hop, by_peer, peer, start = best
        whole = start + by_peer[peer][0]
        self._add_route(dest, hop, by_peer, peer, whole)
        return hop, whole - self._start[hop]

    def _add_route(
        self, dest: PeerId, hop: PeerId, by_peer: dict[PeerId, PricedLeg], peer: PeerId, whole: Nanos
    ) -> None:
        """Add the route from a peer to the destination to the packet's routes."""
        reached, before = self._reached, self._me
        while True:
            if peer not in reached:
                reached[peer] = (hop, whole - by_peer[peer][0])
                self._parents[peer] = before
            if peer == dest:
                break
            before, peer = peer, by_peer[peer][2]

    def tree(self, hop: PeerId) -> tuple[tuple[PeerId, PeerId], ...]:
        """The links that the packet takes after a hop."""
        reached = self._reached
        return tuple([(a, b) for b, a in self._parents.items() if b != hop and reached[b][0] == hop])


def event_class(id_: EventId) -> int:
    """The class of an event, the same at all peers. Consecutive events belong to classes that are far apart."""
    return ((id_[0] * 0x85EBCA77 + id_[-1] * 0x9E3779B1) & 0xFFFFFFFF) * CLASSES >> 32


def class_weight(number: int) -> float:
    """The factor by which a class weighs prices: between 1/2 and 3/2."""
    return 0.5 + (number + 0.5) / CLASSES
