"""The link layer: the links of a peer, and the messages that concern only links.

It turns control, fragments and direct messages into events and plug-in messages for the layers above. It notifies them
of links that are made, end, fail or return (`LinkUser`). The peer itself handles data and ACKs, because these are most
of the traffic.
"""

from typing import Any, Protocol

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.link.control_fragments import ControlFragments
from wend.protocol.link.direct import DirectMessages
from wend.protocol.link.event_fragments import EventReassembly
from wend.protocol.link.failure_detector import FailureDetector
from wend.protocol.link.in_flight import OutgoingControl
from wend.protocol.link.link import Link
from wend.protocol.link.manager import LinkManager
from wend.protocol.link.monitor import LinkMonitor
from wend.protocol.link.news import NewsTable
from wend.protocol.link.prices import LinkPrices
from wend.protocol.link.retransmission import Retransmission
from wend.protocol.messages import (
    TX_SHIFT,
    Ack,
    Control,
    ControlFragment,
    Data,
    DirectAck,
    DirectMessage,
    Fragment,
    Hello,
    Message,
    PlainMessage,
)
from wend.protocol.plugins import Failed, Forward, LinkChanged
from wend.protocol.ports import Neighbour, Notice, Refuse, Send
from wend.protocol.status import LinkStatus
from wend.protocol.timers import Effects, Timers


