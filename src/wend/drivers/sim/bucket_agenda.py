"""The agenda of a large simulation: entries in buckets of a millisecond, ordered only when their bucket is next.

One heap of all entries would have hundreds of thousands, and every comparison would miss the processor's caches. The
order is the same, by (time, kind, number), but only the current bucket is a heap.
"""

from heapq import heapify, heappop, heappush
from typing import Any, Final

from wend.model.events import PeerId
from wend.model.units import Nanos

SHIFT: Final = 20
"""A bucket spans 2^20 ns."""
Entry = tuple[Nanos, int, int, PeerId, Any]
"""Time, kind, number, peer, argument."""


class BucketAgenda:
    """The agenda of a simulation, as buckets of a millisecond."""

    __slots__ = ("_at", "_buckets", "_count", "_current", "_order")

    def __init__(self) -> None:
        self._count = 0
        self._at = -1
        """The number of the current bucket; earlier ones are empty."""
        self._current: list[Entry] = []
        self._buckets: dict[int, list[Entry]] = {}
        self._order: list[int] = []

    def push(self, time: Nanos, kind: int, peer: PeerId, arg: Any) -> None:
        self._count = count = self._count + 1
        number = time >> SHIFT
        if number <= self._at:
            heappush(self._current, (time, kind, count, peer, arg))
        elif (bucket := self._buckets.get(number)) is not None:
            bucket.append((time, kind, count, peer, arg))
        else:
            self._buckets[number] = [(time, kind, count, peer, arg)]
            heappush(self._order, number)

    def pop(self, until_ns: Nanos) -> Entry | None:
        """The next entry up to this time, or None."""
        current = self._current
        if not current:
            if not self._order or self._order[0] > until_ns >> SHIFT:
                return None
            self._at = heappop(self._order)
            current = self._current = self._buckets.pop(self._at)
            heapify(current)
        return heappop(current) if current[0][0] <= until_ns else None

    def count_entries(self, kind: int) -> int:
        """The entries of one kind."""
        return sum(entry[1] == kind for bucket in (self._current, *self._buckets.values()) for entry in bucket)
