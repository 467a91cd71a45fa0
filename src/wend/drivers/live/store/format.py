"""The format of a store: how records become frames, and how a reader finds them in a damaged file.

    file   = "wend-store 3\\n" | marker 4 | crc32 4 | frame*
    frame  = marker 4 | length 4 | crc32 4 | msgpack

The marker is random for each file, so that nothing in an event can be mistaken for a frame. The first checksum covers
the bytes before it. The checksum of a frame covers its body, and begins with the CRC32 of the marker, xor the length.
If a reader finds bytes that are not a frame, it continues at the next marker that begins one. So damage loses only the
records that it hit. If the first line or the marker itself is damaged, the reader recovers it from the frames. Every
later version will begin with a line, a marker and their checksum, too, so that a reader can tell a newer store from a
damaged one.

Version 2 had neither a first checksum nor markers. It is read, and rewritten as version 3.
"""

import mmap
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from wend.model.errors import ConfigError
from wend.model.units import Nanos
from wend.protocol.records import Record

VERSION = 3
MAX_RECORD_BYTES = 16 * 1024 * 1024
MARKER_BYTES = 4
_LINE = b"wend-store %d\n" % VERSION
_LINE_2 = b"wend-store 2\n"
_CHECK = struct.Struct("!I")
_FRAME = struct.Struct(f"!{MARKER_BYTES}sII")
_FRAME_2 = struct.Struct("!II")
_ANY_LINE = re.compile(rb"wend-store (\d{1,9})\n")
_TAG = b"\xa4type"
"""Every record in msgpack begins with this after one byte: the name of the field for its kind."""


class IncarnationRecord(msgspec.Struct, frozen=True, gc=False, tag="incarnation"):
    """The driver's own record: an incarnation began."""

    incarnation: int


class ClockRecord(msgspec.Struct, frozen=True, gc=False, tag="clock"):
    """The driver's own record: how far the times in later records are ahead of the host's monotonic time."""

    ahead_ns: Nanos
    boot: str = ""
    """The boot of the host to which this monotonic time belongs; empty if it is unknown."""


StoredRecord = Record | IncarnationRecord | ClockRecord

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[StoredRecord] = msgspec.msgpack.Decoder(StoredRecord)
encode_record = _encoder.encode
decode_record = _decoder.decode


FileBytes = bytes | mmap.mmap


class DamagedBytes(NamedTuple):
    """Bytes of a store that could not be read."""

    at: int
    size: int

    def __str__(self) -> str:
        return f"{self.size} bytes at byte {self.at}"


class Framing:
    """How records are framed in one file of this version."""

    def __init__(self, marker: bytes) -> None:
        self.marker = marker
        self._seed = crc32(marker)

    @property
    def header(self) -> bytes:
        return _LINE + self.marker + _CHECK.pack(crc32(_LINE + self.marker))

    def frame(self, body: bytes) -> bytes:
        length = len(body)
        return _FRAME.pack(self.marker, length, crc32(body, self._seed ^ length)) + body

    def read_body(self, content: FileBytes, at: int) -> bytes | None:
        """The body of the frame at a position; None if there is no complete frame."""
        head = content[at : at + _FRAME.size]
        if len(head) < _FRAME.size or not head.startswith(self.marker):
            return None
        _, length, check = _FRAME.unpack(head)
        if not 0 < length <= MAX_RECORD_BYTES:
            return None
        body = content[at + _FRAME.size : at + _FRAME.size + length]
        return None if len(body) < length or crc32(body, self._seed ^ length) != check else body

    def frame_size(self, body: bytes) -> int:
        return _FRAME.size + len(body)

    def find_next_frame(self, content: FileBytes, at: int) -> int:
        """Where the next frame may begin; negative if there is none."""
        return content.find(self.marker, at)


class Version2Framing:
    """How records were framed in version 2. The field with which every record begins serves as a marker."""

    def read_body(self, content: FileBytes, at: int) -> bytes | None:
        head = content[at : at + _FRAME_2.size]
        if len(head) < _FRAME_2.size:
            return None
        length, check = _FRAME_2.unpack(head)
        if not 0 < length <= MAX_RECORD_BYTES:
            return None
        body = content[at + len(head) : at + len(head) + length]
        return None if len(body) < length or crc32(body) != check else body

    def frame_size(self, body: bytes) -> int:
        return _FRAME_2.size + len(body)

    def find_next_frame(self, content: FileBytes, at: int) -> int:
        tag_at = content.find(_TAG, at + _FRAME_2.size + 1)
        return tag_at if tag_at < 0 else tag_at - 1 - _FRAME_2.size


