"""Is the overlay in one piece? Each component has a leader, and whoever meets a peer of another leader joins it.

The least peer of a component leads it: it counts a beacon up that everyone passes on, hop by hop, with the words
that neighbours exchange anyway. A beacon that no longer rises means that its leader is gone, or cut off. Peers also
meet through sampling, which knows no components: two that are both sure of different leaders have found a gap.
"""

from wend.model.events import PeerId
from wend.protocol.membership.messages import INCARNATION_SHIFT

STALE = 6
"""Periods without a beacon after which a leader is given up."""
SURE = 6
"""Periods with the same leader after which a peer is sure of it."""


class ComponentLeader:
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
    def sure(self) -> bool:
        return self._now - self._since >= SURE

    def tick(self) -> None:
        self._now += 1
        if self.leader != self._me and self._now - self._risen > STALE:
            self._follow(self._me, self._own)
        if self.leader == self._me:
            self._own += 1
            self.beat = self._own

    def hear(self, leader: PeerId, beat: int) -> None:
        """A neighbour's beacon."""
        if leader == self._me or beat <= self._heard.get(leader, -1):
            return
        self._heard[leader] = beat
        if leader < self.leader:
            self._follow(leader, beat)
        elif leader == self.leader:
            self.beat, self._risen = beat, self._now

    def apart(self, leader: PeerId) -> bool:
        """Whether a peer that is sure of this leader is in another component."""
        return leader >= 0 and self.sure and leader != self.leader

    def _follow(self, leader: PeerId, beat: int) -> None:
        self.leader, self.beat = leader, beat
        self._since = self._risen = self._now
