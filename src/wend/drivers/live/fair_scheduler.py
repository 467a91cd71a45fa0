"""Whose turn it is: those who have much to be done get a few milliseconds each, and the loop runs in between."""

import asyncio
import time
from collections import deque
from typing import Protocol

TURN_S = 0.003
"""For all that wait, until the loop sees to sockets and timers again."""


class Worker(Protocol):
    def work(self, until: float) -> bool:
        """Work until then by the monotonic clock, or a little longer; whether something is left."""


class FairScheduler:
    def __init__(self) -> None:
        self._waiting: deque[Worker] = deque()

    def take(self, worker: Worker) -> None:
        """At once where nobody waits, else in turn. To be called by those who do not wait already."""
        self._waiting.append(worker)
        if len(self._waiting) == 1:
            self._go_on()

    def _go_on(self) -> None:
        until = time.monotonic() + TURN_S
        while self._waiting:
            worker = self._waiting[0]
            left = worker.work(until)
            self._waiting.popleft()
            if left:
                self._waiting.append(worker)
                asyncio.get_running_loop().call_soon(self._go_on)
                return
