"""`random`: no topology discovery. Every peer has about the same number of links, to random peers.

If a peer has all its links and another asks for one, it splits a link: the new peer links to both ends, and the ends
keep their degree. It is the baseline of quist ("No TDO", degree 15).
"""

from wend.model.events import PeerId
from wend.model.paths import UNKNOWN, Path
from wend.model.units import Nanos
from wend.strategies.tdo.handshake import LinkHandshake
from wend.strategies.tdo.member import WARM
from wend.strategies.tdo.messages import Join

SPARE = 2
"""A peer accepts offers up to so many links beyond its degree."""


class RandomLinks(LinkHandshake):
    """Links peers at random, all with about the same degree."""

    def _joins(self, peer: PeerId, path: Path | None) -> None:
        if len(self.linked) >= self._settings.membership_degree:
            other = self._draw.choice(sorted(self.linked))
            self._unlink(other)
            self._say(other, Join(peer))
        self._offer(peer, UNKNOWN)

    def _offered(self, peer: PeerId, number: int, path: Path) -> None:
        if len(self.linked) < self._settings.membership_degree + SPARE:
            self._accept(peer, UNKNOWN, number)
        else:
            self._decline(peer, number)

    def _seek(self, now: Nanos) -> None:
        missing = self._settings.membership_degree - len(self.linked)
        if missing >= 2 and self.round >= WARM:  # a split link brings two at once
            for peer in self._sampling.sample(missing // 2, frozenset(self.linked)):
                self._join(peer)
