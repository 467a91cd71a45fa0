"""Statistics of outages: the share of time that the links of a peer were down lately."""

from wend.model.events import PeerId
from wend.model.units import MINUTE, SECOND, Nanos
from wend.protocol.link.link import Link

_PRIOR_SHARE = 0.02
_PRIOR_NS = 20 * SECOND
"""The prior weighs as much as this much time of one link."""
_MEMORY_NS = 2 * MINUTE


class OutageStatistics:
    def __init__(self, links: dict[PeerId, Link]) -> None:
        self._links = links
        self._down: set[PeerId] = set()
        self._down_ns = 0.0
        self._observed_ns = 0.0
        self._updated_ns: Nanos = 0

    def begin(self, now: Nanos) -> None:
        self._updated_ns = now

    def down(self, now: Nanos, peer: PeerId) -> None:
        self._update(now)
        self._down.add(peer)

    def up(self, now: Nanos, peer: PeerId) -> None:
        """The link is up again, or is no more."""
        self._update(now)
        self._down.discard(peer)

    def outage_share(self, now: Nanos) -> float:
        """The share of link-time that was outage: an estimate for the links of other peers, too."""
        self._update(now)
        return (self._down_ns + _PRIOR_SHARE * _PRIOR_NS) / (self._observed_ns + _PRIOR_NS)

    def _update(self, now: Nanos) -> None:
        passed = now - self._updated_ns
        if not passed:
            return
        self._updated_ns = now
        fade = max(0.0, 1.0 - passed / _MEMORY_NS)
        self._down_ns = self._down_ns * fade + passed * len(self._down)
        self._observed_ns = self._observed_ns * fade + passed * len(self._links)
