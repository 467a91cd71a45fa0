"""The store: an append-only file of the records that must survive a crash of the process.

`format.py` defines the bytes of the file. The store replays the file when it opens and rewrites it with the records
that are still needed. When the file has grown enough, the store compacts it again, in small steps (`compaction.py`). A
record reaches the operating system before the peer carries out the effect that follows it, so an acknowledged packet
survives the process; with `sync` it survives a loss of power, too. If the disk writes only a piece of a record, the
store removes it, so that the next record follows a complete one. Bytes that cannot be read are skipped and logged, and
the damaged file stays beside the new one.

A store is a regular file, because a compaction replaces it. If the path is a symbolic link, the store is the file that
it leads to. The files beside the store are regular, too. Anything else is refused and stays as it is.

The peer's times are monotonic, and mean nothing after the host has restarted. The file holds wall-clock times, and by
how much they are ahead of monotonic time. So a clock that somebody sets changes no age while the host runs.
"""

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

from wend.drivers.live.store.compaction import CompactedCopy, check_regular, copy_path, write_whole
from wend.drivers.live.store.format import (
    ClockRecord,
    DamagedBytes,
    IncarnationRecord,
    StoreReader,
    decode_record,
    encode_record,
    new_framing,
)
from wend.drivers.live.store.needed_records import NeededRecords, shift_times
from wend.model.errors import ConfigError
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.records import DurableRecord, Record

log = logging.getLogger("wend.store")

GROWTH_BYTES = 64 * 1024 * 1024
CLOCK_JUMP_NS = SECOND
"""If the wall clock moves by more than this against monotonic time, somebody has set it."""
_LOGGED_DAMAGE = 10
# An incarnation is a number of ticks since this moment, so that a peer without a store never repeats one.
_EPOCH_NS = 1_735_689_600 * 10**9
_TICK_NS = 10 * MS


