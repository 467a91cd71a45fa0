"""The events that a publisher's peer stores until every region has settled them."""

from collections.abc import Iterator

from wend.matching.order_cells import Interval, is_covered
from wend.model.events import Event, EventId, event_bytes
from wend.model.units import SECOND, Nanos
from wend.strategies.rendezvous.messages import StoredEvent
from wend.strategies.rendezvous.regions import event_regions
from wend.strategies.ring.bounded import StoreSlots

FIRST_WAIT_NS: Nanos = 4 * SECOND
LONGEST_WAIT_NS: Nanos = 32 * SECOND
"""How long after an attempt the next one follows: the wait doubles up to the longest."""
MAX_CODES = 4096
"""How many settled regions a peer remembers for an event and a name."""


class _Stored:
    __slots__ = ("born_ns", "event", "slot", "tries", "unsettled", "until_ns")

    def __init__(self, event: Event, born_ns: Nanos, slot: int) -> None:
        self.event = event
        self.born_ns = born_ns
        self.slot = slot
        self.unsettled: dict[str, tuple[Interval, list[str]]] = {
            name: (cells, []) for name, cells in event_regions(event)
        }
        """By name of regions: the cells of the event's value, and the codes of the regions that have settled it."""
        self.tries = 0
        self.until_ns: Nanos = 0


class StoredEvents:
    """The events of a publisher's peer that some region has not settled. Each has a slot in the peer's memory."""

    def __init__(self, room: int, room_bytes: int) -> None:
        self._room = room
        self._room_bytes = room_bytes
        self._bytes = 0
        self._events: dict[EventId, _Stored] = {}
        self._slots = StoreSlots()

    def __len__(self) -> int:
        return len(self._events)

    def add(self, now: Nanos, event: Event, born_ns: Nanos) -> tuple[int, dict[EventId, int]]:
        """Store an event. Returns its slot, and the oldest events with their slots if they were dropped to make
        room."""
        lost: dict[EventId, int] = {}
        more = event_bytes(event)
        while self._events and (len(self._events) >= self._room or self._bytes + more > self._room_bytes):
            oldest = next(iter(self._events))
            lost[oldest] = self._remove(oldest)
        slot = self._slots.allocate()
        self._insert(event, born_ns, slot).until_ns = now + FIRST_WAIT_NS
        return slot, lost

    def _insert(self, event: Event, born_ns: Nanos, slot: int) -> _Stored:
        stored = self._events[event.id] = _Stored(event, born_ns, slot)
        self._bytes += event_bytes(event)
        return stored

    def _remove(self, id_: EventId) -> int:
        """Forget an event, and return its slot, which is free now."""
        stored = self._events.pop(id_)
        self._bytes -= event_bytes(stored.event)
        self._slots.free(stored.slot)
        return stored.slot

    def recall(self, record: StoredEvent) -> None:
        """Restore a record of a former incarnation. Records come in the order in which they were stored."""
        for id_ in [id_ for id_, stored in self._events.items() if stored.slot == record.slot]:
            self._remove(id_)
        self._slots.recall(record.slot, record.event is not None)
        if record.event is not None:
            self._insert(record.event, record.born_ns, record.slot)

    def settle(self, id_: EventId, name: str, code: str) -> int | None:
        """Record that a region has settled an event. Returns the event's slot if it was the last region."""
        stored = self._events.get(id_)
        if stored is None or name not in stored.unsettled:
            return None
        cells, codes = stored.unsettled[name]
        if code in codes or len(codes) >= MAX_CODES:
            return None
        codes.append(code)
        if not is_covered(cells, codes):
            return None
        del stored.unsettled[name]
        if stored.unsettled:
            return None
        return self._remove(id_)

    def take_due(self, now: Nanos) -> Iterator[tuple[Event, Nanos, str, Interval]]:
        """The events to send again, each with a name of regions that have not settled it."""
        for stored in list(self._events.values()):
            if stored.until_ns <= now:
                stored.tries += 1
                stored.until_ns = now + min(LONGEST_WAIT_NS, FIRST_WAIT_NS << stored.tries)
                for name, (cells, _) in list(stored.unsettled.items()):
                    yield stored.event, stored.born_ns, name, cells
