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
        """`wait` lets the next fragment wait for the congestion window, or returns False if there is no room."""
        self._me = config.peer
        self._tries = config.of(LinkSettings).transmissions
        self._links = links
        self._in_flight = in_flight
        self._wait = wait
        self._failed = failed
        self._congested = congested

    def send(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        """Send the first fragments of an event. Over a suspected link, one fragment tries first."""
        fragmented = FragmentedEvent(forward, self._in_flight.number())
        most = 1 if self._links[forward.peer].suspected else min(fragmented.count, IN_FLIGHT)
        while most and self._send_or_wait(now, fragmented, effects):
            most -= 1

    def send_next(self, now: Nanos, fragmented: FragmentedEvent, effects: Effects) -> None:
        """Send the next fragment: the congestion window has let it through."""
        link = self._links[fragmented.forward.peer]
        fragment = fragmented.take_next()
        tx = self._in_flight.begin(now + link.timeout_ns)
        self._in_flight.packets[tx] = (fragment, 1, now)
        fragmented.begin(tx)
        self._transmit(now, link, fragment, tx, effects)

    def answer(
        self, now: Nanos, link: Link, tx: int, fragmented: FragmentedEvent, accepted: bool, effects: Effects
    ) -> Forward | None:
        """An ACK of a fragment came. Return the event if the neighbour has accepted it."""
        fragmented.answer(tx)
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
        ):  # fragments came to different incarnations of the neighbour
            effects.append(Notice("not-accepted", link.peer))
            self._failed(now, forward, effects)
        return None

    def time_out(
        self, now: Nanos, link: Link, tx: int, fragment: FragmentInFlight, attempt: int, first: Nanos, effects: Effects
    ) -> bool:
        """No ACK came for a transmission. True if the event is given up."""
        forward = fragment.of.forward
        if attempt < max(forward.tries or self._tries, FRAGMENT_TRIES) and not is_expired(now, forward):
            link.timed_out()
            # ACKs of many fragments queue behind each other, so each repetition waits longer
            wait = link.timeout_ns << min(attempt, 3)
            self._in_flight.repeat(tx, fragment, attempt + 1, first, now + wait)
            self._transmit(now, link, fragment, tx, effects)
            return False
        self.cancel(fragment.of)
        link.gave_up()
        self._failed(now, forward, effects)
        return True

    def cancel(self, fragmented: FragmentedEvent) -> None:
        """Send no more of an event, and wait for no more ACKs of its fragments."""
        released = fragmented.end()
        link = self._links.get(fragmented.forward.peer)
        for tx in released:
            if self._in_flight.remove(tx) and link is not None and link.sender is not None:
                link.sender.released(FRAGMENT_SIZE)

    def to(self, peer: PeerId) -> list[FragmentedEvent]:
        """The events to a neighbour that have fragments in flight."""
        return [packet.of for _, packet in self._in_flight.to(peer) if type(packet) is FragmentInFlight]

    def _send_or_wait(self, now: Nanos, fragmented: FragmentedEvent, effects: Effects) -> bool:
        """Send the next fragment, or let it wait for the congestion window. False if neither is possible now."""
        forward = fragmented.forward
        sender = self._links[forward.peer].sender
        if sender is None or sender.take(now, FRAGMENT_SIZE):
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

    def _transmit(self, now: Nanos, link: Link, fragment: FragmentInFlight, tx: int, effects: Effects) -> None:
        link.note_transmission(now)
        effects.append(Send(fragment.peer, fragment.of.fragment(now, tx, fragment.index, self._me)))
