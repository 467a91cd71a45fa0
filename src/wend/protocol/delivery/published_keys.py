"""Published keys: events that an application publishes with the same key are one event.

An application that does not know whether its event was published, for example because its peer crashed before the
receipt, publishes it again with the same key, at this peer or at another one. The peer where it is published again
names the earlier event in the receipt if it knows it. Else both events travel, and each subscriber's peer delivers the
one that arrives first.
"""

from wend.model.events import KEY_HEADER, Event, EventId, Headers
from wend.model.units import SECOND, Nanos
from wend.protocol.ports import Persist
from wend.protocol.records import KeyRecord
from wend.protocol.timers import Effects

WINDOW_NS: Nanos = 600 * SECOND
"""How long a key is remembered after the publication of its event."""
MAX_KEYS = 100_000
"""The most keys to remember. Beyond it, the oldest is forgotten."""
MAX_CHARS = 1024
"""The length of a key with the name of its client; a longer one, which no honest peer sends, is not remembered."""


class PublishedKeys:
    """The keys of the events that were published or delivered here."""

    __slots__ = ("_events", "_persistence")

    def __init__(self, *, persistence: bool) -> None:
        """`persistence`: whether a restart needs the keys."""
        self._persistence = persistence
        self._events: dict[str, tuple[Nanos, EventId]] = {}
        """By key: the event, and when it was published. The key that came last is at the end."""

    def find(self, now: Nanos, headers: Headers) -> EventId | None:
        """The earlier event with the key in these headers."""
        known = self._events.get(headers.get(KEY_HEADER, ""))
        return None if known is None or now - known[0] > WINDOW_NS else known[1]

    def add(self, now: Nanos, event: Event, born: Nanos, effects: Effects) -> bool:
        """Remember the key of an event, if it has one. Return False if another event had this key before."""
        key = event.headers.get(KEY_HEADER)
        if key is None or len(key) > MAX_CHARS:
            return True
        id_, known = event.origin or event.id, self.find(now, event.headers)
        if known is not None:
            return known == id_
        self._store_key(key, born, id_)
        if self._persistence:
            effects.append(Persist(KeyRecord(key, id_, born)))
        return True

    def restore(self, record: KeyRecord) -> None:
        self._store_key(record.key, record.born_ns, record.id)

    def _store_key(self, key: str, born: Nanos, id_: EventId) -> None:
        self._events.pop(key, None)
        self._events[key] = (born, id_)
        if len(self._events) > MAX_KEYS:
            del self._events[next(iter(self._events))]
