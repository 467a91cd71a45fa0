"""Peers on an underlay: what an overlay link is made of, once one looks beneath it.

Everything that can fail is a component with a number: first the routers, then the links, then the peers, then each
peer's last mile. Two overlay links fail together exactly where their components meet.
"""

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.randomness import stream
from wend.model.units import MS, Nanos
from wend.topology.graph import Overlay, OverlayLink
from wend.topology.routing import Index, Routes, UnderlayPaths, route
from wend.topology.underlay import Ints, Underlay

Pair = tuple[PeerId, PeerId]


class Placement:
    """`homes[p]` is the router that peer p hangs on, by a last mile of its own."""

    def __init__(self, underlay: Underlay, homes: Iterable[int], last_mile_ns: Nanos = MS) -> None:
        self.underlay = underlay
        self.homes: Ints = np.array(list(homes), dtype=np.int64)
        self.last_mile_ns = last_mile_ns
        if len(self.homes) and not 0 <= self.homes.min() <= self.homes.max() < underlay.routers:
            raise ConfigError(f"{underlay.name} has routers 0 to {underlay.routers - 1}, and a peer lives on another")
        self.peers = len(self.homes)
        self.first_link = underlay.routers
        self.first_peer = underlay.routers + underlay.links
        self.first_last_mile = self.first_peer + self.peers
        self.components = self.first_last_mile + self.peers

    @cached_property
    def routes(self) -> Routes:
        return route(self.underlay, self.homes)

    @cached_property
    def direct_ns(self) -> Ints:
        """(peers, peers): the delay between two peers' routers."""
        rows = np.array([self.routes.row(int(home)) for home in self.homes], dtype=np.int64)
        found: Ints = self.routes.delay_ns[rows][:, self.homes]
        return found

    def pairs(self) -> tuple[Ints, Ints]:
        """All pairs of peers, the lower first, in order."""
        a, b = np.triu_indices(self.peers, 1)
        return a.astype(np.int64), b.astype(np.int64)

    def paths(self, a: Ints, b: Ints) -> UnderlayPaths:
        """The way from each peer's router to the other's: routers and links."""
        return self.routes.paths(self.homes[np.asarray(a)], self.homes[np.asarray(b)])

    def path(self, a: PeerId, b: PeerId) -> list[int]:
        """The routers from peer a to peer b."""
        return self.paths(np.array([a]), np.array([b])).via(0)

    def overlay(self, pairs: Iterable[Pair], loss: float = 0.0) -> Overlay:
        """Links between these peers, each as slow as its way through the underlay and two last miles."""
        wanted = sorted({(min(a, b), max(a, b)) for a, b in pairs if a != b})
        delays = self.direct_ns
        return Overlay(
            self.peers, [OverlayLink(a, b, int(delays[a, b]) + 2 * self.last_mile_ns, loss) for a, b in wanted]
        )

    def link_components(self, overlay: Overlay) -> tuple[Ints, Index]:
        """What each overlay link is made of: link l is `parts[starts[l]:starts[l + 1]]`, last miles included."""
        a = np.array([link.a for link in overlay.links], dtype=np.int64)
        b = np.array([link.b for link in overlay.links], dtype=np.int64)
        paths = self.paths(a, b)
        starts = paths.starts + 2 * np.arange(len(paths.starts))
        components = np.empty(starts[-1], dtype=np.int32)
        ways = np.ones(len(components), dtype=bool)
        ways[starts[:-1]] = ways[starts[1:] - 1] = False
        components[ways] = paths.components
        components[starts[:-1]] = self.first_last_mile + a
        components[starts[1:] - 1] = self.first_last_mile + b
        return starts, components

    def kind(self, component: int) -> str:
        """What a component is, in a word."""
        bounds = (self.first_link, self.first_peer, self.first_last_mile, self.components)
        return ("router", "link", "peer", "last mile")[int(np.searchsorted(bounds, component, side="right"))]


def place(underlay: Underlay, peers: int, seed: int, *, share: bool = False, last_mile_ns: Nanos = MS) -> Placement:
    """Peers on random routers of stub domains or AS; two on one router only where `share` allows it."""
    access = underlay.access()
    rng = stream(seed, "underlay", "homes")
    if share:
        homes: NDArray[np.int64] = access[rng.integers(len(access), size=peers)]
    elif peers > len(access):
        raise ConfigError(f"{peers} peers need as many routers to live on, and {underlay.name} has {len(access)}")
    else:
        homes = access[rng.permutation(len(access))[:peers]]
    return Placement(underlay, homes.tolist(), last_mile_ns)
