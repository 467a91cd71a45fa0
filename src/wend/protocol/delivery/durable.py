"""Durable subscriptions: events wait while the client is away, and are redelivered until the client confirms them.

Each event that matches gets a position in the backlog of the subscription. The peer stores it there before it sends the
ACK that makes the previous hop forget it. An attached client gets the events of the backlog in order, a window at a
time. The peer forgets an event when the client confirms its position. When the client detaches, the events that it has
not confirmed return to the front of the backlog: the next client of that name gets them again, marked as redelivered.

A subscription may have homes at several peers, with a client attached at each. Every home stores every event, and gets
every confirmation: by its position if the client got the event there, otherwise by its id. One home sends events at
once. The others are on standby: they send only what is unconfirmed after a while.

A backlog is bounded in events, bytes and age. The oldest events are dropped first. An attached client is notified how
many events it missed, and why.
"""

from collections import Counter, OrderedDict, deque
from typing import Final

from wend.model.events import Event, EventId, PeerId, SubscriptionId, event_bytes
from wend.model.units import FOREVER, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.notices import BacklogCode, MissedCode
from wend.protocol.ports import Attached, Deliver, Drop, LocalSubscription, Missed, Notice, Persist
from wend.protocol.records import (
    ConfirmedRecord,
    DurableRecord,
    GapRecord,
    MissedRecord,
    QueuedRecord,
    Record,
    RemovedRecord,
    SkippedRecord,
)
from wend.protocol.timers import Effects, Timers

POSITION_SHIFT: Final = 28
"""A position is (incarnation << 28) + counter: no incarnation reuses one, and it fits 64 bits."""
MAX_CONFIRMED_EARLY: Final = 10_000
"""How many confirmations a backlog remembers of events that have not come."""


class BacklogEntry:
    """An event in one backlog."""

    __slots__ = ("again", "born_ns", "deadline_ns", "event", "position", "released", "size")

    def __init__(self, event: Event, born_ns: Nanos, deadline_ns: Nanos | None, position: int) -> None:
        self.event = event
        self.born_ns = born_ns
        self.deadline_ns = deadline_ns
        self.position = position
        self.size = event_bytes(event)
        self.again = False
        self.released = False
        """Whether the event no longer waits for earlier ones in publisher order."""


class Backlog:
    """One durable subscription, with the events that its client has not confirmed."""

    def __init__(self, me: PeerId, subscription: LocalSubscription) -> None:
        assert subscription.durable is not None
        self.id = SubscriptionId(me, subscription.number)
        self.subscription = subscription
        self.options = subscription.durable
        self.entries: OrderedDict[int, BacklogEntry] = OrderedDict()
        """Entries by position, oldest first."""
        self.size = 0
        """The size of all entries in bytes."""
        self.waiting: deque[BacklogEntry] = deque()
        """Entries to send, in order; some may have left `entries` meanwhile."""
        self.in_flight: dict[int, BacklogEntry] = {}
        """Entries sent to the attached client, by position, in the order of sending."""
        self.client_window = 0
        """The most events in flight; 0 while no client is attached."""
        self.window_bytes = 0
        self.in_flight_bytes = 0
        self.unreported: Counter[MissedCode] = Counter()
        """Missed events that were not reported to the client yet."""
        self.prunes = False
        """Whether a timer is set for the age of the oldest entry."""
        self.standby_ns: Nanos = 0
        """The age before which an event is not sent."""
        self.stands_by = False
        """Whether a timer is set for the age at which the next event is sent."""
        self.doubtful_ns: Nanos = -FOREVER
        """Clients may have got events published before this time, at another home or before records were lost."""
        self.positions: dict[EventId, int] | None = None
        """Of all entries, once a client has confirmed any by their ids."""
        self.confirmed_early: dict[EventId, None] = {}
        """Events that were confirmed by their ids before they came, the newest last."""

    def add(self, entry: BacklogEntry) -> None:
        self.entries[entry.position] = entry
        if self.positions is not None:
            self.positions[entry.event.id] = entry.position
        self.size += entry.size

    def remove(self, position: int) -> BacklogEntry | None:
        entry = self.entries.pop(position, None)
        if entry is not None:
            self.size -= entry.size
            if self.positions is not None:
                self.positions.pop(entry.event.id, None)
            if self.in_flight.pop(position, None) is not None:
                self.in_flight_bytes -= entry.size
        return entry

    def find_positions(self, ids: tuple[EventId, ...]) -> list[int]:
        """The positions of these events. Remember those that have not arrived yet."""
        if self.positions is None:
            self.positions = {entry.event.id: position for position, entry in self.entries.items()}
        found = []
        for id_ in ids:
            position = self.positions.get(id_)
            if position is not None:
                found.append(position)
            else:
                self.confirmed_early[id_] = None
                if len(self.confirmed_early) > MAX_CONFIRMED_EARLY:
                    del self.confirmed_early[next(iter(self.confirmed_early))]
        return found

    @property
    def has_window(self) -> bool:
        """Whether another event may be sent to the client."""
        return len(self.in_flight) < self.client_window and self.in_flight_bytes < self.window_bytes

    @property
    def is_too_large(self) -> bool:
        return len(self.entries) > self.options.max_events or self.size > self.options.max_bytes


