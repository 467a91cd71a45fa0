"""The subscription half of `dmm`: how entries reach the active leaves of search trees, and how they stay there.

An entry travels hop by hop towards the root region of its space. Each hop remembers the peer that it came from, and
passes on only what no other entry covers. At the root it goes down to the active leaves that it meets; peers between
remember nothing. A leaf remembers the last peer of the path (`back`), to which it sends events.

Everything here is soft state. Each hop renews its entries at the next one; what nobody renews expires. A peer that no
longer owns a region hands it over. Replicas know only where a region's entries came from: a replica that comes to own
the region asks these peers to tell them again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from wend.matching.filters import Filter, parse
from wend.model.errors import FilterError
from wend.model.events import PeerId
from wend.model.settings import Settings, everyday, setting
from wend.model.units import SECOND, Nanos
from wend.protocol.plugins import PeerConfig
from wend.strategies.dmm.messages import (
    ChildActive,
    FromLeaves,
    GrowNode,
    LeafBranches,
    RenewInSpace,
    Routed,
    TellAgain,
    ToLeaves,
    UnknownInSpace,
    UnwantInSpace,
    WantInSpace,
)
from wend.strategies.dmm.search_tree import NodeKey, SearchNode
from wend.strategies.dmm.spaces import AttributeSpace, SpaceName, Spaces, place
from wend.strategies.ring.key_based import (
    MOST_HOPS,
    Entry,
    EntryId,
    KeyBasedInterest,
    KeyBasedSettings,
    batches,
)
from wend.strategies.ring.reverse_paths import Branch, ReversePaths

REPLICATED = 4096
"""Regions of other peers that a peer is a replica of, at most."""
NO_REGION = "a region that cannot be"
UNREADABLE = "a filter that cannot be read"


class DmmSettings(KeyBasedSettings, frozen=True, kw_only=True):
    """Attribute spaces, their search trees, and the cache of leaves at publishers' peers."""

    title: ClassVar[str] = "Attribute spaces"

    domains: Annotated[
        dict[str, list[float]],
        everyday(
            "The range of numeric attributes: [low, high], or [low, high, granularity]. `dmm` indexes these alone."
        ),
    ] = {}  # noqa: RUF012  # msgspec copies it
    delegation: Annotated[
        int, setting("How many entries a region of an attribute space holds before it is split.", low=1)
    ] = 1000
    tree_cache: Annotated[
        bool, setting("Whether the peers of publishers remember where the regions are that their events go to.")
    ] = True
    primary: ClassVar[Literal["selective", "first"]] = "selective"
    """The attribute by which the events of a filter of several are found: the most selective, or the first."""
    tree_beacon_ns: ClassVar[Nanos] = 15 * SECOND
    """How often the owner of a region reminds the peers that publish there."""
    tree_expiry_ns: ClassVar[Nanos] = 30 * SECOND
    """How long a publisher's peer remembers a region without a reminder."""
    tree_replicas: ClassVar[int] = 2
    """How many peers know where the entries of a region came from, besides its owner."""


