"""`clusters-adaptive`: `clusters` inside a cluster, `adaptive` between clusters.

The interest knows which clusters follow an event, and hands it over with one coordinator of each as destination. This
routing forwards it over the links between coordinators as `adaptive` does. It stores nothing: if no route is left,
coordinators repair the loss by their digests.
"""

from typing import Any, ClassVar

from msgspec.structs import replace

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.interest.cluster_graph import EventNumbers
from wend.protocol.plugins import (
    LINK_STATE,
    Acked,
    Arrived,
    Failed,
    Forward,
    GiveUp,
    LeaveToInterest,
    Needs,
    PluginEffect,
    PluginInput,
    View,
)
from wend.protocol.ports import Drop
from wend.protocol.routing.adaptive import Adaptive, Packet

CLUSTER_GRAPH = "cluster-graph"


class ClustersAdaptive(Adaptive):
    """Events travel by multicast inside a cluster, and by adaptive routes between clusters."""

    needs: ClassVar[Needs] = Needs(
        graphs=(LINK_STATE,),
        failure_detector=True,
        paths=True,
        interest=CLUSTER_GRAPH,
        durable_interest=CLUSTER_GRAPH,
        membership="clusters-linked",
    )
    header: ClassVar[Any] = EventNumbers
    about: ClassVar[str] = "Wend's own"

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        header = None
        if type(event) is Arrived:
            if not event.dests:  # published here
                return [LeaveToInterest(event)]
            header = event.header
            if header is None:  # a former incarnation stored it without its numbers
                return [Drop(event.event.id, event.dests, "restarted")]
        elif type(event) is Failed or type(event) is Acked:
            header = event.forward.header
        return [_with_header(effect, header) for effect in super().handle(now, event, view)]

    def _deadline_ns(self, packet: Packet, dest: PeerId, view: View) -> Nanos | None:
        origin = packet.path[0] if packet.path else view.me
        found: Nanos | None = view.interest.cluster_deadline_ns(packet.event, origin, dest, view.graph)
        return found


def _with_header(effect: PluginEffect, header: Any) -> PluginEffect:
    if type(effect) is Forward:
        return replace(effect, header=header)
    if type(effect) is GiveUp:
        return Drop(effect.event.id, effect.dests, effect.reason)
    return effect
