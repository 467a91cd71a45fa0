"""Planned: every event follows one of its flow's delivery graphs, in the shares of a planner (campr, chapter 5).

The publisher assigns its events to the graphs of their flow. Each packet carries the ids of the plan and the graph
(`PlanLabel`), and peers look up their next hops, so they copy a packet only where routes branch. If a plan does not
admit an event, the publisher refuses and reports it: the event would displace traffic that the plan admitted.

A plan adapts to the workload, never the reverse. Some packets take the shortest route instead: an event that fits no
flow of the plan, a packet whose plan is unknown here, one whose planned link is gone, and a retry of a stored event. If
a link does not answer, the peer gives the packet up, as on a tree, and stores it where persistency is on. So the
guarantees are those of the trees.

If a peer gets another plan, its next event follows that one; packets in transit stay on theirs. A peer forgets an old
plan when no packet has used it for a while. Where plans are pushed, every peer knows a plan before the first one
publishes by it (`_learn`), so no packet meets a peer that does not know its plan.
"""

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.plugins import (
    LINK_STATE,
    REFUSED,
    Arrived,
    Changed,
    Drop,
    Due,
    Failed,
    Forward,
    GiveUp,
    Needs,
    Notice,
    PeerConfig,
    Planned,
    PluginEffect,
    PluginInput,
    Routing,
    Timer,
    View,
    fork,
    subset,
    unanswered,
)
from wend.topology import paths

if TYPE_CHECKING:  # a plan is arrays in files; most peers read none
    from wend.model.forwarding import Forwarding, Hops

LINGER_NS: Nanos = 60 * SECOND
"""A peer forgets a replaced plan so long after its last packet."""
CIRCLES = 4
"""A peer gives up a packet on shortest routes that has made so many hops per peer of the graph."""


