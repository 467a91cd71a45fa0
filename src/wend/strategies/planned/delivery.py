"""Delivery by plan: the plans that a peer knows, and the next hops of packets while some links may be down.

The publisher assigns its events to the graphs of their flow. Each packet carries the ids of the plan and the graph
(`PlanLabel`), and peers look up their next hops, so they copy a packet only where routes branch. Packets that no plan
leads on take the shortest route over links that work.
"""

from typing import TYPE_CHECKING

import msgspec

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.plugins import (
    REFUSED,
    Arrived,
    Drop,
    Forward,
    GiveUp,
    Notice,
    Planned,
    PluginEffect,
    Timer,
    View,
    fork,
    subset,
)
from wend.strategies.planned.shares import Edge, ShareScheduler, make_edge, shares_without
from wend.topology import paths

if TYPE_CHECKING:  # a plan is arrays in files; most peers read none
    from wend.model.forwarding import Forwarding, Hops

LINGER_NS: Nanos = 60 * SECOND
"""A peer forgets a replaced plan this long after the last packet that used it."""
CIRCLES = 4
"""A peer gives up a packet on shortest routes that has made this many hops per peer of the graph."""


class PlanLabel(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The delivery graph that a packet follows, and the plan that the graph belongs to."""

    plan: int
    graph: int


class PlannedDelivery:
    """The plans that this peer knows, and the forwarding of packets by them."""

    def __init__(self) -> None:
        self._plan: Forwarding | None = None
        self._plans: dict[int, Forwarding] = {}
        self._last_used_ns: dict[int, Nanos] = {}
        """By replaced plan: when a packet last used it."""
        self._schedulers: dict[tuple[PeerId, ...], ShareScheduler] = {}
        self._hops: dict[PlanLabel, Hops] = {}
        self._shortest: Hops | None = None
        self._down_links: frozenset[Edge] = frozenset()
        self._failover_schedulers: dict[tuple[PeerId, ...], ShareScheduler | None] = {}
        """By receivers: the scheduler while these links are down; None if no planned route is left."""

    # ---------------------------------------------------------------- the overlay

    def avoid(self, down: frozenset[Edge]) -> None:
        """Send nothing over links that are down."""
        self._down_links = down
        self._failover_schedulers.clear()
        self.forget_routes()

    def forget_routes(self) -> None:
        """Forget the shortest routes, because the overlay has changed. The next packet computes them again."""
        self._shortest = None

    def working_costs(self, view: View, without: tuple[PeerId, ...] = ()) -> paths.Costs:
        """The overlay without links that are down, and without those of this peer to some others."""
        avoided = {*self._down_links, *(make_edge(view.me, peer) for peer in without)}
        costs = view.graph.costs
        if not avoided:
            return costs
        return {a: {b: cost for b, cost in each.items() if make_edge(a, b) not in avoided} for a, each in costs.items()}

    # ---------------------------------------------------------------- plans

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the known plans, in the order of their adoption."""
        return tuple(self._plans)

    def handle_plan(self, now: Nanos, event: Planned, view: View) -> list[PluginEffect]:
        if event.plan is None:
            return self._abandon_plan(now)
        return self._adopt_plan(now, event.plan, view) if event.publish else self._store_plan(now, event.plan)

    def _adopt_plan(self, now: Nanos, plan: "Forwarding", view: View) -> list[PluginEffect]:
        self._failover_schedulers.clear()
        if self._plan is not None:
            self._last_used_ns[self._plan.id] = now
        self._last_used_ns.pop(plan.id, None)
        self._plan = self._plans[plan.id] = plan
        self._schedulers = {flow.receivers: ShareScheduler(flow.shares) for flow in plan.published_flows(view.me)}
        return [Notice("plan-adopted", view.me), *self._set_timer()]

    def _store_plan(self, now: Nanos, plan: "Forwarding") -> list[PluginEffect]:
        """Store a plan before anybody publishes by it."""
        self._plans[plan.id] = plan
        if plan is not self._plan and (self._plan is None or plan.id != self._plan.id):
            self._last_used_ns[plan.id] = now
        return self._set_timer()

    def _abandon_plan(self, now: Nanos) -> list[PluginEffect]:
        self._failover_schedulers.clear()
        if self._plan is not None:
            self._last_used_ns[self._plan.id] = now
        self._plan, self._schedulers = None, {}
        return self._set_timer()

    def _set_timer(self) -> list[PluginEffect]:
        return [Timer(min(self._last_used_ns.values()) + LINGER_NS)] if self._last_used_ns else []

    def forget_plans(self, now: Nanos) -> list[PluginEffect]:
        """Forget plans that no packet has used for a while."""
        for number in [number for number, used in self._last_used_ns.items() if used + LINGER_NS <= now]:
            del self._last_used_ns[number], self._plans[number]
            self._hops = {label: hops for label, hops in self._hops.items() if label.plan != number}
        return self._set_timer()

    # ---------------------------------------------------------------- packets

    def forward(self, now: Nanos, packet: Arrived, view: View) -> list[PluginEffect]:
        if packet.header is not None:
            return self._forward_by_label(now, packet, packet.header, view)
        if packet.sender == view.me == packet.event.id.publisher and not packet.ranks and self._plan is not None:
            return self._publish(packet, self._plan, view)
        return self._forward_by_shortest(packet, packet.dests, view)

    def _publish(self, packet: Arrived, plan: "Forwarding", view: View) -> list[PluginEffect]:
        dests = packet.dests
        if dests not in self._schedulers:
            return [Notice("unplanned", view.me), *self._forward_by_shortest(packet, dests, view)]
        scheduler = self._failover_scheduler(dests, plan, view) if self._down_links else self._schedulers[dests]
        if scheduler is None:
            return [Notice("off-plan", view.me), *self._forward_by_shortest(packet, dests, view)]
        return self._forward_by_plan(packet, plan, scheduler.choose_graph(), view)

    def _failover_scheduler(self, dests: tuple[PeerId, ...], plan: "Forwarding", view: View) -> ShareScheduler | None:
        """The scheduler while links are down; None if no planned route is left."""
        if dests not in self._failover_schedulers:
            flow = next(each for each in plan.published_flows(view.me) if each.receivers == dests)
            shares = shares_without(plan, flow, self._down_links)
            self._failover_schedulers[dests] = None if shares is None else ShareScheduler(shares)
        return self._failover_schedulers[dests]

    def _forward_by_plan(
        self, packet: Arrived, plan: "Forwarding", graph: int | None, view: View
    ) -> list[PluginEffect]:
        """Publish an event on a delivery graph; None: the plan does not admit it."""
        hops = {} if graph is None else self._find_hops(PlanLabel(plan.id, graph), plan, view)
        served = {dest: hops[dest] for dest in packet.dests if self._can_send(hops.get(dest), view)}
        # a route for a failure leaves out receivers that the failure cuts off: the plan does not refuse those
        admits = bool(self._down_links) and graph is not None
        refused = () if admits else tuple([dest for dest in packet.dests if dest not in hops])
        effects = self._forward_to_hops(packet, served, PlanLabel(plan.id, graph or 0))
        if refused:
            effects.append(Drop(packet.event.id, refused, REFUSED))
        if len(served) + len(refused) < len(packet.dests):
            unrouted = tuple([dest for dest in packet.dests if dest not in refused and dest not in served])
            effects += [Notice("off-plan", view.me), *self._forward_by_shortest(packet, unrouted, view)]
        return effects

    def _forward_by_label(self, now: Nanos, packet: Arrived, label: PlanLabel, view: View) -> list[PluginEffect]:
        plan = self._plans.get(label.plan)
        if label.plan in self._last_used_ns:
            self._last_used_ns[label.plan] = now
        hops = {} if plan is None else self._find_hops(label, plan, view)
        served = {dest: hops[dest] for dest in packet.dests if self._can_send(hops.get(dest), view)}
        effects = self._forward_to_hops(packet, served, label)
        unrouted = tuple([dest for dest in packet.dests if dest not in served])
        if unrouted:
            effects.append(Notice("unknown-plan" if plan is None else "off-plan", view.me))
            effects += self._forward_by_shortest(packet, unrouted, view)
        return effects

    def _can_send(self, hop: PeerId | None, view: View) -> bool:
        """Whether a packet can go over the link to this next hop."""
        if hop is None or hop not in view.links:
            return False
        return not self._down_links or make_edge(view.me, hop) not in self._down_links

    def _forward_by_shortest(self, packet: Arrived, dests: tuple[PeerId, ...], view: View) -> list[PluginEffect]:
        if self._shortest is None:
            _, parent = paths.shortest_path_tree(self.working_costs(view), view.me)
            self._shortest = {dest: paths.path_in_tree(parent, view.me, dest)[1] for dest in parent}
        if view.me in packet.path:  # it came back: an ACK of the earlier copy must not settle this one
            ranks = tuple([fork(rank, view.me) for rank in packet.ranks or (0,) * len(packet.dests)])
            header = packet.header
            packet = Arrived(packet.sender, packet.event, packet.born_ns, packet.dests, packet.path, header, ranks)
        is_in_loop = len(packet.path) > CIRCLES * len(view.graph.costs)
        next_hops = {} if is_in_loop else {d: self._shortest[d] for d in dests if self._shortest.get(d) in view.links}
        effects = self._forward_to_hops(packet, next_hops, None)
        stuck = tuple([dest for dest in dests if dest not in next_hops])
        if stuck:
            ranks = subset(stuck, packet.dests, packet.ranks)
            effects.append(
                GiveUp(packet.event, packet.born_ns, stuck, "routing-loop" if is_in_loop else "no-next-hop", ranks)
            )
        return effects

    def _forward_to_hops(self, packet: Arrived, next_hops: "Hops", label: PlanLabel | None) -> list[PluginEffect]:
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

    def _find_hops(self, label: PlanLabel, plan: "Forwarding", view: View) -> "Hops":
        hops = self._hops.get(label)
        if hops is None:
            hops = plan.hops(view.me, label.graph)
            if hops:  # a neighbour may invent a label: do not cache that
                self._hops[label] = hops
        return hops
