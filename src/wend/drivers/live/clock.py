"""Clocks of live peers and of the links between them.

A peer in production uses the machine's monotonic time. If one process runs many peers, a stall of its event loop (a
busy core, a burst of work) looks like hundreds of silent links. The peers then send more packets, which stall the loop
further. So such peers and links share a `SteadyClock`, which stops while the event loop is stalled: an overloaded
machine runs the same experiment more slowly, and the clock measures by how much.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from wend.model.units import MS, SECOND, Nanos

Clock = Callable[[], Nanos]
monotonic: Clock = time.monotonic_ns


def wall_s() -> int:
    """The time by which certificates are checked."""
    return int(time.time())


BEAT_NS: Nanos = 2 * MS
STRIDE_NS: Nanos = 4 * MS
"""The most by which the clock advances between two beats."""


class SteadyClock:
    """Monotonic time without the stalls of the event loop. It runs inside `async with`."""

    def __init__(self) -> None:
        self.stalled_ns: Nanos = 0
        """Total time for which the clock stood still."""
        self.longest_ns: Nanos = 0
        """The longest interval between two beats, minus `BEAT_NS`."""
        self._beat_ns = monotonic()
        self._base_ns = self._beat_ns
        self._task: asyncio.Task[None] | None = None

    def __call__(self) -> Nanos:
        return self._base_ns + min(monotonic() - self._beat_ns, STRIDE_NS)

    async def __aenter__(self) -> "SteadyClock":
        self._beat_ns = self._base_ns = monotonic()
        self._task = asyncio.create_task(self._run(), name="steady clock")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(BEAT_NS / SECOND)
            self.advance()

    def advance(self) -> None:
        """Advance the clock to the machine's time, by at most `STRIDE_NS`."""
        now = monotonic()
        since_ns = now - self._beat_ns
        self._base_ns += min(since_ns, STRIDE_NS)
        self._beat_ns = now
        self.stalled_ns += max(0, since_ns - STRIDE_NS)
        self.longest_ns = max(self.longest_ns, since_ns - BEAT_NS)
