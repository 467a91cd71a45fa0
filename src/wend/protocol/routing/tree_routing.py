"""`mrst` and `spt-k`: every event goes on k trees, each copy on its own (quist, section 6.3).

Where all who want an event state a reliability target, it goes on as few of the trees as reach it (`chances.py`).

A publisher uses the newest generation of trees on which it knows what all neighbours want. A copy stays on the tree of
the generation that it began on; the generations before are kept for it. A copy that cannot go on, because the link to
the next peer is down, is held (`held.py`): it goes on when the link is back, or on the trees of the next generation,
whichever comes first. So nothing is lost in the change, and the window of each subscriber's peer lets one copy of each
event through.

With persistency events go by name instead, since a duty names who is to get the event: the trees say over which
neighbour each is reached, and what cannot go on waits with the keeper (`custody.py`).
"""

from collections.abc import Iterable
from typing import ClassVar

from wend.model.events import Event, EventId, PeerId
from wend.model.units import MS, Nanos
from wend.protocol.config import DeliverySettings
from wend.protocol.copy_ranks import fork
from wend.protocol.interest.trees import TreeInterestTable
from wend.protocol.messages import TreeLabel
from wend.protocol.plugins import (
    Alarm,
    Arrived,
    Changed,
    Due,
    Failed,
    Forward,
    GiveUp,
    Heard,
    LinkChanged,
    PluginEffect,
    PluginInput,
    Routing,
    Tell,
    Traits,
    View,
    unanswered,
)
from wend.protocol.ports import Notice, Refuse
from wend.protocol.routing.tree_queue import NOBODY, BlockedCopy, OwnEvent, TreeQueue, Unreached
from wend.protocol.trees.generations import TreeSets, TreeSettings, order
from wend.protocol.trees.messages import Generation, SequencedMessage, SubtreeInterest
from wend.protocol.trees.reliability import fewest
from wend.protocol.trees.sptk import cost

LOOK_NS: Nanos = 500 * MS
TRIES = 4
"""Transmissions of a copy over a link before it waits."""
GENERATIONS = 3
"""How many serve: the newest, and those that copies may still be on."""
EARLY = 256
"""What neighbours said of generations that do not stand here yet."""


