"""Copa (Arun and Balakrishnan, NSDI 2018): congestion control by queueing delay.

The target rate is one packet per `delta` of queueing delay. Flows that share a bottleneck converge to equal rates, with
about two packets of each in its queue. The window moves towards that rate, faster the longer it moves in one direction.

A flow that fills the queue would starve this one. If the queue has not been almost empty for five round trips, another
flow fills it. `delta` then shrinks by AIMD until the queue empties again (competitive mode). All that time the least
round trip from before it is remembered: without it, a queue that is never empty would seem empty.

There are three differences from the paper. Competitive mode begins with a share of the former rate, and grows by bytes,
because packets of peers are smaller than those of TCP. A queueing delay below the jitter of the host counts as none:
hosts that run Python are often late by milliseconds. A window without queueing delay shrinks if a tenth of its packets
are lost, because a queue may be shorter than that jitter.
"""

from typing import Final

from wend.model.units import MS, SECOND, Nanos
from wend.protocol.link.congestion import (
    INITIAL_PACKETS,
    MIN_PACKETS,
    MIN_RTT_MEMORY_NS,
    UNLIMITED,
    Controller,
    SlidingMinimum,
)

DEFAULT_GAIN: Final = 2.0
"""1 / delta: how many packets of a flow wait at a bottleneck that no other flow fills."""
EMPTY: Final = 0.1
"""A queue is almost empty if its delay is less than this share of the longest recent delay."""
EMPTY_ROUNDS: Final = 5
"""If the queue has not been almost empty for this many round trips, another flow fills it."""
STEADY_ROUNDS: Final = 3
"""After this many round trips in one direction, the window moves twice as fast."""
FASTEST: Final = 0.125
"""The greatest relative change of a window in one round trip after slow start."""
SHORT_PACKETS: Final = 8
SHORT_NS: Final = 40 * MS
"""A queue of this many packets at the greatest recent rate, or of this much delay, may be due to flows like this one,
so it counts as empty. Before competitive mode the limit is twice as high: two flows that take each other for TCP would
keep the queue full."""
RATE_MEMORY_NS: Final = 60 * SECOND
MAX_QUIET_ROUNDS: Final = 40
"""After this many round trips of competitive mode without a loss, the default mode tries to empty the queue."""
EMPTY_NS: Final = SECOND
"""A queue that has not been empty for less than this may be due to a short pause of a host."""
GROWTH_BYTES: Final = 767
"""How many bytes the gain grows in a round trip of competitive mode without a loss. It equals the growth of a TCP Cubic
window beside Reno: 0.53 segments of 1448 bytes (RFC 9438). Packets of peers are often smaller than that."""
KEPT: Final = 0.5
"""The factor by which a loss reduces the gain."""
FIRST_SHARE: Final = 0.25
"""Competitive mode begins with this share of the greatest recent rate."""
CUT_ROUNDS: Final = 3
"""Losses within this many round trips count once: packets that were lost together time out one after another."""
TOO_MANY_LOST: Final = 0.1
HELD_MEMORY_NS: Final = 300 * SECOND
"""How long the least round trip counts while the queue is never empty, so that a full queue does not seem empty."""
MAX_JITTER_NS: Final = 200 * MS
BUSY_NS: Final = 5 * SECOND
"""How long after a pause of this peer a queueing delay of up to twice that pause counts as jitter of the host."""


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
        """Until when the host counts as busy, which raises the jitter."""
        self._gain = DEFAULT_GAIN
        self._velocity = 1.0
        self._slow_start = True
        self._rising = True
        """The direction of the window in the last round trip."""
        self._steady = 0
        """How many round trips the window has moved in this direction."""
        self._round_ns: Nanos = 0
        """When the current round trip began."""
        self._window_then = 0.0
        """The window when the current round trip began."""
        self._emptied_ns: Nanos = 0
        """When the queue was last almost empty."""
        self._quiet_rounds = 0
        """Round trips of competitive mode since the last loss."""
        self.competitive = False
        """Whether another flow seems to fill the queue."""
        self._held_ns: Nanos = 0
        """Until when the least round trip from before competitive mode counts."""
        self._cut_ns: Nanos = 0
        """When a loss last made this flow less competitive."""
        self._fastest = SlidingMinimum()
        """The greatest recent rate in bytes per second; stored negated, as a minimum."""
        self._longest = SlidingMinimum()
        """The longest recent round trip; stored negated, as a minimum."""
        self._acked = self._lost = 0
        """Bytes acknowledged and lost in the current round trip."""

    def start(self, size: int) -> None:
        super().start(size)
        self.window = float(INITIAL_PACKETS * size)

    def on_loss(self, now: Nanos, size: int) -> None:
        self._lost += size

    def on_pause(self, now: Nanos, ns: Nanos) -> None:
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
        """End a round trip: choose direction and mode for the next one."""
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
            self._adapt_competitive_gain(now)
        self._acked = self._lost = 0
        self._round_ns, self._window_then = now, self.window

    def _adapt_competitive_gain(self, now: Nanos) -> None:
        """Adapt the gain as TCP adapts its window, because another flow fills the queue."""
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
