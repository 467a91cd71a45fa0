"""Fragmentation: the sender of each hop splits what is larger than a packet, and the receiver reassembles it.

Events (`event_fragments.py`) and control messages (`control_fragments.py`) share this mechanism. They differ in what an
ACK of a fragment promises, and so in what a receiver may do when memory runs out:

- For an event, it promises nothing: another ACK confirms that the receiver accepted the whole event. So the receiver
  may drop the oldest incomplete event and stop acknowledging its fragments. The sender then tries again or elsewhere.
- For control, it promises that the fragment is stored. So the receiver refuses further fragments, and the sender
  repeats them. The receiver drops only a message that has not grown for a long time: its sender has given it up.

Memory for incomplete messages is bounded per neighbour and in total. A neighbour that sends too much loses its own
messages before those of others.
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
"""The payload of an event fragment. With headers, destinations and path it fits one packet in almost every network."""
CONTROL_FRAGMENT_BYTES = 16_000
STALE_NS = 120 * SECOND
"""When an incomplete message is stale: no sender repeats a fragment for this long."""
_OVERHEAD_BYTES = 512
_ENDED = 4096


class Limits(msgspec.Struct, frozen=True):
    """How much a receiver stores, and whether it evicts messages when it is full."""

    fragment_bytes: int
    fragments: int
    """The most fragments of one message."""
    neighbour_bytes: int
    total_bytes: int
    evicts: bool
    """Whether the oldest message is evicted to make room for new ones."""


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
    """How many fragments of this size a message of this length needs."""
    return -(-length // size)


def cut_fragment(message: bytes, index: int, size: int) -> bytes:
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
        """Approximate memory in bytes."""
        self.first: Any = None
        """The fragment with index 0, which arrived at `first_ns`."""
        self.first_ns: Nanos = 0
        self.grown_ns: Nanos = 0

    def is_missing(self, index: int) -> bool:
        return not self.chunks[index]

    def add(self, now: Nanos, fragment: AnyFragment) -> None:
        self.chunks[fragment.index] = fragment.chunk
        self.missing -= 1
        self.size += len(fragment.chunk)
        self.grown_ns = now
        if fragment.index == 0:
            self.first, self.first_ns = fragment, now

    def join(self) -> bytes:
        return b"".join(self.chunks)


class _Sender:
    """The incomplete and recently ended messages of one neighbour."""

    __slots__ = ("ended", "partial", "size")

    def __init__(self) -> None:
        self.partial: dict[Hashable, PartialMessage] = {}
        """Incomplete messages by key, oldest first."""
        self.ended: dict[Hashable, tuple[int, bool]] = {}
        """By key: the number of the last message that ended, and whether it was complete or dropped."""
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
        """The approximate memory of incomplete messages, in bytes."""
        return self._size

    def accept(
        self, now: Nanos, sender: PeerId, key: Hashable, number: int, fragment: AnyFragment, effects: Effects
    ) -> bool:
        """Store a fragment. Return False if it is refused, and so must not be acknowledged."""
        reason = self._refusal_code(sender, key, number, fragment)
        if reason is None:
            known = self._senders.get(sender)
            if known is None:
                known = self._senders[sender] = _Sender()
            partial = known.partial.get(key)
            ended = known.ended.get(key)
            if (ended is not None and number <= ended[0]) or (partial is not None and number < partial.number):
                return True  # of a message that is complete or replaced
            if partial is not None and number > partial.number:
                self._remove_message(known, key)
                partial = None
            if partial is None:
                partial = PartialMessage(number, fragment.count)
            if not partial.is_missing(fragment.index):
                return True
            if partial.missing > 1 and not self._make_room(now, sender, key, partial, fragment, effects):
                reason = "reassembly-full"
            else:
                self._store_fragment(now, known, key, partial, fragment)
        if reason is not None:
            effects.append(Refuse(sender, reason))
        return reason is None

    def pop_complete(self, sender: PeerId, key: Hashable) -> PartialMessage | None:
        """Remove and return a message if it is complete."""
        known = self._senders.get(sender)
        partial = None if known is None else known.partial.get(key)
        if known is None or partial is None or partial.missing:
            return None
        self._end_message(known, key, complete=True)
        return partial

    def was_completed(self, sender: PeerId, key: Hashable) -> bool:
        """Whether the last message under a key was complete."""
        known = self._senders.get(sender)
        return known is not None and known.ended.get(key, (0, False))[1]

    def forget(self, sender: PeerId) -> None:
        """Drop the messages of a neighbour that restarted: the new incarnation does not continue them."""
        known = self._senders.pop(sender, None)
        if known is not None:
            self._size -= known.size

    def _refusal_code(self, sender: PeerId, key: Hashable, number: int, fragment: AnyFragment) -> RefusalCode | None:
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
            self._drop_message(sender, stale, effects)
        while self._lacks_room(known, size):
            if not limits.evicts:
                return False
            loser = sender
            if known.size + size <= limits.neighbour_bytes:
                loser = max(self._senders, key=lambda peer: self._senders[peer].size)
            oldest = next((k for k in self._senders[loser].partial if loser != sender or k != key), None)
            if oldest is None:
                return False
            self._drop_message(loser, oldest, effects)
        return True

    def _lacks_room(self, known: _Sender, size: int) -> bool:
        limits = self._limits
        return known.size + size > limits.neighbour_bytes or self._size + size > limits.total_bytes

    def _store_fragment(
        self, now: Nanos, known: _Sender, key: Hashable, partial: PartialMessage, fragment: AnyFragment
    ) -> None:
        before = partial.size if key in known.partial else 0
        known.partial[key] = partial
        partial.add(now, fragment)
        known.size += partial.size - before
        self._size += partial.size - before

    def _drop_message(self, sender: PeerId, key: Hashable, effects: Effects) -> None:
        self._end_message(self._senders[sender], key, complete=False)
        effects.append(Notice("reassembly-dropped", sender))

    def _end_message(self, known: _Sender, key: Hashable, complete: bool) -> None:
        number = known.partial[key].number
        self._remove_message(known, key)
        known.ended.pop(key, None)
        known.ended[key] = (number, complete)
        if len(known.ended) > _ENDED:
            del known.ended[next(iter(known.ended))]

    def _remove_message(self, known: _Sender, key: Hashable) -> None:
        size = known.partial.pop(key).size
        known.size -= size
        self._size -= size
