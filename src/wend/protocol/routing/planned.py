"""Planned: every event takes a delivery graph that a planner chose, in the shares that it chose (campr, chapter 5).

The publisher deals its events out to the graphs of their flow; the graph's number, with the plan's, travels with the
packet (as the `routes` of its destinations), and peers look their next hops up, so they copy only where ways part. What
a plan does not admit the publisher refuses, and says so: sent on, it would push out what the plan promised to carry.

A plan follows the workload, never the other way round. An event that no flow of the plan fits, a packet whose plan is
not known here (yet) or goes over a link that is no more, one that was kept and is tried again: these go the shortest
way. A link that does not answer ends the way of a packet as on a tree: it is given up, and kept where persistency is
on. So the promises are those of the trees.

A peer that is told another plan deals out its next event by that one; packets that are under way keep theirs. An old
plan is forgotten when no packet has asked for it for a while.
"""

from typing import Any, ClassVar

import msgspec

from wend.model.events import PeerId
from wend.model.forwarding import Forwarding, Hops
from wend.model.units import SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.copy_ranks import subset
from wend.protocol.notices import REFUSED
from wend.protocol.plugins import (
    LINK_STATE,
    Arrived,
    Changed,
    Due,
    Failed,
    Forward,
    GiveUp,
    Needs,
    PluginEffect,
    PluginInput,
    Routing,
    Timer,
    View,
    unanswered,
)
from wend.protocol.ports import Drop, Notice, Planned
from wend.topology import paths

LINGER_NS: Nanos = 60 * SECOND
"""A plan that was replaced is forgotten this long after its last packet."""
CIRCLES = 4
"""A packet on the shortest way that has made this many hops for each peer of the graph is given up."""


