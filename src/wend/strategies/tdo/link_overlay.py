"""Overlays of links between two peers, each made by the link handshake: the base of all that are not trees.

`ComponentLeader` tells whether the overlay is connected. A peer that meets one of another component joins it.

`random` is the simplest of these overlays: no topology discovery, and random links. If a peer has all its links and
another asks for one, it splits a link: the new peer links to both ends, and the ends keep their degree. It is the
baseline of quist ("No TDO", degree 15).
"""

from wend.model.events import PeerId
from wend.model.paths import UNKNOWN, Path
from wend.model.units import Nanos
from wend.protocol.plugins import PeerConfig, SendTo
from wend.strategies.tdo.handshake import LinkHandshake
from wend.strategies.tdo.messages import (
    Effects,
    Gossip,
    Join,
    KeepAlive,
    LinkOffer,
    MembershipMessage,
    MultiJoin,
    ProbePong,
    Unlinked,
    refuse,
)
from wend.strategies.tdo.paths import PathTracer, is_valid
from wend.strategies.tdo.rounds import WARM, MembershipSettings, Rounds

SPARE = 2
"""A peer accepts offers up to this many links beyond its degree."""


class LinkOverlay:
    """Answers the messages about links. A subclass decides in `place`, `consider` and `seek` which peers to link."""

    def __init__(self, config: PeerConfig, rounds: Rounds) -> None:
        self.me = config.peer
        self.rounds = rounds
        self.handshake = LinkHandshake(config, rounds)
        self.links = self.handshake.links
        self.tracer = PathTracer(config)

    # ---------------------------------------------------------------- for subclasses

    def handle_join(self, peer: PeerId, path: Path | None) -> Effects:
        """Handle a join request for a peer that is not a neighbour."""
        raise NotImplementedError

    def handle_offer(self, peer: PeerId, number: int, path: Path) -> Effects:
        """Handle an offer of a peer, with the path that it measured or inferred, reversed."""
        raise NotImplementedError

    def seek_links(self, now: Nanos) -> Effects:
        """Look for more links, once per period."""
        raise NotImplementedError

    def join(self, peer: PeerId) -> Effects:
        """Ask a peer for a link, to it or nearby."""
        yield SendTo(peer, Join(self.me))

    def replace_link(self, peer: PeerId) -> Effects:
        """Replace a neighbour that went down."""
        for other in self.rounds.sampling.sample(1, frozenset(self.links)):
            yield from self.join(other)

    def handle_path(self, peer: PeerId, path: Path | None) -> Effects:
        """Handle the result of a trace."""
        yield from ()

    def handle_probe_answer(self, now: Nanos, sender: PeerId) -> None:
        """Handle the answer to a probe."""

    # ---------------------------------------------------------------- the rounds

    def run_round(self, now: Nanos) -> Effects:
        """Do the work of one period."""
        self.handshake.component.tick()
        for peer in sorted(self.links):
            if self.handshake.is_silent(peer):
                self.rounds.sampling.forget(peer)
                yield from self.handshake.unlink(peer)  # if it is up after all, it learns that the link has ended
                yield from self.replace_link(peer)
            else:
                yield self.handshake.keep_alive(peer)
        yield from self.seek_links(now)

    def leave(self) -> Effects:
        """End all links. The neighbour with the shortest path inherits the others."""
        heir = min(self.links, key=lambda peer: (len(self.links[peer].path), peer), default=None)
        for peer in sorted(self.links):
            yield from self.handshake.unlink(peer, None if peer == heir else heir)

    def gossip(self) -> Gossip:
        component = self.handshake.component
        return Gossip(leader=component.leader if component.is_sure else -1)

    def hear_gossip(self, sender: PeerId, gossip: Gossip) -> Effects:
        if self.handshake.component.is_apart(gossip.leader) and sender not in self.links:
            yield from self.join(sender)

    # ---------------------------------------------------------------- messages

    def hear(self, now: Nanos, sender: PeerId, message: MembershipMessage) -> Effects:
        match message:
            case KeepAlive(number):
                if not self.handshake.hear_keep_alive(sender, message) and not self.tracer.is_pending(sender):
                    yield SendTo(sender, Unlinked(0, number))
            case Unlinked():
                yield from self._hear_unlinked(sender, message)
            case LinkOffer(path=path) if is_valid(path):
                yield from self._hear_offer(sender, message)
            case Join(peer, path) if path is None or is_valid(path):
                yield from self._hear_join(sender, peer, path)
            case MultiJoin(peers):
                yield from self._hear_joins(peers)
            case ProbePong():
                self.handle_probe_answer(now, sender)
            case _:
                yield refuse(sender, message)

    def _hear_unlinked(self, sender: PeerId, message: Unlinked) -> Effects:
        yield from self.handshake.hear_unlinked(sender, message)
        if message.heir is not None:
            self.rounds.sampling.forget(sender)
            if message.heir not in self.links:
                yield from self.join(message.heir)
        self.tracer.withdraw(sender, message.mine)

    def _hear_offer(self, sender: PeerId, offer: LinkOffer) -> Effects:
        if self.handshake.is_void(sender, offer.number):  # its sender has withdrawn it
            return
        yield from self._hear_joins(offer.others)
        if sender in self.links:
            self.handshake.confirm(sender, offer.number)
            yield self.handshake.keep_alive(sender)
        else:
            yield from self.handle_offer(sender, offer.number, offer.path[::-1])

    def _hear_join(self, sender: PeerId, peer: PeerId, path: Path | None) -> Effects:
        if peer in self.links:
            if sender == peer:  # it has forgotten the link
                yield self.handshake.offer_again(peer)
        elif peer != self.me:
            yield from self.handle_join(peer, path)

    def _hear_joins(self, peers: tuple[tuple[PeerId, Path], ...]) -> Effects:
        for peer, path in peers:
            if is_valid(path):
                yield from self._hear_join(self.me, peer, path)


class RandomOverlay(LinkOverlay):
    """Links peers at random, all with about the same degree."""

    def __init__(self, config: PeerConfig, rounds: Rounds) -> None:
        super().__init__(config, rounds)
        self._degree = config.of(MembershipSettings).membership_degree

    def handle_join(self, peer: PeerId, path: Path | None) -> Effects:
        if len(self.links) >= self._degree:
            other = self.rounds.draw.choice(sorted(self.links))
            yield from self.handshake.unlink(other)
            yield SendTo(other, Join(peer))
        yield from self.handshake.offer(peer, UNKNOWN)

    def handle_offer(self, peer: PeerId, number: int, path: Path) -> Effects:
        if len(self.links) < self._degree + SPARE:
            yield from self.handshake.accept(peer, UNKNOWN, number)
        else:
            yield self.handshake.decline(peer, number)

    def seek_links(self, now: Nanos) -> Effects:
        missing = self._degree - len(self.links)
        if missing >= 2 and self.rounds.number >= WARM:  # a split link brings two at once
            for peer in self.rounds.sampling.sample(missing // 2, frozenset(self.links)):
                yield from self.join(peer)
