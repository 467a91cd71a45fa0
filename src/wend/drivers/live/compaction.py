"""A store without what no longer matters: written beside it, a little with every record that is appended.

A file that replaces the store holds what mattered when it was begun, and behind that a copy of all that was appended
since. Until it has caught up, the store itself is complete and serves on; then one takes the other's name in one step.
So a crash at any moment leaves a whole store, and no record waits for more than a few others to be written. The disk
itself may take long, and is waited for in a thread.
"""

import errno
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from wend.model.events import EventId
from wend.protocol.records import DeliveredRecord, PendingRecord, Record, ReleasedRecord, StateRecord

MAX_NOTIFIED = 200_000
PART_BYTES = 4 * 1024
TAIL_BYTES = 1024 * 1024
"""At a time; more than any record has, so that the copy catches up whatever is appended meanwhile."""


class Live:
    """What still matters: an event that went on needs no record, of flooded state only the newest counts."""

    def __init__(self) -> None:
        self._kept: dict[EventId, PendingRecord] = {}
        self._notified: deque[bytes] = deque(maxlen=MAX_NOTIFIED)
        """As they stand in the file: so many objects would be a burden to the garbage collector."""
        self._learned: dict[tuple[str, int], StateRecord] = {}

    def take(self, record: Record, frame: bytes) -> None:
        if type(record) is PendingRecord:
            self._kept[record.event.id] = record
        elif type(record) is ReleasedRecord:
            self._kept.pop(record.id, None)
        elif type(record) is DeliveredRecord:
            self._notified.append(frame)
        elif type(record) is StateRecord:
            self._learned[record.plugin, record.key] = record

    def content(self) -> list[Record | bytes]:
        """In the order in which it is to be written, some of it as frames."""
        return [*self._learned.values(), *self._notified, *self._kept.values()]


class CompactedCopy:
    """`frames` are what matters; what stands behind byte `since` of the store was appended later."""

    def __init__(self, store: Path, frames: Iterator[bytes], since: int) -> None:
        self._store = store
        self._beside = store.with_name(store.name + ".new")
        self._frames = frames
        self._at = since
        self._source: BinaryIO | None = None
        self._syncing: Sync | None = None
        self._beside.unlink(missing_ok=True)
        self._file: BinaryIO = self._beside.open("ab", buffering=0)

    def step(self, size: int) -> bool:
        """A little more of it; whether all of the store's first `size` bytes are in it, and on the disk."""
        if self._part():
            return False
        self._tail(size)
        if self._syncing is None:
            if self._at == size:
                self._syncing = Sync(self._file)
            return False
        return self._syncing.over() and self._at == size

    def finish(self) -> BinaryIO:
        """All that matters, at once: for a store that nobody waits for."""
        while self._part():
            pass
        os.fsync(self._file.fileno())
        return self.replace()

    def replace(self, sync: bool = False) -> BinaryIO:
        """It takes the store's place; the file to append to from here on."""
        if sync:  # the little that was copied while the rest went to the disk
            os.fdatasync(self._file.fileno())
        self._beside.replace(self._store)
        if self._source is not None:
            self._source.close()
        return self._file

    def discard(self) -> None:
        self._file.close()
        if self._source is not None:
            self._source.close()
        with suppress(OSError):
            self._beside.unlink(missing_ok=True)

    def _part(self) -> bool:
        part = bytearray()
        for frame in self._frames:
            part += frame
            if len(part) >= PART_BYTES:
                break
        write_whole(self._file, part)
        return bool(part)

    def _tail(self, size: int) -> None:
        if self._source is None:
            self._source = self._store.open("rb", buffering=0)
        part = os.pread(self._source.fileno(), min(TAIL_BYTES, size - self._at), self._at)
        write_whole(self._file, part)
        self._at += len(part)


class Sync:
    """A file on its way to the disk; others may be written meanwhile."""

    def __init__(self, file: BinaryIO) -> None:
        self._number = os.dup(file.fileno())  # its own, since the file may be closed before the disk is done
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="wend store", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            os.fsync(self._number)
        except OSError as error:
            self._error = error
        finally:
            os.close(self._number)

    def over(self) -> bool:
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True


def write_whole(file: BinaryIO, data: bytes | bytearray) -> None:
    """An unbuffered file may take a part; the disk's error comes when the rest is written."""
    taken = file.write(data) or 0
    while taken < len(data):
        more = file.write(memoryview(data)[taken:])
        if not more:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken += more
