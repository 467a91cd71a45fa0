"""`mrst` and `spt-k`: every event goes on k trees, each copy on its own (quist, section 6.3).

If all subscribers of an event state a reliability target, the event uses only as many trees as the target needs
(`table.py`). With a code rate, large events travel in blocks instead of copies, each block on one tree.

A publisher uses the newest generation of trees on which all its neighbours have announced their interest
(`interest.py`). A copy stays on the tree and generation that it started on; peers keep earlier generations for
such copies. If the link to the next hop is down, the copy waits (`queue.py`). It continues when the link is back,
or on the trees of the next generation, whichever comes first. So a change of trees loses nothing, and the duplicate
filter of each subscriber's peer passes one copy of each event.

With persistence events name their destinations, since durable records do. The trees give the next hop to each
destination, and store-and-forward retries a copy that has none.
"""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

import msgspec

from wend.model.events import Event, EventId, PeerId
from wend.model.settings import Settings, setting
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Arrived,
    Begun,
    Changed,
    Coder,
    CopyKey,
    DeliverySettings,
    Drop,
    Due,
    Failed,
    Forward,
    GiveUp,
    LinkChanged,
    Needs,
    Notice,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Routing,
    Timer,
    View,
    copy_key,
    fork,
    give_up_failed,
)
from wend.strategies.trees.generations import order
from wend.strategies.trees.graph import CHECK_NS, tree_graph
from wend.strategies.trees.interest import TreeTables
from wend.strategies.trees.messages import Generation
from wend.strategies.trees.queue import NOBODY, BlockedCopy, OwnEvent, TreeQueue, Unreached
from wend.strategies.trees.table import TreeInterestTable, fewest_trees

TRIES = 4
"""Transmissions of a copy over a link before the copy waits."""


class TreeRoutingSettings(Settings, frozen=True, kw_only=True):
    """How copies travel on trees."""

    title: ClassVar[str] = "Routing on trees"

    send_once: Annotated[
        bool,
        setting(
            "Whether a peer sends each copy once over each link of a tree, as in the quist thesis: a copy that is lost "
            "or whose next hop is down is dropped for the peers behind. With persistence, it changes nothing."
        ),
    ] = False


