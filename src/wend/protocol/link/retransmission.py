"""Retransmission: packets to neighbours are sent again until they are acknowledged or given up.

Data gets as many transmissions as its `Forward` allows. If none is acknowledged, the link layer is notified that it
failed. Large events are sent in fragments (`fragment_sender.py`), and control is repeated (`control.py`). Over a link
with congestion control, data may have to wait before its first transmission (`waiting.py`).
"""

from collections.abc import Callable

from wend.model.events import PeerId
from wend.model.units import FOREVER, MS, Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.link.control import ControlMessages
from wend.protocol.link.event_fragments import FragmentedEvent, FragmentInFlight
from wend.protocol.link.fragment_sender import FragmentSender
from wend.protocol.link.fragments import FRAGMENT_BYTES
from wend.protocol.link.in_flight import OutgoingControl, PacketsInFlight
from wend.protocol.link.link import Link
from wend.protocol.link.link_sender import LinkSender
from wend.protocol.link.waiting import FRAGMENT_SIZE, HEADER_BYTES, WaitingPackets, is_expired, packet_bytes
from wend.protocol.messages import TX_SHIFT, Ack, Data
from wend.protocol.plugins import Forward
from wend.protocol.ports import Notice, Refuse, Send
from wend.protocol.timers import Effects, Timers

MAX_HELD_NS = 10 * MS
"""The longest time for which a neighbour may claim that it held an ACK back; a longer claim is cut to it."""
MAX_HOST_NS = 50 * MS
"""The same for congestion control: packets and ACKs may wait this long for a busy host, without queues in the network.
Beyond it, the host is the bottleneck. Timeouts have to allow for most of it."""
MANY_PACKETS = 8
"""This many packets in flight are not all lost over a link whose neighbour is heard: the neighbour is slow."""
PATIENCE = 4
"""How many timeouts a packet waits for an ACK over a busy link whose neighbour is heard."""
GIVEN_UP = 256
"""How many packets without an ACK are remembered, in case the ACK is only late."""