class TreeRouting(Routing):
    traits: ClassVar[Traits] = Traits(
        probes=True, hop_by_hop=True, settings=frozenset({"trees", "covering", "reliability"})
    )
    kind: ClassVar[str]

    def __init__(self) -> None:
        self._tree_sets: TreeSets | None = None
        self._tables: dict[Generation, list[TreeInterestTable]] = {}
        self._early: dict[tuple[Generation, int, PeerId], SubtreeInterest] = {}
        self.held = TreeQueue()
        self._served: Generation | None = None
        self._looks = False

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Arrived():
                return self._arrived(now, event, view)
            case Failed(forward) if view.config.of(DeliverySettings).persistency:
                return [unanswered(forward)]
            case Failed(forward):
                return [*self._failed(forward, view), *self._go_on(now, view)]
            case Heard(sender, SequencedMessage() as step):
                built = self._its_tree_sets(view).hear(now, sender, step, view)
                return [*built, *self._stand(now, view), *self._look(now, view)]
            case Heard(sender, SubtreeInterest() as wants):
                return self._wanted(now, sender, wants, view)
            case LinkChanged(peer, up, _, restarted):
                if restarted:
                    self._its_tree_sets(view).restarted(now, peer)
                again = self._tell_again(peer, view) if up else []
                return [*again, *self._look(now, view), *self._go_on(now, view)]
            case Changed():
                return [*self._tell(view), *self._look(now, view)]
            case Due():
                self._looks = False
                return [*self._look(now, view), *self._go_on(now, view)]
        return []

    @property
    def serving(self) -> tuple[Generation, tuple[tuple[PeerId, ...], ...]] | None:
        """The generation that events from here go on, and this peer's neighbours on each of its trees."""
        tables = self._serving()
        return None if tables is None else (tables[0].generation, tuple(table.neighbours for table in tables))

    def standing(self) -> dict[str, int]:
        """The generation that serves, its caller, the life it called in; `trees.0.5` where tree 0 leads to peer 5."""
        serving = self.serving
        if serving is None:
            return {}
        (number, caller, life), trees = serving
        ways = {f"trees.{tree}.{peer}": 1 for tree, peers in enumerate(trees) for peer in peers}
        return {"trees.generation": number, "trees.caller": caller, "trees.life": life, **ways}

    def answered_for(self) -> Iterable[EventId]:
        return self.held

    def _its_tree_sets(self, view: View) -> TreeSets:
        if self._tree_sets is None:
            self._tree_sets = TreeSets(
                self.kind, view.config.of(TreeSettings).trees, view.config.of(TreeSettings).failure_probability
            )
        return self._tree_sets

    # ---------------------------------------------------------------- trees come and go

    def _look(self, now: Nanos, view: View) -> list[PluginEffect]:
        effects = [*self._its_tree_sets(view).look(now, view), *self._stand(now, view)]
        if not self._looks:
            self._looks = True
            effects.append(Alarm(now + LOOK_NS))
        return effects

    def _stand(self, now: Nanos, view: View) -> list[PluginEffect]:
        """A generation whose trees all stand gets its tables."""
        newest = self._its_tree_sets(view).newest
        if newest is None or not newest.trees or newest.generation in self._tables:
            return []
        generation = newest.generation
        self._tables[generation] = [
            TreeInterestTable(
                view.me, generation, tree, newest.edges(tree), cost(view.config.of(TreeSettings).failure_probability)
            )
            for tree in range(len(newest.trees))
        ]
        for old in sorted(self._tables, key=order)[:-GENERATIONS]:
            del self._tables[old]
        early, self._early = self._early, {}
        effects: list[PluginEffect] = []
        for (of, tree, sender), wants in early.items():
            if of == generation:
                effects += self._wanted(now, sender, wants, view)
            elif order(of) > order(generation):
                self._early[of, tree, sender] = wants
        return [*effects, *self._tell(view), *self._go_on(now, view)]

    def _tell(self, view: View) -> list[PluginEffect]:
        mine = {} if view.config.of(DeliverySettings).persistency else view.interest.filters
        effects: list[PluginEffect] = []
        for table in (table for _, tables in sorted(self._tables.items()) for table in tables):
            for peer, wants in table.tell(mine, view.config.of(TreeSettings).covering):
                effects.append(Tell(peer, _slot(wants), wants))
                if table.wide[peer]:
                    effects.append(Notice("widened", peer))
        return effects

    def _tell_again(self, peer: PeerId, view: View) -> list[PluginEffect]:
        """It may have missed what it was told."""
        return [
            Tell(peer, _slot(wants), wants)
            for _, tables in sorted(self._tables.items())
            for table in tables
            for wants in table.again(peer)
        ]

    def _wanted(self, now: Nanos, sender: PeerId, wants: SubtreeInterest, view: View) -> list[PluginEffect]:
        tables = self._tables.get(wants.generation)
        if tables is None:
            newest = self._its_tree_sets(view).newest
            if newest is None or order(wants.generation) >= order(newest.generation):
                key = (wants.generation, wants.tree, sender)
                known = self._early.get(key)
                if known is not None and known.version >= wants.version:
                    return []
                if known is None and len(self._early) >= EARLY:
                    return [Notice("too-early", sender)]
                self._early[key] = wants
            return []
        news = tables[wants.tree].hear(sender, wants) if 0 <= wants.tree < len(tables) else None
        if news is None:
            return [Refuse(sender, "wants that cannot be")]
        return [*self._tell(view), *self._go_on(now, view)] if news else []

    def _serving(self) -> list[TreeInterestTable] | None:
        """The newest generation on which all neighbours have told what they want."""
        ready = [g for g, tables in self._tables.items() if all(table.ready for table in tables)]
        return self._tables[max(ready, key=order)] if ready else None

    # ---------------------------------------------------------------- events

    def _arrived(self, now: Nanos, packet: Arrived, view: View) -> list[PluginEffect]:
        event, born = packet.event, packet.born_ns
        table = self._table(packet.lane)
        if view.config.of(DeliverySettings).persistency:
            return self._by_name(packet, table, view)
        if table is not None:
            return self._send(table, event, born, packet.sender, view, packet.dests)
        return self._publish(now, OwnEvent(event, born, once=packet.lane is not None), view)

    def _table(self, lane: TreeLabel | None) -> TreeInterestTable | None:
        if lane is None:
            return None
        *_, tree = lane
        tables = self._tables.get(lane[:3], [])
        return tables[tree] if 0 <= tree < len(tables) else None

    def _publish(self, now: Nanos, mine: OwnEvent, view: View) -> list[PluginEffect]:
        """To all whom it has not reached and the trees that serve do; held, while there may be others."""
        effects: list[PluginEffect] = []
        serving = self._serving()
        if serving is not None:
            members = serving[0].members
            if len(mine.reached) <= 1:
                for table in serving[:1] if mine.once else self._enough(serving, mine.event, view, effects):
                    effects += self._send(table, mine.event, mine.born_ns, view.me, view)
            elif members - mine.reached:
                late = tuple(sorted(members - mine.reached))
                effects += self._send(serving[0], mine.event, mine.born_ns, view.me, view, late)
            others = self._others(serving[0], view)
            if not self.held.unsettled(now, mine.born_ns, others):
                return effects
            mine = OwnEvent(mine.event, mine.born_ns, mine.reached | members, mine.once)
        else:
            others = NOBODY
            effects.append(Notice("held", view.me))
        return [*effects, *self.held.hold(mine, view.config.of(DeliverySettings).retry_limit, others)]

    def _others(self, serving: TreeInterestTable, view: View) -> Unreached:
        newest, members = self._its_tree_sets(view).newest, serving.members
        beside = [peer for peer in view.neighbours if peer not in members and _works(peer, view)]
        return Unreached(tuple(beside), newest is not None and newest.generation != serving.generation)

    def _enough(
        self, serving: list[TreeInterestTable], event: Event, view: View, effects: list[PluginEffect]
    ) -> list[TreeInterestTable]:
        """As many trees as the highest target among those who want it needs, by what is known of the ways to them."""
        worst = [found for table in serving if (found := table.worst(event.attributes)) is not None]
        if len(worst) < len(serving):
            return serving  # what is wanted changes just now
        chosen = fewest(tuple(way for _, way in worst), max(need for need, _ in worst))
        if len(chosen) < len(serving):
            effects.append(Notice("trees-spared", view.me, len(serving) - len(chosen)))
        return [serving[tree] for tree in chosen]

    def _send(
        self,
        table: TreeInterestTable,
        event: Event,
        born: Nanos,
        sender: PeerId,
        view: View,
        dests: tuple[PeerId, ...] = (),
    ) -> list[PluginEffect]:
        effects: list[PluginEffect] = []
        lane: TreeLabel = (*table.generation, table.tree)
        for peer, share in table.hops(event.attributes, sender, dests):
            if _works(peer, view):
                effects.append(Forward(peer, event, born, share, tries=TRIES, lane=lane))
            else:
                owed = frozenset(share) or table.behind(peer)
                effects += self._hold(BlockedCopy(event, born, share, owed, lane, peer), view)
        return effects

    # ---------------------------------------------------------------- events that are kept

    def _by_name(self, packet: Arrived, table: TreeInterestTable | None, view: View) -> list[PluginEffect]:
        """To each that is named. What cannot go on is the keeper's, who comes again with it.

        Copies on different trees may cross, so each ranks above the one before it (`copies.py`), and one that leaves
        its tree above what it was: else two peers could each take the other's ACK for the end of its duty.
        """
        ranks = dict(zip(packet.dests, packet.ranks or (0,) * len(packet.dests), strict=True))
        if table is not None:
            return self._share([table], packet, ranks, view, alike=True)
        serving = self._serving() or []
        if packet.sender == view.me and not packet.ranks and serving:
            known = tuple(d for d in packet.dests if d in serving[0].members)
            ways = tuple(tree.worst_to(known) for tree in serving)
            chosen = [serving[tree] for tree in fewest(ways, view.interest.need(packet.event))]
            spared = len(serving) - len(chosen)
            notices = [Notice("trees-spared", view.me, spared)] if spared else []
            return [*notices, *self._share(chosen, packet, ranks, view, alike=True)]
        if packet.sender != view.me:  # the keeper has seen to it where it comes from here
            ranks = {dest: fork(rank, view.me) for dest, rank in ranks.items()}
        return self._share(serving, packet, ranks, view, alike=False)

    def _share(
        self, trees: list[TreeInterestTable], packet: Arrived, ranks: dict[PeerId, int], view: View, alike: bool
    ) -> list[PluginEffect]:
        """On all these trees alike, or on the first that leads to somebody; given up where none does."""
        event, born = packet.event, packet.born_ns
        effects: list[PluginEffect] = []
        stuck, left = dict(ranks), dict(ranks)
        for tree in trees:
            shares: dict[PeerId, list[PeerId]] = {}
            for dest in left:
                peer = tree.toward(dest)
                if peer is not None and peer != packet.sender and _works(peer, view):
                    shares.setdefault(peer, []).append(dest)
                    stuck.pop(dest, None)
            lane: TreeLabel = (*tree.generation, tree.tree)
            for peer, share in sorted(shares.items()):
                theirs = tuple(left[dest] for dest in share)
                effects.append(Forward(peer, event, born, tuple(share), ranks=theirs, tries=TRIES, lane=lane))
            left = {dest: fork(rank, view.me) for dest, rank in left.items()} if alike else dict(stuck)
        if stuck:
            effects.append(GiveUp(event, born, tuple(stuck), "no tree leads there", tuple(stuck.values())))
        return effects

    # ---------------------------------------------------------------- what waits

    def _failed(self, forward: Forward, view: View) -> list[PluginEffect]:
        table = self._table(forward.lane)
        behind = frozenset((forward.peer,)) if table is None else table.behind(forward.peer)
        owed = frozenset(forward.dests) or behind
        copy = BlockedCopy(forward.event, forward.born_ns, forward.dests, owed, forward.lane, forward.peer)
        return self._hold(copy, view)

    def _hold(self, copy: BlockedCopy, view: View) -> list[PluginEffect]:
        return [Notice("held", view.me), *self.held.hold(copy, view.config.of(DeliverySettings).retry_limit)]

    def _go_on(self, now: Nanos, view: View) -> list[PluginEffect]:
        """Over the link, if it is back; by name on newer trees, once they serve and reach whom it is owed."""
        serving = self._serving()
        if serving is not None and serving[0].generation != self._served:
            self._served = serving[0].generation
            self.held.serves(now, serving[0].members)
        if not self.held.mine and not self.held.copies:
            return []
        others = NOBODY if serving is None else self._others(serving[0], view)
        effects: list[PluginEffect] = [*self.held.expire(now, others)]
        mine, self.held.mine = self.held.mine, {}
        for one in mine.values():
            effects += self._again(now, one, serving, others, view)
        copies, self.held.copies = self.held.copies, []
        moved: dict[EventId, tuple[BlockedCopy, frozenset[PeerId]]] = {}
        for copy in copies:
            if copy.lane is not None and _works(copy.peer, view):
                effects.append(Forward(copy.peer, copy.event, copy.born_ns, copy.dests, tries=TRIES, lane=copy.lane))
            elif serving is not None and (copy.lane is None or order(serving[0].generation) > order(copy.lane[:3])):
                owed = moved[copy.event.id][1] if copy.event.id in moved else frozenset()
                moved[copy.event.id] = (copy, owed | copy.owed)
            else:
                self.held.copies.append(copy)
        for copy, owed in moved.values():
            assert serving is not None
            effects += self._move(copy, owed, serving[0], view)
        return effects

    def _again(
        self, now: Nanos, mine: OwnEvent, serving: list[TreeInterestTable] | None, others: Unreached, view: View
    ) -> list[PluginEffect]:
        if serving is None or (serving[0].members <= mine.reached and self.held.unsettled(now, mine.born_ns, others)):
            return [*self.held.hold(mine, view.config.of(DeliverySettings).retry_limit, others)]
        return self._publish(now, mine, view)

    def _move(
        self, copy: BlockedCopy, owed: frozenset[PeerId], table: TreeInterestTable, view: View
    ) -> list[PluginEffect]:
        """To other trees: those who are on them get it there, the others have to wait."""
        effects: list[PluginEffect] = []
        there, absent = owed & table.members, owed - table.members
        if there - {view.me}:
            effects += self._send(table, copy.event, copy.born_ns, view.me, view, tuple(sorted(there - {view.me})))
        if absent:
            waits = BlockedCopy(copy.event, copy.born_ns, tuple(sorted(absent)), absent, None, view.me)
            effects += self.held.hold(waits, view.config.of(DeliverySettings).retry_limit)
        return effects


def _works(peer: PeerId, view: View) -> bool:
    link = view.links.get(peer)
    return link is not None and link.up and link.heard_by_neighbour


def _slot(wants: SubtreeInterest) -> tuple[str, PeerId]:
    number, caller, life = wants.generation
    return f"w{number}.{life}.{wants.tree}", caller


class MrstRouting(TreeRouting):
    """On k maximum-reliability spanning trees."""

    kind: ClassVar[str] = "mrst"


class SptKRouting(TreeRouting):
    """On k shortest-path trees."""

    kind: ClassVar[str] = "spt-k"
