"""Answering for events: how a peer with persistency uses its `RetryQueue`.

A duty is stored before the ACK that takes it over, ends when neighbours have taken over all its destinations, and
waits where no way is left: it is tried again when a link returns, and now and then without a sign. Retries come in
small batches, so that the return of a link is no storm.
"""

from collections.abc import Callable

from wend.model.events import Event, EventId, PeerId
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import DeliverySettings, PeerConfig
from wend.protocol.copy_ranks import fork, subset
from wend.protocol.delivery.late_joiners import SETTLE_NS, LateJoiners
from wend.protocol.delivery.retry_queue import RetryQueue
from wend.protocol.notices import NO_ROOM
from wend.protocol.plugins import Arrived, Forward, GiveUp, Interest, PluginEffect, View
from wend.protocol.ports import Drop, Notice, Persist
from wend.protocol.records import PendingRecord
from wend.protocol.timers import Effects, Timers

RETRY_NS = SECOND
MOST_RETRY_NS = 16 * SECOND
"""The pause of an event doubles up to it, until a link is back: a subscriber may be gone for long, and what is kept for
it would fill the links."""
RETRY_BATCH = 64
BETWEEN_BATCHES_NS = 100 * MS


class StoreAndForward:
    def __init__(
        self,
        config: PeerConfig,
        timers: Timers,
        interest: Interest,
        view: View,
        late_joiners: LateJoiners | None,
        route: Callable[[Nanos, Arrived, Effects], None],
    ) -> None:
        self._me = config.peer
        self.queue = RetryQueue(config.of(DeliverySettings).retry_limit)
        self._timers = timers
        self._interest = interest
        self._view = view
        self._late_joiners = late_joiners
        """Only where events go to those who are known to want them, and these are still being found."""
        self._route = route
        self._retry_at: Nanos | None = None
        self._forget_at: Nanos | None = None

    def begin(self, now: Nanos, told: tuple[PeerId, ...]) -> None:
        """`told` are those whom the driver speaks of."""
        if self._late_joiners is not None:
            self._late_joiners.begin(now, self._interest.origins, told)

    def publish(self, now: Nanos, event: Event, dests: tuple[PeerId, ...], effects: Effects) -> None:
        """One who is heard of later may want it too: as long as it is remembered for such, it is owed to this peer."""
        if self._late_joiners is not None:
            if self._late_joiners.published(now, event):
                effects.append(Notice("queued", self._me))
                dests = (*dests, self._me)
            self._forget(now, None, effects)
        if dests:
            self._answer_for(event, now, dests, effects)

    def _answer_for(self, event: Event, born: Nanos, dests: tuple[PeerId, ...], effects: Effects) -> None:
        effects.append(Persist(self.queue.accept(PendingRecord(event, born, dests))))

    def _forget(self, now: Nanos, asked: Nanos | None, effects: Effects) -> None:
        """At every publication, and without one as long as anything is remembered."""
        assert self._late_joiners is not None
        for id_, waited_for in self._late_joiners.forgotten(now):
            if waited_for:
                effects.append(Drop(id_, waited_for, NO_ROOM))
            self._release(id_, effects)
        if asked == self._forget_at:
            self._forget_at = None
        if self._forget_at is None and len(self._late_joiners):
            self._forget_at = now + SETTLE_NS
            self._timers.at(self._forget_at, self._forget, self._forget_at)

    def _release(self, id_: EventId, effects: Effects) -> None:
        """It is not remembered for newcomers any more."""
        done = self.queue.abandon(id_, (self._me,))
        if done is not None:
            effects.append(Persist(done))

    def interest_learned(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        """What a peer wants is news; one who was not known gets what was published just before."""
        if self._late_joiners is None:
            return
        for event, born in self._late_joiners.heard(now, peer):
            if peer in self._interest.targets(event):
                self._answer_for(event, born, (peer,), effects)
                self._route(now, Arrived(self._me, event, born, (peer,)), effects)

    def accept(self, event: Event, born: Nanos, answers: list[PluginEffect], effects: Effects) -> None:
        """Answer for what the routing carries on, before the ACK says so; what it suppressed is another's."""
        lowest: dict[PeerId, int] = {}
        for answer in answers:
            if type(answer) is Forward or type(answer) is GiveUp:
                for dest, rank in zip(answer.dests, answer.ranks or (0,) * len(answer.dests), strict=False):
                    lowest[dest] = min(rank, lowest.get(dest, rank))
        if lowest:
            dests = tuple(sorted(lowest))
            ranks = tuple([lowest[d] for d in dests])
            effects.append(Persist(self.queue.accept(PendingRecord(event, born, dests, ranks if any(ranks) else ()))))

    def recall(self, now: Nanos, kept: list[PendingRecord], effects: Effects) -> None:
        """Duties of a former life."""
        for duty in kept:
            self.queue.accept(duty)
            if self._me in duty.dests:
                self._recall_for_newcomers(duty, effects)
            others = tuple(dest for dest in duty.dests if dest != self._me)
            if others:
                ranks = subset(others, duty.dests, duty.ranks)
                self.give_up(now, GiveUp(duty.event, duty.born_ns, others, "restarted", ranks), effects)
        if self._late_joiners is not None:
            self._forget(now, None, effects)

    def _recall_for_newcomers(self, duty: PendingRecord, effects: Effects) -> None:
        if self._late_joiners is not None:
            self._late_joiners.recall(duty.event, duty.born_ns)
        else:
            self._release(duty.event.id, effects)

    def handed_on(self, forward: Forward, effects: Effects) -> None:
        record = self.queue.handed_on(forward.event.id, forward.dests, forward.ranks)
        if record is not None:
            effects.append(Persist(record))

    def give_up(self, now: Nanos, stuck: GiveUp, effects: Effects) -> None:
        """It waits here, and what has no room any more is dropped."""
        owed = self.queue.owed(stuck)
        if owed is None:
            effects.append(Notice("copy-superseded", self._me))
            return
        effects.append(Notice("stored", self._me))
        deadlines = [self._view.interest.deadline_ns(owed.event, dest, self._view.graph) for dest in owed.dests]
        soonest = min((d for d in deadlines if d is not None), default=None)
        self.queue.rest(now, owed.event.id, RETRY_NS, MOST_RETRY_NS)
        for lost in self.queue.wait(owed, soonest):
            drop = Drop(lost.event.id, lost.dests, NO_ROOM)
            effects.append(drop)
            self.abandon(drop, effects)
        self._retry_soon(now + RETRY_NS)

    def abandon(self, drop: Drop, effects: Effects) -> None:
        """What is dropped on purpose is no duty any more, not even after a restart."""
        done = self.queue.abandon(drop.id, drop.dests)
        if done is not None:
            effects.append(Persist(done))

    def link_returned(self, now: Nanos) -> None:
        if len(self.queue):
            self.queue.wake()
            self._retry_soon(now)

    def _retry_soon(self, time: Nanos) -> None:
        if self._retry_at is None or time < self._retry_at:
            self._retry_at = time
            self._timers.at(time, self._retry, time)

    def _retry(self, now: Nanos, asked: Nanos, effects: Effects) -> None:
        if asked != self._retry_at:
            return
        self._retry_at = None
        for again in self.queue.take(now, RETRY_BATCH):
            ranks = tuple(fork(m, self._me) for m in again.ranks or (0,) * len(again.dests))
            self._route(now, Arrived(self._me, again.event, again.born_ns, again.dests, ranks=ranks), effects)
        soonest = self.queue.soonest()
        if soonest is not None:
            self._retry_soon(max(soonest, now + BETWEEN_BATCHES_NS))
