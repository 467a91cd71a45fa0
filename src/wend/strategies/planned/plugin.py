"""Planned: every event follows one of its flow's delivery graphs, in the shares of a planner (campr, chapter 5).

The publisher assigns its events to the graphs of their flow. Each packet carries the ids of the plan and the graph
(`PlanLabel`), and peers look up their next hops, so they copy a packet only where routes branch. If a plan does not
admit an event, the publisher refuses and reports it: the event would displace traffic that the plan admitted.

A plan adapts to the workload, never the reverse. Some packets take the shortest route instead: an event that fits no
flow of the plan, a packet whose plan is unknown here, one whose planned link does not exist, and a retry of a stored
event. If a link does not answer, the peer gives the packet up, as on a tree, and stores it if persistence is on. So the
guarantees are those of the trees.

If a peer gets another plan, its next event follows that one; packets in transit stay on theirs. A peer forgets an old
plan when no packet has used it for a while. If plans are pushed, every peer knows a plan before the first one
publishes by it (`PlannedDelivery`), so no packet meets a peer that does not know its plan.
"""

from typing import Any, ClassVar

from wend.model.units import Nanos
from wend.protocol.plugins import (
    LINK_STATE,
    Arrived,
    Changed,
    Due,
    Failed,
    Needs,
    PeerConfig,
    Planned,
    PluginEffect,
    PluginInput,
    Routing,
    View,
    give_up_failed,
)
from wend.strategies.planned.delivery import PlanLabel, PlannedDelivery


class PlannedRouting(Routing):
    """Forwards packets along the delivery graphs of a plan."""

    needs: ClassVar[Needs] = Needs(graphs=(LINK_STATE,), plan=True)
    header: ClassVar[Any] = PlanLabel

    def __init__(self, config: PeerConfig) -> None:
        self._delivery = PlannedDelivery()

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Arrived():
                return self._delivery.forward(now, event, view)
            case Failed(forward):
                return [give_up_failed(forward)]
            case Planned():
                return self._delivery.handle_plan(now, event, view)
            case Due():
                return self._delivery.forget_plans(now)
            case Changed():
                self._delivery.forget_routes()
        return []

    @property
    def plans(self) -> tuple[int, ...]:
        """The ids of the known plans, in the order of their adoption."""
        return self._delivery.ids
