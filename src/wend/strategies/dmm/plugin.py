"""Distributed multidimensional matching (dmm): events meet subscriptions at the owners of regions of attribute spaces.

An event belongs to the smallest region around it. It is routed to the peer that owns this region, and from there to the
parent, and so on, until a region is an active leaf of the search tree. The leaf knows the filters that meet its region.
It sends the event back along the paths on which the matching filters came.

`dmm` has one space with all attributes, so everybody has to know them. `dmm-ar` has a space for each set of attributes
that filters require. An event does not know these spaces: it is published in the space of each of its attributes
alone, and the leaves of larger spaces have passed their filters on to one of these (`dmm_subscriptions.py`).

The peer of a publisher remembers where its events found their leaves (TreeCache).
"""

from typing import Any, ClassVar

from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import PeerConfig
from wend.strategies.dmm.messages import DOWN, FINDING_TREE, UP, DmmMessage, DownPath, SeekLeaf, TreeInfo
from wend.strategies.dmm.search_tree import NodeKey, SearchNode, TreeCache
from wend.strategies.dmm.spaces import SpaceName, Spaces, attribute_roots, global_space, read_domains
from wend.strategies.dmm.subscriptions import DmmSettings, SpaceSubscriptions
from wend.strategies.ring.key_based import LAST_TRIES, MOST_HOPS, Seen

CAST = 1024
"""How many events, with the space of each, a peer remembers to have sent on."""
_TREE_BEACON = "tree-beacon"


class Dmm(SpaceSubscriptions):
    """One space with all attributes that have a domain."""

    messages: ClassVar[Any] = DmmMessage

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._cast = Seen(CAST)
        self._cache = TreeCache(self._dmm.tree_expiry_ns)
        self._reminds = False

    def _choose_spaces(self) -> Spaces:
        return global_space(read_domains(self._dmm.domains))

    def status(self) -> dict[str, int]:
        """As of the subscriptions, and the leaves that this peer's publishers use (`cached`)."""
        return {**super().status(), "cached": len(self._cache)}

    # ---------------------------------------------------------------- finding the leaf

    def on_published(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        for name in self._spaces.of_event(event.attributes):
            space = self._spaces[name]
            code = space.code(space.box_of_event(event.attributes))
            self._down(now, name, event, born_ns, 0)
            cached = self._cache.find(now, name, code) if self._dmm.tree_cache else None
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
                if route_hops >= MOST_HOPS:
                    self.drop_circling(event.id, hop)
                    return
                hops = message.hops + 1
                self.send(hop, SeekLeaf(name, code, event, now - born_ns, hops, state, False, route_hops + 1))
                return
            node = self._nodes.get((name, code))
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
            box = node.space.box_of_event(event.attributes)
            for child in node.space.children(node.code) or ():
                if node.space.meets(child, box):
                    self._seek(now, SeekLeaf(name, child, event, 0, hops, DOWN, False, 0), born_ns)
            return
        if self._dmm.tree_cache and self._spaces.publishes_in(name):
            self._inform(now, node, event.id.publisher, cached)
        self._match(now, node, event, born_ns, hops)

    def _match(self, now: Nanos, node: SearchNode, event: Event, born_ns: Nanos, hops: int) -> None:
        """The event has reached an active leaf: it goes back along the paths of the entries that match."""
        name = node.space.name
        if node.leaf is None or not self._cast.add((name, node.code, event.id)):
            return
        for peer in node.leaf.towards(event.attributes):
            if peer == self.me:
                self._down(now, name, event, born_ns, hops)
            else:
                self.send(peer, DownPath(name, event, now - born_ns, hops + 1), LAST_TRIES)

    # ---------------------------------------------------------------- back along the paths

    def _down(
        self, now: Nanos, space: SpaceName, event: Event, born_ns: Nanos, hops: int, sender: PeerId | None = None
    ) -> None:
        """Serve the branches of a space here, but for the sender, which has served its own."""
        paths = self._paths.get(space)
        if paths is None or not self._cast.add((space, event.id)):
            return
        me = self.me
        peers: dict[PeerId, None] = {}
        nodes: dict[NodeKey, None] = {}
        mine = False
        for id_, previous in paths.matching(event.attributes):
            if previous != me:
                peers[previous] = None
            elif not id_.leaf:
                mine = True
            elif id_ in self._chains:
                nodes[self._chains[id_]] = None
        if mine and event.id.publisher != me:  # the publisher's own subscribers have it already
            self.deliver(event, born_ns)
        for peer in peers:
            if peer != sender:
                self.send(peer, DownPath(space, event, now - born_ns, hops + 1), LAST_TRIES)
        for key in nodes:
            self._at_passing_leaf(now, key, event, born_ns, hops)

    def _at_passing_leaf(self, now: Nanos, key: NodeKey, event: Event, born_ns: Nanos, hops: int) -> None:
        """An entry that a leaf here passed on to another space matches. If the event lies outside the leaf's region,
        another leaf has the entry, too, and serves it."""
        node = self._nodes.get(key)
        if node is None:
            return
        if node.leaf is None:
            self._at_node(now, node, event, born_ns, hops)
        elif not node.code or node.space.meets(node.code, node.space.box_of_event(event.attributes)):
            self._match(now, node, event, born_ns, hops)

    # ---------------------------------------------------------------- TreeCache

    def _inform(self, now: Nanos, node: SearchNode, publisher: PeerId, cached: bool) -> None:
        """Tell the publisher's peer of this leaf, unless it knows."""
        node.users[publisher] = now
        if publisher == self.me:
            self._cache.add(now, node.space.name, node.code, self.me)
            return
        if not cached:
            self.send(publisher, TreeInfo(node.space.name, node.code))
        if not self._reminds:
            self._reminds = True
            self.set_timer(now + self._dmm.tree_beacon_ns, _TREE_BEACON)

    def on_due(self, now: Nanos, name: str) -> None:
        """Remind the peers that publish in the leaves here."""
        self._reminds = False
        if self.is_stopping:
            return
        for node in self._nodes.values():
            for peer in node.used(now, self._dmm.tree_expiry_ns) if node.users else ():
                self._reminds = True
                if peer == self.me:
                    self._cache.add(now, node.space.name, node.code, peer)
                else:
                    self.send(peer, TreeInfo(node.space.name, node.code))
        if self._reminds:
            self.set_timer(now + self._dmm.tree_beacon_ns, _TREE_BEACON)

    def on_beacon(self, now: Nanos) -> None:
        super().on_beacon(now)
        self._cache.expire(now)

    # ---------------------------------------------------------------- messages

    def on_heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        kind = type(message)
        if (kind is not DownPath or message.space not in self._paths) and self._space(sender, message) is None:
            return
        if kind is DownPath:
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
            self._told(now, sender, message)

    def on_undelivered(self, now: Nanos, peer: PeerId, message: Any) -> None:
        match message:
            case SeekLeaf():
                if message.cached:
                    self._cache.discard(message.space, message.code)
                self.note_reroute(peer)
                self._seek(now, message, now - message.age_ns, (peer,))
            case DownPath(event=event):
                self.drop_unreached(event.id, peer)
            case _:
                self._lost(now, peer, message)


class DmmAr(Dmm):
    """A space for each set of attributes that filters require, with attribute roots."""

    def _choose_spaces(self) -> Spaces:
        settings: DmmSettings = self._dmm
        return attribute_roots(read_domains(settings.domains), settings.primary == "selective")
