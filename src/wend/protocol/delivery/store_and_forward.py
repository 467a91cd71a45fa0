"""Store-and-forward: how a peer with persistence uses its `RetryQueue`.

The peer stores a pending record before it sends the ACK that makes it responsible. The record ends when neighbours
have acknowledged all its destinations. If no route is left, the event waits in the queue. The peer retries it when a
link returns, and periodically (`retry_pauses.py`). Retries are sent in small batches, so that they do not flood a
returning link. New events wait behind earlier ones if their subscribers want the order of the publisher, or if their
destination has been away for long.
"""

from collections.abc import Callable

from wend.model.events import Event, EventId, PeerId
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import DeliverySettings, PeerConfig
from wend.protocol.delivery.late_joiners import SETTLE_NS, LateJoiners
from wend.protocol.delivery.retry_pauses import FIRST_NS
from wend.protocol.delivery.retry_queue import RetryQueue
from wend.protocol.notices import AWAY, NO_ROOM, DropCode
from wend.protocol.plugins import Arrived, Forward, GiveUp, PluginEffect, SubscriptionQueries, View
from wend.protocol.plugins.copy_ranks import fork, subset
from wend.protocol.ports import Drop, Notice, Persist
from wend.protocol.records import PendingRecord
from wend.protocol.timers import Effects, Timers

RETRY_BATCH = 64
BETWEEN_BATCHES_NS = 100 * MS
SWEEP_NS = 16 * SECOND
"""How often the peer drops the waiting events that have expired; those that are tried expire at once."""


