"""Planned with failover: as `planned`, and after the failure of a link events take the routes planned for that failure.

A plan that survives failures (`wend plan --survive 1`) has routes for the failure of each link. The ends of a link find
its failure with the failure detector, and flood it (`LinkOutages`). A publisher whose flow moves then uses the shares
of that failure; the others stay on their routes. A link is down if either end says so.

- Packets that a failure meets on their way take the shortest route over links that work, from the peer that notices.
- If several links are down, a flow takes its own routes if they avoid all of them, else those of a failure that do,
  else the rest of its own, else the shortest route.
- Without a plan for failures, too, publishers avoid routes over links that are down.

Receivers that no route reaches wait for a retry where persistency is on. Otherwise their events are dropped.
"""

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from wend.model.events import PeerId
from wend.model.units import MS, Nanos
from wend.protocol.plugins import (
    LINK_STATE,
    Arrived,
    Due,
    Failed,
    Forward,
    GiveUp,
    Heard,
    LinkChanged,
    LinkView,
    Needs,
    Notice,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Refuse,
    Tell,
    Timer,
    View,
    fork,
)
from wend.strategies.planned.plugin import PlannedRouting, ShareScheduler
from wend.topology import paths

if TYPE_CHECKING:
    from wend.model.forwarding import Forwarding, Hops
    from wend.model.plan import OwnFlow

LOOK_NS: Nanos = 200 * MS
"""How often a peer looks whether a link of its own that was down works again."""
MAX_DOWN = 1024
"""The most links that a peer may say are down."""
Edge = tuple[PeerId, PeerId]
"""A link of two peers; lower id first."""
Shares = tuple[tuple[int, float], ...]


class LinkOutages(msgspec.Struct, frozen=True, gc=False, tag="o"):
    """The neighbours that a peer cannot reach; flooded."""

    origin: PeerId
    version: tuple[int, int]
    """Incarnation and count of changes; a higher one replaces a lower one."""
    down: tuple[PeerId, ...]


