"""`chain`: each measured path is split at all peers that it passes. Wend's own membership.

One measurement links a chain of peers, each with the next. So `chain` needs fewer measurements than `tdo-random`, which
splits a path at neighbours only. It must know which peer is at which routers (`homes.py`). Each peer learns its own
routers from the paths it measures, and gossips them. When a peer learns of another, it splits its links that pass a
router of the other. Of several peers at one router the lowest represents it, and the others link to that one.

If two adjacent peers of a chain cannot hear each other, though others hear both, the overlay may fall into components,
and every path across is split at the same gap. So if the leader of a component (`handshake.py`) meets peers of another
component for long, it links one of them as if the path were unknown, which no peer can split. Such a bridge is
redundant later; it remains until one of its ends leaves, and its path is not traced again.
"""

from itertools import pairwise

import msgspec

from wend.model.events import PeerId
from wend.model.paths import UNKNOWN, Path
from wend.model.units import Nanos
from wend.protocol.plugins import FindPath, PeerConfig, SendTo
from wend.strategies.tdo.homes import HomeRouters
from wend.strategies.tdo.link_overlay import LinkOverlay
from wend.strategies.tdo.messages import Effects, Gossip, Join
from wend.strategies.tdo.rounds import WARM, MembershipSettings, Rounds

GAP = 12
"""Periods for which split paths may close a gap between components, before a bridge does."""


class ChainOverlay(LinkOverlay):
    """Links each peer of a measured path with the next."""

    def __init__(self, config: PeerConfig, rounds: Rounds) -> None:
        super().__init__(config, rounds, one_end_traces=True)
        self._count = config.of(MembershipSettings).membership_k
        self._joined: set[PeerId] = set()
        """The peers to which this one has measured paths."""
        self._homes = HomeRouters(config.peer)
        self._gap: tuple[int, int] = (0, -GAP)
        """The rounds in which this peer first and last met a gap. After a pause or a bridge, a gap counts as new."""

    # ---------------------------------------------------------------- measuring

    def seek_links(self, now: Nanos) -> Effects:
        round_ = self.rounds.number
        self._homes.expire(round_)
        if round_ < WARM:
            return
        if not self.links and round_ % WARM == 0:
            self._joined.clear()
        count = max(0, self._count - len(self._joined))
        for peer in self.rounds.sampling.sample(count, frozenset(self._joined)):
            yield from self.join(peer)
        joined = [peer for peer in self._joined if self._homes.knows(peer)]
        yield from self.retrace(joined, [peer for peer, link in self.links.items() if link.path == UNKNOWN])

    def join(self, peer: PeerId) -> Effects:
        self._joined.add(peer)
        yield FindPath(peer)

    def handle_first_path(self, peer: PeerId, path: Path) -> Effects:
        if self._homes.add_own_router(path):
            yield from self._split_links()
        yield from self._link_along(peer, path)

    def join_along(self, peer: PeerId, path: Path) -> Effects:
        yield from self._link_along(peer, path)

    # ---------------------------------------------------------------- splitting paths

    def handle_join(self, peer: PeerId, path: Path | None) -> Effects:
        if path is None:
            yield FindPath(peer)
        else:
            yield from self._link_along(peer, path)

    def handle_offer(self, peer: PeerId, number: int, path: Path) -> Effects:
        if self._stops(peer, path):
            yield self.handshake.decline(peer, number)
            yield from self._link_along(peer, path)
        else:
            yield from self.handshake.accept(peer, path, number)

    def _link_along(self, peer: PeerId, path: Path) -> Effects:
        """Link each peer of the path with the next: make the first link, and ask other peers to make the rest."""
        stops = [*self._stops(peer, path), (peer, len(path) - 1)]
        first, place = stops[0]
        if first not in self.links and first != self.me:
            yield from self.handshake.offer(first, path[: place + 1])
        for (stop, begin), (after, end) in pairwise(stops):
            yield SendTo(stop, Join(after, path[begin : end + 1]))

    def _stops(self, peer: PeerId, path: Path) -> list[tuple[PeerId, int]]:
        """The peers that represent routers of the path between here and `peer`, with their positions."""
        return [(stop, place) for stop, place in self._homes.representatives_on(path) if stop != peer]

    def _split_links(self) -> Effects:
        for peer in sorted(self.links):
            if peer in self.links:
                yield from self.place_link(peer)

    def place_link(self, peer: PeerId) -> Effects:
        """Split a link at the peers that its path passes."""
        path = self.links[peer].path
        if self._stops(peer, path):
            yield from self.handshake.unlink(peer)
            yield from self._link_along(peer, path)

    # ---------------------------------------------------------------- gossip and gaps

    def gossip(self) -> Gossip:
        homes = self._homes.sample(self.rounds.draw, self.rounds.beat)
        return msgspec.structs.replace(super().gossip(), homes=homes)

    def on_gossip(self, sender: PeerId, gossip: Gossip) -> Effects:
        if self.handshake.component.is_apart(gossip.leader) and sender not in self.links:
            yield from self._bridge(sender)
        yield from super().on_gossip(sender, gossip)
        if self._homes.merge(gossip.homes, self.rounds.number):
            yield from self._split_links()

    def _bridge(self, peer: PeerId) -> Effects:
        """Link a peer of another component, if the gap has existed for long."""
        first, last = self._gap
        now = self.rounds.number
        self._gap = (first if now - last < GAP else now, now)
        if self.handshake.component.leader == self.me and now - self._gap[0] >= GAP:
            self._gap = (now, now)
            yield from self.handshake.offer(peer, UNKNOWN)

    def replace_link(self, peer: PeerId) -> Effects:
        self._homes.forget(peer)
        yield from super().replace_link(peer)