class PlanLabel(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The delivery graph that a packet follows, and the plan that the graph belongs to."""

    plan: int
    graph: int


class ShareScheduler:
    """Assigns a flow's events to its graphs by their shares; None stands for the share that no graph carries.

    After every event the count of each graph differs from its share by less than one (Tijdeman's chairman assignment).
    """

    def __init__(self, shares: tuple[tuple[int, float], ...]) -> None:
        refused = 1.0 - sum(share for _, share in shares)
        self._shares: list[tuple[int | None, float]] = [(graph, share) for graph, share in shares if share > 0]
        if refused > 1e-9 or not self._shares:
            self._shares.append((None, refused))
        self._counts = [0] * len(self._shares)
        self._events = 0
        self._least = 1 / (2 * len(self._shares) - 2) if len(self._shares) > 1 else 0.0

    def next(self) -> int | None:
        self._events += 1
        lag = [share * self._events - count for (_, share), count in zip(self._shares, self._counts, strict=True)]
        # among the graphs that lag enough, choose the one that would lag by a whole event first
        due = [
            ((1 - self._least - lag[i]) / share, i)
            for i, (_, share) in enumerate(self._shares)
            if lag[i] >= self._least
        ]
        chosen = min(due)[1] if due else max(range(len(lag)), key=lag.__getitem__)
        self._counts[chosen] += 1
        return self._shares[chosen][0]


class PlannedRouting(Routing):
    """Forwards packets along the delivery graphs of a plan."""

    needs: ClassVar[Needs] = Needs(graphs=(LINK_STATE,), plan=True)
    header: ClassVar[Any] = PlanLabel

    def __init__(self, config: PeerConfig) -> None:
        self._plan: Forwarding | None = None
        self._plans: dict[int, Forwarding] = {}
        self._used: dict[int, Nanos] = {}
        """By replaced plan: when a packet last used it."""
        self._schedulers: dict[tuple[PeerId, ...], ShareScheduler] = {}
        self._hops: dict[PlanLabel, Hops] = {}
        self._shortest: Hops | None = None

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Arrived():
                return self._arrived(now, event, view)
            case Failed(forward):
                return [unanswered(forward)]
            case Planned(plan, publish):
                if plan is None:
                    return self._abandon(now)
                return self._adopt(now, plan, view) if publish else self._learn(now, plan)
            case Due():
                return self._forget(now)
            case Changed():
                self._shortest = None
        return []

    # ---------------------------------------------------------------- plans

    @property
    def plans(self) -> tuple[int, ...]:
        """The ids of the known plans, in the order of their adoption."""
        return tuple(self._plans)

    def _adopt(self, now: Nanos, plan: "Forwarding", view: View) -> list[PluginEffect]:
        if self._plan is not None:
            self._used[self._plan.id] = now
        self._used.pop(plan.id, None)
        self._plan = self._plans[plan.id] = plan
        self._schedulers = {flow.receivers: ShareScheduler(flow.shares) for flow in plan.publishes(view.me)}
        return [Notice("plan-adopted", view.me), *self._look_again()]

    def _learn(self, now: Nanos, plan: "Forwarding") -> list[PluginEffect]:
        """Know a plan before anybody publishes by it."""
        self._plans[plan.id] = plan
        if plan is not self._plan and (self._plan is None or plan.id != self._plan.id):
            self._used[plan.id] = now
        return self._look_again()

    def _abandon(self, now: Nanos) -> list[PluginEffect]:
        if self._plan is not None:
            self._used[self._plan.id] = now
        self._plan, self._schedulers = None, {}
        return self._look_again()

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

    def _publish(self, packet: Arrived, plan: "Forwarding", view: View) -> list[PluginEffect]:
        scheduler = self._schedulers.get(packet.dests)
        if scheduler is None:
            return [Notice("unplanned", view.me), *self._by_shortest(packet, packet.dests, view)]
        return self._by_plan(packet, plan, scheduler.next(), view)

    def _by_plan(self, packet: Arrived, plan: "Forwarding", graph: int | None, view: View) -> list[PluginEffect]:
        """Publish an event on a delivery graph; None: the plan does not admit it."""
        hops = {} if graph is None else self._table(PlanLabel(plan.id, graph), plan, view)
        served = {dest: hops[dest] for dest in packet.dests if self._leads(hops.get(dest), view)}
        refused = self._refused(packet.dests, hops, graph)
        effects = self._forward(packet, served, PlanLabel(plan.id, graph or 0))
        if refused:
            effects.append(Drop(packet.event.id, refused, REFUSED))
        if len(served) + len(refused) < len(packet.dests):
            astray = tuple([dest for dest in packet.dests if dest not in refused and dest not in served])
            effects += [Notice("off-plan", view.me), *self._by_shortest(packet, astray, view)]
        return effects

    def _along(self, now: Nanos, packet: Arrived, label: PlanLabel, view: View) -> list[PluginEffect]:
        plan = self._plans.get(label.plan)
        if label.plan in self._used:
            self._used[label.plan] = now
        hops = {} if plan is None else self._table(label, plan, view)
        served = {dest: hops[dest] for dest in packet.dests if self._leads(hops.get(dest), view)}
        effects = self._forward(packet, served, label)
        astray = tuple([dest for dest in packet.dests if dest not in served])
        if astray:
            effects.append(Notice("unknown-plan" if plan is None else "off-plan", view.me))
            effects += self._by_shortest(packet, astray, view)
        return effects

    def _leads(self, hop: PeerId | None, view: View) -> bool:
        """Whether a packet can go over the link to this next hop."""
        return hop in view.links

    def _refused(self, dests: tuple[PeerId, ...], hops: "Hops", graph: int | None) -> tuple[PeerId, ...]:
        """The destinations that the plan does not admit an event for."""
        return tuple([dest for dest in dests if dest not in hops])

    def _costs(self, view: View) -> paths.Costs:
        """The overlay on which packets without a plan take the shortest route."""
        return view.graph.costs

    def _by_shortest(self, packet: Arrived, dests: tuple[PeerId, ...], view: View) -> list[PluginEffect]:
        if self._shortest is None:
            _, parent = paths.tree(self._costs(view), view.me)
            self._shortest = {dest: paths.walk(parent, view.me, dest)[1] for dest in parent}
        if view.me in packet.path:  # it came back: an ACK of the earlier copy must not end what is owed for this one
            ranks = tuple([fork(rank, view.me) for rank in packet.ranks or (0,) * len(packet.dests)])
            header = packet.header
            packet = Arrived(packet.sender, packet.event, packet.born_ns, packet.dests, packet.path, header, ranks)
        lost = len(packet.path) > CIRCLES * len(view.graph.costs)
        next_hops = {} if lost else {d: self._shortest[d] for d in dests if self._shortest.get(d) in view.links}
        effects = self._forward(packet, next_hops, None)
        stuck = tuple([dest for dest in dests if dest not in next_hops])
        if stuck:
            ranks = subset(stuck, packet.dests, packet.ranks)
            effects.append(
                GiveUp(packet.event, packet.born_ns, stuck, "routing loop" if lost else "no next hop", ranks)
            )
        return effects

    def _forward(self, packet: Arrived, next_hops: "Hops", label: PlanLabel | None) -> list[PluginEffect]:
        """Send one copy to each next hop, in the order of their ids."""
        groups: dict[PeerId, list[PeerId]] = {}
        for dest, hop in next_hops.items():
            groups.setdefault(hop, []).append(dest)
        effects: list[PluginEffect] = []
        for hop in sorted(groups):
            dests = tuple(groups[hop])
            ranks = subset(dests, packet.dests, packet.ranks)
            effects.append(Forward(hop, packet.event, packet.born_ns, dests, packet.path, label, ranks))
        return effects

    def _table(self, label: PlanLabel, plan: "Forwarding", view: View) -> "Hops":
        hops = self._hops.get(label)
        if hops is None:
            hops = plan.hops(view.me, label.graph)
            if hops:  # a neighbour may invent a label: do not cache that
                self._hops[label] = hops
        return hops
