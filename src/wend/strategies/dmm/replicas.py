"""Light replication (section V-B): a replica knows where the entries of a region came from, but not the entries.

When it takes the region over, it asks these peers to send their entries again.
"""

from wend.model.events import PeerId
from wend.strategies.dmm.messages import LeafBranches, Reply
from wend.strategies.dmm.search_nodes import NodeKey, SearchNode
from wend.strategies.ring.reverse_paths import Outgoing

REPLICATED = 4096
"""Regions of other peers that a peer is a replica of, at most."""


class SpaceReplicas:
    """The regions that this peer is a replica of, and the state that the replicas of its own regions know."""

    def __init__(self) -> None:
        self.regions: dict[NodeKey, LeafBranches] = {}

    def store(self, message: LeafBranches) -> None:
        """Remember a region of another peer, or forget one that it no longer has."""
        key = (message.space, message.code)
        self.regions.pop(key, None)
        if (message.peers or message.split) and len(self.regions) < REPLICATED:
            self.regions[key] = message

    def update(self, node: SearchNode, replicas: tuple[PeerId, ...]) -> list[Reply]:
        """Tell the replicas of a node its state, if they do not know it."""
        backs = frozenset() if node.leaf is None or node.is_split else frozenset(node.leaf.previous_peers)
        state = (replicas, node.is_split, backs)
        former, node.replicated = node.replicated, state
        if former == state or not (node.is_split or backs):
            return []
        message = LeafBranches(node.space.name, node.code, node.is_split, tuple(sorted(backs)))
        unaware = [peer for peer in replicas if former is None or former[1:] != state[1:] or peer not in former[0]]
        return [Outgoing(peer, message) for peer in unaware]