class FailoverRouting(PlannedRouting):
    """Follows a plan, and its routes for failures."""

    needs: ClassVar[Needs] = Needs(graphs=(LINK_STATE,), plan=True, failure_detector=True)
    messages: ClassVar[Any] = LinkOutages

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._own = LinkOutages(config.peer, (config.incarnation, 0), ())
        self._looks_again = False
        """Whether it will look at its links soon."""
        self._told: dict[PeerId, LinkOutages] = {}
        """By origin: what it said last."""
        self._down: frozenset[Edge] = frozenset()
        self._now: dict[tuple[PeerId, ...], ShareScheduler | None] = {}
        """By receivers: the scheduler while these links are down; None: no planned route is left."""

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Failed(forward):
                return self._detour(forward, view)
            case LinkChanged():
                return self._link_changed(now, event, view)
            case Heard(sender, message):
                return self._heard(sender, message, view)
            case Due("links"):
                return self._look_at_links(now, view)
        return super().handle(now, event, view)

    # ---------------------------------------------------------------- which links are down

    @property
    def down(self) -> frozenset[Edge]:
        """The links that are down, as far as this peer knows."""
        return self._down

    def _link_changed(self, now: Nanos, event: LinkChanged, view: View) -> list[PluginEffect]:
        effects: list[PluginEffect] = []
        if event.up and event.fresh:
            known = [self._own, *(self._told[origin] for origin in sorted(self._told))]
            effects += [Tell(event.peer, ("o", each.origin), each) for each in known]
        others = set(self._own.down) - {event.peer}
        return [*effects, *self._announce(now, others if event.up else {*others, event.peer}, view)]

    def _look_at_links(self, now: Nanos, view: View) -> list[PluginEffect]:
        """Look whether links that were down work again. An ACK may show that, and no event says so."""
        self._looks_again = False
        works = {peer for peer in self._own.down if peer in view.links and _works(view.links[peer])}
        return self._announce(now, set(self._own.down) - works, view)

    def _announce(self, now: Nanos, down: set[PeerId], view: View) -> list[PluginEffect]:
        """Tell all if other links of this peer are down than before. Look again soon while some are."""
        found = tuple(sorted(down & view.links.keys()))[:MAX_DOWN]
        again: list[PluginEffect] = [] if self._looks_again or not found else [Timer(now + LOOK_NS, "links")]
        self._looks_again = self._looks_again or bool(found)
        if found == self._own.down:
            return again
        incarnation, count = self._own.version
        self._own = LinkOutages(view.me, (incarnation, count + 1), found)
        self._look()
        return [*(Tell(peer, ("o", view.me), self._own) for peer in view.neighbours), *again]

    def _heard(self, sender: PeerId, outages: LinkOutages, view: View) -> list[PluginEffect]:
        if len(outages.down) > MAX_DOWN:
            return [Refuse(sender, "news that cannot be")]
        former = self._told.get(outages.origin)
        if outages.origin == view.me or (former is not None and former.version >= outages.version):
            return []
        self._told[outages.origin] = outages
        self._look()
        return [Tell(peer, ("o", outages.origin), outages) for peer in view.neighbours if peer != sender]

    def _look(self) -> None:
        said = (self._own, *self._told.values())
        down = frozenset(_edge(each.origin, peer) for each in said for peer in each.down)
        if down != self._down:
            self._down, self._shortest = down, None
            self._now.clear()

    # ---------------------------------------------------------------- routes

    def _adopt(self, now: Nanos, plan: "Forwarding", view: View) -> list[PluginEffect]:
        self._now.clear()
        return super()._adopt(now, plan, view)

    def _abandon(self, now: Nanos) -> list[PluginEffect]:
        self._now.clear()
        return super()._abandon(now)

    def _leads(self, hop: PeerId | None, view: View) -> bool:
        return hop is not None and hop in view.links and _edge(view.me, hop) not in self._down

    def _publish(self, packet: Arrived, plan: "Forwarding", view: View) -> list[PluginEffect]:
        if not self._down or packet.dests not in self._schedulers:
            return super()._publish(packet, plan, view)
        if packet.dests not in self._now:
            flow = next(each for each in plan.publishes(view.me) if each.receivers == packet.dests)
            shares = shares_without(plan, flow, self._down)
            self._now[packet.dests] = None if shares is None else ShareScheduler(shares)
        scheduler = self._now[packet.dests]
        if scheduler is None:
            return [Notice("off-plan", view.me), *self._by_shortest(packet, packet.dests, view)]
        return self._by_plan(packet, plan, scheduler.next(), view)

    def _refused(self, dests: tuple[PeerId, ...], hops: "Hops", graph: int | None) -> tuple[PeerId, ...]:
        """A route for a failure leaves out receivers that the failure cuts off: they are not refused."""
        return () if self._down and graph is not None else super()._refused(dests, hops, graph)

    def _costs(self, view: View, without: tuple[PeerId, ...] = ()) -> paths.Costs:
        """The overlay without links that are down, and without those of this peer to some others."""
        gone = {*self._down, *(_edge(view.me, peer) for peer in without)}
        costs = view.graph.costs
        if not gone:
            return costs
        return {a: {b: cost for b, cost in each.items() if _edge(a, b) not in gone} for a, each in costs.items()}

    def _detour(self, failed: Forward, view: View) -> list[PluginEffect]:
        """Send a packet that a neighbour did not acknowledge over the shortest route without it."""
        tried = (*failed.tried, failed.peer)
        _, parent = paths.tree(self._costs(view, tried), view.me)
        groups: dict[PeerId, list[PeerId]] = {}
        for dest in failed.dests:
            route = paths.walk(parent, view.me, dest) if dest in parent else ()
            groups.setdefault(route[1] if len(route) > 1 and route[1] in view.links else view.me, []).append(dest)
        ranks = dict(zip(failed.dests, failed.ranks or (0,) * len(failed.dests), strict=True))
        effects: list[PluginEffect] = [Notice("reroute", failed.peer)]
        for hop in sorted(groups):
            dests = tuple(groups[hop])
            if hop == view.me:
                old = tuple(ranks[dest] for dest in dests)
                effects.append(GiveUp(failed.event, failed.born_ns, dests, "link does not answer", old))
                continue
            new = tuple(fork(ranks[dest], view.me) for dest in dests)
            effects.append(Forward(hop, failed.event, failed.born_ns, dests, failed.path, None, new, tried))
        return effects


def shares_without(plan: "Forwarding", flow: "OwnFlow", down: frozenset[Edge]) -> Shares | None:
    """The shares of a flow's graphs while links are down; None if no planned route avoids them all."""

    def avoids(graph: int) -> bool:
        return not plan.edges(graph) & down

    backups = {(a, b): shares for a, b, shares in flow.backups}
    failed = sorted(edge for edge in down if edge in backups)
    if len(down) == 1 and failed:
        return backups[failed[0]]
    for shares in (flow.shares, *(backups[edge] for edge in failed)):
        if all(avoids(graph) for graph, _ in shares):
            return shares
    left = [(graph, share) for graph, share in flow.shares if avoids(graph)]
    whole, rest = sum(share for _, share in flow.shares), sum(share for _, share in left)
    return tuple((graph, share * whole / rest) for graph, share in left) if rest else None


def _works(link: LinkView) -> bool:
    return link.up and link.heard_by_neighbour


def _edge(a: PeerId, b: PeerId) -> Edge:
    return (a, b) if a < b else (b, a)
