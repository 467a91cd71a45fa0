"""Distributed multidimensional matching (dmm): events meet subscriptions at the owners of regions of attribute spaces.

Entries of subscriptions travel to the root region of their space (`paths.py`), and from there to the active leaves of
its search tree (`search_trees.py`). An event belongs to the smallest region around it. It is routed to the peer that
owns this region, and from there to the parent, and so on, until a region is an active leaf. The leaf knows the filters
that meet its region. It sends the event back along the paths on which the matching filters came.

`dmm` has one space with all attributes, so all peers have to know them. `dmm-ar` has a space for each set of attributes
that filters require. A publisher does not know these sets: it publishes an event in the space of each single attribute,
and the leaves of larger spaces have passed their filters on to one of these.

Peers remember where events found their leaves (`cache.py`, section V-C). As printed, the leaf informs the last peer
before the walk through the tree; the publisher's peer is the other reading (`tree_cache_place`). If the owner of a
region fails, a replica takes over.

The paper's filters all require an attribute. Those that do not live in a space without attributes, to which `dmm-ar`
sends every event once more. Its owner answers the publisher's peer, so that this detour is one message.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from wend.matching.filters import Filter
from wend.model.events import Event, PeerId
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.plugins import (
    DeliverHere,
    Interest,
    Needs,
    Notice,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Refuse,
    Timer,
    View,
)
from wend.strategies.dmm.cache import LeafUsers, Shortcuts, TreeCache
from wend.strategies.dmm.chains import Chains
from wend.strategies.dmm.messages import (
    DOWN,
    FINDING_TREE,
    UP,
    ChildDropped,
    DmmMessage,
    DownPath,
    FromLeaves,
    LeafBranches,
    RenewInSpace,
    Reply,
    Routed,
    SeekLeaf,
    TellAgain,
    ToCachedLeaf,
    ToLeaves,
    TreeInfo,
    UnknownInSpace,
    UnwantInSpace,
    WantInSpace,
)
from wend.strategies.dmm.paths import SpacePaths
from wend.strategies.dmm.replicas import SpaceReplicas
from wend.strategies.dmm.search_nodes import NodeKey, SearchNode
from wend.strategies.dmm.search_trees import SearchTrees
from wend.strategies.dmm.selectivity import ObservedEvents
from wend.strategies.dmm.settings import DmmSettings
from wend.strategies.dmm.spaces import SpaceName, Spaces, attribute_roots, global_space, read_domains
from wend.strategies.ring.bounded import RecentItems
from wend.strategies.ring.key_based import LAST_TRIES, MAX_HOPS, Entry, KeyBasedInterest
from wend.strategies.ring.reverse_paths import Outgoing

MAX_FORWARDED = 1024
"""How many pairs of an event and a space a peer remembers, to send the event on once."""


class Dmm(KeyBasedInterest):
    """Matches events with subscriptions in attribute spaces: one for all attributes, unless there are others given."""

    messages: ClassVar[Any] = DmmMessage
    settings: ClassVar[type[Settings]] = DmmSettings

    def __init__(self, config: PeerConfig, spaces: Spaces | None = None) -> None:
        super().__init__(config)
        self._settings = settings = config.of(DmmSettings)
        self._spaces = global_space(read_domains(settings.domains)) if spaces is None else spaces
        self._paths = SpacePaths(self.me, settings.expiry_ns)
        observes = spaces is not None and settings.primary_attribute == "observed"
        self._observed = ObservedEvents(self._spaces) if observes else None
        self._chains = Chains(self.me, self._spaces, self._observed)
        self._trees = SearchTrees(self._spaces, self._chains, settings.delegation, settings.expiry_ns)
        self._replicas = SpaceReplicas()
        self._cache = TreeCache(settings.tree_expiry_ns)
        self._users = LeafUsers(self.me, self._cache, settings, self._spaces)
        self._shortcuts = Shortcuts(self.me, self._cache, self._spaces)
        self._forwarded = RecentItems(MAX_FORWARDED)
        self._detours = 0

    def status(self) -> dict[str, int]:
        """`nodes` of search trees that this peer owns, entries in them (`leaf`), entries on their way through here to
        search trees (`tree`) and the `spaces` to which they go, regions of which this peer is a replica (`replicated`),
        leaves that this peer sends events to directly (`cached`), and messages that it has sent to carry events to the
        space without attributes (`detours`)."""
        leaves = [node.leaf for node in self._trees.nodes.values() if node.leaf is not None]
        return {
            "nodes": len(self._trees.nodes),
            "leaf": sum(map(len, leaves)),
            "tree": sum(map(len, self._paths.tables.values())),
            "spaces": len(self._paths.tables),
            "replicated": len(self._replicas.regions),
            "cached": len(self._cache),
            "detours": self._detours,
        }

    # ---------------------------------------------------------------- subscriptions

    def on_subscribed(self, now: Nanos, entry: Entry, filter_: Filter) -> None:
        self._handle_interest(now, self.me, WantInSpace(self._spaces.home(filter_), (entry,)))

    def on_unsubscribed(self, now: Nanos, entry: Entry, filter_: Filter) -> None:
        self._handle_interest(now, self.me, UnwantInSpace(self._spaces.home(filter_), (entry,)))

    def _handle_interest(self, now: Nanos, sender: PeerId, message: Any) -> None:
        """Handle a message about subscriptions, from another peer or from a part of this one."""
        match message:
            case WantInSpace(space, entries):
                hop = self._next_hop(space)
                self._carry_out(now, self._paths.add_from(now, space, hop, sender, entries, self.ring.has_joined))
            case RenewInSpace(space, ids):
                unknown = self._trees.renew(now, space, sender, self._paths.renew(now, space, sender, ids))
                if unknown:
                    self.send(sender, UnknownInSpace(space, tuple(unknown)))
            case UnknownInSpace(space, ids):
                self._carry_out(now, self._paths.on_unknown(space, sender, ids))
            case UnwantInSpace(space, entries):
                self._carry_out(now, self._paths.remove(space, sender, [entry.id for entry in entries]))
                if sender != self.me:
                    self._carry_out(now, self._trees.handle(now, FromLeaves(space, "", sender, entries)))
                self._carry_out(now, self._shortcuts.withdraw(self._paths.tables, [entry.id for entry in entries]))
            case _ if isinstance(message, Routed):
                self._send_to_owner(now, message)
            case LeafBranches():
                self._replicas.store(message)
            case TellAgain(space) if space in self._paths.tables:
                if space and self._users.follow_paths:
                    self._cache.forget(space)  # its entries went directly to the former owner
                hop = self._next_hop(space)
                is_new = hop != self._paths.tables[space].next_hop
                self._carry_out(now, self._paths.move(space, hop) if is_new else self._paths.repeat(space))

    def _carry_out(self, now: Nanos, replies: Iterable[Reply]) -> None:
        """Send the messages of a part. This peer handles those for itself at once."""
        for reply in replies:
            if isinstance(reply, Refuse | Timer):
                self.out.append(reply)
            elif not isinstance(reply, Outgoing):
                self._send_to_owner(now, reply)
            elif reply.peer != self.me:
                self._send_to_leaf_or_hop(now, reply)
            elif isinstance(reply.message, ToLeaves | FromLeaves):
                self._carry_out(now, self._trees.handle(now, reply.message))
            else:
                self._handle_interest(now, self.me, reply.message)

    def _send_to_leaf_or_hop(self, now: Nanos, reply: Outgoing) -> None:
        """Send a message to the next hop, but entries directly to a leaf that this peer remembers."""
        if not isinstance(reply.message, WantInSpace) or not self._users.follow_paths:
            self.send(reply.peer, reply.message)
            return
        direct, others = self._shortcuts.split(now, reply.message)
        for peer, message in direct:
            self.send(peer, message)
        if others:
            self.send(reply.peer, WantInSpace(reply.message.space, others))

    def _next_hop(self, space: SpaceName, code: str = "", avoid: Iterable[PeerId] = ()) -> PeerId | None:
        """The next hop towards a region; None if this peer owns it."""
        hop = self.ring.next_hop(self._spaces[space].code_key(code), avoid)
        return None if hop == self.me else hop

    def _send_to_owner(self, now: Nanos, message: Routed, avoid: Iterable[PeerId] = ()) -> None:
        """Send a message on to the peer that owns its region."""
        hop = self._next_hop(message.space, message.code, avoid)
        if hop is None:
            self._carry_out(now, self._trees.handle(now, message))
            node = self._trees.nodes.get((message.space, message.code))
            if node is not None and isinstance(message, ToLeaves | ToCachedLeaf):
                self._carry_out(now, self._users.inform_of_entries(now, node, message))
            elif node is not None and isinstance(message, ChildDropped):
                self._update_replicas(now, node)
        elif message.route_hops < MAX_HOPS:
            self.send(hop, msgspec.structs.replace(message, route_hops=message.route_hops + 1))

    # ---------------------------------------------------------------- soft state

    def on_beacon_due(self, now: Nanos) -> None:
        self._carry_out(now, self._paths.leave_former_hops())
        for space in list(self._paths.tables):
            self._carry_out(now, self._paths.expire(now, space))
        self._move_to_new_hops(now)
        for space in self._paths.tables:
            self._carry_out(now, self._paths.renewals(space))
        for node in list(self._trees.nodes.values()):
            if self._trees.nodes.get(node.key) is node:  # else it has merged with another of this peer
                self._carry_out(now, self._trees.refresh(now, node))
            if node.key in self._trees.nodes:
                self._update_replicas(now, node)
        self._carry_out(now, self._shortcuts.withdraw(self._paths.tables))
        self._cache.expire(now)

    def on_ownership_changed(self, now: Nanos) -> None:
        for key, message in list(self._replicas.regions.items()):
            if self._next_hop(*key) is None:
                del self._replicas.regions[key]
                self._carry_out(now, self._trees.take_over(now, key, message.split))
                self._carry_out(now, [Outgoing(peer, TellAgain(message.space)) for peer in message.peers])
        self._move_to_new_hops(now)
        for node in list(self._trees.nodes.values()):
            if self._next_hop(*node.key) is not None:
                self._carry_out(now, self._trees.hand_over(node))
            else:
                self._update_replicas(now, node)

    def _move_to_new_hops(self, now: Nanos) -> None:
        """Pass all entries on to next hops that are new. If this peer owns the root, tell it those that it lacks."""
        for space in list(self._paths.tables):
            table = self._paths.tables.get(space)
            if table is None:
                continue  # a message of this peer to itself has removed the last entry
            hop = self._next_hop(space)
            if hop != table.next_hop:
                self._carry_out(now, self._paths.move(space, hop))
            elif hop is None and self.ring.has_joined:
                unknown = self._trees.renew(now, space, self.me, table.onward_ids)
                self._carry_out(now, self._paths.repeat(space, unknown))

    def _update_replicas(self, now: Nanos, node: SearchNode) -> None:
        self._carry_out(now, self._replicas.update(node, self.ring.replicas(self._settings.tree_replicas)))

    # ---------------------------------------------------------------- events find the leaf

    def on_published(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        if self._observed is not None:
            self._observed.add(event)
        for name in self._spaces.event_spaces(event.attributes):
            space = self._spaces[name]
            code = space.code(space.event_box(event.attributes))
            self._send_down(now, name, event, born_ns, 0)
            self._send_towards_region(now, SeekLeaf(name, code, event, 0, 0, FINDING_TREE, False, 0), born_ns)

    def _send_towards_region(self, now: Nanos, message: SeekLeaf, born_ns: Nanos, sender: PeerId | None = None) -> None:
        """Send an event on towards its first region, or directly to the leaf around it if this peer remembers it."""
        name, event = message.space, message.event
        leaf = None
        if sender is None or (self._users.follow_paths and name):  # else only the publisher's peer uses its cache
            leaf = self._cache.find(now, name, message.code)
        if leaf is None:
            self._send_towards_leaf(now, message, born_ns, sender=sender)
            return
        code, owner = leaf
        last = self.me if self._users.follow_paths else None
        if owner == self.me:
            self._send_towards_leaf(now, SeekLeaf(name, code, event, 0, message.hops, UP, True, 0, last), born_ns)
        else:
            self._send_event(owner, SeekLeaf(name, code, event, now - born_ns, message.hops + 1, UP, True, 1, last))

    def _send_towards_leaf(
        self,
        now: Nanos,
        message: SeekLeaf,
        born_ns: Nanos,
        avoid: tuple[PeerId, ...] = (),
        sender: PeerId | None = None,
    ) -> None:
        """Send an event on towards an active leaf."""
        name, code, event, last = message.space, message.code, message.event, message.last
        state, cached, route_hops = message.state, message.cached, message.route_hops
        space = self._spaces[name]
        while True:
            hop = self.ring.next_hop(space.code_key(code), avoid)
            if hop != self.me:
                if route_hops >= MAX_HOPS:
                    self.drop_circling(event.id, hop)
                    return
                hops = message.hops + 1
                seek = SeekLeaf(name, code, event, now - born_ns, hops, state, False, route_hops + 1, last)
                self._send_event(hop, seek)
                return
            if state == FINDING_TREE and self._users.follow_paths:
                last = self.me if sender is None else sender
            node = self._trees.nodes.get((name, code))
            if node is not None:
                if node.leaf is not None:
                    self._carry_out(
                        now, self._users.inform_of_event(now, node, event, state != FINDING_TREE, last, cached)
                    )
                self._reach_node(now, node, event, born_ns, message.hops, last)
                return
            if not name and not cached:
                self._carry_out(now, self._users.tell_empty_space(event))
            if state == DOWN or not code:
                return  # nobody wants it here
            code, state, cached, route_hops = code[:-1], UP, False, 0

    def _send_event(self, peer: PeerId, message: SeekLeaf) -> None:
        if not message.space and self._spaces.has_detour:
            self._detours += 1
        self.send(peer, message)

    def _reach_node(
        self, now: Nanos, node: SearchNode, event: Event, born_ns: Nanos, hops: int, last: PeerId | None = None
    ) -> None:
        if node.leaf is not None:
            self._match_at_leaf(now, node, event, born_ns, hops)
            return
        name = node.space.name
        for child in node.children_around(event):
            self._send_towards_leaf(now, SeekLeaf(name, child, event, 0, hops, DOWN, False, 0, last), born_ns)

    def _match_at_leaf(self, now: Nanos, node: SearchNode, event: Event, born_ns: Nanos, hops: int) -> None:
        """Send an event from an active leaf back along the paths of the entries that match."""
        name = node.space.name
        if node.leaf is None or not self._forwarded.add((name, node.code, event.id)):
            return
        for peer in node.leaf.matching_peers(event.attributes):
            if peer == self.me:
                self._send_down(now, name, event, born_ns, hops)
            else:
                self.send(peer, DownPath(name, event, now - born_ns, hops + 1), LAST_TRIES)

    # ---------------------------------------------------------------- events follow the paths back

    def _send_down(
        self, now: Nanos, space: SpaceName, event: Event, born_ns: Nanos, hops: int, sender: PeerId | None = None
    ) -> None:
        """Serve the branches of a space here, except that of the sender, which has served its own."""
        table = self._paths.tables.get(space)
        if table is None or not self._forwarded.add((space, event.id)):
            return
        me, chained = self.me, self._chains.leaves
        peers: dict[PeerId, None] = {}
        leaves: dict[NodeKey, None] = {}
        is_mine = False
        for id_, previous in table.matching(event.attributes):
            if previous != me:
                peers[previous] = None
            elif not id_.leaf:
                is_mine = True
            elif id_ in chained:
                leaves[chained[id_]] = None
        if is_mine and event.id.publisher != me:  # the publisher's own subscribers have it already
            self.out.append(DeliverHere(event, born_ns))
        for peer in peers:
            if peer != sender:
                self.send(peer, DownPath(space, event, now - born_ns, hops + 1), LAST_TRIES)
        for key in leaves:
            self._reach_chained_leaf(now, key, event, born_ns, hops)

    def _reach_chained_leaf(self, now: Nanos, key: NodeKey, event: Event, born_ns: Nanos, hops: int) -> None:
        """Match an event at a leaf here that passed an entry on to another space. If the event lies outside the leaf's
        region, another leaf has the entry, too, and serves it."""
        node = self._trees.nodes.get(key)
        if node is not None and node.leaf is None:
            self._reach_node(now, node, event, born_ns, hops)
        elif node is not None and (not node.code or node.meets(event)):
            self._match_at_leaf(now, node, event, born_ns, hops)

    def on_due(self, now: Nanos, name: str) -> None:
        if not self.is_stopping:
            self._carry_out(now, self._users.remind(now, self._trees.nodes.values()))

    # ---------------------------------------------------------------- messages

    def on_heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        kind = type(message)
        if (kind is not DownPath or message.space not in self._paths.tables) and not self._has_region(message):
            self.out.append(Refuse(sender, "invalid-region"))
        elif kind is DownPath:
            self._send_down(
                now, message.space, message.event, self.publication_time_ns(now, sender, message.age_ns), message.hops
            )
        elif kind is SeekLeaf:
            born = self.publication_time_ns(now, sender, message.age_ns)
            if self._observed is not None:
                self._observed.add(message.event)
            if message.state == FINDING_TREE:
                self._send_down(now, message.space, message.event, born, message.hops, sender)
                self._send_towards_region(now, message, born, sender)
            else:
                self._send_towards_leaf(now, message, born)
        elif kind is TreeInfo:
            if self._settings.tree_cache and self._spaces.publishes_in(message.space):
                self._cache.add(now, message.space, message.code, sender)
        else:
            self._handle_interest(now, sender, message)

    def _has_region(self, message: Any) -> bool:
        """Whether the space of a message exists, and the region in it."""
        space = self._spaces.find(message.space)
        return space is not None and space.region(getattr(message, "code", "")) is not None

    def on_undelivered(self, now: Nanos, peer: PeerId, message: Any) -> None:
        match message:
            case SeekLeaf():
                if message.cached:
                    self._cache.discard(message.space, message.code)
                self.out.append(Notice("reroute", peer))
                self._send_towards_leaf(now, message, now - message.age_ns, (peer,))
            case DownPath(event=event):
                self.drop_unreached(event.id, peer)
            case WantInSpace(space) | RenewInSpace(space):
                self._carry_out(now, self._paths.reroute(space, peer, self._next_hop(space, avoid=(peer,))))
            case _ if isinstance(message, Routed):
                if isinstance(message, ToCachedLeaf):
                    self._cache.discard(message.space, message.code)
                self._send_to_owner(now, message, (peer,))


class DmmAr(Interest):
    """`dmm` on a space for each set of attributes that filters require, with attribute roots."""

    needs: ClassVar[Needs] = Dmm.needs
    messages: ClassVar[Any] = DmmMessage
    settings: ClassVar[type[Settings]] = DmmSettings
    hears_anyone: ClassVar[bool] = Dmm.hears_anyone
    knows_all_subscribers: ClassVar[bool] = Dmm.knows_all_subscribers
    durable: ClassVar[bool] = Dmm.durable

    def __init__(self, config: PeerConfig) -> None:
        settings = config.of(DmmSettings)
        self._dmm = Dmm(config, attribute_roots(read_domains(settings.domains)))
        super().__init__(config, self._dmm.table)

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        return self._dmm.handle(now, event, view)

    def status(self) -> dict[str, int]:
        """The same as that of `dmm`."""
        return self._dmm.status()
