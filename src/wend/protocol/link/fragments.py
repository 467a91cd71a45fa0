"""Fragmentation: the sender of each hop splits what is larger than a packet, and the receiver reassembles it.

Events (`event_fragments.py`) and control messages (`control_fragments.py`) share this mechanism. They differ in what an
ACK of a fragment promises, and so in what a receiver may do when memory runs out:

- For an event, it promises nothing: another ACK says that the receiver accepted the whole event. So the receiver drops
  the oldest incomplete event, acknowledges no more of its fragments, and the sender tries again or elsewhere.
- For control, it promises that the fragment is held. So the receiver refuses further fragments, and the sender repeats
  them. Only a message that has not grown for long is dropped, because its sender has given it up.

Memory for incomplete messages is bounded for each neighbour and in all. A neighbour that sends too much loses messages
of its own before those of others.
"""

from collections.abc import Hashable
from typing import Any, Protocol

import msgspec

from wend.model.events import PeerId
from wend.model.publication import MAX_PAYLOAD_BYTES
from wend.model.units import SECOND, Nanos
from wend.protocol.messages import MAX_CONTROL_BYTES
from wend.protocol.notices import RefusalCode
from wend.protocol.ports import Notice, Refuse
from wend.protocol.timers import Effects

FRAGMENT_BYTES = 1_100
"""Of an event. With headers, destinations and path it fits into one packet of almost every network."""
CONTROL_FRAGMENT_BYTES = 16_000
STALE_NS = 120 * SECOND
"""Longer than any sender repeats a fragment."""
_OVERHEAD_BYTES = 512
_ENDED = 4096


class Limits(msgspec.Struct, frozen=True):
    """How much a receiver accepts, and what it does beyond that."""

    fragment_bytes: int
    fragments: int
    """Of one message."""
    neighbour_bytes: int
    total_bytes: int
    evicts: bool
    """Whether the oldest message makes room for new ones."""


