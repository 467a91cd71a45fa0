"""Copa (Arun and Balakrishnan, NSDI 2018): congestion control by queueing delay.

The rate aims at one packet per `delta` of queueing delay: flows that share a bottleneck find equal rates, and some two
packets each wait there. The window moves towards that rate, faster the longer it moves in one direction.

A flow that fills the queue would push this one aside. If the queue has not been almost empty for five round trips,
somebody fills it: then `delta` shrinks by AIMD, as long as that lasts (competitive mode). The least round trip from
before counts all that time: a queue that is never empty would seem so as soon as it is forgotten.

Some things differ from the paper. Competitive mode begins with a share of the former rate, and grows by bytes, since
packets of peers are smaller than TCP's. A queueing delay below the jitter of the host counts as none: hosts that run
Python are often late by milliseconds. And a window without any queueing delay shrinks where a tenth of its packets gets
lost, because a queue may be shorter than that jitter.
"""

from typing import Final

from wend.model.units import MS, SECOND, Nanos
from wend.protocol.link.congestion import (
    INITIAL_PACKETS,
    MIN_PACKETS,
    MIN_RTT_MEMORY_NS,
    UNLIMITED,
    Controller,
    LeastOf,
)

DEFAULT_GAIN: Final = 2.0
"""1 / delta, the packets of a flow that wait at the bottleneck if no other flow fills it."""
EMPTY: Final = 0.1
"""A queue is almost empty if it delays by less than this share of the longest delay of late."""
EMPTY_ROUNDS: Final = 5
"""If it has not been for so many round trips, somebody else fills it."""
STEADY_ROUNDS: Final = 3
"""After so many round trips in one direction the window moves twice as fast."""
FASTEST: Final = 0.125
"""The share by which a window changes in a round trip, at most, after slow start."""
SHORT_PACKETS: Final = 8
SHORT_NS: Final = 40 * MS
"""A queue of so many packets, at the greatest rate of late, or of so much time may be that of flows like this one. It
counts as empty. Twice as much does before competitive mode begins: two flows that take each other for TCP would keep
the queue full."""
RATE_MEMORY_NS: Final = 60 * SECOND
MAX_QUIET_ROUNDS: Final = 40
"""After so many round trips of competitive mode without a loss the default mode tries to empty the queue."""
EMPTY_NS: Final = SECOND
"""A queue that is not empty for less than this may be a short pause of a host."""
GROWTH_BYTES: Final = 767
"""By how many bytes the gain grows in a round trip of competitive mode without a loss: as much as a window of TCP
cubic beside Reno's, 0.53 segments of 1448 bytes (RFC 9438). Packets of peers are often smaller than that."""
KEPT: Final = 0.5
"""The share of the gain that a loss leaves."""
FIRST_SHARE: Final = 0.25
"""Competitive mode begins with this share of the greatest rate of late."""
CUT_ROUNDS: Final = 3
"""Losses of so many round trips count once: timeouts find packets that got lost together one after the other."""
TOO_MANY_LOST: Final = 0.1
HELD_MEMORY_NS: Final = 300 * SECOND
"""For how long the least round trip counts while the queue is never empty, so that a full one does not seem empty."""
MAX_JITTER_NS: Final = 200 * MS
BUSY_NS: Final = 5 * SECOND
"""How long after a pause of this peer queueing delays up to twice that pause count as jitter of the host."""


