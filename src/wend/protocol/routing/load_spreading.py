"""Routes under load: events leave the shortest route where links on it are full, and a slower one is in time.

Full links have prices (`link/prices.py`), which peers tell with their link states. Of the routes that are in time a
packet takes the one with the least delay plus price. Three things keep all packets from changing their route together:

- Every event weighs prices by a factor of its own, the same at all peers, so the more a price exceeds the detour, the
  more of the events take that.
- The time for which a packet would wait here, behind others, counts as delay.
- A link that the packet takes anyway, to another destination, costs nothing more. So the full links carry few copies.

Nothing is hedged here: copies would need the room that is missing.
"""

from collections.abc import Collection
from typing import Final

from wend.model.events import EventId, PeerId
from wend.model.units import FOREVER, MS, Nanos
from wend.protocol.plugins import View
from wend.protocol.routing.routes import Costs, turned
from wend.topology.paths import tree

LINK_NS: Final = 25 * MS
"""The price of a link that is not full: while others are, every copy that is spared leaves room."""
WORTH_NS: Final = 150 * MS
"""The highest price that timely delivery to one destination is worth. Where links cannot carry everything in time,
those destinations wait that would need most of them."""


Leg = tuple[Nanos, Nanos, PeerId]
"""From a peer to a destination: delay, price of all links, and the next peer."""


class PricedRoutes:
    """The routes for one state of the graph and its prices. A new state needs a new table."""

    def __init__(self, view: View) -> None:
        self._delays = turned(view.graph.costs, view.me)
        self._prices = view.graph.prices
        self._costs: Costs = {
            b: {a: delay + self._price(a, b) for a, delay in row.items()} for b, row in self._delays.items()
        }
        self._found: dict[PeerId, tuple[dict[PeerId, Leg], ...]] = {}

    def to(self, dest: PeerId) -> tuple[dict[PeerId, Leg], ...]:
        """By peer, the route to a destination with the least delay; and the same with the least delay plus price."""
        found = self._found.get(dest)
        if found is None:
            if dest not in self._delays:  # a neighbour can invent others: do not cache those
                return ()
            found = self._found[dest] = tuple([self._legs(costs, dest) for costs in (self._delays, self._costs)])
        return found

    def _legs(self, costs: Costs, dest: PeerId) -> dict[PeerId, Leg]:
        distance, following = tree(costs, dest)
        legs: dict[PeerId, Leg] = {dest: (0, 0, dest)}
        for peer in sorted(distance, key=distance.__getitem__):
            if peer != dest:
                there = following[peer]
                delay, price, _ = legs[there]
                legs[peer] = (delay + self._delays[there][peer], price + self._price(peer, there), there)
        return legs

    def _price(self, a: PeerId, b: PeerId) -> Nanos:
        row = self._prices.get(a)
        return LINK_NS if row is None else LINK_NS + row.get(b, 0)


class Spreading:
    """The choice of routes for the destinations of one packet. Every route may leave the ones before where it likes."""

    def __init__(self, routes: PricedRoutes, view: View, id_: EventId) -> None:
        self._routes = routes
        self._links = view.links
        self._weight = weight_of(id_)
        self._reached: dict[PeerId, tuple[PeerId, Nanos]] = {}
        """The peers that the packet reaches, as far as is known here: over which hop, and with which delay."""

    def choose(self, dest: PeerId, hops: Collection[PeerId], slack_ns: Nanos) -> tuple[PeerId, Nanos] | None:
        """The best hop whose route is in time and worth its price, and the delay from there."""
        weight, legs = self._weight, self._routes.to(dest)
        most = float(FOREVER if slack_ns == FOREVER else WORTH_NS)
        best: tuple[PeerId, dict[PeerId, Leg], PeerId, Nanos] | None = None
        least = float(FOREVER)
        for hop in hops:
            if hop in self._reached:
                continue
            link = self._links[hop]
            start, entry = link.delay_ns + link.queue_ns, LINK_NS + link.price_ns
            for by_peer in legs:
                if hop in by_peer:
                    delay, price, _ = by_peer[hop]
                    extra = weight * (price + entry)
                    if start + delay <= slack_ns and extra <= most and start + delay + extra < least:
                        best, least = (hop, by_peer, hop, start), start + delay + extra
        for peer, (hop, start) in self._reached.items():
            if hop in hops:
                for by_peer in legs:
                    if peer in by_peer:
                        delay, price, _ = by_peer[peer]
                        extra = weight * price
                        if start + delay <= slack_ns and extra <= most and start + delay + extra < least:
                            best, least = (hop, by_peer, peer, start), start + delay + extra
        if best is None:
            return None
        hop, by_peer, peer, start = best
        whole = start + by_peer[peer][0]
        while True:
            self._reached.setdefault(peer, (hop, whole - by_peer[peer][0]))
            if peer == dest:
                break
            peer = by_peer[peer][2]
        link = self._links[hop]
        return hop, whole - link.delay_ns - link.queue_ns


def weight_of(id_: EventId) -> float:
    """How much an event minds prices: between 1/2 and 3/2, the same at all peers."""
    mixed = (id_[0] * 0x9E3779B1 + id_[-1] * 0x85EBCA77) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    return 0.5 + (mixed ^ (mixed >> 13)) / 0x100000000
