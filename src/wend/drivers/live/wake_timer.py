"""The timer of a live peer: it fires at the newest time that the peer asked to be woken at.

Most of these times are later than the one before, because ACKs arrive. The timer is not moved for them: it fires at
the earlier time, finds that nothing is due, and is set again.

A timer that fires late shows that the process was not scheduled, or that the event loop was busy. The timer tells the
peer, so that it does not blame its links for packets that it had no time to read.
"""

import asyncio
from collections.abc import Callable

from wend.drivers.live.clock import Clock
from wend.model.units import FOREVER, MS, Nanos
from wend.protocol.ports import WakeAt

LATE_NS = 5 * MS
"""A timer that fires this much too late shows a busy host."""


class WakeTimer:
    """Wakes a live peer at the newest time that the peer asked for."""

    def __init__(
        self,
        clock: Clock,
        drain: Callable[[], Nanos],
        wake: Callable[[], None],
        paused: Callable[[Nanos], None] = lambda _: None,
    ) -> None:
        """`drain` reads the datagrams that have arrived, and returns how long the unread ones have waited. `wake` tells
        the peer that its time has come, and `paused` for how long it could not hear anyone."""
        self._clock = clock
        self._drain = drain
        self._wake = wake
        self._paused = paused
        self.wake_ns: Nanos | None = None
        """The newest time that was asked for; None once the peer was woken."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns: Nanos = FOREVER
        self._due_ns: Nanos = FOREVER
        """When it should fire. It may have been set for a time in the past."""
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    @property
    def is_open(self) -> bool:
        return self._loop is not None

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def close(self) -> None:
        self._loop = None
        self._arm()

    def wake_at(self, effect: WakeAt) -> None:
        self.wake_ns = effect.time_ns
        if effect.time_ns < self._timer_ns:
            self._arm()

    def fire(self) -> None:
        """Wake the peer if it is due. Datagrams that have arrived come first, as in the simulator: while this process
        did not run, the ACK that the peer waits for may have reached the socket."""
        late_ns = self._clock() - self._due_ns
        self._timer_ns = 0  # so that `wake_at` does not set the timer meanwhile: that is done below
        try:
            if self._is_due():
                late_ns = max(late_ns, self._drain())
                if late_ns > LATE_NS and self._loop is not None:
                    self._paused(late_ns)
            if self._is_due():
                self.wake_ns = None
                self._wake()
        finally:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_ns = None, FOREVER
        if self._loop is None or self.wake_ns is None:
            return
        # Rounded up to the loop's tick: a timer that fires early would only be set again.
        now = self._clock()
        self._due_ns = max(now, self.wake_ns)
        wait_ms = max(0, -((now - self.wake_ns) // MS))
        self._timer, self._timer_ns = self._loop.call_later(wait_ms / 1000, self.fire), self.wake_ns

    def _is_due(self) -> bool:
        return self._loop is not None and self.wake_ns is not None and self.wake_ns <= self._clock()
