"""A cursor: reads a log from a position on, and follows its end.

A log is read and followed through the same cursor, so there is no seam between history and what comes: each position is
read once, in order. What the cursor cannot read any more, it counts: retention was faster, or records are damaged.
"""

from wend.drivers.live.logs.log import Log
from wend.drivers.live.logs.record import LogRecord, count_of
from wend.drivers.live.logs.segment import FIRST_READ_BYTES, READ_BYTES, LogSegment


class LogCursor:
    """Reads one log."""

    def __init__(self, log: Log, position: int) -> None:
        self.position = position
        """The next position to read."""
        self.dropped = 0
        """Events that retention dropped before the cursor reached them, since this was last read."""
        self.damaged = 0
        """Events that could not be read, since this was last read."""
        self._log = log
        self._segment: LogSegment | None = None
        self._place = 0
        self._size = FIRST_READ_BYTES
        self._left: list[LogRecord] = []
        """Records that were read and not returned, in reverse."""

    @property
    def is_at_end(self) -> bool:
        return self.position >= self._log.next_position

    def read(self, most: int = 1024) -> list[LogRecord]:
        """The next records; none at the end of the log, or if nothing could be read in a while."""
        log = self._log
        if self.position < log.first_position:
            self.dropped += self._skip_to(log.first_position)
        elif self._left:
            return self._take(most)
        if self.is_at_end:
            return []
        recent = log.tail.read(self.position, most)
        if recent is not None:
            self._segment = None
            self.position = recent[-1].position + 1
            return recent
        segment = log.segment_of(self.position)
        if segment is None:
            return []
        return self._take(most) if self._read_segment(segment) else []

    def _skip_to(self, position: int) -> int:
        """Go on at a later position. Returns how many events are between."""
        skipped = count_of(position) - count_of(self.position)
        self.position = position
        self._segment = None
        self._left.clear()
        return max(0, skipped)

    def _read_segment(self, segment: LogSegment) -> bool:
        """Read the next records of a segment. Returns whether there are any."""
        try:
            reader = self._log.reader(segment)
            if self._segment != segment:
                self._place, self._size = reader.place_of(self.position), FIRST_READ_BYTES
                self._segment = segment
            records, self._place, is_end = reader.read(self._place, self._size)
            self._size = min(2 * self._size, READ_BYTES)
        except OSError:
            records, is_end = [], True
        if records and records[0].position < self.position:
            records = [record for record in records if record.position >= self.position]
        if is_end and not records:
            later = self._log.segment_after(segment)
            self.damaged += self._skip_to(self._log.next_position if later is None else later.first)
        records.reverse()
        self._left = records
        return bool(records)

    def _take(self, most: int) -> list[LogRecord]:
        left = self._left
        taken = left[: -most - 1 : -1]
        del left[-len(taken) :]
        skipped = count_of(taken[-1].position) - count_of(self.position) + 1 - len(taken)
        self.damaged += max(0, skipped)
        self.position = taken[-1].position + 1
        return taken
