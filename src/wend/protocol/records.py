"""Durable records: what a peer with persistence stores, and finds again after a restart."""

from typing import Any, Final

import msgspec

from wend.model.events import DurableOptions, Event, EventId, PeerId, Qos, Value
from wend.model.units import Nanos
from wend.protocol.notices import MissedCode

TIME_FIELDS: Final = ("born_ns", "since_ns")
"""The names of fields with a time, in records and in the messages that plug-ins remember."""


class PendingRecord(msgspec.Struct, frozen=True, gc=False, tag="pending"):
    """This peer answers for an event towards these destinations."""

    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    ranks: tuple[int, ...] = ()
    """How its copy ranks, per destination (`copy_ranks.py`); empty if all are 0."""


class ReleasedRecord(msgspec.Struct, frozen=True, gc=False, tag="released"):
    """Other peers answer for a pending event now, or it was dropped on purpose."""

    id: EventId


class DeliveredRecord(msgspec.Struct, frozen=True, gc=False, tag="delivered"):
    """The local subscribers have this event; they never get it again."""

    id: EventId


class DurableRecord(msgspec.Struct, frozen=True, gc=False, tag="durable"):
    """A durable subscription. The newest of a number counts."""

    number: int
    filter: str
    qos: Qos
    options: DurableOptions


class RemovedRecord(msgspec.Struct, frozen=True, gc=False, tag="removed"):
    """A durable subscription ended, and its backlog with it."""

    number: int


class QueuedRecord(msgspec.Struct, frozen=True, gc=False, tag="queued"):
    """An event waits in the backlogs of durable subscriptions."""

    event: Event
    born_ns: Nanos
    entries: tuple[tuple[int, int], ...]
    """The number of each subscription, and the event's position in its backlog."""


class ConfirmedRecord(msgspec.Struct, frozen=True, gc=False, tag="confirmed", omit_defaults=True):
    """Events left the backlog of a durable subscription: the client confirmed them, or it misses them."""

    number: int
    positions: tuple[int, ...]
    missed: MissedCode | None = None


class MissedRecord(msgspec.Struct, frozen=True, gc=False, tag="missed"):
    """How many events the client of a durable subscription misses and was not told of. The newest counts; later
    `ConfirmedRecord`s add to it."""

    number: int
    counts: dict[MissedCode, int]


class SkippedRecord(msgspec.Struct, frozen=True, gc=False, tag="skipped"):
    """Ordered subscriptions went on to this event without one before it; they do not get earlier ones any more. The
    newest of an incarnation of a publisher counts."""

    id: EventId


class GapRecord(msgspec.Struct, frozen=True, gc=False, tag="gap"):
    """An event left the backlog of an ordered subscription while it waited for the one before it. Later events still
    wait for that one, until a `SkippedRecord` names this event or a later one."""

    id: EventId
    previous: int
    """The sequence number of the event before it; if that has left a gap, too, of the one before that, and so on."""
    number: int
    """Of the subscription."""


class RetainedRecord(msgspec.Struct, frozen=True, gc=False, tag="retained"):
    """The event that is retained for a value of an attribute; nil: none is. The newest record counts."""

    attribute: str
    value: Value
    born_ns: Nanos = 0
    event: Event | None = None


class StateRecord(msgspec.Struct, frozen=True, gc=False, tag="state"):
    """A message that a plug-in asked to remember. The newest of a plug-in and key counts."""

    plugin: str
    key: int
    body: Any
    """Its fields `TIME_FIELDS`, if it has them, are times of the peer: a driver translates them after a restart."""


Record = (
    PendingRecord
    | ReleasedRecord
    | DeliveredRecord
    | DurableRecord
    | RemovedRecord
    | QueuedRecord
    | ConfirmedRecord
    | MissedRecord
    | SkippedRecord
    | GapRecord
    | RetainedRecord
    | StateRecord
)
