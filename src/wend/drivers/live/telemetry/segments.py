"""Segments on the disk: written by a thread of their own, closed by a rename, bounded in number of bytes.

The event loop never waits for the disk. It offers batches of rows to a queue with a bound. If the disk is so slow that
the queue is full, or if a segment cannot be written, its rows are dropped and counted.

A segment is written under a hidden name, synced and renamed, so readers see only complete segments. A crash may leave
hidden files, which the next incarnation removes. A manifest, `manifest-PEER-INCARNATION.json`, says which software
wrote the segments, and once the peer has stopped, how many there are.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from wend.drivers.live.telemetry.row_batch import RowBatch
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.extras import needed_by
from wend.model.telemetry import KEY, SCHEMA, Segment, parse_segment_name
from wend.model.version import __version__

log = logging.getLogger("wend.telemetry")

PARTIAL = ".part"
CLOSE_S = 5.0
"""How long a peer that stops waits for its last segments."""
_LOGGED_FAILURES = 5


class SegmentFolder:
    """The segments of one incarnation of a peer, in a folder that may hold those of earlier ones and of other peers."""

    def __init__(self, folder: Path, peer: PeerId, incarnation: int, most_bytes: int, about: Mapping[str, Any]) -> None:
        """`about`: more content of the manifest. Raises `ConfigError` if the folder cannot be used."""
        with needed_by("a peer that writes telemetry", "telemetry"):
            import pyarrow.parquet  # noqa: F401
        self.folder = folder
        self._peer = peer
        self._incarnation = incarnation
        self._most_bytes = most_bytes
        self._about = dict(about)
        self.segments = self.rows = self.removed = 0
        """How many segments and rows were written, and how many segments were removed to make room."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.left_over = self._remove_partial()
            self._closed = self._find_closed()
            self._write_manifest({})
        except OSError as error:
            raise ConfigError(
                f"cannot write telemetry to {folder}: {error.strerror or error}", code="unwritable"
            ) from None

    @property
    def size_bytes(self) -> int:
        """The size of all closed segments of this peer."""
        return sum(size for _, size in self._closed)

    def write(self, batch: RowBatch, number: int) -> None:
        """Write a segment. Raises `OSError`, and then leaves no file."""
        segment = Segment(batch.table, SCHEMA, self._peer, self._incarnation, number)
        path, partial = self.folder / segment.name, self.folder / f".{segment.name}{PARTIAL}"
        try:
            write_parquet(partial, batch, segment)
            os.rename(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        _sync_folder(self.folder)
        self.segments += 1
        self.rows += batch.rows
        self._closed.append((path, path.stat().st_size))
        self._make_room()

    def end(self, unwritten: int) -> None:
        """Complete the manifest: nothing more will be written."""
        counts = {"segments": self.segments, "rows": self.rows, "removed": self.removed, "unwritten": unwritten}
        self._write_manifest(counts)

    def _make_room(self) -> None:
        size = self.size_bytes
        while size > self._most_bytes and len(self._closed) > 1:
            path, least = self._closed.popleft()
            size -= least
            try:
                path.unlink()
            except FileNotFoundError:
                continue  # the program that ships segments has removed it
            self.removed += 1

    def _remove_partial(self) -> int:
        """Remove the partial files that a crash of this peer left behind."""
        count = 0
        for path in sorted(self.folder.glob(f".*{PARTIAL}")):
            segment = parse_segment_name(path.name.removeprefix(".").removesuffix(PARTIAL))
            if segment is not None and segment.peer == self._peer:
                path.unlink(missing_ok=True)
                count += 1
        return count

    def _find_closed(self) -> deque[tuple[Path, int]]:
        """The segments of this peer, the oldest first, with their sizes."""
        closed = []
        for path in self.folder.glob("*.parquet"):
            segment = parse_segment_name(path.name)
            if segment is not None and segment.peer == self._peer:
                closed.append(((segment.incarnation, segment.number), path, path.stat().st_size))
        return deque((path, size) for _, path, size in sorted(closed))

    def _write_manifest(self, counts: Mapping[str, int]) -> None:
        content = {
            "peer": self._peer, "incarnation": self._incarnation, "software": __version__, "schema": SCHEMA,
            **self._about, **counts,
        }  # fmt: skip
        name = f"manifest-{self._peer}-{self._incarnation}.json"
        partial = self.folder / f".{name}{PARTIAL}"
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
        os.rename(partial, self.folder / name)


def write_parquet(path: Path, batch: RowBatch, segment: Segment) -> None:
    """Write the rows of a batch to a file, and have the disk store it."""
    import pyarrow as pa
    from pyarrow import parquet

    types = {"q": pa.int64(), "d": pa.float64(), "s": pa.string()}
    rows, width = batch.rows, len(batch.columns)
    key = (segment.peer, segment.incarnation, segment.number)
    arrays = [pa.repeat(pa.scalar(value, pa.int64()), rows) for value in key]
    for place, (_, kind) in enumerate(batch.columns):
        cells = pa.py_buffer(batch.cells[place::width])
        if kind == "s":
            numbers = pa.Array.from_buffers(pa.int64(), rows, [None, cells])
            texts = pa.array(list(batch.texts), pa.string())
            arrays.append(pa.DictionaryArray.from_arrays(numbers, texts).dictionary_decode())
        else:
            arrays.append(pa.Array.from_buffers(types[kind], rows, [None, cells]))
    facts = {
        "peer": segment.peer,
        "incarnation": segment.incarnation,
        "software": __version__,
        "schema": segment.schema,
    }
    metadata = {f"wend.{name}": str(value) for name, value in facts.items()}
    schema = pa.schema([pa.field(name, types[kind]) for name, kind in (*KEY, *batch.columns)], metadata)
    repeated = [name for name, kind in (*KEY, *batch.columns) if kind == "s" or (name, kind) in KEY]
    with path.open("wb") as file:
        parquet.write_table(
            pa.Table.from_arrays(arrays, schema=schema), file, compression="zstd", use_dictionary=repeated
        )
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class SegmentWriter:
    """The thread that writes segments, and the queue before it."""

    def __init__(
        self, write: Callable[[RowBatch, int], None], most_bytes: int, finish: Callable[[int], None] = lambda _: None
    ) -> None:
        """`most_bytes`: the memory of batches that wait; `finish` gets the number of unwritten rows at the end."""
        self._write = write
        self._finish = finish
        self._most_bytes = most_bytes
        self._waiting: deque[tuple[RowBatch, int]] = deque()
        self._waiting_bytes = 0
        self._number = 0
        self._refused = self._lost = 0
        self.failures = 0
        """Segments that could not be written."""
        self._ends = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    @classmethod
    def start_for(cls, folder: SegmentFolder, most_bytes: int) -> "SegmentWriter":
        """A writer of segments in a folder."""
        return cls(folder.write, most_bytes, folder.end)

    @property
    def unwritten(self) -> int:
        """Rows that were dropped: the disk was too slow, or a segment could not be written."""
        return self._refused + self._lost

    def offer(self, batch: RowBatch) -> None:
        """Have a batch written, or drop and count it if too much waits. Never blocks."""
        self._number += 1
        with self._changed:
            if self._ends or (self._waiting and self._waiting_bytes + batch.size_bytes > self._most_bytes):
                self._refused += batch.rows
                return
            self._waiting.append((batch, self._number))
            self._waiting_bytes += batch.size_bytes
            self._changed.notify()

    def end(self) -> None:
        """Take no more batches. The thread ends once it has written those that wait."""
        with self._changed:
            self._ends = True
            self._changed.notify()

    def join(self, wait_s: float = CLOSE_S) -> bool:
        """Wait for the thread after `end`, for this time at most. False if it still writes."""
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (entry := self._take_batch()) is not None:
            batch, number = entry
            try:
                self._write(batch, number)
            except Exception as error:
                self._lost += batch.rows
                self.failures += 1
                if self.failures <= _LOGGED_FAILURES:
                    log.warning("cannot write %d rows of telemetry about %s: %s", batch.rows, batch.table, error)
        try:
            self._finish(self.unwritten)
        except Exception as error:
            log.warning("cannot complete the manifest of telemetry: %s", error)

    def _take_batch(self) -> tuple[RowBatch, int] | None:
        with self._changed:
            while not self._waiting and not self._ends:
                self._changed.wait()
            if not self._waiting:
                return None
            entry = self._waiting.popleft()
            self._waiting_bytes -= entry[0].size_bytes
            return entry
