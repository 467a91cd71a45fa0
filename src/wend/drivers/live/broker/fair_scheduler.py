"""The scheduler of a broker: clients with many requests are served a few milliseconds at a time, in turn."""

import asyncio
import time
from collections import deque
from typing import Protocol

TURN_S = 0.003
"""How long clients are served before the event loop handles sockets and timers again."""


class Worker(Protocol):
    """A client, or other source of work, that is served in turns."""

    def work(self, until: float) -> bool:
        """Work until this monotonic time, or a little longer. Returns whether work is left."""
        ...


class FairScheduler:
    """Serves workers in turn; the event loop runs in between."""

    def __init__(self) -> None:
        self._waiting: deque[Worker] = deque()

    def add(self, worker: Worker) -> None:
        """Let a worker work: at once if no other worker waits, otherwise in turn. Do not add a worker twice."""
        self._waiting.append(worker)
        if len(self._waiting) == 1:
            self._run()

    def _run(self) -> None:
        until = time.monotonic() + TURN_S
        while self._waiting:
            worker = self._waiting[0]
            try:
                left = worker.work(until)
            except BaseException:
                self._waiting.popleft()
                if self._waiting:  # the other workers are served in any case
                    asyncio.get_running_loop().call_soon(self._run)
                raise
            self._waiting.popleft()
            if left:
                self._waiting.append(worker)
                asyncio.get_running_loop().call_soon(self._run)
                return
