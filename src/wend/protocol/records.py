"""Durable records: what a peer with persistency stores, and finds again after a restart."""

from typing import Any

import msgspec

from wend.model.events import Event, EventId, PeerId
from wend.model.units import Nanos


class PendingRecord(msgspec.Struct, frozen=True, gc=False, tag="pending"):
    """This peer answers for an event towards these destinations."""

    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    ranks: tuple[int, ...] = ()
    """How its copy ranks, per destination (`copy_ranks.py`); empty where all are 0."""


class ReleasedRecord(msgspec.Struct, frozen=True, gc=False, tag="released"):
    """Other peers answer for a pending event now, or it was dropped on purpose."""

    id: EventId


class DeliveredRecord(msgspec.Struct, frozen=True, gc=False, tag="delivered"):
    """The local subscribers have this event; they never get it again."""

    id: EventId


class StateRecord(msgspec.Struct, frozen=True, gc=False, tag="state"):
    """A message that a plug-in asked to remember. The newest of a plug-in and key counts."""

    plugin: str
    key: int
    body: Any


Record = PendingRecord | ReleasedRecord | DeliveredRecord | StateRecord
