"""The search trees of attribute spaces: how entries reach the active leaves, and how regions split and change owners.

A space is halved again and again, and the regions are the nodes of a binary tree. A node is active if there is a
`SearchNode` for it. An active leaf holds the entries that meet its region. A leaf with too many entries is split: then
both children are active, even if one has no entries, and an event that comes from below never passes an active leaf.

From the root of its space an entry goes down to the active leaves whose regions it meets. Peers between them remember
nothing. A leaf remembers the last peer of the entry's path, and sends events to it.

A leaf of a space of several attributes passes its entries on to the space in which events are published (`chains.py`).
"""

from collections.abc import Sequence

from wend.matching.filters import parse
from wend.model.errors import FilterError
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Refuse
from wend.strategies.dmm.chains import Chains
from wend.strategies.dmm.merge import RegionMerge
from wend.strategies.dmm.messages import (
    COLLECT,
    DROP,
    HOLD,
    ChildActive,
    ChildDropped,
    ChildEntries,
    FromLeaves,
    GrowNode,
    LeafBranches,
    MergeNode,
    Reply,
    Routed,
    ToCachedLeaf,
    ToHeldLeaf,
    ToLeaves,
)
from wend.strategies.dmm.search_nodes import NodeKey, SearchNode
from wend.strategies.dmm.spaces import SpaceName, Spaces
from wend.strategies.ring.bounded import split_into_batches
from wend.strategies.ring.key_based import Entry, EntryId
from wend.strategies.ring.reverse_paths import Branch, Outgoing, ReversePaths, add_entries

_NO_PEER: PeerId = 0
"""In a message of a child without entries."""