def fresh_incarnation() -> int:
    """An incarnation above all earlier ones, unless the host's clock was set back."""
    return max(1, (time.time_ns() - _EPOCH_NS) // _TICK_NS)


class Store:
    """A store file, open in one process at a time."""

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self.path = path = _resolve_path(path)
        self.damaged: tuple[DamagedBytes, ...] = ()
        """The parts of the file that could not be read when it was opened."""
        self.lost_records = False
        """Whether records of earlier incarnations may be missing: the file was damaged, or it is new."""
        self._sync = sync
        self._size = 0
        self._rewrite_at = 0
        self._torn_tail = False
        self._framing = new_framing()
        self._clock = ClockRecord(_wall_offset_ns(), boot_name())
        self._needed = NeededRecords()
        self._copy: CompactedCopy | None = None
        self._lock = _open_locked(path)
        try:
            self.incarnation = max(fresh_incarnation(), self._replay() + 1)
            if self.damaged:
                _set_aside(path, self.damaged)
            self._file = self._rewrite()
            self._on_replaced()
        except OSError as error:
            self._lock.close()
            raise ConfigError(f"cannot use the store {path}: {error.strerror or error}", code="unwritable") from None
        except ConfigError:
            self._lock.close()
            raise

    @property
    def records(self) -> tuple[Record, ...]:
        """The records that a restart needs. Before the first is appended, those of earlier incarnations."""
        return tuple(one if not isinstance(one, bytes) else _decode_body(one) for one in self._needed.records())

    def append(self, record: Record) -> None:
        """Store a record. Raises `OSError` if that fails; the file is then as it was before."""
        if self._torn_tail:
            self._truncate()
        clock, frame, ahead = self._clock, b"", _wall_offset_ns()
        if abs(ahead - clock.ahead_ns) > CLOCK_JUMP_NS:
            clock = ClockRecord(ahead, clock.boot)
            frame = self._framing.frame(encode_record(clock))
        body = encode_record(shift_times(record, clock.ahead_ns))
        frame += self._encode_record(record, body)
        try:
            write_whole(self._file, frame)
            if self._sync:
                os.fdatasync(self._file.fileno())
        except OSError:
            self._torn_tail = True
            with suppress(OSError):  # or before the next record
                self._truncate()
            raise
        self._clock = clock
        self._needed.add(record, body)
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
                self._copy = CompactedCopy(self.path, self._needed_records(), self._size)
            elif self._copy.copy_step(self._size):
                old, self._file = self._file, self._copy.replace(sync=self._sync)
                self._copy = None
                self._on_replaced()
                old.close()
        except OSError as error:
            self._discard_copy()
            self._rewrite_at = self._size + GROWTH_BYTES
            log.warning("%s cannot be compacted and keeps growing: %s", self.path, error)

    def _discard_copy(self) -> None:
        if self._copy is not None:
            self._copy.discard()
            self._copy = None

    def _on_replaced(self) -> None:
        """Note that a new file has replaced the old one."""
        self._torn_tail = False
        self._size = self._file.seek(0, os.SEEK_END)
        self._rewrite_at = 2 * self._size + GROWTH_BYTES
        if self._sync:
            sync_folder(self.path.parent)

    def close(self) -> None:
        self._discard_copy()
        self._file.close()
        self._lock.close()

    def _replay(self) -> int:
        """Read the file. Returns the highest incarnation that it names."""
        reader, highest, clock = StoreReader(self.path), 0, ClockRecord(0)
        for record, body in reader.records():
            if isinstance(record, IncarnationRecord):
                highest = max(highest, record.incarnation)
            elif isinstance(record, ClockRecord):
                clock = record
            else:
                self._needed.add(shift_times(record, -clock.ahead_ns), body)
        self.damaged = tuple(reader.damaged)
        self.lost_records = bool(reader.damaged) or not reader.count
        if reader.damaged and not reader.count:
            log.error("%s cannot be read at all, and the peer starts without it", self.path)
        # The records now have the monotonic time of the boot in which they were written, or wall-clock time.
        same_boot = bool(clock.boot) and clock.boot == self._clock.boot
        self._needed.shift_times(0 if same_boot else clock.ahead_ns - self._clock.ahead_ns, time.monotonic_ns())
        return highest

    def _rewrite(self) -> BinaryIO:
        copy = CompactedCopy(self.path, self._needed_records(), 0)
        try:
            return copy.finish()
        except OSError:
            copy.discard()
            raise

    def _needed_records(self) -> Iterator[bytes]:
        """The records that are needed at this moment; records appended while the caller iterates do not change them."""
        return self._frame_records(self._clock, self._needed.records())

    def _frame_records(self, clock: ClockRecord, records: list[Record | bytes]) -> Iterator[bytes]:
        first = self._framing.frame(encode_record(IncarnationRecord(self.incarnation)))
        first += self._framing.frame(encode_record(clock))
        yield self._framing.header + first + first
        for one in records:
            if isinstance(one, bytes):
                yield self._framing.frame(one)
            else:
                yield self._encode_record(one, encode_record(shift_times(one, clock.ahead_ns)))

    def _encode_record(self, record: Record, body: bytes) -> bytes:
        """A record as bytes; twice if damage to it would lose others, those of a backlog."""
        frame = self._framing.frame(body)
        return frame + frame if type(record) is DurableRecord else frame


def _set_aside(path: Path, damaged: tuple[DamagedBytes, ...]) -> None:
    """Keep a damaged file beside the one that replaces it, and log it."""
    for each in damaged[:_LOGGED_DAMAGE]:
        log.warning("%s: %s cannot be read; the records in them are lost", path, each)
    if len(damaged) > _LOGGED_DAMAGE:
        log.warning("%s: %d other places cannot be read either", path, len(damaged) - _LOGGED_DAMAGE)
    name = f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    aside, number = path.with_name(name), 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{name}-{number}")
    try:
        os.link(path, aside)  # it needs no space
    except OSError:
        shutil.copyfile(path, aside)
    log.warning("%s: the damaged file was kept as %s", path, aside)


def sync_folder(folder: Path) -> None:
    """Write a folder to the disk, so that a file's new name survives a loss of power."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _resolve_path(path: Path) -> Path:
    """The file that a path leads to. Raises `ConfigError` if no store can be there."""
    try:
        store = Path(os.path.realpath(path))
        check_regular(store)
        for beside in (_lock_path(store), copy_path(store)):
            check_regular(beside)
    except OSError as error:
        raise ConfigError(f"cannot use the store {path}: {error.strerror or error}", code="unwritable") from None
    except ValueError as error:
        raise ConfigError(f"cannot use the store {str(path)!r}: {error}") from None
    return store


def _lock_path(path: Path) -> Path:
    # The lock has a file of its own, because a compaction replaces the store.
    return path.with_name(path.name + ".lock")


def _open_locked(path: Path) -> BinaryIO:
    try:
        lock = _lock_path(path).open("ab")
    except OSError as error:
        raise ConfigError(f"cannot use the store {path}: {error.strerror or error}", code="unwritable") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise ConfigError(f"the store {path} is in use by another peer", code="store-in-use") from None
    return lock


def _decode_body(body: bytes) -> Record:
    record = decode_record(body)
    assert not isinstance(record, IncarnationRecord | ClockRecord)
    return record


def _wall_offset_ns() -> Nanos:
    return time.time_ns() - time.monotonic_ns()


@cache
def boot_name() -> str:
    """Names the monotonic time of this process: the host's boot, and the namespace if it has one of its own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        return ""
