"""The retry queue: pending records, and the packets that wait for a route. The dcrd paper does not cover persistence.

A peer is responsible for an event from its ACK until neighbours have acknowledged all its destinations. With
persistence the peer stores a pending record before the ACK, so the responsibility outlives a crash. A packet
without a route waits here. The queue is bounded by number and by bytes: if it is full, the peer drops the packets with
the earliest deadline and counts the drops.
"""

from collections import Counter
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from wend.model.events import EventId, PeerId, event_bytes
from wend.model.units import FOREVER, Nanos
from wend.protocol.delivery.retry_pauses import Permit, RetryPauses
from wend.protocol.plugins import GiveUp
from wend.protocol.plugins.copy_ranks import Ranks, ranks_below
from wend.protocol.records import PendingRecord, Record, ReleasedRecord

Lane = tuple[tuple[PeerId, ...], PeerId, int]
"""Waiting events with the same destinations, publisher and incarnation. They leave in the order of publication."""


class RetryQueue:
    """The events that this peer is responsible for, and which of them wait for a retry."""

    def __init__(self, limit: int, limit_bytes: int) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._records: dict[EventId, PendingRecord] = {}
        self._waiting: dict[EventId, tuple[Nanos, GiveUp]] = {}
        """Waiting packets with their deadlines, by event."""
        self._waiting_bytes = 0
        self._by_deadline: list[tuple[Nanos, EventId]] | None = None
        """A heap of waiting events and some former ones; created when the queue is full for the first time."""
        self._lanes: dict[Lane, list[int]] = {}
        """The heaps of sequence numbers, some of events that have left. The lane whose turn is next comes first."""
        self._waiting_for: Counter[tuple[PeerId, PeerId]] = Counter()
        """How many events of a publisher wait for a destination."""
        self.pauses = RetryPauses(limit)

    def __len__(self) -> int:
        return len(self._waiting)

    def responsible_ids(self) -> list[EventId]:
        """The events that this peer is responsible for, except those stored only for late joiners."""
        return [id_ for id_, record in self._records.items() if record.dests != (id_.publisher,)]

    def accept(self, record: PendingRecord) -> Record:
        """Make this peer responsible for these destinations, besides earlier ones. Return the record to store."""
        before = self._records.get(record.event.id)
        if before is not None:
            dests, ranks = _merge_ranks(before, record)
            record = PendingRecord(record.event, before.born_ns, dests, ranks)
        self._records[record.event.id] = record
        return record

    def hand_over(self, id_: EventId, dests: tuple[PeerId, ...], ranks: Ranks) -> Record | None:
        """Hand over the responsibility for these destinations. If none remain, return the record to store.

        A copy of lower rank does not end the responsibility: a peer that forwarded the higher copy may drop it.
        """
        record = self._records.get(id_)
        if record is None:
            return None
        if dests == record.dests and not (any(ranks) or any(record.ranks)):  # the first copy, for all destinations
            return self._end_responsibility(id_)
        gone = dict(zip(dests, ranks or (0,) * len(dests), strict=False))
        owed = [(d, m) for d, m in _rank_destinations(record) if d not in gone or ranks_below(gone[d], m)]
        if owed:
            self._records[id_] = PendingRecord(
                record.event, record.born_ns, tuple(d for d, _ in owed), tuple(m for _, m in owed)
            )
            return None
        return self._end_responsibility(id_)

    def abandon(self, id_: EventId, dests: tuple[PeerId, ...]) -> Record | None:
        """Give up these destinations for good. If none remain, return the record to store."""
        record = self._records.get(id_)
        if record is None:
            return None
        owed = [(d, m) for d, m in _rank_destinations(record) if d not in dests]
        if owed:
            self._records[id_] = PendingRecord(
                record.event, record.born_ns, tuple(d for d, _ in owed), tuple(m for _, m in owed)
            )
            return None
        return self._end_responsibility(id_)

    def _end_responsibility(self, id_: EventId) -> Record:
        del self._records[id_]
        self._remove_waiting(id_)
        return ReleasedRecord(id_)

    def restrict_to_owed(self, stuck: GiveUp) -> GiveUp | None:
        """Restrict a packet to destinations that this peer is still responsible for: another copy served the rest."""
        record = self._records.get(stuck.event.id)
        left = [] if record is None else [(d, m) for d, m in _rank_destinations(stuck) if d in record.dests]
        if not left:
            return None
        return GiveUp(stuck.event, stuck.born_ns, tuple(d for d, _ in left), stuck.code, tuple(m for _, m in left))

    def wait(self, stuck: GiveUp, deadline_ns: Nanos | None) -> list[GiveUp]:
        """Queue a packet for a retry. Return the packets removed to make room."""
        id_ = stuck.event.id
        due = FOREVER if deadline_ns is None else stuck.born_ns + deadline_ns
        before = self._waiting.get(id_)
        if before is not None:
            due = min(due, before[0])
            dests, ranks = _merge_ranks(before[1], stuck)
            stuck = GiveUp(stuck.event, stuck.born_ns, dests, stuck.code, ranks)
            self._remove_waiting(id_)
        self._waiting[id_] = (due, stuck)
        self._waiting_bytes += event_bytes(stuck.event)
        for dest in stuck.dests:
            self._waiting_for[dest, id_.publisher] += 1
        heappush(self._lanes.setdefault((stuck.dests, id_.publisher, id_.incarnation), []), id_.sequence)
        if self._by_deadline is not None:
            heappush(self._by_deadline, (due, id_))
        lost: list[GiveUp] = []
        while len(self._waiting) > self._limit or (self._waiting_bytes > self._limit_bytes and self._waiting):
            lost.append(self._remove_earliest())
        return lost

    def _remove_earliest(self) -> GiveUp:
        """Remove and return the packet with the earliest deadline."""
        heap = self._by_deadline
        if heap is None or len(heap) > 2 * len(self._waiting) + 64:
            heap = self._by_deadline = [(due, id_) for id_, (due, _) in self._waiting.items()]
            heapify(heap)
        while True:
            due, id_ = heappop(heap)
            waiting = self._waiting.get(id_)
            if waiting is not None and waiting[0] == due:
                self._remove_waiting(id_)
                return waiting[1]

    def _remove_waiting(self, id_: EventId) -> GiveUp | None:
        """Remove an event that waits. Its lane forgets it when its turn comes."""
        waiting = self._waiting.pop(id_, None)
        if waiting is None:
            return None
        self._waiting_bytes -= event_bytes(waiting[1].event)
        for dest in waiting[1].dests:
            self._waiting_for[dest, id_.publisher] -= 1
            if not self._waiting_for[dest, id_.publisher]:
                del self._waiting_for[dest, id_.publisher]
        return waiting[1]

    def has_waiting(self, dest: PeerId, publisher: PeerId) -> bool:
        """Whether events of a publisher wait for a destination."""
        return (dest, publisher) in self._waiting_for

    def next_attempt(self) -> Nanos | None:
        """The earliest time at which a waiting event may be tried."""
        self._drop_empty_lanes()
        return min((self.pauses.next_attempt(dests) for dests, _, _ in self._lanes), default=None)

    def take(self, now: Nanos, count: int) -> list[GiveUp]:
        """Remove and return events that may be tried now. Lanes take turns, so that none starves the others."""
        ready = [lane for lane in self._lanes if self.pauses.permit(now, lane[0]) is not Permit.NONE]
        share = max(1, count // max(1, len(ready)))
        taken: list[GiveUp] = []
        for lane in ready[:count]:
            permit = self.pauses.permit(now, lane[0])  # another lane may have sent the probe
            if permit is not Permit.NONE:
                leaving = self._take_from(lane, 1 if permit is Permit.PROBE else share)
                if leaving and permit is Permit.PROBE:
                    self.pauses.probe(now, lane[0])
                taken += leaving
        return taken

    def _take_from(self, lane: Lane, count: int) -> list[GiveUp]:
        """Remove and return the first events of a lane, and move the lane behind the others."""
        dests, publisher, incarnation = lane
        sequences = self._lanes.pop(lane)
        taken: list[GiveUp] = []
        while sequences and len(taken) < count:
            id_ = EventId(publisher, incarnation, heappop(sequences))
            waiting = self._waiting.get(id_)
            if waiting is not None and waiting[1].dests == dests:
                self._remove_waiting(id_)
                taken.append(waiting[1])
        if sequences:
            self._lanes[lane] = sequences
        return taken

    def take_matching(self, is_over: Callable[[GiveUp], bool]) -> list[GiveUp]:
        """Remove and return the waiting events that fulfil a condition."""
        over = [waiting for _, waiting in self._waiting.values() if is_over(waiting)]
        for waiting in over:
            self._remove_waiting(waiting.event.id)
        return over

    def _drop_empty_lanes(self) -> None:
        for lane in list(self._lanes):
            dests, publisher, incarnation = lane
            sequences = self._lanes[lane]
            while sequences:
                waiting = self._waiting.get(EventId(publisher, incarnation, sequences[0]))
                if waiting is not None and waiting[1].dests == dests:
                    break
                heappop(sequences)
            if not sequences:
                del self._lanes[lane]


def _rank_destinations(what: PendingRecord | GiveUp) -> list[tuple[PeerId, int]]:
    return list(zip(what.dests, what.ranks or (0,) * len(what.dests), strict=False))


def _merge_ranks(a: PendingRecord | GiveUp, b: PendingRecord | GiveUp) -> tuple[tuple[PeerId, ...], Ranks]:
    """Merge two entries of one event. A destination in both gets the higher rank."""
    ranks: dict[PeerId, int] = {}
    for dest, rank in (*_rank_destinations(a), *_rank_destinations(b)):
        ranks[dest] = max(rank, ranks.get(dest, 0))
    dests = tuple(sorted(ranks))
    return dests, tuple(ranks[d] for d in dests)
