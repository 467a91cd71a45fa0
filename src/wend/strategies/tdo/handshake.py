"""The link handshake: links that both ends know of, made and ended by messages that may be lost or late.

A peer that links another sends a `LinkOffer`; the other links it too, or declines. Each end numbers its links.
`Unlinked` names the numbers that it voids, so a receiver drops an offer that arrives after its withdrawal. Each end
sends a `KeepAlive` over every link once per period. An end that has no such link answers with `Unlinked`. An end that
stays silent counts as down. So both ends finally agree, whatever is lost. `ComponentLeader` tells whether the
overlay is connected. This base class is for memberships that are not trees.
"""

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.plugins import EndLink, MakeLink, PeerConfig
from wend.strategies.tdo.components import ComponentLeader
from wend.strategies.tdo.member import Member
from wend.strategies.tdo.messages import (
    Gossip,
    Join,
    KeepAlive,
    LinkOffer,
    MembershipMessage,
    MultiJoin,
    ProbePong,
    Unlinked,
)
from wend.strategies.tdo.paths import back

SILENT = 4
"""Periods without a message after which a peer suspects that the other end is down."""
LONGEST = 255
"""The most hops of a path: an IP packet travels no further."""


class LinkRecord:
    """One link as this end knows it."""

    __slots__ = ("heard", "mine", "path", "theirs")

    def __init__(self, mine: int, path: Path, theirs: int, heard: int) -> None:
        self.mine = mine
        self.path = path
        """The underlay path from here."""
        self.theirs = theirs
        """The number at the other end; 0 before its first message."""
        self.heard = heard


