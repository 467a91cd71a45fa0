"""Home routers: which peer is at which routers, as gossip tells, and which peer represents a router.

A host with several providers has several access routers, and its paths start at different ones.
"""

from collections.abc import Iterable
from typing import NamedTuple

from wend.model.events import PeerId
from wend.model.paths import Path, Router
from wend.model.random_stream import RandomStream

GOSSIPED = 24
"""The most home routers of other peers that one gossip message carries."""
MOST = 4
"""The most home routers of one peer."""
FORGOTTEN = 60
"""Periods without news of a peer after which its home router is forgotten."""


class Home(NamedTuple):
    """The home routers of another peer."""

    routers: tuple[Router, ...]
    beat: int
    """The heartbeat of the peer."""
    since: int
    """The round in which that heartbeat was new."""


_NOWHERE = Home((), -1, 0)


def _group(homes: Iterable[tuple[PeerId, Router, int]], round_: int) -> dict[PeerId, Home]:
    """The home routers in a gossip message, by peer; those with its newest heartbeat."""
    grouped: dict[PeerId, Home] = {}
    for peer, router, beat in homes:
        home = grouped.get(peer, _NOWHERE)
        if beat > home.beat:
            grouped[peer] = Home((router,), beat, round_)
        elif beat == home.beat and len(home.routers) < MOST and router not in home.routers:
            grouped[peer] = home._replace(routers=(*home.routers, router))
    return grouped


class HomeRouters:
    """The home routers that one peer knows. Of several peers at one router the lowest represents it."""

    def __init__(self, me: PeerId) -> None:
        self._me = me
        self._own: list[Router] = []
        self._homes: dict[PeerId, Home] = {}
        self._representatives: dict[Router, PeerId] = {}
        self._dead: dict[PeerId, int] = {}

    def knows(self, peer: PeerId) -> bool:
        return peer in self._homes

    def add_own_router(self, path: Path) -> bool:
        """Learn a router of this peer from a path that starts there. Return True if it was unknown."""
        router = path[0]
        if router is None or router in self._own or len(self._own) == MOST:
            return False
        self._own.append(router)
        self._elect_representative(router)
        return True

    def representatives_on(self, path: Path) -> list[tuple[PeerId, int]]:
        """The other peers that represent routers of a path, each with its first position."""
        places: dict[PeerId, int] = {}
        for place, router in enumerate(path):
            peer = None if router is None else self._representatives.get(router)
            if peer is not None and peer != self._me:
                places.setdefault(peer, place)
        return list(places.items())

    def sample(self, draw: RandomStream, beat: int) -> tuple[tuple[PeerId, Router, int], ...]:
        """Some home routers to gossip, all of a peer or none; the own ones with this heartbeat."""
        homes: list[tuple[PeerId, Router, int]] = []
        for peer in draw.sample(sorted(self._homes), min(GOSSIPED, len(self._homes))):
            home = self._homes[peer]
            if len(homes) + len(home.routers) <= GOSSIPED:
                homes += [(peer, router, home.beat) for router in home.routers]
        return (*homes, *((self._me, router, beat) for router in self._own))

    def merge(self, homes: Iterable[tuple[PeerId, Router, int]], round_: int) -> bool:
        """Learn from gossip. Return True if another peer represents the router of a peer that is new or has moved."""
        has_changed = False
        for peer, home in _group(homes, round_).items():
            before = self._homes.get(peer, _NOWHERE)
            if peer == self._me or home.beat <= self._dead.get(peer, -1) or home.beat < before.beat:
                continue
            if home.beat == before.beat:
                home = Home(tuple(dict.fromkeys((*before.routers, *home.routers)))[:MOST], before.beat, before.since)
            self._homes[peer] = home
            for router in home.routers:
                has_changed |= router not in before.routers and self._elect_representative(router)
            for router in before.routers:
                if router not in home.routers:
                    self._elect_representative(router)
        return has_changed

    def expire(self, round_: int) -> None:
        for peer, home in list(self._homes.items()):
            if round_ - home.since > FORGOTTEN:
                self.forget(peer)

    def forget(self, peer: PeerId) -> None:
        home = self._homes.pop(peer, None)
        if home is not None:
            self._dead[peer] = home.beat
            for router in home.routers:
                self._elect_representative(router)

    def _elect_representative(self, router: Router) -> bool:
        """Choose the peer that represents a router. Return True if it changed."""
        peers = [peer for peer, home in self._homes.items() if router in home.routers]
        if router in self._own:
            peers.append(self._me)
        before = self._representatives.pop(router, None)
        if peers:
            self._representatives[router] = min(peers)
        return self._representatives.get(router) != before
