"""What waits for a tree: events from here that some may not have got yet, and copies that could not go on.

Trees reach those who were linked when they were built. An event that is published before there are any, or while
somebody is cut off, is held for whom it did not reach, and goes to them by name on the first trees that do; so is one
that is published while the next trees are under way, or a neighbour is not on those that serve. A copy whose next hop
is down is held for all behind it. Nothing is held longer than `HOLD_NS` after its birth: what is owed
then is dropped, by name, and so is what does not fit.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from wend.model.events import Event, EventId, PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.notices import DropReason
from wend.protocol.ports import Drop

HOLD_NS: Nanos = 30 * SECOND
"""How old an event may get for those who cannot be reached; persistency has no such bound."""
SETTLE_NS: Nanos = 10 * SECOND
"""Trees that have served for so long have everybody on them: there is no need to remember what went out on them."""
NO_TREE: Final = "no tree in time"
NO_ROOM: Final = "tree queue full"
NO_REST: Final = "trees unstable"


class OwnEvent(msgspec.Struct, frozen=True, gc=False):
    """An event from here (or one that came on a tree that nobody knows any more), and who was on its trees."""

    event: Event
    born_ns: Nanos
    reached: frozenset[PeerId] = frozenset()
    once: bool = False
    """Others carry it too: one tree is enough."""


class BlockedCopy(msgspec.Struct, frozen=True, gc=False):
    """What could not go on to `peer`, on this lane, for all who are `owed` it; on any tree where there is no lane."""

    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    owed: frozenset[PeerId]
    header: Any
    peer: PeerId


class Unreached(msgspec.Struct, frozen=True, gc=False):
    """Who may be on the next trees and is not on those that serve."""

    beside: tuple[PeerId, ...] = ()
    """Neighbours whose links work."""
    building: bool = False
    """Those are under way, and may have anybody on them."""


NOBODY = Unreached()


class TreeQueue:
    def __init__(self) -> None:
        self.mine: dict[EventId, OwnEvent] = {}
        self.copies: list[BlockedCopy] = []
        self._members: frozenset[PeerId] = frozenset()
        self._since: Nanos = 0
        self._missing: dict[PeerId, Nanos] = {}

    def __iter__(self) -> Iterator[EventId]:
        yield from self.mine
        yield from (copy.event.id for copy in self.copies)

    def serves(self, now: Nanos, members: frozenset[PeerId]) -> None:
        """Other trees serve: who was on the former and is not on these is missing, for a while."""
        lost = dict.fromkeys(sorted(self._members - members), now)
        known = {p: since for p, since in self._missing.items() if p not in members and now - since <= 2 * HOLD_NS}
        self._missing = {**lost, **known}
        self._members, self._since = members, now

    def unsettled(self, now: Nanos, born: Nanos, others: Unreached) -> bool:
        """Whether the trees that serve may not reach everybody to whom an event of that time is owed."""
        waited_for = others.building or others.beside or self._owed(born)
        return bool(waited_for) or len(self._members) <= 1 or now - self._since < SETTLE_NS

    def _owed(self, born: Nanos) -> list[PeerId]:
        return [peer for peer, since in self._missing.items() if born - since <= HOLD_NS]

    def hold(self, what: OwnEvent | BlockedCopy, limit: int, others: Unreached = NOBODY) -> list[Drop]:
        if isinstance(what, BlockedCopy):
            self.copies.append(what)
            return [self._lost(self.copies.pop(0), NO_ROOM)] if len(self.copies) > limit else []
        self.mine[what.event.id] = what
        if len(self.mine) <= limit:
            return []
        return self._let_go(self.mine.pop(next(iter(self.mine))), NO_ROOM, others)

    def expire(self, now: Nanos, others: Unreached) -> list[Drop]:
        drops: list[Drop] = []
        old = [mine for mine in self.mine.values() if now - mine.born_ns > HOLD_NS]
        for mine in old:
            del self.mine[mine.event.id]
            drops += self._let_go(mine, NO_TREE, others)
        drops += [self._lost(copy, NO_TREE) for copy in self.copies if now - copy.born_ns > HOLD_NS]
        self.copies = [copy for copy in self.copies if now - copy.born_ns <= HOLD_NS]
        return drops

    def _lost(self, copy: BlockedCopy, reason: DropReason) -> Drop:
        return Drop(copy.event.id, tuple(sorted(copy.owed)), reason)

    def _let_go(self, mine: OwnEvent, reason: DropReason, others: Unreached) -> list[Drop]:
        """What has reached nobody was to reach somebody. Else nothing is owed to those whom nobody knows; but where
        trees did not come to rest while it was held, nobody can say that all were on them."""
        id_ = mine.event.id
        owed = tuple(sorted({*self._owed(mine.born_ns), *others.beside} - mine.reached))
        if owed or len(mine.reached) <= 1:
            return [Drop(id_, owed or (id_.publisher,), reason)]
        return [Drop(id_, (id_.publisher,), NO_REST)] if reason == NO_TREE or others.building else []
