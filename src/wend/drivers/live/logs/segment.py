"""The segments of a log: files of records, each with a sparse index beside it.

    segment = "wend-log 1\n" | marker 4 | log 16 | crc32 4 | frame*      <position>-<time>.segment
    index   = (position 8 | time 8 | byte 8 | crc32 4)*                  <position>-<time>.index

The names hold the position and time of the first record, so the list of files is the index of the log. The index of a
segment names a record every 64 KiB. It only saves reading: it can be lost or damaged, and is checked when it is used.
"""

import errno
import os
import re
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from wend.drivers.live.logs.record import MAX_NUMBER, LogRecord, RecordFraming
from wend.drivers.live.store.format import MARKER_BYTES, MAX_RECORD_BYTES
from wend.model.units import Nanos

LINE: Final = b"wend-log 1\n"
ID_BYTES: Final = 16
HEADER_BYTES: Final = len(LINE) + MARKER_BYTES + ID_BYTES + 4
INDEX_BYTES: Final = 64 * 1024
"""The distance between records that the index names."""
FIRST_READ_BYTES: Final = 64 * 1024
READ_BYTES: Final = 512 * 1024
"""More than any event takes."""
_PAGE_BYTES: Final = 4096
_MAX_FRAME: Final = MAX_RECORD_BYTES + 64
_ENTRY = struct.Struct("!QQQI")
_CHECK = struct.Struct("!I")
_NAME = re.compile(r"(\d{20})-(\d{20})\.segment")


class LogSegment(NamedTuple):
    """A segment of a log, as its name says."""

    first: int
    """The position of its first record."""
    time_ns: Nanos
    """The time of its first record."""
    path: Path

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(".index")


def segment_at(folder: Path, first: int, time_ns: Nanos) -> LogSegment:
    return LogSegment(first, time_ns, folder / f"{first:020}-{time_ns:020}.segment")


def find_segments(folder: Path) -> list[LogSegment]:
    """The segments in a folder, by position."""
    found = []
    for name in os.listdir(folder):
        if (match := _NAME.fullmatch(name)) is not None and int(match[1]) <= MAX_NUMBER >= int(match[2]):
            found.append(LogSegment(int(match[1]), int(match[2]), folder / name))
    return sorted(found)


def make_header(marker: bytes, log: bytes) -> bytes:
    begin = LINE + marker + log
    return begin + _CHECK.pack(crc32(begin))


def read_header(path: Path) -> tuple[bytes, bytes] | None:
    """The marker and the id of the log to which a segment belongs; None if they are damaged."""
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES or not header.startswith(LINE) or make_header(*_split(header)) != header:
        return None
    return _split(header)


def _split(header: bytes) -> tuple[bytes, bytes]:
    at = len(LINE)
    return header[at : at + MARKER_BYTES], header[at + MARKER_BYTES : at + MARKER_BYTES + ID_BYTES]


class SparseIndex:
    """Some records of a segment, in order, with their places."""

    def __init__(self) -> None:
        self._positions = array("Q")
        self._times = array("Q")
        self._places = array("Q")

    def __len__(self) -> int:
        return len(self._places)

    @property
    def last_place(self) -> int:
        """The place of the last record that it names."""
        return self._places[-1] if self._places else HEADER_BYTES

    def add(self, position: int, time_ns: Nanos, place: int) -> None:
        self._positions.append(position)
        self._times.append(time_ns)
        self._places.append(place)

    def place_of(self, position: int) -> int:
        """The place of the last record that it names and that is not after this position."""
        return self._place_before(bisect_right(self._positions, position))

    def place_before_time(self, time_ns: Nanos) -> int:
        """The place of a record that is not after the first of this time."""
        return self._place_before(bisect_right(self._times, time_ns - 1))

    def place_back(self, size: int) -> int:
        """The place of a record at least so many bytes before the last one that it names."""
        return self._place_before(bisect_right(self._places, max(0, self.last_place - size)))

    def _place_before(self, number: int) -> int:
        return self._places[number - 1] if number else HEADER_BYTES

    def entries(self) -> Iterator[tuple[int, Nanos, int]]:
        """Each record that it names: its position, time and place."""
        return zip(self._positions, self._times, self._places, strict=True)

    def places(self) -> list[int]:
        return self._places.tolist()

    def remove_last(self) -> None:
        for each in (self._positions, self._times, self._places):
            each.pop()


