"""Placement: peers attached to the routers of an underlay.

An overlay link runs over a path of routers and underlay links. Everything that can fail is a component with a number:
first the routers, then the links, then the peers, then each peer's last mile. Two overlay links fail together if
they share a component.
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
from wend.topology.routing import ShortestPaths, UnderlayPaths, shortest_paths
from wend.topology.underlay import Index, Ints, Underlay

Pair = tuple[PeerId, PeerId]


class Placement:
    """An underlay and its peers. A last mile attaches peer p to the router `homes[p]`."""

    def __init__(self, underlay: Underlay, homes: Iterable[int], last_mile_ns: Nanos = MS) -> None:
        self.underlay = underlay
        self.homes: Ints = np.array(list(homes), dtype=np.int64)
        self.last_mile_ns = last_mile_ns
        if len(self.homes) and not 0 <= self.homes.min() <= self.homes.max() < underlay.routers:
            raise ConfigError(
                f"{underlay.name} has routers 0 to {underlay.routers - 1}, but a peer is placed on another router"
            )
        self.peers = len(self.homes)
        self.first_link = underlay.routers
        self.first_peer = underlay.routers + underlay.links
        self.first_last_mile = self.first_peer + self.peers
        self.components = self.first_last_mile + self.peers

    @cached_property
    def _shortest(self) -> ShortestPaths:
        return shortest_paths(self.underlay, self.homes)

    @cached_property
    def direct_ns(self) -> Ints:
        """(peers, peers): the delay between the routers of two peers."""
        rows = np.array([self._shortest.row(int(home)) for home in self.homes], dtype=np.int64)
        delays: Ints = self._shortest.delay_ns[rows][:, self.homes]
        return delays

    def pairs(self) -> tuple[Ints, Ints]:
        """All pairs of peers in order, the lower peer first."""
        a, b = np.triu_indices(self.peers, 1)
        return a.astype(np.int64), b.astype(np.int64)

    def paths(self, a: Ints, b: Ints) -> UnderlayPaths:
        """The path from the router of each peer in `a` to that of the peer beside it in `b`: routers and links."""
        return self._shortest.paths(self.homes[np.asarray(a)], self.homes[np.asarray(b)])

    def path(self, a: PeerId, b: PeerId) -> list[int]:
        """The routers from peer a to peer b."""
        return self.paths(np.array([a]), np.array([b])).routers_on(0)

    def overlay(self, pairs: Iterable[Pair], loss: float = 0.0) -> Overlay:
        """An overlay with these links. A link's delay is that of its underlay path and two last miles."""
        links = sorted({(min(a, b), max(a, b)) for a, b in pairs if a != b})
        delays = self.direct_ns
        return Overlay(
            self.peers, [OverlayLink(a, b, int(delays[a, b]) + 2 * self.last_mile_ns, loss) for a, b in links]
        )

    def link_components(self, overlay: Overlay) -> tuple[Ints, Index]:
        """The components of each overlay link: those of link l are `components[starts[l]:starts[l + 1]]`.

        They include the two last miles."""
        a, b = overlay.ends
        paths = self.paths(a, b)
        starts = paths.starts + 2 * np.arange(len(paths.starts))
        components = np.empty(starts[-1], dtype=np.int32)
        inner = np.ones(len(components), dtype=bool)
        inner[starts[:-1]] = inner[starts[1:] - 1] = False
        components[inner] = paths.components
        components[starts[:-1]] = self.first_last_mile + a
        components[starts[1:] - 1] = self.first_last_mile + b
        return starts, components

    def in_own_domain(self, component: int, a: PeerId, b: PeerId) -> bool:
        """Whether a component is an underlay link within the domain of one of two peers."""
        inner = (
            self._link_domains[component - self.first_link] if self.first_link <= component < self.first_peer else -1
        )
        return inner >= 0 and inner in (self._peer_domains[a], self._peer_domains[b])

    @cached_property
    def _link_domains(self) -> list[int]:
        """For each underlay link its domain, -1 between two domains."""
        ends = self.underlay.domain[self.underlay.ends]
        domains: list[int] = np.where(ends[:, 0] == ends[:, 1], ends[:, 0], -1).tolist()
        return domains

    @cached_property
    def _peer_domains(self) -> list[int]:
        domains: list[int] = self.underlay.domain[self.homes].tolist()
        return domains


def attach_peers(
    underlay: Underlay, peers: int, seed: int, *, share: bool = False, last_mile_ns: Nanos = MS
) -> Placement:
    """Attach peers to random access routers. With `share`, several peers may have the same router."""
    access = underlay.access()
    rng = stream(seed, "underlay", "homes")
    if share:
        homes: NDArray[np.int64] = access[rng.integers(len(access), size=peers)]
    elif peers > len(access):
        raise ConfigError(f"{peers} peers need as many access routers, but {underlay.name} has {len(access)}")
    else:
        homes = access[rng.permutation(len(access))[:peers]]
    return Placement(underlay, homes.tolist(), last_mile_ns)
