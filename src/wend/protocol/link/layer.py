"""The link layer: all that a peer has of links, and the messages that concern links alone.

It turns control, fragments and direct messages into what the layers above understand, and tells them which links came,
went, failed or returned (`LinkUser`). The peer handles data and ACKs itself, since these are most of all messages.
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
    """What the link layer tells the peer."""

    def on_data(self, now: Nanos, link: Link, data: Data, effects: Effects, reassembled: bool = False) -> None:
        """An event arrived, put together from fragments."""

    def on_message(self, now: Nanos, sender: PeerId, plugin: str, body: Any, effects: Effects) -> None:
        """A message for a plug-in arrived."""

    def on_undelivered(self, now: Nanos, peer: PeerId, plugin: str, body: Any, effects: Effects) -> None:
        """Nobody acknowledged a direct message."""

    def on_failed(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        """No transmission of a packet was acknowledged, or its link is gone."""

    def on_congested(self, now: Nanos, forward: Forward, effects: Effects, full: bool) -> None:
        """A packet was not sent: it would be too late behind others, or the send queue of its link is `full`."""

    def on_loaded(self, loaded: bool) -> None:
        """Packets have to wait for links, or none has for a while."""

    def on_link_changed(self, now: Nanos, change: LinkChanged, effects: Effects) -> None:
        """A link is down, up again or gone, or a neighbour may know nothing."""

    def on_links_changed(self, now: Nanos, effects: Effects) -> None:
        """There are other links than before, or their estimates or paths are others."""

    def on_link_returned(self, now: Nanos) -> None:
        """A neighbour was heard after silence or unanswered packets, or there is one more."""

    def message_type(self, plugin: str) -> Any:
        """The type of a plug-in's messages; None if the peer does not host it."""


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
        """Made when the first packet has to wait for a link."""
        self.retransmission = Retransmission(config, links, timers, self._failed, user.on_congested, self._crowded)
        self.detector: FailureDetector | None = None
        """Where a plug-in needs it."""
        hops = config.of(LinkSettings).news_hops
        self.news: NewsTable | None = None
        """Where a plug-in needs it."""
        if detects_failures:
            if shares_news and hops:
                self.news = NewsTable(config.peer, config.incarnation, hops, links)
            self.detector = FailureDetector(config, links, timers, self.retransmission, self._detected, self.news)
        self.manager = LinkManager(config, links, user.on_links_changed if uses_paths else None, controls_congestion)
        self._monitor = LinkMonitor(
            config, links, timers, self.retransmission, self.manager, self.resync, user.on_links_changed
        )
        self._fragments = ControlFragments()
        self._header = header
        self._reassembly: EventReassembly | None = None
        """Made when the first fragment of an event arrives."""
        self.direct = DirectMessages(config, timers, user.on_undelivered)

    def begin(self, now: Nanos, neighbours: tuple[Neighbour, ...]) -> None:
        self.manager.begin(now, neighbours)
        if self.detector is not None:
            self.detector.begin(now)

    def monitor(self, now: Nanos) -> None:
        self._monitor.begin(now)

    @property
    def crowded(self) -> bool:
        """Whether so much waits for a link that publishers should pause."""
        if self._prices is None or not self._prices.runs:
            return False
        return any(link.sender is not None and link.sender.is_crowded for link in self._links.values())

    @property
    def reassembling(self) -> bool:
        """Whether fragments of an event wait for the others."""
        return self._reassembly is not None and bool(self._reassembly)

    def status(self) -> tuple[LinkStatus, ...]:
        return tuple(self._status(link) for _, link in sorted(self._links.items()))

    def _status(self, link: Link) -> LinkStatus:
        heard = link.incarnation > 0  # a neighbour that was heard has said its incarnation
        answers = self.detector is not None or not link.unanswered.fails
        works = heard and link.up and link.heard_by_neighbour and answers
        return LinkStatus(link.peer, link.state.value, works, link.delay_ns, link.reliability)

    # ---------------------------------------------------------------- messages

    def received(self, now: Nanos, link: Link, message: Message, effects: Effects) -> None:
        """A message of a neighbour, other than data, ACKs and hellos."""
        match message:
            case Control():
                self._control(now, link, message, effects)
            case Fragment():
                self._fragment(now, link, message, effects)
            case _:
                self.received_directly(now, link.peer, message, effects)

    def received_directly(self, now: Nanos, sender: PeerId, message: Message, effects: Effects) -> None:
        """A message that needs no link."""
        kind = type(message)  # peers without links hear nothing else, and `match` would take twice as long
        if kind is PlainMessage:
            self._user.on_message(now, sender, message.plugin, message.body, effects)  # type: ignore[union-attr]
        elif kind is DirectMessage:
            if self.direct.accept(sender, message, effects):  # type: ignore[arg-type]
                self._user.on_message(now, sender, message.plugin, message.body, effects)  # type: ignore[union-attr]
        elif kind is DirectAck:
            self.direct.acknowledged(sender, message)  # type: ignore[arg-type]
        else:
            effects.append(Refuse(sender, "not-neighbour"))

    def _fragment(self, now: Nanos, link: Link, fragment: Fragment, effects: Effects) -> None:
        incarnation = fragment.tx >> TX_SHIFT
        if incarnation != link.incarnation and not self.is_current(now, link, incarnation, effects):
            return
        if self._reassembly is None:
            self._reassembly = EventReassembly(self._header)
        data = self._reassembly.receive(now, link, fragment, effects)
        if data is not None:
            self._user.on_data(now, link, data, effects, reassembled=True)

    def _control(self, now: Nanos, link: Link, message: Control, effects: Effects) -> None:
        incarnation = message.tx >> TX_SHIFT
        if incarnation != link.incarnation and not self.is_current(now, link, incarnation, effects):
            return
        body, plugin, sender = message.body, message.plugin, link.peer
        kind = self._user.message_type(plugin) if type(body) is ControlFragment else None
        if kind is not None and not self._fragments.accept(now, sender, plugin, body, effects):
            return
        link.note_sent(now)
        effects.append(Send(sender, Ack(message.tx)))
        # plug-ins version their messages, so a repetition changes nothing: it needs no window
        if kind is not None:
            body = self._fragments.complete(sender, plugin, body, kind, effects)
        elif type(body) is ControlFragment:
            effects.append(Refuse(sender, "unknown-plugin"))
            return
        if body is not None:  # an empty one only asks for an answer
            self._user.on_message(now, sender, plugin, body, effects)

    def hello(self, now: Nanos, link: Link, hello: Hello, effects: Effects) -> None:
        if hello.incarnation != link.incarnation and not self.is_current(now, link, hello.incarnation, effects):
            return
        if self.news is not None and not self.news.heard(now, link.peer, hello):
            effects.append(Refuse(link.peer, "invalid-news"))
        if link.hello(hello):
            if self.detector is not None:
                self.detector.links_changed(now)
            # the neighbour does not hear this peer, or hears it again
            if not link.up and hello.hearing:
                self.heard_again(now, link, effects)
                return
            self._user.on_link_changed(now, LinkChanged(link.peer, hello.hearing), effects)

    def is_current(self, now: Nanos, link: Link, incarnation: int, effects: Effects) -> bool:
        """False for a message of an incarnation that is over. A new incarnation is told everything."""
        if incarnation < link.incarnation:
            effects.append(Refuse(link.peer, "earlier-incarnation"))
            return False
        restarted = link.new_incarnation(incarnation)
        self._forget(link.peer)
        if self.news is not None:
            self.news.forget(now, link.peer)
        if restarted:
            self.resync(now, link.peer, effects, restarted=True)
            self.retransmission.resend_fragmented(now, link.peer, effects)
        return True

    def heard_again(self, now: Nanos, link: Link, effects: Effects, message: object = None) -> None:
        """The neighbour was heard by this message, after silence or unanswered packets."""
        if type(message) is Hello and not message.hearing and message.incarnation >= link.incarnation:
            link.said_not_hearing()
        if self.detector is not None:
            self.detector.heard_again(now, link, effects)
        if not link.up:
            if link.needs_probe(now) and not self.retransmission.control.is_repeated_to(link.peer):
                self.retransmission.control.send(now, OutgoingControl(link.peer, "", None, None), effects)
            return
        if link.cleared():
            self.resync(now, link.peer, effects)
        self._user.on_link_returned(now)

    def tell(self, now: Nanos, control: OutgoingControl, effects: Effects) -> None:
        """Send a control message to a neighbour, in fragments if it is long."""
        if control.peer in self._links:
            for one in self._fragments.split(control, effects):
                self.retransmission.control.send(now, one, effects)

    def paused(self, now: Nanos, ns: Nanos) -> None:
        """This peer did not run for this time, so it could not hear anyone."""
        for link in self._links.values():
            link.paused(now, ns)
        self.retransmission.paused(now, ns)
        if self.detector is not None:
            self.detector.paused(now, ns)

    def resync(self, now: Nanos, peer: PeerId, effects: Effects, restarted: bool = False) -> None:
        """A neighbour may know nothing: plug-ins tell it everything."""
        self._user.on_link_changed(now, LinkChanged(peer, True, fresh=True, restarted=restarted), effects)

    def leave(self, now: Nanos, effects: Effects) -> None:
        """Ask all neighbours to send over other links from now on."""
        for link in self._links.values():
            if link.incarnation > 0:  # it was heard
                effects.append(Send(link.peer, Hello(self._incarnation, hearing=False)))

    # ---------------------------------------------------------------- links that come, go and fail

    def add(self, now: Nanos, neighbour: Neighbour, effects: Effects) -> None:
        """Make a link that the driver gives."""
        self.manager.describe(neighbour)
        self.make(now, neighbour.peer, (), effects)
        self._user.on_link_returned(now)

    def make(self, now: Nanos, peer: PeerId, path: Path, effects: Effects) -> None:
        self.manager.make(now, peer, path)
        effects.append(Notice("linked", peer))
        self._user.on_links_changed(now, effects)
        self.resync(now, peer, effects)
        if self.detector is not None:
            self.detector.linked(now, peer)
        self.manager.trace(effects)

    def end(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        in_flight = self.retransmission.end(peer)
        self._links.pop(peer).ended()
        self._forget(peer)
        effects.append(Notice("unlinked", peer))
        if self.detector is not None:
            self.detector.unlinked(now, peer)
        self._user.on_links_changed(now, effects)
        for forward in in_flight:
            self._user.on_failed(now, forward, effects)
        self._user.on_link_changed(now, LinkChanged(peer, False), effects)

    def _forget(self, peer: PeerId) -> None:
        if self._reassembly is not None:
            self._reassembly.forget(peer)
        self._fragments.forget(peer)

    def _failed(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        if self.detector is not None:
            self.detector.unanswered(now, self._links[forward.peer], effects)
        self._user.on_failed(now, forward, effects)

    def _crowded(self, now: Nanos) -> None:
        if self._prices is None:
            self._prices = LinkPrices(self._links, self._timers, self._user.on_links_changed, self._user.on_loaded)
        self._prices.crowded(now)

    def _detected(self, now: Nanos, event: LinkChanged | Failed, effects: Effects) -> None:
        if type(event) is Failed:
            self._user.on_failed(now, event.forward, effects)
        else:
            self._user.on_link_changed(now, event, effects)  # type: ignore[arg-type]
