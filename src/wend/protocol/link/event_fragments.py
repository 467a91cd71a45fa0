"""Events larger than a packet, over one link (`fragments.py` has the mechanism).

Every fragment is a transmission of its own, with a number, an ACK and retransmissions, so a lost fragment costs one
packet and not the event. The sender has only some of them in flight at a time.

The receiver acknowledges the fragment that completes an event when it accepts the event, as it does for a small one,
and this ACK says so (`Ack.accepted`). Until then the sender answers for the event. An ACK of another fragment promises
nothing, because the receiver loses incomplete events when it restarts, or when it takes the sender for restarted. If
all fragments are acknowledged and the event is not accepted, the transmission has failed.
"""

import msgspec

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.link.fragments import EVENTS, FRAGMENT_BYTES, Limits, Reassembly, chunk, fragment_count
from wend.protocol.link.link import Link
from wend.protocol.messages import TX_MASK, Ack, Data, Fragment
from wend.protocol.notices import MISFIT, TOO_OLD
from wend.protocol.plugins import Forward
from wend.protocol.ports import Notice, Refuse, Send
from wend.protocol.timers import Effects

IN_FLIGHT = 64
"""Fragments of one event that may be in flight at a time."""


class FragmentedEvent:
    """An event that a peer sends over one link in fragments."""

    __slots__ = ("_next", "_open", "_queued", "count", "forward", "number", "over")

    def __init__(self, forward: Forward, number: int) -> None:
        self.forward = forward
        self.number = number
        self.count = fragment_count(len(forward.event.payload), FRAGMENT_BYTES)
        self._next = 0
        """The index of the first fragment that was not sent yet."""
        self._open: set[int] = set()
        """The transmissions that are in flight."""
        self._queued = 0
        """How many more wait for the congestion window."""
        self.over = False
        """Whether the event is acknowledged or given up."""

    @property
    def is_queued(self) -> bool:
        """Whether fragments wait for the congestion window."""
        return self._queued > 0

    @property
    def is_under_way(self) -> bool:
        """Whether fragments are in flight, or wait."""
        return bool(self._open) or self._queued > 0

    @property
    def has_room(self) -> bool:
        """Whether another fragment may be sent, or wait."""
        return self.count > self._next + self._queued and len(self._open) + self._queued < IN_FLIGHT

    def take_next(self) -> "FragmentInFlight":
        """The next fragment, to be sent now."""
        self._next += 1
        return FragmentInFlight(self.forward.peer, self, self._next - 1)

    def begin(self, tx: int) -> None:
        """A fragment is in flight, under this number."""
        self._open.add(tx)

    def answer(self, tx: int) -> None:
        """The fragment of this number is acknowledged."""
        self._open.discard(tx)

    def queue(self) -> None:
        """One more fragment waits."""
        self._queued += 1

    def unqueue(self) -> None:
        """One of the waiting fragments waits no longer."""
        self._queued -= 1

    def end(self) -> set[int]:
        """The event is acknowledged or given up. Return the transmissions that are in flight."""
        self.over = True
        transmissions, self._open = self._open, set()
        return transmissions

    def fragment(self, now: Nanos, tx: int, index: int, me: PeerId) -> Fragment:
        forward = self.forward
        event = forward.event
        piece = chunk(event.payload, index, FRAGMENT_BYTES)
        if index:
            return Fragment(tx, self.number, index, self.count, event.id, piece)
        bare = msgspec.structs.replace(event, payload=b"")
        path = (*forward.path, me)
        age = now - forward.born_ns
        head = Data(self.number, bare, age, forward.dests, path, forward.header, forward.ranks)
        return Fragment(tx, self.number, index, self.count, event.id, piece, head)


class FragmentInFlight(msgspec.Struct, frozen=True, gc=False):
    """A fragment that its sender waits for an ACK of."""

    peer: PeerId
    of: FragmentedEvent
    index: int


class EventReassembly:
    """The events that come to a peer in fragments."""

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
        """Bytes of memory that incomplete events take, roughly."""
        return self._reassembly.size

    def receive(self, now: Nanos, link: Link, fragment: Fragment, effects: Effects) -> Data | None:
        """Hold a fragment and acknowledge it. Returns the event that it completes, which the caller has to accept.

        The caller acknowledges that last fragment. If it comes again, the ACK says that the event was accepted.
        """
        sender, tx = link.peer, fragment.tx & TX_MASK
        accepted = self._reassembly.completed(sender, fragment.number)
        if accepted:
            effects.append(Notice("duplicate", sender))
        elif tx not in link.window:
            if not self._accept(now, sender, fragment, effects):
                return None
            data = self._complete(now, sender, fragment)
            if data is not None:
                return data
            link.window.add(tx)
        elif link.window.too_old(tx):
            effects.append(Refuse(sender, TOO_OLD))
            return None
        else:
            effects.append(Notice("duplicate", sender))
        link.note_sent(now)
        effects.append(Send(sender, Ack(fragment.tx, accepted)))
        return None

    def forget(self, sender: PeerId) -> None:
        self._reassembly.forget(sender)

    def _accept(self, now: Nanos, sender: PeerId, fragment: Fragment, effects: Effects) -> bool:
        head = fragment.head
        if (head is None) == (fragment.index == 0):
            effects.append(Refuse(sender, "malformed-fragment"))
            return False
        if head is not None and not self._fits(head):
            effects.append(Refuse(sender, MISFIT))
            return False
        return self._reassembly.accept(now, sender, fragment.number, 0, fragment, effects)

    def _fits(self, head: Data) -> bool:
        return len(head.ranks) in (0, len(head.dests)) and (head.header is None or type(head.header) is self._header)

    def _complete(self, now: Nanos, sender: PeerId, last: Fragment) -> Data | None:
        """The event, as if it had come in one packet with the number of the last fragment."""
        message = self._reassembly.complete(sender, last.number)
        if message is None:
            return None
        head = message.first.head
        event = msgspec.structs.replace(head.event, payload=message.joined())
        age = head.age_ns + now - message.first_ns
        return Data(last.tx, event, age, head.dests, head.path, head.header, head.ranks)
