"""Which links are up, for strategies that want to know: probing that is silent where traffic speaks.

Each side says something at least once per detection time: data, an ACK, or, on a quiet link, a `Hello`. A peer that
carries events does so twice, since most late events were sent into an outage that nobody knew of yet; over a link
that is down twice too, so that it is soon known to be back; over one that loses packets anyway up to three times, so
that one that is missing proves nothing. A peer that has carried nothing for a while rests: it says something once in
three detection times, until the next event. A hello says how soon the next sign of life comes, and a longer silence
means an outage: it is known within the detection time plus one way, mostly within half of it, at fewer packets than
BFD (RFC 5880) sends (`drivers/sim/detection.py` measures both). A hello also says whether its sender hears us: a link
that is dead in one direction only is known at both ends.

Nothing is woken up just to look at a clock: silence is seen when a packet is to be sent, when a hello is
due, and, where data is under way, at the moment the link's time is up.
"""

from wend.model.events import PeerId
from wend.model.units import MINUTE, SECOND, Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.link.link import Link
from wend.protocol.messages import Hello
from wend.protocol.ports import Effect, Send

_PRIOR_SHARE = 0.02
_PRIOR_NS = 20 * SECOND
_MEMORY_NS = 2 * MINUTE
_USED_NS = 3 * SECOND
"""A peer that has carried no event for so long may be slower to notice outages."""
_RESTING_NS = 10 * SECOND
"""One that has carried none for so long, slower still."""
_REST = 3
"""Detection times between two words of a peer that rests."""
_TOGETHER = 3
"""Hellos that are due within this part of an interval are said at once."""


class HelloSchedule:
    def __init__(self, config: PeerConfig, links: dict[PeerId, Link]) -> None:
        self._links = links
        settings = config.of(LinkSettings)
        self._detect = settings.detection_ns
        self._within = (_REST * settings.detection_ns, *(settings.detection_ns // times for times in (1, 2, 3)))
        """What is promised, by how often per detection time something is said; first, by those who rest."""
        self._intervals = {within: _interval(within, settings.margin_ns) for within in self._within}
        self._used: Nanos = -_USED_NS
        self._rests: Nanos = _RESTING_NS
        self._since: dict[PeerId, Nanos] = {}
        self._down_ns = 0.0
        self._watched_ns = 0.0
        self._looked: Nanos = 0

    def begin(self, now: Nanos) -> None:
        self._looked = now
        self._rests = now + _RESTING_NS

    def used(self, now: Nanos) -> bool:
        """An event came or went. True if that ends a rest: then it is time to tell the neighbours."""
        rested = now >= self._rests
        self._used = now
        self._rests = now + _RESTING_NS
        return rested

    def probe(self, now: Nanos, life: int, effects: list[Effect]) -> tuple[list[PeerId], Nanos]:
        """Say something where nothing was said. Who has fallen silent, and when to come again.

        What is due a little later is said now: hellos of one peer find to one rhythm and cost one wake-up.
        """
        silent, resting = [], now >= self._rests
        again = now + (self._within[0] if resting else self._detect)
        least = 2 if now - self._used < _USED_NS else 1
        intervals = self._intervals
        for peer, link in self._links.items():
            asked = least if link.up else 2
            times = link.detect_multiplier if link.detect_multiplier > asked else asked
            if resting and times == 1:
                times = 0
            within, told = self._within[times], link.announced_ns
            interval = intervals[within if within < told else told] if told else 0
            due = link.sent_ns + interval  # what was promised holds until another word
            if due - interval // _TOGETHER <= now:
                hears = now - link.heard_ns <= link.silence_ns + 2 * link.delay_ns
                effects.append(Send(peer, Hello(life, hears, within)))
                link.said_hello(now, within, hears)
                due = now + intervals[within]
            again = min(again, due)
            if link.up and not link.seems_up(now):
                silent.append(peer)
        return silent, again

    def time_up(self, now: Nanos, link: Link) -> Nanos | None:
        """When a packet sent now would be known to be lost before its ACK is due."""
        up = link.heard_ns + link.silence_ns
        return up if up < now + link.timeout_ns else None

    def doubted(self, now: Nanos, link: Link) -> bool:
        """Whether packets that went unanswered, the last of them just now, are best explained by an outage.

        Not where the neighbour was heard since it should have got the packet: then the answer is lost, or late
        because a host is busy, and to give the link up would only make more work for everyone.
        """
        arrived = now - link.timeout_ns + link.delay_ns
        return link.fails >= link.detect_multiplier and link.heard_ns <= arrived

    # ---- the weather: what share of the time links are down around here

    def fell(self, now: Nanos, peer: PeerId) -> None:
        self._look(now)
        self._since[peer] = now

    def rose(self, now: Nanos, peer: PeerId) -> None:
        self._look(now)
        self._since.pop(peer, None)

    def outage_share(self, now: Nanos) -> float:
        """Of the link-time watched lately, the share that was outage: a guess for links out of sight too."""
        self._look(now)
        return (self._down_ns + _PRIOR_SHARE * _PRIOR_NS) / (self._watched_ns + _PRIOR_NS)

    def _look(self, now: Nanos) -> None:
        passed = now - self._looked
        self._looked = now
        fade = max(0.0, 1.0 - passed / _MEMORY_NS)
        self._down_ns = self._down_ns * fade + passed * len(self._since)
        self._watched_ns = self._watched_ns * fade + passed * len(self._links)


def _interval(within: Nanos, margin: Nanos) -> Nanos:
    """How long to wait before the next hello, so that it comes in time from a busy host too."""
    late = max(margin, within // 4) if margin else 0
    return max(within // 4, within - late, 1)
