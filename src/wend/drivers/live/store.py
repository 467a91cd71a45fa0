"""The store: an append-only file of the records that must survive a crash of the process.

    file   = "wend-store 2\\n" record*
    record = length 4 | crc32 4 | msgpack

The store replays the file when it opens and rewrites it with the records that are still needed. When the file has
grown enough, the store compacts it again, in small steps (`compaction.py`). A record reaches the operating system
before the peer carries out the effect that follows it, so an acknowledged packet survives the process; with `sync` it
survives a loss of power, too. The store ignores and counts a record that a crash cut short, and everything behind it.
If the disk writes only a piece of a record, the store removes it, so that the next record follows a complete one.

The peer's times are monotonic and mean nothing in another process. The file holds wall-clock times instead.
"""

import fcntl
import logging
import os
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from wend.drivers.live.compaction import CompactedCopy, write_whole
from wend.drivers.live.needed_records import NeededRecords
from wend.model.errors import ConfigError
from wend.model.units import MS, Nanos
from wend.protocol.records import PendingRecord, QueuedRecord, Record

log = logging.getLogger("wend.store")

MAGIC = b"wend-store 2\n"
GROWTH_BYTES = 64 * 1024 * 1024
_FRAME = struct.Struct("!II")
_MAX_RECORD_BYTES = 16 * 1024 * 1024
# An incarnation is a number of ticks since this moment, so that a peer without a store never repeats one.
_EPOCH_NS = 1_735_689_600 * 10**9
_TICK_NS = 10 * MS


class IncarnationRecord(msgspec.Struct, frozen=True, gc=False, tag="incarnation"):
    """The driver's own record: an incarnation began."""

    incarnation: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record | IncarnationRecord)
