"""A log: events in a folder on disk, in the order in which they came.

A record reaches the operating system before `append` returns, so it survives the process; after `sync` it survives a
loss of power, too. Memory holds the newest records, the ids of the newest events, and the names of the segments,
however long the log is.

An event that comes again within the newest ones is not appended again. If the disk writes only a piece of a record, the
log removes it. When a log opens, it reads what follows the last entry of the newest index. Damage costs the records
that it hits: their positions are missing.
"""

import fcntl
import logging
import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from wend.drivers.live.client.repeats import RecentIds
from wend.drivers.live.logs.identity import (
    LogIdentity,
    new_identity,
    read_identity,
    recover_identity,
    write_identity,
)
from wend.drivers.live.logs.record import LogRecord, RecordFraming, count_of, encode_event, next_epoch
from wend.drivers.live.logs.retention import Bounds, SegmentExtent, count_dropped
from wend.drivers.live.logs.segment import (
    HEADER_BYTES,
    LogSegment,
    LogSegmentReader,
    LogSegmentWriter,
    find_segments,
    make_header,
    segment_at,
)
from wend.drivers.live.logs.tail import Tail
from wend.drivers.live.store.store import boot_name, sync_folder
from wend.model.errors import ConfigError
from wend.model.events import Event
from wend.model.units import Nanos

log = logging.getLogger("wend.log")

RECENT_IDS: Final = 10_000
MAX_READERS: Final = 8
_RECENT_BYTES: Final = 2 * 1024 * 1024
"""How much of the end is read for the ids of the newest events."""


