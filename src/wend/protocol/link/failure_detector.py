"""The failure detector: it finds links that are down, and links that are up again.

It runs if a plug-in asks for it. It declares a link down when the neighbour was silent for longer than it announced,
did not answer too many packets, or says that it does not hear this peer. Then routing learns of the outage, and gets
back the data in flight over the link to send it elsewhere. The next packet from the neighbour ends the outage, unless
the neighbour still does not hear this peer.

No timer runs just to look for silence. The detector looks when a hello is due and, if data is in flight, at the
moment at which the link would have been silent for too long.
"""

from collections.abc import Callable

from wend.model.events import PeerId
from wend.model.units import FOREVER, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.link.hellos import Batch, HelloSchedule
from wend.protocol.link.link import Link
from wend.protocol.link.news import NewsTable
from wend.protocol.link.outages import OutageStatistics
from wend.protocol.link.retransmission import Retransmission
from wend.protocol.notices import LINK_DOWN, LINK_UP
from wend.protocol.plugins import Failed, LinkChanged
from wend.protocol.ports import Notice, Send
from wend.protocol.timers import Effects, Timers


class FailureDetector:
    __slots__ = ("_due_ns", "_hellos", "_links", "_retransmission", "_tell", "_timers", "news", "outages")

    def __init__(
        self,
        config: PeerConfig,
        links: dict[PeerId, Link],
        timers: Timers,
        retransmission: Retransmission,
        tell: Callable[[Nanos, LinkChanged | Failed, Effects], None],
        news: NewsTable | None = None,
    ) -> None:
        self.outages = OutageStatistics(links)
        self.news = news
        """Where a plug-in needs it."""
        self._hellos = HelloSchedule(config, links, news)
        self._links = links
        self._timers = timers
        self._retransmission = retransmission
        self._tell = tell
        self._due_ns: Nanos = FOREVER
        retransmission.explains_loss = self.explains_loss
        retransmission.heard_again = self.links_changed
        retransmission.delayed = self.delayed

    def begin(self, now: Nanos) -> None:
        self.outages.begin(now)
        self._hellos.begin(now)
        self.hello_at(now)

    # ---------------------------------------------------------------- packets

    def used(self, now: Nanos) -> None:
        """An event came."""
        if self._hellos.used(now):
            self.hello_at(now)

    def expect(self, now: Nanos, peer: PeerId) -> None:
        """Data left. If the link will have been silent for too long before the ACK is due, look at that moment."""
        self.used(now)
        link = self._links[peer]
        limit = link.heard_ns + link.silence_ns
        if limit < now + link.timeout_ns:
            self._timers.at(max(now, limit), self._check, peer)

    def paused(self, now: Nanos, ns: Nanos) -> None:
        """This peer did not run for this time."""
        if self._hellos.paused(now, ns):
            self.hello_at(now)

    def delayed(self, now: Nanos, link: Link) -> None:
        """Packets over a link wait longer than its hellos allow for."""
        if self._hellos.delayed(link):
            self.hello_at(now)

    def heard_again(self, now: Nanos, link: Link, effects: Effects) -> None:
        """A packet came over a link that is suspected or down."""
        if link.restored():
            effects.append(Notice(LINK_UP, link.peer))
            self.outages.up(now, link.peer)
            self.links_changed(now)
            self._tell(now, LinkChanged(link.peer, True), effects)
        if link.hellos.retract_silence():  # at once, because a busy link needs no hellos
            link.note_sent(now)
            hello = self._hellos.hello(now, True)
            link.hellos.tell(hello.news)
            effects.append(Send(link.peer, hello))

    def unanswered(self, now: Nanos, link: Link, effects: Effects) -> None:
        """Retransmission gave up a packet."""
        if proves_outage(now, link):
            self._down(now, link, effects)

    def explains_loss(self, now: Nanos, link: Link, missing: int) -> bool:
        """Whether loss, of packets or of their ACKs, explains so many missing ACKs better than an outage."""
        lost = (2.0 * (1.0 - link.reliability)) ** missing
        if not link.seems_up(now):
            return False
        return lost > self.outages.of(now, link.peer).down_after(now - link.heard_ns + link.delay_ns)

    def linked(self, now: Nanos, peer: PeerId) -> None:
        self.outages.made(now, peer)
        self.hello_at(now)

    def unlinked(self, now: Nanos, peer: PeerId) -> None:
        self.outages.ended(now, peer)
        if self.news is not None:
            self.news.forget(now, peer)
            self.news.links_changed(now)

    def links_changed(self, now: Nanos) -> None:
        """A link went down or up, in one direction or both: neighbours will hear of it."""
        if self.news is not None:
            self.news.links_changed(now)

    # ---------------------------------------------------------------- timers

    def hello_at(self, time: Nanos) -> None:
        """Send the next hellos at this time."""
        self._due_ns = time
        self._timers.at(time, self._hello, time)

    def _hello(self, now: Nanos, due: Nanos, effects: Effects) -> None:
        if due != self._due_ns:
            return  # another timer has replaced this one
        silent: list[Link] = []
        batches: list[Batch] = []
        self._due_ns = again = self._hellos.due(now, silent, batches)
        self._timers.at(again, self._hello, again)
        if self.news is None:
            self._hellos.send(now, batches, effects)
        for link in silent:
            self._down(now, link, effects)
        if self.news is not None:  # so that these hellos tell of the links that are down
            self._hellos.send(now, batches, effects)

    def _check(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        link = self._links.get(peer)
        if link is not None and now - link.heard_ns >= link.silence_ns:
            self._down(now, link, effects)

    def _down(self, now: Nanos, link: Link, effects: Effects) -> None:
        if not link.declared_down():
            return
        in_flight = self._retransmission.withdraw(link.peer)
        effects.append(Notice(LINK_DOWN, link.peer))
        self.outages.down(now, link.peer)
        self.links_changed(now)
        for forward in in_flight:
            self._tell(now, Failed(forward), effects)
        self._tell(now, LinkChanged(link.peer, False), effects)


def proves_outage(now: Nanos, link: Link) -> bool:
    """Whether packets that went unanswered, the last of them just now, are better explained by an outage than by loss.

    Not if the neighbour was heard since it should have got the last packet. Then the ACK is lost, or late because a
    host is busy, and to give the link up would only make more work for everyone.
    """
    arrived = now - link.timeout_ns + link.delay_ns
    return link.unanswered.fails >= link.detection.multiplier and link.heard_ns <= arrived
