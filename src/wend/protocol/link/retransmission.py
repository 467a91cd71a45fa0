"""Retransmission: numbers and timers of the packets that wait for an ACK.

Data gets as many transmissions as its `Forward` allows. If none is acknowledged, the link layer learns that it failed.
Control is repeated with growing pauses until it is acknowledged or replaced. If a neighbour does not answer for too
long, the sender stops (`Link.missed_control`), and plug-ins tell it everything when it is heard again.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import msgspec

from wend.model.events import PeerId
from wend.model.units import FOREVER, MS, SECOND, Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.link.event_fragments import IN_FLIGHT, FragmentedEvent, FragmentInFlight
from wend.protocol.link.fragments import FRAGMENT_BYTES
from wend.protocol.link.link import Link
from wend.protocol.link.waiting import FRAGMENT_SIZE, HEADER_BYTES, WaitingPackets, size_of
from wend.protocol.messages import TX_SHIFT, Ack, Control, Data, Slot
from wend.protocol.plugins import Forward
from wend.protocol.ports import Notice, Refuse, Send
from wend.protocol.timers import Effects, Timers

FRAGMENT_TRIES = 4
"""Transmissions of a fragment, at least: if it is lost, so is the whole event."""
CONTROL_TRIES = 20
"""Transmissions of control. Then the neighbour needs everything anew when it is heard again."""
MAX_BACKOFF_NS = SECOND
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


class OutgoingControl(msgspec.Struct, frozen=True, gc=False):
    """A control message of a plug-in to a neighbour. A newer one of the same slot replaces it."""

    peer: PeerId
    plugin: str
    slot: Slot | None
    body: Any


class Retransmission:
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
        self._me = config.peer
        self._here = (config.peer,)
        settings = config.of(LinkSettings)
        self._m = settings.transmissions
        self._measured = settings.estimator == "measured"
        self._links = links
        self._timers = timers
        self._failed = failed
        self._congested = congested
        self._crowded = crowded
        self._packets: WaitingPackets | None = None
        self._tx = config.incarnation << TX_SHIFT
        self._pending: dict[int, tuple[Forward | OutgoingControl | FragmentInFlight, int, Nanos]] = {}
        self._slots: dict[tuple[PeerId, str, Slot], int] = {}
        self._given_up: dict[int, tuple[PeerId, Nanos, bool]] = {}
        self.explains_loss: Callable[[Nanos, Link, int], bool] | None = None
        """Whether loss explains so many missing ACKs better than an outage; None without the failure detector."""
        self.heard_again: Callable[[Nanos], None] | None = None
        """Called where an ACK shows that a neighbour hears this peer again; None without the failure detector."""
        self.delayed: Callable[[Nanos, Link], None] | None = None
        """Hears that packets over a link wait longer than its hellos allow for; None without the failure detector."""
        self._paused_ns: Nanos = -FOREVER
        self._grace_ns: Nanos = 0
        self._timeout = self._unanswered  # one bound method, so that `is` finds its timers

    @property
    def incarnation(self) -> int:
        return self._tx >> TX_SHIFT

    def forward(self, now: Nanos, forward: Forward, effects: Effects, again: int = 0) -> None:
        """Send data for the first time, or `again` under the number that it had."""
        event, peer = forward.event, forward.peer
        if again:
            tx = again
        else:
            if len(event.payload) > FRAGMENT_BYTES:
                self._tx = tx = self._tx + 1
                fragmented = FragmentedEvent(forward, tx)
                # over a suspected link, one fragment tries first
                most = 1 if self._links[peer].suspected else min(fragmented.count, IN_FLIGHT)
                while most and self._next_fragment(now, fragmented, effects):
                    most -= 1
                return
            sender = self._links[peer].sender
            if sender is not None and not sender.take(now, HEADER_BYTES + len(event.payload), _is_late(forward)):
                self._waiting.add(now, forward, effects)
                return
            self._tx = tx = self._tx + 1
            self._pending[tx] = (forward, 1, now)
        self._transmit(now, forward, tx, effects)

    @property
    def _waiting(self) -> WaitingPackets:
        """Made when the first packet has to wait: most peers never need it."""
        if self._packets is None:
            self._packets = WaitingPackets(
                self._links,
                self._timers,
                self._send_waiting,
                self._failed,
                self._congested,
                self._crowded,
                self._cancel,
            )
        return self._packets

    def _send_waiting(self, now: Nanos, what: Forward | FragmentedEvent, effects: Effects) -> None:
        """The congestion window has let a packet through."""
        if type(what) is FragmentedEvent:
            self._send_next(now, what, effects)
            return
        assert type(what) is Forward
        self._tx = tx = self._tx + 1
        self._pending[tx] = (what, 1, now)
        self._transmit(now, what, tx, effects)

    def _transmit(self, now: Nanos, forward: Forward, tx: int, effects: Effects) -> None:
        event, peer = forward.event, forward.peer
        link = self._links[peer]
        link.sent_ns = now
        link.transmitted += 1
        path = forward.path + self._here
        age = now - forward.born_ns
        data = Data(tx, event, age, forward.dests, path, forward.header, forward.ranks)
        effects.append(Send(peer, data))
        timers = self._timers
        timers.count = count = timers.count + 1
        heappush(timers.heap, (now + link.timeout_ns, count, self._timeout, tx))

    def tell(self, now: Nanos, control: OutgoingControl, effects: Effects) -> None:
        """Send control, and stop repeating what it replaces."""
        if control.peer not in self._links:
            return
        self._tx = tx = self._tx + 1
        if control.slot is not None:
            key = (control.peer, control.plugin, control.slot)
            self._pending.pop(self._slots.get(key, -1), None)
            self._slots[key] = tx
        self._repeat(now, tx, control, 1, effects)

    def repeats_to(self, peer: PeerId) -> bool:
        """Whether control to a neighbour is not acknowledged yet."""
        return any(what.peer == peer and type(what) is OutgoingControl for what, _, _ in self._pending.values())

    def answered(self, now: Nanos, link: Link, ack: Ack, effects: Effects) -> Forward | None:
        """An ACK came. Returns the data that the neighbour answers for now; None for anything else."""
        tx = ack.tx
        held = self._pending.pop(tx, None)
        if held is None:
            self._late(now, link, ack, effects)
            return None
        what, attempts, first = held
        if what.peer != link.peer:
            self._pending[tx] = held
            effects.append(Refuse(link.peer, "an ACK for a packet that was not sent to it"))
            return None
        timers = self._timers.heap
        if timers[0][3] == tx and timers[0][2] is self._timeout:
            heappop(timers)
            if timers and timers[0][2] is self._timeout:
                self.clear_answered()
        if not link.heard_by_neighbour:
            link.acknowledged()
            if self.heard_again is not None:
                self.heard_again(now)
        sender = link.sender
        if sender is not None and type(what) is not OutgoingControl:
            sender.newest_ns = max(sender.newest_ns, first)
            round_trip_ns = 0 if attempts > 1 else _round_trip_ns(now - first, ack, MAX_HOST_NS)
            sender.acked(now, size_of(what), round_trip_ns)  # type: ignore[arg-type]
            if round_trip_ns > link.slow_ns and self.delayed is not None:
                self.delayed(now, link)
            if ack.accepted and type(what) is FragmentInFlight:
                self._cancel(what.of)
            if sender.queued_bytes:
                self._waiting.drain(now, link, effects)
        if self._measured and (attempts == 1 or type(what) is not OutgoingControl):
            link.answered(_round_trip_ns(now - first, ack), attempts > 1)
        if type(what) is OutgoingControl:
            self._free_slot(what)
            return None
        link.answers += 1
        if type(what) is Forward:
            return what
        assert type(what) is FragmentInFlight
        fragmented = what.of
        fragmented.open.discard(tx)
        if ack.accepted:
            self._cancel(fragmented)
            return fragmented.forward
        if _is_expired(now, fragmented.forward):
            self._cancel(fragmented)
            self._failed(now, fragmented.forward, effects)
            return None
        while fragmented.unsent and len(fragmented.open) + fragmented.queued < IN_FLIGHT:
            if not self._next_fragment(now, fragmented, effects):
                break
        if not (fragmented.open or fragmented.queued or fragmented.over):
            # fragments came to different incarnations of the neighbour
            effects.append(Notice("not-accepted", link.peer))
            self._failed(now, fragmented.forward, effects)
        return None

    def resend_fragmented(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        """A neighbour restarted, so it has none of the fragments that it acknowledged before."""
        for fragmented in self._fragmented_to(peer):
            self._cancel(fragmented)
            self.forward(now, fragmented.forward, effects)

    def in_flight(self) -> list[Forward]:
        """The data that waits for ACKs, or for the congestion window of its link."""
        found: list[Forward | FragmentedEvent] = []
        if self._packets is not None:
            found += [what for peer in self._links for what in self._packets.to(peer)]
        for what, _, _ in self._pending.values():
            if type(what) is Forward:
                found.append(what)
            elif type(what) is FragmentInFlight:
                found.append(what.of)
        fragmented = {id(what): what.forward for what in found if type(what) is FragmentedEvent and not what.over}
        return [*(what for what in found if type(what) is Forward), *fragmented.values()]

    def withdraw(self, peer: PeerId) -> list[Forward]:
        """Stop waiting for data to a neighbour that is down. Returns that data.

        Data with its own number of tries stays if it was sent: it returns to a peer that it came from, and has no other
        route.
        """
        found = [(tx, what) for tx, (what, _, _) in self._pending.items() if what.peer == peer]
        lost = [(tx, what) for tx, what in found if type(what) is Forward and not what.tries]
        for tx, what in lost:
            del self._pending[tx]
            self._release(peer, size_of(what))
        fragmented = [one for one in self._fragmented_to(peer) if one.queued or not one.forward.tries]
        queued = [] if self._packets is None else self._packets.remove(peer)
        for one in fragmented:
            self._cancel(one)
        return [*(what for _, what in lost), *queued, *(one.forward for one in fragmented)]

    def end(self, peer: PeerId) -> list[Forward]:
        """Stop waiting for anything from a neighbour that is none any more. Returns the data among it."""
        found = [(tx, what) for tx, (what, _, _) in self._pending.items() if what.peer == peer]
        fragmented = [one.forward for one in self._fragmented_to(peer)]
        queued = [] if self._packets is None else self._packets.remove(peer)
        for tx, what in found:
            del self._pending[tx]
            if type(what) is OutgoingControl:
                self._free_slot(what)
        return [*(what for _, what in found if type(what) is Forward), *queued, *fragmented]

    def unsent(self, now: Nanos, tx: int, effects: Effects) -> Forward | None:
        """The driver could not send a packet. Returns the data that it was; None for anything else."""
        held = self._pending.pop(tx, None)
        if held is None:
            return None
        what = held[0]
        if type(what) is FragmentInFlight or type(what) is Forward:
            self._release(what.peer, size_of(what))
            if type(what) is FragmentInFlight:
                self._cancel(what.of)
            link = self._links[what.peer]
            if link.sender is not None and link.sender.queued_bytes:
                self._waiting.drain(now, link, effects)
            return what if type(what) is Forward else what.of.forward  # type: ignore[union-attr]
        assert type(what) is OutgoingControl
        self._free_slot(what)
        effects.append(Notice("control-lost", what.peer))
        return None

    def clear_answered(self) -> None:
        """Drop timers of acknowledged packets, so that nobody is woken for them."""
        timers, pending, timeout = self._timers.heap, self._pending, self._timeout
        while timers and timers[0][2] is timeout and timers[0][3] not in pending:
            heappop(timers)

    # ---------------------------------------------------------------- sending

    def _next_fragment(self, now: Nanos, fragmented: FragmentedEvent, effects: Effects) -> bool:
        """Send the next fragment, or let it wait for the congestion window. False if neither can be now."""
        forward = fragmented.forward
        sender = self._links[forward.peer].sender
        if sender is None or sender.take(now, FRAGMENT_SIZE):
            self._send_next(now, fragmented, effects)
            return True
        if self._waiting.add_fragment(now, fragmented):
            return True
        if not (fragmented.open or fragmented.queued):
            self._cancel(fragmented)
            if sender.stopped:
                self._failed(now, forward, effects)
            else:
                self._congested(now, forward, effects, True)
        return False

    def _send_next(self, now: Nanos, fragmented: FragmentedEvent, effects: Effects) -> None:
        self._tx = tx = self._tx + 1
        fragmented.open.add(tx)
        fragment = FragmentInFlight(fragmented.forward.peer, fragmented, fragmented.next)
        fragmented.next += 1
        self._send_fragment(now, fragment, tx, 1, now, effects)

    def _send_fragment(
        self, now: Nanos, fragment: FragmentInFlight, tx: int, attempt: int, first: Nanos, effects: Effects
    ) -> None:
        link = self._links[fragment.peer]
        self._pending[tx] = (fragment, attempt, first)
        link.sent_ns = now
        link.transmitted += 1
        effects.append(Send(fragment.peer, fragment.of.fragment(now, tx, fragment.index, self._me)))
        # ACKs of many fragments queue behind each other, so each repetition waits longer
        self._timers.at(now + (link.timeout_ns << min(attempt - 1, 3)), self._timeout, tx)

    def _cancel(self, fragmented: FragmentedEvent) -> None:
        fragmented.over = True
        for tx in fragmented.open:
            if self._pending.pop(tx, None) is not None:
                self._release(fragmented.forward.peer, FRAGMENT_SIZE)
        fragmented.open.clear()

    def _release(self, peer: PeerId, size: int) -> None:
        """Nobody waits for a packet in flight any more."""
        link = self._links.get(peer)
        if link is not None and link.sender is not None:
            link.sender.released(size)

    def _fragmented_to(self, peer: PeerId) -> list[FragmentedEvent]:
        found = [what.of for what, _, _ in self._pending.values() if type(what) is FragmentInFlight]
        if self._packets is not None:
            found += [what for what in self._packets.to(peer) if type(what) is FragmentedEvent and not what.over]
        return list({one.number: one for one in found if one.forward.peer == peer}.values())

    def _repeat(self, now: Nanos, tx: int, control: OutgoingControl, attempt: int, effects: Effects) -> None:
        link = self._links[control.peer]
        self._pending[tx] = (control, attempt, now if attempt == 1 else self._pending[tx][2])
        link.sent_ns = now
        effects.append(Send(control.peer, Control(tx, control.plugin, control.body)))
        timeout = link.timeout_ns - link.control_discount_ns
        wait = min(timeout << min(attempt - 1, 10), max(MAX_BACKOFF_NS, timeout))
        self._timers.at(now + wait, self._timeout, tx)

    def paused(self, now: Nanos, ns: Nanos) -> None:
        """This peer did not run until now, so ACKs may be late: timers wait as long again, and no longer, because a
        busy host pauses often."""
        self._paused_ns, self._grace_ns = now, ns

    def _unanswered(self, now: Nanos, tx: int, effects: Effects) -> None:
        """The timer of a transmission. Most were acknowledged long ago."""
        held = self._pending.get(tx)
        if held is None:
            return
        what, attempt, first = held
        link = self._links[what.peer]
        if type(what) is Forward and self._is_queueing(now, link, first):
            self._timers.at(now + link.timeout_ns, self._timeout, tx)
            return
        again_ns = self._paused_ns + min(self._grace_ns, link.timeout_ns)
        if now < again_ns and first < self._paused_ns:
            self._timers.at(again_ns, self._timeout, tx)
            return
        if type(what) is Forward:
            if self._sends_again(now, link, what, attempt) and not _is_expired(now, what):
                link.unanswered()
                self._pending[tx] = (what, attempt + 1, first)
                self.forward(now, what, effects, tx)
                return
            del self._pending[tx]
            self._remember(tx, what.peer, first, attempt > 1)
            link.gave_up()
            self._failed(now, what, effects)
            self._lost(now, link, size_of(what), effects)
        elif type(what) is FragmentInFlight:
            tries = max(what.of.forward.tries or self._m, FRAGMENT_TRIES)
            if attempt < tries and not _is_expired(now, what.of.forward):
                link.unanswered()
                self._send_fragment(now, what, tx, attempt + 1, first, effects)
                return
            self._cancel(what.of)
            link.gave_up()
            self._failed(now, what.of.forward, effects)
            self._lost(now, link, 0, effects)
        elif type(what) is OutgoingControl:
            link.gave_up(data=False)
            if attempt < CONTROL_TRIES:
                self._repeat(now, tx, what, attempt + 1, effects)
                return
            del self._pending[tx]
            self._free_slot(what)
            link.missed_control()
            effects.append(Notice("control-lost", what.peer))

    def _sends_again(self, now: Nanos, link: Link, forward: Forward, attempt: int) -> bool:
        """Whether a packet that went unanswered so many times is sent over the same link again."""
        if attempt < (forward.tries or self._m):
            return True
        lost = self.explains_loss
        return attempt <= forward.retries and lost is not None and lost(now, link, attempt)

    def _lost(self, now: Nanos, link: Link, size: int, effects: Effects) -> None:
        """A packet was given up. It was released before if its `size` is 0."""
        sender = link.sender
        if sender is not None:
            sender.released(size)
            if link.up:
                sender.lost(now, size or FRAGMENT_SIZE)
                if sender.queued_bytes:
                    self._waiting.drain(now, link, effects)

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
        # where more waits, the neighbour may be too busy to answer anything: silence alone shows an outage then
        return link.heard_ns > first + link.delay_ns or (sender.queued_bytes > 0 and link.seems_up(now))

    def _free_slot(self, control: OutgoingControl) -> None:
        if control.slot is not None:
            self._slots.pop((control.peer, control.plugin, control.slot), None)

    def _remember(self, tx: int, peer: PeerId, first: Nanos, retransmitted: bool) -> None:
        if self._measured:
            self._given_up[tx] = (peer, first, retransmitted)
            if len(self._given_up) > GIVEN_UP:
                del self._given_up[next(iter(self._given_up))]

    def _late(self, now: Nanos, link: Link, ack: Ack, effects: Effects) -> None:
        """An ACK came for a packet that was given up. It still tells how long a round trip takes now."""
        effects.append(Notice("late-ack", link.peer))
        peer, first, retransmitted = self._given_up.pop(ack.tx, (None, 0, False))
        if peer == link.peer:
            round_trip_ns = _round_trip_ns(now - first, ack)
            link.answered(round_trip_ns, retransmitted)
            if link.sender is not None and not retransmitted:
                link.sender.late(now, round_trip_ns)
                if round_trip_ns > link.slow_ns and self.delayed is not None:
                    self.delayed(now, link)


def _round_trip_ns(passed_ns: Nanos, ack: Ack, most_ns: Nanos = MAX_HELD_NS) -> Nanos:
    """The round trip of an ACK that came so long after the first transmission: less the time for which it was held, as
    far as it is believed."""
    held_ns = ack.held_ns
    return max(1, passed_ns - min(held_ns, most_ns)) if held_ns > 0 else passed_ns


def _is_late(forward: Forward) -> bool:
    """Whether a packet has deadlines, but meets none."""
    return bool(forward.due) and min(forward.due) == FOREVER


def _is_expired(now: Nanos, forward: Forward) -> bool:
    """Whether nobody needs the event any more. It is not sent again, and counts as failed."""
    return forward.event.ttl_ns is not None and forward.event.is_expired(now - forward.born_ns)
