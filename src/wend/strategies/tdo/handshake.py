"""The link handshake: links that both ends know of, made and ended by messages that may be lost or late.

A peer that links another sends a `LinkOffer`; the other links it too, or declines. Each end numbers its links.
`Unlinked` names the numbers that it voids, so a receiver drops an offer that arrives after its withdrawal. Each end
sends a `KeepAlive` over every link once per period. An end that has no such link answers with `Unlinked`. An end that
stays silent counts as down. So both ends finally agree, whatever is lost.

Keep-alives also show whether the overlay is connected. The lowest peer of a component leads it. It increments a beacon,
which peers pass on hop by hop. If the beacon stops rising, its leader is down or cut off. Peers also meet through
sampling, across components: if two peers are sure of different leaders, there is a gap.
"""

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.protocol.plugins import EndLink, MakeLink, PeerConfig, PluginEffect, Reroute, SendTo
from wend.strategies.tdo.messages import INCARNATION_SHIFT, KeepAlive, LinkOffer, Unlinked
from wend.strategies.tdo.rounds import Rounds

SILENT = 4
"""Periods without a message after which a peer suspects that the other end is down."""
STALE = 6
"""Periods without a new beacon after which a peer gives its leader up."""
SURE = 6
"""Periods with the same leader after which a peer is sure of it."""


class ComponentLeader:
    """The leader of this peer's component, and its beacon."""

    def __init__(self, me: PeerId, incarnation: int) -> None:
        self._me = me
        self._own = incarnation << INCARNATION_SHIFT
        self._heard: dict[PeerId, int] = {}
        self.leader = me
        self.beat = self._own
        self._since_round = 0
        self._rose_round = 0
        self._round = 0

    @property
    def is_sure(self) -> bool:
        return self._round - self._since_round >= SURE

    def tick(self) -> None:
        self._round += 1
        if self.leader != self._me and self._round - self._rose_round > STALE:
            self._follow(self._me, self._own)
        if self.leader == self._me:
            self._own += 1
            self.beat = self._own

    def on_beacon(self, leader: PeerId, beat: int) -> None:
        """Handle a neighbour's beacon."""
        if leader == self._me or beat <= self._heard.get(leader, -1):
            return
        self._heard[leader] = beat
        if leader < self.leader:
            self._follow(leader, beat)
        elif leader == self.leader:
            self.beat, self._rose_round = beat, self._round

    def is_apart(self, leader: PeerId) -> bool:
        """Whether a peer that is sure of this leader is in another component."""
        return leader >= 0 and self.is_sure and leader != self.leader

    def _follow(self, leader: PeerId, beat: int) -> None:
        self.leader, self.beat = leader, beat
        self._since_round = self._rose_round = self._round


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


class LinkHandshake:
    """The links of one peer. Keep-alives carry the beacon of the component's leader."""

    def __init__(self, config: PeerConfig, rounds: Rounds) -> None:
        self.links: dict[PeerId, LinkRecord] = {}
        self.component = ComponentLeader(config.peer, config.incarnation)
        self._rounds = rounds
        self._void: dict[PeerId, int] = {}
        """By peer: the highest number of a link of its that has ended."""
        self._number = rounds.first_beat

    def is_void(self, peer: PeerId, number: int) -> bool:
        """Whether the link to which a peer gave this number has ended."""
        return number <= self._void.get(peer, 0)

    def is_silent(self, peer: PeerId) -> bool:
        return self._rounds.number - self.links[peer].heard > SILENT

    # ---------------------------------------------------------------- making and ending

    def offer(self, peer: PeerId, path: Path, others: tuple[tuple[PeerId, Path], ...] = ()) -> list[PluginEffect]:
        link = self._add_link(peer, path)
        return [MakeLink(peer, path), SendTo(peer, LinkOffer(link.mine, path, others))]

    def offer_again(self, peer: PeerId) -> SendTo:
        """Offer a link again that the other end has forgotten."""
        link = self.links[peer]
        return SendTo(peer, LinkOffer(link.mine, link.path))

    def accept(self, peer: PeerId, path: Path, theirs: int) -> list[PluginEffect]:
        self._add_link(peer, path, theirs)
        return [MakeLink(peer, path), self.keep_alive(peer)]

    def decline(self, peer: PeerId, theirs: int) -> SendTo:
        self._void_numbers(peer, theirs)
        return SendTo(peer, Unlinked(0, theirs))

    def reroute(self, peer: PeerId, path: Path) -> list[PluginEffect]:
        self.links[peer].path = path
        return [Reroute(peer, path)]

    def unlink(self, peer: PeerId, heir: PeerId | None = None) -> list[PluginEffect]:
        link = self.links.pop(peer)
        self._void_numbers(peer, link.theirs)
        return [SendTo(peer, Unlinked(link.mine, link.theirs, heir)), EndLink(peer)]

    def keep_alive(self, peer: PeerId) -> SendTo:
        return SendTo(peer, KeepAlive(self.links[peer].mine, self.component.leader, self.component.beat))

    def _add_link(self, peer: PeerId, path: Path, theirs: int = 0) -> LinkRecord:
        self._number += 1
        link = self.links[peer] = LinkRecord(self._number, path, theirs, self._rounds.number)
        return link

    def _void_numbers(self, peer: PeerId, theirs: int) -> None:
        self._void[peer] = max(theirs, self._void.get(peer, 0))

    # ---------------------------------------------------------------- messages of the other end

    def confirm(self, peer: PeerId, theirs: int) -> None:
        """Record that the other end has the link, under this number."""
        self.links[peer].theirs, self.links[peer].heard = theirs, self._rounds.number

    def on_keep_alive(self, sender: PeerId, message: KeepAlive) -> bool:
        """Handle a keep-alive. Return False if this end has no such link."""
        if sender not in self.links or self.is_void(sender, message.number):
            return False
        self.confirm(sender, message.number)
        self.component.on_beacon(message.leader, message.beat)
        return True

    def on_unlinked(self, sender: PeerId, message: Unlinked) -> list[PluginEffect]:
        self._void_numbers(sender, message.mine)
        link = self.links.get(sender)
        if link is None or not (link.mine <= message.yours or 0 < link.theirs <= message.mine):
            return []
        del self.links[sender]
        return [EndLink(sender)]
