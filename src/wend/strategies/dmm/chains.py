"""Subscription chains (section IV-C): leaves of spaces of several attributes pass their entries on to attribute roots.

There the entries have the id of the leaf's region, so that events come back to the leaf and from it to the subscribers.
"""

from collections.abc import Iterable

from wend.matching.filters import parse
from wend.model.events import PeerId
from wend.strategies.dmm.messages import Reply, UnwantInSpace, WantInSpace
from wend.strategies.dmm.search_nodes import NodeKey, SearchNode
from wend.strategies.dmm.selectivity import ObservedEvents
from wend.strategies.dmm.spaces import SpaceName, Spaces, region_name
from wend.strategies.ring.key_based import Entry, EntryId
from wend.strategies.ring.reverse_paths import Branch, Outgoing

ChainedEntry = tuple[SpaceName, Entry]
"""An entry with the id that it has in another space, and that space."""


class Chains:
    """The entries that leaves of this peer have passed on to other spaces: with `observed` by the events of late, else
    by the filters alone."""

    def __init__(self, me: PeerId, spaces: Spaces, observed: ObservedEvents | None = None) -> None:
        self.leaves: dict[EntryId, NodeKey] = {}
        """The leaf that passed an entry on, by the entry's id in the other space."""
        self._me = me
        self._spaces = spaces
        self._observed = observed
        self._roots: dict[EntryId, SpaceName] = {}
        """The space to which each entry was passed on, by the entry's id there."""

    def all_chained(self, node: SearchNode) -> list[ChainedEntry]:
        """All entries that a leaf has passed on."""
        leaf = node.leaf
        return [] if leaf is None else self.make_chained_entries(node, [leaf.entry(branch) for branch in leaf.onward])

    def make_chained_entries(self, node: SearchNode, entries: Iterable[Entry]) -> list[ChainedEntry]:
        """These entries, as a leaf passes them on. A leaf of a space in which events are published passes on none."""
        if not node.has_chain:
            return []
        region = region_name(*node.key)
        passed = [Entry(EntryId(*entry.id[:3], region), entry.filter) for entry in entries]
        return [(self._roots.get(entry.id) or self._choose_root(entry), entry) for entry in passed]

    def _choose_root(self, entry: Entry, current: SpaceName | None = None) -> SpaceName:
        filter_ = parse(entry.filter)
        return self._spaces.root(filter_) if self._observed is None else self._observed.choose_root(filter_, current)

    def add(self, node: SearchNode, branches: Iterable[Branch]) -> list[Reply]:
        """Pass entries on to the spaces in which their events are published."""
        leaf = node.leaf
        if leaf is None:
            return []
        return self._request_entries(node, self.make_chained_entries(node, [leaf.entry(branch) for branch in branches]))

    def _request_entries(self, node: SearchNode, chained: Iterable[ChainedEntry]) -> list[Reply]:
        by_root: dict[SpaceName, list[Entry]] = {}
        for root, entry in chained:
            self.leaves[entry.id] = node.key
            self._roots[entry.id] = root
            by_root.setdefault(root, []).append(entry)
        return [Outgoing(self._me, WantInSpace(root, tuple(entries))) for root, entries in by_root.items()]

    def move_to_better_roots(self, node: SearchNode) -> list[Reply]:
        """Pass entries on to other spaces that fewer events meet. They stay in the former ones for another beacon."""
        if self._observed is None:
            return []
        chained = self.all_chained(node)
        better = [(self._choose_root(entry, root), entry) for root, entry in chained]
        moved = [(old, new) for old, new in zip(chained, better, strict=True) if old[0] != new[0]]
        node.retired += [old for old, _ in moved]
        return self._request_entries(node, [new for _, new in moved])

    def remove(self, chained: Iterable[ChainedEntry]) -> list[Reply]:
        replies: list[Reply] = []
        for root, entry in chained:
            if self._roots.get(entry.id) == root:  # else it has moved
                del self._roots[entry.id]
                self.leaves.pop(entry.id, None)
            replies.append(Outgoing(self._me, UnwantInSpace(root, (entry,))))
        return replies
