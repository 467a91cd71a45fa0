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
Access = tuple[PeerId, int]
"""A peer and a router that it is attached to."""


class Placement:
    """An underlay and its peers. A last mile attaches peer p to the router `homes[p]`.

    A peer may have further access routers, each with a last mile of its own. The path between two peers then joins
    those of their access routers that are nearest to each other.
    """

    def __init__(
        self, underlay: Underlay, homes: Iterable[int], last_mile_ns: Nanos = MS, further: Iterable[Access] = ()
    ) -> None:
        """`further`: peers and further access routers of theirs."""
        self.underlay = underlay
        self.homes: Ints = np.array(list(homes), dtype=np.int64)
        self.last_mile_ns = last_mile_ns
        self.peers = len(self.homes)
        self.accesses: tuple[Access, ...] = (*enumerate(self.homes.tolist()), *further)
        """The last miles in the order of their components: the peer and the router of each."""
        self._routers: Ints = np.array([router for _, router in self.accesses], dtype=np.int64)
        if len(self._routers) and not 0 <= self._routers.min() <= self._routers.max() < underlay.routers:
            raise ConfigError(
                f"{underlay.name} has routers 0 to {underlay.routers - 1}, but a peer is placed on another router"
            )
        self.first_link = underlay.routers
        self.first_peer = underlay.routers + underlay.links
        self.first_last_mile = self.first_peer + self.peers
        self.components = self.first_last_mile + len(self.accesses)

    @cached_property
    def _shortest(self) -> ShortestPaths:
        return shortest_paths(self.underlay, self._routers)

    @cached_property
    def _access_delays(self) -> Ints:
        """(accesses, accesses): the delay between two access routers."""
        rows = np.array([self._shortest.row(int(router)) for router in self._routers], dtype=np.int64)
        delays: Ints = self._shortest.delay_ns[rows][:, self._routers]
        return delays

    @cached_property
    def _nearest(self) -> Ints:
        """(peers, peers): the last mile that the first peer uses to the second. Ties go to the lower last miles."""
        count = len(self.accesses)
        nearest = np.tile(np.arange(self.peers, dtype=np.int64)[:, None], (1, self.peers))
        if count == self.peers:
            return nearest
        by_peer: list[list[int]] = [[] for _ in range(self.peers)]
        for number, (peer, _) in enumerate(self.accesses):
            by_peer[peer].append(number)
        for a, b in zip(*(ends.tolist() for ends in self.pairs()), strict=True):
            _, _, _, nearest[a, b], nearest[b, a] = min(
                (int(self._access_delays[one, other]), min(one, other), max(one, other), one, other)
                for one in by_peer[a]
                for other in by_peer[b]
            )
        return nearest

    @cached_property
    def direct_ns(self) -> Ints:
        """(peers, peers): the delay between the routers of two peers."""
        delays: Ints = self._access_delays[self._nearest, self._nearest.T]
        return delays

    def pairs(self) -> tuple[Ints, Ints]:
        """All pairs of peers in order, the lower peer first."""
        a, b = np.triu_indices(self.peers, 1)
        return a.astype(np.int64), b.astype(np.int64)

    def paths(self, a: Ints, b: Ints) -> UnderlayPaths:
        """The path from the router of each peer in `a` to that of the peer beside it in `b`: routers and links."""
        one, other = self._last_miles(np.asarray(a), np.asarray(b))
        return self._shortest.paths(self._routers[one], self._routers[other])

    def _last_miles(self, a: Ints, b: Ints) -> tuple[Ints, Ints]:
        """The last miles on the paths between peers."""
        return self._nearest[a, b], self._nearest[b, a]

    def components_between(self, a: PeerId, b: PeerId) -> list[int]:
        """The components on the path from peer a to peer b: a last mile, routers and links, a last mile."""
        ends = np.array([a]), np.array([b])
        first, last = (self.first_last_mile + int(each[0]) for each in self._last_miles(*ends))
        return [first, *self.paths(*ends)[0].tolist(), last]

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
        first, last = self._last_miles(a, b)
        components[starts[:-1]] = self.first_last_mile + first
        components[starts[1:] - 1] = self.first_last_mile + last
        return starts, components

    def in_own_domain(self, component: int, a: PeerId, b: PeerId) -> bool:
        """Whether a component is an underlay link within the domain of one of two peers."""
        inner = (
            self._link_domains[component - self.first_link] if self.first_link <= component < self.first_peer else -1
        )
        return inner >= 0 and inner in self._peer_domains[a] | self._peer_domains[b]

    @cached_property
    def _link_domains(self) -> list[int]:
        """For each underlay link its domain, -1 between two domains."""
        ends = self.underlay.domain[self.underlay.ends]
        domains: list[int] = np.where(ends[:, 0] == ends[:, 1], ends[:, 0], -1).tolist()
        return domains

    @cached_property
    def _peer_domains(self) -> list[set[int]]:
        """By peer: the domains of its access routers."""
        domains: list[set[int]] = [set() for _ in range(self.peers)]
        for peer, router in self.accesses:
            domains[peer].add(int(self.underlay.domain[router]))
        return domains


def attach_peers(
    underlay: Underlay,
    peers: int,
    seed: int,
    *,
    share: bool = False,
    last_mile_ns: Nanos = MS,
    access_routers: int = 1,
) -> Placement:
    """Attach peers to random access routers. With `share`, several peers may have the same router.

    A peer with several `access_routers` has its random one, and those nearest to it that no other peer has: of other
    domains, as long as there are any.
    """
    access = underlay.access()
    rng = stream(seed, "underlay", "homes")
    if share:
        homes: NDArray[np.int64] = access[rng.integers(len(access), size=peers)]
    elif peers > len(access):
        raise ConfigError(f"{peers} peers need as many access routers, but {underlay.name} has {len(access)}")
    else:
        homes = access[rng.permutation(len(access))[:peers]]
    further = _find_further_routers(underlay, homes, access_routers - 1) if access_routers > 1 else []
    return Placement(underlay, homes.tolist(), last_mile_ns, further)


def _find_further_routers(underlay: Underlay, homes: Ints, count: int) -> list[Access]:
    access = underlay.access()
    if (count + 1) * len(homes) > len(access):
        raise ConfigError(
            f"{len(homes)} peers with {count + 1} access routers each need {(count + 1) * len(homes)} of them, but "
            f"{underlay.name} has {len(access)}"
        )
    delays = shortest_paths(underlay, homes)
    used = set(homes.tolist())
    further: list[Access] = []
    for peer, home in enumerate(homes.tolist()):
        domains = {int(underlay.domain[home])}
        delay_ns = delays.delay_ns[delays.row(home)]
        for _ in range(count):
            free = [
                (int(underlay.domain[router]) in domains, int(delay_ns[router]), router)
                for router in access.tolist()
                if router not in used
            ]
            router = min(free)[2]
            used.add(router)
            domains.add(int(underlay.domain[router]))
            further.append((peer, router))
    return further
