"""Answering for events: how a peer with persistency uses its `Keep`.

A duty is stored before the ACK that takes it over, ends when neighbours have taken over all its destinations, and
waits where no way is left: it is tried again when a link returns, and now and then without a sign. Retries come in
small batches, so that the return of a link is no storm.
"""

from collections.abc import Callable

from wend.model.events import Event, PeerId
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.copies import fork
from wend.protocol.interest.known import KnownInterest
from wend.protocol.keep import Keep
from wend.protocol.link_state import FloodedGraph
from wend.protocol.messages import Kept
from wend.protocol.newcomers import Newcomers
from wend.protocol.notices import NO_ROOM
from wend.protocol.plugins import Arrived, Forward, GiveUp, PluginEffect
from wend.protocol.ports import Drop, Notice, Store
from wend.protocol.timers import Effects, Timers

RETRY_NS = SECOND
RETRY_BATCH = 64
BETWEEN_BATCHES_NS = 100 * MS


class Custody:
    def __init__(
        self,
        config: PeerConfig,
        timers: Timers,
        interest: KnownInterest,
        graph: FloodedGraph,
        newcomers: Newcomers | None,
        route: Callable[[Nanos, Arrived, Effects], None],
    ) -> None:
        self._me = config.peer
        self.keep = Keep(config.keep_msgs)
        self._timers = timers
        self._interest = interest
        self._graph = graph
        self._newcomers = newcomers
        """Only where events go to those who are known to want them, and these are still being found."""
        self._route = route
        self._retry_at: Nanos | None = None

    def begin(self, now: Nanos) -> None:
        if self._newcomers is not None:
            self._newcomers.begin(now, self._interest.origins)

    def publish(self, now: Nanos, event: Event, dests: tuple[PeerId, ...], effects: Effects) -> None:
        effects.append(Store(self.keep.accept(Kept(event, now, dests))))

    def remember(self, now: Nanos, event: Event, effects: Effects) -> None:
        """It was published here: one who is first heard of a moment later may want it."""
        if self._newcomers is not None and self._newcomers.published(now, event):
            effects.append(Notice("held", self._me))

    def heard_of(self, now: Nanos, peer: PeerId, effects: Effects) -> None:
        """What a peer wants is news; one who was not known gets what was published just before."""
        for event, born in self._newcomers.heard(now, peer) if self._newcomers is not None else ():
            if peer in self._interest.targets(event):
                self.publish(born, event, (peer,), effects)
                self._route(now, Arrived(self._me, event, born, (peer,)), effects)

    def accept(self, event: Event, born: Nanos, answers: list[PluginEffect], effects: Effects) -> None:
        """Answer for what the routing carries on, before the ACK says so; what it suppressed is another's."""
        marks: dict[PeerId, int] = {}
        for answer in answers:
            if type(answer) is Forward or type(answer) is GiveUp:
                for dest, mark in zip(answer.dests, answer.marks or (0,) * len(answer.dests), strict=False):
                    marks[dest] = min(mark, marks.get(dest, mark))
        if marks:
            dests = tuple(sorted(marks))
            ranks = tuple([marks[d] for d in dests])
            effects.append(Store(self.keep.accept(Kept(event, born, dests, ranks if any(ranks) else ()))))

    def recall(self, now: Nanos, kept: list[Kept], effects: Effects) -> None:
        """Duties of a former life."""
        for duty in kept:
            self.keep.accept(duty)
            self.give_up(now, GiveUp(duty.event, duty.born_ns, duty.dests, "restarted", duty.marks), effects)

    def handed_on(self, forward: Forward, effects: Effects) -> None:
        record = self.keep.handed_on(forward.event.id, forward.dests, forward.marks)
        if record is not None:
            effects.append(Store(record))

    def give_up(self, now: Nanos, stuck: GiveUp, effects: Effects) -> None:
        """It waits here, and what has no room any more is dropped."""
        owed = self.keep.owed(stuck)
        if owed is None:
            effects.append(Notice("covered", self._me))
            return
        effects.append(Notice("kept", self._me))
        deadlines = [self._interest.deadline_ns(owed.event, dest, self._graph) for dest in owed.dests]
        soonest = min((d for d in deadlines if d is not None), default=None)
        for lost in self.keep.wait(owed, soonest):
            drop = Drop(lost.event.id, lost.dests, NO_ROOM)
            effects.append(drop)
            self.abandon(drop, effects)
        self._retry_soon(now + RETRY_NS)

    def abandon(self, drop: Drop, effects: Effects) -> None:
        """What is dropped on purpose is no duty any more, not even after a restart."""
        done = self.keep.abandon(drop.id, drop.dests)
        if done is not None:
            effects.append(Store(done))

    def link_returned(self, now: Nanos) -> None:
        if len(self.keep):
            self._retry_soon(now)

    def _retry_soon(self, time: Nanos) -> None:
        if self._retry_at is None or time < self._retry_at:
            self._retry_at = time
            self._timers.at(time, self._retry, time)

    def _retry(self, now: Nanos, asked: Nanos, effects: Effects) -> None:
        if asked != self._retry_at:
            return
        self._retry_at = None
        for again in self.keep.take(RETRY_BATCH):
            marks = tuple(fork(m, self._me) for m in again.marks or (0,) * len(again.dests))
            self._route(now, Arrived(self._me, again.event, again.born_ns, again.dests, marks=marks), effects)
        if len(self.keep):
            self._retry_soon(now + BETWEEN_BATCHES_NS)
