"""Events that come before their subscribers are back.

A subscription lives as long as its client's connection, so a peer that was restarted has none yet when its neighbours
hand it what they kept for it. With persistency such an event is a duty of the peer to itself: stored before the ACK,
handed over when a subscription is made that wants it, and dropped aloud when the grace time after the start is over.

Clients come back one after another. So the first subscription is given a moment in which others may join it, and what
was published before this life waits for that, wanted or not: each event is handed over once, to all who are there.
"""

from wend.model.events import Event, EventId
from wend.model.units import FOREVER, SECOND, Nanos
from wend.protocol.config import DeliverySettings, PeerConfig
from wend.protocol.copy_ranks import subset
from wend.protocol.delivery.retry_queue import RetryQueue
from wend.protocol.link.window import DuplicateFilter
from wend.protocol.notices import NO_ROOM, DropReason
from wend.protocol.plugins import Interest, View
from wend.protocol.ports import Deliver, Drop, Notice, Persist
from wend.protocol.records import DeliveredRecord, PendingRecord
from wend.protocol.timers import Effects, Timers

GATHER_NS = 2 * SECOND
"""As long as a client waits between two attempts to connect, at most."""


class PendingDeliveries:
    def __init__(
        self,
        config: PeerConfig,
        timers: Timers,
        queue: RetryQueue,
        seen: DuplicateFilter,
        interest: Interest,
        view: View,
    ) -> None:
        self._me = config.peer
        self._grace_ns = config.of(DeliverySettings).grace_ns
        self._limit = config.of(DeliverySettings).retry_limit
        self._timers = timers
        self._queue = queue
        self._seen = seen
        self._interest = interest
        self._view = view
        self._began: Nanos = 0
        self._until: Nanos = 0
        self._gathers = False
        self._ends = False
        """Whether the end of the grace time is waited for."""
        self._held: dict[EventId, tuple[Event, Nanos]] = {}
        """In the order in which they came, each with when it was published."""

    def begin(self, now: Nanos) -> None:
        self._began = now
        self._until = min(now + self._grace_ns, FOREVER)

    def recall(self, now: Nanos, kept: list[PendingRecord], effects: Effects) -> list[PendingRecord]:
        """Duties of a former life; those to others are returned. To be told when it is known what was notified."""
        others: list[PendingRecord] = []
        for duty in kept:
            event = duty.event
            if self._me not in duty.dests or event.id.publisher == self._me:  # its own wait for newcomers
                others.append(duty)
                continue
            self._queue.accept(duty)
            if self._seen.add(event.id):
                self._hold(event, duty.born_ns, effects)
            elif self._seen.too_old(event.id):
                self._drop(event.id, "older than the duplicate filter", effects)
            else:
                self._end(event.id, effects)
            rest = tuple([dest for dest in duty.dests if dest != self._me])
            if rest:
                others.append(PendingRecord(event, duty.born_ns, rest, subset(rest, duty.dests, duty.ranks)))
        if self._held:
            self._hand_over(now, effects)
        return others

    def waits(self, now: Nanos, event: Event, born: Nanos, wanted: bool, effects: Effects) -> bool:
        """Whether it is kept here: an event that this peer sees for the first time."""
        if now >= self._until or (wanted and not (self._gathers and born < self._began)):
            return False
        if event.id.publisher == self._me:
            return False
        effects.append(Persist(self._queue.accept(PendingRecord(event, born, (self._me,)))))
        self._hold(event, born, effects)
        return True

    def subscribed(self, now: Nanos) -> None:
        if now < self._until and not self._gathers:
            self._gathers = True
            self._timers.at(min(now + GATHER_NS, self._until), self._gathered, None)

    def _gathered(self, now: Nanos, _: None, effects: Effects) -> None:
        self._gathers = False
        self._hand_over(now, effects)

    def _hold(self, event: Event, born: Nanos, effects: Effects) -> None:
        effects.append(Notice("queued", self._me))
        self._held[event.id] = (event, born)
        if len(self._held) > self._limit:
            self._drop(next(iter(self._held)), NO_ROOM, effects)
        if not self._ends:
            self._ends = True
            self._timers.at(self._until, self._over, None)

    def _hand_over(self, now: Nanos, effects: Effects) -> None:
        for event, born in list(self._held.values()):
            wanted = self._interest.local(event, self._view)
            if wanted:
                effects.append(Persist(DeliveredRecord(event.id)))
                self._end(event.id, effects)
                effects.extend(Deliver(who, event, now - born, deadline) for who, deadline in wanted)

    def _over(self, now: Nanos, _: None, effects: Effects) -> None:
        self._hand_over(now, effects)
        for id_ in list(self._held):
            self._drop(id_, "no subscriber reconnected", effects)

    def _drop(self, id_: EventId, why: DropReason, effects: Effects) -> None:
        effects.append(Drop(id_, (self._me,), why))
        self._end(id_, effects)

    def _end(self, id_: EventId, effects: Effects) -> None:
        self._held.pop(id_, None)
        done = self._queue.abandon(id_, (self._me,))
        if done is not None:
            effects.append(Persist(done))
