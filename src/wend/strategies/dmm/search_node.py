"""A node of a search tree, with its entries.

A space is halved again and again, and the regions are the nodes of a binary tree. A node is active if there is a
`SearchNode` for it. An active leaf holds the entries that meet its region. A leaf with too many entries is split: then
both children are active, even if one has no entries, and an event that comes from below never passes an active leaf.
"""

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.strategies.dmm.attribute_space import AttributeSpace, SpaceName
from wend.strategies.ring.key_based import Entry
from wend.strategies.ring.reverse_paths import ReversePaths

NodeKey = tuple[SpaceName, str]
MOST_COPIES = 1.75
"""A split that makes more copies of entries than this, on average, does not help: wide ranges would be copied again and
again, down to the last cell."""


class SearchNode:
    """An active node: a leaf, or one that has delegated its entries to its children."""

    __slots__ = ("code", "covering", "leaf", "parent_heard_ns", "replicated", "retired", "space", "split_at", "users")

    def __init__(self, space: AttributeSpace, code: str, now: Nanos, covering: bool, split_at: int) -> None:
        self.space = space
        self.code = code
        self.covering = covering
        self.leaf: ReversePaths | None = ReversePaths(covering)
        """The entries, each with the peer to which its events go; None if the node is split."""
        self.split_at = split_at
        """Try to split the node when it has more entries than this."""
        self.parent_heard_ns = now
        self.users: dict[PeerId, Nanos] = {}
        """The peers that publish here, and when they last did."""
        self.retired: list[tuple[SpaceName, Entry]] = []
        """After a split: entries that this node has passed on to other spaces, until its children have."""
        self.replicated: tuple[tuple[PeerId, ...], bool, frozenset[PeerId]] | None = None
        """The replicas, and the state that they know: whether the node is split, and where its entries came from."""

    @property
    def key(self) -> NodeKey:
        return self.space.name, self.code

    def should_split(self) -> bool:
        """Whether the node has many entries, and a split would help. It does not help if the region is a single cell,
        or if most entries would go to both children. Then the node waits until it has twice as many."""
        leaf, children = self.leaf, self.space.children(self.code)
        if leaf is None or len(leaf) <= self.split_at or children is None:
            return False
        boxes = [self.space.box_of_filter(leaf.wanted(branch)) for branch in leaf.branches]
        if sum(self.space.meets(child, box) for child in children for box in boxes) <= MOST_COPIES * len(boxes):
            return True
        self.split_at *= 2
        return False

    def recent_users(self, now: Nanos, expiry_ns: Nanos) -> list[PeerId]:
        """The peers that publish here. The node forgets the others."""
        self.users = {peer: last for peer, last in self.users.items() if last + expiry_ns > now}
        return list(self.users)