def encode_entry(position: int, time_ns: Nanos, place: int) -> bytes:
    entry = _ENTRY.pack(position, time_ns, place, 0)[: -_CHECK.size]
    return entry + _CHECK.pack(crc32(entry))


def read_index(segment: LogSegment, size: int) -> SparseIndex:
    """The index of a segment of this size, up to the first entry that cannot be right."""
    index = SparseIndex()
    try:
        content = segment.index_path.read_bytes()
    except OSError:
        return index
    last = (segment.first - 1, segment.time_ns, HEADER_BYTES - 1)
    for at in range(0, len(content) - _ENTRY.size + 1, _ENTRY.size):
        position, time_ns, place, check = _ENTRY.unpack_from(content, at)
        is_right = crc32(content[at : at + _ENTRY.size - _CHECK.size]) == check
        if not is_right or position <= last[0] or time_ns < last[1] or not last[2] < place < size:
            break
        last = (position, time_ns, place)
        index.add(*last)
    return index


def write_index(segment: LogSegment, index: SparseIndex) -> None:
    """Write the file of an index. Without it the segment only opens more slowly."""
    with suppress(OSError):
        segment.index_path.write_bytes(b"".join(encode_entry(*entry) for entry in index.entries()))


class LogSegmentReader:
    """Reads the records of one segment."""

    def __init__(self, segment: LogSegment, framing: RecordFraming) -> None:
        """Raises `OSError` if the file cannot be opened."""
        self.segment = segment
        self._framing = framing
        self._file = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        self._index: SparseIndex | None = None

    def close(self) -> None:
        os.close(self._file)

    @property
    def size(self) -> int:
        return os.fstat(self._file).st_size

    def use_index(self, index: SparseIndex) -> None:
        """Use the index of the writer, which grows with the segment."""
        self._index = index

    @property
    def index(self) -> SparseIndex:
        if self._index is None:
            self._index = index = read_index(self.segment, self.size)
            if self.size - index.last_place > INDEX_BYTES + READ_BYTES:
                self._complete(index)
                write_index(self.segment, index)
        return self._index

    def _complete(self, index: SparseIndex) -> None:
        """Add the entries that the file of the index lacks."""
        place = index.last_place + (INDEX_BYTES if index else 0)
        while place < self.size:
            found = self._first_from(place, 2 * INDEX_BYTES) or self._first_from(place, READ_BYTES)
            if found is not None:
                record, place = found
                index.add(record.position, record.time_ns, place)
            place += INDEX_BYTES

    def _first_from(self, place: int, size: int) -> tuple[LogRecord, int] | None:
        """The first record in some bytes from a place on, with its place."""
        content = self._read_bytes(place, size)
        at = self._framing.next_at(content, 0)
        while at >= 0:
            found, _ = self._framing.records(content, at, 1)
            if found:
                return found[0], place + at
            at = self._framing.next_at(content, at + 1)
        return None

    def place_of(self, position: int) -> int:
        """The place of a record that is not after this position."""
        place = self.index.place_of(position)
        found = self._record_at(place)
        return place if found is not None and found.position <= position else HEADER_BYTES

    def place_before_time(self, time_ns: Nanos) -> int:
        """The place of a record that is not after the first of this time."""
        place = self.index.place_before_time(time_ns)
        found = self._record_at(place)
        return place if found is not None and found.time_ns < time_ns else HEADER_BYTES

    def _record_at(self, place: int) -> LogRecord | None:
        """The record at a place; None if the index was wrong, or the record is damaged."""
        found, _ = self._framing.records(self._read_bytes(place, READ_BYTES), 0, 1)
        return found[0] if found else None

    def _read_bytes(self, place: int, size: int) -> bytes:
        """Bytes of the file. Pages that the disk cannot read are zeros."""
        try:
            return os.pread(self._file, size, place)
        except OSError:
            end = min(place + size, self.size)
            return b"".join(self._read_page(at, min(_PAGE_BYTES, end - at)) for at in range(place, end, _PAGE_BYTES))

    def _read_page(self, place: int, size: int) -> bytes:
        try:
            return os.pread(self._file, size, place)
        except OSError:
            return bytes(size)

    def read(self, place: int, most_bytes: int = READ_BYTES) -> tuple[list[LogRecord], int, bool]:
        """The next records from a place on, the place after them, and whether the segment has ended. There may be no
        records although it has not ended, because they are damaged."""
        content = self._read_bytes(place, most_bytes)
        records, at = self._framing.records(content, 0)
        if records:
            return records, place + at, False
        is_end = len(content) < most_bytes
        if not is_end and most_bytes < _MAX_FRAME and self._framing.is_cut_off(content, 0):
            return self.read(place, READ_BYTES if most_bytes < READ_BYTES else _MAX_FRAME)
        later = self._framing.next_at(content, 1)
        if later >= 0:
            return [], place + later, False
        return [], place + (len(content) if is_end else max(1, len(content) - MARKER_BYTES + 1)), is_end

    def scan(self, place: int, end: int | None = None) -> Iterator[tuple[list[LogRecord], int]]:
        """All records from a place on, up to the place `end`, in batches, each with the place after it."""
        is_end = False
        size = FIRST_READ_BYTES
        while not is_end and (end is None or place < end):
            records, place, is_end = self.read(place, size if end is None else min(size, end - place))
            size = min(2 * size, READ_BYTES)
            if records:
                yield records, place