class LinkUser(Protocol):
    """The notifications from the link layer to the peer."""

    def on_data(self, now: Nanos, link: Link, data: Data, effects: Effects, reassembled: bool = False) -> None:
        """Handle an event that was reassembled from fragments."""

    def on_message(self, now: Nanos, sender: PeerId, plugin: str, body: Any, effects: Effects) -> None:
        """Handle a message for a plug-in."""

    def on_undelivered(self, now: Nanos, peer: PeerId, plugin: str, body: Any, effects: Effects) -> None:
        """Handle a direct message that was never acknowledged."""

    def on_failed(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        """Handle a packet of which no transmission was acknowledged, or whose link has ended."""

    def on_congested(self, now: Nanos, forward: Forward, effects: Effects, full: bool) -> None:
        """Handle a packet that was not sent: it would be too late behind others, or the send queue is `full`."""

    def on_loaded(self, loaded: bool) -> None:
        """Record whether packets recently had to wait for links."""

    def on_link_changed(self, now: Nanos, change: LinkChanged, effects: Effects) -> None:
        """Handle a link that is down, up again or gone, or whose neighbour needs the full state."""

    def on_links_changed(self, now: Nanos, effects: Effects) -> None:
        """Handle a change in the set of links, or in their estimates or paths."""

    def on_link_returned(self, now: Nanos, neighbour: PeerId) -> None:
        """Retry waiting events, since a neighbour is heard again or new."""

    def message_type(self, plugin: str) -> Any:
        """The type of a plug-in's messages; None if the peer does not host the plug-in."""


class LinkLayer:
    __slots__ = (
        "_fragments", "_header", "_incarnation", "_links", "_monitor", "_prices", "_reassembly", "_timers", "_user",
        "detector", "direct", "manager", "news", "retransmission",
    )  # fmt: skip

    def __init__(
        self,
        config: PeerConfig,
        links: dict[PeerId, Link],
        timers: Timers,
        user: LinkUser,
        *,
        header: type,
        detects_failures: bool,
        shares_news: bool,
        controls_congestion: bool,
        uses_paths: bool,
    ) -> None:
        """`header`: the type of the header that the routing declares for packets."""
        self._incarnation = config.incarnation
        self._links = links
        self._user = user
        self._timers = timers
        self._prices: LinkPrices | None = None
        """Created when the first packet has to wait for a link."""
        self.retransmission = Retransmission(
            config, links, timers, self._on_failed, user.on_congested, self._on_packet_waiting
        )
        self.detector: FailureDetector | None = None
        """None unless a plug-in needs it."""
        hops = config.of(LinkSettings).news_hops
        self.news: NewsTable | None = None
        """None unless a plug-in needs it."""
        if detects_failures:
            if shares_news and hops:
                self.news = NewsTable(config.peer, config.incarnation, hops, links)
            self.detector = FailureDetector(config, links, timers, self.retransmission, self._on_detected, self.news)
        self.manager = LinkManager(config, links, user.on_links_changed if uses_paths else None, controls_congestion)
        self._monitor = LinkMonitor(
            config, links, timers, self.retransmission, self.manager, self.resync, user.on_links_changed
        )
        self._fragments = ControlFragments()
        self._header = header
        self._reassembly: EventReassembly | None = None
        """Created when the first fragment of an event arrives."""
        self.direct = DirectMessages(config, timers, user.on_undelivered)

    def begin(self, now: Nanos, neighbours: tuple[Neighbour, ...]) -> None:
        self.manager.begin(now, neighbours)
        if self.detector is not None:
            self.detector.begin(now)

    def monitor(self, now: Nanos) -> None:
        self._monitor.begin(now)

    @property
    def is_crowded(self) -> bool:
        """Whether the send queue of a link is so long that publishers should pause."""
        if self._prices is None or not self._prices.runs:
            return False
        return any(link.sender is not None and link.sender.is_crowded for link in self._links.values())

    @property
    def is_reassembling(self) -> bool:
        """Whether an event is incomplete because fragments are missing."""
        return self._reassembly is not None and bool(self._reassembly)

    def status(self) -> tuple[LinkStatus, ...]:
        return tuple(self._link_status(link) for _, link in sorted(self._links.items()))

    def _link_status(self, link: Link) -> LinkStatus:
        heard = link.incarnation > 0  # a neighbour that was heard has announced its incarnation
        answers = self.detector is not None or not link.unanswered.fails
        works = heard and link.is_up and link.heard_by_neighbour and answers
        return LinkStatus(link.peer, link.state.value, works, link.delay_ns, link.reliability)

    # ---------------------------------------------------------------- messages

    def receive(self, now: Nanos, link: Link, message: Message, effects: Effects) -> None:
        """Handle a message of a neighbour other than data, ACKs and hellos."""
        match message:
            case Control():
                self._receive_control(now, link, message, effects)
            case Fragment():
                self._receive_fragment(now, link, message, effects)
            case _:
                self.receive_direct(now, link.peer, message, effects)

    def receive_direct(self, now: Nanos, sender: PeerId, message: Message, effects: Effects) -> None:
        """Handle a message that needs no link."""
        kind = type(message)  # peers without links receive nothing else, and `match` would take twice as long
        if kind is PlainMessage:
            self._user.on_message(now, sender, message.plugin, message.body, effects)  # type: ignore[union-attr]
        elif kind is DirectMessage:
            if self.direct.accept(sender, message, effects):  # type: ignore[arg-type]
                self._user.on_message(now, sender, message.plugin, message.body, effects)  # type: ignore[union-attr]
        elif kind is DirectAck:
            self.direct.on_ack(sender, message)  # type: ignore[arg-type]
        else:
            effects.append(Refuse(sender, "not-neighbour"))

    def _receive_fragment(self, now: Nanos, link: Link, fragment: Fragment, effects: Effects) -> None:
        incarnation = fragment.tx >> TX_SHIFT
        if incarnation != link.incarnation and not self.accept_incarnation(now, link, incarnation, effects):
            return
        if self._reassembly is None:
            self._reassembly = EventReassembly(self._header)
        data = self._reassembly.receive(now, link, fragment, effects)
        if data is not None:
            self._user.on_data(now, link, data, effects, reassembled=True)

    def _receive_control(self, now: Nanos, link: Link, message: Control, effects: Effects) -> None:
        incarnation = message.tx >> TX_SHIFT
        if incarnation != link.incarnation and not self.accept_incarnation(now, link, incarnation, effects):
            return
        body, plugin, sender = message.body, message.plugin, link.peer
        kind = self._user.message_type(plugin) if type(body) is ControlFragment else None
        if kind is not None and not self._fragments.accept(now, sender, plugin, body, effects):
            return
        link.record_sent(now)
        effects.append(Send(sender, Ack(message.tx)))
        # plug-ins version their messages, so a repetition is harmless and needs no window
        if kind is not None:
            body = self._fragments.pop_complete(sender, plugin, body, kind, effects)
        elif type(body) is ControlFragment:
            effects.append(Refuse(sender, "unknown-plugin"))
            return
        if body is not None:  # an empty message only asks for an ACK
            self._user.on_message(now, sender, plugin, body, effects)

    def on_hello(self, now: Nanos, link: Link, hello: Hello, effects: Effects) -> None:
        if hello.incarnation != link.incarnation and not self.accept_incarnation(now, link, hello.incarnation, effects):
            return
        if self.news is not None and not self.news.on_hello(now, link.peer, hello):
            effects.append(Refuse(link.peer, "invalid-news"))
        if link.on_hello(hello):
            if self.detector is not None:
                self.detector.on_links_changed(now)
            # the neighbour stopped hearing this peer, or hears it again
            if not link.is_up and hello.hearing:
                self.on_heard_again(now, link, effects)
                return
            self._user.on_link_changed(now, LinkChanged(link.peer, hello.hearing), effects)

    def accept_incarnation(self, now: Nanos, link: Link, incarnation: int, effects: Effects) -> bool:
        """Adopt and resync a new incarnation. Refuse a message of an earlier one, and return False."""
        if incarnation < link.incarnation:
            effects.append(Refuse(link.peer, "earlier-incarnation"))
            return False
        restarted = link.begin_incarnation(incarnation)
        self._forget_neighbour(link.peer)
        if self.news is not None:
            self.news.forget(now, link.peer)
        if restarted:
            self.resync(now, link.peer, effects, restarted=True)
            self.retransmission.resend_fragmented(now, link.peer, effects)
        return True

    def on_heard_again(self, now: Nanos, link: Link, effects: Effects, message: object = None) -> None:
        """Clear the suspicion of a link whose neighbour is heard again, by this message."""
        if type(message) is Hello and not message.hearing and message.incarnation >= link.incarnation:
            link.on_not_hearing()
        if self.detector is not None:
            self.detector.on_heard_again(now, link, effects)
        if not link.is_up:
            if link.needs_probe(now) and not self.retransmission.control.is_repeated_to(link.peer):
                self.retransmission.control.send(now, OutgoingControl(link.peer, "", None, None), effects)
            return
        if link.clear_suspicion():
            self.resync(now, link.peer, effects)
        self._user.on_link_returned(now, link.peer)

    def send_control(self, now: Nanos, control: OutgoingControl, effects: Effects) -> None:
        """Send a control message to a neighbour, in fragments if it is long."""
        if control.peer in self._links:
            for part in self._fragments.split(control, effects):
                self.retransmission.control.send(now, part, effects)

    def on_pause(self, now: Nanos, ns: Nanos) -> None:
        """Allow for a pause of this peer: silence in that time is no sign of an outage."""
        for link in self._links.values():
            link.on_pause(now, ns)
        self.retransmission.on_pause(now, ns)
        if self.detector is not None:
            self.detector.on_pause(now, ns)

    def resync(self, now: Nanos, peer: PeerId, effects: Effects, restarted: bool = False) -> None:
        """Make plug-ins send their full state to a neighbour, which may lack it."""
        self._user.on_link_changed(now, LinkChanged(peer, True, fresh=True, restarted=restarted), effects)

    def leave(self, now: Nanos, effects: Effects) -> None:
        """Ask all neighbours to stop using the links to this peer."""
        for link in self._links.values():
            if link.incarnation > 0:  # the neighbour was heard
                effects.append(Send(link.peer, Hello(self._incarnation, hearing=False)))

    # ---------------------------------------------------------------- changes of links

    def add_link(self, now: Nanos, neighbour: Neighbour, effects: Effects) -> None:
        """Add a link at the request of the driver, which gives its delay and reliability."""
        self.manager.store_estimates(neighbour)
        self.make_link(now, neighbour.peer, (), effects)
        self._user.on_link_returned(now, neighbour.peer)

    def make_link(self, now: Nanos, peer: PeerId, path: Path, effects: Effects) -> None:
        self.manager.make_link(now, peer, path)
        effects.append(Notice("linked", peer))
        self._user.on_links_changed(now, effects)
        self.resync(now, peer, effects)
        if self.detector is not None:
            self.detector.on_link_made(now, peer)
        self.manager.request_paths(effects)

    def end_link(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        in_flight = self.retransmission.end_link(peer)
        self._links.pop(peer).end()
        self._forget_neighbour(peer)
        effects.append(Notice("unlinked", peer))
        if self.detector is not None:
            self.detector.on_link_ended(now, peer)
        self._user.on_links_changed(now, effects)
        for forward in in_flight:
            self._user.on_failed(now, forward, effects)
        self._user.on_link_changed(now, LinkChanged(peer, False), effects)

    def _forget_neighbour(self, peer: PeerId) -> None:
        if self._reassembly is not None:
            self._reassembly.forget(peer)
        self._fragments.forget(peer)

    def _on_failed(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        if self.detector is not None:
            self.detector.on_give_up(now, self._links[forward.peer], effects)
        self._user.on_failed(now, forward, effects)

    def _on_packet_waiting(self, now: Nanos) -> None:
        if self._prices is None:
            self._prices = LinkPrices(self._links, self._timers, self._user.on_links_changed, self._user.on_loaded)
        self._prices.on_packet_waiting(now)

    def _on_detected(self, now: Nanos, event: LinkChanged | Failed, effects: Effects) -> None:
        if type(event) is Failed:
            self._user.on_failed(now, event.forward, effects)
        else:
            self._user.on_link_changed(now, event, effects)  # type: ignore[arg-type]
