"""The sender of events in fragments: each fragment is a transmission of its own, and some are in flight at a time."""

from collections.abc import Callable

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.link.event_fragments import IN_FLIGHT, FragmentedEvent, FragmentInFlight
from wend.protocol.link.in_flight import PacketsInFlight
from wend.protocol.link.link import Link
from wend.protocol.link.waiting import FRAGMENT_SIZE, is_expired
from wend.protocol.plugins import Forward
from wend.protocol.ports import Notice, Send
from wend.protocol.timers import Effects

FRAGMENT_TRIES = 4
"""Transmissions of a fragment, at least: if it is lost, so is the whole event."""


class FragmentSender:
    __slots__ = ("_congested", "_failed", "_in_flight", "_links", "_me", "_tries", "_wait")

    def __init__(
        self,
        config: PeerConfig,
        links: dict[PeerId, Link],
        in_flight: PacketsInFlight,
        wait: Callable[[Nanos, FragmentedEvent], bool],
        failed: Callable[[Nanos, Forward, Effects], None],
        congested: Callable[[Nanos, Forward, Effects, bool], None],
    ) -> None:
        """`wait` queues the next fragment for the congestion window, and returns False if the queue is full."""
        self._me = config.peer
        self._tries = config.of(LinkSettings).transmissions
        self._links = links
        self._in_flight = in_flight
        self._wait = wait
        self._failed = failed
        self._congested = congested

    def send(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        """Send the first fragments of an event. Over a suspected link, send only one as a probe."""
        fragmented = FragmentedEvent(forward, self._in_flight.next_number())
        most = 1 if self._links[forward.peer].suspected else min(fragmented.count, IN_FLIGHT)
        while most and self._send_or_wait(now, fragmented, effects):
            most -= 1

    def send_next(self, now: Nanos, fragmented: FragmentedEvent, effects: Effects) -> None:
        """Send the next fragment, once the congestion window allows it."""
        link = self._links[fragmented.forward.peer]
        fragment = fragmented.take_next()
        tx = self._in_flight.start_timer(now + link.timeout_ns)
        self._in_flight.packets[tx] = (fragment, 1, now)
        fragmented.add_in_flight(tx)
        self._transmit_fragment(now, link, fragment, tx, effects)

    def on_ack(
        self, now: Nanos, link: Link, tx: int, fragmented: FragmentedEvent, accepted: bool, effects: Effects
    ) -> Forward | None:
        """Handle the ACK of a fragment. Return the event if the neighbour has accepted it."""
        fragmented.on_ack(tx)
        forward = fragmented.forward
        if accepted:
            self.cancel(fragmented)
            return forward
        if is_expired(now, forward):
            self.cancel(fragmented)
            self._failed(now, forward, effects)
            return None
        while fragmented.has_room:
            if not self._send_or_wait(now, fragmented, effects):
                break
        if not (
            fragmented.is_under_way or fragmented.over
        ):  # different incarnations of the neighbour received fragments
            effects.append(Notice("not-accepted", link.peer))
            self._failed(now, forward, effects)
        return None

    def on_timeout(
        self, now: Nanos, link: Link, tx: int, fragment: FragmentInFlight, attempt: int, first: Nanos, effects: Effects
    ) -> bool:
        """Send a fragment again after a timeout, or give up the event. Return whether it was given up."""
        forward = fragment.of.forward
        if attempt < max(forward.tries or self._tries, FRAGMENT_TRIES) and not is_expired(now, forward):
            link.on_timeout()
            # ACKs of many fragments queue behind each other, so each repetition waits longer
            wait = link.timeout_ns << min(attempt, 3)
            self._in_flight.restart_timer(tx, fragment, attempt + 1, first, now + wait)
            self._transmit_fragment(now, link, fragment, tx, effects)
            return False
        self.cancel(fragment.of)
        link.on_give_up()
        self._failed(now, forward, effects)
        return True

    def cancel(self, fragmented: FragmentedEvent) -> None:
        """Stop sending an event, and stop waiting for ACKs of its fragments."""
        released = fragmented.end()
        link = self._links.get(fragmented.forward.peer)
        for tx in released:
            if self._in_flight.remove(tx) and link is not None and link.sender is not None:
                link.sender.release(FRAGMENT_SIZE)

    def events_to(self, peer: PeerId) -> list[FragmentedEvent]:
        """The events to a neighbour that have fragments in flight."""
        return [packet.of for _, packet in self._in_flight.packets_to(peer) if type(packet) is FragmentInFlight]

    def _send_or_wait(self, now: Nanos, fragmented: FragmentedEvent, effects: Effects) -> bool:
        """Send the next fragment, or queue it for the congestion window. Return False if neither is possible now."""
        forward = fragmented.forward
        sender = self._links[forward.peer].sender
        if sender is None or sender.try_send(now, FRAGMENT_SIZE):
            self.send_next(now, fragmented, effects)
            return True
        if self._wait(now, fragmented):
            return True
        if not fragmented.is_under_way:
            self.cancel(fragmented)
            if sender.stopped:
                self._failed(now, forward, effects)
            else:
                self._congested(now, forward, effects, True)
        return False

    def _transmit_fragment(self, now: Nanos, link: Link, fragment: FragmentInFlight, tx: int, effects: Effects) -> None:
        link.record_transmission(now)
        effects.append(Send(fragment.peer, fragment.of.make_fragment(now, tx, fragment.index, self._me)))