class LogSegmentWriter:
    """Appends to the newest segment of a log."""

    def __init__(self, segment: LogSegment, header: bytes, size: int = 0, index: SparseIndex | None = None) -> None:
        """Makes the segment if `size` is 0; otherwise appends to it after that many bytes. Raises `OSError`."""
        self.segment = segment
        self.size = size
        self.index = index or SparseIndex()
        self._is_torn = False
        flags = os.O_WRONLY | os.O_CLOEXEC | (0 if size else os.O_CREAT | os.O_TRUNC)
        self._file = os.open(segment.path, flags, 0o640)
        self._index_file = -1
        try:
            if size:
                os.ftruncate(self._file, size)
            else:
                self.append(header)
            self._open_index()
        except OSError:
            os.close(self._file)
            if not size:
                with suppress(OSError):
                    segment.path.unlink()
            raise

    def _open_index(self) -> None:
        """Begin the file of the index, or write it again. Without it the segment only opens more slowly."""
        with suppress(OSError):
            self._index_file = os.open(self.segment.index_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            os.ftruncate(self._index_file, len(self.index) * _ENTRY.size)
            os.lseek(self._index_file, 0, os.SEEK_END)

    def append(self, data: bytes) -> None:
        """Write bytes at the end. Raises `OSError` if that fails; the segment is then as it was before."""
        if self._is_torn:
            self._truncate()
        try:
            written = os.pwrite(self._file, data, self.size)
            while written < len(data):
                more = os.pwrite(self._file, data[written:], self.size + written)
                if not more:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                written += more
        except OSError:
            self._is_torn = True
            with suppress(OSError):
                self._truncate()
            raise
        self.size += len(data)

    def append_record(self, position: int, time_ns: Nanos, frame: bytes) -> None:
        """Append records of which the first has this position and time."""
        place = self.size
        self.append(frame)
        if not self.index or place - self.index.last_place >= INDEX_BYTES:
            self._add_entry(position, time_ns, place)

    def _add_entry(self, position: int, time_ns: Nanos, place: int) -> None:
        self.index.add(position, time_ns, place)
        if self._index_file >= 0:
            try:
                os.write(self._index_file, encode_entry(position, time_ns, place))
            except OSError:
                self._close_index()

    def _truncate(self) -> None:
        os.ftruncate(self._file, self.size)
        self._is_torn = False

    def sync(self) -> None:
        os.fdatasync(self._file)

    def _close_index(self) -> None:
        if self._index_file >= 0:
            os.close(self._index_file)
            self._index_file = -1

    def close(self) -> None:
        self._close_index()
        os.close(self._file)
