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
from wend.protocol.ports import Send, SendEach
from wend.protocol.timers import Effects

_ACTIVE_NS = 3 * SECOND
"""How long after an event a peer sends hellos twice per detection time."""
_IDLE_NS = 10 * SECOND
"""How long after an event a peer becomes idle."""
_IDLE_PERIODS = 3
"""Detection times between two hellos of an idle peer."""
_EARLY = 3
"""A hello that is due within this fraction of its interval is sent now, together with others."""

Announced = tuple[tuple[Nanos, ...], tuple[Nanos, ...]]
"""The silence that hellos announce: over links that are up and over others, by `detect_multiplier` - 1."""


class HelloSchedule:
    def __init__(self, config: PeerConfig, links: dict[PeerId, Link]) -> None:
        self._links = links
        settings = config.of(LinkSettings)
        self._incarnation = config.incarnation
        detection = settings.detection_ns
        announced = (_IDLE_PERIODS * detection, *(detection // times for times in (1, 2, 3)))
        """The silence that a hello announces, by the number of hellos per detection time; first, that of idle peers."""
        active = (announced[2], announced[2], announced[3])
        self._idle: Announced = ((announced[0], announced[2], announced[3]), active)
        self._quiet: Announced = (announced[1:], active)
        self._active: Announced = (active, active)
        self._longest = announced[:2]
        """The longest silence of an idle peer and of another."""
        self._intervals = {within: _interval(within, settings.margin_ns) for within in announced}
        self._hellos: dict[tuple[bool, Nanos], Hello] = {}
        """Most hellos are equal, so each is made once."""
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

    def send(self, now: Nanos, silent: list[Link], effects: Effects) -> Nanos:
        """Send the hellos that are due, and those that soon will be, so that one wake-up does for all links.

        Returns the time of the next one. Adds the links that do not seem up any more to `silent`.
        """
        idle = now >= self._idle_ns
        again = now + self._longest[0 if idle else 1]
        mode = self._active if now - self._used_ns < _ACTIVE_NS else self._idle if idle else self._quiet
        last: Hello | None = None
        last_within, last_heard = 0, True
        peers: list[PeerId] = []
        for link in self._links.values():
            if link.hello_mode is not mode:
                self._plan(link, mode)
            silence = now - link.heard_ns
            works = silence <= link.silence_ns
            if link.sent_ns + link.hello_early_ns <= now:
                within = link.hello_within_ns
                heard = works or silence <= link.silence_ns + 2 * link.delay_ns
                if heard and within == link.announced_ns and not link.reported_silent:
                    link.sent_ns = now
                else:
                    link.said_hello(now, within, heard)
                if last is None or within != last_within or heard != last_heard:
                    if last is not None:
                        _send(peers, last, effects)
                    last, peers = self._hello(heard, within), []
                    last_within, last_heard = within, heard
                    again = min(again, now + self._intervals[within])
                peers.append(link.peer)
            else:
                due = link.sent_ns + link.hello_interval_ns
                if due < again:  # noqa: PLR1730 - a call of min() costs as much as the rest
                    again = due
            if not (works and link.heard_by_neighbour) and link.up:
                silent.append(link)
        if last is not None:
            _send(peers, last, effects)
        return again

    def _plan(self, link: Link, mode: Announced) -> None:
        """Plan the next hello over a link. The plan holds until the mode or the link changes."""
        within = mode[0 if link.up else 1][link.detect_multiplier - 1]
        # an interval that was announced holds until the next hello
        announced = min(within, link.announced_ns)
        interval = self._intervals[announced] if announced else 0
        link.plan_hellos(mode, within, interval, interval - interval // _EARLY)

    def _hello(self, heard: bool, within: Nanos) -> Hello:
        hello = self._hellos.get((heard, within))
        if hello is None:
            hello = self._hellos[heard, within] = Hello(self._incarnation, heard, within)
        return hello


def _send(peers: list[PeerId], hello: Hello, effects: Effects) -> None:
    effects.append(SendEach(tuple(peers), hello) if len(peers) > 1 else Send(peers[0], hello))


def _interval(within: Nanos, margin: Nanos) -> Nanos:
    """How long to wait before the next hello, so that it comes in time from a busy host, too."""
    late = max(margin, within // 4) if margin else 0
    return max(within // 4, within - late, 1)
