"""Packets that wait for the congestion window of their link.

This connects the send queues of links (`link_sender.py`) with timers, retransmission and routing. A packet is sent when
an ACK opens the window or the pace allows it. A packet that would be late goes back to routing at once, for just the
destinations that it would reach too late: another link may still be in time.
"""

from collections.abc import Callable
from typing import Final

from wend.model.events import PeerId
from wend.model.units import FOREVER, Nanos
from wend.protocol.link.event_fragments import FragmentedEvent, FragmentInFlight
from wend.protocol.link.fragments import FRAGMENT_BYTES
from wend.protocol.link.link import Link
from wend.protocol.link.link_sender import LinkSender
from wend.protocol.plugins import Forward
from wend.protocol.timers import Effects, Timers

HEADER_BYTES: Final = 64
"""The approximate overhead of a packet, in bytes."""
FRAGMENT_SIZE: Final = HEADER_BYTES + FRAGMENT_BYTES


class WaitingPackets:
    __slots__ = ("_cancel", "_congested", "_crowded", "_failed", "_links", "_send", "_timers")

    def __init__(
        self,
        links: dict[PeerId, Link],
        timers: Timers,
        send: Callable[[Nanos, Forward | FragmentedEvent, Effects], None],
        failed: Callable[[Nanos, Forward, Effects], None],
        congested: Callable[[Nanos, Forward, Effects, bool], None],
        crowded: Callable[[Nanos], None],
        cancel: Callable[[FragmentedEvent], None],
    ) -> None:
        """`send` transmits a packet, or the next fragment of an event. `failed` is called with a packet whose link is
        down; `congested` with one that would be late or, if its flag is set, finds the queue full; `crowded` when a
        packet waits. `cancel` stops the transmission of a fragmented event."""
        self._links = links
        self._timers = timers
        self._send = send
        self._failed = failed
        self._congested = congested
        self._crowded = crowded
        self._cancel = cancel

    def add(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        """Queue a packet, except for the destinations that it would reach too late."""
        self._crowded(now)
        sender = self._sender(forward.peer)
        if sender.stopped:  # there are enough probes, and other packets would be lost in the outage
            self._failed(now, forward, effects)
            return
        late: Forward | None = None
        in_time: Forward | None = forward
        if forward.due:
            soonest = min(forward.due)
            arrival = sender.expected_ns(now, soonest)
            if soonest < arrival:
                late, in_time = split_by_deadline(forward, arrival)
        if in_time is not None:
            due = min(in_time.due, default=FOREVER)
            if sender.push(in_time, packet_bytes(in_time), in_time.event.id.publisher, due):
                self._set_pace_timer(now, sender, forward.peer)
            else:
                self._congested(now, in_time, effects, True)
        if late is not None:
            self._congested(now, late, effects, False)

    def add_fragment(self, now: Nanos, fragmented: FragmentedEvent) -> bool:
        """Queue the next fragment of an event. Return False if the queue is full."""
        self._crowded(now)
        forward = fragmented.forward
        sender = self._sender(forward.peer)
        due = max(forward.due, default=FOREVER)
        if sender.stopped or not sender.push(fragmented, FRAGMENT_SIZE, forward.event.id.publisher, due):
            return False
        fragmented.count_waiting()
        self._set_pace_timer(now, sender, forward.peer)
        return True

    def drain(self, now: Nanos, link: Link, effects: Effects) -> None:
        """Send the packets waiting for a link, as far as window and pace allow. Return late packets to routing."""
        sender = link.sender
        assert sender is not None
        while (late := sender.pop_late(now)) is not None:
            self._return_late_packet(now, late, sender.arrival_ns(now), effects)
        while (found := sender.pop(now)) is not None:
            what, size = found
            if type(what) is FragmentedEvent:
                what.discount_waiting()
                if what.over:
                    continue
            elif is_expired(now, what):
                self._congested(now, what, effects, False)
                continue
            sender.count_sent(now, size)
            self._send(now, what, effects)
        self._set_pace_timer(now, sender, link.peer)

    def packets_to(self, peer: PeerId) -> list[Forward | FragmentedEvent]:
        """The packets and fragmented events waiting for a link."""
        sender = self._links[peer].sender
        return [] if sender is None else sender.waiting()

    def remove(self, peer: PeerId) -> list[Forward]:
        """Remove all that waits for a link. Return the packets; fragmented events have another owner."""
        sender = self._links[peer].sender
        return [] if sender is None else [what for what in sender.clear() if type(what) is Forward]

    def _return_late_packet(
        self, now: Nanos, what: Forward | FragmentedEvent, arrival: Nanos, effects: Effects
    ) -> None:
        if type(what) is FragmentedEvent:
            what.discount_waiting()
            if not what.over:
                self._cancel(what)
                self._congested(now, what.forward, effects, False)
            return
        assert type(what) is Forward
        late, in_time = split_by_deadline(what, arrival)
        if in_time is not None:  # it was in the queue, so the queue is not full
            sender = self._sender(what.peer)
            sender.push(in_time, packet_bytes(in_time), in_time.event.id.publisher, min(in_time.due))
        if late is not None:
            self._congested(now, late, effects, False)

    def _set_pace_timer(self, now: Nanos, sender: LinkSender, peer: PeerId) -> None:
        """Set a timer for the time when the pace allows the next packet. An ACK would open the window, but none will
        arrive if no packet is in flight."""
        if sender.queued_bytes and (now < sender.next_ns or not sender.flight_bytes):
            again = max(now, sender.next_ns)
            if sender.set_wake_time(again):
                self._timers.set_timer(again, self._on_pace_timer, peer)

    def _on_pace_timer(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        link = self._links.get(peer)
        if link is not None and link.sender is not None:
            link.sender.on_wake()
            if link.sender.queued_bytes:
                self.drain(now, link, effects)

    def _sender(self, peer: PeerId) -> LinkSender:
        sender = self._links[peer].sender
        assert sender is not None
        return sender


def packet_bytes(what: Forward | FragmentInFlight) -> int:
    """The approximate size of a packet in bytes."""
    return HEADER_BYTES + len(what.event.payload) if type(what) is Forward else FRAGMENT_SIZE


def is_expired(now: Nanos, forward: Forward) -> bool:
    """Whether the event of a packet has expired."""
    return forward.event.ttl_ns is not None and forward.event.is_expired(now - forward.born_ns)


def split_by_deadline(forward: Forward, arrival_ns: Nanos) -> tuple[Forward | None, Forward | None]:
    """Split a packet that arrives at this time: the part for destinations it reaches too late, and the rest."""
    late = [i for i, due in enumerate(forward.due) if due < arrival_ns]
    if not late:
        return None, forward
    if len(late) == len(forward.due):
        return forward, None
    in_time = [i for i, due in enumerate(forward.due) if due >= arrival_ns]
    return _with_destinations(forward, late), _with_destinations(forward, in_time)


def _with_destinations(forward: Forward, of: list[int]) -> Forward:
    dests = tuple([forward.dests[i] for i in of])
    ranks = tuple([forward.ranks[i] for i in of]) if forward.ranks else ()
    due = tuple([forward.due[i] for i in of])
    return Forward(
        forward.peer, forward.event, forward.born_ns, dests, forward.path, forward.header, ranks, forward.tried,
        forward.tries, forward.confirm, due, forward.retries,
    )  # fmt: skip
