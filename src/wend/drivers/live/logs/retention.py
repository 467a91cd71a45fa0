"""How much of a log is kept: the bounds, the segments that follow from them, and which ones are dropped.

A log drops whole segments, the oldest first. A segment is a sixteenth of a bound, so a log holds between fifteen
sixteenths and all of its bytes or events, and an event up to a sixteenth longer than its time.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from wend.model.units import HOUR, MINUTE, SECOND, Nanos

PARTS: Final = 16
MIB: Final = 1024 * 1024
MAX_SEGMENT_BYTES: Final = 256 * MIB
MIN_BYTES: Final = 16 * MIB


class Bounds(msgspec.Struct, frozen=True):
    """What a log keeps at most. None: no such bound."""

    keep_ns: Nanos | None = None
    max_bytes: int | None = None
    max_events: int | None = None

    @property
    def segment_bytes(self) -> int:
        return MAX_SEGMENT_BYTES if self.max_bytes is None else min(MAX_SEGMENT_BYTES, self.max_bytes // PARTS)

    @property
    def segment_events(self) -> int | None:
        return None if self.max_events is None else max(1, self.max_events // PARTS)

    @property
    def segment_ns(self) -> Nanos:
        """The time after which a segment gets no further records."""
        return 24 * HOUR if self.keep_ns is None else min(24 * HOUR, max(SECOND, self.keep_ns // PARTS))

    @property
    def check_ns(self) -> Nanos:
        """How often to look for segments that are too old."""
        return min(MINUTE, max(SECOND, self.segment_ns // 4))


class SegmentExtent(NamedTuple):
    """What retention knows of a segment."""

    begin: int
    """How many events the log had got before it."""
    newest_ns: Nanos
    """No record in it is younger."""
    size: int


def count_dropped(segments: Sequence[SegmentExtent], end: int, now: Nanos, bounds: Bounds, *, begins: bool) -> int:
    """How many of the oldest segments to drop. `end`: how many events the log has got; `begins`: whether another
    segment begins, for which there must be room."""
    size = sum(each.size for each in segments) + (bounds.segment_bytes if begins else 0)
    room = (bounds.segment_events or 0) if begins else 0
    for number, each in enumerate(segments):
        is_old = bounds.keep_ns is not None and each.newest_ns < now - bounds.keep_ns
        is_too_large = bounds.max_bytes is not None and size > bounds.max_bytes
        is_too_long = bounds.max_events is not None and end - each.begin + room > bounds.max_events
        if not (is_old or is_too_large or is_too_long):
            return number
        size -= each.size
    return len(segments)
