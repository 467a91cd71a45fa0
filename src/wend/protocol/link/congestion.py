"""Congestion control: how many bytes may be in flight over one link, and how fast they leave.

A controller learns from ACKs: the size of the packet, and the round trip unless a retransmission makes it ambiguous.
It has no clock and sends nothing; `send_queue.py` asks it. Two are there:

    copa    keeps the queue at the bottleneck short, and takes its share beside flows that fill it (`copa.py`)
    aimd    grows until packets get lost, and then halves, as TCP Reno does

An application that sends less than it may says nothing about the network, so such ACKs do not let a window grow.
"""

from collections import deque
from typing import Final

from wend.model.units import FOREVER, SECOND, Nanos

INITIAL_PACKETS: Final = 10
"""The window of a new link, in packets of the size of the first one (RFC 6928)."""
MIN_PACKETS: Final = 2
"""The least window, and that of a link that is up again after an outage."""
UNLIMITED: Final = float(1 << 60)
MIN_RTT_MEMORY_NS: Final = 10 * SECOND
"""For how long the least round trip counts: the path of a link may have changed since."""


class LeastOf:
    """The least of the samples of the last time span."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[Nanos, Nanos]] = deque()
        """Times and values, both growing: an older sample that is not less than a newer one never counts again."""

    def add(self, now: Nanos, value: Nanos, span_ns: Nanos) -> Nanos:
        """Add a sample. Returns the least of those that are not older than the span."""
        samples = self._samples
        while samples and samples[-1][1] >= value:
            samples.pop()
        samples.append((now, value))
        while samples[0][0] < now - span_ns:
            samples.popleft()
        return samples[0][1]

    @property
    def least(self) -> Nanos:
        """The least of those that were not too old when the last one came; 0 without any."""
        return self._samples[0][1] if self._samples else 0

    def clear(self) -> None:
        self._samples.clear()


class Controller:
    """What all controllers measure. This one itself allows everything."""

    __slots__ = (
        "_least", "_most_before_ns", "_most_ns", "_standing", "jitter_ns", "least_ns", "memory_ns", "pace", "rttvar_ns",
        "segment", "srtt_ns", "standing_ns", "window",
    )  # fmt: skip

    def __init__(self, jitter_ns: Nanos) -> None:
        """`jitter_ns`: a queueing delay that may come from a busy host, and says nothing about the network."""
        self.jitter_ns = jitter_ns
        self.window = UNLIMITED
        """How many bytes may be in flight."""
        self.pace = 0.0
        """Nanoseconds per byte: packets leave no faster. 0: at once."""
        self.segment = 0.0
        """The mean size of packets; 0 before the first one."""
        self.srtt_ns = self.rttvar_ns = 0.0
        self.least_ns: Nanos = 0
        """The least round trip of late: that without queues. 0 before the first sample."""
        self.standing_ns: Nanos = 0
        """The least round trip of the last half round trip: longer ones are jitter, not queues."""
        self.memory_ns: Nanos = MIN_RTT_MEMORY_NS
        """For how long a round trip may be the least."""
        self._most_ns: Nanos = 0
        """The longest round trip of this monitoring period."""
        self._most_before_ns: Nanos = 0
        self._least = LeastOf()
        self._standing = LeastOf()

    @property
    def spread_ns(self) -> Nanos:
        """By how much round trips differed in this period and the one before."""
        return max(0, self._most_ns - self.least_ns, self._most_before_ns - self.least_ns)

    @property
    def queueing_ns(self) -> Nanos:
        """How long packets wait in queues of the network, at present."""
        return self.standing_ns - self.least_ns

    @property
    def rate(self) -> float:
        """Bytes per nanosecond that the window lets through; infinite before the first round trip is known."""
        return self.window / self.standing_ns if self.standing_ns else UNLIMITED

    def first(self, size: int) -> None:
        """The first packet is about to leave."""
        self.segment = float(size)

    def acked(self, now: Nanos, size: int, round_trip_ns: Nanos, limited: bool) -> None:
        """An ACK came. `limited`: the application had no more to send. `round_trip_ns` is 0 if it is unknown."""
        if size:
            self.segment += (size - self.segment) / 16
        if round_trip_ns <= 0:
            return
        if self.srtt_ns:
            error = round_trip_ns - self.srtt_ns
            self.srtt_ns += error / 8
            self.rttvar_ns += (abs(error) - self.rttvar_ns) / 4
        else:
            self.srtt_ns, self.rttvar_ns = float(round_trip_ns), round_trip_ns / 2
        if round_trip_ns > self._most_ns:  # noqa: PLR1730 - a call of max() costs more
            self._most_ns = round_trip_ns
        self.least_ns = self._least.add(now, round_trip_ns, self.memory_ns)
        self.standing_ns = self._standing.add(now, round_trip_ns, int(self.srtt_ns / 2))
        self._adjust(now, size, limited)

    def end_period(self) -> None:
        """A monitoring period is over."""
        self._most_before_ns, self._most_ns = self._most_ns, 0

    def lost(self, now: Nanos, size: int) -> None:
        """No ACK came for a packet, though the neighbour is heard."""

    def paused(self, now: Nanos, ns: Nanos) -> None:
        """This peer did not run for this time, so round trips tell little about queues of the network."""

    def restart(self, now: Nanos) -> None:
        """The link is up again after an outage. Forget the queues that were measured before it."""
        self._standing.clear()

    def _adjust(self, now: Nanos, size: int, limited: bool) -> None:
        """Change window and pace after a sample."""


class Aimd(Controller):
    """Additive increase, multiplicative decrease."""

    __slots__ = ("_cut_ns", "_threshold")

    def __init__(self, jitter_ns: Nanos) -> None:
        super().__init__(jitter_ns)
        self._threshold = UNLIMITED
        self._cut_ns: Nanos = -FOREVER

    def first(self, size: int) -> None:
        super().first(size)
        self.window = float(INITIAL_PACKETS * size)

    def lost(self, now: Nanos, size: int) -> None:
        if now - self._cut_ns > self.srtt_ns:  # one round trip counts once
            self._cut_ns = now
            self.window = self._threshold = max(MIN_PACKETS * self.segment, self.window / 2)

    def restart(self, now: Nanos) -> None:
        super().restart(now)
        self.window = MIN_PACKETS * self.segment

    def _adjust(self, now: Nanos, size: int, limited: bool) -> None:
        if not limited:
            self.window += size if self.window < self._threshold else size * self.segment / self.window
        self.pace = self.standing_ns / (2 * self.window)
