"""What fails together: which ways are in doubt when a link of this peer is down, given the routers beneath links.

A link that falls silent says that something beneath it is broken, and not what. Whatever lies beneath a link that has
been heard since is not to blame; of the rest, what explains the most links that are down is blamed. A way that runs
over what is blamed is in doubt, until links over it are heard: its own hop may be silent for the same reason, and
nobody know yet, or a link further on, of which this peer would never hear. The first router is not counted: all
links of a peer share it, and when it fails there is no other way.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import fsum

from wend.model.events import PeerId
from wend.model.paths import Path, Router
from wend.model.units import Nanos
from wend.protocol.plugins import LinkView, View
from wend.protocol.routing.routes import Edge, Route

Part = Router | tuple[Router, Router] | tuple[None, PeerId]
"""A router, a link between two, or a peer."""
Parts = frozenset[Part]
Evidence = list[tuple[PeerId, tuple[PeerId, ...]]]
"""Links that are down, each with those that were heard since."""


class SharedRisk:
    """For the paths of one moment; made anew when they change."""

    def __init__(self, view: View) -> None:
        me = view.me
        links = {peer: view.links[peer] for peer in view.neighbours}
        self._own = {p: parts(link.path[1:]) | {(None, p)} for p, link in links.items() if any_named(link.path)}
        home = next((link.path[0] for link in links.values() if link.path), None)
        self._edges = {
            edge: (parts(path) | {(None, peer) for peer in edge}) - {home, (None, me)}
            for edge, path in view.graph.paths.items()
            if any_named(path)
        }
        self._ways: dict[tuple[PeerId, PeerId], Parts] = {}
        self._evidence: Evidence = []
        self._causes: list[Parts] = []

    @property
    def known(self) -> bool:
        """Whether anything is known of what lies beneath this peer's links: else nothing can be blamed."""
        return bool(self._own)

    def blamed(self, now: Nanos, links: Mapping[PeerId, LinkView]) -> list[Parts]:
        """For each failure that is noticed, what may be the cause: any of these, and as likely as any other."""
        down = [peer for peer in self._own if not links[peer].heard_lately(now)]
        if not down:
            return []
        sent = [(peer, links[peer].heard_ns - links[peer].delay_ns) for peer in self._own if peer not in down]
        evidence = []
        for peer in down:
            link = links[peer]
            broken = link.heard_ns + link.silence_ns - link.delay_ns  # when its next word, or an ACK, was lost
            evidence.append((peer, tuple([other for other, last in sent if last > broken])))
        if evidence != self._evidence:  # for most of an outage it stays the same
            self._evidence, self._causes = evidence, self._find_causes(evidence)
        return self._causes

    def _find_causes(self, evidence: Evidence) -> list[Parts]:
        left = [self._own[peer].difference(*[self._own[other] for other in since]) for peer, since in evidence]
        explains = Counter(part for suspects in left for part in suspects)
        causes = []
        for suspects in left:
            most = max((explains[part] for part in suspects), default=0)
            causes.append(frozenset(part for part in suspects if explains[part] == most))
        return [cause for cause in dict.fromkeys(causes) if cause]

    def doubt(self, way: Route, blamed: list[Parts]) -> float:
        """How likely it is that the way is broken."""
        beneath = self._beneath(way)
        whole = 1.0
        for suspects in blamed:
            whole *= 1.0 - len(suspects & beneath) / len(suspects)
        return 1.0 - whole

    def apart(self, edges: Iterable[Edge], way: Route) -> float:
        """Of these links, how many the way has nothing to do with; each counts for the part that is not shared."""
        beneath = self._beneath(way)
        return fsum(self._apart(edge, way, beneath) for edge in edges)

    def _apart(self, edge: Edge, way: Route, beneath: Parts) -> float:
        made_of = self._edges.get(edge)
        if not made_of:
            return float(edge not in way.beyond)
        return 1.0 - len(made_of & beneath) / len(made_of)

    def spared(self, way: Route, other: Route, blamed: list[Parts]) -> float:
        """How likely it is that the first way is broken and the other is not."""
        here, there = self._beneath(way), self._beneath(other)
        return max((len((suspects & here) - there) / len(suspects) for suspects in blamed), default=0.0)

    def _beneath(self, way: Route) -> Parts:
        key = (way.hop, way.dest)
        found = self._ways.get(key)
        if found is None:
            edges = [self._edges.get(edge, Parts()) for edge in way.beyond]
            found = self._ways[key] = self._own.get(way.hop, Parts()).union(*edges)
        return found


def any_named(path: Path) -> bool:
    return any(router is not None for router in path)


def parts(path: Path) -> Parts:
    """The routers that gave their names, and the links between those next to each other."""
    routers = {router for router in path if router is not None}
    links = {_link(a, b) for a, b in pairwise(path) if a is not None and b is not None}
    return frozenset[Part](routers | links)


def _link(a: Router, b: Router) -> tuple[Router, Router]:
    return (a, b) if str(a) <= str(b) else (b, a)
