"""Durable records, which a peer with persistence stores and restores after a restart."""

from typing import Any, Final

import msgspec

from wend.model.events import DurableOptions, Event, EventId, PeerId, Qos, Value
from wend.model.units import Nanos
from wend.protocol.notices import MissedCode

TIME_FIELDS: Final = ("born_ns", "since_ns")
"""The names of fields with a time, in records and in the messages that plug-ins remember."""


class PendingRecord(msgspec.Struct, frozen=True, gc=False, tag="pending"):
    """This peer is responsible for an event towards these destinations."""

    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    ranks: tuple[int, ...] = ()
    """The rank of the copy per destination (`copy_ranks.py`); empty if all are 0."""


class ReleasedRecord(msgspec.Struct, frozen=True, gc=False, tag="released"):
    """Other peers have taken over the responsibility for a pending event, or it was dropped on purpose."""

    id: EventId


class DeliveredRecord(msgspec.Struct, frozen=True, gc=False, tag="delivered"):
    """The local subscribers have this event; they never get it again."""

    id: EventId


class DurableRecord(msgspec.Struct, frozen=True, gc=False, tag="durable"):
    """A durable subscription. The newest record of a number is valid."""

    number: int
    filter: str
    qos: Qos
    options: DurableOptions


class RemovedRecord(msgspec.Struct, frozen=True, gc=False, tag="removed"):
    """A durable subscription has ended, together with its backlog."""

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
    """How many missed events were not reported to the client of a durable subscription. The newest record is valid;
    later `ConfirmedRecord`s add to it."""

    number: int
    counts: dict[MissedCode, int]


class SkippedRecord(msgspec.Struct, frozen=True, gc=False, tag="skipped"):
    """Ordered subscriptions skipped a predecessor of this event, and no longer get earlier events. The newest record of
    an incarnation of a publisher is valid."""

    id: EventId
    is_patient: bool = True
    """Whether it concerns the subscriptions that want late events, too, or those that let events expire."""


class GapRecord(msgspec.Struct, frozen=True, gc=False, tag="gap"):
    """An event left the backlog of an ordered subscription while it waited for its predecessor. Later events still wait
    for that predecessor, until a `SkippedRecord` names this event or a later one."""

    id: EventId
    previous: int
    """The sequence number of its predecessor. If that left a gap as well, the number before it, and so on."""
    number: int
    """The number of the subscription."""


class RetainedRecord(msgspec.Struct, frozen=True, gc=False, tag="retained"):
    """The event retained for a value of an attribute, or nil if there is none. The newest record is valid."""

    attribute: str
    value: Value
    born_ns: Nanos = 0
    event: Event | None = None


class StateRecord(msgspec.Struct, frozen=True, gc=False, tag="state"):
    """A message that a plug-in asked to remember. The newest record of a plug-in and key is valid."""

    plugin: str
    key: int
    body: Any
    """The message. Its fields in `TIME_FIELDS` are times of the peer, which a driver translates after a restart."""


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
