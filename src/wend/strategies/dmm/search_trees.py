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
from wend.strategies.dmm.messages import (
    ChildActive,
    FromLeaves,
    GrowNode,
    LeafBranches,
    Reply,
    Routed,
    ToCachedLeaf,
    ToLeaves,
)
from wend.strategies.dmm.search_nodes import NodeKey, SearchNode
from wend.strategies.dmm.spaces import SpaceName, Spaces
from wend.strategies.ring.bounded import batches
from wend.strategies.ring.key_based import Entry, EntryId
from wend.strategies.ring.reverse_paths import Branch, Outgoing, ReversePaths, add_entries


class SearchTrees:
    """The nodes that this peer owns. It splits a leaf with more than `delegation` entries."""

    def __init__(self, spaces: Spaces, chains: Chains, delegation: int, expiry_ns: Nanos) -> None:
        self.nodes: dict[NodeKey, SearchNode] = {}
        self._spaces = spaces
        self._chains = chains
        self._delegation = delegation
        self._expiry_ns = expiry_ns

    def handle(self, now: Nanos, message: Routed) -> list[Reply]:
        """A message has arrived at the owner of its region."""
        match message:
            case ToLeaves(space, code, back, entries):
                return self._add(now, space, code, back, entries)
            case ToCachedLeaf(space, code, back, entries):
                if (space, code) in self.nodes:
                    return self._add(now, space, code, back, entries)
                return [ToLeaves(space, "", back, entries)]  # the region is no longer active
            case FromLeaves(space, code, back, entries):
                return self._remove(space, code, back, entries)
            case GrowNode(space, code, split):
                node = self._node(now, space, code)
                node.parent_heard_ns = now
                return self._split(node) if split else []
            case ChildActive(space, code):
                node = self._node(now, space, code)
                return _grow_children(node) if node.leaf is None else self._split(node)

    def _node(self, now: Nanos, space: SpaceName, code: str) -> SearchNode:
        node = self.nodes.get((space, code))
        if node is None:
            has_chain = not self._spaces.publishes_in(space)
            node = self.nodes[space, code] = SearchNode(self._spaces[space], code, now, has_chain, self._delegation)
        return node

    # ---------------------------------------------------------------- entries

    def _add(self, now: Nanos, space: SpaceName, code: str, back: PeerId, entries: Sequence[Entry]) -> list[Reply]:
        """Store entries in a leaf, or send them on to the children."""
        node = self._node(now, space, code)
        leaf = node.leaf
        if leaf is None:
            return _to_children(node, ToLeaves, back, entries)
        branches = [(entry, (entry.id, back)) for entry in entries]
        outdated = [branch for entry, branch in branches if branch in leaf and leaf.entry(branch) != entry]
        replies = self._remove_branches(node, outdated)
        onward, refusals = add_entries(leaf, entries, back, now + self._expiry_ns)
        replies += [*refusals, *self._chains.add(node, onward)]
        if node.should_split():
            replies += self._split(node)
        return [*replies, *self._drop_empty(node)]

    def _remove(self, space: SpaceName, code: str, back: PeerId, entries: Sequence[Entry]) -> list[Reply]:
        node = self.nodes.get((space, code))
        if node is None:
            return []
        leaf = node.leaf
        if leaf is None:
            return _to_children(node, FromLeaves, back, entries)
        branches = [(entry.id, back) for entry in entries if (entry.id, back) in leaf]
        return [*self._remove_branches(node, branches), *self._drop_empty(node)]

    def _remove_branches(self, node: SearchNode, branches: list[Branch]) -> list[Reply]:
        """Remove branches from a leaf, which then passes on the entries that they covered."""
        leaf = node.leaf
        if leaf is None or not branches:
            return []
        removals, onward = leaf.remove_all(branches)
        return [*self._chains.add(node, onward), *self._chains.remove(self._chains.chained(node, removals))]

    def renew(self, now: Nanos, space: SpaceName, sender: PeerId, ids: list[EntryId]) -> list[EntryId]:
        """Renew entries of a peer at the root of a space. Returns those that are unknown."""
        node = self.nodes.get((space, ""))
        if node is None or node.leaf is None:
            return ids
        leaf, expires = node.leaf, now + self._expiry_ns
        return [id_ for id_ in ids if not leaf.renew(id_, sender, expires)]

    # ---------------------------------------------------------------- regions

    def take_over(self, now: Nanos, key: NodeKey, split: bool) -> list[Reply]:
        """Make a region of which this peer was a replica active here."""
        node = self._node(now, *key)
        return self._split(node) if split else []

    def _split(self, node: SearchNode) -> list[Reply]:
        """Delegate the entries of a leaf to its children; both become active."""
        leaf = node.leaf
        if leaf is None or node.space.children(node.code) is None:
            return []
        node.retired = self._chains.all_chained(node)
        node.leaf = None
        node.users.clear()
        replies = _grow_children(node)
        for back, entries in _by_previous_peer(leaf):
            replies += _to_children(node, ToLeaves, back, entries)
        return replies

    def _drop_empty(self, node: SearchNode) -> list[Reply]:
        """Remove a root without entries. Other leaves stay active, for their parents are split."""
        if node.code or node.leaf is None or len(node.leaf) or node.key not in self.nodes:
            return []
        del self.nodes[node.key]
        replicas = () if node.replicated is None else node.replicated[0]
        return [Outgoing(peer, LeafBranches(node.space.name, node.code, False, ())) for peer in replicas]

    def refresh(self, now: Nanos, node: SearchNode) -> list[Reply]:
        """At a beacon: forget entries that nobody has renewed, and tell children and parent that the node is active."""
        retired, node.retired = node.retired, []
        replies = self._chains.remove(retired)
        if node.leaf is None:
            replies += _grow_children(node)
        else:
            replies += [*self._remove_branches(node, node.leaf.expired(now)), *self._drop_empty(node)]
        if node.code and node.key in self.nodes and node.parent_heard_ns + self._expiry_ns <= now:
            node.parent_heard_ns = now
            replies.append(ChildActive(node.space.name, node.code[:-1]))
        return replies

    def hand_over(self, node: SearchNode) -> list[Reply]:
        """Send the entries of a region to the peer that owns it now."""
        name, code = node.key
        leaf = node.leaf
        chained = [*self._chains.all_chained(node), *node.retired]
        self.nodes.pop(node.key, None)
        replies: list[Reply] = [GrowNode(name, code, leaf is None)]
        if leaf is not None:
            replies += [ToLeaves(name, code, back, entries) for back, entries in _by_previous_peer(leaf)]
        return [*replies, *self._chains.remove(chained)]


def _by_previous_peer(leaf: ReversePaths) -> list[tuple[PeerId, tuple[Entry, ...]]]:
    """The entries of a leaf in batches, each with the peer to which its events go."""
    return [
        (back, batch)
        for back in leaf.previous_peers
        for batch in batches([leaf.entry(branch) for branch in leaf.branches_from(back)])
    ]


def _grow_children(node: SearchNode) -> list[Reply]:
    children = node.space.children(node.code) or ()
    return [GrowNode(node.space.name, child) for child in children]


def _to_children(
    node: SearchNode, kind: type[ToLeaves] | type[FromLeaves], back: PeerId, entries: Sequence[Entry]
) -> list[Reply]:
    """Send entries on to the children whose regions they meet."""
    replies: list[Reply] = []
    boxes = []
    for entry in entries:
        try:
            boxes.append((entry, node.space.box_of_filter(parse(entry.filter))))
        except FilterError:
            replies.append(Refuse(entry.id.peer, "filter-syntax"))
    for child in node.space.children(node.code) or ():
        part = tuple([entry for entry, box in boxes if node.space.meets(child, box)])
        if part:
            replies.append(kind(node.space.name, child, back, part))
    return replies
