"""The records of a log, and how they become bytes.

    frame = marker 4 | length 4 | crc32 4 | position 8 | time 8 | age 8 | event (msgpack)

The frame is the one of the store (`store/format.py`): its checksum covers everything after it, and the length. The
marker is random for each log, so that nothing in an event can be mistaken for a frame.

A position counts the events of the log from 1. Its upper bits hold the epoch: a log that has lost its end, or may have,
begins another epoch, so that no position ever names two events. Its lower bits count on.
"""

import struct
import sys
from typing import Final
from zlib import crc32

import msgspec

from wend.drivers.live.store.format import MARKER_BYTES, MAX_RECORD_BYTES
from wend.model.events import Event, EventId
from wend.model.units import Nanos

EPOCH_SHIFT: Final = 40
MAX_COUNT: Final = (1 << EPOCH_SHIFT) - 1
FRAME = struct.Struct(f"!{MARKER_BYTES}sII")
HEAD = struct.Struct("!QQQ")
_BEGIN = struct.Struct(f"!{MARKER_BYTES}sIIQQQ")
MAX_NUMBER: Final = 2**64 - 1


def count_of(position: int) -> int:
    """How many events the log had got with this one, as far as it knows."""
    return position & MAX_COUNT


def next_epoch(position: int) -> int:
    """The same count in the next epoch."""
    return position + (1 << EPOCH_SHIFT)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Event).decode


class _Identified(msgspec.Struct, gc=False):
    id: EventId


_decode_id = msgspec.msgpack.Decoder(_Identified).decode


class LogRecord(msgspec.Struct, frozen=True, gc=False):
    """An event in a log."""

    position: int
    time_ns: Nanos
    """The wall-clock time at which it was appended; never before that of an earlier record."""
    age_ns: Nanos
    """Its age at that time."""
    encoded: bytes

    def event(self) -> Event:
        """The event. Raises `msgspec.MsgspecError` if it is none."""
        return _decode(self.encoded)

    def id(self) -> EventId:
        """The id of the event. Raises `msgspec.MsgspecError`."""
        return _decode_id(self.encoded).id


def encode_event(event: Event) -> bytes:
    """An event as a log holds it: without what only peers on its route need."""
    if event.previous or event.groups:
        event = msgspec.structs.replace(event, previous=(), groups=())
    return _encode(event)


class RecordFraming:
    """How the records of one log are framed."""

    def __init__(self, marker: bytes) -> None:
        self.marker = marker
        self._seed = crc32(marker)

    def frame(self, record: LogRecord) -> bytes:
        body = HEAD.pack(record.position, record.time_ns, record.age_ns) + record.encoded
        length = len(body)
        return FRAME.pack(self.marker, length, crc32(body, self._seed ^ length)) + body

    def next_at(self, content: bytes, at: int) -> int:
        """Where the next frame may begin; negative if there is none."""
        return content.find(self.marker, at)

    def records(self, content: bytes, at: int, most: int = sys.maxsize) -> tuple[list[LogRecord], int]:
        """The records from byte `at` on, and the byte after them. Ends at the first that is damaged or cut off."""
        marker, seed, unpack, record = self.marker, self._seed, _BEGIN.unpack_from, LogRecord
        records: list[LogRecord] = []
        last = len(content) - _BEGIN.size
        while at <= last and len(records) < most:
            found, length, check, position, time_ns, age_ns = unpack(content, at)
            end = at + FRAME.size + length
            body = content[at + FRAME.size : end]
            if found != marker or len(body) != length or length < HEAD.size or crc32(body, seed ^ length) != check:
                break
            records.append(record(position, time_ns, age_ns, body[HEAD.size :]))
            at = end
        return records, at

    def is_cut_off(self, content: bytes, at: int) -> bool:
        """Whether a frame may begin at byte `at` and go on after the end of the content."""
        if at + FRAME.size > len(content):
            return True
        found, length, _ = FRAME.unpack_from(content, at)
        is_frame = found == self.marker and HEAD.size <= length <= MAX_RECORD_BYTES
        return bool(is_frame and at + FRAME.size + length > len(content))
