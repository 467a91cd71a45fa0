"""Events that are larger than a packet: cut by the sender of each hop, put together by its receiver.

Every part is a transmission of its own, with its number, its ACK and its repetitions, so one that is lost costs one
packet and not the event. Only some are under way at a time. The part that completes an event is acknowledged
when the event is taken on, as a small event would be, and this ACK says so. Until then the sender answers for it: the
ACK of a part alone promises nothing, since what was put together is lost when the receiver restarts, and when it takes
the sender for restarted because its numbers ran over. All parts acknowledged and the event not taken on is a failure.

What is being put together is bounded. A receiver that runs out of room drops the oldest and does not acknowledge
its parts any more, so that its sender finds another way or tries again.
"""

import msgspec

from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.link.link import Link
from wend.protocol.messages import TX_MASK, Ack, Data, Fragment
from wend.protocol.notices import MISFIT, TOO_OLD, RefusalReason
from wend.protocol.plugins import Forward
from wend.protocol.ports import Notice, Refuse, Send
from wend.protocol.timers import Effects

PART_BYTES = 1_100
"""With headers, destinations and path it fits what almost every link carries in one piece."""
MAX_PAYLOAD_BYTES = 256 * 1024
MAX_PARTS = -(-MAX_PAYLOAD_BYTES // PART_BYTES)
IN_FLIGHT = 64
"""Parts of one event that may be unanswered at a time."""
ROOM_BYTES = 16 * 1024 * 1024
"""What a peer holds of unfinished events, of all its neighbours together."""
_REMEMBERED = 4096


class FragmentedEvent:
    """An event on its way over one link, in parts."""

    __slots__ = ("count", "forward", "next", "number", "open")

    def __init__(self, forward: Forward, number: int) -> None:
        self.forward = forward
        self.number = number
        self.count = -(-len(forward.event.payload) // PART_BYTES)
        self.next = 0
        self.open: set[int] = set()
        """Numbers of the parts that are not answered."""

    def part(self, now: Nanos, tx: int, index: int, me: PeerId) -> Fragment:
        forward = self.forward
        event = forward.event
        chunk = event.payload[index * PART_BYTES : (index + 1) * PART_BYTES]
        if index:
            return Fragment(tx, self.number, index, self.count, event.id, chunk)
        bare = Event(event.id, event.attributes, headers=event.headers)
        path = (*forward.path, me)
        age = now - forward.born_ns
        head = Data(self.number, bare, age, forward.dests, path, forward.header, forward.ranks)
        return Fragment(tx, self.number, index, self.count, event.id, chunk, head)


class FragmentInFlight(msgspec.Struct, frozen=True, gc=False):
    """One part of it, as the sender waits for its ACK."""

    peer: PeerId
    whole: FragmentedEvent
    index: int


class PartialEvent:
    """An event of which parts are missing."""

    __slots__ = ("chunks", "head", "head_ns", "missing", "size")

    def __init__(self, count: int) -> None:
        self.chunks: list[bytes | None] = [None] * count
        self.missing = count
        self.size = 64 + 8 * count
        """Bytes, with what the bookkeeping costs."""
        self.head: Data | None = None
        self.head_ns: Nanos = 0


class Reassembly:
    """What a peer has of events that come in parts."""

    def __init__(self, room_bytes: int = ROOM_BYTES) -> None:
        self._room = room_bytes
        self._held = 0
        self._unfinished: dict[tuple[PeerId, int], PartialEvent] = {}
        self._ended: dict[tuple[PeerId, int], bool] = {}
        """What became of the last ones: taken on, or dropped."""

    def __bool__(self) -> bool:
        """Whether an event is incomplete."""
        return bool(self._unfinished)

    def take(self, now: Nanos, link: Link, part: Fragment, effects: Effects) -> Data | None:
        """A part came. The event that it completes, not acknowledged yet; every other part is, unless it is refused.

        The caller takes that event on: the ACK of a part that is repeated then says so.
        """
        sender, number = link.peer, part.tx & TX_MASK
        taken = self._ended.get((sender, part.whole), False)
        if taken:
            effects.append(Notice("duplicate", sender))
        elif number not in link.window:
            reason = self.refuses(sender, part)
            if reason is not None:
                effects.append(Refuse(sender, reason))
                return None
            if self.completes(sender, part):
                return self.finish(now, sender, part)
            link.window.add(number)
            dropped = self.add(now, sender, part)
            if dropped:
                effects.append(Notice("reassembly-dropped", sender, dropped))
        elif link.window.too_old(number):
            effects.append(Refuse(sender, TOO_OLD))
            return None
        else:
            effects.append(Notice("duplicate", sender))
        link.sent_ns = now
        effects.append(Send(sender, Ack(part.tx, taken)))
        return None

    def refuses(self, sender: PeerId, part: Fragment) -> RefusalReason | None:
        """Why a part cannot be taken, in a sentence."""
        if not 1 < part.count <= MAX_PARTS or not 0 <= part.index < part.count:
            return "a fragment of nothing"
        if not 0 < len(part.chunk) <= PART_BYTES or (part.head is None) == (part.index == 0):
            return "a malformed fragment"
        if part.head is not None and not _fits(part.head):
            return MISFIT
        key = (sender, part.whole)
        if key in self._ended:
            return "a fragment of an event that was dropped"
        held = self._unfinished.get(key)
        if held is not None and len(held.chunks) != part.count:
            return "a fragment that does not fit the others"
        return None

    def completes(self, sender: PeerId, part: Fragment) -> bool:
        held = self._unfinished.get((sender, part.whole))
        return held is not None and held.missing == 1 and held.chunks[part.index] is None

    def add(self, now: Nanos, sender: PeerId, part: Fragment) -> int:
        """Keep it; how many unfinished events had to go for it."""
        self._keep(now, sender, part)
        gone = 0
        while self._held > self._room:
            self._end(next(iter(self._unfinished)), taken=False)
            gone += 1
        return gone

    def finish(self, now: Nanos, sender: PeerId, part: Fragment) -> Data:
        """The event that this part completes, as if it had come in one packet with the part's number."""
        held = self._keep(now, sender, part)
        self._end((sender, part.whole), taken=True)
        head = held.head
        assert head is not None
        payload = b"".join([chunk for chunk in held.chunks if chunk is not None])
        event = Event(head.event.id, head.event.attributes, payload, head.event.headers)
        age = head.age_ns + now - held.head_ns
        return Data(part.tx, event, age, head.dests, head.path, head.header, head.ranks)

    def _keep(self, now: Nanos, sender: PeerId, part: Fragment) -> PartialEvent:
        key = (sender, part.whole)
        held = self._unfinished.get(key)
        if held is None:
            held = self._unfinished[key] = PartialEvent(part.count)
            self._held += held.size
        if held.chunks[part.index] is None:
            held.chunks[part.index] = part.chunk
            held.missing -= 1
            held.size += len(part.chunk)
            self._held += len(part.chunk)
            if part.head is not None:
                held.head, held.head_ns = part.head, now
        return held

    def forget(self, sender: PeerId) -> int:
        """A new life of a neighbour does not go on with what the former began."""
        mine = [key for key in self._unfinished if key[0] == sender]
        for key in mine:
            self._held -= self._unfinished.pop(key).size
        return len(mine)

    def _end(self, key: tuple[PeerId, int], taken: bool) -> None:
        self._held -= self._unfinished.pop(key).size
        self._ended[key] = taken
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]


def _fits(head: Data) -> bool:
    return len(head.ranks) in (0, len(head.dests))