class SearchTrees:
    """The nodes that this peer owns. It splits a leaf with more than `delegation` entries, and merges a split node with
    at most half as many."""

    def __init__(self, spaces: Spaces, chains: Chains, delegation: int, expiry_ns: Nanos) -> None:
        self.nodes: dict[NodeKey, SearchNode] = {}
        self._spaces = spaces
        self._chains = chains
        self._delegation = delegation
        self._few = delegation // 2
        self._expiry_ns = expiry_ns

    def handle(self, now: Nanos, message: Routed) -> list[Reply]:
        """Handle a message at the owner of its region."""
        match message:
            case ToLeaves(space, code, back, entries):
                return self._add_entries(now, self._get_or_make_node(now, space, code), back, entries)
            case ToCachedLeaf():
                return self._add_directly(now, message)
            case FromLeaves(space, code, back, entries):
                return self._remove_entries(now, space, code, back, entries)
            case GrowNode(space, code, split):
                node = self._get_or_make_node(now, space, code)
                node.parent_heard_ns = now
                node.held_until_ns = 0
                return self._split_leaf(now, node) if split else []
            case ChildActive(space, code):
                node = self._get_or_make_node(now, space, code)
                return self._split_leaf(now, node) if node.leaf is not None else self._stay_split(now, node)
            case MergeNode(space, code, step):
                return self._drop_leaf(now, space, code) if step == DROP else self._hold_leaf(now, space, code, step)
            case ToHeldLeaf(space, code, back, entries):
                held = self.nodes.get((space, code))
                return [] if held is None else self._add_entries(now, held, back, entries)
            case ChildEntries(space, code, back, entries):
                parent = self.nodes.get((space, code))
                if parent is None or parent.merge is None:
                    return []
                parent.merge.receive(message.child, message.total, [(entry.id, back) for entry in entries])
                return self._store_in_leaf(now, parent, back, entries)
            case ChildDropped(space, code, child):
                return self._end_merge(space, code, child)

    def _get_or_make_node(self, now: Nanos, space: SpaceName, code: str) -> SearchNode:
        node = self.nodes.get((space, code))
        if node is None:
            has_chain = not self._spaces.publishes_in(space)
            node = self.nodes[space, code] = SearchNode(self._spaces[space], code, now, has_chain, self._delegation)
        return node

    # ---------------------------------------------------------------- entries

    def _add_entries(self, now: Nanos, node: SearchNode, back: PeerId, entries: Sequence[Entry]) -> list[Reply]:
        """Store entries in a leaf, or send them on to the children. A node that merges does both."""
        if node.entries is None:
            if len(node.passed) <= self._few:
                node.passed.update([(entry.id, back) for entry in entries])
            return _send_to_children(node, ToLeaves, back, entries)
        replies = [] if node.merge is None else _send_to_children(node, ToHeldLeaf, back, entries)
        return [*replies, *self._store_in_leaf(now, node, back, entries)]

    def _add_directly(self, now: Nanos, message: ToCachedLeaf) -> list[Reply]:
        """Add entries that a peer has sent directly to a leaf. Those of a child that merges go to its parent, too."""
        space, code, back, entries = message.space, message.code, message.back, message.entries
        node = self.nodes.get((space, code))
        if node is None:
            return [ToLeaves(space, "", back, entries)]  # the region is no longer active
        replies = self._add_entries(now, node, back, entries)
        if node.leaf is not None and node.held_until_ns > now:
            replies.append(ChildEntries(space, code[:-1], back, entries, child=code, total=len(node.leaf)))
        return replies

    def _store_in_leaf(self, now: Nanos, node: SearchNode, back: PeerId, entries: Sequence[Entry]) -> list[Reply]:
        table = node.entries
        assert table is not None
        branches = [(entry, (entry.id, back)) for entry in entries]
        outdated = [branch for entry, branch in branches if branch in table and table.entry(branch) != entry]
        replies = self._remove_branches(node, outdated)
        onward, refusals = add_entries(table, entries, back, now + self._expiry_ns)
        replies += [*refusals, *self._chains.add(node, onward)]
        if node.merge is None and node.held_until_ns <= now and node.should_split():
            replies += self._split_leaf(now, node)
        return [*replies, *self._drop_empty_root(node)]

    def _remove_entries(
        self, now: Nanos, space: SpaceName, code: str, back: PeerId, entries: Sequence[Entry]
    ) -> list[Reply]:
        node = self.nodes.get((space, code))
        if node is None:
            return []
        replies = _send_to_children(node, FromLeaves, back, entries) if node.is_split else []
        table = node.entries
        if table is None:
            return replies
        # an entry that has replaced this one may have come by a shorter way
        removed = tuple([entry for entry in entries if table.has(entry, back)])
        replies += self._remove_branches(node, [(entry.id, back) for entry in removed])
        if removed and node.held_until_ns > now:
            replies.append(FromLeaves(space, code[:-1], back, removed))
        return [*replies, *self._drop_empty_root(node)]

    def _remove_branches(self, node: SearchNode, branches: list[Branch]) -> list[Reply]:
        """Remove branches from a node. A leaf then passes on the entries that they covered."""
        table = node.entries
        if table is None or not branches:
            return []
        removals, onward = table.remove_all(branches)
        if node.leaf is None:
            return []
        return [
            *self._chains.add(node, onward),
            *self._chains.remove(self._chains.make_chained_entries(node, removals)),
        ]

    def renew(self, now: Nanos, space: SpaceName, sender: PeerId, ids: list[EntryId]) -> list[EntryId]:
        """Renew entries of a peer at the root of a space. Returns those that are unknown."""
        node = self.nodes.get((space, ""))
        if node is None or node.leaf is None or node.is_split:
            return ids
        leaf, expires = node.leaf, now + self._expiry_ns
        return [id_ for id_ in ids if not leaf.renew(id_, sender, expires)]

    # ---------------------------------------------------------------- regions

    def take_over(self, now: Nanos, key: NodeKey, split: bool) -> list[Reply]:
        """Make a region of which this peer was a replica active here."""
        node = self._get_or_make_node(now, *key)
        return self._split_leaf(now, node) if split else []

    def _split_leaf(self, now: Nanos, node: SearchNode) -> list[Reply]:
        """Delegate the entries of a leaf to its children; both become active."""
        leaf = node.leaf
        if leaf is None or node.space.children(node.code) is None:
            return []
        node.retired = self._chains.all_chained(node)
        node.leaf = None
        node.users.clear()
        replies = self._stay_split(now, node)
        for back, entries in _group_by_previous_peer(leaf):
            replies += _send_to_children(node, ToLeaves, back, entries)
        return replies

    def _drop_empty_root(self, node: SearchNode) -> list[Reply]:
        """Remove a root without entries. Other leaves stay active, for their parents are split."""
        if node.code or node.leaf is None or node.is_split or len(node.leaf) or node.key not in self.nodes:
            return []
        return self._forget_node(node)

    def _forget_node(self, node: SearchNode) -> list[Reply]:
        del self.nodes[node.key]
        replicas = () if node.replicated is None else node.replicated[0]
        return [Outgoing(peer, LeafBranches(node.space.name, node.code, False, ())) for peer in replicas]

    def refresh(self, now: Nanos, node: SearchNode) -> list[Reply]:
        """At a beacon: forget entries that nobody has renewed, and tell children and parent that the node is active."""
        retired, node.retired = node.retired, []
        replies = self._chains.remove(retired)
        if node.is_split:
            replies += self._refresh_children(now, node)
        if node.leaf is not None:
            replies += [*self._remove_branches(node, node.leaf.find_expired(now)), *self._drop_empty_root(node)]
            replies += self._chains.move_to_better_roots(node)
        if node.code and node.key in self.nodes and node.parent_heard_ns + self._expiry_ns <= now:
            node.parent_heard_ns = now
            replies.append(ChildActive(node.space.name, node.code[:-1]))
        return replies

    def hand_over(self, node: SearchNode) -> list[Reply]:
        """Send the entries of a region to the peer that owns it now. If the children are active, they have them."""
        name, code = node.key
        leaf = None if node.is_split else node.leaf
        chained = [*self._chains.all_chained(node), *node.retired]
        self.nodes.pop(node.key, None)
        replies: list[Reply] = [GrowNode(name, code, leaf is None)]
        if leaf is not None:
            replies += [ToLeaves(name, code, back, entries) for back, entries in _group_by_previous_peer(leaf)]
        return [*replies, *self._chains.remove(chained)]

    # ---------------------------------------------------------------- regions that merge, as parents

    def _refresh_children(self, now: Nanos, node: SearchNode) -> list[Reply]:
        """At a beacon of a split node: take the next step of a merge, or begin one, or tell the children to stay."""
        merge, name = node.merge, node.space.name
        if merge is None:
            if not self._has_few_entries(now, node):
                return _activate_children(node)
            merge = node.merge = RegionMerge(now, node.space.children(node.code) or (), ReversePaths(node.has_chain))
        elif node.leaf is not None:
            return [MergeNode(name, child, DROP) for child in merge.children]
        elif merge.is_complete and len(merge.entries) <= self._few:
            node.leaf = merge.entries
            return [
                *self._chains.add(node, node.leaf.onward),
                *[MergeNode(name, child, HOLD) for child in merge.children],
            ]
        elif merge.began_ns + self._expiry_ns <= now:
            return self._stay_split(now, node)
        return [MergeNode(name, child, COLLECT if merge.is_incomplete(child) else HOLD) for child in merge.children]

    def _has_few_entries(self, now: Nanos, node: SearchNode) -> bool:
        """Whether a split node has passed few entries on for a whole expiry: in this time all are renewed."""
        if node.passed_since_ns + self._expiry_ns > now:
            return False
        has_few = len(node.passed) <= self._few
        node.passed.clear()
        node.passed_since_ns = now
        return has_few

    def _stay_split(self, now: Nanos, node: SearchNode) -> list[Reply]:
        """End a merge, if there is one, without a result."""
        node.merge = None
        node.passed.clear()
        node.passed_since_ns = now
        return _activate_children(node)

    def _end_merge(self, space: SpaceName, code: str, child: str) -> list[Reply]:
        """End the merge of a node when both children are gone."""
        node = self.nodes.get((space, code))
        if node is None or node.merge is None or node.leaf is None:
            return []
        node.merge.children.pop(child, None)
        if node.merge.children:
            return []
        node.merge = None
        return self._drop_empty_root(node)

    # ---------------------------------------------------------------- regions that merge, as children

    def _hold_leaf(self, now: Nanos, space: SpaceName, code: str, step: int) -> list[Reply]:
        """Keep this leaf unsplit until its parent has taken its entries back, and send them."""
        node, parent = self.nodes.get((space, code)), code[:-1]
        if node is None:
            return [ChildEntries(space, parent, _NO_PEER, (), child=code, total=0)]
        if node.leaf is None or node.is_split:
            return [ChildActive(space, parent)]
        node.parent_heard_ns = now
        node.held_until_ns = now + self._expiry_ns
        if step != COLLECT:
            return []
        total = len(node.leaf)
        by_peer = _group_by_previous_peer(node.leaf) or [(_NO_PEER, ())]
        return [ChildEntries(space, parent, back, entries, child=code, total=total) for back, entries in by_peer]

    def _drop_leaf(self, now: Nanos, space: SpaceName, code: str) -> list[Reply]:
        """Remove a leaf whose parent has its entries. If this peer knows of no merge, the parent may lack some."""
        node, parent = self.nodes.get((space, code)), code[:-1]
        if node is None:
            return [ChildDropped(space, parent, code)]
        if node.leaf is None or node.held_until_ns <= now:
            return [ChildActive(space, parent)]
        chained = [*self._chains.all_chained(node), *node.retired]
        return [*self._forget_node(node), ChildDropped(space, parent, code), *self._chains.remove(chained)]


def _group_by_previous_peer(leaf: ReversePaths) -> list[tuple[PeerId, tuple[Entry, ...]]]:
    """The entries of a leaf in batches, each with the peer to which its events go."""
    return [
        (back, batch)
        for back in leaf.previous_peers
        for batch in split_into_batches([leaf.entry(branch) for branch in leaf.branches_from(back)])
    ]


def _activate_children(node: SearchNode) -> list[Reply]:
    children = node.space.children(node.code) or ()
    return [GrowNode(node.space.name, child) for child in children]


def _send_to_children(
    node: SearchNode,
    kind: type[ToLeaves] | type[ToHeldLeaf] | type[FromLeaves],
    back: PeerId,
    entries: Sequence[Entry],
) -> list[Reply]:
    """Send entries on to the children whose regions they meet."""
    replies: list[Reply] = []
    boxes = []
    for entry in entries:
        try:
            boxes.append((entry, node.space.filter_box(parse(entry.filter))))
        except FilterError:
            replies.append(Refuse(entry.id.peer, "filter-syntax"))
    for child in node.space.children(node.code) or ():
        part = tuple([entry for entry, box in boxes if node.space.meets(child, box)])
        if part:
            replies.append(kind(node.space.name, child, back, part))
    return replies
