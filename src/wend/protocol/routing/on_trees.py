"""`mrst` and `spt-k`: every event goes on all k trees, each copy on its own (quist, section 6.3).

A publisher uses the newest generation of trees on which it knows what all neighbours want. A copy stays on the tree of
the generation that it began on; the generations before are kept for it. A copy that cannot go on, because the link to
the next peer is down, waits here: it goes on when the link is back, or on the trees of the next generation, whichever
comes first. So nothing is lost in the change, and the window of each subscriber's peer lets one copy of each event
through.
"""

from typing import ClassVar

from wend.model.events import Event, PeerId
from wend.model.units import MS, Nanos
from wend.protocol.interest.trees import Table
from wend.protocol.messages import Lane
from wend.protocol.plugins import (
    Alarm,
    Arrived,
    Changed,
    Due,
    Failed,
    Forward,
    Heard,
    LinkChanged,
    PluginEffect,
    PluginInput,
    Tell,
    View,
)
from wend.protocol.ports import Drop, Notice, Refuse
from wend.protocol.promises import Promises
from wend.protocol.trees.grove import Grove, order
from wend.protocol.trees.words import Generation, Step, Wants

LOOK_NS: Nanos = 500 * MS
TRIES = 4
"""Transmissions of a copy over a link before it waits."""
GENERATIONS = 3
"""How many serve: the newest, and those that copies may still be on."""
EARLY = 256
"""What neighbours said of generations that do not stand here yet."""
Waiting = tuple[Event, Nanos, Lane | None, PeerId]
"""An event, when it was born, where it was to go; a lane of None stands for all trees."""


