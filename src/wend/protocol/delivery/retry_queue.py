"""Persistency: what the dcrd paper leaves out. A packet that cannot go on is kept and tried again.

The peer answers for an event from the moment it acknowledges it until all its destinations were handed
on; with persistency that duty is stored before the ACK, so it outlives a crash. What cannot go on waits
here, bounded: when full, the packet with the oldest deadline goes first, and is counted.
"""

from collections.abc import Iterable
from itertools import islice

from wend.model.events import EventId, PeerId
from wend.model.units import FOREVER, Nanos
from wend.protocol.copy_ranks import Ranks, ranks_below
from wend.protocol.plugins import GiveUp
from wend.protocol.records import PendingRecord, Record, ReleasedRecord


class RetryQueue:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._duties: dict[EventId, PendingRecord] = {}
        self._waiting: dict[EventId, tuple[Nanos, GiveUp]] = {}
        self._rests: dict[EventId, tuple[Nanos, Nanos]] = {}
        """How long what failed is left alone, and until when."""

    def __len__(self) -> int:
        return len(self._waiting)

    def answered_for(self) -> list[EventId]:
        """But for what is only remembered where it was published, lest somebody want it who is not known yet."""
        return [id_ for id_, duty in self._duties.items() if duty.dests != (id_.publisher,)]

    def accept(self, duty: PendingRecord) -> Record:
        """From now on this peer answers for these destinations (and those it answered for before)."""
        before = self._duties.get(duty.event.id)
        if before is not None:
            dests, ranks = _highest(before, duty)
            duty = PendingRecord(duty.event, before.born_ns, dests, ranks)
        self._duties[duty.event.id] = duty
        return duty

    def handed_on(self, id_: EventId, dests: tuple[PeerId, ...], ranks: Ranks) -> Record | None:
        """A neighbour answers for these now. The record to store when nothing is left.

        A copy that ranks below the one answered for does not end the duty: it may be dropped where the
        higher one has been.
        """
        duty = self._duties.get(id_)
        if duty is None:
            return None
        if dests == duty.dests and not (any(ranks) or any(duty.ranks)):  # the first copy, to all
            return self._end(id_)
        gone = dict(zip(dests, ranks or (0,) * len(dests), strict=False))
        owed = [(d, m) for d, m in _ranked(duty) if d not in gone or ranks_below(gone[d], m)]
        if owed:
            self._duties[id_] = PendingRecord(
                duty.event, duty.born_ns, tuple(d for d, _ in owed), tuple(m for _, m in owed)
            )
            return None
        return self._end(id_)

    def abandon(self, id_: EventId, dests: tuple[PeerId, ...]) -> Record | None:
        """These are given up for good. The record to store when nothing is left."""
        duty = self._duties.get(id_)
        if duty is None:
            return None
        owed = [(d, m) for d, m in _ranked(duty) if d not in dests]
        if owed:
            self._duties[id_] = PendingRecord(
                duty.event, duty.born_ns, tuple(d for d, _ in owed), tuple(m for _, m in owed)
            )
            return None
        return self._end(id_)

    def _end(self, id_: EventId) -> Record:
        del self._duties[id_]
        self._waiting.pop(id_, None)
        self._rests.pop(id_, None)
        return ReleasedRecord(id_)

    def owed(self, stuck: GiveUp) -> GiveUp | None:
        """What of it this peer still answers for: another copy may have gone on meanwhile."""
        duty = self._duties.get(stuck.event.id)
        left = [] if duty is None else [(d, m) for d, m in _ranked(stuck) if d in duty.dests]
        if not left:
            return None
        return GiveUp(stuck.event, stuck.born_ns, tuple(d for d, _ in left), stuck.reason, tuple(m for _, m in left))

    def wait(self, stuck: GiveUp, deadline_ns: Nanos | None) -> list[GiveUp]:
        """Keep it for later; what had to make room is returned."""
        id_ = stuck.event.id
        due = FOREVER if deadline_ns is None else stuck.born_ns + deadline_ns
        if id_ in self._waiting:
            due = min(due, self._waiting[id_][0])
            dests, ranks = _highest(self._waiting[id_][1], stuck)
            stuck = GiveUp(stuck.event, stuck.born_ns, dests, stuck.reason, ranks)
        self._waiting[id_] = (due, stuck)
        if len(self._waiting) <= self._limit:
            return []
        oldest = min(self._waiting, key=lambda i: (self._waiting[i][0], i))
        return [self._waiting.pop(oldest)[1]]

    def rest(self, now: Nanos, id_: EventId, first_ns: Nanos, most_ns: Nanos) -> None:
        """What fails again and again is tried less and less often."""
        pause = min(2 * self._rests[id_][0], most_ns) if id_ in self._rests else first_ns
        self._rests[id_] = (pause, now + pause)

    def wake(self) -> None:
        """Something has changed: all of it may be tried again at once."""
        self._rests.clear()

    def soonest(self) -> Nanos | None:
        """When something that waits may be tried again."""
        return min((self._until(id_) for id_ in self._waiting), default=None)

    def take(self, now: Nanos, count: int) -> list[GiveUp]:
        """Those that wait longest, to be tried again: by turns, lest a dead end starve the rest."""
        chosen = list(islice((id_ for id_ in self._waiting if self._until(id_) <= now), count))
        return [self._waiting.pop(id_)[1] for id_ in chosen]

    def _until(self, id_: EventId) -> Nanos:
        return self._rests[id_][1] if id_ in self._rests else 0


def _ranked(what: PendingRecord | GiveUp) -> Iterable[tuple[PeerId, int]]:
    return zip(what.dests, what.ranks or (0,) * len(what.dests), strict=False)


def _highest(a: PendingRecord | GiveUp, b: PendingRecord | GiveUp) -> tuple[tuple[PeerId, ...], Ranks]:
    """Both of one event; a destination of both keeps the higher mark."""
    ranks: dict[PeerId, int] = {}
    for dest, rank in (*_ranked(a), *_ranked(b)):
        ranks[dest] = max(rank, ranks.get(dest, 0))
    dests = tuple(sorted(ranks))
    return dests, tuple(ranks[d] for d in dests)
