"""Estimators of a link: its delay, its loss, and how long to wait for an ACK.

A link with the `nominal` estimator keeps the configured values (the monitored values of the dcrd paper, which a short
outage does not change). A link with the `measured` one has a `LinkEstimator`: it smooths round trips as TCP does
(RFC 6298) and counts answers. A peer adopts new values at the end of each monitoring period, so that routes do not
flutter. Only a first guess of the delay that a round trip proves too long is corrected at once, because peers add
delays up to the ages of events.
"""

from wend.model.units import FOREVER, MS, SECOND, Nanos

MAX_TIMEOUT_NS = 3 * SECOND
_PRIOR = 20.0
"""The weight of the nominal reliability, in transmissions."""
_MEMORY = 0.8
"""The weight of earlier periods in the next one: one bad second does not make a bad link."""
_JITTER_NS = 2 * MS
"""A smaller difference between delays is attributed to a busy host, not to the link."""
_NOTICEABLE = 0.02
"""A smaller change of reliability is noise, and is not announced to other peers."""


class LinkEstimator:
    """Estimates delay and reliability of one link from ACKs and their absence."""

    __slots__ = (
        "_answered",
        "_delays",
        "_floor_ns",
        "_guessed",
        "_least_ns",
        "_lost",
        "_lowered",
        "_margin_ns",
        "_nominal",
        "_tried",
        "_unanswered",
        "delay_ns",
        "latest_reliability",
        "reliability",
        "rttvar_ns",
        "srtt_ns",
        "timeout_ns",
    )

    def __init__(self, delay_ns: Nanos, reliability: float, delays: int, margin_ns: Nanos, floor_ns: Nanos = 0) -> None:
        """`delays`: how many link delays a round trip takes; `margin_ns`: added to the round trip for the timeout;
        `floor_ns`: the least timeout."""
        self.delay_ns = delay_ns
        self.reliability = self.latest_reliability = self._nominal = reliability
        """`reliability` changes noticeably or not at all; `latest_reliability` follows every period."""
        self._delays = delays
        self._margin_ns = margin_ns
        self.srtt_ns = delays * delay_ns
        self.rttvar_ns = self.srtt_ns // 2
        self._floor_ns = floor_ns
        self.timeout_ns = max(self.srtt_ns + 4 * self.rttvar_ns + margin_ns, floor_ns)
        self._guessed = True
        """Whether the delay is the nominal one, not yet measured."""
        self._lowered = False
        self._answered = 0
        self._unanswered = 0
        self._least_ns = FOREVER
        self._tried = 0.0
        self._lost = 0.0

    def count_ack(self, round_trip_ns: Nanos, retransmitted: bool) -> None:
        """Count an ACK that arrived this long after the first transmission.

        After a retransmission the round trip is ambiguous (Karn's algorithm), so it is no sample. But the timeout may
        have been too short, so the next packet waits longer, and its ACK gives a sample.
        """
        self._answered += 1
        self._least_ns = min(self._least_ns, round_trip_ns)
        if self._guessed and round_trip_ns < self._delays * (self.delay_ns - self._slack_ns()):
            self.delay_ns = max(1, round_trip_ns // self._delays)
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
        timeout_ns = min(self.srtt_ns + 4 * self.rttvar_ns, MAX_TIMEOUT_NS) + self._margin_ns
        self.timeout_ns = timeout_ns if timeout_ns > self._floor_ns else self._floor_ns

    def count_unanswered(self) -> None:
        """Count a transmission without an ACK."""
        self._unanswered += 1

    def discount(self, count: int) -> None:
        """Discount the last `count` unanswered transmissions: an outage explains them, not loss."""
        self._unanswered = max(0, self._unanswered - count)

    def discount_all(self) -> None:
        """Discount the unanswered transmissions of this period: the neighbour may not have been running yet."""
        self._unanswered = 0

    def end_period(self) -> bool:
        """End a monitoring period. Return whether delay or reliability changed noticeably."""
        # the least round trip is that of the link, and longer ones are those of a busy host
        delay = self.delay_ns if self._least_ns == FOREVER else max(1, self._least_ns // self._delays)
        self._tried = _MEMORY * self._tried + self._unanswered + self._answered
        self._lost = _MEMORY * self._lost + self._unanswered
        self._unanswered = self._answered = 0
        self._least_ns = FOREVER
        lost = self._lost + _PRIOR * (1.0 - self._nominal)
        self.latest_reliability = reliability = 1.0 - lost / (self._tried + _PRIOR)
        changed = abs(delay - self.delay_ns) > self._slack_ns()
        changed = changed or self._lowered or abs(reliability - self.reliability) > _NOTICEABLE
        self._guessed = self._lowered = False
        if changed:
            self.delay_ns, self.reliability = delay, reliability
        return changed

    def _slack_ns(self) -> Nanos:
        return max(_JITTER_NS, self.delay_ns // 10)
