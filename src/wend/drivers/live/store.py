"""What must outlive a crash of the process: an append-only file of the peer's `Store` records.

    file   = "wend-store 2\\n" record*
    record = length 4 | crc32 4 | msgpack

Replayed at the start, then rewritten with only what still matters, and again, little by little, whenever
it has grown enough (`compaction.py`). A record
reaches the operating system before the effect that follows it is carried out, so an acknowledged
packet survives the process; with `sync` it also survives a loss of power. A record that was torn by
a crash, and whatever stands behind it, is ignored and counted. A record that the disk did not take whole
is taken back, so that those that come when there is room again stand behind a whole one.

The peer's times are monotonic and mean nothing in another life, so they stand in the file as wall-clock
times and are translated on the way in and out.
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

from wend.drivers.live.compaction import CompactedCopy, Live, write_whole
from wend.model.errors import ConfigError
from wend.model.units import MS, Nanos
from wend.protocol.records import PendingRecord, Record

log = logging.getLogger("wend.store")

MAGIC = b"wend-store 2\n"
GROWTH_BYTES = 64 * 1024 * 1024
_FRAME = struct.Struct("!II")
_MAX_RECORD_BYTES = 16 * 1024 * 1024
# Incarnations count ticks since this moment, so that a peer without a store never repeats one.
_EPOCH_NS = 1_735_689_600 * 10**9
_TICK_NS = 10 * MS


class Life(msgspec.Struct, frozen=True, gc=False, tag="life"):
    """The driver's own record: an incarnation that began."""

    incarnation: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record | Life)
_records: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def fresh_incarnation() -> int:
    """Larger than that of any former life, as long as the host's clock is not set back."""
    return max(1, (time.time_ns() - _EPOCH_NS) // _TICK_NS)


class Store:
    """Opened by one process at a time; `records` is what former lives left behind."""

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self.path = path
        self.torn = 0
        self._sync = sync
        self._size = 0
        self._rewrite_at = 0
        self._torn_tail = False
        self._live = Live()
        self._copy: CompactedCopy | None = None
        self._lock = _lock(path)
        try:
            lives = self._replay()
            self.incarnation = max(fresh_incarnation(), max(lives, default=0) + 1)
            self.records: tuple[Record, ...] = tuple(_from_wall(_record(one)) for one in self._live.content())
            self._file = self._rewrite()
            self._settle()
        except OSError as error:
            self._lock.close()
            raise ConfigError(f"cannot use the store {path}: {error.strerror or error}") from None
        except ConfigError:
            self._lock.close()
            raise

    def append(self, record: Record) -> None:
        """Raises `OSError` where the record is not stored; the file is then as it was before."""
        if self._torn_tail:
            self._take_back()
        stored = _to_wall(record)
        frame = _frame(stored)
        try:
            write_whole(self._file, frame)
            if self._sync:
                os.fdatasync(self._file.fileno())
        except OSError:
            self._torn_tail = True
            with suppress(OSError):  # or before the next record
                self._take_back()
            raise
        self._live.take(stored, frame)
        self._size += len(frame)
        if self._copy is not None or self._size > self._rewrite_at:
            self._shrink()

    def _take_back(self) -> None:
        os.ftruncate(self._file.fileno(), self._size)
        self._torn_tail = False

    def _shrink(self) -> None:
        """A step nearer to a smaller file; where there is no room for that, the old one serves on."""
        try:
            if self._copy is None:
                self._copy = CompactedCopy(self.path, self._frames(), self._size)
            elif self._copy.step(self._size):
                old, self._file = self._file, self._copy.replace(sync=self._sync)
                self._copy = None
                self._settle()
                old.close()
        except OSError as error:
            self._give_up_copy()
            self._rewrite_at = self._size + GROWTH_BYTES
            log.warning("%s cannot be compacted and grows on: %s", self.path, error)

    def _give_up_copy(self) -> None:
        if self._copy is not None:
            self._copy.discard()
            self._copy = None

    def _settle(self) -> None:
        """A new file has taken the old one's place."""
        self._torn_tail = False
        self._size = self._file.seek(0, os.SEEK_END)
        self._rewrite_at = 2 * self._size + GROWTH_BYTES
        if self._sync:
            _sync_folder(self.path.parent)

    def close(self) -> None:
        self._give_up_copy()
        self._file.close()
        self._lock.close()

    def _replay(self) -> list[int]:
        """The incarnations that there were."""
        lives: list[int] = []
        for record, frame in self._read():
            if isinstance(record, Life):
                lives.append(record.incarnation)
            else:
                self._live.take(record, frame)
        return lives

    def _read(self) -> Iterator[tuple[Record | Life, bytes]]:
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
        """What matters at this moment, whatever is appended before the last of it is asked for."""
        return _frames(Life(self.incarnation), self._live.content())


def _frames(life: Life, content: list[Record | bytes]) -> Iterator[bytes]:
    yield MAGIC + _frame(life)
    for one in content:
        yield one if isinstance(one, bytes) else _frame(one)


def _sync_folder(folder: Path) -> None:
    """A file's new name survives a loss of power only when its folder is written too."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _lock(path: Path) -> BinaryIO:
    # A file of its own: the store itself is replaced whenever it is compacted.
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


def _frame(record: Record | Life) -> bytes:
    body = _encoder.encode(record)
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def _record(one: Record | bytes) -> Record:
    return _records.decode(one[_FRAME.size :]) if isinstance(one, bytes) else one


def _parse(content: bytes, at: int) -> tuple[Record | Life, int] | None:
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
    return _moved(record, _wall_ahead_ns()) if type(record) is PendingRecord else record


def _from_wall(record: Record) -> Record:
    return _moved(record, -_wall_ahead_ns()) if type(record) is PendingRecord else record


def _moved(duty: PendingRecord, by_ns: Nanos) -> PendingRecord:
    return PendingRecord(duty.event, duty.born_ns + by_ns, duty.dests, duty.ranks)
