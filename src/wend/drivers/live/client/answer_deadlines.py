"""Time limits of a client's requests, with one timer for all of them.

Most requests of a client may wait equally long, so they become overdue in the order in which they were sent.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Container


class AnswerDeadlines:
    def __init__(self, waiting: Container[int], overdue: Callable[[int], None]) -> None:
        """`waiting` has the numbers of requests without an answer; `overdue` is called for those that wait too long."""
        self._waiting = waiting
        self._overdue = overdue
        self._due: deque[tuple[float, int]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def add(self, ref: int, timeout: float) -> None:
        """A request was sent."""
        self._forget_answered()
        when = asyncio.get_running_loop().time() + timeout
        due, place = self._due, len(self._due)
        while place and due[place - 1][0] > when:  # its timeout is shorter than those before
            place -= 1
        due.insert(place, (when, ref))
        if self._timer is None or self._timer_at > when:
            self._arm(when)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = asyncio.get_running_loop().call_at(when, self._check)

    def _forget_answered(self) -> None:
        due = self._due
        while due and due[0][1] not in self._waiting:
            due.popleft()

    def _check(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        self._forget_answered()
        while self._due and self._due[0][0] <= now:
            self._overdue(self._due.popleft()[1])
            self._forget_answered()
        if self._due:
            self._arm(self._due[0][0])
