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

from wend.model.events import PeerId
from wend.model.units import Nanos
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
    Needs,
    Notice,
    PeerConfig,
    Planned,
    PluginEffect,
    PluginInput,
    Routing,
    View,
    fork,
)
from wend.strategies.planned.delivery import PlanLabel, PlannedDelivery
from wend.strategies.planned.link_outages import FailedLinks, LinkOutages
from wend.strategies.planned.shares import Edge
from wend.topology import paths


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
                return self._send_detour(forward, view)
            case Planned():
                return self._delivery.handle_plan(now, event, view)
            case Due("links") | LinkChanged() | Heard():
                return self._update_outages(now, event, view)
            case Due():
                return self._delivery.forget_plans(now)
            case Changed():
                self._delivery.forget_routes()
        return []

    def _update_outages(self, now: Nanos, event: Due | LinkChanged | Heard, view: View) -> list[PluginEffect]:
        former = self._outages.down
        match event:
            case LinkChanged():
                effects = self._outages.on_link_changed(now, event, view)
            case Heard(sender, message):
                effects = self._outages.on_outages(sender, message, view)
            case Due():
                effects = self._outages.check_links(now, view)
        if self._outages.down != former:
            self._delivery.avoid(self._outages.down)
        return effects

    def _send_detour(self, failed: Forward, view: View) -> list[PluginEffect]:
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