class Copa(Controller):
    __slots__ = (
        "_acked",
        "_busy_ns",
        "_cut_ns",
        "_emptied_ns",
        "_fastest",
        "_gain",
        "_held_ns",
        "_longest",
        "_lost",
        "_quiet_rounds",
        "_rising",
        "_round_ns",
        "_slow_start",
        "_steady",
        "_usual_jitter_ns",
        "_velocity",
        "_window_then",
        "competitive",
    )  # fmt: skip

    def __init__(self, jitter_ns: Nanos) -> None:
        super().__init__(jitter_ns)
        self._usual_jitter_ns = jitter_ns
        self._busy_ns: Nanos = 0
        """Until when the jitter may be that of a busy host."""
        self._gain = DEFAULT_GAIN
        self._velocity = 1.0
        self._slow_start = True
        self._rising = True
        """The direction of the window in the last round trip."""
        self._steady = 0
        """For how many round trips it has been the same."""
        self._round_ns: Nanos = 0
        """When the current round trip began."""
        self._window_then = 0.0
        """The window at that time."""
        self._emptied_ns: Nanos = 0
        """When the queue was last almost empty."""
        self._quiet_rounds = 0
        """Round trips of competitive mode since a packet got lost."""
        self.competitive = False
        """Whether somebody else seems to fill the queue."""
        self._held_ns: Nanos = 0
        """Until when the least round trip from before that still counts."""
        self._cut_ns: Nanos = 0
        """When a loss last made this flow less competitive."""
        self._fastest = LeastOf()
        """The greatest rate of late in bytes per second, as the least of negative ones."""
        self._longest = LeastOf()
        """The longest round trip of late, as the least of negative ones."""
        self._acked = self._lost = 0
        """Bytes in the current round trip."""

    def first(self, size: int) -> None:
        super().first(size)
        self.window = float(INITIAL_PACKETS * size)

    def lost(self, now: Nanos, size: int) -> None:
        self._lost += size

    def paused(self, now: Nanos, ns: Nanos) -> None:
        jitter_ns = max(self._usual_jitter_ns, min(2 * ns, MAX_JITTER_NS))
        if jitter_ns >= self.jitter_ns:
            self.jitter_ns, self._busy_ns = jitter_ns, now + BUSY_NS

    def restart(self, now: Nanos) -> None:
        super().restart(now)
        self.window = MIN_PACKETS * self.segment
        self._slow_start, self._velocity, self._steady = True, 1.0, 0
        self._emptied_ns = self._round_ns = now
        self._acked = self._lost = 0

    def _adjust(self, now: Nanos, size: int, limited: bool) -> None:
        self._acked += size
        queueing = self.standing_ns - self.least_ns
        longest = -self._longest.add(now, -int(self.srtt_ns), 4 * int(self.srtt_ns))
        fastest = -self._fastest.add(now, -int(SECOND * self.window / self.standing_ns), RATE_MEMORY_NS)
        own = max(SHORT_NS, SHORT_PACKETS * self.segment * SECOND / fastest)
        if queueing <= max(own if self.competitive else 2 * own, EMPTY * (longest - self.least_ns)):
            self._emptied_ns = now
        if now - self._round_ns >= self.srtt_ns:
            self._end_round(now)
        if not limited:
            segment, window = self.segment, self.window
            aim = self._gain * segment / queueing if queueing > self.jitter_ns else UNLIMITED
            if window / self.standing_ns > aim:
                if self._slow_start:  # what the last round trip added waits in the queue
                    self._slow_start = False
                    window /= 2
                else:
                    window -= self._velocity * self._gain * segment * size / window
            else:
                window += size if self._slow_start else self._velocity * self._gain * segment * size / window
            self.window = max(MIN_PACKETS * segment, window)
        self.pace = self.standing_ns / (2 * self.window)

    def _end_round(self, now: Nanos) -> None:
        """A round trip is over: find direction and mode for the next one."""
        if self.jitter_ns > self._usual_jitter_ns and now > self._busy_ns:
            self.jitter_ns = self._usual_jitter_ns
        rising = self.window > self._window_then
        if rising == self._rising:
            self._steady += 1
        else:
            self._rising, self._steady, self._velocity = rising, 0, 1.0
        if self._steady >= STEADY_ROUNDS:
            self._velocity = max(1.0, min(2 * self._velocity, FASTEST * self.window / (self._gain * self.segment)))
        lost = self._lost / (self._lost + self._acked) if self._lost else 0.0
        if now - self._emptied_ns < max(EMPTY_NS, EMPTY_ROUNDS * self.srtt_ns):
            self.competitive, self._gain = False, DEFAULT_GAIN
            self.memory_ns = MIN_RTT_MEMORY_NS if now > self._held_ns else HELD_MEMORY_NS
            if lost > TOO_MANY_LOST:
                self._slow_start = False
                self.window = max(MIN_PACKETS * self.segment, self.window * 0.7)
        else:
            self._compete(now)
        self._acked = self._lost = 0
        self._round_ns, self._window_then = now, self.window

    def _compete(self, now: Nanos) -> None:
        """Somebody else fills the queue: move the gain as TCP moves its window."""
        self._held_ns, self.memory_ns = now + MIN_RTT_MEMORY_NS, HELD_MEMORY_NS
        if not self.competitive:
            self.competitive, self._quiet_rounds = True, 0
            fastest = -self._fastest.least / SECOND
            self._gain = max(DEFAULT_GAIN, FIRST_SHARE * fastest * self.queueing_ns / self.segment)
        elif not self._lost:
            self._gain += GROWTH_BYTES / self.segment
            self._quiet_rounds += 1
            if self._quiet_rounds > MAX_QUIET_ROUNDS:  # perhaps this flow is the one that fills the queue
                self._emptied_ns = now
        elif now - self._cut_ns > CUT_ROUNDS * self.srtt_ns:
            self._gain, self._quiet_rounds, self._cut_ns = max(DEFAULT_GAIN, KEPT * self._gain), 0, now
