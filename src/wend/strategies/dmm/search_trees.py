"""The search trees of attribute spaces: how entries reach the active leaves, and how regions split and change owners.

A space is halved again and again, and the regions are the nodes of a binary tree. A node is active if there is a
`SearchNode` for it. An active leaf holds the entries that meet its region. A leaf with too many entries is split: then
both children are active, even if one has no entries, and an event that comes from below never passes an active leaf.

From the root of its space an entry goes down to the active leaves whose regions it meets. Peers between them remember
nothing. A leaf remembers the last peer of the entry's path, and sends events to it.

A leaf of a space of several attributes passes its entries on to the space in which events are published. There the
entries have the id of the leaf's region, so that events come back to the leaf and from it to the subscribers.

Replication is light: a replica knows where the entries of a region came from, but not the entries. When it comes to own
the region, it asks these peers to tell their entries again.
"""

from collections.abc import Iterable, Sequence

from wend.matching.filters import parse
from wend.model.errors import FilterError
from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Refuse
from wend.strategies.dmm.messages import (
    ChildActive,
    FromLeaves,
    GrowNode,
    LeafBranches,
    Reply,
    Routed,
    ToCachedLeaf,
    ToLeaves,
    UnwantInSpace,
    WantInSpace,
)
from wend.strategies.dmm.spaces import AttributeSpace, SpaceName, Spaces, place
from wend.strategies.ring.bounded import batches
from wend.strategies.ring.key_based import Entry, EntryId
from wend.strategies.ring.reverse_paths import Branch, Outgoing, ReversePaths, add_entries

NodeKey = tuple[SpaceName, str]
MAX_COPIES = 1.75
"""Copies of an entry, on average, above which a split does not help: each split would copy wide ranges again, down to
single cells."""


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
        """The peers that know this leaf, and when an event or entry last came from each."""
        self.retired: list[tuple[SpaceName, Entry]] = []
        """After a split: entries that this node has passed on to other spaces, until its children have."""
        self.replicated: tuple[tuple[PeerId, ...], bool, frozenset[PeerId]] | None = None
        """The replicas, and the state that they know: whether the node is split, and where its entries came from."""

    @property
    def key(self) -> NodeKey:
        return self.space.name, self.code

    def meets(self, event: Event) -> bool:
        """Whether the region has values of the event."""
        return self.space.meets(self.code, self.space.box_of_event(event.attributes))

    def children_around(self, event: Event) -> list[str]:
        """The codes of the children whose regions have values of the event."""
        box = self.space.box_of_event(event.attributes)
        return [child for child in self.space.children(self.code) or () if self.space.meets(child, box)]

    def should_split(self) -> bool:
        """Whether the node has many entries and a split would help. It does not help if the region is a single cell, or
        if most entries would go to both children. In that case the node waits until it has twice as many."""
        leaf, children = self.leaf, self.space.children(self.code)
        if leaf is None or len(leaf) <= self.split_at or children is None:
            return False
        boxes = [self.space.box_of_filter(leaf.filter_of(branch)) for branch in leaf.branches]
        if sum(self.space.meets(child, box) for child in children for box in boxes) <= MAX_COPIES * len(boxes):
            return True
        self.split_at *= 2
        return False

    def recent_users(self, now: Nanos, expiry_ns: Nanos) -> list[PeerId]:
        """The peers from which events or entries have come lately. The node forgets the others."""
        self.users = {peer: last for peer, last in self.users.items() if last + expiry_ns > now}
        return list(self.users)


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
            covering = not self._spaces.publishes_in(space)
            node = self.nodes[space, code] = SearchNode(self._spaces[space], code, now, covering, self._delegation)
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
        return [*self._chains.add(node, onward), *self._chains.remove(self._chains.of(node, removals))]

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
        node.retired = self._chains.of_leaf(node)
        node.leaf = None
        node.users.clear()
        replies = _grow_children(node)
        for back, entries in _by_back(leaf):
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
        chained = [*self._chains.of_leaf(node), *node.retired]
        self.nodes.pop(node.key, None)
        replies: list[Reply] = [GrowNode(name, code, leaf is None)]
        if leaf is not None:
            replies += [ToLeaves(name, code, back, entries) for back, entries in _by_back(leaf)]
        return [*replies, *self._chains.remove(chained)]


def _by_back(leaf: ReversePaths) -> list[tuple[PeerId, tuple[Entry, ...]]]:
    """The entries of a leaf in batches, each with the peer to which its events go."""
    return [
        (back, batch)
        for back in leaf.previous_peers
        for batch in batches([leaf.entry(branch) for branch in leaf.came_from(back)])
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


REPLICATED = 4096
"""Regions of other peers that a peer is a replica of, at most."""


class SpaceReplicas:
    """The regions that this peer is a replica of, and the state that the replicas of its own regions know."""

    def __init__(self) -> None:
        self.regions: dict[NodeKey, LeafBranches] = {}

    def learn(self, message: LeafBranches) -> None:
        """Remember a region of another peer, or forget one that it no longer has."""
        key = (message.space, message.code)
        self.regions.pop(key, None)
        if (message.peers or message.split) and len(self.regions) < REPLICATED:
            self.regions[key] = message

    def tell(self, node: SearchNode, replicas: tuple[PeerId, ...]) -> list[Reply]:
        """Tell the replicas of a node its state, if they do not know it."""
        backs = frozenset() if node.leaf is None else frozenset(node.leaf.previous_peers)
        state = (replicas, node.leaf is None, backs)
        former, node.replicated = node.replicated, state
        if former == state or (node.leaf is not None and not backs):
            return []
        message = LeafBranches(node.space.name, node.code, node.leaf is None, tuple(sorted(backs)))
        unaware = [peer for peer in replicas if former is None or former[1:] != state[1:] or peer not in former[0]]
        return [Outgoing(peer, message) for peer in unaware]
