"""Retained events: the newest event of each value of an attribute, for later subscriptions.

A publisher asks its peer to retain an event by an attribute, such as the topic. The peer retains the newest event for
each value of that attribute. Their number and bytes are bounded, and the oldest are dropped first. With persistence
they survive a restart. An event with a ttl is dropped when it expires.
"""

from wend.matching.filters import parse
from wend.model.events import Event, PeerId, Value, event_bytes
from wend.model.units import SECOND, Nanos
from wend.protocol.ports import Notice, Persist
from wend.protocol.records import RetainedRecord
from wend.protocol.timers import Effects

MAX_RETAINED = 10_000
MAX_RETAINED_BYTES = 16 * 1024 * 1024

Key = tuple[str, Value]


class RetainedEvents:
    """The events that a peer retains, the oldest first."""

    __slots__ = ("_bytes", "_events", "_expired_ns", "_me", "_stores")

    def __init__(self, me: PeerId, stores: bool) -> None:
        self._me = me
        self._stores = stores
        self._events: dict[Key, tuple[Event, Nanos]] = {}
        """Events and their times of publication, by attribute and value."""
        self._bytes = 0
        self._expired_ns: Nanos = -SECOND
        """When expired events were last removed."""

    def __len__(self) -> int:
        return len(self._events)

    def retain(self, attribute: str, event: Event, born: Nanos, effects: Effects) -> None:
        """Retain an event that has the attribute, in place of the previous one."""
        value = event.attributes.get(attribute)
        if value is None:
            return
        self._store_event((attribute, value), event, born)
        self._store_record(RetainedRecord(attribute, value, born, event), effects)
        if self._is_full() and born >= self._expired_ns + SECOND:
            self._expired_ns = born
            for key in [key for key, (one, since) in self._events.items() if one.is_expired(born - since)]:
                self.forget(*key, effects)
        while self._is_full():
            effects.append(Notice("retained-dropped", self._me))
            self.forget(*next(iter(self._events)), effects)

    def _is_full(self) -> bool:
        return len(self._events) > MAX_RETAINED or self._bytes > MAX_RETAINED_BYTES

    def forget(self, attribute: str, value: Value, effects: Effects) -> None:
        if self._remove_event((attribute, value)):
            self._store_record(RetainedRecord(attribute, value), effects)

    def restore(self, record: RetainedRecord) -> None:
        """Restore an event that an earlier incarnation retained."""
        key = (record.attribute, record.value)
        if record.event is None:
            self._remove_event(key)
        else:
            self._store_event(key, record.event, record.born_ns)

    def get(self, attribute: str, value: Value) -> Event | None:
        """The event retained for this value of an attribute, or None. It may have expired."""
        found = self._events.get((attribute, value))
        return None if found is None else found[0]

    def has_expired(self, now: Nanos, attribute: str, value: Value) -> bool:
        """Whether an event is retained for this value and has expired."""
        found = self._events.get((attribute, value))
        return found is not None and found[0].is_expired(now - found[1])

    def find_matching(self, now: Nanos, text: str) -> list[tuple[Event, Nanos]]:
        """The events that match a filter, with their ages, oldest first. Raises FilterError."""
        wanted = parse(text)
        found = [(event, now - born) for event, born in self._events.values() if wanted.matches(event.attributes)]
        return [(event, age) for event, age in found if not event.is_expired(age)]

    def _store_event(self, key: Key, event: Event, born: Nanos) -> None:
        self._remove_event(key)
        self._events[key] = (event, born)
        self._bytes += event_bytes(event)

    def _remove_event(self, key: Key) -> bool:
        before = self._events.pop(key, None)
        if before is None:
            return False
        self._bytes -= event_bytes(before[0])
        return True

    def _store_record(self, record: RetainedRecord, effects: Effects) -> None:
        if self._stores:
            effects.append(Persist(record))
