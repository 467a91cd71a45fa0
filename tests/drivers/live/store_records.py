"""A record of a store, and damage to its file."""

from collections.abc import Callable
from pathlib import Path

from wend.model.events import Event, EventId
from wend.model.units import Nanos
from wend.protocol.records import (
    PendingRecord,
)


def pending(sequence: int, payload: bytes = b"", born_ns: Nanos = 5) -> PendingRecord:
    return PendingRecord(Event(EventId(1, 1, sequence), {"topic": "a"}, payload), born_ns, (2, 3))


def damage(path: Path, change: Callable[[bytearray], None]) -> bytes:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)
    return bytes(content)
