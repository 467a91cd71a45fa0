"""`clusters-adaptive`: `clusters` inside a cluster, `adaptive` between clusters.

The interest knows which clusters follow an event, and hands it over with one coordinator of each as destination. This
routing forwards it over the links between coordinators as `adaptive` does. If no route is left to a coordinator, it
tries the next one of the same cluster. It stores nothing: what no route brings, coordinators repair by their digests.
"""

from typing import Any, ClassVar

from wend.model.events import PeerId
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.plugins import (
    LINK_STATE,
    MISFIT,
    Acked,
    Arrived,
    Drop,
    Failed,
    Forward,
    GiveUp,
    LeaveToInterest,
    Needs,
    Notice,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Refuse,
    Routing,
    View,
)
from wend.strategies.adaptive.plugin import Adaptive, Packet
from wend.strategies.clusters.interest.messages import EventNumbers

CLUSTER_GRAPH = "cluster-graph"


class ClustersAdaptive(Routing):
    """Events travel by multicast inside a cluster, and by adaptive routes between clusters."""

    needs: ClassVar[Needs] = Needs(
        graphs=(LINK_STATE,),
        failure_detector=True,
        news=True,
        paths=True,
        interest=CLUSTER_GRAPH,
        durable_interest=CLUSTER_GRAPH,
        membership="clusters-linked",
    )
    settings: ClassVar[type[Settings]] = Adaptive.settings
    header: ClassVar[Any] = EventNumbers
    effort: ClassVar[float] = Adaptive.effort
    about: ClassVar[str] = "Wend's own"

    def __init__(self, config: PeerConfig) -> None:
        self._adaptive = Adaptive(config, _deadline_ns)

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        header = None
        if type(event) is Arrived:
            if not event.dests:  # published here
                return [LeaveToInterest(event)]
            header = event.header
            if header is None:
                return [Refuse(event.sender, MISFIT)]
        elif type(event) is Failed or type(event) is Acked:
            header = event.forward.header
        found: list[PluginEffect] = []
        for effect in self._adaptive.handle(now, event, view):
            if type(effect) is Forward:
                found.append(_with_header(effect, header))
            elif type(effect) is GiveUp:
                found += self._try_others(now, effect, header, view)
            else:
                found.append(effect)
        return found

    def _try_others(self, now: Nanos, stuck: GiveUp, header: Any, view: View) -> list[PluginEffect]:
        """Send an event to the next coordinators of clusters to which no route was left."""
        others = {dest: view.interest.next_coordinator(dest) for dest in stuck.dests}
        dests = tuple(sorted({other for other in others.values() if other not in (None, view.me)}))
        lost = tuple(dest for dest in stuck.dests if others[dest] not in dests)
        found: list[PluginEffect] = [Drop(stuck.event.id, lost, stuck.code)] if lost else []
        if dests:
            again = Arrived(view.me, stuck.event, stuck.born_ns, dests, header=header)
            found += [Notice("reroute", dests[0]), *self.handle(now, again, view)]
        return found


def _with_header(sent: Forward, header: Any) -> Forward:
    route = (sent.peer, sent.event, sent.born_ns, sent.dests, sent.path)
    return Forward(*route, header, sent.ranks, sent.tried, sent.tries, sent.confirm, sent.due, sent.retries)


def _deadline_ns(packet: Packet, dest: PeerId, view: View) -> Nanos | None:
    """How soon the cluster of a coordinator needs the event."""
    origin = packet.path[0] if packet.path else view.me
    deadline: Nanos | None = view.interest.cluster_deadline_ns(packet.event, origin, dest, view.graph)
    return deadline