class SpaceSubscriptions(KeyBasedInterest):
    """Entries on their way to search trees, and in their leaves."""

    settings: ClassVar[type[Settings]] = DmmSettings

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._dmm = config.of(DmmSettings)
        self._spaces = self._choose_spaces()
        self._paths: dict[SpaceName, ReversePaths] = {}
        self._nodes: dict[NodeKey, SearchNode] = {}
        self._chains: dict[EntryId, NodeKey] = {}
        """The leaf of this peer that passed an entry on to another space, by the entry's id there."""
        self._leaving: list[tuple[PeerId, SpaceName, list[Entry]]] = []
        """What former next hops have to forget with the next beacon."""
        self._replicated: dict[NodeKey, LeafBranches] = {}
        """Regions that this peer is a replica of."""

    def _choose_spaces(self) -> Spaces:
        raise NotImplementedError

    def status(self) -> dict[str, int]:
        """`nodes` of search trees that this peer owns, entries in them (`leaf`), entries on their way through here to
        search trees (`tree`), `spaces` to which these go, and regions of others that this peer is a replica of
        (`replicated`)."""
        leaves = [node.leaf for node in self._nodes.values() if node.leaf is not None]
        return {
            "nodes": len(self._nodes),
            "leaf": sum(map(len, leaves)),
            "tree": sum(map(len, self._paths.values())),
            "spaces": len(self._paths),
            "replicated": len(self._replicated),
        }

    # ---------------------------------------------------------------- finding the tree, hop by hop

    def on_subscribed(self, now: Nanos, entry: Entry, wanted: Filter) -> None:
        self._want(now, self._spaces.home(wanted), self.me, (entry,))

    def on_unsubscribed(self, now: Nanos, entry: Entry, wanted: Filter) -> None:
        self._unwant(now, self._spaces.home(wanted), self.me, (entry,))

    def _hop(self, space: SpaceName, code: str = "", avoid: Iterable[PeerId] = ()) -> PeerId | None:
        """The next hop towards a region; None where this peer owns it."""
        hop = self.ring.next_hop(self._spaces[space].key(code), avoid)
        return None if hop == self.me else hop

    def _want(self, now: Nanos, space: SpaceName, sender: PeerId, entries: Sequence[Entry]) -> None:
        hop = self._hop(space)
        paths = self._paths.get(space)
        if hop is None and sender != self.me:
            if paths is not None:  # from the time when this peer did not own the root
                self._forget(now, space, paths, [(e.id, sender) for e in entries if (e.id, sender) in paths])
            self._to_leaves(now, space, "", sender, entries)
            return
        if paths is None:
            paths = self._paths[space] = ReversePaths()
        onward: dict[Branch, None] = {}
        for entry in entries:
            try:
                onward.update(dict.fromkeys(paths.add(entry, None, sender, now + self.key_settings.expiry_ns)))
            except FilterError:
                self.refuse(sender, UNREADABLE)
        if hop != paths.next_hop:
            self._move(now, space, paths, hop)
        elif self.ring.joined:  # else all are told when it has
            self._tell(now, hop, space, paths, list(onward))
        self._drop_empty(space)

    def _move(self, now: Nanos, space: SpaceName, paths: ReversePaths, hop: PeerId | None) -> None:
        """The next hop is another one: it is told all entries. The former one forgets them later, when events take
        the new path."""
        before = paths.next_hop
        paths.move(hop)
        onward = paths.onward
        if before is not None:
            self._leaving.append((before, space, [paths.entry(branch) for branch in onward]))
        self._tell(now, hop, space, paths, onward)

    def _tell(
        self, now: Nanos, hop: PeerId | None, space: SpaceName, paths: ReversePaths, onward: list[Branch]
    ) -> None:
        for batch in batches(onward):
            entries = tuple([paths.entry(branch) for branch in batch])
            if hop is None:
                self._to_leaves(now, space, "", self.me, entries)
            else:
                self.send(hop, WantInSpace(space, entries))

    def _tell_gone(self, hop: PeerId, space: SpaceName, entries: list[Entry]) -> None:
        for batch in batches(entries):
            self.send(hop, UnwantInSpace(space, batch))

    def _unwant(self, now: Nanos, space: SpaceName, sender: PeerId, entries: Sequence[Entry]) -> None:
        paths = self._paths.get(space)
        if paths is not None:
            self._forget(now, space, paths, [(e.id, sender) for e in entries if (e.id, sender) in paths])
        if sender != self.me and (space, "") in self._nodes:
            self._from_leaves(now, space, "", sender, entries)

    def _forget(self, now: Nanos, space: SpaceName, paths: ReversePaths, branches: list[Branch]) -> None:
        """Entries leave the path: tell the next hop, and pass on what they covered."""
        gone, onward = paths.remove_all(branches)
        hop = paths.next_hop
        self._tell(now, hop, space, paths, onward)
        if hop is not None:
            self._tell_gone(hop, space, gone)
        elif gone:
            self._from_leaves(now, space, "", self.me, gone)
        self._drop_empty(space)

    def _drop_empty(self, space: SpaceName) -> None:
        if space in self._paths and not len(self._paths[space]):
            del self._paths[space]

    def _renewed(self, now: Nanos, space: SpaceName, sender: PeerId, ids: Iterable[EntryId]) -> list[EntryId]:
        """Renew entries of a peer. Returns those that are not known."""
        expires = now + self.key_settings.expiry_ns
        unknown = list(ids)
        paths = self._paths.get(space)
        if paths is not None and sender != self.me:
            unknown = [id_ for id_ in unknown if not paths.renew(id_, sender, expires)]
        node = self._nodes.get((space, ""))
        if unknown and node is not None and node.leaf is not None:
            leaf = node.leaf
            unknown = [id_ for id_ in unknown if not leaf.renew(id_, sender, expires)]
        return unknown

    # ---------------------------------------------------------------- finding leaves

    def _to_leaves(self, now: Nanos, space: SpaceName, code: str, back: PeerId, entries: Sequence[Entry]) -> None:
        """This peer owns the region: store the entries, or send them on to the children."""
        node = self._node(now, space, code)
        if node.leaf is None:
            self._to_children(now, node, entries, lambda child, some: ToLeaves(space, child, back, some))
            return
        leaf, expires = node.leaf, now + self.key_settings.expiry_ns
        known = [(entry, (entry.id, back)) for entry in entries]
        self._leave(now, node, [branch for entry, branch in known if branch in leaf and leaf.entry(branch) != entry])
        onward: dict[Branch, None] = {}
        for entry in entries:
            try:
                onward.update(dict.fromkeys(leaf.add(entry, None, back, expires)))
            except FilterError:
                self.refuse(back, UNREADABLE)
        self._chain(now, node, list(onward))
        if len(leaf) > node.split_at:
            self._split(now, node)
        self._remove_if_empty(node)

    def _from_leaves(self, now: Nanos, space: SpaceName, code: str, back: PeerId, entries: Sequence[Entry]) -> None:
        node = self._nodes.get((space, code))
        if node is None:
            return
        if node.leaf is None:
            self._to_children(now, node, entries, lambda child, some: FromLeaves(space, child, back, some))
            return
        leaf = node.leaf
        self._leave(now, node, [(entry.id, back) for entry in entries if (entry.id, back) in leaf])
        self._remove_if_empty(node)

    def _to_children(
        self,
        now: Nanos,
        node: SearchNode,
        entries: Sequence[Entry],
        message: Callable[[str, tuple[Entry, ...]], Routed],
    ) -> None:
        boxes = []
        for entry in entries:
            try:
                boxes.append((entry, node.space.box_of_filter(parse(entry.filter))))
            except FilterError:
                self.refuse(entry.id.peer, UNREADABLE)
        for child in node.space.children(node.code) or ():
            met = tuple([entry for entry, box in boxes if node.space.meets(child, box)])
            if met:
                self._route(now, message(child, met))

    def _node(self, now: Nanos, space: SpaceName, code: str) -> SearchNode:
        node = self._nodes.get((space, code))
        if node is None:
            known = self._spaces[space]
            covering = not self._spaces.publishes_in(space)
            node = self._nodes[space, code] = SearchNode(known, code, now, covering, self._dmm.delegation)
        return node

    def _leave(self, now: Nanos, node: SearchNode, branches: list[Branch]) -> None:
        """Entries leave a leaf: what they covered is passed on, and they no longer are."""
        leaf = node.leaf
        if leaf is not None and branches:
            gone, onward = leaf.remove_all(branches)
            self._chain(now, node, onward)
            self._unchain(now, self._chained(node, gone))

    def _remove_if_empty(self, node: SearchNode) -> None:
        """A root without entries is no more. Other leaves stay active, for their parents are split."""
        if node.code or node.leaf is None or len(node.leaf) or node.key not in self._nodes:
            return
        del self._nodes[node.key]
        if node.replicated is not None:
            for peer in node.replicated[0]:
                self.send(peer, LeafBranches(node.space.name, node.code, False, ()))

    # ---------------------------------------------------------------- from the leaf to an attribute root

    def _chained(self, node: SearchNode, entries: Iterable[Entry]) -> list[tuple[SpaceName, Entry]]:
        """Entries as the leaf passes them on, each with the space that it passes it on to; none where it does not."""
        if not node.covering:
            return []
        region = place(*node.key)
        return [
            (self._spaces.root(parse(each.filter)), Entry(EntryId(*each.id[:3], region), each.filter))
            for each in entries
        ]

    def _chain(self, now: Nanos, node: SearchNode, branches: Iterable[Branch]) -> None:
        """Pass entries on to the spaces in which their events are published."""
        leaf = node.leaf
        if leaf is None:
            return
        found: dict[SpaceName, list[Entry]] = {}
        for root, entry in self._chained(node, [leaf.entry(branch) for branch in branches]):
            self._chains[entry.id] = node.key
            found.setdefault(root, []).append(entry)
        for root, entries in found.items():
            self._want(now, root, self.me, entries)

    def _unchain(self, now: Nanos, chained: Iterable[tuple[SpaceName, Entry]]) -> None:
        for root, entry in chained:
            self._chains.pop(entry.id, None)
            self._unwant(now, root, self.me, (entry,))

    # ---------------------------------------------------------------- delegation

    def _split(self, now: Nanos, node: SearchNode, force: bool = False) -> None:
        """Delegate the entries of a leaf to its children; both become active."""
        leaf = node.leaf
        if leaf is None or node.space.children(node.code) is None or not (force or node.divides()):
            return
        node.retired = self._chained(node, [leaf.entry(branch) for branch in leaf.onward])
        node.leaf = None
        node.users.clear()
        self._grow_children(now, node)
        for back in leaf.previous_peers:
            for batch in batches([leaf.entry(branch) for branch in leaf.came_from(back)]):
                self._to_leaves(now, node.space.name, node.code, back, batch)

    def _grow_children(self, now: Nanos, node: SearchNode) -> None:
        for child in node.space.children(node.code) or ():
            self._route(now, GrowNode(node.space.name, child))

    def _route(self, now: Nanos, message: Routed, avoid: Iterable[PeerId] = ()) -> None:
        """Send a message on to the peer that owns its region."""
        hop = self._hop(message.space, message.code, avoid)
        if hop is None:
            self._arrived_at_region(now, message)
        elif message.route_hops < MOST_HOPS:
            self.send(hop, msgspec.structs.replace(message, route_hops=message.route_hops + 1))

    def _arrived_at_region(self, now: Nanos, message: Routed) -> None:
        match message:
            case ToLeaves(space, code, back, entries):
                self._to_leaves(now, space, code, back, entries)
            case FromLeaves(space, code, back, entries):
                self._from_leaves(now, space, code, back, entries)
            case GrowNode(space, code, split):
                node = self._node(now, space, code)
                node.parent_heard_ns = now
                if split and node.leaf is not None:
                    self._split(now, node, force=True)
            case ChildActive(space, code):
                node = self._node(now, space, code)
                if node.leaf is not None:
                    self._split(now, node, force=True)
                else:
                    self._grow_children(now, node)

    # ---------------------------------------------------------------- soft state

    def on_beacon(self, now: Nanos) -> None:
        me, expires = self.me, now + self.key_settings.expiry_ns
        leaving, self._leaving = self._leaving, []
        for hop, space, entries in leaving:
            if space not in self._paths or self._paths[space].next_hop != hop:
                self._tell_gone(hop, space, entries)
        for space, paths in list(self._paths.items()):
            for id_, _ in paths.came_from(me):
                paths.renew(id_, me, expires + 1)
            self._forget(now, space, paths, paths.expired(now))
        self._tell_others(now)
        for space, paths in self._paths.items():
            if paths.next_hop is not None:
                for ids in batches(paths.onward_ids):
                    self.send(paths.next_hop, RenewInSpace(space, ids))
        for node in list(self._nodes.values()):
            self._renew_node(now, node)

    def _tell_others(self, now: Nanos) -> None:
        """Tell all entries where the next hop is another one, and those that this peer's own root does not know."""
        for space, paths in list(self._paths.items()):
            hop = self._hop(space)
            if hop != paths.next_hop:
                self._move(now, space, paths, hop)
            elif hop is None and self.ring.joined:
                unknown = self._renewed(now, space, self.me, paths.onward_ids)
                self._tell(now, None, space, paths, paths.of(unknown))

    def _renew_node(self, now: Nanos, node: SearchNode) -> None:
        retired, node.retired = node.retired, []
        self._unchain(now, retired)
        if node.leaf is None:
            self._grow_children(now, node)
        else:
            self._leave(now, node, node.leaf.expired(now))
            self._remove_if_empty(node)
        if node.key not in self._nodes:
            return
        if node.code and node.parent_heard_ns + self.key_settings.expiry_ns <= now:
            node.parent_heard_ns = now
            self._route(now, ChildActive(node.space.name, node.code[:-1]))
        self._replicate(node)

    def _replicate(self, node: SearchNode) -> None:
        """Tell the replicas where the entries of a region come from, if they do not know."""
        replicas = self.ring.replicas(self._dmm.tree_replicas)
        backs = frozenset() if node.leaf is None else frozenset(node.leaf.previous_peers)
        state = (replicas, node.leaf is None, backs)
        before, node.replicated = node.replicated, state
        if before == state or (node.leaf is not None and not backs):
            return
        told = LeafBranches(node.space.name, node.code, node.leaf is None, tuple(sorted(backs)))
        for peer in replicas:
            if before is None or before[1:] != state[1:] or peer not in before[0]:
                self.send(peer, told)

    def on_ownership_changed(self, now: Nanos) -> None:
        for key, told in list(self._replicated.items()):
            if self._hop(*key) is None:
                del self._replicated[key]
                self._take_over(now, key, told)
        self._tell_others(now)
        for node in list(self._nodes.values()):
            if self._hop(*node.key) is not None:
                self._hand_over(now, node)
            else:
                self._replicate(node)

    def _hand_over(self, now: Nanos, node: SearchNode) -> None:
        """Another peer owns the region now: it gets the entries."""
        name, code = node.key
        leaf = node.leaf
        passed = [] if leaf is None else self._chained(node, [leaf.entry(branch) for branch in leaf.onward])
        self._nodes.pop(node.key, None)
        self._route(now, GrowNode(name, code, leaf is None))
        if leaf is not None:
            for back in leaf.previous_peers:
                for batch in batches([leaf.entry(branch) for branch in leaf.came_from(back)]):
                    self._route(now, ToLeaves(name, code, back, batch))
        self._unchain(now, [*passed, *node.retired])

    def _take_over(self, now: Nanos, key: NodeKey, told: LeafBranches) -> None:
        """This peer owns a region that it was a replica of: it asks for the entries."""
        node = self._node(now, *key)
        if told.split:
            self._split(now, node, force=True)
        for peer in told.peers:
            if peer == self.me:
                self._tell_again(now, told.space)
            else:
                self.send(peer, TellAgain(told.space))

    def _tell_again(self, now: Nanos, space: SpaceName) -> None:
        paths = self._paths.get(space)
        if paths is None:
            return
        hop = self._hop(space)
        if hop != paths.next_hop:
            self._move(now, space, paths, hop)
        else:
            self._tell(now, hop, space, paths, paths.onward)

    # ---------------------------------------------------------------- messages

    def _space(self, sender: PeerId, message: Any) -> AttributeSpace | None:
        """The space that a message is about; None, and a refusal, if there is no such space or region."""
        space = self._spaces.find(message.space)
        if space is None or space.region(getattr(message, "code", "")) is None:
            self.refuse(sender, NO_REGION)
            return None
        return space

    def _told(self, now: Nanos, sender: PeerId, message: Any) -> None:
        match message:
            case WantInSpace(space, entries):
                self._want(now, space, sender, entries)
            case RenewInSpace(space, ids):
                unknown = self._renewed(now, space, sender, ids)
                if unknown:
                    self.send(sender, UnknownInSpace(space, tuple(unknown)))
            case UnknownInSpace(space, ids):
                paths = self._paths.get(space)
                if paths is not None and paths.next_hop == sender:
                    self._tell(now, sender, space, paths, paths.of(ids))
            case UnwantInSpace(space, entries):
                self._unwant(now, space, sender, entries)
            case ToLeaves() | FromLeaves() | GrowNode() | ChildActive():
                self._route(now, message)
            case LeafBranches(space, code, _, peers):
                self._replicated.pop((space, code), None)
                if (peers or message.split) and len(self._replicated) < REPLICATED:
                    self._replicated[space, code] = message
            case TellAgain(space):
                self._tell_again(now, space)

    def _lost(self, now: Nanos, peer: PeerId, message: Any) -> None:
        """A peer did not answer."""
        match message:
            case WantInSpace(space) | RenewInSpace(space):
                paths = self._paths.get(space)
                if paths is not None and paths.next_hop == peer:
                    paths.next_hop = None
                    self._move(now, space, paths, self._hop(space, avoid=(peer,)))
            case ToLeaves() | FromLeaves() | GrowNode() | ChildActive():
                self._route(now, message, (peer,))
