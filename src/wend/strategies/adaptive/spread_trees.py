"""Spread trees: the routes that a publisher's peer gives to its events while links are full.

If all events followed every change of prices at once, they would leave the full links together and meet on other links.
So the classes of events (`priced_routes.py`) adopt them one after the other: at first one class every few tens of
milliseconds, later more slowly. A class adopts only a part of the change, since other classes follow the same
change. This is the method of Frank and Wolfe, in steps of peers that do not coordinate: shares of the load move towards
the cheapest trees while prices show the effect.

Each packet carries its tree, so that the peers on the route follow it, though they learn prices at other times. They
leave it only if a link is down or an event would be late.
"""

from typing import Final, NamedTuple

import msgspec

from wend.model.events import PeerId
from wend.model.units import FOREVER, MS, Nanos
from wend.protocol.plugins import View
from wend.strategies.adaptive.priced_routes import CLASSES, HOP_NS, PricedRoutes, Prices, SpreadRoutes, class_weight

FIRST_NS: Final = 600 * MS
"""The initial time in which all classes adopt the prices."""
LAST_NS: Final = 3000 * MS
"""The final time in which all classes adopt the prices."""
SLOWER: Final = 1.02
"""The factor by which that time grows with each class."""
PART: Final = 0.6
"""The part of a change of prices that a class adopts."""
CLASS_STEP: Final = 7
"""The step from one class to the next, so that classes that weigh prices alike do not adopt them in a row."""
MAX_TREES: Final = 64
"""The most trees that a class stores."""

Pairs = tuple[tuple[PeerId, PeerId], ...]


class SpreadTree(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The links that a packet takes after its receiver, each from a peer that an earlier link reaches."""

    links: Pairs


class Branch(NamedTuple):
    """The part of a tree over one hop."""

    hop: PeerId
    dests: tuple[tuple[PeerId, Nanos], ...]
    """The destinations, each with the delay from the hop; FOREVER if it is too late anyway."""
    tree: SpreadTree


class _EventClass:
    __slots__ = ("prices", "routes", "trees")

    def __init__(self) -> None:
        self.prices: dict[PeerId, dict[PeerId, Nanos]] = {}
        self.routes: PricedRoutes | None = None
        self.trees: dict[tuple[tuple[PeerId, Nanos], ...], list[Branch]] = {}


class SpreadTrees:
    """The trees of one peer's own events."""

    def __init__(self, me: PeerId) -> None:
        self._classes = [_EventClass() for _ in range(CLASSES)]
        self._next_class = me
        self._next_ns: Nanos = 0
        self._interval_ns = FIRST_NS / CLASSES
        self._adoptions = 0
        self._version = -1
        """The version of the graph that the trees follow."""

    def branches(
        self, now: Nanos, number: int, dests: tuple[tuple[PeerId, Nanos], ...], up: list[PeerId], view: View
    ) -> list[Branch]:
        """The tree of a class of events to destinations, each with its deadline, over links that are up."""
        self._adopt_prices(now, view)
        own_class = self._classes[number]
        branches = own_class.trees.get(dests)
        if branches is None:
            if own_class.routes is None:
                own_class.routes = PricedRoutes(view, own_class.prices)
            if len(own_class.trees) >= MAX_TREES:
                own_class.trees.clear()
            branches = own_class.trees[dests] = _branches(
                SpreadRoutes(own_class.routes, view, class_weight(number), False), dests, up
            )
        return branches

    def _adopt_prices(self, now: Nanos, view: View) -> None:
        """Let the classes that are due adopt the prices."""
        if self._version != view.graph.version:
            self._version = view.graph.version
            for event_class in self._classes:
                event_class.routes = None
                event_class.trees.clear()
        if not self._next_ns:
            self._next_ns = now
        behind = 0
        while self._next_ns <= now and behind < CLASSES:
            event_class = self._classes[self._next_class * CLASS_STEP % CLASSES]
            event_class.prices = _interpolate(
                event_class.prices, view.graph.prices, 1.0 if self._adoptions < CLASSES else PART
            )
            event_class.routes = None
            event_class.trees.clear()
            self._next_class += 1
            self._adoptions += 1
            behind += 1
            self._next_ns += int(self._interval_ns)
            self._interval_ns = min(self._interval_ns * SLOWER, LAST_NS / CLASSES)
        self._next_ns = max(self._next_ns, now)


def _branches(spreading: SpreadRoutes, dests: tuple[tuple[PeerId, Nanos], ...], up: list[PeerId]) -> list[Branch]:
    groups: dict[PeerId, list[tuple[PeerId, Nanos]]] = {}
    for dest, deadline in dests:
        route = spreading.choose(dest, up, deadline)
        if route is not None:
            groups.setdefault(route[0], []).append((dest, FOREVER if deadline == FOREVER else route[1]))
            continue
        route = spreading.choose(dest, up, FOREVER)  # it is late on every route, so other events go first
        if route is not None:
            groups.setdefault(route[0], []).append((dest, FOREVER))
    return [Branch(hop, tuple(group), SpreadTree(spreading.tree(hop))) for hop, group in groups.items()]


def _interpolate(old: Prices, new: Prices, part: float) -> dict[PeerId, dict[PeerId, Nanos]]:
    """Prices that move a part of the way from the old to the new prices."""
    prices: dict[PeerId, dict[PeerId, Nanos]] = {}
    for peer in sorted({*old, *new}):
        before, after = old.get(peer, {}), new.get(peer, {})
        row = {}
        for to in sorted({*before, *after}):
            was = before.get(to, 0)
            price = was + int(part * (after.get(to, 0) - was))
            if price > 0:
                row[to] = price
        if row:
            prices[peer] = row
    return prices


def branches_at(tree: SpreadTree, me: PeerId, dests: tuple[PeerId, ...], view: View) -> list[Branch]:
    """The branches of a tree at one of its peers, for the destinations that the tree reaches from there."""
    costs = view.graph.costs
    over: dict[PeerId, tuple[PeerId, Nanos]] = {}
    for a, b in tree.links:
        if a == me:
            over[b] = (b, 0)
        elif a in over:
            hop, delay = over[a]
            over[b] = (hop, delay + costs.get(a, {}).get(b, FOREVER) + HOP_NS)
    groups: dict[PeerId, list[tuple[PeerId, Nanos]]] = {}
    for dest in dests:
        if dest in over:
            hop, delay = over[dest]
            groups.setdefault(hop, []).append((dest, delay))
    return [
        Branch(
            hop,
            tuple(group),
            SpreadTree(tuple([(a, b) for a, b in tree.links if a != me and over.get(b, (me,))[0] == hop])),
        )
        for hop, group in groups.items()
    ]
