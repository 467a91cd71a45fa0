"""Shared risk: which routes are in doubt when a link of this peer is down, given the underlay paths of links.

A silent link shows that a router or underlay link on its path is down, but not which. An underlay element on the path
of a link that has been active since then is not the cause. Of the other elements, those that explain the most silent
links are suspected. A route over a suspected element is in doubt until a link over that element is active again: the
route's first link may be down for the same reason, unnoticed, or a later link, of which this peer receives no reports.
The first router does not count: all links of a peer share it, and if it fails, there is no other route."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from wend.model.events import PeerId
from wend.model.paths import Path, Router
from wend.model.units import Nanos
from wend.protocol.plugins import LinkView, View
from wend.strategies.adaptive.routes import Edge, Route

Part = Router | tuple[Router, Router] | tuple[None, PeerId]
"""An element that may fail: a router, a link between two routers, or a peer."""
Parts = frozenset[Part]
Evidence = list[tuple[PeerId, tuple[PeerId, ...]]]
"""Links that are down, each with the links that have been active since."""

_MAX_CACHED = 4096
"""The most routes whose elements a peer caches."""


class SharedRisk:
    """The suspected elements for one set of underlay paths. New paths need a new object."""

    def __init__(self, view: View) -> None:
        me = view.me
        links = {peer: view.links[peer] for peer in view.neighbours}
        self._own = {
            p: path_elements(link.path[1:]) | {(None, p)} for p, link in links.items() if has_named_router(link.path)
        }
        home = next((link.path[0] for link in links.values() if link.path), None)
        self._edges = {
            edge: (path_elements(path) | {(None, peer) for peer in edge}) - {home, (None, me)}
            for edge, path in view.graph.paths.items()
            if has_named_router(path)
        }
        self._by_route: dict[tuple[PeerId, frozenset[Edge]], Parts] = {}
        """The elements by hop and later links: links that are down change the path over a hop."""
        self._evidence: Evidence = []
        self._causes: list[Parts] = []

    @property
    def has_paths(self) -> bool:
        """Whether any underlay path of this peer's links is known. Without one, no element can be suspected."""
        return bool(self._own)

    def find_causes(self, now: Nanos, links: Mapping[PeerId, LinkView]) -> list[Parts]:
        """For each detected failure, the elements that may be its cause, all equally likely."""
        down = [peer for peer in self._own if not links[peer].is_heard(now)]
        if not down:
            return []
        sent = [(peer, links[peer].heard_ns - links[peer].delay_ns) for peer in self._own if peer not in down]
        evidence = []
        for peer in down:
            link = links[peer]
            broken = link.heard_ns + link.silence_ns - link.delay_ns  # when its next message, or an ACK, was lost
            evidence.append((peer, tuple([other for other, last in sent if last > broken])))
        if evidence != self._evidence:  # it stays the same for most of an outage
            self._evidence, self._causes = evidence, self._explain(evidence)
        return self._causes

    def _explain(self, evidence: Evidence) -> list[Parts]:
        """The suspected elements of each silent link: those that explain the most silent links."""
        suspected = [self._own[peer].difference(*[self._own[other] for other in since]) for peer, since in evidence]
        explains = Counter(part for suspects in suspected for part in suspects)
        causes = []
        for suspects in suspected:
            most = max((explains[part] for part in suspects), default=0)
            causes.append(frozenset(part for part in suspects if explains[part] == most))
        return [cause for cause in dict.fromkeys(causes) if cause]

    def down_probability(self, route: Route, causes: list[Parts]) -> float:
        """The probability that the route is down."""
        elements = self._route_elements(route)
        up = 1.0
        for suspects in causes:
            up *= 1.0 - len(suspects & elements) / len(suspects)
        return 1.0 - up

    def unshared_fraction(self, edge: Edge, route: Route) -> float:
        """The fraction of a link's elements that the route does not share."""
        own = self._edges.get(edge)
        if not own:
            return float(edge not in route.beyond)
        return 1.0 - len(own & self._route_elements(route)) / len(own)

    def only_first_down_probability(self, route: Route, other: Route, causes: list[Parts]) -> float:
        """The probability that the first route is down and the other is up."""
        here, there = self._route_elements(route), self._route_elements(other)
        return max((len((suspects & here) - there) / len(suspects) for suspects in causes), default=0.0)

    def _route_elements(self, route: Route) -> Parts:
        key = (route.hop, route.beyond)
        elements = self._by_route.get(key)
        if elements is None:
            if len(self._by_route) >= _MAX_CACHED:
                self._by_route.clear()
            edges = [self._edges.get(edge, Parts()) for edge in route.beyond]
            elements = self._by_route[key] = self._own.get(route.hop, Parts()).union(*edges)
        return elements


def has_named_router(path: Path) -> bool:
    return any(router is not None for router in path)


def path_elements(path: Path) -> Parts:
    """The routers that answered with an address, and the links between adjacent ones."""
    routers = {router for router in path if router is not None}
    links = {_router_link(a, b) for a, b in pairwise(path) if a is not None and b is not None}
    return frozenset[Part](routers | links)


def _router_link(a: Router, b: Router) -> tuple[Router, Router]:
    return (a, b) if str(a) <= str(b) else (b, a)
