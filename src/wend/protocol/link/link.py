"""What a peer knows of one of its links: delay, reliability, how long to wait for an ACK, is it up.

`nominal` estimators trust what the link is said to be (the dcrd paper's monitored values, in which a
short outage leaves no mark); `measured` ones smooth round trips as TCP does (RFC 6298) and count
answers. What is measured is adopted every monitoring period, so that routes do not flutter; only a first guess that a
round trip shows to be too long gives way at once, since ages of events are added up from it.
"""

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import FOREVER, MS, SECOND, Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.link.window import SequenceWindow

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
        "_detection_ns",
        "_guessed",
        "_least_ns",
        "_lost",
        "_lowered",
        "_margin_ns",
        "_measured",
        "_tried",
        "_unanswered",
        "_way",
        "data_only_ns",
        "delay_ns",
        "fails",
        "heard_ns",
        "hearing",
        "incarnation",
        "missed",
        "needed",
        "nominal_reliability",
        "path",
        "peer",
        "promised_ns",
        "reliability",
        "rttvar_ns",
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

    def __init__(
        self,
        peer: PeerId,
        delay_ns: Nanos,
        reliability: float,
        config: PeerConfig,
        wait_ns: Nanos = 0,
        control_waits: bool = True,
    ) -> None:
        self.peer = peer
        settings = config.of(LinkSettings)
        self._detection_ns = settings.detection_ns
        self._way = 1 if settings.ack == "free" else 2  # how often the delay fits into a round trip
        self._measured = settings.estimator == "measured"
        self.nominal_reliability = reliability
        self.path: Path = ()
        """The routers beneath it, where they are known."""
        self.delay_ns = delay_ns
        self.reliability = reliability
        self.srtt_ns = self._way * delay_ns
        self.rttvar_ns = self.srtt_ns // 2 if self._measured else 0
        self._margin_ns = settings.margin_ns + wait_ns
        self.data_only_ns = 0 if control_waits else wait_ns
        """What of the time that an ACK is waited for is for data alone."""
        self.timeout_ns = self.srtt_ns + 4 * self.rttvar_ns + self._margin_ns
        self._guessed = True
        """Whether the delay is what somebody said, not yet what was measured."""
        self._lowered = False
        self._answered = 0
        self._unanswered = 0
        self._least_ns = FOREVER
        self._tried = 0.0
        self._lost = 0.0
        self.window = SequenceWindow()
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
        self.promised_ns = settings.detection_ns
        """How soon the neighbour said it will be heard again."""
        self.told_ns = 0
        """What it was told in turn; 0 before the first word."""
        self.silence_ns = 0
        """The longest silence that a link which is up may keep."""
        self._judge(reliability)

    def unanswered(self) -> None:
        """A transmission went unanswered. What is sent to a link that is down says nothing about loss."""
        if self.up:
            self._unanswered += 1

    def failed(self) -> None:
        """The last one that was allowed did."""
        self.unanswered()
        self.fails += 1
        self.troubled = True

    def seems_up(self, now: Nanos) -> bool:
        """For strategies that probe: heard within the detection time, and heard by the other side."""
        return self.up and self.hearing and now - self.heard_ns <= self.silence_ns

    def heard_lately(self, now: Nanos) -> bool:
        """The same for the one direction that this side can tell of."""
        return self.up and now - self.heard_ns <= self.silence_ns

    def promised(self, within_ns: Nanos) -> None:
        """The neighbour says how soon it will be heard again; its detection time may differ from ours."""
        self.promised_ns = min(max(within_ns, 1), MAX_SILENCE_NS)
        self._allow()

    def fell(self) -> None:
        """It is down. What the outage swallowed before it was known says nothing about loss either."""
        self.up = False
        self.troubled = True
        self._unanswered = max(0, self._unanswered - self.fails)

    def answered(self, round_trip_ns: Nanos, retransmitted: bool) -> None:
        """An ACK came, so long after the (first) transmission.

        After a retransmission the round trip is ambiguous (Karn): no sample, but the timer may have been too
        short, so the next packet waits longer, and then gives a sample.
        """
        if not self._measured:
            return
        self._answered += 1
        self._least_ns = min(self._least_ns, round_trip_ns)
        if self._guessed and round_trip_ns < self._way * (self.delay_ns - self._slack_ns()):
            self.delay_ns = max(1, round_trip_ns // self._way)
            self._lowered = True
        if retransmitted:
            self.timeout_ns = max(self.timeout_ns, min(round_trip_ns, 2 * self.timeout_ns, MAX_TIMEOUT_NS))
            return
        if self._answered == 1 and self.rttvar_ns == self.srtt_ns // 2:
            self.srtt_ns, self.rttvar_ns = round_trip_ns, round_trip_ns // 2
        else:
            error = round_trip_ns - self.srtt_ns
            self.srtt_ns += error // 8
            self.rttvar_ns += (abs(error) - self.rttvar_ns) // 4
        self.timeout_ns = min(self.srtt_ns + 4 * self.rttvar_ns, MAX_TIMEOUT_NS) + self._margin_ns

    def began(self) -> None:
        """The neighbour was perhaps not there yet: what went unanswered until now says nothing about loss."""
        self._unanswered = 0

    def adopt(self) -> bool:
        """Take over what was measured in the period that ends now; True if it differs noticeably."""
        if not self._measured:
            return False
        # the least round trip is the link's, what others take longer is a busy host's
        delay = self.delay_ns if self._least_ns == FOREVER else max(1, self._least_ns // self._way)
        self._tried = _MEMORY * self._tried + self._unanswered + self._answered
        self._lost = _MEMORY * self._lost + self._unanswered
        self._unanswered = self._answered = 0
        self._least_ns = FOREVER
        lost = self._lost + _PRIOR * (1.0 - self.nominal_reliability)
        reliability = 1.0 - lost / (self._tried + _PRIOR)
        self._judge(reliability)
        changed = abs(delay - self.delay_ns) > self._slack_ns()
        changed = changed or self._lowered or abs(reliability - self.reliability) > _NOTICEABLE
        self._guessed = self._lowered = False
        if changed:
            self.delay_ns, self.reliability = delay, reliability
        return changed

    def _slack_ns(self) -> Nanos:
        return max(_JITTER_NS, self.delay_ns // 10)

    def _judge(self, reliability: float) -> None:
        """How much silence proves an outage, given what the link loses without one."""
        self.needed = 1 if reliability >= _CLEAN else 2 if reliability >= _LOSSY else 3
        self._allow()

    def _allow(self) -> None:
        self.silence_ns = min(self.needed * self.promised_ns, max(self.promised_ns, self._detection_ns))
