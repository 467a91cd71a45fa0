"""The leaf set: the peers next to this one on the ring, half of them on each side (Pastry, section 2.2).

The members stand in clockwise order, with their offsets from this peer. The first half of a full set are successors,
the second half predecessors. If the ring has fewer peers than a full set, both sides wrap around the ring and meet, and
the set holds all peers.
"""

from bisect import bisect_left
from collections.abc import Collection
from typing import Final

from wend.model.events import PeerId
from wend.model.keys import RING, distance, node_id

HALF: Final = 8
"""Members on each side."""
FULL: Final = 2 * HALF
_MASK: Final = RING - 1
_OPPOSITE: Final = RING >> 1


class LeafSet:
    """The members around one peer. Only peers that are known to be alive belong here."""

    __slots__ = ("left", "me", "mine", "offsets", "peers", "right", "whole")

    def __init__(self, me: PeerId) -> None:
        self.me = me
        self.mine = node_id(me)
        self.peers: tuple[PeerId, ...] = ()
        """In clockwise order from this peer."""
        self.offsets: tuple[int, ...] = ()
        """How far clockwise each of them is."""
        self.whole = True
        """Whether the members are all peers that this one knows of: then they cover the whole ring."""
        self.right = 0
        self.left = RING
        """Between these offsets there may be peers that are not members; the members cover the rest of the ring."""

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self.peers

    def __len__(self) -> int:
        return len(self.peers)

    @property
    def successor(self) -> PeerId | None:
        return self.peers[0] if self.peers else None

    @property
    def predecessor(self) -> PeerId | None:
        return self.peers[-1] if self.peers else None

    def replace(self, peers: tuple[PeerId, ...]) -> None:
        """Replace the members by the nearest of these peers."""
        mine = self.mine
        placed = sorted([((node_id(peer) - mine) & _MASK, peer) for peer in peers if peer != self.me])
        if len(placed) > FULL:
            placed = placed[:HALF] + placed[-HALF:]
        self.offsets = offsets = tuple([offset for offset, _ in placed])
        self.peers = tuple([peer for _, peer in placed])
        if len(offsets) == FULL:
            self.right, self.left = offsets[HALF - 1], offsets[HALF]
            self.whole = False
            return
        split = bisect_left(offsets, _OPPOSITE)
        self.right = offsets[split - 1] if split else 0
        self.left = offsets[split] if split < len(offsets) else RING

    def fits(self, peer: PeerId) -> bool:
        """Whether the peer would become a member."""
        offsets = self.offsets
        if len(offsets) == FULL:
            offset = (node_id(peer) - self.mine) & _MASK
            if not (offset < offsets[HALF - 1] or offset > offsets[HALF]):
                return False
        return peer != self.me and peer not in self.peers

    def add(self, peer: PeerId) -> bool:
        """Add a peer if it is near enough. Returns whether it is a new member."""
        if not self.fits(peer):
            return False
        self.replace((*self.peers, peer))
        return True

    def remove(self, peer: PeerId) -> bool:
        if peer not in self.peers:
            return False
        self.replace(tuple([one for one in self.peers if one != peer]))
        return True

    def farthest(self, clockwise: bool) -> PeerId | None:
        """The last member of a side: the one to ask for more if the side has become too short."""
        if len(self.peers) == FULL:
            return self.peers[HALF - 1 if clockwise else HALF]
        split = bisect_left(self.offsets, _OPPOSITE)
        if clockwise:
            return self.peers[split - 1] if split else None
        return self.peers[split] if split < len(self.peers) else None

    def predecessor_of(self, peer: PeerId) -> PeerId:
        """The member that precedes a peer on the ring, or this peer."""
        index = bisect_left(self.offsets, (node_id(peer) - self.mine) & _MASK)
        return self.peers[index - 1] if index else self.me

    def is_clockwise(self, peer: PeerId) -> bool:
        """Whether the peer is on the side of the successors."""
        return (node_id(peer) - self.mine) & _MASK < _OPPOSITE

    def closest(self, offset: int) -> PeerId:
        """The member closest to a key, or this peer; of two at the same distance, the one with the lower place.

        The key is given as an offset, clockwise from this peer.
        """
        offsets, peers = self.offsets, self.peers
        index = bisect_left(offsets, offset)
        if index:
            below, before = offsets[index - 1], peers[index - 1]
        else:
            below, before = 0, self.me
        if index < len(offsets):
            above, after = offsets[index], peers[index]
        else:
            above, after = RING, self.me
        gap = (offset - below) - (above - offset)
        if gap == 0:
            return before if node_id(before) < node_id(after) else after
        return before if gap < 0 else after

    def closest_except(self, key: int, avoid: Collection[PeerId]) -> PeerId:
        """The member closest to a key, or this peer, but none of those to avoid; this peer if no other remains."""
        candidates = [peer for peer in (self.me, *self.peers) if peer not in avoid]
        return min(candidates, key=lambda peer: (distance(node_id(peer), key), node_id(peer)), default=self.me)


def fits_beside(owner: PeerId, leaves: tuple[PeerId, ...], peer: PeerId) -> bool:
    """Whether a peer would be a member of another peer's leaf set, given the members."""
    if len(leaves) < FULL:
        return True
    place = node_id(owner)
    offsets = sorted([(node_id(leaf) - place) & _MASK for leaf in leaves])
    offset = (node_id(peer) - place) & _MASK
    return offset < offsets[HALF - 1] or offset > offsets[HALF]
