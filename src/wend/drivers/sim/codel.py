"""CoDel (RFC 8289): drops packets at the head of a queue while they wait too long.

CoDel watches how long packets waited, their sojourn times. If all packets of an interval waited longer than the target,
it drops one. It drops the next ones at intervals that shrink with the square root of the number of drops, until a
packet waited for less than the target. So bursts pass, and a queue that never drains stays short.
"""

from collections import deque
from math import sqrt
from typing import Protocol, TypeVar

from wend.model.units import MS, Nanos

TARGET_NS: Nanos = 5 * MS
INTERVAL_NS: Nanos = 100 * MS
_RECENT = 16
"""If CoDel dropped packets within this many intervals before, it resumes at about the same rate."""


class HasEntered(Protocol):
    """A packet that waits in a queue."""

    entered_ns: Nanos


W = TypeVar("W", bound=HasEntered)


class CodelControl:
    """The control law of one queue, after section 5 of the RFC. The target is at least the time to send a packet."""

    __slots__ = ("_count", "_drop_next", "_dropping", "_first_above", "_last_count", "_target")

    def __init__(self, packet_ns: Nanos = 0) -> None:
        self._target = max(TARGET_NS, packet_ns)
        self._first_above = 0
        """When CoDel may drop if sojourn times stay above the target; 0 while they are below."""
        self._drop_next = 0
        self._count = self._last_count = 0
        self._dropping = False

    def dequeue(self, now: Nanos, waiting: deque[W]) -> tuple[W | None, list[W]]:
        """Remove the next packet to send, and those to drop before it."""
        dropped: list[W] = []
        packet, may_drop = self._take_first(now, waiting)
        if self._dropping:
            self._dropping = may_drop
            while self._dropping and now >= self._drop_next:
                assert packet is not None
                dropped.append(packet)
                self._count += 1
                packet, self._dropping = self._take_first(now, waiting)
                if self._dropping:
                    self._drop_next = next_drop_time(self._drop_next, self._count)
        elif may_drop:
            assert packet is not None
            dropped.append(packet)
            packet, _ = self._take_first(now, waiting)
            self._dropping = True
            since = self._count - self._last_count
            recent = now - self._drop_next < _RECENT * INTERVAL_NS
            self._count = self._last_count = since if since > 1 and recent else 1
            self._drop_next = next_drop_time(now, self._count)
        return packet, dropped

    def _take_first(self, now: Nanos, waiting: deque[W]) -> tuple[W | None, bool]:
        """Remove the first packet. Also returns whether all sojourn times of the last interval exceeded the target."""
        if not waiting:
            self._first_above = 0
            return None, False
        packet = waiting.popleft()
        if now - packet.entered_ns < self._target or len(waiting) <= 1:
            self._first_above = 0
            return packet, False
        if not self._first_above:
            self._first_above = now + INTERVAL_NS
            return packet, False
        return packet, now >= self._first_above


def next_drop_time(time: Nanos, count: int) -> Nanos:
    """The time of the next drop, after `count` drops."""
    return time + int(INTERVAL_NS / sqrt(count))
