"""The records that a restart still needs: none of finished events, and only the newest of each state."""

from collections import Counter, deque
from typing import Any, TypeVar

from msgspec.structs import replace

from wend.model.events import EventId, PeerId, Value
from wend.model.units import FOREVER, Nanos
from wend.protocol.delivery.published_keys import MAX_KEYS
from wend.protocol.notices import MissedCode
from wend.protocol.records import (
    TIME_FIELDS,
    ConfirmedRecord,
    DeliveredRecord,
    DurableRecord,
    GapRecord,
    KeyRecord,
    MissedRecord,
    PendingRecord,
    QueuedRecord,
    Record,
    ReleasedRecord,
    RemovedRecord,
    RetainedRecord,
    SkippedRecord,
    StateRecord,
)

MAX_DELIVERED = 200_000
MAX_SKIPPED = 4096
K = TypeVar("K")
R = TypeVar("R", bound=Record)


class NeededRecords:
    """Selects the needed records from all that are written."""

    def __init__(self) -> None:
        self._pending: dict[EventId, PendingRecord] = {}
        self._delivered: deque[bytes] = deque(maxlen=MAX_DELIVERED)
        """Encoded, because so many objects would slow the garbage collector down."""
        self._states: dict[tuple[str, int], StateRecord] = {}
        self._retained: dict[tuple[str, Value], RetainedRecord] = {}
        self._keys: dict[str, KeyRecord] = {}
        """The newest keys, oldest first."""
        self._backlogs = NeededBacklogs()

    def add(self, record: Record, body: bytes) -> None:
        """Add a record and its encoded form, `body`."""
        if type(record) is PendingRecord:
            self._pending[record.event.id] = record
        elif type(record) is ReleasedRecord:
            self._pending.pop(record.id, None)
        elif type(record) is DeliveredRecord:
            self._delivered.append(body)
        elif type(record) is StateRecord:
            self._states[record.plugin, record.key] = record
        elif type(record) is RetainedRecord:
            self._retained.pop((record.attribute, record.value), None)
            if record.event is not None:
                self._retained[record.attribute, record.value] = record
        elif type(record) is KeyRecord:
            self._keys.pop(record.key, None)
            _add_bounded(self._keys, record.key, record, MAX_KEYS)
        else:
            self._backlogs.add(record)

    def records(self) -> list[Record | bytes]:
        """All needed records, in the order in which they are written, some encoded."""
        states: list[Record | bytes] = [*self._states.values(), *self._retained.values(), *self._keys.values()]
        return [*states, *self._delivered, *self._backlogs.records(), *self._pending.values()]

    def shift_times(self, by_ns: Nanos, now: Nanos) -> None:
        """Move the times of the records of earlier incarnations, which have all been added. If a wrong clock put the
        time of an event in the future, it counts as published now."""
        _shift(self._pending, by_ns, now)
        _shift(self._retained, by_ns, now)
        _shift(self._states, by_ns, now)
        _shift(self._keys, by_ns, now)
        self._backlogs.shift_times(by_ns, now)


