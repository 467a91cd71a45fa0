"""Which time it is, for a peer and for the links it sends on.

A peer that serves real sites takes the machine's monotonic time. When one machine plays a whole wide
area, its own hesitation (a busy core, a burst of work) would look like hundreds of links that do not
answer, and the packets sent for that reason would make it hesitate more. There, peers and links share a
`SteadyClock`, which stops while the event loop is held up: a machine that cannot keep pace plays the
same world more slowly, and says by how much.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from wend.model.units import MS, SECOND, Nanos

Clock = Callable[[], Nanos]
monotonic: Clock = time.monotonic_ns

BEAT_NS: Nanos = 2 * MS
STRIDE_NS: Nanos = 4 * MS
"""The clock goes at most so far from one beat to the next."""


class SteadyClock:
    """Monotonic time without the moments in which nobody could listen. Runs inside `async with`."""

    def __init__(self) -> None:
        self.stalled_ns: Nanos = 0
        """For how long it stood still, in all."""
        self.longest_ns: Nanos = 0
        """The longest time between two beats, beyond what was asked for."""
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
            self._beat()

    def _beat(self) -> None:
        now = monotonic()
        passed = now - self._beat_ns
        self._base_ns += min(passed, STRIDE_NS)
        self._beat_ns = now
        self.stalled_ns += max(0, passed - STRIDE_NS)
        self.longest_ns = max(self.longest_ns, passed - BEAT_NS)
