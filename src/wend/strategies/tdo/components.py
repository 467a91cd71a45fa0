"""Component leaders: they show whether the overlay is connected. A peer that meets one with another leader joins it.

The lowest peer of a component leads it. It increments a beacon, which peers pass on hop by hop with the keep-alives of
their links. If the beacon stops rising, its leader is down or cut off. Peers also meet through sampling, across
components: if two peers are sure of different leaders, there is a gap.
"""

from wend.model.events import PeerId
from wend.strategies.tdo.messages import INCARNATION_SHIFT

STALE = 6
"""Periods without a new beacon after which a peer gives its leader up."""
SURE = 6
"""Periods with the same leader after which a peer is sure of it."""


class ComponentLeader:
    """The leader of this peer's component, and its beacon."""

    def __init__(self, me: PeerId, incarnation: int) -> None:
        self._me = me
        self._own = incarnation << INCARNATION_SHIFT
        self._heard: dict[PeerId, int] = {}
        self.leader = me
        self.beat = self._own
        self._since = 0
        self._risen = 0
        self._now = 0

    @property
    def is_sure(self) -> bool:
        return self._now - self._since >= SURE

    def tick(self) -> None:
        self._now += 1
        if self.leader != self._me and self._now - self._risen > STALE:
            self._follow(self._me, self._own)
        if self.leader == self._me:
            self._own += 1
            self.beat = self._own

    def hear(self, leader: PeerId, beat: int) -> None:
        """Handle a neighbour's beacon."""
        if leader == self._me or beat <= self._heard.get(leader, -1):
            return
        self._heard[leader] = beat
        if leader < self.leader:
            self._follow(leader, beat)
        elif leader == self.leader:
            self.beat, self._risen = beat, self._now

    def is_apart(self, leader: PeerId) -> bool:
        """Whether a peer that is sure of this leader is in another component."""
        return leader >= 0 and self.is_sure and leader != self.leader

    def _follow(self, leader: PeerId, beat: int) -> None:
        self.leader, self.beat = leader, beat
        self._since = self._risen = self._now
