"""Pending deliveries: events that arrive before their subscribers have reconnected.

A subscription ends with its client's connection. So a restarted peer has no subscriptions yet when its neighbours send
the events that they stored for it. With persistence the peer stores such an event for itself before the ACK. It
delivers the event when a matching subscription arrives. If none arrives within the grace time after the start, the
peer drops the event and reports the drop.

Durable subscriptions are there from the start and get an event at once, but it waits for other subscriptions all the
same.

Clients reconnect one after another. So after the first subscription the peer waits a moment for more. Every event
published before this incarnation waits for that moment, even if a subscription matches: the peer delivers each event
once, to all clients that are connected by then.
"""

from collections.abc import Callable, Container

from wend.model.events import Event, EventId, event_bytes
from wend.model.units import FOREVER, SECOND, Nanos
from wend.protocol.config import DeliverySettings, PeerConfig
from wend.protocol.delivery.queue_groups import QueueGroups
from wend.protocol.delivery.retry_queue import RetryQueue
from wend.protocol.link.window import DuplicateFilter
from wend.protocol.notices import NO_ROOM, DropCode
from wend.protocol.plugins import Notify, SubscriptionQueries, View
from wend.protocol.plugins.copy_ranks import subset
from wend.protocol.ports import Drop, Notice, Persist
from wend.protocol.records import DeliveredRecord, PendingRecord
from wend.protocol.timers import Effects, Timers

Hand = Callable[[Nanos, Event, Nanos, Notify, Effects], None]

GATHER_NS = 2 * SECOND
"""How long a peer waits for more subscriptions: the longest pause of a client between two attempts to connect."""


class PendingDeliveries:
    """Holds events for local subscribers until they reconnect or the grace time ends."""

    def __init__(
        self,
        config: PeerConfig,
        timers: Timers,
        queue: RetryQueue,
        seen: DuplicateFilter,
        interest: SubscriptionQueries,
        view: View,
        hand: Hand,
        groups: QueueGroups,
    ) -> None:
        """`hand` delivers an event to local subscriptions."""
        self._me = config.peer
        self._grace_ns = config.of(DeliverySettings).grace_ns
        self._limit = config.of(DeliverySettings).retry_limit
        self._limit_bytes = config.of(DeliverySettings).store_limit
        self._timers = timers
        self._queue = queue
        self._seen = seen
        self._interest = interest
        self._view = view
        self._hand = hand
        self._groups = groups
        self._began: Nanos = 0
        self._until: Nanos = 0
        self._restarted = False
        self._gathers = False
        self._ends = False
        """Whether a timer is set for the end of the grace time."""
        self._pending: dict[EventId, tuple[Event, Nanos, frozenset[int]]] = {}
        """Pending events in the order of arrival, each with its time of publication and the numbers of the durable
        subscriptions that have it."""
        self._bytes = 0

    def begin(self, now: Nanos, *, restarted: bool) -> None:
        """Start. `restarted`: whether an earlier incarnation may have had subscribers."""
        self._began = now
        self._restarted = restarted
        self._until = min(now + self._grace_ns, FOREVER)

    def restore(self, now: Nanos, records: list[PendingRecord], effects: Effects) -> list[PendingRecord]:
        """Restore pending records of an earlier incarnation, after its delivered ones. Return those for other peers."""
        others: list[PendingRecord] = []
        for record in records:
            event = record.event
            if self._me not in record.dests or event.id.publisher == self._me:  # its own events wait for late joiners
                others.append(record)
                continue
            self._queue.accept(record)
            if self._seen.add(event.id):
                self._hold_event(event, record.born_ns, effects)
            elif self._seen.is_too_old(event.id):
                self._drop_event(event.id, "beyond-duplicate-filter", effects)
            else:
                self._release_record(event.id, effects)
            rest = tuple([dest for dest in record.dests if dest != self._me])
            if rest:
                others.append(PendingRecord(event, record.born_ns, rest, subset(rest, record.dests, record.ranks)))
        if self._pending:
            self._deliver_held(now, effects)
        return others

    def holds(self, id_: EventId) -> bool:
        """Whether an event waits for subscribers, and none has it yet."""
        return id_ in self._pending and not self._pending[id_][2]

    def hold_if_early(
        self, now: Nanos, event: Event, born: Nanos, wanted: Notify, durable: Container[int], effects: Effects
    ) -> Notify | None:
        """Hold an event that is new to this peer, if it must wait for subscribers. Return those that get it at once;
        None if all wait. `durable`: the numbers of the durable subscriptions."""
        if now >= self._until or event.id.publisher == self._me:
            return wanted
        served = tuple([each for each in wanted if each[0].number in durable])
        if len(served) < len(wanted) and not (self._gathers and born < self._began):
            return wanted
        if served and not self._restarted:
            return wanted
        effects.append(Persist(self._queue.accept(PendingRecord(event, born, (self._me,)))))
        self._hold_event(event, born, effects, frozenset([subscription.number for subscription, _ in served]))
        return served or None

    def on_subscribed(self, now: Nanos) -> None:
        if now < self._until and not self._gathers:
            self._gathers = True
            self._timers.set_timer(min(now + GATHER_NS, self._until), self._end_gathering, None)

    def _end_gathering(self, now: Nanos, _: None, effects: Effects) -> None:
        self._gathers = False
        self._deliver_held(now, effects)

    def _hold_event(self, event: Event, born: Nanos, effects: Effects, served: frozenset[int] = frozenset()) -> None:
        effects.append(Notice("queued", self._me))
        if event.id not in self._pending:
            self._bytes += event_bytes(event)
        self._pending[event.id] = (event, born, served)
        while len(self._pending) > self._limit or (self._bytes > self._limit_bytes and self._pending):
            self._drop_event(next(iter(self._pending)), NO_ROOM, effects)
        if not self._ends:
            self._ends = True
            self._timers.set_timer(self._until, self._end_grace, None)

    def _deliver_held(self, now: Nanos, effects: Effects) -> None:
        for event, born, served in list(self._pending.values()):
            wanted = self._interest.local(event, self._view)
            if served:
                wanted = tuple([each for each in wanted if each[0].number not in served])
            if wanted:
                begin = len(effects)
                ended: Effects = []
                self._hand(now, event, born, wanted, effects)
                self._release_record(event.id, ended)
                behind = effects.index(Persist(DeliveredRecord(event.id)), begin) + 1  # before the deliveries
                effects[behind:behind] = ended

    def _end_grace(self, now: Nanos, _: None, effects: Effects) -> None:
        self._deliver_held(now, effects)
        for id_, (event, born, served) in list(self._pending.items()):
            if not served and event.groups and self._groups.send_to_other_members(now, event, born, (), effects):
                effects.append(Persist(DeliveredRecord(id_)))
                self._release_record(id_, effects)
            else:
                self._drop_event(id_, "no-reconnect", effects)

    def _drop_event(self, id_: EventId, why: DropCode, effects: Effects) -> None:
        if id_ not in self._pending or not self._pending[id_][2]:
            effects.append(Drop(id_, (self._me,), why))
        self._release_record(id_, effects)

    def _release_record(self, id_: EventId, effects: Effects) -> None:
        pending = self._pending.pop(id_, None)
        if pending is not None:
            self._bytes -= event_bytes(pending[0])
        done = self._queue.abandon(id_, (self._me,))
        if done is not None:
            effects.append(Persist(done))