class NeededBacklogs:
    """The durable subscriptions, and the events that their clients have not confirmed."""

    def __init__(self) -> None:
        self._subscriptions: dict[int, DurableRecord] = {}
        self._queued: dict[EventId, QueuedRecord] = {}
        self._owed: dict[tuple[int, int], EventId] = {}
        """By subscription and position."""
        self._missed: dict[int, Counter[MissedCode]] = {}
        self._skipped: dict[tuple[PeerId, int, bool], SkippedRecord] = {}
        self._gaps: dict[tuple[EventId, int], GapRecord] = {}
        """By event and subscription."""

    def add(self, record: Record) -> None:
        match record:
            case QueuedRecord(event, _, entries):
                self._queued[event.id] = record
                for entry in entries:
                    self._owed[entry] = event.id
            case ConfirmedRecord(number, positions, missed):
                for position in positions:
                    self._forget_entry((number, position))
                if missed is not None:
                    self._missed.setdefault(number, Counter())[missed] += len(positions)
            case MissedRecord(number, counts):
                self._missed[number] = Counter(counts)
            case SkippedRecord():
                self._add_skipped(record)
            case GapRecord():
                self._add_gap(record)
            case DurableRecord(number):
                self._subscriptions[number] = record
            case RemovedRecord(number):
                self._remove_subscription(number)

    def _add_skipped(self, record: SkippedRecord) -> None:
        stream, sequence = record.id[:2], record.id.sequence
        self._skipped.pop((*stream, record.is_patient), None)
        _add_bounded(self._skipped, (*stream, record.is_patient), record)
        for id_, number in list(self._gaps):
            subscription = self._subscriptions.get(number)
            concerned = subscription is None or subscription.qos.expire is not record.is_patient
            if concerned and id_[:2] == stream and id_.sequence <= sequence:
                del self._gaps[id_, number]

    def _add_gap(self, record: GapRecord) -> None:
        """Add a gap, joined with the one that ends where it begins."""
        publisher, incarnation, _ = record.id
        before = self._gaps.pop((EventId(publisher, incarnation, record.previous), record.number), None)
        whole = record if before is None else replace(record, previous=before.previous)
        _add_bounded(self._gaps, (record.id, record.number), whole)

    def _remove_subscription(self, number: int) -> None:
        self._subscriptions.pop(number, None)
        self._missed.pop(number, None)
        for entry in [entry for entry in self._owed if entry[0] == number]:
            self._forget_entry(entry)
        for key in [key for key in self._gaps if key[1] == number]:
            del self._gaps[key]

    def _forget_entry(self, entry: tuple[int, int]) -> None:
        id_ = self._owed.pop(entry, None)
        if id_ is not None and not any(other in self._owed for other in self._queued[id_].entries):
            del self._queued[id_]

    def records(self) -> list[Record]:
        missed = [MissedRecord(number, dict(counts)) for number, counts in self._missed.items() if counts]
        queued = (self._drop_confirmed(one) for one in self._queued.values())
        return [*self._subscriptions.values(), *missed, *self._skipped.values(), *self._gaps.values(), *queued]

    def shift_times(self, by_ns: Nanos, now: Nanos) -> None:
        for entry in [entry for entry in self._owed if entry[0] not in self._subscriptions]:
            self._forget_entry(entry)  # the record of the subscription was damaged
        _shift(self._queued, by_ns, now)

    def _drop_confirmed(self, record: QueuedRecord) -> QueuedRecord:
        """The record without the entries that are confirmed."""
        left = tuple(entry for entry in record.entries if entry in self._owed)
        return record if len(left) == len(record.entries) else QueuedRecord(record.event, record.born_ns, left)


def _add_bounded(records: dict[K, R], key: K, record: R, most: int = MAX_SKIPPED) -> None:
    """Add a record. If the table is full, remove the oldest."""
    records[key] = record
    if len(records) > most:
        del records[next(iter(records))]


def _shift(records: dict[K, R], by_ns: Nanos, now: Nanos) -> None:
    for key, record in records.items():
        records[key] = shift_times(record, by_ns, now)


def shift_times(record: R, by_ns: Nanos, latest: Nanos = FOREVER) -> R:
    """The record with its times moved, to `latest` at most; the same record if it has none."""
    if isinstance(record, PendingRecord | QueuedRecord | RetainedRecord | KeyRecord):
        born_ns = min(record.born_ns + by_ns, latest)
        return record if born_ns == record.born_ns else replace(record, born_ns=born_ns)
    if isinstance(record, StateRecord) and (moved := _shifted_times(record.body, by_ns, latest)):
        body = {**record.body, **moved} if isinstance(record.body, dict) else replace(record.body, **moved)
        return replace(record, body=body)
    return record


def _shifted_times(body: Any, by_ns: Nanos, latest: Nanos) -> dict[str, Nanos]:
    """The times in the message of a plug-in, which may still be a plain dict."""
    if isinstance(body, dict):
        times = {name: body[name] for name in TIME_FIELDS if name in body}
    else:
        times = {name: getattr(body, name) for name in TIME_FIELDS if hasattr(body, name)}
    return {name: min(time + by_ns, latest) for name, time in times.items() if isinstance(time, int)}
