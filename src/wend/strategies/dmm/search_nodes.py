"""The active nodes of the search trees: a leaf with its entries, or a node that has delegated them to its children."""

from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.strategies.dmm.merge import RegionMerge
from wend.strategies.dmm.spaces import AttributeSpace, SpaceName
from wend.strategies.ring.key_based import Entry
from wend.strategies.ring.reverse_paths import Branch, ReversePaths

NodeKey = tuple[SpaceName, str]
MAX_COPIES = 1.75
"""Copies of an entry, on average, above which a split does not help: each split would copy wide ranges again, down to
single cells."""


class SearchNode:
    """An active node: a leaf, or one that has delegated its entries to its children."""

    __slots__ = (
        "code",
        "has_chain",
        "held_until_ns",
        "leaf",
        "merge",
        "parent_heard_ns",
        "passed",
        "passed_since_ns",
        "replicated",
        "retired",
        "space",
        "split_at",
        "users",
    )

    def __init__(self, space: AttributeSpace, code: str, now: Nanos, has_chain: bool, split_at: int) -> None:
        self.space = space
        self.code = code
        self.has_chain = has_chain
        """Whether the node passes its entries on to another space. Then it passes on none that another one covers."""
        self.leaf: ReversePaths | None = ReversePaths(has_chain)
        """The entries, each with the peer to which its events go; None if the node is split."""
        self.split_at = split_at
        """Try to split the node when it has more entries than this."""
        self.parent_heard_ns = now
        self.users: dict[PeerId, Nanos] = {}
        """The peers that know this leaf, and when an event or entry last came from each."""
        self.retired: list[tuple[SpaceName, Entry]] = []
        """After a split: entries that this node has passed on to other spaces, until its children have."""
        self.merge: RegionMerge | None = None
        """While a split node takes its entries back. Its children are active until it has ended."""
        self.held_until_ns: Nanos = 0
        """Until then the parent takes the entries of this leaf back, and the leaf does not split."""
        self.passed: set[Branch] = set()
        """Entries that a split node has passed on to its children, up to a limit."""
        self.passed_since_ns = now
        self.replicated: tuple[tuple[PeerId, ...], bool, frozenset[PeerId]] | None = None
        """The replicas, and the state that they know: whether the node is split, and where its entries came from."""

    @property
    def key(self) -> NodeKey:
        return self.space.name, self.code

    @property
    def is_split(self) -> bool:
        """Whether the children are active."""
        return self.leaf is None or self.merge is not None

    @property
    def entries(self) -> ReversePaths | None:
        """The entries of a leaf, or those that a split node has taken back so far."""
        return self.leaf if self.leaf is not None or self.merge is None else self.merge.entries

    def meets(self, event: Event) -> bool:
        """Whether the region has values of the event."""
        return self.space.meets(self.code, self.space.event_box(event.attributes))

    def children_around(self, event: Event) -> list[str]:
        """The codes of the children whose regions have values of the event."""
        box = self.space.event_box(event.attributes)
        return [child for child in self.space.children(self.code) or () if self.space.meets(child, box)]

    def should_split(self) -> bool:
        """Whether the node has many entries and a split would help. It does not help if the region is a single cell, or
        if most entries would go to both children. In that case the node waits until it has twice as many."""
        leaf, children = self.leaf, self.space.children(self.code)
        if leaf is None or len(leaf) <= self.split_at or children is None:
            return False
        boxes = [self.space.filter_box(leaf.get_filter(branch)) for branch in leaf.branches]
        if sum(self.space.meets(child, box) for child in children for box in boxes) <= MAX_COPIES * len(boxes):
            return True
        self.split_at *= 2
        return False

    def recent_users(self, now: Nanos, expiry_ns: Nanos) -> list[PeerId]:
        """The peers from which events or entries have come lately. The node forgets the others."""
        self.users = {peer: last for peer, last in self.users.items() if last + expiry_ns > now}
        return list(self.users)
