"""Subscription chains (section IV-C): leaves of spaces of several attributes pass their entries on to attribute roots.

There the entries have the id of the leaf's region, so that events come back to the leaf and from it to the subscribers.
"""

from collections.abc import Iterable

from wend.matching.filters import parse
from wend.model.events import PeerId
from wend.strategies.dmm.messages import Reply, UnwantInSpace, WantInSpace
from wend.strategies.dmm.search_nodes import NodeKey, SearchNode
from wend.strategies.dmm.spaces import SpaceName, Spaces, region_name
from wend.strategies.ring.key_based import Entry, EntryId
from wend.strategies.ring.reverse_paths import Branch, Outgoing

ChainedEntry = tuple[SpaceName, Entry]
"""An entry with the id that it has in another space, and that space."""


class Chains:
    """The entries that leaves of this peer have passed on to other spaces."""

    def __init__(self, me: PeerId, spaces: Spaces) -> None:
        self.leaves: dict[EntryId, NodeKey] = {}
        """The leaf that passed an entry on, by the entry's id in the other space."""
        self._me = me
        self._spaces = spaces

    def all_chained(self, node: SearchNode) -> list[ChainedEntry]:
        """All entries that a leaf has passed on."""
        leaf = node.leaf
        return [] if leaf is None else self.chained(node, [leaf.entry(branch) for branch in leaf.onward])

    def chained(self, node: SearchNode, entries: Iterable[Entry]) -> list[ChainedEntry]:
        """These entries, as a leaf passes them on. A leaf of a space in which events are published passes on none."""
        if not node.has_chain:
            return []
        region = region_name(*node.key)
        return [
            (self._spaces.root(parse(entry.filter)), Entry(EntryId(*entry.id[:3], region), entry.filter))
            for entry in entries
        ]

    def add(self, node: SearchNode, branches: Iterable[Branch]) -> list[Reply]:
        """Pass entries on to the spaces in which their events are published."""
        leaf = node.leaf
        if leaf is None:
            return []
        by_root: dict[SpaceName, list[Entry]] = {}
        for root, entry in self.chained(node, [leaf.entry(branch) for branch in branches]):
            self.leaves[entry.id] = node.key
            by_root.setdefault(root, []).append(entry)
        return [Outgoing(self._me, WantInSpace(root, tuple(entries))) for root, entries in by_root.items()]

    def remove(self, chained: Iterable[ChainedEntry]) -> list[Reply]:
        replies: list[Reply] = []
        for root, entry in chained:
            self.leaves.pop(entry.id, None)
            replies.append(Outgoing(self._me, UnwantInSpace(root, (entry,))))
        return replies
