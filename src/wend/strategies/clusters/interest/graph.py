"""`cluster-graph`: events travel by multicast inside a cluster, and by a routing over links between clusters.

It has the parts of `cluster-trees` (`plugin.py`), with routes in place of trees (`routes.py`).
"""

from collections.abc import Iterable
from typing import Any, ClassVar

from wend.model.events import Event, PeerId
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Arrived,
    DeliverySettings,
    GiveUp,
    GraphView,
    Heard,
    Interest,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Refuse,
    Undelivered,
    View,
)
from wend.strategies.clusters.interest.cluster import NOT_A_MEMBER, ClusterView
from wend.strategies.clusters.interest.event_log import EventLog, Logged
from wend.strategies.clusters.interest.groups import FollowedGroups
from wend.strategies.clusters.interest.messages import ClusterFollows, EventNumbers, MemberDeadlines, SharedMessage
from wend.strategies.clusters.interest.repair import Repair
from wend.strategies.clusters.interest.routes import Routes
from wend.strategies.clusters.interest.settings import ClusterEventSettings
from wend.strategies.clusters.interest.sharing import Sharing
from wend.strategies.subscriptions.table import SubscriptionTable

BY_PACKET = 0
"""In place of a tree: the event came from another cluster by a packet."""


class ClusterGraph(Interest):
    """Shares events inside a cluster, and hands them to the routing for other clusters."""

    messages: ClassVar[Any] = SharedMessage | MemberDeadlines | ClusterFollows
    settings: ClassVar[type[Settings]] = ClusterEventSettings
    hears_anyone: ClassVar[bool] = True
    knows_all_subscribers: ClassVar[bool] = False
    header: ClassVar[Any] = EventNumbers

    def __init__(self, config: PeerConfig) -> None:
        table = SubscriptionTable(config.peer, asks_publishers=False)
        super().__init__(config, table)
        self._cluster = ClusterView(config.peer)
        self._groups = FollowedGroups(self._cluster, table, tells_deadlines=True)
        log = EventLog(config.of(DeliverySettings).retry_limit)
        repair = Repair(self._cluster, self._groups, log, config.incarnation)
        self._routes = Routes(config, self._cluster, self._groups, repair)
        self._sharing = Sharing(config, self._cluster, self._groups, repair, self._routes)

    def status(self) -> dict[str, int]:
        """The `groups` that this peer follows, `streams` of publishers that it knows, events `held` for others, those
        `missing` here, and `waiting` for a coordinator. Of a coordinator: the other clusters that follow something,
        `followers`."""
        return {**self._sharing.status(), "followers": self._routes.count_followers()}

    def deadline_ns(self, event: Event, origin: PeerId, dest: PeerId, graph: GraphView) -> Nanos | None:
        """How soon the cluster of a coordinator needs an event from another one."""
        return self._routes.deadline_ns(event, origin, dest, graph)

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        self._cluster.membership = view.membership
        match event:
            case Arrived() if event.dests:
                effects: Iterable[PluginEffect] = self._receive(now, event)
            case GiveUp():
                effects = self._routes.try_next_coordinators(event)
            case Heard(sender, ClusterFollows() as message):
                effects = self._routes.on_groups(now, sender, message)
            case Heard(sender, MemberDeadlines()) if sender not in self._cluster.members:
                effects = [Refuse(sender, NOT_A_MEMBER)]
            case Heard(sender, MemberDeadlines() as message):
                self._groups.on_deadlines(sender, message)
                effects = []
            case Undelivered(peer, message):
                effects = self._routes.on_undelivered(peer, message)
            case _:
                effects = self._sharing.handle(now, event, view)
        return list(effects) + self._routes.send_new(now, view.graph)

    def _receive(self, now: Nanos, packet: Arrived) -> Iterable[PluginEffect]:
        """Log the event of a packet from another cluster that has reached this coordinator."""
        header = packet.header
        if header is None or not self._cluster.is_holder:
            return []
        numbers = tuple(one for one in header.numbers if self._groups.follows(one[0]))
        logged = Logged(packet.event, packet.born_ns, header.home)
        return self._sharing.log_in_groups(now, logged, numbers, BY_PACKET, len(packet.path))