_records: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def fresh_incarnation() -> int:
    """An incarnation above all earlier ones, as long as nobody sets the host's clock back."""
    return max(1, (time.time_ns() - _EPOCH_NS) // _TICK_NS)


class Store:
    """A store file, open in one process at a time. `records` are those of earlier incarnations."""

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self.path = path
        self.torn = 0
        self._sync = sync
        self._size = 0
        self._rewrite_at = 0
        self._torn_tail = False
        self._needed = NeededRecords()
        self._copy: CompactedCopy | None = None
        self._lock = _lock(path)
        try:
            earlier = self._replay()
            self.incarnation = max(fresh_incarnation(), max(earlier, default=0) + 1)
            self.records: tuple[Record, ...] = tuple(_from_wall(_record(one)) for one in self._needed.records())
            self._file = self._rewrite()
            self._replaced()
        except OSError as error:
            self._lock.close()
            raise ConfigError(f"cannot use the store {path}: {error.strerror or error}") from None
        except ConfigError:
            self._lock.close()
            raise

    def append(self, record: Record) -> None:
        """Store a record. Raises `OSError` if that fails; the file is then as it was before."""
        if self._torn_tail:
            self._truncate()
        stored = _to_wall(record)
        frame = _frame(stored)
        try:
            write_whole(self._file, frame)
            if self._sync:
                os.fdatasync(self._file.fileno())
        except OSError:
            self._torn_tail = True
            with suppress(OSError):  # or before the next record
                self._truncate()
            raise
        self._needed.add(stored, frame)
        self._size += len(frame)
        if self._copy is not None or self._size > self._rewrite_at:
            self._compact()

    def _truncate(self) -> None:
        os.ftruncate(self._file.fileno(), self._size)
        self._torn_tail = False

    def _compact(self) -> None:
        """Take one step of a compaction. If the disk is full, the old file stays in use."""
        try:
            if self._copy is None:
                self._copy = CompactedCopy(self.path, self._frames(), self._size)
            elif self._copy.step(self._size):
                old, self._file = self._file, self._copy.replace(sync=self._sync)
                self._copy = None
                self._replaced()
                old.close()
        except OSError as error:
            self._discard_copy()
            self._rewrite_at = self._size + GROWTH_BYTES
            log.warning("%s cannot be compacted and grows on: %s", self.path, error)

    def _discard_copy(self) -> None:
        if self._copy is not None:
            self._copy.discard()
            self._copy = None

    def _replaced(self) -> None:
        """Note that a new file has replaced the old one."""
        self._torn_tail = False
        self._size = self._file.seek(0, os.SEEK_END)
        self._rewrite_at = 2 * self._size + GROWTH_BYTES
        if self._sync:
            _sync_folder(self.path.parent)

    def close(self) -> None:
        self._discard_copy()
        self._file.close()
        self._lock.close()

    def _replay(self) -> list[int]:
        """Read the file; the incarnations that it names."""
        incarnations: list[int] = []
        for record, frame in self._read():
            if isinstance(record, IncarnationRecord):
                incarnations.append(record.incarnation)
            else:
                self._needed.add(record, frame)
        return incarnations

    def _read(self) -> Iterator[tuple[Record | IncarnationRecord, bytes]]:
        content = self.path.read_bytes() if self.path.exists() else b""
        if not content:
            return
        if not content.startswith(MAGIC):
            if content.startswith(b"wend-store "):
                raise ConfigError(f"{self.path} is a store of another version of Wend, which this one cannot read")
            raise ConfigError(f"{self.path} is not a store of a Wend peer")
        at = len(MAGIC)
        while at < len(content):
            found = _parse(content, at)
            if found is None:
                self.torn += 1
                log.warning("%s: ignored %d bytes that a crash left behind", self.path, len(content) - at)
                return
            record, end = found
            yield record, content[at:end]
            at = end

    def _rewrite(self) -> BinaryIO:
        copy = CompactedCopy(self.path, self._frames(), 0)
        try:
            return copy.finish()
        except OSError:
            copy.discard()
            raise

    def _frames(self) -> Iterator[bytes]:
        """The records that are needed at this moment; records appended while the caller iterates do not change them."""
        return _frames(IncarnationRecord(self.incarnation), self._needed.records())


def _frames(incarnation: IncarnationRecord, records: list[Record | bytes]) -> Iterator[bytes]:
    yield MAGIC + _frame(incarnation)
    for one in records:
        yield one if isinstance(one, bytes) else _frame(one)


def _sync_folder(folder: Path) -> None:
    """Write a folder to the disk: only then does a file's new name survive a loss of power."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _lock(path: Path) -> BinaryIO:
    # The lock has a file of its own, because a compaction replaces the store.
    try:
        lock = path.with_name(path.name + ".lock").open("ab")
    except OSError as error:
        raise ConfigError(f"cannot use the store {path}: {error.strerror or error}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise ConfigError(f"the store {path} is in use by another peer") from None
    return lock


def _frame(record: Record | IncarnationRecord) -> bytes:
    body = _encoder.encode(record)
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def _record(one: Record | bytes) -> Record:
    return _records.decode(one[_FRAME.size :]) if isinstance(one, bytes) else one


def _parse(content: bytes, at: int) -> tuple[Record | IncarnationRecord, int] | None:
    if at + _FRAME.size > len(content):
        return None
    length, check = _FRAME.unpack_from(content, at)
    body = content[at + _FRAME.size : at + _FRAME.size + length]
    if not 0 < length <= _MAX_RECORD_BYTES or len(body) < length or zlib.crc32(body) != check:
        return None
    try:
        return _decoder.decode(body), at + _FRAME.size + length
    except msgspec.MsgspecError:
        return None


def _wall_ahead_ns() -> Nanos:
    return time.time_ns() - time.monotonic_ns()


def _to_wall(record: Record) -> Record:
    return _moved(record, _wall_ahead_ns()) if isinstance(record, PendingRecord | QueuedRecord) else record


def _from_wall(record: Record) -> Record:
    return _moved(record, -_wall_ahead_ns()) if isinstance(record, PendingRecord | QueuedRecord) else record


def _moved(record: PendingRecord | QueuedRecord, by_ns: Nanos) -> PendingRecord | QueuedRecord:
    return msgspec.structs.replace(record, born_ns=record.born_ns + by_ns)
