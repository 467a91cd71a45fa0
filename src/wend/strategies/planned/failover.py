"""Planned with failover: as `planned`, and after the failure of a link events take the routes planned for that failure.

A plan that survives failures (`wend plan --survive 1`) has routes for the failure of each link. The ends of a link find
its failure with the failure detector, and flood it (`LinkOutages`). A publisher whose flow moves then uses the shares
of that failure; the others stay on their routes. A link is down if either end says so.

- Packets that meet a failure take the shortest route over links that work, from the peer that notices it.
- If several links are down, a flow takes the first of these that avoids all of them: its own routes, the routes for a
  failure, the rest of its own routes, the shortest route.
- Publishers also avoid routes over links that are down if the plan has no routes for failures.

Receivers that no route reaches wait for a retry if persistence is on. Otherwise their events are dropped.
"""

from typing import Any, ClassVar

import msgspec

from wend.model.events import PeerId
from wend.model.units import MS, Nanos
from wend.protocol.plugins import (
    LINK_STATE,
    Arrived,
    Changed,
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
    Planned,
    PluginEffect,
    PluginInput,
    Refuse,
    Routing,
    Tell,
    Timer,
    View,
    fork,
)
from wend.strategies.planned.delivery import PlanLabel, PlannedDelivery
from wend.strategies.planned.shares import Edge, edge_of
from wend.topology import paths

CHECK_NS: Nanos = 200 * MS
"""How often a peer checks whether a link of its own that was down works again."""
MAX_DOWN = 1024
"""The most links that a peer may say are down."""


class LinkOutages(msgspec.Struct, frozen=True, gc=False, tag="o"):
    """The neighbours that a peer cannot reach; flooded."""

    origin: PeerId
    version: tuple[int, int]
    """Incarnation and count of changes; a higher one replaces a lower one."""
    down: tuple[PeerId, ...]


class FailedLinks:
    """The links that are down, as far as this peer knows. Both ends of a link flood its failure."""

    def __init__(self, me: PeerId, incarnation: int) -> None:
        self.down: frozenset[Edge] = frozenset()
        self._own = LinkOutages(me, (incarnation, 0), ())
        self._others: dict[PeerId, LinkOutages] = {}
        """By origin: the last message."""
        self._has_timer = False
        """Whether a timer is set to check the links."""

    def link_changed(self, now: Nanos, event: LinkChanged, view: View) -> list[PluginEffect]:
        effects: list[PluginEffect] = []
        if event.up and event.fresh:
            known = [self._own, *(self._others[origin] for origin in sorted(self._others))]
            effects += [Tell(event.peer, ("o", each.origin), each) for each in known]
        others = set(self._own.down) - {event.peer}
        return [*effects, *self._announce(now, others if event.up else {*others, event.peer}, view)]

    def check_links(self, now: Nanos, view: View) -> list[PluginEffect]:
        """Check whether links that were down work again. An ACK may show it, and no event reports that."""
        self._has_timer = False
        working = {peer for peer in self._own.down if peer in view.links and _works(view.links[peer])}
        return self._announce(now, set(self._own.down) - working, view)

    def _announce(self, now: Nanos, down: set[PeerId], view: View) -> list[PluginEffect]:
        """Flood the links of this peer that are down, if they have changed. Set a timer while some are down."""
        own_down = tuple(sorted(down & view.links.keys()))[:MAX_DOWN]
        timer: list[PluginEffect] = [] if self._has_timer or not own_down else [Timer(now + CHECK_NS, "links")]
        self._has_timer = self._has_timer or bool(own_down)
        if own_down == self._own.down:
            return timer
        incarnation, count = self._own.version
        self._own = LinkOutages(view.me, (incarnation, count + 1), own_down)
        self._update()
        return [*(Tell(peer, ("o", view.me), self._own) for peer in view.neighbours), *timer]

    def hear(self, sender: PeerId, outages: LinkOutages, view: View) -> list[PluginEffect]:
        if len(outages.down) > MAX_DOWN:
            return [Refuse(sender, "invalid-news")]
        former = self._others.get(outages.origin)
        if outages.origin == view.me or (former is not None and former.version >= outages.version):
            return []
        self._others[outages.origin] = outages
        self._update()
        return [Tell(peer, ("o", outages.origin), outages) for peer in view.neighbours if peer != sender]

    def _update(self) -> None:
        latest = (self._own, *self._others.values())
        self.down = frozenset(edge_of(each.origin, peer) for each in latest for peer in each.down)


class FailoverRouting(Routing):
    """Follows a plan, and its routes for failures."""

    needs: ClassVar[Needs] = Needs(graphs=(LINK_STATE,), plan=True, failure_detector=True)
    messages: ClassVar[Any] = LinkOutages
    header: ClassVar[Any] = PlanLabel

    def __init__(self, config: PeerConfig) -> None:
        self._delivery = PlannedDelivery()
        self._outages = FailedLinks(config.peer, config.incarnation)

    @property
    def down(self) -> frozenset[Edge]:
        """The links that are down, as far as this peer knows."""
        return self._outages.down

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Arrived():
                return self._delivery.forward(now, event, view)
            case Failed(forward):
                return self._detour(forward, view)
            case Planned():
                return self._delivery.handle_plan(now, event, view)
            case Due("links") | LinkChanged() | Heard():
                return self._learn_outages(now, event, view)
            case Due():
                return self._delivery.forget_plans(now)
            case Changed():
                self._delivery.forget_routes()
        return []

    def _learn_outages(self, now: Nanos, event: Due | LinkChanged | Heard, view: View) -> list[PluginEffect]:
        former = self._outages.down
        match event:
            case LinkChanged():
                effects = self._outages.link_changed(now, event, view)
            case Heard(sender, message):
                effects = self._outages.hear(sender, message, view)
            case Due():
                effects = self._outages.check_links(now, view)
        if self._outages.down != former:
            self._delivery.avoid(self._outages.down)
        return effects

    def _detour(self, failed: Forward, view: View) -> list[PluginEffect]:
        """Send a packet that a neighbour did not acknowledge over the shortest route without it."""
        tried = (*failed.tried, failed.peer)
        _, parent = paths.shortest_path_tree(self._delivery.working_costs(view, tried), view.me)
        groups: dict[PeerId, list[PeerId]] = {}
        for dest in failed.dests:
            route = paths.path_in_tree(parent, view.me, dest) if dest in parent else ()
            groups.setdefault(route[1] if len(route) > 1 and route[1] in view.links else view.me, []).append(dest)
        ranks = dict(zip(failed.dests, failed.ranks or (0,) * len(failed.dests), strict=True))
        effects: list[PluginEffect] = [Notice("reroute", failed.peer)]
        for hop in sorted(groups):
            dests = tuple(groups[hop])
            if hop == view.me:
                old = tuple(ranks[dest] for dest in dests)
                effects.append(GiveUp(failed.event, failed.born_ns, dests, "no-answer", old))
                continue
            new = tuple(fork(ranks[dest], view.me) for dest in dests)
            effects.append(Forward(hop, failed.event, failed.born_ns, dests, failed.path, None, new, tried))
        return effects


def _works(link: LinkView) -> bool:
    return link.is_up and link.heard_by_neighbour
