"""Events larger than a packet, over one link (`fragments.py` has the mechanism).

Every fragment is a transmission of its own, with a number, an ACK and retransmissions, so a lost fragment costs one
packet and not the event. The sender has only some of them in flight at a time.

The receiver acknowledges the fragment that completes an event when it accepts the event, as it does for a small one,
and marks that ACK (`Ack.accepted`). Until then the sender remains responsible for the event. An ACK of another fragment
transfers nothing, because the receiver loses incomplete events when it restarts, or when it believes that the sender
restarted. If all fragments are acknowledged but the event is not accepted, the transmission has failed.
"""

import msgspec

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.link.fragments import EVENTS, FRAGMENT_BYTES, Limits, Reassembly, cut_fragment, fragment_count
from wend.protocol.link.link import Link
from wend.protocol.messages import TX_MASK, Ack, Data, Fragment
from wend.protocol.notices import MISFIT, TOO_OLD
from wend.protocol.plugins import Forward
from wend.protocol.ports import Notice, Refuse, Send
from wend.protocol.timers import Effects

IN_FLIGHT = 64
"""The most fragments of one event that may be in flight at a time."""


class FragmentedEvent:
    """An event that a peer sends over one link in fragments."""

    __slots__ = ("_next", "_open", "_queued", "count", "forward", "number", "over")

    def __init__(self, forward: Forward, number: int) -> None:
        self.forward = forward
        self.number = number
        self.count = fragment_count(len(forward.event.payload), FRAGMENT_BYTES)
        self._next = 0
        """The index of the first fragment not sent yet."""
        self._open: set[int] = set()
        """The transmissions that are in flight."""
        self._queued = 0
        """How many fragments wait for the congestion window."""
        self.over = False
        """Whether the event is acknowledged or given up."""

    @property
    def is_queued(self) -> bool:
        """Whether fragments wait for the congestion window."""
        return self._queued > 0

    @property
    def is_under_way(self) -> bool:
        """Whether fragments are in flight or waiting."""
        return bool(self._open) or self._queued > 0

    @property
    def has_room(self) -> bool:
        """Whether another fragment may be sent or queued."""
        return self.count > self._next + self._queued and len(self._open) + self._queued < IN_FLIGHT

    def take_next(self) -> "FragmentInFlight":
        """Remove and return the next fragment to send."""
        self._next += 1
        return FragmentInFlight(self.forward.peer, self, self._next - 1)

    def add_in_flight(self, tx: int) -> None:
        """Record that a fragment is in flight under this number."""
        self._open.add(tx)

    def on_ack(self, tx: int) -> None:
        """Record the ACK of a fragment."""
        self._open.discard(tx)

    def count_waiting(self) -> None:
        """Count one more waiting fragment."""
        self._queued += 1

    def discount_waiting(self) -> None:
        """Count one waiting fragment less."""
        self._queued -= 1

    def end(self) -> set[int]:
        """End the transmission of the event. Return the fragments still in flight."""
        self.over = True
        transmissions, self._open = self._open, set()
        return transmissions

    def make_fragment(self, now: Nanos, tx: int, index: int, me: PeerId) -> Fragment:
        forward = self.forward
        event = forward.event
        piece = cut_fragment(event.payload, index, FRAGMENT_BYTES)
        if index:
            return Fragment(tx, self.number, index, self.count, event.id, piece)
        bare = msgspec.structs.replace(event, payload=b"")
        path = (*forward.path, me)
        age = now - forward.born_ns
        head = Data(self.number, bare, age, forward.dests, path, forward.header, forward.ranks)
        return Fragment(tx, self.number, index, self.count, event.id, piece, head)


class FragmentInFlight(msgspec.Struct, frozen=True, gc=False):
    """A fragment that its sender has not received an ACK for."""

    peer: PeerId
    of: FragmentedEvent
    index: int


class EventReassembly:
    """Reassembles the events that a peer receives in fragments."""

    __slots__ = ("_header", "_reassembly")

    def __init__(self, header: type | None = None, limits: Limits = EVENTS) -> None:
        """`header`: the type of the header that the peer's routing declares, if it has one."""
        self._header = header
        self._reassembly = Reassembly(limits)

    def __bool__(self) -> bool:
        """Whether an event is incomplete."""
        return bool(self._reassembly)

    @property
    def size(self) -> int:
        """The approximate memory of incomplete events, in bytes."""
        return self._reassembly.size

    def receive(self, now: Nanos, link: Link, fragment: Fragment, effects: Effects) -> Data | None:
        """Store a fragment and acknowledge it. Return the event that it completes, which the caller has to accept.

        The caller acknowledges that last fragment. If it arrives again, the ACK says that the event was accepted.
        """
        sender, tx = link.peer, fragment.tx & TX_MASK
        accepted = self._reassembly.was_completed(sender, fragment.number)
        if accepted:
            effects.append(Notice("duplicate", sender))
        elif tx not in link.window:
            if not self._accept_fragment(now, sender, fragment, effects):
                return None
            data = self._make_packet(now, sender, fragment)
            if data is not None:
                return data
            link.window.add(tx)
        elif link.window.is_too_old(tx):
            effects.append(Refuse(sender, TOO_OLD))
            return None
        else:
            effects.append(Notice("duplicate", sender))
        link.record_sent(now)
        effects.append(Send(sender, Ack(fragment.tx, accepted)))
        return None

    def forget(self, sender: PeerId) -> None:
        self._reassembly.forget(sender)

    def _accept_fragment(self, now: Nanos, sender: PeerId, fragment: Fragment, effects: Effects) -> bool:
        head = fragment.head
        if (head is None) == (fragment.index == 0):
            effects.append(Refuse(sender, "malformed-fragment"))
            return False
        if head is not None and not self._has_valid_head(head):
            effects.append(Refuse(sender, MISFIT))
            return False
        return self._reassembly.accept(now, sender, fragment.number, 0, fragment, effects)

    def _has_valid_head(self, head: Data) -> bool:
        return len(head.ranks) in (0, len(head.dests)) and (head.header is None or type(head.header) is self._header)

    def _make_packet(self, now: Nanos, sender: PeerId, last: Fragment) -> Data | None:
        """The event as one packet with the number of the last fragment."""
        message = self._reassembly.pop_complete(sender, last.number)
        if message is None:
            return None
        head = message.first.head
        event = msgspec.structs.replace(head.event, payload=message.join())
        age = head.age_ns + now - message.first_ns
        return Data(last.tx, event, age, head.dests, head.path, head.header, head.ranks)
