"""The timers of a peer, which needs only one wake-up from its driver at a time."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from wend.model.units import Nanos
from wend.protocol.ports import Effect

Effects = list[Effect]
Action = Callable[[Nanos, Any, Effects], None]


class Timers:
    """A heap of actions by time. Actions of equal time run in the order in which they were set (`count`)."""

    __slots__ = ("count", "heap")

    def __init__(self) -> None:
        self.count = 0
        self.heap: list[tuple[Nanos, int, Action, Any]] = []

    def set_timer(self, time: Nanos, action: Action, arg: Any) -> None:
        self.count = count = self.count + 1
        heappush(self.heap, (time, count, action, arg))

    def run(self, now: Nanos, effects: Effects) -> None:
        heap = self.heap
        while heap and heap[0][0] <= now:
            _, _, action, arg = heappop(heap)
            action(now, arg, effects)
