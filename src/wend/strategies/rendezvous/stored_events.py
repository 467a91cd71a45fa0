"""Events that a peer stores until they are settled: at the publisher's peer, and at the owners of regions."""

from collections.abc import Iterator

import msgspec

from wend.matching.order_cells import Interval, covered
from wend.model.events import Event, EventId, PeerId, event_bytes
from wend.model.units import SECOND, Nanos
from wend.strategies.rendezvous.messages import StoredEvent

FIRST_WAIT_NS: Nanos = 4 * SECOND
MOST_CODES = 4096
"""Regions that may say of an event that they have settled it, before all of them have."""
LONGEST_WAIT_NS: Nanos = 32 * SECOND
"""How long after an attempt the next one follows: the wait doubles up to the longest."""


class _Stored:
    __slots__ = ("born_ns", "event", "open", "slot", "tries", "until_ns")

    def __init__(self, event: Event, born_ns: Nanos, slot: int, open_: dict[str, tuple[Interval, list[str]]]) -> None:
        self.event = event
        self.born_ns = born_ns
        self.slot = slot
        self.open = open_
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
        self._free: list[int] = []
        self._slots = 0

    def __len__(self) -> int:
        return len(self._events)

    def __contains__(self, id_: EventId) -> bool:
        return id_ in self._events

    def add(
        self, now: Nanos, event: Event, born_ns: Nanos, names: list[tuple[str, Interval]]
    ) -> tuple[int, dict[EventId, int]]:
        """Store an event. Returns its slot, and the oldest events with their slots if they had to make room."""
        lost: dict[EventId, int] = {}
        more = event_bytes(event)
        while self._events and (len(self._events) >= self._room or self._bytes + more > self._room_bytes):
            oldest = next(iter(self._events))
            lost[oldest] = self._remove(oldest)
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._slots
            self._slots += 1
        self._put(now, event, born_ns, slot, names).until_ns = now + FIRST_WAIT_NS
        return slot, lost

    def _put(self, now: Nanos, event: Event, born: Nanos, slot: int, names: list[tuple[str, Interval]]) -> _Stored:
        open_: dict[str, tuple[Interval, list[str]]] = {name: (cells, []) for name, cells in names}
        made = self._events[event.id] = _Stored(event, born, slot, open_)
        self._bytes += event_bytes(event)
        return made

    def _remove(self, id_: EventId) -> int:
        """Forget an event; its slot, which is free now."""
        stored = self._events.pop(id_)
        self._bytes -= event_bytes(stored.event)
        self._free.append(stored.slot)
        return stored.slot

    def recall(self, now: Nanos, record: StoredEvent, names: list[tuple[str, Interval]] | None) -> None:
        """What a former incarnation stored. Records come in the order in which they were stored."""
        for id_ in [id_ for id_, stored in self._events.items() if stored.slot == record.slot]:
            self._remove(id_)
        while self._slots <= record.slot:
            self._free.append(self._slots)
            self._slots += 1
        if record.event is None:
            if record.slot not in self._free:
                self._free.append(record.slot)
            return
        if record.slot in self._free:
            self._free.remove(record.slot)
        self._put(now, record.event, record.born_ns, record.slot, names or [])

    def settled(self, id_: EventId, name: str, code: str) -> int | None:
        """A region has settled an event. The slot, if it was the last one."""
        stored = self._events.get(id_)
        if stored is None or name not in stored.open:
            return None
        cells, codes = stored.open[name]
        if code in codes or len(codes) >= MOST_CODES:
            return None
        codes.append(code)
        if not covered(cells, codes):
            return None
        del stored.open[name]
        if stored.open:
            return None
        return self._remove(id_)

    def due(self, now: Nanos) -> Iterator[tuple[Event, Nanos, str, Interval]]:
        """What to send again: each event, with the names of regions that have not settled it."""
        for stored in list(self._events.values()):
            if stored.until_ns <= now:
                stored.tries += 1
                stored.until_ns = now + min(LONGEST_WAIT_NS, FIRST_WAIT_NS << stored.tries)
                for name, (cells, _) in list(stored.open.items()):
                    yield stored.event, stored.born_ns, name, cells


class SecondLook(msgspec.Struct, gc=False):
    """An event in a region whose owner may not have all entries yet: who has got it, and when to look again."""

    event: Event
    born_ns: Nanos
    hops: int
    notified: set[PeerId]
    time_ns: Nanos


class Unsettled:
    """An event in a region, and the subscribers' peers that have not said that they have it."""

    __slots__ = ("_told", "born_ns", "event", "hops", "sure", "tries", "until_ns", "waiting")

    def __init__(
        self, event: Event, born_ns: Nanos, hops: int, waiting: list[PeerId], now: Nanos, sure: bool = True
    ) -> None:
        self.sure = sure
        """Whether all entries of the region were known when it was matched."""
        self._told = set(waiting)
        self.event = event
        self.born_ns = born_ns
        self.hops = hops
        self.waiting = dict.fromkeys(waiting)
        self.tries = 0
        self.until_ns = now + FIRST_WAIT_NS

    def reached(self, peer: PeerId) -> bool:
        """A peer has it, or is gone. Whether nobody is left to wait for."""
        self.waiting.pop(peer, None)
        return not self.waiting

    def fresh(self, peers: list[PeerId]) -> list[PeerId]:
        """Those of these peers that were not notified before."""
        return [peer for peer in peers if peer not in self._told]

    def add(self, peers: list[PeerId], sure: bool) -> None:
        """Wait for these peers, too."""
        self._told.update(peers)
        self.waiting.update(dict.fromkeys(peers))
        self.sure = sure

    def again(self, now: Nanos) -> list[PeerId]:
        """The peers to notify again."""
        if self.until_ns > now:
            return []
        self.tries += 1
        self.until_ns = now + min(LONGEST_WAIT_NS, FIRST_WAIT_NS << min(self.tries, 5))
        return list(self.waiting)
