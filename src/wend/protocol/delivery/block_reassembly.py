"""Reassembly of coded events at their subscribers' peer: blocks wait until there are enough of one version.

Memory is bounded: the oldest incomplete event makes room for new ones. An event that gets no block for a while is
dropped. Both are counted as `code-incomplete`.
"""

from typing import Final

from wend.model.blocks import is_valid_block, join_blocks
from wend.model.events import Event, EventId, PeerId, event_bytes
from wend.model.units import SECOND, Nanos
from wend.protocol.link.window import DuplicateFilter
from wend.protocol.ports import Drop, Notice, Refuse
from wend.protocol.timers import Effects, Timers

WAIT_NS: Final = 30 * SECOND
"""How long an incomplete event waits for its next block."""
MAX_BYTES: Final = 16_000_000
"""The most memory of all incomplete events, roughly."""
INCOMPLETE: Final = "code-incomplete"


class IncompleteEvent:
    """The blocks of an event that have arrived."""

    __slots__ = ("blocks", "grown_ns", "size", "version")

    def __init__(self, event: Event) -> None:
        self.version = _version(event)
        self.blocks: dict[int, Event] = {}
        self.size = 0
        self.grown_ns: Nanos = 0


class BlockReassembly:
    __slots__ = ("_check_ns", "_delivered", "_me", "_partial", "_size", "_timers")

    def __init__(self, me: PeerId, timers: Timers, delivered: DuplicateFilter) -> None:
        self._me = me
        self._delivered = delivered
        self._timers = timers
        self._partial: dict[EventId, IncompleteEvent] = {}
        """Incomplete events; the one that has waited longest for a block is the first."""
        self._size = 0
        self._check_ns: Nanos | None = None

    @property
    def ids(self) -> tuple[EventId, ...]:
        """The events that lack blocks."""
        return tuple([id_ for id_ in self._partial if id_ not in self._delivered])

    @property
    def size(self) -> int:
        """The approximate memory of incomplete events, in bytes."""
        return self._size

    def add(self, now: Nanos, block: Event, effects: Effects) -> Event | None:
        """Add a block. Return the event that it completes."""
        if not is_valid_block(block):
            effects.append(Refuse(block.id.publisher, "invalid-block"))
            return None
        if block.id in self._delivered:
            self._forget(block.id)  # a whole copy overtook the blocks
            too_old = Drop(block.id, (self._me,), "beyond-duplicate-filter")
            effects.append(too_old if self._delivered.is_too_old(block.id) else Notice("surplus-block", self._me))
            return None
        assert block.block is not None
        partial = self._partial.get(block.id)
        if partial is None:
            partial = IncompleteEvent(block)
        elif partial.version != _version(block):
            effects.append(Refuse(block.id.publisher, "block-mismatch"))
            return None
        elif block.block.index in partial.blocks:
            effects.append(Notice("surplus-block", self._me))
            return None
        self._partial.pop(block.id, None)
        self._partial[block.id] = partial
        partial.blocks[block.block.index] = block
        size = event_bytes(block)
        partial.size += size
        self._size += size
        if len(partial.blocks) == block.block.needed:
            self._forget(block.id)
            event = join_blocks(partial.blocks)
            if event is None:
                effects.append(Refuse(block.id.publisher, "corrupt-blocks"))
                effects.append(Drop(block.id, (self._me,), INCOMPLETE))
            return event
        partial.grown_ns = now
        self._make_room(effects)
        if self._check_ns is None:
            self._set_check(now + WAIT_NS)
        return None

    def _forget(self, id_: EventId) -> None:
        partial = self._partial.pop(id_, None)
        if partial is not None:
            self._size -= partial.size

    def _make_room(self, effects: Effects) -> None:
        while self._size > MAX_BYTES and len(self._partial) > 1:
            self._drop(next(iter(self._partial)), effects)

    def _drop(self, id_: EventId, effects: Effects) -> None:
        self._forget(id_)
        if id_ not in self._delivered:
            effects.append(Drop(id_, (self._me,), INCOMPLETE))

    def _set_check(self, time: Nanos) -> None:
        self._check_ns = time
        self._timers.set_timer(time, self._expire, None)

    def _expire(self, now: Nanos, _: None, effects: Effects) -> None:
        """Drop the events that have waited too long."""
        self._check_ns = None
        for id_, partial in list(self._partial.items()):
            if partial.grown_ns + WAIT_NS > now:
                self._set_check(partial.grown_ns + WAIT_NS)
                return
            self._drop(id_, effects)


def _version(event: Event) -> tuple[int, int, int]:
    block = event.block
    assert block is not None
    return block.needed, block.length, block.checksum
