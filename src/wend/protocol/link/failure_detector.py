"""The failure detector: it finds links that are down, and links that are up again.

It runs if a plug-in asks for it. It declares a link down when the neighbour was silent for longer than it announced,
left too many packets unanswered, or reports that it does not hear this peer. Routing is then notified of the outage,
and gets back the data in flight over the link to send it elsewhere. The next packet from the neighbour ends the outage,
unless the neighbour still does not hear this peer.

No timer runs only to look for silence. The detector checks when a hello is due and, if data is in flight, when the link
will have been silent for too long.
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
        """None unless a plug-in needs it."""
        self._hellos = HelloSchedule(config, links, news)
        self._links = links
        self._timers = timers
        self._retransmission = retransmission
        self._tell = tell
        self._due_ns: Nanos = FOREVER
        retransmission.is_explained_by_loss = self.is_explained_by_loss
        retransmission.on_heard_again = self.on_links_changed
        retransmission.on_delay = self.on_delay

    def begin(self, now: Nanos) -> None:
        self.outages.begin(now)
        self._hellos.begin(now)
        self.schedule_hellos(now)

    # ---------------------------------------------------------------- packets

    def on_event(self, now: Nanos) -> None:
        """Send more hellos, because the peer carries events."""
        if self._hellos.on_event(now):
            self.schedule_hellos(now)

    def schedule_check(self, now: Nanos, peer: PeerId) -> None:
        """Schedule a check, since data was sent, if the neighbour will be silent for too long before the ACK is due."""
        self.on_event(now)
        link = self._links[peer]
        limit = link.heard_ns + link.silence_ns
        if limit < now + link.timeout_ns:
            self._timers.set_timer(max(now, limit), self._check, peer)

    def on_pause(self, now: Nanos, ns: Nanos) -> None:
        """Allow for a pause of this peer: announce longer silences if necessary."""
        if self._hellos.on_pause(now, ns):
            self.schedule_hellos(now)

    def on_delay(self, now: Nanos, link: Link) -> None:
        """Announce longer silences over a link whose packets wait longer than its hellos allow for."""
        if self._hellos.on_delay(link):
            self.schedule_hellos(now)

    def on_heard_again(self, now: Nanos, link: Link, effects: Effects) -> None:
        """End an outage, since a packet arrived over a link that is suspected or down."""
        if link.restore():
            effects.append(Notice(LINK_UP, link.peer))
            self.outages.on_up(now, link.peer)
            self.on_links_changed(now)
            self._tell(now, LinkChanged(link.peer, True), effects)
        if link.hellos.retract_silence():  # at once, because a busy link needs no hellos
            link.record_sent(now)
            hello = self._hellos.make_hello(now, True)
            link.hellos.record_news(hello.news)
            effects.append(Send(link.peer, hello))

    def on_give_up(self, now: Nanos, link: Link, effects: Effects) -> None:
        """Declare the link down if a packet that was given up proves an outage."""
        if proves_outage(now, link):
            self._declare_down(now, link, effects)

    def is_explained_by_loss(self, now: Nanos, link: Link, missing: int) -> bool:
        """Whether loss of packets or ACKs explains this many missing ACKs better than an outage does."""
        lost = (2.0 * (1.0 - link.reliability)) ** missing
        if not link.is_working(now):
            return False
        return lost > self.outages.estimate(now, link.peer).down_after(now - link.heard_ns + link.delay_ns)

    def on_link_made(self, now: Nanos, peer: PeerId) -> None:
        self.outages.add_link(now, peer)
        self.schedule_hellos(now)

    def on_link_ended(self, now: Nanos, peer: PeerId) -> None:
        self.outages.remove_link(now, peer)
        if self.news is not None:
            self.news.forget(now, peer)
            self.news.on_links_changed(now)

    def on_links_changed(self, now: Nanos) -> None:
        """Update the news for neighbours, since a link went down or up in one direction or both."""
        if self.news is not None:
            self.news.on_links_changed(now)

    # ---------------------------------------------------------------- timers

    def schedule_hellos(self, time: Nanos) -> None:
        """Send the next hellos at this time."""
        self._due_ns = time
        self._timers.set_timer(time, self._send_hellos, time)

    def _send_hellos(self, now: Nanos, due: Nanos, effects: Effects) -> None:
        if due != self._due_ns:
            return  # another timer replaced this one
        silent: list[Link] = []
        batches: list[Batch] = []
        self._due_ns = again = self._hellos.collect_due(now, silent, batches)
        self._timers.set_timer(again, self._send_hellos, again)
        if self.news is None:
            self._hellos.send(now, batches, effects)
        for link in silent:
            self._declare_down(now, link, effects)
        if self.news is not None:  # so that these hellos report the links that are down
            self._hellos.send(now, batches, effects)

    def _check(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        link = self._links.get(peer)
        if link is not None and now - link.heard_ns >= link.silence_ns:
            self._declare_down(now, link, effects)

    def _declare_down(self, now: Nanos, link: Link, effects: Effects) -> None:
        if not link.declare_down():
            return
        in_flight = self._retransmission.withdraw(link.peer)
        effects.append(Notice(LINK_DOWN, link.peer))
        self.outages.on_down(now, link.peer)
        self.on_links_changed(now)
        for forward in in_flight:
            self._tell(now, Failed(forward), effects)
        self._tell(now, LinkChanged(link.peer, False), effects)


def proves_outage(now: Nanos, link: Link) -> bool:
    """Whether packets that went unanswered, the last of them just now, are better explained by an outage than by loss.

    They are not if the neighbour was heard after it should have received the last packet. Then the ACK is lost, or late
    because a host is busy. Giving up the link would only cost all peers more work.
    """
    arrived = now - link.timeout_ns + link.delay_ns
    return link.unanswered.fails >= link.detection.multiplier and link.heard_ns <= arrived
