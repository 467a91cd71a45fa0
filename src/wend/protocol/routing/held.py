"""What waits for a tree: events from here that some may not have got yet, and copies that could not go on.

Trees reach those who were linked when they were built. An event that is published before there are any, or while
somebody is cut off, is held for whom it did not reach, and goes to them by name on the first trees that do. A copy
whose next hop is down is held for all behind it. Nothing is held longer than `HOLD_NS` after its birth: what is owed
then is dropped, by name, and so is what does not fit.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from wend.model.events import Event, EventId, PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.messages import Lane
from wend.protocol.notices import Why
from wend.protocol.ports import Drop

HOLD_NS: Nanos = 30 * SECOND
"""How old an event may get for those who cannot be reached; persistency has no such bound."""
SETTLE_NS: Nanos = 10 * SECOND
"""Trees that have served for so long have everybody on them: there is no need to remember what went out on them."""
NO_TREE: Final = "not on a tree in time"
NO_ROOM: Final = "too many wait for a tree"


class Mine(msgspec.Struct, frozen=True, gc=False):
    """An event from here (or one that came on a tree that nobody knows any more), and who was on its trees."""

    event: Event
    born_ns: Nanos
    reached: frozenset[PeerId] = frozenset()
    once: bool = False
    """Others carry it too: one tree is enough."""


class Copy(msgspec.Struct, frozen=True, gc=False):
    """What could not go on to `peer`, on this lane, for all who are `owed` it; on any tree where there is no lane."""

    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    owed: frozenset[PeerId]
    lane: Lane | None
    peer: PeerId


class Held:
    def __init__(self) -> None:
        self.mine: dict[EventId, Mine] = {}
        self.copies: list[Copy] = []
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

    def unsettled(self, now: Nanos, born: Nanos) -> bool:
        """Whether the trees that serve may not reach everybody to whom an event of that time is owed."""
        return bool(self._owed(born)) or len(self._members) <= 1 or now - self._since < SETTLE_NS

    def _owed(self, born: Nanos) -> list[PeerId]:
        return [peer for peer, since in self._missing.items() if born - since <= HOLD_NS]

    def hold(self, what: Mine | Copy, limit: int) -> list[Drop]:
        if isinstance(what, Copy):
            self.copies.append(what)
            return [self._lost(self.copies.pop(0), NO_ROOM)] if len(self.copies) > limit else []
        self.mine[what.event.id] = what
        if len(self.mine) <= limit:
            return []
        return self._let_go(self.mine.pop(next(iter(self.mine))), NO_ROOM)

    def expire(self, now: Nanos) -> list[Drop]:
        drops: list[Drop] = []
        old = [mine for mine in self.mine.values() if now - mine.born_ns > HOLD_NS]
        for mine in old:
            del self.mine[mine.event.id]
            drops += self._let_go(mine, NO_TREE)
        drops += [self._lost(copy, NO_TREE) for copy in self.copies if now - copy.born_ns > HOLD_NS]
        self.copies = [copy for copy in self.copies if now - copy.born_ns <= HOLD_NS]
        return drops

    def _lost(self, copy: Copy, reason: Why) -> Drop:
        return Drop(copy.event.id, tuple(sorted(copy.owed)), reason)

    def _let_go(self, mine: Mine, reason: Why) -> list[Drop]:
        """Nothing is owed to those whom nobody knows; but what has reached nobody was to reach somebody."""
        owed = tuple(sorted(set(self._owed(mine.born_ns)) - mine.reached))
        if not owed and len(mine.reached) <= 1:
            owed = (mine.event.id.publisher,)
        return [Drop(mine.event.id, owed, reason)] if owed else []
