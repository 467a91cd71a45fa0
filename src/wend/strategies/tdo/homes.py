"""Home routers: which peer is at which router, as gossip tells, and which peer represents a router."""

from collections.abc import Iterable
from typing import NamedTuple

from wend.model.events import PeerId
from wend.model.paths import Path, Router
from wend.model.random_stream import RandomStream

GOSSIPED = 24
"""The most home routers of other peers that one gossip message carries."""
FORGOTTEN = 60
"""Periods without news of a peer after which its home router is forgotten."""


class Home(NamedTuple):
    """The home router of another peer."""

    router: Router
    beat: int
    """The heartbeat of the peer."""
    since: int
    """The round in which that heartbeat was new."""


class HomeRouters:
    """The home routers that one peer knows. Of several peers at one router the lowest represents it."""

    def __init__(self, me: PeerId) -> None:
        self._me = me
        self._own: Router | None = None
        self._homes: dict[PeerId, Home] = {}
        self._representatives: dict[Router, PeerId] = {}
        self._dead: dict[PeerId, int] = {}

    def knows(self, peer: PeerId) -> bool:
        return peer in self._homes

    def set_own_router(self, path: Path) -> bool:
        """Learn this peer's own router from a path that starts there. Return True if it was unknown."""
        if self._own is not None or path[0] is None:
            return False
        self._own = path[0]
        self._elect_representative(self._own)
        return True

    def representatives_on(self, path: Path) -> list[tuple[PeerId, int]]:
        """The other peers that represent routers of a path, with their positions."""
        places = [(self._representatives.get(router), place) for place, router in enumerate(path) if router is not None]
        return [(peer, place) for peer, place in places if peer is not None and peer != self._me]

    def sample(self, draw: RandomStream, beat: int) -> tuple[tuple[PeerId, Router, int], ...]:
        """Some home routers to gossip, the own one with this heartbeat."""
        peers = draw.sample(sorted(self._homes), min(GOSSIPED, len(self._homes)))
        homes = [(peer, self._homes[peer].router, self._homes[peer].beat) for peer in peers]
        if self._own is not None:
            homes.append((self._me, self._own, beat))
        return tuple(homes)

    def merge(self, homes: Iterable[tuple[PeerId, Router, int]], round_: int) -> bool:
        """Learn from gossip. Return True if another peer represents the router of a peer that is new or has moved."""
        has_changed = False
        for peer, router, beat in homes:
            before = self._homes.get(peer)
            if peer == self._me or beat <= self._dead.get(peer, -1) or (before is not None and beat <= before.beat):
                continue
            self._homes[peer] = Home(router, beat, round_)
            if before is None or before.router != router:
                has_changed |= self._elect_representative(router)
                if before is not None:
                    self._elect_representative(before.router)
        return has_changed

    def expire(self, round_: int) -> None:
        for peer, home in list(self._homes.items()):
            if round_ - home.since > FORGOTTEN:
                self.forget(peer)

    def forget(self, peer: PeerId) -> None:
        home = self._homes.pop(peer, None)
        if home is not None:
            self._dead[peer] = home.beat
            self._elect_representative(home.router)

    def _elect_representative(self, router: Router) -> bool:
        """Choose the peer that represents a router. Return True if it changed."""
        peers = [peer for peer, home in self._homes.items() if home.router == router]
        if self._own == router:
            peers.append(self._me)
        before = self._representatives.pop(router, None)
        if peers:
            self._representatives[router] = min(peers)
        return self._representatives.get(router) != before