class Retransmission:
    __slots__ = (
        "_config",
        "_congested",
        "_crowded",
        "_failed",
        "_fragments",
        "_given_up",
        "_grace_ns",
        "_here",
        "_in_flight",
        "_is_measured",
        "_links",
        "_packets",
        "_paused_ns",
        "_timers",
        "_transmissions",
        "_waiting",
        "clear_timers",
        "control",
        "is_explained_by_loss",
        "on_delay",
        "on_heard_again",
    )  # fmt: skip

    def __init__(
        self,
        config: PeerConfig,
        links: dict[PeerId, Link],
        timers: Timers,
        failed: Callable[[Nanos, Forward, Effects], None],
        congested: Callable[[Nanos, Forward, Effects, bool], None],
        crowded: Callable[[Nanos], None],
    ) -> None:
        """`failed` is called with data that was never acknowledged; `congested` with data that was not sent, and
        whether the send queue was full; `crowded` when a packet has to wait."""
        self._here = (config.peer,)
        settings = config.of(LinkSettings)
        self._transmissions = settings.transmissions
        self._is_measured = settings.estimator == "measured"
        self._links = links
        self._timers = timers
        self._failed = failed
        self._congested = congested
        self._crowded = crowded
        self._in_flight = PacketsInFlight(config.incarnation, timers, self._on_timeout)
        self._packets = self._in_flight.packets
        self.clear_timers = self._in_flight.clear_timers
        """Drops timers of acknowledged packets, to avoid useless wake-ups."""
        self._config = config
        self._fragments: FragmentSender | None = None
        self.control = ControlMessages(links, self._in_flight)
        self._waiting: WaitingPackets | None = None
        """Like `_fragments`, created when a packet needs it: most peers never need it."""
        self._given_up: dict[int, tuple[PeerId, Nanos, bool]] = {}
        """By number: packets without an ACK, when they were first sent, and whether they were retransmitted."""
        self.is_explained_by_loss: Callable[[Nanos, Link, int], bool] | None = None
        """Whether loss explains this many missing ACKs better than an outage; None without the failure detector."""
        self.on_heard_again: Callable[[Nanos], None] | None = None
        """Called when an ACK shows that a neighbour hears this peer again; None without the failure detector."""
        self.on_delay: Callable[[Nanos, Link], None] | None = None
        """Called when packets over a link wait longer than its hellos allow for; None without the failure detector."""
        self._paused_ns: Nanos = -FOREVER
        self._grace_ns: Nanos = 0

    @property
    def incarnation(self) -> int:
        """The incarnation in packet numbers: the peer's own until its numbers overflow."""
        return self._in_flight.tx >> TX_SHIFT

    # ---------------------------------------------------------------- sending

    def forward(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        """Send data, or queue it for the congestion window of its link."""
        size = len(forward.event.payload)
        if size > FRAGMENT_BYTES:
            self._fragment_sender().send(now, forward, effects)
            return
        link = self._links[forward.peer]
        sender = link.sender
        if sender is not None and not sender.try_send(now, HEADER_BYTES + size, _is_late(forward)):
            self._waiting_packets().add(now, forward, effects)
            return
        tx = self._in_flight.start_timer(now + link.timeout_ns)
        self._packets[tx] = (forward, 1, now)
        self._transmit(now, link, forward, tx, effects)

    def _transmit(self, now: Nanos, link: Link, forward: Forward, tx: int, effects: Effects) -> None:
        link.sent_ns = now
        link.transmitted += 1
        path = forward.path + self._here
        age = now - forward.born_ns
        data = Data(tx, forward.event, age, forward.dests, path, forward.header, forward.ranks)
        effects.append(Send(forward.peer, data))

    def resend_fragmented(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        """Send fragmented events again to a neighbour that restarted and so lost the fragments it acknowledged."""
        for fragmented in self._fragmented_events_to(peer):
            self._fragment_sender().cancel(fragmented)
            self.forward(now, fragmented.forward, effects)

    def _waiting_packets(self) -> WaitingPackets:
        if self._waiting is None:
            self._waiting = WaitingPackets(
                self._links,
                self._timers,
                self._send_waiting,
                self._failed,
                self._congested,
                self._crowded,
                self._fragment_sender().cancel,
            )
        return self._waiting

    def _fragment_sender(self) -> FragmentSender:
        if self._fragments is None:
            self._fragments = FragmentSender(
                self._config, self._links, self._in_flight, self._queue_fragment, self._failed, self._congested
            )
        return self._fragments

    def _queue_fragment(self, now: Nanos, fragmented: FragmentedEvent) -> bool:
        return self._waiting_packets().add_fragment(now, fragmented)

    def _send_waiting(self, now: Nanos, what: Forward | FragmentedEvent, effects: Effects) -> None:
        """Send a packet that the congestion window now allows."""
        if type(what) is FragmentedEvent:
            self._fragment_sender().send_next(now, what, effects)
            return
        assert type(what) is Forward
        link = self._links[what.peer]
        tx = self._in_flight.start_timer(now + link.timeout_ns)
        self._packets[tx] = (what, 1, now)
        self._transmit(now, link, what, tx, effects)

    def _send_queued(self, now: Nanos, link: Link, sender: LinkSender, effects: Effects) -> None:
        """Send the packets waiting for a link, as far as its window allows now."""
        if sender.queued_bytes:
            self._waiting_packets().drain(now, link, effects)

    # ---------------------------------------------------------------- ACKs

    def on_ack(self, now: Nanos, link: Link, ack: Ack, effects: Effects) -> Forward | None:
        """Handle an ACK. Return the data for which the neighbour is now responsible; None for other packets."""
        tx = ack.tx
        entry = self._packets.pop(tx, None)
        if entry is None:
            self._on_late_ack(now, link, ack, effects)
            return None
        packet, attempts, first = entry
        if packet.peer != link.peer:
            self._packets[tx] = entry
            effects.append(Refuse(link.peer, "unexpected-ack"))
            return None
        if self._timers.heap[0][3] == tx:  # otherwise a timer that still counts is next
            self.clear_timers()
        if not link.heard_by_neighbour:
            self._on_heard_by_neighbour(now, link)
        if type(packet) is Forward:
            sender = link.sender
            if sender is not None:
                size = HEADER_BYTES + len(packet.event.payload)
                self._open_window(now, link, sender, ack, size, attempts, first)
                if sender.queued_bytes:
                    self._waiting_packets().drain(now, link, effects)
            link.answers += 1
            if self._is_measured:
                link.record_ack(_round_trip_ns(now - first, ack), attempts > 1)
            return packet
        if type(packet) is OutgoingControl:
            if attempts == 1:
                link.record_ack(_round_trip_ns(now - first, ack), False)
            self.control.free_slot(packet)
            return None
        assert type(packet) is FragmentInFlight
        return self._on_fragment_ack(now, link, ack, packet, attempts, first, effects)

    def _on_heard_by_neighbour(self, now: Nanos, link: Link) -> None:
        link.on_ack()
        if self.on_heard_again is not None:
            self.on_heard_again(now)

    def _open_window(
        self, now: Nanos, link: Link, sender: LinkSender, ack: Ack, size: int, attempts: int, first: Nanos
    ) -> None:
        """Update the congestion window by an ACK. A retransmission makes the round trip ambiguous."""
        round_trip_ns = 0 if attempts > 1 else _round_trip_ns(now - first, ack, MAX_HOST_NS)
        sender.on_ack(now, size, round_trip_ns, first)
        if round_trip_ns > sender.slow_ns and self.on_delay is not None:
            self.on_delay(now, link)

    def _on_fragment_ack(
        self, now: Nanos, link: Link, ack: Ack, part: FragmentInFlight, attempts: int, first: Nanos, effects: Effects
    ) -> Forward | None:
        sender, fragmented = link.sender, part.of
        if sender is not None:
            self._open_window(now, link, sender, ack, FRAGMENT_SIZE, attempts, first)
            if ack.accepted:
                self._fragment_sender().cancel(fragmented)
            self._send_queued(now, link, sender, effects)
        link.answers += 1
        link.record_ack(_round_trip_ns(now - first, ack), attempts > 1)
        return self._fragment_sender().on_ack(now, link, ack.tx, fragmented, ack.accepted, effects)

    def _on_late_ack(self, now: Nanos, link: Link, ack: Ack, effects: Effects) -> None:
        """Handle an ACK for a packet that was given up. It still gives a sample of the round trip."""
        effects.append(Notice("late-ack", link.peer))
        peer, first, retransmitted = self._given_up.pop(ack.tx, (None, 0, False))
        if peer == link.peer:
            round_trip_ns = _round_trip_ns(now - first, ack)
            link.record_ack(round_trip_ns, retransmitted)
            if link.sender is not None and not retransmitted:
                link.sender.on_late_ack(now, round_trip_ns)
                if round_trip_ns > link.sender.slow_ns and self.on_delay is not None:
                    self.on_delay(now, link)

    # ---------------------------------------------------------------- packets in flight

    def packets_in_flight(self) -> list[Forward]:
        """The data that waits for an ACK, or for the congestion window of its link."""
        packets: list[Forward | FragmentedEvent] = []
        if self._waiting is not None:
            packets += [what for peer in self._links for what in self._waiting.packets_to(peer)]
        for packet, _, _ in self._packets.values():
            if type(packet) is Forward:
                packets.append(packet)
            elif type(packet) is FragmentInFlight:
                packets.append(packet.of)
        fragmented = {id(what): what.forward for what in packets if type(what) is FragmentedEvent and not what.over}
        return [*(what for what in packets if type(what) is Forward), *fragmented.values()]

    def withdraw(self, peer: PeerId) -> list[Forward]:
        """Stop waiting for ACKs of data to a neighbour that is down. Return that data.

        Data with its own number of tries stays in flight if it was sent: it returns to the peer that it came from, and
        has no other route.
        """
        packets: list[Forward] = []
        for tx, packet in self._in_flight.packets_to(peer):
            if type(packet) is Forward and not packet.tries:
                self._in_flight.remove(tx)
                self._release(peer, packet_bytes(packet))
                packets.append(packet)
        fragmented = [one for one in self._fragmented_events_to(peer) if one.is_queued or not one.forward.tries]
        queued = [] if self._waiting is None else self._waiting.remove(peer)
        for one in fragmented:
            self._fragment_sender().cancel(one)
        return [*packets, *queued, *(one.forward for one in fragmented)]

    def end_link(self, peer: PeerId) -> list[Forward]:
        """Stop waiting for ACKs from a peer that is no longer a neighbour. Return the data that was in flight."""
        packets: list[Forward] = []
        fragmented = [one.forward for one in self._fragmented_events_to(peer)]
        queued = [] if self._waiting is None else self._waiting.remove(peer)
        for tx, packet in self._in_flight.packets_to(peer):
            self._in_flight.remove(tx)
            if type(packet) is OutgoingControl:
                self.control.free_slot(packet)
            elif type(packet) is Forward:
                packets.append(packet)
        return [*packets, *queued, *fragmented]

    def on_unsent(self, now: Nanos, tx: int, effects: Effects) -> Forward | None:
        """Handle a packet that the driver could not send. Return it if it was data; None otherwise."""
        entry = self._packets.pop(tx, None)
        if entry is None:
            return None
        packet = entry[0]
        if type(packet) is OutgoingControl:
            self.control.free_slot(packet)
            effects.append(Notice("control-lost", packet.peer))
            return None
        self._release(packet.peer, packet_bytes(packet))  # type: ignore[arg-type]
        if type(packet) is FragmentInFlight:
            self._fragment_sender().cancel(packet.of)
        link = self._links[packet.peer]
        if link.sender is not None:
            self._send_queued(now, link, link.sender, effects)
        return packet if type(packet) is Forward else packet.of.forward  # type: ignore[union-attr]

    def _release(self, peer: PeerId, size: int) -> None:
        """Take a packet out of the congestion window: its ACK is no longer awaited."""
        link = self._links.get(peer)
        if link is not None and link.sender is not None:
            link.sender.release(size)

    def _fragmented_events_to(self, peer: PeerId) -> list[FragmentedEvent]:
        """The events to a neighbour that have fragments in flight or waiting."""
        fragmented = [] if self._fragments is None else self._fragments.events_to(peer)
        if self._waiting is not None:
            fragmented += [
                what for what in self._waiting.packets_to(peer) if type(what) is FragmentedEvent and not what.over
            ]
        return list({one.number: one for one in fragmented}.values())

    # ---------------------------------------------------------------- timers

    def on_pause(self, now: Nanos, ns: Nanos) -> None:
        """Extend all timers by the length of a pause of this peer, since ACKs may be late; no longer, because a busy
        host pauses often."""
        self._paused_ns, self._grace_ns = now, ns

    def _on_timeout(self, now: Nanos, tx: int, effects: Effects) -> None:
        """Handle the timer of a transmission. Most were acknowledged long ago."""
        entry = self._packets.get(tx)
        if entry is None:
            return
        packet, attempt, first = entry
        link = self._links[packet.peer]
        if type(packet) is Forward and self._is_queueing(now, link, first):
            self._in_flight.wait_until(now + link.timeout_ns, tx)
            return
        again_ns = self._paused_ns + min(self._grace_ns, link.timeout_ns)
        if now < again_ns and first < self._paused_ns:
            self._in_flight.wait_until(again_ns, tx)
            return
        if type(packet) is Forward:
            self._on_data_timeout(now, link, tx, packet, attempt, first, effects)
        elif type(packet) is FragmentInFlight:
            if self._fragment_sender().on_timeout(now, link, tx, packet, attempt, first, effects):
                self._report_loss(now, link, 0, effects)
        elif type(packet) is OutgoingControl:
            self.control.on_timeout(now, link, tx, packet, attempt, first, effects)

    def _on_data_timeout(
        self, now: Nanos, link: Link, tx: int, forward: Forward, attempt: int, first: Nanos, effects: Effects
    ) -> None:
        if self._should_retransmit(now, link, forward, attempt) and not is_expired(now, forward):
            link.on_timeout()
            self._in_flight.restart_timer(tx, forward, attempt + 1, first, now + link.timeout_ns)
            self._transmit(now, link, forward, tx, effects)
            return
        self._in_flight.remove(tx)
        self._remember_given_up(tx, forward.peer, first, attempt > 1)
        link.on_give_up()
        self._failed(now, forward, effects)
        self._report_loss(now, link, packet_bytes(forward), effects)

    def _should_retransmit(self, now: Nanos, link: Link, forward: Forward, attempt: int) -> bool:
        """Whether to send a packet over the same link again after this many unanswered attempts."""
        if attempt < (forward.tries or self._transmissions):
            return True
        explains_loss = self.is_explained_by_loss
        return attempt <= forward.retries and explains_loss is not None and explains_loss(now, link, attempt)

    def _report_loss(self, now: Nanos, link: Link, size: int, effects: Effects) -> None:
        """Report the loss of a packet that was given up. It was already released if its `size` is 0."""
        sender = link.sender
        if sender is not None:
            sender.release(size)
            if link.is_up:
                sender.on_loss(now, size or FRAGMENT_SIZE)
                self._send_queued(now, link, sender, effects)

    def _is_queueing(self, now: Nanos, link: Link, first: Nanos) -> bool:
        """Whether an ACK is probably late because of queues: the link is busy or has many packets in flight, its
        neighbour is heard, and no packet that was sent later is acknowledged."""
        sender = link.sender
        if sender is None or link.allows_for_queues or sender.newest_ns > first:
            return False
        if not sender.is_busy and sender.flight_bytes < MANY_PACKETS * sender.controller.segment:
            return False
        if now - first >= PATIENCE * link.timeout_ns:
            return False
        # with more packets in flight, the neighbour may be too busy to answer: then only silence indicates an outage
        return link.heard_ns > first + link.delay_ns or (sender.queued_bytes > 0 and link.is_working(now))

    def _remember_given_up(self, tx: int, peer: PeerId, first: Nanos, retransmitted: bool) -> None:
        if self._is_measured:
            self._given_up[tx] = (peer, first, retransmitted)
            if len(self._given_up) > GIVEN_UP:
                del self._given_up[next(iter(self._given_up))]


def _round_trip_ns(passed_ns: Nanos, ack: Ack, most_ns: Nanos = MAX_HELD_NS) -> Nanos:
    """The round trip of an ACK that arrived this long after the first transmission, less the time for which the
    neighbour held it, up to a limit."""
    held_ns = ack.held_ns
    return max(1, passed_ns - min(held_ns, most_ns)) if held_ns > 0 else passed_ns


def _is_late(forward: Forward) -> bool:
    """Whether a packet has deadlines and misses all of them."""
    return bool(forward.due) and min(forward.due) == FOREVER