class LinkHandshake(Member):
    """Makes and ends links by messages. A subclass decides in `_joins` and `_offered` which peers to link."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self.linked: dict[PeerId, LinkRecord] = {}
        self._component = ComponentLeader(config.peer, config.incarnation)
        self._void: dict[PeerId, int] = {}
        self._number = self._first_number

    # ---------------------------------------------------------------- making and ending

    def _link(self, peer: PeerId, path: Path, theirs: int = 0) -> int:
        self._number += 1
        self.linked[peer] = LinkRecord(self._number, path, theirs, self.round)
        self._out.append(MakeLink(peer, path))
        return self._number

    def _offer(self, peer: PeerId, path: Path, others: tuple[tuple[PeerId, Path], ...] = ()) -> None:
        self._say(peer, LinkOffer(self._link(peer, path), path, others))

    def _accept(self, peer: PeerId, path: Path, theirs: int) -> None:
        self._alive(peer, self._link(peer, path, theirs))

    def _decline(self, peer: PeerId, theirs: int) -> None:
        self._void[peer] = max(theirs, self._void.get(peer, 0))
        self._say(peer, Unlinked(0, theirs))

    def _unlink(self, peer: PeerId, heir: PeerId | None = None) -> None:
        link = self.linked[peer]
        self._void[peer] = max(link.theirs, self._void.get(peer, 0))
        self._say(peer, Unlinked(link.mine, link.theirs, heir))
        self._end(peer)

    def _end(self, peer: PeerId) -> None:
        del self.linked[peer]
        self._out.append(EndLink(peer))

    def _alive(self, peer: PeerId, mine: int) -> None:
        self._say(peer, KeepAlive(mine, self._component.leader, self._component.beat))

    # ---------------------------------------------------------------- the rounds

    def _tend(self, now: Nanos) -> None:
        self._component.tick()
        for peer, link in sorted(self.linked.items()):
            if self.round - link.heard > SILENT:
                self._lost(peer)
            else:
                self._alive(peer, link.mine)
        self._seek(now)

    def _lost(self, peer: PeerId) -> None:
        if peer in self.linked:
            self._sampling.forget(peer)
            self._unlink(peer)  # if it is up after all, it learns of the end of the link
            self._replace(peer)

    def _leave(self) -> None:
        """End all links. The neighbour with the shortest path inherits the others."""
        if self.linked:
            heir = min(self.linked, key=lambda peer: (len(self.linked[peer].path), peer))
            for peer in sorted(self.linked):
                self._unlink(peer, None if peer == heir else heir)

    def _gossip(self) -> Gossip:
        return Gossip(leader=self._component.leader if self._component.sure else -1)

    def _learn(self, sender: PeerId, gossip: Gossip) -> None:
        if self._component.apart(gossip.leader) and sender not in self.linked:
            self._join(sender)

    # ---------------------------------------------------------------- messages

    def _hear(self, now: Nanos, sender: PeerId, message: MembershipMessage) -> None:
        match message:
            case KeepAlive():
                self._heard_alive(sender, message)
            case Unlinked():
                self._heard_unlinked(sender, message)
            case LinkOffer(number, path, others):
                if not (path and len(path) <= LONGEST):
                    self._refuse(sender, message)
                elif number > self._void.get(sender, 0):  # else its sender has withdrawn it
                    self._many(others)
                    if sender in self.linked:
                        self.linked[sender].theirs = number
                        self.linked[sender].heard = self.round
                        self._alive(sender, self.linked[sender].mine)
                    else:
                        self._offered(sender, number, back(path))
            case Join(peer, path):
                if path is not None and not 0 < len(path) <= LONGEST:
                    self._refuse(sender, message)
                else:
                    self._join_request(sender, peer, path)
            case MultiJoin(peers):
                self._many(peers)
            case ProbePong():
                self._pong(now, sender, message)
            case _:
                self._refuse(sender, message)

    def _many(self, peers: tuple[tuple[PeerId, Path], ...]) -> None:
        for peer, path in peers:
            if 0 < len(path) <= LONGEST:
                self._join_request(self.me, peer, path)

    def _join_request(self, sender: PeerId, peer: PeerId, path: Path | None) -> None:
        link = self.linked.get(peer)
        if link is not None and sender == peer:  # it has forgotten the link
            self._say(peer, LinkOffer(link.mine, link.path))
        elif link is None and peer != self.me:
            self._joins(peer, path)

    def _heard_alive(self, sender: PeerId, message: KeepAlive) -> None:
        link = self.linked.get(sender)
        if link is not None and message.number > self._void.get(sender, 0):
            link.theirs, link.heard = message.number, self.round
            self._component.hear(message.leader, message.beat)
        elif not self._considering(sender):
            self._say(sender, Unlinked(0, message.number))

    def _heard_unlinked(self, sender: PeerId, message: Unlinked) -> None:
        self._void[sender] = max(message.mine, self._void.get(sender, 0))
        link = self.linked.get(sender)
        if link is not None and (link.mine <= message.yours or 0 < link.theirs <= message.mine):
            self._end(sender)
        if message.heir is not None:
            self._sampling.forget(sender)
            if message.heir not in self.linked:
                self._join(message.heir)

    # ---------------------------------------------------------------- for subclasses

    def _join(self, peer: PeerId) -> None:
        """Ask a peer for a link, to it or nearby."""
        self._say(peer, Join(self.me))

    def _joins(self, peer: PeerId, path: Path | None) -> None:
        """Handle a join request for a peer that is not a neighbour."""
        raise NotImplementedError

    def _offered(self, peer: PeerId, number: int, path: Path) -> None:
        """Handle an offer of a peer, with the path that it measured or inferred, reversed."""
        raise NotImplementedError

    def _considering(self, peer: PeerId) -> bool:
        """Whether an offer of this peer waits for a decision."""
        return False

    def _seek(self, now: Nanos) -> None:
        """Look for more links, once per period."""
        raise NotImplementedError

    def _replace(self, peer: PeerId) -> None:
        """Replace a neighbour that went down."""
        for other in self._sampling.sample(1, frozenset(self.linked)):
            self._join(other)

    def _pong(self, now: Nanos, sender: PeerId, message: ProbePong) -> None:
        pass