class OnTrees:
    probes: ClassVar[bool] = True
    hop_by_hop: ClassVar[bool] = True
    traces: ClassVar[bool] = False
    promises: ClassVar[Promises] = Promises(once_healed=())
    kind: ClassVar[str]

    def __init__(self) -> None:
        self._grove: Grove | None = None
        self._tables: dict[Generation, list[Table]] = {}
        self._early: dict[tuple[Generation, int, PeerId], Wants] = {}
        self._waiting: list[Waiting] = []
        self._looks = False

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Arrived():
                return self._arrived(event, view)
            case Failed(forward):
                effects: list[PluginEffect] = []
                self._wait((forward.event, forward.born_ns, forward.lane, forward.peer), view, effects)
                return [*effects, *self._go_on(view)]
            case Heard(sender, Step() as step):
                built = self._its_grove(view).hear(now, sender, step, view)
                return [*built, *self._stand(view), *self._look(now, view)]
            case Heard(sender, Wants() as wants):
                return self._wanted(sender, wants, view)
            case LinkChanged(peer, up, _, reborn):
                if reborn:
                    self._its_grove(view).reborn(now, peer)
                again = self._tell_again(peer, view) if up else []
                return [*again, *self._look(now, view), *self._go_on(view)]
            case Changed():
                return [*self._tell(view), *self._look(now, view)]
            case Due():
                self._looks = False
                return [*self._look(now, view), *self._go_on(view)]
        return []

    def _its_grove(self, view: View) -> Grove:
        if self._grove is None:
            self._grove = Grove(self.kind, view.config.trees, view.config.fails)
        return self._grove

    # ---------------------------------------------------------------- trees come and go

    def _look(self, now: Nanos, view: View) -> list[PluginEffect]:
        effects = [*self._its_grove(view).look(now, view), *self._stand(view)]
        if not self._looks:
            self._looks = True
            effects.append(Alarm(now + LOOK_NS))
        return effects

    def _stand(self, view: View) -> list[PluginEffect]:
        """A generation whose trees all stand gets its tables."""
        newest = self._its_grove(view).newest
        if newest is None or not newest.trees or newest.generation in self._tables:
            return []
        generation = newest.generation
        self._tables[generation] = [Table(generation, tree, peers) for tree, peers in enumerate(newest.trees)]
        for old in sorted(self._tables, key=order)[:-GENERATIONS]:
            del self._tables[old]
        early, self._early = self._early, {}
        effects: list[PluginEffect] = []
        for (of, tree, sender), wants in early.items():
            if of == generation:
                effects += self._wanted(sender, wants, view)
            elif order(of) > order(generation):
                self._early[of, tree, sender] = wants
        return [*effects, *self._tell(view), *self._go_on(view)]

    def _tell(self, view: View) -> list[PluginEffect]:
        mine = view.interest.filters
        return [
            Tell(peer, _slot(wants), wants)
            for _, tables in sorted(self._tables.items())
            for table in tables
            for peer, wants in table.tell(mine, view.config.covering)
        ]

    def _tell_again(self, peer: PeerId, view: View) -> list[PluginEffect]:
        """It may have missed what it was told."""
        return [
            Tell(peer, _slot(wants), wants)
            for _, tables in sorted(self._tables.items())
            for table in tables
            for wants in table.again(peer)
        ]

    def _wanted(self, sender: PeerId, wants: Wants, view: View) -> list[PluginEffect]:
        tables = self._tables.get(wants.generation)
        if tables is None:
            newest = self._its_grove(view).newest
            if newest is None or order(wants.generation) >= order(newest.generation):
                key = (wants.generation, wants.tree, sender)
                known = self._early.get(key)
                if known is not None and known.version >= wants.version:
                    return []
                if known is None and len(self._early) >= EARLY:
                    return [Notice("too early", sender)]
                self._early[key] = wants
            return []
        news = tables[wants.tree].hear(sender, wants) if 0 <= wants.tree < len(tables) else None
        if news is None:
            return [Refuse(sender, "wants that cannot be")]
        return [*self._tell(view), *self._go_on(view)] if news else []

    def _serving(self) -> list[Table] | None:
        """The newest generation on which all neighbours have told what they want."""
        ready = [g for g, tables in self._tables.items() if all(table.ready for table in tables)]
        return self._tables[max(ready, key=order)] if ready else None

    # ---------------------------------------------------------------- events

    def _arrived(self, packet: Arrived, view: View) -> list[PluginEffect]:
        event, born = packet.event, packet.born_ns
        if packet.lane is not None:
            number, caller, tree = packet.lane
            tables = self._tables.get((number, caller))
            if tables is not None and 0 <= tree < len(tables):
                return self._send(tables[tree], event, born, packet.sender, view)
        return self._publish(event, born, packet.sender, view, once=packet.lane is not None)

    def _publish(self, event: Event, born: Nanos, sender: PeerId, view: View, once: bool) -> list[PluginEffect]:
        """On all trees that serve; `once` where others carry it on theirs already."""
        effects: list[PluginEffect] = []
        serving = self._serving()
        if serving is None:
            self._wait((event, born, None, view.me), view, effects)
            return effects
        for table in serving[:1] if once else serving:
            effects += self._send(table, event, born, view.me, view)
        return effects

    def _send(self, table: Table, event: Event, born: Nanos, sender: PeerId, view: View) -> list[PluginEffect]:
        effects: list[PluginEffect] = []
        lane: Lane = (*table.generation, table.tree)
        for peer in table.hops(event.attributes, sender):
            if _works(peer, view):
                effects.append(Forward(peer, event, born, (), tries=TRIES, lane=lane))
            else:
                self._wait((event, born, lane, peer), view, effects)
        return effects

    # ---------------------------------------------------------------- copies that wait

    def _wait(self, waiting: Waiting, view: View, effects: list[PluginEffect]) -> None:
        self._waiting.append(waiting)
        if len(self._waiting) > view.config.keep_msgs:
            event, _, _, peer = self._waiting.pop(0)
            effects.append(Drop(event.id, (peer,), "too many wait for a tree"))

    def _go_on(self, view: View) -> list[PluginEffect]:
        """Over the link, if it is back; on newer trees, once they serve."""
        if not self._waiting:
            return []
        serving = self._serving()
        waiting, self._waiting = self._waiting, []
        effects: list[PluginEffect] = []
        again: dict[object, Waiting] = {}
        for one in waiting:
            event, born, lane, peer = one
            if lane is not None and _works(peer, view):
                effects.append(Forward(peer, event, born, (), tries=TRIES, lane=lane))
            elif serving is not None and (lane is None or order(serving[0].generation) > order(lane[:2])):
                if lane is None or event.id not in again or again[event.id][2] is not None:
                    again[event.id] = one
            else:
                self._waiting.append(one)
        for event, born, lane, _ in again.values():
            effects += self._publish(event, born, view.me, view, once=lane is not None)
        return effects


def _works(peer: PeerId, view: View) -> bool:
    link = view.links.get(peer)
    return link is not None and link.up and link.hearing


def _slot(wants: Wants) -> tuple[str, PeerId]:
    number, caller = wants.generation
    return f"w{number}.{wants.tree}", caller


class Mrst(OnTrees):
    """On k maximum-reliability spanning trees."""

    kind: ClassVar[str] = "mrst"


class SptK(OnTrees):
    """On k shortest-path trees."""

    kind: ClassVar[str] = "spt-k"
