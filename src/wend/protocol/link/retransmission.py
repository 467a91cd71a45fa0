"""Retransmission: packets to neighbours wait for an ACK, and are sent again without one.

Data gets as many transmissions as its `Forward` allows. If none is acknowledged, the link layer learns that it failed.
Large events go in fragments (`fragment_sender.py`), and control is repeated (`control.py`). Over a link with congestion
control, data may have to wait before its first transmission (`waiting.py`).
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
from wend.protocol.link.send_queue import LinkSender
from wend.protocol.link.waiting import FRAGMENT_SIZE, HEADER_BYTES, WaitingPackets, is_expired, size_of
from wend.protocol.messages import TX_SHIFT, Ack, Data
from wend.protocol.plugins import Forward
from wend.protocol.ports import Notice, Refuse, Send
from wend.protocol.timers import Effects, Timers

MAX_HELD_NS = 10 * MS
"""A neighbour that says that it held an ACK back for longer is not believed the rest."""
MAX_HOST_NS = 50 * MS
"""The same for congestion control: packets and ACKs may wait for so long until a busy host reads them, and that says
nothing about queues of the network. Beyond it, the host is the bottleneck. Timeouts have to allow for most of it."""
MANY_PACKETS = 8
"""So many packets in flight are not all lost over a link whose neighbour is heard: the neighbour is slow."""
PATIENCE = 4
"""How many timeouts a packet waits for an ACK over a busy link whose neighbour is heard."""
GIVEN_UP = 256
"""How many packets without an ACK are remembered, in case it is only late."""


class Retransmission:
    __slots__ = (
        "_config", "_congested", "_crowded", "_failed", "_fragments", "_given_up", "_grace_ns", "_here", "_in_flight",
        "_is_measured", "_links", "_packets", "_paused_ns", "_timers", "_transmissions", "_waiting", "clear_answered",
        "control", "delayed", "explains_loss", "heard_again",
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
        """`failed` gets data that nobody acknowledged; `congested` data that was not sent, and whether that is because
        the send queue has no room; `crowded` is called when a packet has to wait."""
        self._here = (config.peer,)
        settings = config.of(LinkSettings)
        self._transmissions = settings.transmissions
        self._is_measured = settings.estimator == "measured"
        self._links = links
        self._timers = timers
        self._failed = failed
        self._congested = congested
        self._crowded = crowded
        self._in_flight = PacketsInFlight(config.incarnation, timers, self._time_out)
        self._packets = self._in_flight.packets
        self.clear_answered = self._in_flight.clear_timers
        """Drops timers of acknowledged packets, so that nobody is woken for them."""
        self._config = config
        self._fragments: FragmentSender | None = None
        self.control = ControlMessages(links, self._in_flight)
        self._waiting: WaitingPackets | None = None
        """Like `_fragments`, made when a packet needs it: most peers never do."""
        self._given_up: dict[int, tuple[PeerId, Nanos, bool]] = {}
        """By number: packets without an ACK, the time of their first transmission, and whether there were more."""
        self.explains_loss: Callable[[Nanos, Link, int], bool] | None = None
        """Whether loss explains so many missing ACKs better than an outage; None without the failure detector."""
        self.heard_again: Callable[[Nanos], None] | None = None
        """Called if an ACK shows that a neighbour hears this peer again; None without the failure detector."""
        self.delayed: Callable[[Nanos, Link], None] | None = None
        """Hears that packets over a link wait longer than its hellos allow for; None without the failure detector."""
        self._paused_ns: Nanos = -FOREVER
        self._grace_ns: Nanos = 0

    @property
    def incarnation(self) -> int:
        """The incarnation that packets are numbered for: the peer's own until its numbers run over."""
        return self._in_flight.tx >> TX_SHIFT

    # ---------------------------------------------------------------- sending

    def forward(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        """Send data, or let it wait for the congestion window of its link."""
        size = len(forward.event.payload)
        if size > FRAGMENT_BYTES:
            self._fragment_sender().send(now, forward, effects)
            return
        link = self._links[forward.peer]
        sender = link.sender
        if sender is not None and not sender.take(now, HEADER_BYTES + size, _is_late(forward)):
            self._waiting_packets().add(now, forward, effects)
            return
        tx = self._in_flight.begin(now + link.timeout_ns)
        self._packets[tx] = (forward, 1, now)
        self._transmit(now, link, forward, tx, effects)

    def _transmit(self, now: Nanos, link: Link, forward: Forward, tx: int, effects: Effects) -> None:
        link.note_transmission(now)
        path = forward.path + self._here
        age = now - forward.born_ns
        data = Data(tx, forward.event, age, forward.dests, path, forward.header, forward.ranks)
        effects.append(Send(forward.peer, data))

    def resend_fragmented(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        """A neighbour restarted, so it has none of the fragments that it acknowledged before."""
        for fragmented in self._fragmented_to(peer):
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
                self._config, self._links, self._in_flight, self._wait_fragment, self._failed, self._congested
            )
        return self._fragments

    def _wait_fragment(self, now: Nanos, fragmented: FragmentedEvent) -> bool:
        return self._waiting_packets().add_fragment(now, fragmented)

    def _send_waiting(self, now: Nanos, what: Forward | FragmentedEvent, effects: Effects) -> None:
        """The congestion window has let a packet through."""
        if type(what) is FragmentedEvent:
            self._fragment_sender().send_next(now, what, effects)
            return
        assert type(what) is Forward
        link = self._links[what.peer]
        tx = self._in_flight.begin(now + link.timeout_ns)
        self._packets[tx] = (what, 1, now)
        self._transmit(now, link, what, tx, effects)

    def _drain(self, now: Nanos, link: Link, sender: LinkSender, effects: Effects) -> None:
        """Send what waits for a link, as far as its window allows now."""
        if sender.queued_bytes:
            self._waiting_packets().drain(now, link, effects)

    # ---------------------------------------------------------------- ACKs

    def answered(self, now: Nanos, link: Link, ack: Ack, effects: Effects) -> Forward | None:
        """An ACK came. Return the data for which the neighbour is now responsible; None for anything else."""
        tx = ack.tx
        entry = self._packets.pop(tx, None)
        if entry is None:
            self._answered_late(now, link, ack, effects)
            return None
        packet, attempts, first = entry
        if packet.peer != link.peer:
            self._packets[tx] = entry
            effects.append(Refuse(link.peer, "unexpected-ack"))
            return None
        self._in_flight.clear_timer(tx)
        if not link.heard_by_neighbour:
            self._heard_by_neighbour(now, link)
        if type(packet) is Forward:
            sender = link.sender
            if sender is not None:
                size = HEADER_BYTES + len(packet.event.payload)
                self._open_window(now, link, sender, ack, size, attempts, first)
                if sender.queued_bytes:
                    self._waiting_packets().drain(now, link, effects)
            link.answered(_round_trip_ns(now - first, ack), attempts > 1)
            return packet
        if type(packet) is OutgoingControl:
            if attempts == 1:
                link.answered(_round_trip_ns(now - first, ack), False, is_data=False)
            self.control.free_slot(packet)
            return None
        assert type(packet) is FragmentInFlight
        return self._fragment_answered(now, link, ack, packet, attempts, first, effects)

    def _heard_by_neighbour(self, now: Nanos, link: Link) -> None:
        link.acknowledged()
        if self.heard_again is not None:
            self.heard_again(now)

    def _open_window(
        self, now: Nanos, link: Link, sender: LinkSender, ack: Ack, size: int, attempts: int, first: Nanos
    ) -> None:
        """Tell the congestion window of an ACK. A retransmission makes the round trip ambiguous."""
        round_trip_ns = 0 if attempts > 1 else _round_trip_ns(now - first, ack, MAX_HOST_NS)
        sender.acked(now, size, round_trip_ns, first)
        if round_trip_ns > sender.slow_ns and self.delayed is not None:
            self.delayed(now, link)

    def _fragment_answered(
        self, now: Nanos, link: Link, ack: Ack, part: FragmentInFlight, attempts: int, first: Nanos, effects: Effects
    ) -> Forward | None:
        sender, fragmented = link.sender, part.of
        if sender is not None:
            self._open_window(now, link, sender, ack, FRAGMENT_SIZE, attempts, first)
            if ack.accepted:
                self._fragment_sender().cancel(fragmented)
            self._drain(now, link, sender, effects)
        link.answered(_round_trip_ns(now - first, ack), attempts > 1)
        return self._fragment_sender().answer(now, link, ack.tx, fragmented, ack.accepted, effects)

    def _answered_late(self, now: Nanos, link: Link, ack: Ack, effects: Effects) -> None:
        """An ACK came for a packet that was given up. It still tells how long a round trip takes now."""
        effects.append(Notice("late-ack", link.peer))
        peer, first, retransmitted = self._given_up.pop(ack.tx, (None, 0, False))
        if peer == link.peer:
            round_trip_ns = _round_trip_ns(now - first, ack)
            link.answered(round_trip_ns, retransmitted, is_data=False)
            if link.sender is not None and not retransmitted:
                link.sender.late(now, round_trip_ns)
                if round_trip_ns > link.sender.slow_ns and self.delayed is not None:
                    self.delayed(now, link)

    # ---------------------------------------------------------------- packets in flight

    def in_flight(self) -> list[Forward]:
        """The data that waits for ACKs, or for the congestion window of its link."""
        packets: list[Forward | FragmentedEvent] = []
        if self._waiting is not None:
            packets += [what for peer in self._links for what in self._waiting.to(peer)]
        for packet, _, _ in self._packets.values():
            if type(packet) is Forward:
                packets.append(packet)
            elif type(packet) is FragmentInFlight:
                packets.append(packet.of)
        fragmented = {id(what): what.forward for what in packets if type(what) is FragmentedEvent and not what.over}
        return [*(what for what in packets if type(what) is Forward), *fragmented.values()]

    def withdraw(self, peer: PeerId) -> list[Forward]:
        """Stop waiting for data to a neighbour that is down. Return that data.

        Data with its own number of tries stays if it was sent: it returns to a peer that it came from, and has no other
        route.
        """
        packets: list[Forward] = []
        for tx, packet in self._in_flight.to(peer):
            if type(packet) is Forward and not packet.tries:
                self._in_flight.remove(tx)
                self._release(peer, size_of(packet))
                packets.append(packet)
        fragmented = [one for one in self._fragmented_to(peer) if one.is_queued or not one.forward.tries]
        queued = [] if self._waiting is None else self._waiting.remove(peer)
        for one in fragmented:
            self._fragment_sender().cancel(one)
        return [*packets, *queued, *(one.forward for one in fragmented)]

    def end(self, peer: PeerId) -> list[Forward]:
        """Stop waiting for anything from a peer that is no longer a neighbour. Return the data among it."""
        packets: list[Forward] = []
        fragmented = [one.forward for one in self._fragmented_to(peer)]
        queued = [] if self._waiting is None else self._waiting.remove(peer)
        for tx, packet in self._in_flight.to(peer):
            self._in_flight.remove(tx)
            if type(packet) is OutgoingControl:
                self.control.free_slot(packet)
            elif type(packet) is Forward:
                packets.append(packet)
        return [*packets, *queued, *fragmented]

    def unsent(self, now: Nanos, tx: int, effects: Effects) -> Forward | None:
        """The driver could not send a packet. Return the data that it was; None for anything else."""
        entry = self._packets.pop(tx, None)
        if entry is None:
            return None
        packet = entry[0]
        if type(packet) is OutgoingControl:
            self.control.free_slot(packet)
            effects.append(Notice("control-lost", packet.peer))
            return None
        self._release(packet.peer, size_of(packet))  # type: ignore[arg-type]
        if type(packet) is FragmentInFlight:
            self._fragment_sender().cancel(packet.of)
        link = self._links[packet.peer]
        if link.sender is not None:
            self._drain(now, link, link.sender, effects)
        return packet if type(packet) is Forward else packet.of.forward  # type: ignore[union-attr]

    def _release(self, peer: PeerId, size: int) -> None:
        """A packet in flight is no longer awaited."""
        link = self._links.get(peer)
        if link is not None and link.sender is not None:
            link.sender.released(size)

    def _fragmented_to(self, peer: PeerId) -> list[FragmentedEvent]:
        """The events to a neighbour that have fragments in flight, or fragments that wait."""
        fragmented = [] if self._fragments is None else self._fragments.to(peer)
        if self._waiting is not None:
            fragmented += [what for what in self._waiting.to(peer) if type(what) is FragmentedEvent and not what.over]
        return list({one.number: one for one in fragmented}.values())

    # ---------------------------------------------------------------- timers

    def paused(self, now: Nanos, ns: Nanos) -> None:
        """This peer did not run until now, so ACKs may be late: timers wait as long again, and no longer, because a
        busy host pauses often."""
        self._paused_ns, self._grace_ns = now, ns

    def _time_out(self, now: Nanos, tx: int, effects: Effects) -> None:
        """The timer of a transmission. Most were acknowledged long ago."""
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
            self._data_timed_out(now, link, tx, packet, attempt, first, effects)
        elif type(packet) is FragmentInFlight:
            if self._fragment_sender().time_out(now, link, tx, packet, attempt, first, effects):
                self._lose(now, link, 0, effects)
        elif type(packet) is OutgoingControl:
            self.control.time_out(now, link, tx, packet, attempt, first, effects)

    def _data_timed_out(
        self, now: Nanos, link: Link, tx: int, forward: Forward, attempt: int, first: Nanos, effects: Effects
    ) -> None:
        if self._sends_again(now, link, forward, attempt) and not is_expired(now, forward):
            link.timed_out()
            self._in_flight.repeat(tx, forward, attempt + 1, first, now + link.timeout_ns)
            self._transmit(now, link, forward, tx, effects)
            return
        self._in_flight.remove(tx)
        self._remember(tx, forward.peer, first, attempt > 1)
        link.gave_up()
        self._failed(now, forward, effects)
        self._lose(now, link, size_of(forward), effects)

    def _sends_again(self, now: Nanos, link: Link, forward: Forward, attempt: int) -> bool:
        """Whether a packet that went unanswered so many times is sent over the same link again."""
        if attempt < (forward.tries or self._transmissions):
            return True
        explains_loss = self.explains_loss
        return attempt <= forward.retries and explains_loss is not None and explains_loss(now, link, attempt)

    def _lose(self, now: Nanos, link: Link, size: int, effects: Effects) -> None:
        """A packet was given up. It was released before if its `size` is 0."""
        sender = link.sender
        if sender is not None:
            sender.released(size)
            if link.up:
                sender.lost(now, size or FRAGMENT_SIZE)
                self._drain(now, link, sender, effects)

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
        # if more waits, the neighbour may be too busy to answer anything: silence alone shows an outage then
        return link.heard_ns > first + link.delay_ns or (sender.queued_bytes > 0 and link.seems_up(now))

    def _remember(self, tx: int, peer: PeerId, first: Nanos, retransmitted: bool) -> None:
        if self._is_measured:
            self._given_up[tx] = (peer, first, retransmitted)
            if len(self._given_up) > GIVEN_UP:
                del self._given_up[next(iter(self._given_up))]


def _round_trip_ns(passed_ns: Nanos, ack: Ack, most_ns: Nanos = MAX_HELD_NS) -> Nanos:
    """The round trip of an ACK that came this long after the first transmission: without the time for which it was
    held, as far as that is believed."""
    held_ns = ack.held_ns
    return max(1, passed_ns - min(held_ns, most_ns)) if held_ns > 0 else passed_ns


def _is_late(forward: Forward) -> bool:
    """Whether a packet has deadlines, but meets none."""
    return bool(forward.due) and min(forward.due) == FOREVER
