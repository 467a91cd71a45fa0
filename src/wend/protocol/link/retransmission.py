"""What was sent and not yet answered: numbers, ACKs, retransmission, and when to stop waiting.

Data gets the transmissions that its `Forward` allows, then the peer is told that it failed. Control is
repeated with growing pauses until it is acknowledged or replaced; a neighbour that does not answer for too
long is told everything anew when it is heard again (`link.missed` remembers).
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import msgspec

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.link.event_fragments import IN_FLIGHT, FragmentedEvent, FragmentInFlight
from wend.protocol.link.fragments import FRAGMENT_BYTES
from wend.protocol.link.link import Link
from wend.protocol.messages import TX_SHIFT, Ack, Control, Data, Slot
from wend.protocol.plugins import Forward
from wend.protocol.ports import Notice, Refuse, Send
from wend.protocol.timers import Effects, Timers

FRAGMENT_TRIES = 4
"""Transmissions of a part at least: the others would all be lost with it."""
CONTROL_TRIES = 20
"""After this many unanswered repetitions a neighbour is told everything anew when it is heard again."""
MAX_BACKOFF_NS = SECOND
GIVEN_UP = 256
"""How many unanswered packets are remembered, in case their ACK is only late."""


class OutgoingControl(msgspec.Struct, frozen=True, gc=False):
    """A control message of a plug-in, on its way to a neighbour."""

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
    ) -> None:
        self._me = config.peer
        self._here = (config.peer,)
        settings = config.of(LinkSettings)
        self._m = settings.transmissions
        self._measured = settings.estimator == "measured"
        self._links = links
        self._timers = timers
        self._failed = failed
        self._tx = config.incarnation << TX_SHIFT
        self._pending: dict[int, tuple[Forward | OutgoingControl | FragmentInFlight, int, Nanos]] = {}
        self._slots: dict[tuple[PeerId, str, Slot], int] = {}
        self._given_up: dict[int, tuple[PeerId, Nanos, bool]] = {}
        self._timeout = self._unanswered  # one bound method, so that `is` finds its timers again

    @property
    def incarnation(self) -> int:
        return self._tx >> TX_SHIFT

    def forward(self, now: Nanos, forward: Forward, effects: Effects, again: int = 0) -> None:
        """Send it, for the first time or `again` under its number."""
        event, peer = forward.event, forward.peer
        if again:
            tx = again
        else:
            self._tx = tx = self._tx + 1
            if len(event.payload) > FRAGMENT_BYTES:
                whole = FragmentedEvent(forward, tx)
                # a link that did not answer is asked with one part first
                for _ in range(1 if self._links[peer].suspected else min(whole.count, IN_FLIGHT)):
                    self._next_part(now, whole, effects)
                return
            self._pending[tx] = (forward, 1, now)
        link = self._links[peer]
        link.sent_ns = now
        path = forward.path + self._here
        age = now - forward.born_ns
        data = Data(tx, event, age, forward.dests, path, forward.header, forward.ranks)
        effects.append(Send(peer, data))
        timers = self._timers
        timers.count = count = timers.count + 1
        heappush(timers.heap, (now + link.timeout_ns, count, self._timeout, tx))

    def tell(self, now: Nanos, tell: OutgoingControl, effects: Effects) -> None:
        if tell.peer not in self._links:
            return
        self._tx = tx = self._tx + 1
        if tell.slot is not None:
            key = (tell.peer, tell.plugin, tell.slot)
            self._pending.pop(self._slots.get(key, -1), None)
            self._slots[key] = tx
        self._repeat(now, tx, tell, 1, effects)

    def repeats_to(self, peer: PeerId) -> bool:
        """Whether control to a neighbour is not acknowledged yet."""
        return any(what.peer == peer and type(what) is OutgoingControl for what, _, _ in self._pending.values())

    def answered(self, now: Nanos, link: Link, ack: Ack, effects: Effects) -> Forward | None:
        """An ACK: the data that it is for, if it is for data that was still waited for."""
        tx = ack.tx
        held = self._pending.pop(tx, None)
        if held is None:
            self._late(now, link, tx, effects)
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
        if self._measured and (attempts == 1 or type(what) is not OutgoingControl):
            link.answered(now - first, attempts > 1)
        if type(what) is Forward:
            return what
        if type(what) is OutgoingControl:
            self._free_slot(what)
            return None
        assert type(what) is FragmentInFlight
        whole = what.of
        whole.open.discard(tx)
        if ack.accepted:
            self._give_up(whole)
            return whole.forward
        while whole.next < whole.count and len(whole.open) < IN_FLIGHT:
            self._next_part(now, whole, effects)
        if not whole.open:  # every part came, but to lives that did not know of each other's
            effects.append(Notice("not-accepted", link.peer))
            self._failed(now, whole.forward, effects)
        return None

    def begin_again(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        """A neighbour's new life has none of the parts that the former took."""
        held = [what for what, _, _ in self._pending.values() if type(what) is FragmentInFlight and what.peer == peer]
        for whole in {piece.of.number: piece.of for piece in held}.values():
            self._give_up(whole)
            self.forward(now, whole.forward, effects)

    def under_way(self) -> list[Forward]:
        held = [what for what, _, _ in self._pending.values()]
        wholes = {id(what.of): what.of.forward for what in held if type(what) is FragmentInFlight}
        return [*(what for what in held if type(what) is Forward), *wholes.values()]

    def withdraw(self, peer: PeerId) -> list[Forward]:
        """Data under way to a neighbour, no longer waited for; but a way back has no alternative to turn to."""
        found = [(tx, what) for tx, (what, _, _) in self._pending.items() if what.peer == peer]
        lost = [(tx, what) for tx, what in found if type(what) is Forward and not what.tries]
        for tx, _ in lost:
            del self._pending[tx]
        wholes = {what.of.number: what.of for _, what in found if type(what) is FragmentInFlight}
        cut = [whole for whole in wholes.values() if not whole.forward.tries]
        for whole in cut:
            self._give_up(whole)
        return [*(what for _, what in lost), *(whole.forward for whole in cut)]

    def end(self, peer: PeerId) -> list[Forward]:
        """The link is no more: nothing that was under way over it is waited for."""
        found = [(tx, what) for tx, (what, _, _) in self._pending.items() if what.peer == peer]
        wholes = {id(what.of): what.of.forward for _, what in found if type(what) is FragmentInFlight}
        for tx, what in found:
            del self._pending[tx]
            if type(what) is OutgoingControl:
                self._free_slot(what)
        return [*(what for _, what in found if type(what) is Forward), *wholes.values()]

    def unsent(self, tx: int, effects: Effects) -> Forward | None:
        """It never left, so no answer is waited for: the data that it was, if it was data."""
        held = self._pending.pop(tx, None)
        if held is None:
            return None
        what = held[0]
        if type(what) is FragmentInFlight:
            self._give_up(what.of)
            return what.of.forward
        if type(what) is Forward:
            return what
        assert type(what) is OutgoingControl
        self._free_slot(what)
        effects.append(Notice("control-lost", what.peer))
        return None

    def clear_answered(self) -> None:
        """Timers of what was answered need no wake-up."""
        timers, pending, timeout = self._timers.heap, self._pending, self._timeout
        while timers and timers[0][2] is timeout and timers[0][3] not in pending:
            heappop(timers)

    # ---------------------------------------------------------------- sending, again and again

    def _next_part(self, now: Nanos, whole: FragmentedEvent, effects: Effects) -> None:
        self._tx = tx = self._tx + 1
        whole.open.add(tx)
        piece = FragmentInFlight(whole.forward.peer, whole, whole.next)
        whole.next += 1
        self._send_part(now, piece, tx, 1, now, effects)

    def _send_part(
        self, now: Nanos, piece: FragmentInFlight, tx: int, attempt: int, first: Nanos, effects: Effects
    ) -> None:
        link = self._links[piece.peer]
        self._pending[tx] = (piece, attempt, first)
        link.sent_ns = now
        effects.append(Send(piece.peer, piece.of.fragment(now, tx, piece.index, self._me)))
        # the answers to many parts queue up behind each other
        self._timers.at(now + (link.timeout_ns << min(attempt - 1, 3)), self._timeout, tx)

    def _give_up(self, whole: FragmentedEvent) -> None:
        for tx in whole.open:
            self._pending.pop(tx, None)
        whole.open.clear()

    def _repeat(self, now: Nanos, tx: int, tell: OutgoingControl, attempt: int, effects: Effects) -> None:
        link = self._links[tell.peer]
        self._pending[tx] = (tell, attempt, now if attempt == 1 else self._pending[tx][2])
        link.sent_ns = now
        effects.append(Send(tell.peer, Control(tx, tell.plugin, tell.body)))
        timeout = link.timeout_ns - link.control_discount_ns
        wait = min(timeout << min(attempt - 1, 10), max(MAX_BACKOFF_NS, timeout))
        self._timers.at(now + wait, self._timeout, tx)

    def _unanswered(self, now: Nanos, tx: int, effects: Effects) -> None:
        """A timer of a transmission; most were answered long ago."""
        held = self._pending.get(tx)
        if held is None:
            return
        what, attempt, first = held
        link = self._links[what.peer]
        if type(what) is Forward:
            if attempt < (what.tries or self._m):
                link.unanswered()
                self._pending[tx] = (what, attempt + 1, first)
                self.forward(now, what, effects, tx)
                return
            del self._pending[tx]
            self._remember(tx, what.peer, first, attempt > 1)
            link.gave_up()
            self._failed(now, what, effects)
        elif type(what) is FragmentInFlight:
            if attempt < max(what.of.forward.tries or self._m, FRAGMENT_TRIES):
                link.unanswered()
                self._send_part(now, what, tx, attempt + 1, first, effects)
                return
            self._give_up(what.of)
            link.gave_up()
            self._failed(now, what.of.forward, effects)
        elif type(what) is OutgoingControl:
            link.gave_up()
            if attempt < CONTROL_TRIES:
                self._repeat(now, tx, what, attempt + 1, effects)
                return
            del self._pending[tx]
            self._free_slot(what)
            link.missed_control()
            effects.append(Notice("control-lost", what.peer))

    def _free_slot(self, tell: OutgoingControl) -> None:
        if tell.slot is not None:
            self._slots.pop((tell.peer, tell.plugin, tell.slot), None)

    def _remember(self, tx: int, peer: PeerId, first: Nanos, retransmitted: bool) -> None:
        if self._measured:
            self._given_up[tx] = (peer, first, retransmitted)
            if len(self._given_up) > GIVEN_UP:
                del self._given_up[next(iter(self._given_up))]

    def _late(self, now: Nanos, link: Link, tx: int, effects: Effects) -> None:
        """Too late to matter for the packet, but it tells how long a round trip takes now."""
        effects.append(Notice("late-ack", link.peer))
        peer, first, retransmitted = self._given_up.pop(tx, (None, 0, False))
        if peer == link.peer:
            link.answered(now - first, retransmitted)
