"""The schedule of hellos: when a peer sends one over a quiet link, and what it announces.

Each side of a link sends something at least once per detection time: data, an ACK or, on a quiet link, a `Hello`. Some
links get hellos more often:

- Twice per detection time where the peer has carried an event lately. Most late events were sent into an outage that
  the sender did not know of yet.
- Twice over a link that is down, so that its peers soon know when it is up again.
- Two or three times over a link that loses packets, so that one missing packet proves nothing.

A peer that has carried no event for a while is idle: it sends one hello in three detection times, until the next event.

A hello announces how soon its receiver hears from the sender again. A longer silence means an outage, so the receiver
knows of it within the detection time plus the link's delay, and mostly within half of that, with fewer packets than BFD
sends (RFC 5880; `drivers/sim/detection.py` measures both). A hello also tells whether its sender hears the receiver, so
both ends know of a link that is dead in one direction.
"""

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.link.link import Link
from wend.protocol.messages import Hello
from wend.protocol.ports import Send
from wend.protocol.timers import Effects

_ACTIVE_NS = 3 * SECOND
"""How long after an event a peer sends hellos twice per detection time."""
_IDLE_NS = 10 * SECOND
"""How long after an event a peer becomes idle."""
_IDLE_PERIODS = 3
"""Detection times between two hellos of an idle peer."""
_EARLY = 3
"""A hello that is due within this fraction of its interval is sent now, together with others."""


class HelloSchedule:
    def __init__(self, config: PeerConfig, links: dict[PeerId, Link]) -> None:
        self._links = links
        settings = config.of(LinkSettings)
        detection = settings.detection_ns
        self._announced = (_IDLE_PERIODS * detection, *(detection // times for times in (1, 2, 3)))
        """The silence that a hello announces, by the number of hellos per detection time; first, that of idle peers."""
        self._intervals = {within: _interval(within, settings.margin_ns) for within in self._announced}
        self._used_ns: Nanos = -_ACTIVE_NS
        self._idle_ns: Nanos = _IDLE_NS

    def begin(self, now: Nanos) -> None:
        self._idle_ns = now + _IDLE_NS

    def used(self, now: Nanos) -> bool:
        """An event came or went. True if the peer was idle: then it must announce shorter silences at once."""
        was_idle = now >= self._idle_ns
        self._used_ns = now
        self._idle_ns = now + _IDLE_NS
        return was_idle

    def send(self, now: Nanos, incarnation: int, effects: Effects) -> Nanos:
        """Send the hellos that are due, and those that soon will be, so that one wake-up does for all links.

        Returns the time of the next one.
        """
        idle = now >= self._idle_ns
        again = now + self._announced[0 if idle else 1]
        least = 2 if now - self._used_ns < _ACTIVE_NS else 1
        intervals = self._intervals
        for peer, link in self._links.items():
            asked = least if link.up else 2
            times = link.detect_multiplier if link.detect_multiplier > asked else asked
            if idle and times == 1:
                times = 0
            within, announced = self._announced[times], link.announced_ns
            # an interval that was announced holds until the next hello
            interval = intervals[within if within < announced else announced] if announced else 0
            due = link.sent_ns + interval
            if due - interval // _EARLY <= now:
                heard = now - link.heard_ns <= link.silence_ns + 2 * link.delay_ns
                effects.append(Send(peer, Hello(incarnation, heard, within)))
                link.said_hello(now, within, heard)
                due = now + intervals[within]
            again = min(again, due)
        return again


def _interval(within: Nanos, margin: Nanos) -> Nanos:
    """How long to wait before the next hello, so that it comes in time from a busy host, too."""
    late = max(margin, within // 4) if margin else 0
    return max(within // 4, within - late, 1)
