"""Compaction: a copy of a store without the records that are no longer needed.

The store writes the copy beside itself, in small steps, one with every record that is appended. The copy holds the
records that were needed when it was begun, followed by all that were appended since. Until it has caught up, the store
itself is complete and in use. Then the copy takes the store's name in one step. So a crash at any moment leaves a
complete store, and no record waits for more than a few others. A thread waits for the disk.
"""

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

STEP_BYTES = 4 * 1024
TAIL_BYTES = 1024 * 1024
"""The size of one step; larger than any record, so that the copy catches up with records appended meanwhile."""
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link",
}


class CompactedCopy:
    """A copy that begins with `frames` and continues with the bytes of the store after `since`."""

    def __init__(self, store: Path, frames: Iterator[bytes], since: int) -> None:
        self._store = store
        self._beside = copy_path(store)
        self._frames = frames
        self._at = since
        self._source: BinaryIO | None = None
        self._syncing: BackgroundSync | None = None
        check_regular(self._beside)
        self._beside.unlink(missing_ok=True)
        self._file: BinaryIO = self._beside.open("ab", buffering=0)

    def copy_step(self, size: int) -> bool:
        """Copy some bytes. Returns whether all of the store's first `size` bytes are in the copy and on the disk."""
        if self._copy_frames():
            return False
        self._copy_tail(size)
        if self._syncing is None:
            if self._at == size:
                self._syncing = BackgroundSync(self._file)
            return False
        return self._syncing.is_done() and self._at == size

    def finish(self) -> BinaryIO:
        """Copy all frames at once and replace the store. Only for a store that nobody uses yet."""
        while self._copy_frames():
            pass
        os.fsync(self._file.fileno())
        return self.replace()

    def replace(self, sync: bool = False) -> BinaryIO:
        """Replace the store. Returns the file to append to from now on."""
        if sync:  # for the bytes copied since the background sync began
            os.fdatasync(self._file.fileno())
        check_regular(self._store)
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

    def _copy_frames(self) -> bool:
        """Write some of the frames. Returns whether there were any."""
        step = bytearray()
        for frame in self._frames:
            step += frame
            if len(step) >= STEP_BYTES:
                break
        write_whole(self._file, step)
        return bool(step)

    def _copy_tail(self, size: int) -> None:
        if self._source is None:
            self._source = self._store.open("rb", buffering=0)
        tail = os.pread(self._source.fileno(), min(TAIL_BYTES, size - self._at), self._at)
        write_whole(self._file, tail)
        self._at += len(tail)


class BackgroundSync:
    """Writes a file to the disk in a thread, so that the process can go on."""

    def __init__(self, file: BinaryIO) -> None:
        self._number = os.dup(file.fileno())  # a descriptor of its own: the file may be closed before the disk is done
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

    def is_done(self) -> bool:
        """Whether the file is on the disk. Raises the error of the disk."""
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True


def copy_path(store: Path) -> Path:
    """Where a compaction of this store writes its copy."""
    return store.with_name(store.name + ".new")


def check_regular(path: Path) -> None:
    """Raise `OSError` if something other than a regular file has this name: a compaction must not replace it."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise OSError(errno.EINVAL, f"{path.name or path} is {kind}, not a regular file")


def write_whole(file: BinaryIO, data: bytes | bytearray) -> None:
    """Write all of the data. An unbuffered file may write only a part; then the rest shows the error of the disk."""
    written = file.write(data) or 0
    while written < len(data):
        more = file.write(memoryview(data)[written:])
        if not more:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += more
