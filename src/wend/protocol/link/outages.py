"""Statistics of outages: how often the links of a peer fail, and how long they stay down.

A link is a two-state Markov chain: up, then down for a time with a mean, then up again. Two numbers describe it: the
share of time that it is down and the mean length of its outages. From these, routing gets the probability that a link
is down now if it was up a given time ago, and vice versa.

Both numbers come from counts that decay with time. The counts of all links together give an estimate for links that
this peer does not observe, such as those of other peers. That estimate starts from a prior, and is itself the prior of
each single link.
"""

from math import exp

from wend.model.events import PeerId
from wend.model.units import MINUTE, MS, SECOND, Nanos
from wend.protocol.link.link import Link

_PRIOR_SHARE = 0.02
_PRIOR_NS = 20 * SECOND
"""The weight of the prior share, as time of one link."""
_PRIOR_LENGTH_NS = SECOND
_PRIOR_OUTAGES = 1.0
"""The weight of the prior length, in outages."""
_OF_ALL_NS = 60 * SECOND
_OF_ALL_OUTAGES = 3.0
"""The weight of the estimate for all links in the estimate for one: as time and outages of that link."""
_MEMORY_NS = 2 * MINUTE
_FRESH_NS = 250 * MS
"""When an estimate is computed again, unless a link goes down or up before."""


class OutageCounts:
    """Decaying counts of one or several links: time observed, time down, and outages that have ended."""

    __slots__ = ("down", "down_ns", "ended", "links", "observed_ns", "updated_ns")

    def __init__(self, now: Nanos, links: int) -> None:
        self.links = links
        """How many links are observed."""
        self.down = 0
        """How many of the observed links are down."""
        self.observed_ns = 0.0
        self.down_ns = 0.0
        self.ended = 0.0
        self.updated_ns = now

    def update(self, now: Nanos) -> None:
        passed = now - self.updated_ns
        if passed <= 0:
            return
        self.updated_ns = now
        fade = exp(-passed / _MEMORY_NS)
        counted = _MEMORY_NS * (1.0 - fade)
        self.observed_ns = self.observed_ns * fade + counted * self.links
        self.down_ns = self.down_ns * fade + counted * self.down
        self.ended *= fade


class OutageChance:
    """The estimate for one link: its share of time down, and the mean length of its outages."""

    __slots__ = ("length_ns", "share", "until_ns")

    def __init__(self, share: float, length_ns: float, until_ns: Nanos) -> None:
        self.share = share
        """The share of time that the link is down."""
        self.length_ns = length_ns
        """The mean length of an outage."""
        self.until_ns = until_ns
        """Until when the estimate is valid."""

    def down_after(self, age_ns: float) -> float:
        """The probability that a link is down, if it was up this long ago."""
        return self.share * (1.0 - exp(-age_ns / (self.length_ns * (1.0 - self.share))))

    def up_after(self, age_ns: float) -> float:
        """The probability that a link is up, if it was down this long ago."""
        return (1.0 - self.share) * (1.0 - exp(-age_ns / (self.length_ns * (1.0 - self.share))))


class OutageStatistics:
    def __init__(self, links: dict[PeerId, Link]) -> None:
        self._links = links
        self._all = OutageCounts(0, 0)
        self._each: dict[PeerId, OutageCounts] = {}
        self._of_all: OutageChance | None = None
        self._of_each: dict[PeerId, OutageChance] = {}

    def begin(self, now: Nanos) -> None:
        self._all.updated_ns = now
        for peer in self._links:
            self.add_link(now, peer)

    def add_link(self, now: Nanos, peer: PeerId) -> None:
        """Start to observe a new link."""
        self._each[peer] = OutageCounts(now, 1)

    def on_down(self, now: Nanos, peer: PeerId) -> None:
        counts = self._updated_counts(now, peer)
        if not counts.down:
            self._count_down(now, counts, 1)

    def on_up(self, now: Nanos, peer: PeerId) -> None:
        """Count the end of an outage."""
        counts = self._updated_counts(now, peer)
        if counts.down:
            self._count_down(now, counts, -1)

    def remove_link(self, now: Nanos, peer: PeerId) -> None:
        """Stop observing a link that has ended."""
        self.on_up(now, peer)
        self._each.pop(peer, None)
        self._of_each.pop(peer, None)

    def estimate_all(self, now: Nanos) -> OutageChance:
        """Estimate the outages of a link that this peer does not observe."""
        found = self._of_all
        if found is None or now > found.until_ns:
            every = self._all
            every.links = len(self._links)
            every.update(now)
            share = (every.down_ns + _PRIOR_SHARE * _PRIOR_NS) / (every.observed_ns + _PRIOR_NS)
            length = (every.down_ns + _PRIOR_LENGTH_NS * _PRIOR_OUTAGES) / (every.ended + _PRIOR_OUTAGES)
            found = self._of_all = OutageChance(min(share, 0.99), length, now + _FRESH_NS)
        return found

    def estimate(self, now: Nanos, peer: PeerId) -> OutageChance:
        """Estimate the outages of a link of this peer."""
        found = self._of_each.get(peer)
        if found is None or now > found.until_ns:
            every = self.estimate_all(now)
            counts = self._updated_counts(now, peer)
            share = (counts.down_ns + every.share * _OF_ALL_NS) / (counts.observed_ns + _OF_ALL_NS)
            length = (counts.down_ns + every.length_ns * _OF_ALL_OUTAGES) / (counts.ended + _OF_ALL_OUTAGES)
            found = self._of_each[peer] = OutageChance(min(share, 0.99), length, now + _FRESH_NS)
        return found

    def _updated_counts(self, now: Nanos, peer: PeerId) -> OutageCounts:
        counts = self._each.get(peer)
        if counts is None:
            counts = self._each[peer] = OutageCounts(now, 1)
        counts.update(now)
        return counts

    def _count_down(self, now: Nanos, counts: OutageCounts, change: int) -> None:
        every = self._all
        every.links = len(self._links)
        every.update(now)
        for each in (counts, every):
            each.down += change
            if change < 0:
                each.ended += 1.0
        self._of_all = None
        self._of_each.clear()
