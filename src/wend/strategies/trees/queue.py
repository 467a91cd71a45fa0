"""The tree queue: this peer's own events that some peers may lack, and copies whose next hop is down.

Trees reach the peers that were linked when the trees were built. If an event is published before there are trees, or
while a peer is cut off, the queue stores it for the peers that it did not reach, and sends it to them by name on the
first trees that include them. The same holds for an event published while the next trees are being built, or while a
neighbour is not on the serving trees. If a copy's next hop is down, the queue stores the copy for all peers behind it.
The queue stores nothing longer than `HOLD_NS` after publication: then it drops the event, and names the peers that
lack it. It does the same when it is full.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from wend.model.events import Event, EventId, PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.plugins import CopyKey, Drop, DropCode, copy_key

HOLD_NS: Nanos = 30 * SECOND
"""The greatest age of an event for unreachable peers. Persistence has no such bound."""
SETTLE_NS: Nanos = 10 * SECOND
"""Trees that have served for this long include every peer: the queue need not store the events sent on them."""
NO_TREE: Final = "tree-timeout"
NO_ROOM: Final = "tree-queue-full"
UNSTABLE: Final = "trees-unstable"


class OwnEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of this peer, or one that arrived on an unknown tree, with the peers that its trees included."""

    event: Event
    born_ns: Nanos
    reached: frozenset[PeerId] = frozenset()
    needs_one_tree: bool = False
    """Copies of it travel on other trees: one tree is enough."""


class BlockedCopy(msgspec.Struct, frozen=True, gc=False):
    """A copy that waits for the link to `peer` on the tree of `header`, or for any tree if `header` is None.

    `owed` are the peers that lack it.
    """

    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    owed: frozenset[PeerId]
    header: Any
    peer: PeerId


class Unreached(msgspec.Struct, frozen=True, gc=False):
    """Peers that may be on the next trees and are not on the serving ones."""

    neighbours: tuple[PeerId, ...] = ()
    """Neighbours whose links work."""
    is_building: bool = False
    """Whether the next trees are being built. They may include any peer."""


NOBODY = Unreached()


class TreeQueue:
    """Events and copies that wait for trees or links, for at most `HOLD_NS`."""

    def __init__(self) -> None:
        self.own_events: dict[CopyKey, OwnEvent] = {}
        self.copies: list[BlockedCopy] = []
        self._members: frozenset[PeerId] = frozenset()
        self._since: Nanos = 0
        self._missing: dict[PeerId, Nanos] = {}

    def __iter__(self) -> Iterator[EventId]:
        yield from (own.event.id for own in self.own_events.values())
        yield from (copy.event.id for copy in self.copies)

    def start_serving(self, now: Nanos, members: frozenset[PeerId]) -> None:
        """New trees serve. Peers that were on the former trees and are not on these count as missing, for a while."""
        lost = dict.fromkeys(sorted(self._members - members), now)
        missing = {p: since for p, since in self._missing.items() if p not in members and now - since <= 2 * HOLD_NS}
        self._missing = {**lost, **missing}
        self._members, self._since = members, now

    def is_unsettled(self, now: Nanos, born: Nanos, unreached: Unreached) -> bool:
        """Whether the serving trees may lack a peer that should get an event published at that time."""
        may_lack = unreached.is_building or unreached.neighbours or self._recently_lost(born)
        return bool(may_lack) or len(self._members) <= 1 or now - self._since < SETTLE_NS

    def _recently_lost(self, born: Nanos) -> list[PeerId]:
        return [peer for peer, since in self._missing.items() if born - since <= HOLD_NS]

    def add(self, what: OwnEvent | BlockedCopy, limit: int, unreached: Unreached = NOBODY) -> list[Drop]:
        if isinstance(what, BlockedCopy):
            self.copies.append(what)
            return [self._drop_copy(self.copies.pop(0), NO_ROOM)] if len(self.copies) > limit else []
        self.own_events[copy_key(what.event)] = what
        if len(self.own_events) <= limit:
            return []
        return self._remove_own(self.own_events.pop(next(iter(self.own_events))), NO_ROOM, unreached)

    def expire(self, now: Nanos, unreached: Unreached) -> list[Drop]:
        drops: list[Drop] = []
        old = [own for own in self.own_events.values() if now - own.born_ns > HOLD_NS]
        for own in old:
            del self.own_events[copy_key(own.event)]
            drops += self._remove_own(own, NO_TREE, unreached)
        drops += [self._drop_copy(copy, NO_TREE) for copy in self.copies if now - copy.born_ns > HOLD_NS]
        self.copies = [copy for copy in self.copies if now - copy.born_ns <= HOLD_NS]
        return drops

    def _drop_copy(self, copy: BlockedCopy, reason: DropCode) -> Drop:
        return Drop(copy.event.id, tuple(sorted(copy.owed)), reason)

    def _remove_own(self, own: OwnEvent, reason: DropCode, unreached: Unreached) -> list[Drop]:
        """Remove an event and return its drops.

        If the event reached no other peer, it is dropped for its publisher. If known peers lack it, it is dropped for
        them. If the trees did not become stable in time, some peer may lack it, so the drop names the publisher.
        """
        id_ = own.event.id
        owed = tuple(sorted({*self._recently_lost(own.born_ns), *unreached.neighbours} - own.reached))
        if owed or len(own.reached) <= 1:
            return [Drop(id_, owed or (id_.publisher,), reason)]
        return [Drop(id_, (id_.publisher,), UNSTABLE)] if reason == NO_TREE or unreached.is_building else []