class TreeHeader(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The tree that a copy follows."""

    generation: Generation
    tree: int


class TreeRouting(Routing):
    """Forwards each event on several trees. The subclasses choose the trees."""

    header: ClassVar[Any] = TreeHeader
    settings: ClassVar[type[Settings]] = TreeRoutingSettings

    def __init__(self, config: PeerConfig) -> None:
        self._sends_once = config.of(TreeRoutingSettings).send_once
        self._limit = config.of(DeliverySettings).retry_limit
        self._coder = Coder(config)
        self.queue = TreeQueue()
        self._served: Generation | None = None

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Arrived():
                return self._on_arrived(now, event, view)
            case Failed(forward) if view.persistence:
                return [give_up_failed(forward)]
            case Failed(forward):
                return [*self._on_failed(forward, view), *self._send_queued(now, view)]
            case LinkChanged() | Changed("tree-routes"):
                return self._send_queued(now, view)
            case Begun() | Due():
                return [*self._send_queued(now, view), Timer(now + CHECK_NS)]
        return []

    def unfinished(self) -> Iterable[EventId]:
        return self.queue

    def _serving(self, view: View) -> list[TreeInterestTable] | None:
        tables: TreeTables = view.interest.tables
        return tables.serving()

    # ---------------------------------------------------------------- events

    def _on_arrived(self, now: Nanos, packet: Arrived, view: View) -> list[PluginEffect]:
        event, born = packet.event, packet.born_ns
        table = self._find_table(packet.header, view)
        if view.persistence:
            return self._send_by_name(packet, table, view)
        if table is not None:
            return self._send_on_tree(table, event, born, packet.sender, view, packet.dests)
        return self._publish(now, OwnEvent(event, born, needs_one_tree=packet.header is not None), view)

    def _find_table(self, header: TreeHeader | None, view: View) -> TreeInterestTable | None:
        tables: TreeTables = view.interest.tables
        return None if header is None else tables.find(header.generation, header.tree)

    def _publish(self, now: Nanos, own: OwnEvent, view: View) -> list[PluginEffect]:
        """Send the event to the peers on the serving trees that lack it. Queue it while other peers may lack it."""
        effects: list[PluginEffect] = []
        serving = self._serving(view)
        if serving is not None:
            members = serving[0].members
            if len(own.reached) <= 1:
                chosen = serving[:1] if own.needs_one_tree else self._choose_trees(serving, own.event, view, effects)
                effects += self._send_on_each(chosen, own.event, own.born_ns, view)
            elif members - own.reached:
                late = tuple(sorted(members - own.reached))
                effects += self._send_on_tree(serving[0], own.event, own.born_ns, view.me, view, late)
            unreached = self._find_unreached(serving[0], view)
            if not self.queue.is_unsettled(now, own.born_ns, unreached):
                return effects
            own = OwnEvent(own.event, own.born_ns, own.reached | members, own.needs_one_tree)
        else:
            unreached = NOBODY
            effects.append(Notice("queued", view.me))
        return [*effects, *self.queue.add(own, self._limit, unreached)]

    def _send_on_each(
        self, trees: list[TreeInterestTable], event: Event, born: Nanos, view: View
    ) -> list[PluginEffect]:
        """Send a copy on each tree; or, if the event is coded, as many blocks on each tree as on any other."""
        blocks = self._coder.cut(event, view) if len(trees) > 1 else []
        effects: list[PluginEffect] = [Notice("coded", view.me)] if blocks else []
        copies = [(trees[number % len(trees)], block) for number, block in enumerate(blocks)]
        for table, copy in copies or [(table, event) for table in trees]:
            effects += self._send_on_tree(table, copy, born, view.me, view)
        return effects

    def _find_unreached(self, serving: TreeInterestTable, view: View) -> Unreached:
        newest, members = tree_graph(view).newest, serving.members
        neighbours = [peer for peer in view.neighbours if peer not in members and _is_usable(peer, view)]
        return Unreached(tuple(neighbours), newest is not None and newest.generation != serving.generation)

    def _choose_trees(
        self, serving: list[TreeInterestTable], event: Event, view: View, effects: list[PluginEffect]
    ) -> list[TreeInterestTable]:
        """As many trees as the highest reliability target of the subscribers needs, judged by the route costs."""
        worst = [each for table in serving if (each := table.worst_match(event.attributes)) is not None]
        if len(worst) < len(serving):
            return serving  # the interest is changing
        chosen = fewest_trees(tuple(route for _, route in worst), max(need for need, _ in worst))
        if len(chosen) < len(serving):
            effects.append(Notice("trees-spared", view.me, len(serving) - len(chosen)))
        return [serving[tree] for tree in chosen]

    def _send_on_tree(
        self,
        table: TreeInterestTable,
        event: Event,
        born: Nanos,
        sender: PeerId,
        view: View,
        dests: tuple[PeerId, ...] = (),
    ) -> list[PluginEffect]:
        effects: list[PluginEffect] = []
        header = TreeHeader(table.generation, table.tree)
        for peer, share in table.hops(event.attributes, sender, dests):
            if _is_usable(peer, view):
                tries = 1 if self._sends_once else TRIES
                effects.append(Forward(peer, event, born, share, tries=tries, header=header))
            else:
                owed = frozenset(share) or table.peers_behind(peer)
                effects += self._queue_copy(BlockedCopy(event, born, share, owed, header, peer), view)
        return effects

    # ---------------------------------------------------------------- stored events

    def _send_by_name(self, packet: Arrived, table: TreeInterestTable | None, view: View) -> list[PluginEffect]:
        """Send to each named destination. Store-and-forward retries the others.

        Copies on different trees may meet, so each ranks above the one before it (`copy_ranks.py`). A copy that leaves
        its tree gets a higher rank, too. Otherwise each of two peers could drop its copy because of the other's ACK.
        """
        ranks = dict(zip(packet.dests, packet.ranks or (0,) * len(packet.dests), strict=True))
        if table is not None:
            return self._send_on_trees([table], packet, ranks, view, alike=True)
        serving = self._serving(view) or []
        if packet.sender == view.me and not packet.ranks and serving:
            known = tuple(d for d in packet.dests if d in serving[0].members)
            routes = tuple(tree.worst_cost_to(known) for tree in serving)
            chosen = [serving[tree] for tree in fewest_trees(routes, view.interest.table.need(packet.event))]
            spared = len(serving) - len(chosen)
            notices = [Notice("trees-spared", view.me, spared)] if spared else []
            return [*notices, *self._send_on_trees(chosen, packet, ranks, view, alike=True)]
        if packet.sender != view.me:  # store-and-forward has raised the ranks of its own retries
            ranks = {dest: fork(rank, view.me) for dest, rank in ranks.items()}
        return self._send_on_trees(serving, packet, ranks, view, alike=False)

    def _send_on_trees(
        self, trees: list[TreeInterestTable], packet: Arrived, ranks: dict[PeerId, int], view: View, alike: bool
    ) -> list[PluginEffect]:
        """Send on all these trees if `alike`, else on the first that reaches each destination. Give up the rest."""
        event, born = packet.event, packet.born_ns
        effects: list[PluginEffect] = []
        stuck, remaining = dict(ranks), dict(ranks)
        for tree in trees:
            shares: dict[PeerId, list[PeerId]] = {}
            for dest in remaining:
                peer = tree.next_hop_to(dest)
                if peer is not None and peer != packet.sender and _is_usable(peer, view):
                    shares.setdefault(peer, []).append(dest)
                    stuck.pop(dest, None)
            header = TreeHeader(tree.generation, tree.tree)
            for peer, share in sorted(shares.items()):
                theirs = tuple(remaining[dest] for dest in share)
                effects.append(Forward(peer, event, born, tuple(share), ranks=theirs, tries=TRIES, header=header))
            remaining = {dest: fork(rank, view.me) for dest, rank in remaining.items()} if alike else dict(stuck)
        if stuck:
            effects.append(GiveUp(event, born, tuple(stuck), "no-tree", tuple(stuck.values())))
        return effects

    # ---------------------------------------------------------------- queued copies

    def _on_failed(self, forward: Forward, view: View) -> list[PluginEffect]:
        table = self._find_table(forward.header, view)
        behind = frozenset((forward.peer,)) if table is None else table.peers_behind(forward.peer)
        owed = frozenset(forward.dests) or behind
        copy = BlockedCopy(forward.event, forward.born_ns, forward.dests, owed, forward.header, forward.peer)
        return self._queue_copy(copy, view)

    def _queue_copy(self, copy: BlockedCopy, view: View) -> list[PluginEffect]:
        if self._sends_once:
            return [Drop(copy.event.id, tuple(sorted(copy.owed)), "no-answer")]
        return [Notice("queued", view.me), *self.queue.add(copy, self._limit)]

    def _send_queued(self, now: Nanos, view: View) -> list[PluginEffect]:
        """Send queued copies: over the link if it is back, else by name on newer trees that reach the destinations."""
        serving = self._serving(view)
        if serving is not None and serving[0].generation != self._served:
            self._served = serving[0].generation
            self.queue.start_serving(now, serving[0].members)
        if not self.queue.own_events and not self.queue.copies:
            return []
        unreached = NOBODY if serving is None else self._find_unreached(serving[0], view)
        effects: list[PluginEffect] = [*self.queue.expire(now, unreached)]
        own_events, self.queue.own_events = self.queue.own_events, {}
        for own in own_events.values():
            effects += self._publish_again(now, own, serving, unreached, view)
        copies, self.queue.copies = self.queue.copies, []
        moved: dict[CopyKey, tuple[BlockedCopy, frozenset[PeerId]]] = {}
        for copy in copies:
            if copy.header is not None and _is_usable(copy.peer, view):
                effects.append(
                    Forward(copy.peer, copy.event, copy.born_ns, copy.dests, header=copy.header, tries=TRIES)
                )
            elif serving is not None and (
                copy.header is None or order(serving[0].generation) > order(copy.header.generation)
            ):
                key = copy_key(copy.event)
                owed = moved[key][1] if key in moved else frozenset()
                moved[key] = (copy, owed | copy.owed)
            else:
                self.queue.copies.append(copy)
        for copy, owed in moved.values():
            assert serving is not None
            effects += self._move_copy(copy, owed, serving[0], view)
        return effects

    def _publish_again(
        self, now: Nanos, own: OwnEvent, serving: list[TreeInterestTable] | None, unreached: Unreached, view: View
    ) -> list[PluginEffect]:
        reaches_nobody_new = serving is not None and serving[0].members <= own.reached
        if serving is None or (reaches_nobody_new and self.queue.is_unsettled(now, own.born_ns, unreached)):
            return [*self.queue.add(own, self._limit, unreached)]
        return self._publish(now, own, view)

    def _move_copy(
        self, copy: BlockedCopy, owed: frozenset[PeerId], table: TreeInterestTable, view: View
    ) -> list[PluginEffect]:
        """Move a copy to newer trees. It waits for the destinations that are not on them."""
        effects: list[PluginEffect] = []
        there, absent = owed & table.members, owed - table.members
        if there - {view.me}:
            effects += self._send_on_tree(
                table, copy.event, copy.born_ns, view.me, view, tuple(sorted(there - {view.me}))
            )
        if absent:
            waits = BlockedCopy(copy.event, copy.born_ns, tuple(sorted(absent)), absent, None, view.me)
            effects += self.queue.add(waits, self._limit)
        return effects


def _is_usable(peer: PeerId, view: View) -> bool:
    link = view.links.get(peer)
    return link is not None and link.is_up and link.heard_by_neighbour


class MrstRouting(TreeRouting):
    """Routes on k maximum-reliability spanning trees."""

    needs: ClassVar[Needs] = Needs(graphs=("mrst-trees",))


class SptKRouting(TreeRouting):
    """Routes on k shortest-path trees."""

    needs: ClassVar[Needs] = Needs(graphs=("spt-k-trees",))
