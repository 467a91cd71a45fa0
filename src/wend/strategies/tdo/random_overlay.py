"""`random`: no topology discovery. Every peer has about the same number of links, to random peers.

If a peer has all its links and another asks for one, it splits a link: the new peer links to both ends, and the ends
keep their degree. It is the baseline of quist ("No TDO", degree 15).
"""

from wend.model.events import PeerId
from wend.model.paths import UNKNOWN, Path
from wend.model.units import Nanos
from wend.protocol.plugins import PeerConfig, SendTo
from wend.strategies.tdo.effects import Effects
from wend.strategies.tdo.link_overlay import LinkOverlay
from wend.strategies.tdo.messages import Join
from wend.strategies.tdo.rounds import WARM, Rounds
from wend.strategies.tdo.settings import MembershipSettings

SPARE = 2
"""A peer accepts offers up to so many links beyond its degree."""


class RandomOverlay(LinkOverlay):
    """Links peers at random, all with about the same degree."""

    def __init__(self, config: PeerConfig, rounds: Rounds) -> None:
        super().__init__(config, rounds)
        self._degree = config.of(MembershipSettings).membership_degree

    def place(self, peer: PeerId, path: Path | None) -> Effects:
        if len(self.links) >= self._degree:
            other = self.rounds.draw.choice(sorted(self.links))
            yield from self.handshake.unlink(other)
            yield SendTo(other, Join(peer))
        yield from self.handshake.offer(peer, UNKNOWN)

    def consider(self, peer: PeerId, number: int, path: Path) -> Effects:
        if len(self.links) < self._degree + SPARE:
            yield from self.handshake.accept(peer, UNKNOWN, number)
        else:
            yield self.handshake.decline(peer, number)

    def seek(self, now: Nanos) -> Effects:
        missing = self._degree - len(self.links)
        if missing >= 2 and self.rounds.number >= WARM:  # a split link brings two at once
            for peer in self.rounds.sampling.sample(missing // 2, frozenset(self.links)):
                yield from self.join(peer)