def new_framing() -> Framing:
    return Framing(os.urandom(MARKER_BYTES))


class StoreReader:
    """Reads the records of a store's file, and notes the parts that cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged: list[DamagedBytes] = []
        """The damaged parts in order; complete when all records have been read."""
        self.count = 0
        """Records that were read."""

    def records(self) -> Iterator[tuple[StoredRecord, bytes]]:
        """Each record and its body. Raises `ConfigError` if the file is not a store, or has another version."""
        if not self.path.exists() or not self.path.stat().st_size:
            return
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield from self.read_records(content)

    def read_records(self, content: FileBytes) -> Iterator[tuple[StoredRecord, bytes]]:
        """The records in the bytes of a file that is not empty."""
        begin, framing = self._recognise_framing(content)
        at, read_to = begin, begin
        while 0 <= at < len(content):
            stored = _read_record(content, at, framing)
            if stored is None:
                at = framing.find_next_frame(content, at + 1)
                continue
            if at > read_to:
                self.damaged.append(DamagedBytes(read_to, at - read_to))
            record, body = stored
            self.count += 1
            yield record, body
            at = read_to = at + framing.frame_size(body)
        if read_to < len(content):
            self.damaged.append(DamagedBytes(read_to, len(content) - read_to))

    def _recognise_framing(self, content: FileBytes) -> tuple[int, Framing | Version2Framing]:
        """Where the frames begin, and their framing."""
        marker, check = _read_header(content, len(_LINE))
        begin = len(_LINE) + MARKER_BYTES + _CHECK.size
        if marker and crc32(_LINE + marker) == check:
            if content[: len(_LINE)] != _LINE:
                self.damaged.append(DamagedBytes(0, len(_LINE)))
            return begin, Framing(marker)
        line = _ANY_LINE.match(content[:32])
        version = int(line[1]) if line is not None else 0
        if line is not None and version > VERSION:
            marker, check = _read_header(content, line.end())
            if marker and crc32(line[0] + marker) == check:
                raise self._version_error(version)
        if version == 2:
            return len(_LINE_2), Version2Framing()
        framing = _guess_framing(content)
        if framing is not None:
            return 0, framing
        if line is None:
            raise ConfigError(
                f"{self.path} is not the store of a Wend peer, or is damaged so badly that nothing can be read",
                code="store-unreadable",
            )
        if version != VERSION:
            raise self._version_error(version)
        return begin, Framing(content[len(_LINE) : len(_LINE) + MARKER_BYTES])

    def _version_error(self, version: int) -> ConfigError:
        which = "a newer version of Wend" if version > VERSION else "an older version of Wend"
        return ConfigError(
            f"{self.path} is a store of {which}: it has format {version}, and this version of Wend reads formats 2 and "
            f"{VERSION}; the file was not changed",
            code="store-unreadable",
        )


def _read_record(content: FileBytes, at: int, framing: Framing | Version2Framing) -> tuple[StoredRecord, bytes] | None:
    body = framing.read_body(content, at)
    if body is None:
        return None
    try:
        return decode_record(body), body
    except msgspec.MsgspecError:
        return None


def _read_header(content: FileBytes, after: int) -> tuple[bytes, int]:
    """The marker and the checksum after the first line; an empty marker if the file is too short."""
    fields = content[after : after + MARKER_BYTES + _CHECK.size]
    if len(fields) < MARKER_BYTES + _CHECK.size:
        return b"", 0
    return fields[:MARKER_BYTES], _CHECK.unpack_from(fields, MARKER_BYTES)[0]


def _guess_framing(content: FileBytes) -> Framing | Version2Framing | None:
    """The framing of the first frame that can be read, for a file whose beginning is damaged."""
    at = content.find(_TAG, 0)
    while at >= 0:
        start = at - 1 - _FRAME_2.size
        if start >= MARKER_BYTES:
            framing = Framing(content[start - MARKER_BYTES : start])
            if _read_record(content, start - MARKER_BYTES, framing) is not None:
                return framing
        if start >= 0 and _read_record(content, start, Version2Framing()) is not None:
            return Version2Framing()
        at = content.find(_TAG, at + 1)
    return None