EVENTS = Limits(
    fragment_bytes=FRAGMENT_BYTES,
    fragments=-(-MAX_PAYLOAD_BYTES // FRAGMENT_BYTES),
    neighbour_bytes=8_000_000,
    total_bytes=16_000_000,
    evicts=True,
)
CONTROL = Limits(
    fragment_bytes=CONTROL_FRAGMENT_BYTES,
    fragments=MAX_CONTROL_BYTES // CONTROL_FRAGMENT_BYTES,
    neighbour_bytes=8 * MAX_CONTROL_BYTES,
    total_bytes=64 * MAX_CONTROL_BYTES,
    evicts=False,
)


def fragment_count(length: int, size: int) -> int:
    """How many fragments of this size so many bytes make."""
    return -(-length // size)


def chunk(message: bytes, index: int, size: int) -> bytes:
    """The bytes of one fragment."""
    return message[index * size : (index + 1) * size]


class AnyFragment(Protocol):
    """What fragments of events and of control have in common."""

    @property
    def index(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def chunk(self) -> bytes: ...


class PartialMessage:
    """A message with fragments missing."""

    __slots__ = ("chunks", "first", "first_ns", "grown_ns", "missing", "number", "size")

    def __init__(self, number: int, count: int) -> None:
        self.number = number
        self.chunks: list[bytes] = [b""] * count
        self.missing = count
        self.size = _OVERHEAD_BYTES + 8 * count
        """Bytes of memory, roughly."""
        self.first: Any = None
        """The fragment with index 0, which came at `first_ns`."""
        self.first_ns: Nanos = 0
        self.grown_ns: Nanos = 0

    def needs(self, index: int) -> bool:
        return not self.chunks[index]

    def add(self, now: Nanos, fragment: AnyFragment) -> None:
        self.chunks[fragment.index] = fragment.chunk
        self.missing -= 1
        self.size += len(fragment.chunk)
        self.grown_ns = now
        if fragment.index == 0:
            self.first, self.first_ns = fragment, now

    def joined(self) -> bytes:
        return b"".join(self.chunks)


class _Sender:
    """The messages of one neighbour."""

    __slots__ = ("ended", "partial", "size")

    def __init__(self) -> None:
        self.partial: dict[Hashable, PartialMessage] = {}
        """The oldest first."""
        self.ended: dict[Hashable, tuple[int, bool]] = {}
        """The number of the last message under a key, and whether it was complete. If not, it was dropped."""
        self.size = 0


class Reassembly:
    """The incomplete messages of all neighbours.

    Fragments of one message have the same key and number. Under one key, a message with a higher number replaces one
    with a lower number.
    """

    __slots__ = ("_limits", "_senders", "_size")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._senders: dict[PeerId, _Sender] = {}
        self._size = 0

    def __bool__(self) -> bool:
        """Whether a message is incomplete."""
        return self._size > 0

    @property
    def size(self) -> int:
        """Bytes of memory that incomplete messages take, roughly."""
        return self._size

    def accept(
        self, now: Nanos, sender: PeerId, key: Hashable, number: int, fragment: AnyFragment, effects: Effects
    ) -> bool:
        """Hold a fragment. False if it is refused, and so must not be acknowledged."""
        reason = self._refuses(sender, key, number, fragment)
        if reason is None:
            known = self._senders.get(sender)
            if known is None:
                known = self._senders[sender] = _Sender()
            partial = known.partial.get(key)
            ended = known.ended.get(key)
            if (ended is not None and number <= ended[0]) or (partial is not None and number < partial.number):
                return True  # of a message that is complete or replaced
            if partial is not None and number > partial.number:
                self._remove(known, key)
                partial = None
            if partial is None:
                partial = PartialMessage(number, fragment.count)
            if not partial.needs(fragment.index):
                return True
            if partial.missing > 1 and not self._make_room(now, sender, key, partial, fragment, effects):
                reason = "reassembly-full"
            else:
                self._hold(now, known, key, partial, fragment)
        if reason is not None:
            effects.append(Refuse(sender, reason))
        return reason is None

    def complete(self, sender: PeerId, key: Hashable) -> PartialMessage | None:
        """Take a message out, if it is complete."""
        known = self._senders.get(sender)
        partial = None if known is None else known.partial.get(key)
        if known is None or partial is None or partial.missing:
            return None
        self._end(known, key, complete=True)
        return partial

    def completed(self, sender: PeerId, key: Hashable) -> bool:
        """Whether the last message under a key was complete."""
        known = self._senders.get(sender)
        return known is not None and known.ended.get(key, (0, False))[1]

    def forget(self, sender: PeerId) -> None:
        """A new incarnation of a neighbour does not continue the messages of the former one."""
        known = self._senders.pop(sender, None)
        if known is not None:
            self._size -= known.size

    def _refuses(self, sender: PeerId, key: Hashable, number: int, fragment: AnyFragment) -> RefusalCode | None:
        limits = self._limits
        if not 1 < fragment.count <= limits.fragments or not 0 <= fragment.index < fragment.count:
            return "invalid-fragment-index"
        if not 0 < len(fragment.chunk) <= limits.fragment_bytes:
            return "malformed-fragment"
        known = self._senders.get(sender)
        if known is None:
            return None
        partial = known.partial.get(key)
        if partial is not None and partial.number == number and len(partial.chunks) != fragment.count:
            return "fragment-mismatch"
        if known.ended.get(key) == (number, False):
            return "fragment-of-dropped"
        return None

    def _make_room(
        self,
        now: Nanos,
        sender: PeerId,
        key: Hashable,
        partial: PartialMessage,
        fragment: AnyFragment,
        effects: Effects,
    ) -> bool:
        limits, known = self._limits, self._senders[sender]
        size = len(fragment.chunk) + (0 if key in known.partial else partial.size)
        if not self._lacks_room(known, size):
            return True
        for stale in [k for k, p in known.partial.items() if k != key and now - p.grown_ns > STALE_NS]:
            self._drop(sender, stale, effects)
        while self._lacks_room(known, size):
            if not limits.evicts:
                return False
            loser = sender
            if known.size + size <= limits.neighbour_bytes:
                loser = max(self._senders, key=lambda peer: self._senders[peer].size)
            oldest = next((k for k in self._senders[loser].partial if loser != sender or k != key), None)
            if oldest is None:
                return False
            self._drop(loser, oldest, effects)
        return True

    def _lacks_room(self, known: _Sender, size: int) -> bool:
        limits = self._limits
        return known.size + size > limits.neighbour_bytes or self._size + size > limits.total_bytes

    def _hold(self, now: Nanos, known: _Sender, key: Hashable, partial: PartialMessage, fragment: AnyFragment) -> None:
        before = partial.size if key in known.partial else 0
        known.partial[key] = partial
        partial.add(now, fragment)
        known.size += partial.size - before
        self._size += partial.size - before

    def _drop(self, sender: PeerId, key: Hashable, effects: Effects) -> None:
        self._end(self._senders[sender], key, complete=False)
        effects.append(Notice("reassembly-dropped", sender))

    def _end(self, known: _Sender, key: Hashable, complete: bool) -> None:
        number = known.partial[key].number
        self._remove(known, key)
        known.ended.pop(key, None)
        known.ended[key] = (number, complete)
        if len(known.ended) > _ENDED:
            del known.ended[next(iter(known.ended))]

    def _remove(self, known: _Sender, key: Hashable) -> None:
        size = known.partial.pop(key).size
        known.size -= size
        self._size -= size
