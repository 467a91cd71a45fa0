"""What a peer knows of one of its links: delay, reliability, how long to wait for an ACK, is it up.

`nominal` estimators trust what the link is said to be (the dcrd paper's monitored values, in which a
short outage leaves no mark); `measured` ones smooth round trips as TCP does (RFC 6298) and count
answers. What is measured is adopted every monitoring period, so that routes do not flutter.
"""

from wend.model.events import PeerId
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.window import Window

MAX_TIMEOUT_NS = 3 * SECOND
MAX_SILENCE_NS = 10 * SECOND
_CLEAN, _LOSSY = 0.999, 0.97
"""Reliabilities: above the first one missing packet proves an outage, below the second it takes three, else two."""
_PRIOR = 20.0
"""The nominal reliability weighs as much as this many transmissions."""
_MEMORY = 0.8
"""What a monitoring period weighs in the next: one bad second does not make a bad link."""
_JITTER_NS = 2 * MS
"""A delay that differs by less is a busy host and no longer link."""
_NOTICEABLE = 0.02
"""A change of reliability that all peers are told of; every smaller one would only be noise to them."""


class Link:
    __slots__ = (
        "_answered",
        "_lost",
        "_measured",
        "_tried",
        "_way",
        "config",
        "delay_ns",
        "fails",
        "heard_ns",
        "hearing",
        "incarnation",
        "missed",
        "needed",
        "nominal_reliability",
        "peer",
        "promised_ns",
        "reliability",
        "rttvar_ns",
        "sent_count",
        "sent_ns",
        "silence_ns",
        "srtt_ns",
        "timeout_ns",
        "told_deaf",
        "told_ns",
        "troubled",
        "up",
        "window",
    )  # fmt: skip

    def __init__(self, peer: PeerId, delay_ns: Nanos, reliability: float, config: PeerConfig) -> None:
        self.peer = peer
        self.config = config
        self._way = 1 if config.ack == "free" else 2  # how often the delay fits into a round trip
        self._measured = config.estimator == "measured"
        self.nominal_reliability = reliability
        self.delay_ns = delay_ns
        self.reliability = reliability
        self.srtt_ns = self._way * delay_ns
        self.rttvar_ns = self.srtt_ns // 2 if self._measured else 0
        self.timeout_ns = self.srtt_ns + 4 * self.rttvar_ns + config.margin_ns
        self.sent_count = 0
        self._answered = 0
        self._tried = 0.0
        self._lost = 0.0
        self.window = Window()
        self.incarnation = 0
        self.up = True
        self.hearing = True
        """Whether the neighbour says that it hears us."""
        self.told_deaf = False
        """Whether we last said that we do not hear it."""
        self.fails = 0
        """Transmissions given up since the last sign of life."""
        self.troubled = False
        """Whether its next sign of life is news: it was down, did not answer, or was told that it is not heard."""
        self.missed = False
        """Whether it missed control that will not be repeated: it must be told everything when it is back."""
        self.heard_ns = 0
        self.sent_ns = 0
        self.needed = 1
        """How many packets must be missing before an outage explains it better than loss."""
        self.promised_ns = config.detect_ns
        """How soon the neighbour said it will be heard again."""
        self.told_ns = 0
        """What it was told in turn; 0 before the first word."""
        self.silence_ns = 0
        """The longest silence that a link which is up may keep."""
        self._judge()

    def sent(self, now: Nanos) -> None:
        """A transmission that wants an answer. What is sent to a link that is down says nothing about loss."""
        self.sent_ns = now
        if self.up:
            self.sent_count += 1

    def failed(self) -> None:
        """A transmission went unanswered."""
        self.fails += 1
        self.troubled = True

    def seems_up(self, now: Nanos) -> bool:
        """For strategies that probe: heard within the detection time, and heard by the other side."""
        return self.up and self.hearing and now - self.heard_ns <= self.silence_ns

    def promised(self, within_ns: Nanos) -> None:
        """The neighbour says how soon it will be heard again; its detection time may differ from ours."""
        self.promised_ns = min(max(within_ns, 1), MAX_SILENCE_NS)
        self._judge()

    def fell(self, waiting: int) -> None:
        """It is down. What an outage swallowed, or will as it seems, says nothing about loss."""
        self.up = False
        self.troubled = True
        self.sent_count = max(self._answered, self.sent_count - self.fails - waiting)

    def answered(self, round_trip_ns: Nanos, retransmitted: bool) -> None:
        """An ACK came, so long after the (first) transmission.

        After a retransmission the round trip is ambiguous (Karn): no sample, but the timer may have been too
        short, so the next packet waits longer, and then gives a sample.
        """
        if not self._measured:
            return
        self._answered += 1
        if retransmitted:
            self.timeout_ns = max(self.timeout_ns, min(round_trip_ns, 2 * self.timeout_ns, MAX_TIMEOUT_NS))
            return
        if self.sent_count and self._answered == 1 and self.rttvar_ns == self.srtt_ns // 2:
            self.srtt_ns, self.rttvar_ns = round_trip_ns, round_trip_ns // 2
        else:
            error = round_trip_ns - self.srtt_ns
            self.srtt_ns += error // 8
            self.rttvar_ns += (abs(error) - self.rttvar_ns) // 4
        self.timeout_ns = self.srtt_ns + 4 * self.rttvar_ns + self.config.margin_ns

    def adopt(self) -> bool:
        """Take over what was measured in the period that ends now; True if it differs noticeably."""
        if not self._measured:
            return False
        delay = max(1, self.srtt_ns // self._way)
        self._tried = _MEMORY * self._tried + self.sent_count
        self._lost = _MEMORY * self._lost + max(0, self.sent_count - self._answered)
        self.sent_count = self._answered = 0
        lost = self._lost + _PRIOR * (1.0 - self.nominal_reliability)
        reliability = 1.0 - lost / (self._tried + _PRIOR)
        changed = abs(delay - self.delay_ns) > max(_JITTER_NS, self.delay_ns // 10)
        changed = changed or abs(reliability - self.reliability) > _NOTICEABLE
        if changed:
            self.delay_ns, self.reliability = delay, reliability
            self._judge()
        return changed

    def _judge(self) -> None:
        self.needed = 1 if self.reliability >= _CLEAN else 2 if self.reliability >= _LOSSY else 3
        self.silence_ns = min(self.needed * self.promised_ns, max(self.promised_ns, self.config.detect_ns))
