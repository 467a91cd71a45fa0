"""Chains: a leaf of a space of several attributes passes its entries on to the space in which events are published.

The entries take the id of the leaf's region there, so that events come back to the leaf, and from it to the entries.
"""

from collections.abc import Iterable

from wend.matching.filters import parse
from wend.model.events import PeerId
from wend.strategies.dmm.attribute_space import SpaceName, place
from wend.strategies.dmm.messages import Outgoing, Reply, UnwantInSpace, WantInSpace
from wend.strategies.dmm.search_node import NodeKey, SearchNode
from wend.strategies.dmm.spaces import Spaces
from wend.strategies.ring.key_based import Entry, EntryId
from wend.strategies.ring.reverse_paths import Branch

ChainedEntry = tuple[SpaceName, Entry]
"""An entry as a leaf passes it on, and the space to which it does."""


class Chains:
    """The leaf of this peer that passed an entry on to another space, by the entry's id there."""

    def __init__(self, me: PeerId, spaces: Spaces) -> None:
        self.leaves: dict[EntryId, NodeKey] = {}
        self._me = me
        self._spaces = spaces

    def of_leaf(self, node: SearchNode) -> list[ChainedEntry]:
        """All entries that a leaf has passed on."""
        leaf = node.leaf
        return [] if leaf is None else self.of(node, [leaf.entry(branch) for branch in leaf.onward])

    def of(self, node: SearchNode, entries: Iterable[Entry]) -> list[ChainedEntry]:
        """Entries as a leaf passes them on. A leaf of a space in which events are published passes on none."""
        if not node.covering:
            return []
        region = place(*node.key)
        return [
            (self._spaces.root(parse(each.filter)), Entry(EntryId(*each.id[:3], region), each.filter))
            for each in entries
        ]

    def add(self, node: SearchNode, branches: Iterable[Branch]) -> list[Reply]:
        """Pass entries on to the spaces in which their events are published."""
        leaf = node.leaf
        if leaf is None:
            return []
        by_root: dict[SpaceName, list[Entry]] = {}
        for root, entry in self.of(node, [leaf.entry(branch) for branch in branches]):
            self.leaves[entry.id] = node.key
            by_root.setdefault(root, []).append(entry)
        return [Outgoing(self._me, WantInSpace(root, tuple(entries))) for root, entries in by_root.items()]

    def remove(self, chained: Iterable[ChainedEntry]) -> list[Reply]:
        replies: list[Reply] = []
        for root, entry in chained:
            self.leaves.pop(entry.id, None)
            replies.append(Outgoing(self._me, UnwantInSpace(root, (entry,))))
        return replies