class PlanLabel(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The delivery graph that a packet takes, and the plan that it belongs to."""

    plan: int
    graph: int


class ShareScheduler:
    """Deals a flow's events out to its graphs, so evenly that after every event each has had its share of all so far to
    within one (Tijdeman's chairman assignment). What no graph carries is dealt to None."""

    def __init__(self, shares: tuple[tuple[int, float], ...]) -> None:
        refused = 1.0 - sum(share for _, share in shares)
        self._hands: list[tuple[int | None, float]] = [(graph, share) for graph, share in shares if share > 0]
        if refused > 1e-9 or not self._hands:
            self._hands.append((None, refused))
        self._given = [0] * len(self._hands)
        self._dealt = 0
        self._least = 1 / (2 * len(self._hands) - 2) if len(self._hands) > 1 else 0.0

    def next(self) -> int | None:
        self._dealt += 1
        owed = [share * self._dealt - given for (_, share), given in zip(self._hands, self._given, strict=True)]
        # of those that are owed enough, the one that would soonest be owed a whole event
        due = [
            ((1 - self._least - owed[i]) / share, i)
            for i, (_, share) in enumerate(self._hands)
            if owed[i] >= self._least
        ]
        chosen = min(due)[1] if due else max(range(len(owed)), key=owed.__getitem__)
        self._given[chosen] += 1
        return self._hands[chosen][0]


class PlannedRouting(Routing):
    needs: ClassVar[Needs] = Needs(graphs=(LINK_STATE,), plan=True)
    header: ClassVar[Any] = PlanLabel

    def __init__(self, config: PeerConfig) -> None:
        self._plan: Forwarding | None = None
        self._plans: dict[int, Forwarding] = {}
        self._used: dict[int, Nanos] = {}
        """When a packet last asked for a plan that was replaced."""
        self._deals: dict[tuple[PeerId, ...], ShareScheduler] = {}
        self._hops: dict[PlanLabel, Hops] = {}
        self._shortest: Hops | None = None

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Arrived():
                return self._arrived(now, event, view)
            case Failed(forward):
                return [unanswered(forward)]
            case Planned(plan):
                return self._adopt(now, plan, view)
            case Due():
                return self._forget(now)
            case Changed():
                self._shortest = None
        return []

    # ---------------------------------------------------------------- plans come and go

    @property
    def plans(self) -> tuple[int, ...]:
        """The plans that it knows, by id, in the order of their adoption."""
        return tuple(self._plans)

    def _adopt(self, now: Nanos, plan: Forwarding, view: View) -> list[PluginEffect]:
        if self._plan is not None:
            self._used[self._plan.id] = now
        self._used.pop(plan.id, None)
        self._plan = self._plans[plan.id] = plan
        self._deals = {flow.receivers: ShareScheduler(flow.shares) for flow in plan.publishes(view.me)}
        return [Notice("plan-adopted", view.me), *self._look_again()]

    def _look_again(self) -> list[PluginEffect]:
        return [Timer(min(self._used.values()) + LINGER_NS)] if self._used else []

    def _forget(self, now: Nanos) -> list[PluginEffect]:
        for number in [number for number, used in self._used.items() if used + LINGER_NS <= now]:
            del self._used[number], self._plans[number]
            self._hops = {label: hops for label, hops in self._hops.items() if label.plan != number}
        return self._look_again()

    # ---------------------------------------------------------------- packets

    def _arrived(self, now: Nanos, packet: Arrived, view: View) -> list[PluginEffect]:
        if packet.header is not None:
            return self._along(now, packet, packet.header, view)
        if packet.sender == view.me == packet.event.id.publisher and not packet.ranks and self._plan is not None:
            return self._publish(packet, self._plan, view)
        return self._by_shortest(packet, packet.dests, view)

    def _publish(self, packet: Arrived, plan: Forwarding, view: View) -> list[PluginEffect]:
        deal = self._deals.get(packet.dests)
        if deal is None:
            return [Notice("unplanned", view.me), *self._by_shortest(packet, packet.dests, view)]
        graph = deal.next()
        hops = {} if graph is None else self._table(PlanLabel(plan.id, graph), plan, view)
        served = {dest: hops[dest] for dest in packet.dests if hops.get(dest) in view.links}
        refused = tuple([dest for dest in packet.dests if dest not in hops])
        effects = self._forward(packet, served, PlanLabel(plan.id, graph or 0))
        if refused:
            effects.append(Drop(packet.event.id, refused, REFUSED))
        if len(served) + len(refused) < len(packet.dests):
            astray = tuple([dest for dest in packet.dests if dest in hops and dest not in served])
            effects += [Notice("off-plan", view.me), *self._by_shortest(packet, astray, view)]
        return effects

    def _along(self, now: Nanos, packet: Arrived, label: PlanLabel, view: View) -> list[PluginEffect]:
        plan = self._plans.get(label.plan)
        if label.plan in self._used:
            self._used[label.plan] = now
        hops = {} if plan is None else self._table(label, plan, view)
        served = {dest: hops[dest] for dest in packet.dests if hops.get(dest) in view.links}
        effects = self._forward(packet, served, label)
        astray = tuple([dest for dest in packet.dests if dest not in served])
        if astray:
            effects.append(Notice("unknown-plan" if plan is None else "off-plan", view.me))
            effects += self._by_shortest(packet, astray, view)
        return effects

    def _by_shortest(self, packet: Arrived, dests: tuple[PeerId, ...], view: View) -> list[PluginEffect]:
        if self._shortest is None:
            _, parent = paths.tree(view.graph.costs, view.me)
            self._shortest = {dest: paths.walk(parent, view.me, dest)[1] for dest in parent}
        lost = len(packet.path) > CIRCLES * len(view.graph.costs)
        ways = {} if lost else {d: self._shortest[d] for d in dests if self._shortest.get(d) in view.links}
        effects = self._forward(packet, ways, None)
        stuck = tuple([dest for dest in dests if dest not in ways])
        if stuck:
            ranks = subset(stuck, packet.dests, packet.ranks)
            effects.append(
                GiveUp(packet.event, packet.born_ns, stuck, "routing loop" if lost else "no next hop", ranks)
            )
        return effects

    def _forward(self, packet: Arrived, ways: Hops, label: PlanLabel | None) -> list[PluginEffect]:
        """One copy to each next hop, in the order of their ids."""
        groups: dict[PeerId, list[PeerId]] = {}
        for dest, hop in ways.items():
            groups.setdefault(hop, []).append(dest)
        effects: list[PluginEffect] = []
        for hop in sorted(groups):
            dests = tuple(groups[hop])
            ranks = subset(dests, packet.dests, packet.ranks)
            effects.append(Forward(hop, packet.event, packet.born_ns, dests, packet.path, label, ranks))
        return effects

    def _table(self, label: PlanLabel, plan: Forwarding, view: View) -> Hops:
        hops = self._hops.get(label)
        if hops is None:
            hops = plan.hops(view.me, label.graph)
            if hops:  # what a neighbour invents is not remembered
                self._hops[label] = hops
        return hops