class StoreAndForward:
    """Stores the events this peer is responsible for, and retries those that found no route."""

    def __init__(
        self,
        config: PeerConfig,
        timers: Timers,
        interest: SubscriptionQueries,
        view: View,
        late_joiners: LateJoiners | None,
        route: Callable[[Nanos, Arrived, Effects], None],
    ) -> None:
        self._me = config.peer
        settings = config.of(DeliverySettings)
        self.queue = RetryQueue(settings.retry_limit, settings.store_limit)
        self._timers = timers
        self._interest = interest
        self._view = view
        self._late_joiners = late_joiners
        """None unless events name their destinations and subscribers may still be unknown."""
        self._route = route
        self._retry_at: Nanos | None = None
        self._forget_at: Nanos | None = None
        self._next_sweep: Nanos = 0

    def begin(self, now: Nanos, told: tuple[PeerId, ...]) -> None:
        """Start. `told` are the configured peers."""
        if self._late_joiners is not None:
            self._late_joiners.begin(now, self._interest.origins, told)

    def publish(self, now: Nanos, event: Event, dests: tuple[PeerId, ...], effects: Effects) -> None:
        """Store an event of this peer. While it is stored for late joiners, the peer itself is one of its
        destinations."""
        if self._late_joiners is not None:
            if self._late_joiners.on_published(now, event):
                effects.append(Notice("queued", self._me))
                dests = (*dests, self._me)
            self._release_unneeded(now, None, effects)
        if dests:
            self._store_record(event, now, dests, effects)

    def hold_back(self, now: Nanos, event: Event, dests: tuple[PeerId, ...], effects: Effects) -> tuple[PeerId, ...]:
        """Let a new event wait for destinations where others wait. Return the rest of its destinations."""
        if not len(self.queue) and not len(self.queue.pauses):
            return dests
        held = tuple([dest for dest in dests if self._must_wait(now, event, dest)])
        if not held:
            return dests
        self._add_to_queue(now, GiveUp(event, now, held, "no-route"), effects)
        return tuple([dest for dest in dests if dest not in held])

    def _must_wait(self, now: Nanos, event: Event, dest: PeerId) -> bool:
        is_ordered = event.previous_at(dest) is not None
        return (is_ordered and self.queue.has_waiting(dest, self._me)) or not self.queue.pauses.may_try(now, dest)

    def publish_to(self, event: Event, born: Nanos, peer: PeerId, effects: Effects) -> None:
        """Store an event of this peer that is for one other peer only."""
        self._store_record(event, born, (peer,), effects)

    def _store_record(self, event: Event, born: Nanos, dests: tuple[PeerId, ...], effects: Effects) -> None:
        effects.append(Persist(self.queue.accept(PendingRecord(event, born, dests))))

    def _release_unneeded(self, now: Nanos, asked: Nanos | None, effects: Effects) -> None:
        """Release events that no late joiner needs. It runs at every publication, and by timer while any are stored."""
        assert self._late_joiners is not None
        for id_, waited_for in self._late_joiners.forget_unneeded(now):
            if waited_for:
                effects.append(Drop(id_, waited_for, NO_ROOM))
            self._release(id_, effects)
        if asked == self._forget_at:
            self._forget_at = None
        if self._forget_at is None and len(self._late_joiners):
            self._forget_at = now + SETTLE_NS
            self._timers.set_timer(self._forget_at, self._release_unneeded, self._forget_at)

    def _release(self, id_: EventId, effects: Effects) -> None:
        """Stop storing an event for late joiners."""
        done = self.queue.abandon(id_, (self._me,))
        if done is not None:
            effects.append(Persist(done))

    def on_interest_learned(self, now: Nanos, peer: PeerId, returned: bool, effects: Effects) -> None:
        """Handle the interest of a peer. A peer that is back gets the events that wait for it. A peer that was unknown
        gets the matching events published just before."""
        if returned:
            self._retry_events_for(now, peer)
        if self._late_joiners is None:
            return
        for event, born in self._late_joiners.on_interest(now, peer):
            if peer in self._interest.targets(event):
                self._store_record(event, born, (peer,), effects)
                self._route(now, Arrived(self._me, event, born, (peer,)), effects)

    def accept(self, event: Event, born: Nanos, answers: list[PluginEffect], effects: Effects) -> None:
        """Store the event, before the ACK, for the destinations that the routing forwards or gives up.

        A copy of higher rank serves the destinations that the routing suppressed.
        """
        lowest: dict[PeerId, int] = {}
        for answer in answers:
            if type(answer) is Forward or type(answer) is GiveUp:
                for dest, rank in zip(answer.dests, answer.ranks or (0,) * len(answer.dests), strict=False):
                    lowest[dest] = min(rank, lowest.get(dest, rank))
        if lowest:
            dests = tuple(sorted(lowest))
            ranks = tuple([lowest[d] for d in dests])
            effects.append(Persist(self.queue.accept(PendingRecord(event, born, dests, ranks if any(ranks) else ()))))

    def restore(self, now: Nanos, records: list[PendingRecord], effects: Effects) -> None:
        """Restore the pending records of an earlier incarnation."""
        for record in records:
            self.queue.accept(record)
            if self._me in record.dests:
                self._restore_for_late_joiners(record, effects)
            others = tuple(dest for dest in record.dests if dest != self._me)
            if others:
                ranks = subset(others, record.dests, record.ranks)
                self._queue_if_needed(now, GiveUp(record.event, record.born_ns, others, "restarted", ranks), effects)
        if self._late_joiners is not None:
            self._release_unneeded(now, None, effects)

    def _restore_for_late_joiners(self, record: PendingRecord, effects: Effects) -> None:
        if self._late_joiners is not None:
            self._late_joiners.restore(record.event, record.born_ns)
        else:
            self._release(record.event.id, effects)

    def on_ack(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        if forward.peer in forward.dests:
            self._retry_events_for(now, forward.peer)
        record = self.queue.hand_over(forward.event.id, forward.dests, forward.ranks)
        if record is not None:
            effects.append(Persist(record))

    def _retry_events_for(self, now: Nanos, peer: PeerId) -> None:
        """Try the events that wait for a peer, because it is there."""
        if self.queue.pauses.end(peer) and len(self.queue):
            self._schedule_retry(now)

    def give_up(self, now: Nanos, stuck: GiveUp, effects: Effects) -> None:
        """Queue an event that found no route."""
        self.queue.pauses.fail(now, stuck.dests)
        self._queue_if_needed(now, stuck, effects)

    def _queue_if_needed(self, now: Nanos, stuck: GiveUp, effects: Effects) -> None:
        """Queue an event for destinations that still need it."""
        owed = self.queue.restrict_to_owed(stuck)
        if owed is None:
            effects.append(Notice("copy-superseded", self._me))
            return
        owed = self._drop_expired(now, owed, effects)
        if owed is not None:
            self._add_to_queue(now, owed, effects)

    def _add_to_queue(self, now: Nanos, owed: GiveUp, effects: Effects) -> None:
        """Queue an event. If the queue is full, drop those with the earliest deadline."""
        effects.append(Notice("stored", self._me))
        deadlines = [self._interest.deadline_ns(owed.event, dest, self._view.graph) for dest in owed.dests]
        deadlines.append(owed.event.ttl_ns)
        soonest = min((d for d in deadlines if d is not None), default=None)
        for lost in self.queue.wait(owed, soonest):
            drop = Drop(lost.event.id, lost.dests, NO_ROOM)
            effects.append(drop)
            self.abandon(drop, effects)
        self._schedule_retry(now + FIRST_NS)

    def _drop_expired(self, now: Nanos, stuck: GiveUp, effects: Effects) -> GiveUp | None:
        """Drop the event for destinations where it has expired. Return the rest, if any."""
        event, age_ns = stuck.event, now - stuck.born_ns
        gone = (
            stuck.dests
            if event.is_expired(age_ns)
            else tuple([d for d in stuck.dests if self._expires(event, d, age_ns)])
        )
        left = self._drop_for_destinations(stuck, gone, "expired", effects)
        if left is None:
            return None
        return self._drop_for_destinations(
            left, tuple([d for d in left.dests if self._interest.stayed_away(d, now)]), AWAY, effects
        )

    def _drop_for_destinations(
        self, stuck: GiveUp, gone: tuple[PeerId, ...], why: DropCode, effects: Effects
    ) -> GiveUp | None:
        if not gone:
            return stuck
        drop = Drop(stuck.event.id, gone, why)
        effects.append(drop)
        self.abandon(drop, effects)
        return self.queue.restrict_to_owed(stuck)

    def _expires(self, event: Event, dest: PeerId, age_ns: Nanos) -> bool:
        expiry_ns = self._interest.expiry_ns(event, dest, self._view.graph)
        return expiry_ns is not None and age_ns > expiry_ns

    def abandon(self, drop: Drop, effects: Effects) -> None:
        """End the responsibility for a dropped event, so that a restart does not revive it."""
        done = self.queue.abandon(drop.id, drop.dests)
        if done is not None:
            effects.append(Persist(done))

    def on_link_returned(self, now: Nanos, neighbour: PeerId) -> None:
        self.queue.pauses.end(neighbour)
        self.queue.pauses.shorten(now)
        if len(self.queue):
            self._schedule_retry(now)

    def _schedule_retry(self, time: Nanos) -> None:
        if self._retry_at is None or time < self._retry_at:
            self._retry_at = time
            self._timers.set_timer(time, self._on_retry_timer, time)

    def _on_retry_timer(self, now: Nanos, asked: Nanos, effects: Effects) -> None:
        if asked != self._retry_at:
            return
        self._retry_at = None
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_NS
            for over in self.queue.take_matching(lambda waiting: self._is_obsolete(now, waiting)):
                left = self._drop_expired(now, over, effects)
                if left is not None:
                    self._add_to_queue(now, left, effects)
        for taken in self.queue.take(now, RETRY_BATCH):
            again = self._drop_expired(now, taken, effects)
            if again is None:
                continue
            ranks = tuple(fork(m, self._me) for m in again.ranks or (0,) * len(again.dests))
            self._route(now, Arrived(self._me, again.event, again.born_ns, again.dests, ranks=ranks), effects)
        soonest = self.queue.next_attempt()
        if soonest is not None:
            self._schedule_retry(max(soonest, now + BETWEEN_BATCHES_NS))

    def _is_obsolete(self, now: Nanos, waiting: GiveUp) -> bool:
        """Whether an event has expired for a destination, or a destination has stayed away for too long."""
        age_ns = now - waiting.born_ns
        return waiting.event.is_expired(age_ns) or any(
            self._expires(waiting.event, dest, age_ns) or self._interest.stayed_away(dest, now)
            for dest in waiting.dests
        )