class Log:
    """A log, open in one process at a time."""

    def __init__(
        self,
        folder: Path,
        bounds: Bounds = Bounds(),  # noqa: B008
        *,
        sync: bool = False,
        clock: Callable[[], Nanos] = time.time_ns,
        boot: str | None = None,
    ) -> None:
        """`clock`: the wall clock. `boot`: names the boot of the host. Raises `ConfigError` if it cannot be opened."""
        self.folder = folder
        self.bounds = bounds
        self.tail = Tail()
        """The newest records."""
        self.duplicates = 0
        """Events that came again and were not appended again."""
        self.dropped_events = 0
        """Events that retention has dropped since the log was opened."""
        self.lost_bytes = 0
        """Bytes at the end that could not be read when the log was opened."""
        self._sync = sync
        self._clock = clock
        self._boot = boot_name() if boot is None else boot
        self._segments: list[LogSegment] = []
        self._sizes: list[int] = []
        """By segment; that of the newest one is not valid while it is written."""
        self._writer: LogSegmentWriter | None = None
        self._readers: dict[int, LogSegmentReader] = {}
        """By the first position of a segment; the one used last is at the end."""
        self._recent = RecentIds(RECENT_IDS)
        self._needs_sync = False
        self.next_position = 1
        self.newest_ns: Nanos = 0
        """The time of the newest record."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder)
        except OSError as error:
            raise _open_error(folder, error) from None
        try:
            self._identity, self._framing = self._open()
        except OSError as error:
            self._lock.close()
            raise _open_error(folder, error) from None
        except ConfigError:
            self._lock.close()
            raise

    # ---------------------------------------------------------------- what it holds

    @property
    def id(self) -> str:
        """Names the log, whatever its folder is called. Positions mean something only within one log."""
        return self._identity.id

    @property
    def first_position(self) -> int:
        """The position of the oldest event; that of the next one if there is none."""
        return self._segments[0].first if self._segments else self.next_position

    @property
    def first_ns(self) -> Nanos:
        """The time of the oldest event; 0 if there is none."""
        return self._segments[0].time_ns if self._segments else 0

    @property
    def events(self) -> int:
        """How many events it holds, with those that are damaged."""
        return count_of(self.next_position) - count_of(self.first_position)

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(self._sizes[: -1 if self._writer else None]) + (0 if self._writer is None else self._writer.size)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        return tuple(self._segments)

    # ---------------------------------------------------------------- writing

    def append(self, event: Event, age_ns: Nanos = 0) -> int:
        """Append an event. Returns its position; 0 if it came again. Raises `OSError` if that fails; the log is then as
        it was before."""
        if event.id in self._recent:
            self.duplicates += 1
            return 0
        now = max(self._clock(), self.newest_ns)
        record = LogRecord(self.next_position, now, age_ns, encode_event(event))
        frame = self._framing.frame(record)
        writer = self._writer
        if writer is None or self._is_full(writer, len(frame), now):
            writer = self._begin_segment(record)
        writer.append_record(record.position, now, frame)
        self._recent.add(event.id)
        self._needs_sync = self._sync
        self.newest_ns = now
        self.next_position += 1
        self.tail.add(record)
        return record.position

    def _is_full(self, writer: LogSegmentWriter, more: int, now: Nanos) -> bool:
        bounds, first = self.bounds, writer.segment
        events = bounds.segment_events
        return (
            writer.size + more > bounds.segment_bytes
            or now - first.time_ns >= bounds.segment_ns
            or (events is not None and self.next_position - first.first >= events)
        )

    def _begin_segment(self, record: LogRecord) -> LogSegmentWriter:
        """Begin a segment with this record, and drop the oldest ones."""
        self.sync()
        self.drop_old(begins=True)
        segment = segment_at(self.folder, record.position, record.time_ns)
        identity = self._identity
        header = make_header(identity.marker_bytes, identity.id_bytes)
        writer = LogSegmentWriter(segment, header)
        try:
            self._write_identity(record.position)
            if self._sync:
                sync_folder(self.folder)
        except OSError:
            writer.close()
            _remove(segment)
            raise
        self._close_writer()
        self._writer = writer
        self._segments.append(segment)
        self._sizes.append(0)
        return writer

    def sync(self) -> None:
        """Make what was appended survive a loss of power, if the log was opened with `sync`. Raises `OSError`."""
        if self._needs_sync and self._writer is not None:
            self._writer.sync()
            self._needs_sync = False

    def drop_old(self, *, begins: bool = False) -> int:
        """Drop the segments that are beyond the bounds. Returns how many events they held. Raises `OSError`."""
        number = count_dropped(self._extents(), count_of(self.next_position), self._clock(), self.bounds, begins=begins)
        if not number:
            return 0
        before = self.events
        if number == len(self._segments):
            self._write_identity(self.next_position)
            self._close_writer()
        for segment in self._segments[:number]:
            self._forget_reader(segment)
            _remove(segment)
        del self._segments[:number], self._sizes[:number]
        self.tail.drop_before(self.first_position)
        dropped = before - self.events
        self.dropped_events += dropped
        return dropped

    def _extents(self) -> list[SegmentExtent]:
        newest = [*(each.time_ns for each in self._segments[1:]), self.newest_ns][: len(self._segments)]
        sizes = [*self._sizes]
        if self._writer is not None:
            sizes[-1] = self._writer.size
        return [
            SegmentExtent(count_of(segment.first), newest_ns, size)
            for segment, newest_ns, size in zip(self._segments, newest, sizes, strict=True)
        ]

    def _close_writer(self) -> None:
        """End the newest segment."""
        if self._writer is not None:
            self._sizes[-1] = self._writer.size
            self._writer.close()
            self._writer = None

    def _write_identity(self, reached: int, *, is_closed: bool = False) -> None:
        identity = msgspec.structs.replace(self._identity, boot=self._boot, reached=reached, is_closed=is_closed)
        write_identity(self.folder, identity, sync=self._sync)
        self._identity = identity

    def close(self) -> None:
        if self._lock.closed:
            return  # another process may have the log by now
        with suppress(OSError):
            self.sync()
            self._write_identity(self.next_position, is_closed=True)
        self.leave()

    def leave(self) -> None:
        """Close the files, and leave them as a killed process does."""
        self._close_writer()
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._lock.close()

    # ---------------------------------------------------------------- reading

    def segment_of(self, position: int) -> LogSegment | None:
        """The segment that holds a position, or would; None if the log does not go back so far."""
        number = bisect_right(self._segments, position, key=_first)
        return self._segments[number - 1] if number else None

    def segment_after(self, segment: LogSegment) -> LogSegment | None:
        """The next segment; None if it is the newest one."""
        number = bisect_right(self._segments, segment.first, key=_first)
        return self._segments[number] if number < len(self._segments) else None

    def reader(self, segment: LogSegment) -> LogSegmentReader:
        """Reads a segment. Raises `OSError` if it cannot be opened."""
        reader = self._readers.pop(segment.first, None)
        if reader is None:
            reader = LogSegmentReader(segment, self._framing)
            if len(self._readers) >= MAX_READERS:
                self._readers.pop(next(iter(self._readers))).close()
        if self._writer is not None and self._writer.segment is segment:
            reader.use_index(self._writer.index)
        self._readers[segment.first] = reader
        return reader

    def _forget_reader(self, segment: LogSegment) -> None:
        reader = self._readers.pop(segment.first, None)
        if reader is not None:
            reader.close()

    def position_at(self, time_ns: Nanos) -> int:
        """The position of the first record of this time or later."""
        number = bisect_left(self._segments, time_ns, key=_time)
        if number and (found := self._position_in(self._segments[number - 1], time_ns)):
            return found
        return self._segments[number].first if number < len(self._segments) else self.next_position

    def _position_in(self, segment: LogSegment, time_ns: Nanos) -> int:
        """The position of the first record of this time in a segment; 0 if all are earlier."""
        try:
            reader = self.reader(segment)
        except OSError:
            return 0
        for records, _ in reader.scan(reader.place_before_time(time_ns)):
            if records[-1].time_ns >= time_ns:
                return next(each.position for each in records if each.time_ns >= time_ns)
        return 0

    def position_of_count(self, count: int) -> int:
        """The position of the event with which the log had got so many; the first or the next one if it holds none."""
        if count >= count_of(self.next_position) or not self._segments:
            return self.next_position
        number = bisect_right(self._segments, count, key=_count)
        return self._segments[number - 1].first + count - _count(self._segments[number - 1]) if number else 0

    # ---------------------------------------------------------------- opening

    def _open(self) -> tuple[LogIdentity, RecordFraming]:
        segments = find_segments(self.folder)
        found = read_identity(self.folder)
        identity = found or recover_identity(segments)
        if identity is None and segments:
            log.error("%s cannot be read at all; its segments were renamed, and it begins anew", self.folder)
            for segment in segments:
                segment.path.rename(segment.path.with_suffix(".damaged"))
            segments = []
        self._identity = identity = identity or new_identity()
        self._framing = framing = RecordFraming(identity.marker_bytes)
        self._segments, self._sizes = segments, [segment.path.stat().st_size for segment in segments]
        has_lost_end = self._recover_end() or (found is None and bool(segments))
        is_after_crash = not identity.is_closed and identity.boot != self._boot and not self._sync
        self.next_position = max(self.next_position, identity.reached)
        if has_lost_end or (is_after_crash and identity.reached):
            self.next_position = next_epoch(self.next_position)
        self._write_identity(self.next_position)
        return self._identity, framing

    def _recover_end(self) -> bool:
        """Find the end of the log, and go on after it. Returns whether records at the end may be lost."""
        is_torn = False
        while self._segments:
            segment, size = self._segments[-1], self._sizes[-1]
            reader = LogSegmentReader(segment, self._framing)
            try:
                last, end = _find_end(reader)
            finally:
                reader.close()
            is_torn = is_torn or end < size
            self.lost_bytes += size - end
            if last is not None:
                self.next_position, self.newest_ns = last.position + 1, last.time_ns
                self._continue(segment, end, is_torn=is_torn)
                return is_torn or self.next_position < self._identity.reached
            self.next_position = max(self.next_position, segment.first)
            is_torn = True
            _remove(segment)
            self._segments.pop()
            self._sizes.pop()
        return is_torn

    def _continue(self, segment: LogSegment, end: int, *, is_torn: bool) -> None:
        """Read the newest ids, and append to the newest segment unless another epoch begins."""
        self._sizes[-1] = end
        self._recall_ids()
        if is_torn:
            os.truncate(segment.path, end)
        elif self.next_position >= self._identity.reached:
            reader = LogSegmentReader(segment, self._framing)
            index = reader.index
            reader.close()
            self._writer = LogSegmentWriter(segment, b"", end, index)

    def _recall_ids(self) -> None:
        """Remember the ids of the newest events, which may come again."""
        left, places = _RECENT_BYTES, list[tuple[LogSegment, int]]()
        for segment, size in zip(reversed(self._segments), reversed(self._sizes), strict=True):
            if left <= 0 or len(places) == MAX_READERS:
                break
            places.append((segment, self.reader(segment).index.place_back(left)))
            left -= size
        for segment, place in reversed(places):
            for records, _ in self.reader(segment).scan(place):
                for record in records:
                    with suppress(msgspec.MsgspecError):
                        self._recent.add(record.id())
                    self.tail.add(record)
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


def _find_end(reader: LogSegmentReader) -> tuple[LogRecord | None, int]:
    """The last record of a segment, and the byte after it."""
    index = reader.index
    while True:
        last, end = None, HEADER_BYTES
        for records, after in reader.scan(index.last_place):
            last, end = records[-1], after
        if last is not None or not index:
            return last, end
        index.remove_last()


def _first(segment: LogSegment) -> int:
    return segment.first


def _time(segment: LogSegment) -> Nanos:
    return segment.time_ns


def _count(segment: LogSegment) -> int:
    return count_of(segment.first)


def _remove(segment: LogSegment) -> None:
    for path in (segment.path, segment.index_path):
        with suppress(OSError):
            path.unlink()


def _lock(folder: Path) -> BinaryIO:
    lock = (folder / "lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise ConfigError(f"the log {folder} is in use by another peer", code="log-in-use") from None
    return lock


def _open_error(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot use the log {folder}: {error.strerror or error}", code="unwritable")