class DurableSubscriptions:
    """All durable subscriptions of this peer."""

    __slots__ = ("_me", "_next_position", "_timers", "backlogs", "doubtful_ns")

    def __init__(self, config: PeerConfig, timers: Timers) -> None:
        self._me = config.peer
        self._timers = timers
        self._next_position = config.incarnation << POSITION_SHIFT
        self.backlogs: dict[int, Backlog] = {}
        """By the number of the subscription."""
        self.doubtful_ns: Nanos = -FOREVER
        """Clients may have got events published before this time, although no record says so."""

    # ---------------------------------------------------------------- changes of subscriptions

    def subscribe(self, wanted: LocalSubscription, effects: Effects) -> None:
        """Add a durable subscription, or change the filter or the bounds of one. Its backlog stays."""
        assert wanted.durable is not None
        known = self.backlogs.get(wanted.number)
        if known is not None and known.subscription == wanted:
            return
        effects.append(Persist(DurableRecord(wanted.number, wanted.filter, wanted.qos, wanted.durable)))
        if known is None:
            self.backlogs[wanted.number] = Backlog(self._me, wanted)
        else:
            known.subscription, known.options = wanted, wanted.durable
            self._make_room(known, effects)

    def unsubscribe(self, number: int, effects: Effects) -> None:
        if self.backlogs.pop(number, None) is not None:
            effects.append(Persist(RemovedRecord(number)))

    def subscriptions(self) -> tuple[LocalSubscription, ...]:
        return tuple(backlog.subscription for backlog in self.backlogs.values())

    # ---------------------------------------------------------------- events

    def add_to_backlogs(
        self,
        now: Nanos,
        event: Event,
        born_ns: Nanos,
        wanted: list[tuple[SubscriptionId, Nanos | None]],
        effects: Effects,
    ) -> list[BacklogEntry]:
        """Store an event in the backlogs of these subscriptions. The caller releases each entry when it may be sent."""
        entries = []
        for subscription, deadline_ns in wanted:
            self._next_position += 1
            entry = BacklogEntry(event, born_ns, deadline_ns, self._next_position)
            self.backlogs[subscription.number].add(entry)
            entries.append(entry)
        confirmed = [
            (w[0].number, e)
            for w, e in zip(wanted, entries, strict=True)
            if self._take_early_confirmation(w[0].number, e)
        ]
        numbered = tuple((w[0].number, e.position) for w, e in zip(wanted, entries, strict=True))
        effects.append(Persist(QueuedRecord(event, born_ns, numbered)))
        for number, entry in confirmed:
            self._remove_confirmed(self.backlogs[number], (entry.position,), effects)
        for subscription, _ in wanted:
            backlog = self.backlogs[subscription.number]
            self._make_room(backlog, effects)
            self._schedule_pruning(now, backlog)
        return entries

    def _take_early_confirmation(self, number: int, entry: BacklogEntry) -> bool:
        """Remove a confirmation that came before the event. Return whether there was one."""
        early = self.backlogs[number].confirmed_early
        if entry.event.id not in early:
            return False
        del early[entry.event.id]
        return True

    def release(self, now: Nanos, number: int, entry: BacklogEntry, effects: Effects) -> None:
        """Send an entry, or queue it for the client."""
        backlog = self.backlogs.get(number)
        if backlog is None:
            return
        if entry.position not in backlog.entries:
            if not entry.released and backlog.subscription.qos.order:  # it left a gap, for which no event waits now
                effects.append(Persist(SkippedRecord(entry.event.id, not backlog.subscription.qos.expire)))
            entry.released = True
            return
        entry.released = True
        backlog.waiting.append(entry)
        self._send_waiting(now, backlog, effects)

    def count_missed(self, subscription: SubscriptionId, reason: MissedCode, effects: Effects) -> bool:
        """Count an event that a durable subscription misses. Return False if the subscription is not durable."""
        backlog = self.backlogs.get(subscription.number)
        if backlog is None:
            return False
        backlog.unreported[reason] += 1
        effects.append(Persist(MissedRecord(subscription.number, dict(backlog.unreported))))
        return True

    def remove_skipped(self, number: int, entry: BacklogEntry, effects: Effects) -> None:
        """Remove an event that arrived too late for publisher order from a backlog."""
        backlog = self.backlogs.get(number)
        if backlog is not None and backlog.remove(entry.position) is not None:
            backlog.unreported["skipped"] += 1
            effects.append(Persist(ConfirmedRecord(number, (entry.position,), "skipped")))

    def is_in_flight(self, number: int, position: int) -> bool:
        """Whether an event was sent to the attached client, which has not confirmed it."""
        backlog = self.backlogs.get(number)
        return backlog is not None and position in backlog.in_flight

    def expire(self, now: Nanos, number: int, position: int, effects: Effects) -> None:
        """Remove an event that expired before it reached the attached client."""
        backlog = self.backlogs[number]
        self._drop_as_missed(backlog, [backlog.in_flight[position]], "expired", effects)
        self._send_waiting(now, backlog, effects)

    # ---------------------------------------------------------------- clients

    def attach(self, now: Nanos, client: Attached, effects: Effects) -> bool:
        """Attach a client, and send it the backlog. Return False if there is no such subscription."""
        backlog = self.backlogs.get(client.number)
        if backlog is None:
            return False
        self.detach(client.number)
        backlog.client_window, backlog.window_bytes = max(1, client.window), client.window_bytes
        backlog.standby_ns = client.standby_ns
        backlog.doubtful_ns = now if client.is_shared else self.doubtful_ns
        self._drop_old(now, backlog, effects)
        self._report_missed(backlog, effects)
        self._send_waiting(now, backlog, effects)
        return True

    def detach(self, number: int) -> None:
        """Detach the client: return unconfirmed events to the backlog, to be redelivered."""
        backlog = self.backlogs.get(number)
        if backlog is None:
            return
        backlog.client_window = 0
        for entry in backlog.in_flight.values():
            entry.again = True
        backlog.waiting.extendleft(reversed(backlog.in_flight.values()))
        backlog.in_flight.clear()
        backlog.in_flight_bytes = 0

    def change_standby(self, now: Nanos, number: int, standby_ns: Nanos, effects: Effects) -> None:
        """Send events from this age on."""
        backlog = self.backlogs.get(number)
        if backlog is not None:
            backlog.standby_ns = standby_ns
            self._send_waiting(now, backlog, effects)

    def confirm(
        self, now: Nanos, number: int, positions: tuple[int, ...], ids: tuple[EventId, ...], effects: Effects
    ) -> None:
        """Remove events that the client has processed. Ignore those that are confirmed or missed already."""
        backlog = self.backlogs.get(number)
        if backlog is None:
            return
        if ids:
            positions = (*positions, *backlog.find_positions(ids))
        self._remove_confirmed(backlog, positions, effects)
        self._send_waiting(now, backlog, effects)

    def _remove_confirmed(self, backlog: Backlog, positions: tuple[int, ...], effects: Effects) -> None:
        """Remove confirmed events."""
        removed = [entry for position in positions if (entry := backlog.remove(position)) is not None]
        if removed:
            effects.append(Persist(ConfirmedRecord(backlog.id.number, tuple([entry.position for entry in removed]))))
        for entry in removed:
            entry.released = True

    def _send_waiting(self, now: Nanos, backlog: Backlog, effects: Effects) -> None:
        """Send waiting events, as far as the window allows."""
        expires = backlog.subscription.qos.expire
        expired: list[BacklogEntry] = []
        while backlog.waiting and backlog.has_window:
            entry = backlog.waiting[0]
            age_ns, deadline_ns = now - entry.born_ns, entry.deadline_ns
            if entry.position in backlog.entries and age_ns < backlog.standby_ns:
                self._begin_standby(entry.born_ns + backlog.standby_ns, backlog)
                break
            backlog.waiting.popleft()
            if entry.position not in backlog.entries:
                continue
            if entry.event.is_expired(age_ns) or (expires and deadline_ns is not None and age_ns > deadline_ns):
                expired.append(entry)
                continue
            backlog.in_flight[entry.position] = entry
            backlog.in_flight_bytes += entry.size
            is_again = entry.again or entry.born_ns < backlog.doubtful_ns
            if is_again:
                effects.append(Notice("redelivered", self._me))
            effects.append(Deliver(backlog.id, entry.event, age_ns, deadline_ns, entry.position, is_again))
        if expired:
            self._drop_as_missed(backlog, expired, "expired", effects)
        if backlog.unreported and backlog.has_window:
            self._report_missed(backlog, effects)

    def _begin_standby(self, until: Nanos, backlog: Backlog) -> None:
        if not backlog.stands_by:
            backlog.stands_by = True
            self._timers.set_timer(until, self._end_standby, backlog)

    def _end_standby(self, now: Nanos, backlog: Backlog, effects: Effects) -> None:
        backlog.stands_by = False
        if self.backlogs.get(backlog.id.number) is backlog:
            self._send_waiting(now, backlog, effects)

    # ---------------------------------------------------------------- bounds

    def _make_room(self, backlog: Backlog, effects: Effects) -> None:
        if not backlog.is_too_large:
            return
        gone = []
        size, count = backlog.size, len(backlog.entries)
        for entry in backlog.entries.values():
            if count <= backlog.options.max_events and size <= backlog.options.max_bytes:
                break
            gone.append(entry)
            size, count = size - entry.size, count - 1
        self._drop_as_missed(backlog, gone, "backlog-full", effects)

    def _drop_old(self, now: Nanos, backlog: Backlog, effects: Effects) -> None:
        """Drop events that are too old."""
        gone = []
        for entry in backlog.entries.values():
            if now - entry.born_ns <= backlog.options.max_age_ns:
                break
            gone.append(entry)
        if gone:
            self._drop_as_missed(backlog, gone, "max-age", effects)

    def _schedule_pruning(self, now: Nanos, backlog: Backlog) -> None:
        if backlog.entries and not backlog.prunes:
            backlog.prunes = True
            oldest = next(iter(backlog.entries.values()))
            due_ns = max(now, oldest.born_ns + backlog.options.max_age_ns) + 1
            self._timers.set_timer(due_ns, self._on_prune_timer, backlog)

    def _on_prune_timer(self, now: Nanos, backlog: Backlog, effects: Effects) -> None:
        backlog.prunes = False
        if self.backlogs.get(backlog.id.number) is backlog:
            self._drop_old(now, backlog, effects)
            self._send_waiting(now, backlog, effects)
            self._schedule_pruning(now, backlog)

    def _drop_as_missed(
        self, backlog: Backlog, gone: list[BacklogEntry], reason: BacklogCode, effects: Effects
    ) -> None:
        for entry in gone:
            backlog.remove(entry.position)
            effects.append(Drop(entry.event.id, (self._me,), reason))
            previous = entry.event.previous_at(self._me)
            if not entry.released and backlog.subscription.qos.order and previous is not None:
                effects.append(Persist(GapRecord(entry.event.id, previous, backlog.id.number)))
        backlog.unreported[reason] += len(gone)
        positions = tuple([entry.position for entry in gone])
        effects.append(Persist(ConfirmedRecord(backlog.id.number, positions, reason)))

    def _report_missed(self, backlog: Backlog, effects: Effects) -> None:
        """Report missed events to the attached client."""
        if backlog.unreported:
            effects.append(Missed(backlog.id, dict(backlog.unreported)))
            effects.append(Persist(MissedRecord(backlog.id.number, {})))
            backlog.unreported.clear()

    # ---------------------------------------------------------------- after a restart

    def restore(self, now: Nanos, record: Record) -> None:
        """Restore the state in a record of an earlier incarnation."""
        match record:
            case DurableRecord(number, filter_, qos, options):
                wanted = LocalSubscription(number, filter_, qos, options)
                known = self.backlogs.get(number)
                if known is None:
                    self.backlogs[number] = Backlog(self._me, wanted)
                else:
                    known.subscription, known.options = wanted, options
            case RemovedRecord(number):
                self.backlogs.pop(number, None)
            case QueuedRecord(event, born_ns, entries):
                for number, position in entries:
                    backlog = self.backlogs.get(number)
                    if backlog is not None:
                        entry = BacklogEntry(event, born_ns, backlog.subscription.qos.deadline_ns, position)
                        entry.again = True  # it is unknown whether the client got it
                        backlog.add(entry)
            case ConfirmedRecord(number, positions, missed):
                backlog = self.backlogs.get(number)
                if backlog is not None:
                    for position in positions:
                        backlog.remove(position)
                    if missed is not None:
                        backlog.unreported[missed] += len(positions)
            case MissedRecord(number, counts):
                if number in self.backlogs:
                    self.backlogs[number].unreported = Counter(counts)

    def finish_restore(self, now: Nanos, effects: Effects) -> list[tuple[int, BacklogEntry]]:
        """Queue all restored events for their clients. Return the numbers and entries of ordered subscriptions, which
        the caller releases as before the restart."""
        ordered: list[tuple[int, BacklogEntry]] = []
        for number, backlog in self.backlogs.items():
            self._make_room(backlog, effects)
            self._schedule_pruning(now, backlog)
            if backlog.subscription.qos.order:
                ordered += [(number, entry) for entry in backlog.entries.values()]
            else:
                backlog.waiting.extend(backlog.entries.values())
        return ordered
