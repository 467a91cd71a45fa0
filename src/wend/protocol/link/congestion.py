"""Congestion control: how many bytes may be in flight over one link, and how fast they leave.

A controller learns from ACKs: the size of the packet, and the round trip unless a retransmission makes it ambiguous.
It has no clock and sends nothing; the link sender (`link_sender.py`) queries it. There are two controllers:

    copa    keeps the queue at the bottleneck short, and takes its share beside flows that fill it (`copa.py`)
    aimd    grows until packets get lost, and then halves, as TCP Reno does

An application that sends less than the window allows reveals nothing about the network, so its ACKs do not grow the
window.
"""

from collections import deque
from typing import Final

from wend.model.units import FOREVER, SECOND, Nanos

INITIAL_PACKETS: Final = 10
"""The window of a new link, in packets of the size of the first one (RFC 6928)."""
MIN_PACKETS: Final = 2
"""The least window, and the window of a link that is up again after an outage."""
UNLIMITED: Final = float(1 << 60)
MIN_RTT_MEMORY_NS: Final = 10 * SECOND
"""How long the least round trip counts: the path of the link may have changed since."""


class SlidingMinimum:
    """The minimum of the samples in a sliding time span."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[Nanos, Nanos]] = deque()
        """Times and values, both ascending: a sample is dropped once a newer one is not greater."""

    def add(self, now: Nanos, value: Nanos, span_ns: Nanos) -> Nanos:
        """Add a sample, and return the least sample that is not older than the span."""
        samples = self._samples
        while samples and samples[-1][1] >= value:
            samples.pop()
        samples.append((now, value))
        while samples[0][0] < now - span_ns:
            samples.popleft()
        return samples[0][1]

    @property
    def least(self) -> Nanos:
        """The least sample of the span that ended with the last one; 0 without samples."""
        return self._samples[0][1] if self._samples else 0

    def clear(self) -> None:
        self._samples.clear()


class Controller:
    """The base of all controllers: it measures the link, and sets no limit itself."""

    __slots__ = (
        "_least", "_most_before_ns", "_most_ns", "_standing", "jitter_ns", "least_ns", "memory_ns", "pace", "rttvar_ns",
        "segment", "srtt_ns", "standing_ns", "window",
    )  # fmt: skip

    def __init__(self, jitter_ns: Nanos) -> None:
        """`jitter_ns`: a queueing delay that a busy host may cause, and that is not attributed to the network."""
        self.jitter_ns = jitter_ns
        self.window = UNLIMITED
        """How many bytes may be in flight."""
        self.pace = 0.0
        """The least time between packets, in nanoseconds per byte; 0: no pacing."""
        self.segment = 0.0
        """The mean size of packets; 0 before the first one."""
        self.srtt_ns = self.rttvar_ns = 0.0
        self.least_ns: Nanos = 0
        """The least recent round trip, taken as the one without queues; 0 before the first sample."""
        self.standing_ns: Nanos = 0
        """The least round trip of the last half round trip: longer ones are jitter, not queues."""
        self.memory_ns: Nanos = MIN_RTT_MEMORY_NS
        """How long a sample may count as the least round trip."""
        self._most_ns: Nanos = 0
        """The longest round trip of this monitoring period."""
        self._most_before_ns: Nanos = 0
        self._least = SlidingMinimum()
        self._standing = SlidingMinimum()

    @property
    def spread_ns(self) -> Nanos:
        """The range of round trips in this period and the previous one."""
        return max(0, self._most_ns - self.least_ns, self._most_before_ns - self.least_ns)

    @property
    def queueing_ns(self) -> Nanos:
        """How long packets currently wait in queues of the network."""
        return self.standing_ns - self.least_ns

    @property
    def rate(self) -> float:
        """Bytes per nanosecond that the window allows; infinite before the first round trip is known."""
        return self.window / self.standing_ns if self.standing_ns else UNLIMITED

    def start(self, size: int) -> None:
        """Set the packet size and the window from the first packet."""
        self.segment = float(size)

    def on_ack(self, now: Nanos, size: int, round_trip_ns: Nanos, limited: bool) -> None:
        """Adapt to an ACK. `limited`: the application had no more to send. `round_trip_ns` is 0 if it is unknown."""
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
        """End a monitoring period."""
        self._most_before_ns, self._most_ns = self._most_ns, 0

    def on_loss(self, now: Nanos, size: int) -> None:
        """React to the loss of a packet whose receiver is still heard."""

    def on_pause(self, now: Nanos, ns: Nanos) -> None:
        """Allow for a pause of this peer, which lengthened round trips without any queue in the network."""

    def restart(self, now: Nanos) -> None:
        """Start again after an outage: forget the queues measured before it."""
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

    def start(self, size: int) -> None:
        super().start(size)
        self.window = float(INITIAL_PACKETS * size)

    def on_loss(self, now: Nanos, size: int) -> None:
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
