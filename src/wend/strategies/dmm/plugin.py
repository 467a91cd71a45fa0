"""Distributed multidimensional matching (dmm): events meet subscriptions at the owners of regions of attribute spaces.

Entries of subscriptions travel to the root region of their space (`paths.py`), and from there to the active leaves of
its search tree (`search_trees.py`). An event belongs to the smallest region around it. It is routed to the peer that
owns this region, and from there to the parent, and so on, until a region is an active leaf. The leaf knows the filters
that meet its region. It sends the event back along the paths on which the matching filters came.

`dmm` has one space with all attributes, so all peers have to know them. `dmm-ar` has a space for each set of attributes
that filters require. A publisher does not know these sets: it publishes an event in the space of each single attribute,
and the leaves of larger spaces have passed their filters on to one of these.

The peer of a publisher remembers where its events found their leaves (`cache.py`). If the owner of a region fails, a
replica takes over.
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
from wend.strategies.dmm.cache import TreeCache
from wend.strategies.dmm.messages import (
    DOWN,
    FINDING_TREE,
    UP,
    ChildActive,
    DmmMessage,
    DownPath,
    FromLeaves,
    GrowNode,
    LeafBranches,
    RenewInSpace,
    Reply,
    Routed,
    SeekLeaf,
    TellAgain,
    ToLeaves,
    TreeInfo,
    UnknownInSpace,
    UnwantInSpace,
    WantInSpace,
)
from wend.strategies.dmm.paths import SpacePaths
from wend.strategies.dmm.search_trees import Chains, NodeKey, SearchNode, SearchTrees, SpaceReplicas
from wend.strategies.dmm.settings import DmmSettings
from wend.strategies.dmm.spaces import SpaceName, Spaces, attribute_roots, global_space, read_domains
from wend.strategies.ring.bounded import Seen
from wend.strategies.ring.key_based import LAST_TRIES, MAX_HOPS, Entry, KeyBasedInterest
from wend.strategies.ring.reverse_paths import Outgoing

CAST = 1024
"""How many pairs of an event and a space a peer remembers, to send the event on once."""
_TREE_BEACON = "tree-beacon"


class Dmm(KeyBasedInterest):
    """Matches events with subscriptions in attribute spaces: one for all attributes, unless there are others given."""

    messages: ClassVar[Any] = DmmMessage
    settings: ClassVar[type[Settings]] = DmmSettings

    def __init__(self, config: PeerConfig, spaces: Spaces | None = None) -> None:
        super().__init__(config)
        self._settings = settings = config.of(DmmSettings)
        self._spaces = global_space(read_domains(settings.domains)) if spaces is None else spaces
        self._paths = SpacePaths(self.me, settings.expiry_ns)
        self._chains = Chains(self.me, self._spaces)
        self._trees = SearchTrees(self._spaces, self._chains, settings.delegation, settings.expiry_ns)
        self._replicas = SpaceReplicas()
        self._cache = TreeCache(settings.tree_expiry_ns)
        self._cast = Seen(CAST)
        self._reminds = False
        """Whether the timer is set to remind publishers of leaves."""

    def status(self) -> dict[str, int]:
        """`nodes` of search trees that this peer owns, entries in them (`leaf`), entries on their way through here to
        search trees (`tree`) and the `spaces` to which they go, regions of which this peer is a replica (`replicated`),
        and leaves that its publishers use (`cached`)."""
        leaves = [node.leaf for node in self._trees.nodes.values() if node.leaf is not None]
        return {
            "nodes": len(self._trees.nodes),
            "leaf": sum(map(len, leaves)),
            "tree": sum(map(len, self._paths.tables.values())),
            "spaces": len(self._paths.tables),
            "replicated": len(self._replicas.regions),
            "cached": len(self._cache),
        }

    # ---------------------------------------------------------------- subscriptions

    def on_subscribed(self, now: Nanos, entry: Entry, filter_: Filter) -> None:
        self._hear(now, self.me, WantInSpace(self._spaces.home(filter_), (entry,)))

    def on_unsubscribed(self, now: Nanos, entry: Entry, filter_: Filter) -> None:
        self._hear(now, self.me, UnwantInSpace(self._spaces.home(filter_), (entry,)))

    def _hear(self, now: Nanos, sender: PeerId, message: Any) -> None:
        """Handle a message about subscriptions, from another peer or from a part of this one."""
        match message:
            case WantInSpace(space, entries):
                hop = self._hop(space)
                self._say(now, self._paths.hear(now, space, hop, sender, entries, self.ring.joined))
            case RenewInSpace(space, ids):
                unknown = self._trees.renew(now, space, sender, self._paths.renew(now, space, sender, ids))
                if unknown:
                    self.send(sender, UnknownInSpace(space, tuple(unknown)))
            case UnknownInSpace(space, ids):
                self._say(now, self._paths.on_unknown(space, sender, ids))
            case UnwantInSpace(space, entries):
                self._say(now, self._paths.remove(space, sender, [entry.id for entry in entries]))
                if sender != self.me:
                    self._say(now, self._trees.handle(now, FromLeaves(space, "", sender, entries)))
            case ToLeaves() | FromLeaves() | GrowNode() | ChildActive():
                self._route(now, message)
            case LeafBranches():
                self._replicas.learn(message)
            case TellAgain(space) if space in self._paths.tables:
                hop = self._hop(space)
                is_new = hop != self._paths.tables[space].next_hop
                self._say(now, self._paths.move(space, hop) if is_new else self._paths.repeat(space))

    def _say(self, now: Nanos, replies: Iterable[Reply]) -> None:
        """Send the messages of a part. This peer handles those for itself at once."""
        for reply in replies:
            if isinstance(reply, Refuse):
                self.out.append(reply)
            elif not isinstance(reply, Outgoing):
                self._route(now, reply)
            elif reply.peer != self.me:
                self.send(reply.peer, reply.message)
            elif isinstance(reply.message, ToLeaves | FromLeaves):
                self._say(now, self._trees.handle(now, reply.message))
            else:
                self._hear(now, self.me, reply.message)

    def _hop(self, space: SpaceName, code: str = "", avoid: Iterable[PeerId] = ()) -> PeerId | None:
        """The next hop towards a region; None if this peer owns it."""
        hop = self.ring.next_hop(self._spaces[space].key(code), avoid)
        return None if hop == self.me else hop

    def _route(self, now: Nanos, message: Routed, avoid: Iterable[PeerId] = ()) -> None:
        """Send a message on to the peer that owns its region."""
        hop = self._hop(message.space, message.code, avoid)
        if hop is None:
            self._say(now, self._trees.handle(now, message))
        elif message.route_hops < MAX_HOPS:
            self.send(hop, msgspec.structs.replace(message, route_hops=message.route_hops + 1))

    # ---------------------------------------------------------------- soft state

    def on_beacon(self, now: Nanos) -> None:
        self._say(now, self._paths.leave_former_hops())
        for space in list(self._paths.tables):
            self._say(now, self._paths.expire(now, space))
        self._follow_hops(now)
        for space in self._paths.tables:
            self._say(now, self._paths.renewals(space))
        for node in list(self._trees.nodes.values()):
            self._say(now, self._trees.refresh(now, node))
            if node.key in self._trees.nodes:
                self._replicate(now, node)
        self._cache.expire(now)

    def on_ownership_changed(self, now: Nanos) -> None:
        for key, message in list(self._replicas.regions.items()):
            if self._hop(*key) is None:
                del self._replicas.regions[key]
                self._say(now, self._trees.take_over(now, key, message.split))
                self._say(now, [Outgoing(peer, TellAgain(message.space)) for peer in message.peers])
        self._follow_hops(now)
        for node in list(self._trees.nodes.values()):
            if self._hop(*node.key) is not None:
                self._say(now, self._trees.hand_over(node))
            else:
                self._replicate(now, node)

    def _follow_hops(self, now: Nanos) -> None:
        """Pass all entries on to next hops that are new. If this peer owns the root, tell it those that it lacks."""
        for space in list(self._paths.tables):
            table = self._paths.tables.get(space)
            if table is None:
                continue  # a message of this peer to itself has removed the last entry
            hop = self._hop(space)
            if hop != table.next_hop:
                self._say(now, self._paths.move(space, hop))
            elif hop is None and self.ring.joined:
                unknown = self._trees.renew(now, space, self.me, table.onward_ids)
                self._say(now, self._paths.repeat(space, unknown))

    def _replicate(self, now: Nanos, node: SearchNode) -> None:
        self._say(now, self._replicas.tell(node, self.ring.replicas(self._settings.tree_replicas)))

    # ---------------------------------------------------------------- events find the leaf

    def on_published(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        for name in self._spaces.of_event(event.attributes):
            space = self._spaces[name]
            code = space.code(space.box_of_event(event.attributes))
            self._down(now, name, event, born_ns, 0)
            cached = self._cache.find(now, name, code) if self._settings.tree_cache else None
            if cached is None:
                self._seek(now, SeekLeaf(name, code, event, 0, 0, FINDING_TREE, False, 0), born_ns)
            elif cached[1] == self.me:
                self._seek(now, SeekLeaf(name, cached[0], event, 0, 0, UP, True, 0), born_ns)
            else:
                self.send(cached[1], SeekLeaf(name, cached[0], event, now - born_ns, 1, UP, True, 1))

    def _seek(self, now: Nanos, message: SeekLeaf, born_ns: Nanos, avoid: tuple[PeerId, ...] = ()) -> None:
        """Send an event on towards an active leaf."""
        name, code, event = message.space, message.code, message.event
        state, cached, route_hops = message.state, message.cached, message.route_hops
        space = self._spaces[name]
        while True:
            hop = self.ring.next_hop(space.key(code), avoid)
            if hop != self.me:
                if route_hops >= MAX_HOPS:
                    self.drop_circling(event.id, hop)
                    return
                hops = message.hops + 1
                self.send(hop, SeekLeaf(name, code, event, now - born_ns, hops, state, False, route_hops + 1))
                return
            node = self._trees.nodes.get((name, code))
            if node is not None:
                self._at_node(now, node, event, born_ns, message.hops, cached)
                return
            if state == DOWN or not code:
                return  # nobody wants it here
            code, state, cached, route_hops = code[:-1], UP, False, 0

    def _at_node(
        self, now: Nanos, node: SearchNode, event: Event, born_ns: Nanos, hops: int, cached: bool = False
    ) -> None:
        name = node.space.name
        if node.leaf is None:
            for child in node.children_around(event):
                self._seek(now, SeekLeaf(name, child, event, 0, hops, DOWN, False, 0), born_ns)
            return
        if self._settings.tree_cache and self._spaces.publishes_in(name):
            self._inform(now, node, event.id.publisher, cached)
        self._match(now, node, event, born_ns, hops)

    def _match(self, now: Nanos, node: SearchNode, event: Event, born_ns: Nanos, hops: int) -> None:
        """Send an event from an active leaf back along the paths of the entries that match."""
        name = node.space.name
        if node.leaf is None or not self._cast.add((name, node.code, event.id)):
            return
        for peer in node.leaf.towards(event.attributes):
            if peer == self.me:
                self._down(now, name, event, born_ns, hops)
            else:
                self.send(peer, DownPath(name, event, now - born_ns, hops + 1), LAST_TRIES)

    # ---------------------------------------------------------------- events follow the paths back

    def _down(
        self, now: Nanos, space: SpaceName, event: Event, born_ns: Nanos, hops: int, sender: PeerId | None = None
    ) -> None:
        """Serve the branches of a space here, except that of the sender, which has served its own."""
        table = self._paths.tables.get(space)
        if table is None or not self._cast.add((space, event.id)):
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
            self._at_chained_leaf(now, key, event, born_ns, hops)

    def _at_chained_leaf(self, now: Nanos, key: NodeKey, event: Event, born_ns: Nanos, hops: int) -> None:
        """Match an event at a leaf here that passed an entry on to another space. If the event lies outside the leaf's
        region, another leaf has the entry, too, and serves it."""
        node = self._trees.nodes.get(key)
        if node is not None and node.leaf is None:
            self._at_node(now, node, event, born_ns, hops)
        elif node is not None and (not node.code or node.meets(event)):
            self._match(now, node, event, born_ns, hops)

    # ---------------------------------------------------------------- the cache of publishers

    def _inform(self, now: Nanos, node: SearchNode, publisher: PeerId, cached: bool) -> None:
        """Tell the publisher's peer of this leaf, unless it knows the leaf."""
        node.users[publisher] = now
        if publisher == self.me or not cached:
            self._tell_leaf(now, node, publisher)
        if publisher != self.me and not self._reminds:
            self._reminds = True
            self.out.append(Timer(now + self._settings.tree_beacon_ns, _TREE_BEACON))

    def _tell_leaf(self, now: Nanos, node: SearchNode, publisher: PeerId) -> None:
        if publisher == self.me:
            self._cache.add(now, node.space.name, node.code, publisher)
        else:
            self.send(publisher, TreeInfo(node.space.name, node.code))

    def on_due(self, now: Nanos, name: str) -> None:
        """Remind the peers that publish in the leaves here."""
        self._reminds = False
        if self.is_stopping:
            return
        for node, peer in self._cache.users_of(now, self._trees.nodes.values()):
            self._reminds = True
            self._tell_leaf(now, node, peer)
        if self._reminds:
            self.out.append(Timer(now + self._settings.tree_beacon_ns, _TREE_BEACON))

    # ---------------------------------------------------------------- messages

    def on_heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        kind = type(message)
        if (kind is not DownPath or message.space not in self._paths.tables) and not self._has_region(message):
            self.out.append(Refuse(sender, "invalid-region"))
        elif kind is DownPath:
            self._down(now, message.space, message.event, self.born_ns_of(now, sender, message.age_ns), message.hops)
        elif kind is SeekLeaf:
            born = self.born_ns_of(now, sender, message.age_ns)
            if message.state == FINDING_TREE:
                self._down(now, message.space, message.event, born, message.hops, sender)
            self._seek(now, message, born)
        elif kind is TreeInfo:
            if self._spaces.publishes_in(message.space):
                self._cache.add(now, message.space, message.code, sender)
        else:
            self._hear(now, sender, message)

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
                self._seek(now, message, now - message.age_ns, (peer,))
            case DownPath(event=event):
                self.drop_unreached(event.id, peer)
            case WantInSpace(space) | RenewInSpace(space):
                self._say(now, self._paths.reroute(space, peer, self._hop(space, avoid=(peer,))))
            case ToLeaves() | FromLeaves() | GrowNode() | ChildActive():
                self._route(now, message, (peer,))


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
