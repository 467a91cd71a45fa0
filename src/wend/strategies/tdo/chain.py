"""`chain`: each measured path is split at all peers that it passes. Wend's own membership.

One measurement links a chain of peers, each with the next. So `chain` needs fewer measurements than `tdo-random`, which
splits a path at neighbours only. It must know which peer is at which router. Each peer learns its own router from the
first path it measures, and gossips it. When a peer becomes known, links that pass its router are split there. Of
several peers at one router the lowest represents it, and the others link to that one.

If two adjacent peers of a chain cannot hear each other, though others hear both, the overlay may fall into components,
and every path across is split at the same gap. So if the leader of a component (`components.py`) meets peers of another
component for long, it links one of them as if the path were unknown, which no peer can split. Such a bridge is
redundant later; it remains until one of its ends leaves.
"""

from itertools import pairwise

from wend.model.events import PeerId
from wend.model.paths import UNKNOWN, Path, Router
from wend.model.units import Nanos
from wend.protocol.plugins import PeerConfig
from wend.strategies.tdo.handshake import LinkHandshake
from wend.strategies.tdo.member import WARM
from wend.strategies.tdo.messages import Gossip, Join

TOLD = 24
"""The most home routers that one gossip message carries."""
GAP = 12
"""Periods for which split paths may close a gap between components, before a bridge does."""
FORGOTTEN = 60
"""Periods without news of a peer after which its home router is forgotten."""


class Chain(LinkHandshake):
    """Links each peer of a measured path with the next."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self.asked: set[PeerId] = set()
        self.home: Router | None = None
        self._homes: dict[PeerId, tuple[Router, int, int]] = {}
        """By peer: its router, its heartbeat, and the round in which that heartbeat was new."""
        self._representatives: dict[Router, PeerId] = {}
        self._dead: dict[PeerId, int] = {}
        self._gap: tuple[int, int] = (0, -GAP)
        """The rounds in which this peer first and last met a gap. After a pause or a bridge, a gap counts as new."""

    # ---------------------------------------------------------------- measuring

    def _seek(self, now: Nanos) -> None:
        for peer, (router, beat, since) in sorted(self._homes.items()):
            if self.round - since > FORGOTTEN:
                self._dead[peer] = beat
                del self._homes[peer]
                self._elect(router)
        if self.round >= WARM:
            if not self.linked and self.round % WARM == 0:
                self.asked.clear()
            for peer in self._sampling.sample(
                max(0, self._settings.membership_k - len(self.asked)), frozenset(self.asked)
            ):
                self._join(peer)

    def _join(self, peer: PeerId) -> None:
        self.asked.add(peer)
        self._find_path(peer)

    def _found(self, peer: PeerId, path: Path | None) -> None:
        path = path or UNKNOWN
        if self.home is None and path[0] is not None:
            self.home = path[0]
            self._elect(self.home)
            self._recut()
        self._pair(peer, path)

    # ---------------------------------------------------------------- splitting paths

    def _joins(self, peer: PeerId, path: Path | None) -> None:
        if path is None:
            self._find_path(peer)
        else:
            self._pair(peer, path)

    def _offered(self, peer: PeerId, number: int, path: Path) -> None:
        if self._stops(peer, path):
            self._decline(peer, number)
            self._pair(peer, path)
        else:
            self._accept(peer, path, number)

    def _pair(self, peer: PeerId, path: Path) -> None:
        """Link each peer of the path with the next: make the first link, and ask other peers to make the rest."""
        stops = [*self._stops(peer, path), (peer, len(path) - 1)]
        first, place = stops[0]
        if first not in self.linked and first != self.me:
            self._offer(first, path[: place + 1])
        for (stop, begin), (after, end) in pairwise(stops):
            self._say(stop, Join(after, path[begin : end + 1]))

    def _stops(self, peer: PeerId, path: Path) -> list[tuple[PeerId, int]]:
        """The peers that represent routers of the path between here and `peer`, with their positions."""
        found = []
        for place, router in enumerate(path):
            stop = None if router is None else self._representatives.get(router)
            if stop is not None and stop not in (self.me, peer):
                found.append((stop, place))
        return found

    def _recut(self) -> None:
        for peer, link in sorted(self.linked.items()):
            if self._stops(peer, link.path):
                self._unlink(peer)
                self._pair(peer, link.path)

    # ---------------------------------------------------------------- home routers

    def _gossip(self) -> Gossip:
        base = super()._gossip()
        known = sorted(self._homes)
        some = self._draw.sample(known, min(TOLD, len(known)))
        homes = [(peer, *self._homes[peer][:2]) for peer in some]
        if self.home is not None:
            homes.append((self.me, self.home, self._first_number + self.round))
        return Gossip(homes=tuple(homes), leader=base.leader)

    def _learn(self, sender: PeerId, gossip: Gossip) -> None:
        if self._component.apart(gossip.leader) and sender not in self.linked:
            self._bridge(sender)
        super()._learn(sender, gossip)
        moved = False
        for peer, router, beat in gossip.homes:
            before = self._homes.get(peer)
            if peer == self.me or beat <= self._dead.get(peer, -1) or (before is not None and beat <= before[1]):
                continue
            self._homes[peer] = (router, beat, self.round)
            if before is None or before[0] != router:
                moved |= self._elect(router)
                if before is not None:
                    self._elect(before[0])
        if moved:
            self._recut()

    def _bridge(self, peer: PeerId) -> None:
        first, last = self._gap
        self._gap = (first if self.round - last < GAP else self.round, self.round)
        if self._component.leader == self.me and self.round - self._gap[0] >= GAP:
            self._gap = (self.round, self.round)
            self._offer(peer, UNKNOWN)

    def _elect(self, router: Router) -> bool:
        """Choose the peer that represents a router. Return True if it changed."""
        here = [peer for peer, (home, _, _) in self._homes.items() if home == router]
        if self.home == router:
            here.append(self.me)
        before = self._representatives.pop(router, None)
        if here:
            self._representatives[router] = min(here)
        return self._representatives.get(router) != before

    def _replace(self, peer: PeerId) -> None:
        if peer in self._homes:
            router, beat, _ = self._homes.pop(peer)
            self._dead[peer] = beat
            self._elect(router)
        super()._replace(peer)
