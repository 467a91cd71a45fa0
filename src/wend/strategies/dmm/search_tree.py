"""The nodes of search trees that a peer owns, and the cache of leaves that a publisher's peer has.

A space is halved again and again, and the regions are the nodes of a binary tree. A node is active if there is a
`SearchNode` for it. An active leaf holds the entries that meet its region. A leaf with too many entries is split: then
both children are active, even if one has no entries, and an event that comes from below never passes an active leaf.
"""

from wend.matching.zcode import is_prefix
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.strategies.dmm.spaces import AttributeSpace, SpaceName
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
        """The entries, each with the peer to which its events go; None where the node is split."""
        self.split_at = split_at
        """Try to split it when it has more entries than this."""
        self.parent_heard_ns = now
        self.users: dict[PeerId, Nanos] = {}
        """The peers that publish here, and when they last did."""
        self.retired: list[tuple[SpaceName, Entry]] = []
        """After a split: entries that this node has passed on to other spaces, until its children have."""
        self.replicated: tuple[tuple[PeerId, ...], bool, frozenset[PeerId]] | None = None
        """What its replicas were told, and who these are."""

    @property
    def key(self) -> NodeKey:
        return self.space.name, self.code

    def divides(self) -> bool:
        """Whether a split would help. It does not if the region is a single cell, or most entries would go to both
        children. Then the node waits until it has twice as many."""
        leaf, children = self.leaf, self.space.children(self.code)
        if leaf is None or children is None:
            return False
        boxes = [self.space.box_of_filter(leaf.wanted(branch)) for branch in leaf.branches]
        if sum(self.space.meets(child, box) for child in children for box in boxes) <= MOST_COPIES * len(boxes):
            return True
        self.split_at *= 2
        return False

    def used(self, now: Nanos, expiry_ns: Nanos) -> list[PeerId]:
        """The peers that publish here. The others are forgotten."""
        self.users = {peer: last for peer, last in self.users.items() if last + expiry_ns > now}
        return list(self.users)


class TreeCache:
    """The active leaves that this peer's events have found, by space and code."""

    __slots__ = ("_expiry_ns", "_known", "_limit")

    def __init__(self, expiry_ns: Nanos, limit: int = 4096) -> None:
        self._expiry_ns = expiry_ns
        self._limit = limit
        self._known: dict[SpaceName, dict[str, tuple[PeerId, Nanos]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def add(self, now: Nanos, space: SpaceName, code: str, owner: PeerId) -> None:
        """Of two leaves one of which contains the other, the newer is right."""
        if space not in self._known and len(self._known) >= self._limit:
            return
        known = self._known.setdefault(space, {})
        for other in [other for other in known if other != code and (is_prefix(other, code) or is_prefix(code, other))]:
            del known[other]
        if code in known or len(known) < self._limit:
            known[code] = (owner, now + self._expiry_ns)

    def find(self, now: Nanos, space: SpaceName, code: str) -> tuple[str, PeerId] | None:
        """The leaf that contains this region, and its owner."""
        known = self._known.get(space)
        if known:
            for length in range(len(code), -1, -1):
                found = known.get(code[:length])
                if found is not None and found[1] > now:
                    return code[:length], found[0]
        return None

    def discard(self, space: SpaceName, code: str) -> None:
        self._known.get(space, {}).pop(code, None)

    def expire(self, now: Nanos) -> None:
        for space, known in list(self._known.items()):
            for code in [code for code, (_, expires) in known.items() if expires <= now]:
                del known[code]
            if not known:
                del self._known[space]
