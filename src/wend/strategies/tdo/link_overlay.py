"""Overlays of links between two peers, each made by the link handshake: the base of all that are not trees.

`ComponentLeader` tells whether the overlay is connected. A peer that meets one of another component joins it.

Paths change while peers run. So a peer traces the paths of its links again from time to time, and those to the peers
that it joined (`paths.py`). If a path changed, it places the link, or joins the peer again.

`random` is the simplest of these overlays: no topology discovery, and random links. If a peer has all its links and
another asks for one, it splits a link: the new peer links to both ends, and the ends keep their degree. It is the
baseline of quist ("No TDO", degree 15).
"""

from collections.abc import Collection

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
from wend.strategies.tdo.paths import PathTracer, has_valid_length
from wend.strategies.tdo.rounds import WARM, MembershipSettings, Rounds

SPARE = 2
"""A peer accepts offers up to this many links beyond its degree."""


class LinkOverlay:
    """Answers the messages about links. A subclass decides in `place`, `consider` and `seek` which peers to link."""

    def __init__(self, config: PeerConfig, rounds: Rounds, *, one_end_traces: bool = False) -> None:
        """`one_end_traces`: whether one end traces the path of a link and tells the other."""
        self.me = config.peer
        self.rounds = rounds
        self._one_end_traces = one_end_traces
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

    def join_along(self, peer: PeerId, path: Path) -> Effects:
        """Join a peer again, because the path to it has changed."""
        yield from self.join(peer)

    def replace_link(self, peer: PeerId) -> Effects:
        """Replace a neighbour that went down."""
        for other in self.rounds.sampling.sample(1, frozenset(self.links)):
            yield from self.join(other)

    def handle_first_path(self, peer: PeerId, path: Path) -> Effects:
        """Handle the result of a trace to a peer that this one is to link."""
        yield from ()

    def place_link(self, peer: PeerId) -> Effects:
        """Handle a link whose path has changed."""
        yield from ()

    def handle_probe_answer(self, now: Nanos, sender: PeerId) -> None:
        """Handle the answer to a probe."""

    # ---------------------------------------------------------------- traces

    def handle_path(self, peer: PeerId, path: Path | None) -> Effects:
        """Handle the result of a trace."""
        is_repeated = self.tracer.finish_repeated(peer) is not None
        before = self.tracer.paths.get(peer)
        is_complete = path is not None and None not in path
        if path is not None and is_complete:
            self.tracer.paths[peer] = path
        if not is_repeated:
            yield from self.handle_first_path(peer, path or UNKNOWN)
        elif path is None or not is_complete:
            return  # the path is broken or has an anonymous router: keep the known one
        elif peer in self.links:
            yield from self._reroute(peer, path)
            if self._one_end_traces and peer in self.links:
                yield self.handshake.offer_again(peer)
        elif before is not None and path != before:
            yield from self.join_along(peer, path)

    def retrace(self, joined: Collection[PeerId], bridges: Collection[PeerId] = ()) -> Effects:
        """Trace some paths again: those of links except bridges, and those between this peer and the ones that it
        joined."""
        peers = sorted({*self.links, *joined} - {*bridges})
        for peer in peers:
            if not self.tracer.is_time_to_repeat(len(peers)):
                continue
            if peer not in self.links:
                yield from self.tracer.repeat(peer, UNKNOWN)
            elif not self._one_end_traces or self.me < peer:
                yield from self.tracer.repeat(peer, self.links[peer].path)

    def _reroute(self, peer: PeerId, path: Path) -> Effects:
        if None not in path and path != self.links[peer].path:
            yield from self.handshake.reroute(peer, path)
            yield from self.place_link(peer)

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

    def on_gossip(self, sender: PeerId, gossip: Gossip) -> Effects:
        if self.handshake.component.is_apart(gossip.leader) and sender not in self.links:
            yield from self.join(sender)

    # ---------------------------------------------------------------- messages

    def on_message(self, now: Nanos, sender: PeerId, message: MembershipMessage) -> Effects:
        match message:
            case KeepAlive(number):
                if not self.handshake.on_keep_alive(sender, message) and not self.tracer.is_pending(sender):
                    yield SendTo(sender, Unlinked(0, number))
            case Unlinked():
                yield from self._on_unlinked(sender, message)
            case LinkOffer(path=path) if has_valid_length(path):
                yield from self._on_offer(sender, message)
            case Join(peer, path) if path is None or has_valid_length(path):
                yield from self._on_join(sender, peer, path)
            case MultiJoin(peers):
                yield from self._on_multi_join(peers)
            case ProbePong():
                self.handle_probe_answer(now, sender)
            case _:
                yield refuse(sender, message)

    def _on_unlinked(self, sender: PeerId, message: Unlinked) -> Effects:
        yield from self.handshake.on_unlinked(sender, message)
        if message.heir is not None:
            self.rounds.sampling.forget(sender)
            if message.heir not in self.links:
                yield from self.join(message.heir)
        self.tracer.withdraw(sender, message.mine)

    def _on_offer(self, sender: PeerId, offer: LinkOffer) -> Effects:
        if self.handshake.is_void(sender, offer.number):  # its sender has withdrawn it
            return
        yield from self._on_multi_join(offer.others)
        if sender in self.links:
            self.handshake.confirm(sender, offer.number)
            yield self.handshake.keep_alive(sender)
            if self._one_end_traces:
                yield from self._reroute(sender, offer.path[::-1])
        else:
            yield from self.handle_offer(sender, offer.number, offer.path[::-1])

    def _on_join(self, sender: PeerId, peer: PeerId, path: Path | None) -> Effects:
        if peer in self.links:
            if sender == peer:  # it has forgotten the link
                yield self.handshake.offer_again(peer)
        elif peer != self.me:
            yield from self.handle_join(peer, path)

    def _on_multi_join(self, peers: tuple[tuple[PeerId, Path], ...]) -> Effects:
        for peer, path in peers:
            if has_valid_length(path):
                yield from self._on_join(self.me, peer, path)


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
