"""`cluster-trees`: events travel by multicast inside a cluster, and by several trees between clusters (esposito).

The membership `clusters` knows the clusters and who coordinates them. `cluster-graph` has the same parts inside a
cluster. Between clusters it hands events to a routing over links.

| part | where |
| --- | --- |
| who is who, sending | `cluster.py` |
| the groups that members follow | `groups.py` |
| published events, until coordinators accept them | `publications.py` |
| the events that a peer has and lacks; digests and fetches | `event_log.py`, `repair.py` |
| what every member does with events | `sharing.py` |
| trees between clusters | `trees.py`, with `places.py`, `parent_search.py` and `parent_choice.py` |
| routes between clusters | `routes.py` |
"""

from typing import Any, ClassVar

from wend.model.events import Event, PeerId
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Arrived,
    DeliverySettings,
    Due,
    GraphView,
    Heard,
    Interest,
    Needs,
    PathFound,
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
from wend.strategies.clusters.interest.messages import (
    ClusterFollows,
    HaveEvent,
    MemberDeadlines,
    SharedMessage,
    TreeMessage,
)
from wend.strategies.clusters.interest.parent_choice import CHOOSE
from wend.strategies.clusters.interest.parent_search import SEARCH
from wend.strategies.clusters.interest.places import TreePlaces
from wend.strategies.clusters.interest.repair import Repair
from wend.strategies.clusters.interest.routes import Routes
from wend.strategies.clusters.interest.settings import ClusterEventSettings
from wend.strategies.clusters.interest.sharing import Sharing
from wend.strategies.clusters.interest.trees import LATE, Trees
from wend.strategies.subscriptions.table import SubscriptionTable


class ClusterInterest(Interest):
    """Shares events inside a cluster, and between clusters by trees."""

    needs: ClassVar[Needs] = Needs(paths=True)
    messages: ClassVar[Any] = SharedMessage | TreeMessage
    settings: ClassVar[type[Settings]] = ClusterEventSettings
    hears_anyone: ClassVar[bool] = True
    names_everyone: ClassVar[bool] = False

    def __init__(self, config: PeerConfig) -> None:
        table = SubscriptionTable(config.peer, asks_publishers=False)
        super().__init__(config, table)
        self._cluster = ClusterView(config.peer)
        groups = FollowedGroups(self._cluster, table, tells_deadlines=False)
        log = EventLog(config.of(DeliverySettings).retry_limit)
        repair = Repair(self._cluster, groups, log, config.incarnation)
        self._places = TreePlaces(config, self._cluster, groups, repair)
        self._trees = Trees(self._cluster, groups, repair, self._places)
        self._sharing = Sharing(config, self._cluster, groups, repair, self._trees)

    def status(self) -> dict[str, int]:
        """The `groups` that this peer follows, `streams` of publishers that it knows, events `held` for others, those
        `missing` here, and `waiting` for a coordinator. Of a coordinator: its `places` in trees and its `neighbours`
        there."""
        return {
            **self._sharing.status(),
            "places": len(self._places),
            "neighbours": self._places.count_neighbours(),
        }

    def tree_edges(self) -> list[tuple[str, int, str]]:
        """This coordinator's parents: group, tree and the parent's cluster."""
        return self._places.edges()

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        self._cluster.membership = view.membership
        match event:
            case Heard(sender, HaveEvent() as message):
                return self._trees.hear_offer(now, sender, message)
            case Heard(sender, message) if not isinstance(message, SharedMessage):
                return self._places.hear(now, sender, message)
            case Due(name) if name == LATE:
                return self._trees.offer_late(now)
            case Due(name) if name == SEARCH:
                return self._places.finish_searches(now)
            case Due(name) if name == CHOOSE:
                return self._places.choose_parents(now)
            case Undelivered(peer, message):
                return self._trees.undelivered(now, peer, message)
            case PathFound():
                return self._places.path_found(now, event)
        return self._sharing.handle(now, event, view)


BY_PACKET = 0
"""In place of a tree: the event came from another cluster by a packet."""


class ClusterGraph(Interest):
    """Shares events inside a cluster, and hands them to the routing for other clusters."""

    messages: ClassVar[Any] = SharedMessage | MemberDeadlines | ClusterFollows
    settings: ClassVar[type[Settings]] = ClusterEventSettings
    hears_anyone: ClassVar[bool] = True
    names_everyone: ClassVar[bool] = False
    takes_packets: ClassVar[bool] = True

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

    def next_coordinator(self, peer: PeerId) -> PeerId | None:
        """The active coordinator that comes after this one in its cluster; None after the last."""
        return self._routes.next_coordinator(peer)

    def cluster_deadline_ns(self, event: Event, origin: PeerId, dest: PeerId, graph: GraphView) -> Nanos | None:
        """When an event from one coordinator is due at another: the tightest that the other's cluster has told."""
        return self._routes.deadline_ns(event, origin, dest, graph)

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        self._cluster.membership = view.membership
        match event:
            case Arrived() if event.dests:
                effects = self._receive(now, event)
            case Heard(sender, ClusterFollows() as message):
                effects = self._routes.hear_groups(now, sender, message)
            case Heard(sender, MemberDeadlines()) if sender not in self._cluster.members:
                effects = [Refuse(sender, NOT_A_MEMBER)]
            case Heard(sender, MemberDeadlines() as message):
                self._groups.hear_deadlines(sender, message)
                effects = []
            case Undelivered(peer, message):
                effects = self._routes.undelivered(peer, message)
            case _:
                effects = self._sharing.handle(now, event, view)
        return effects + self._routes.send_new(now, view.graph)

    def _receive(self, now: Nanos, packet: Arrived) -> list[PluginEffect]:
        """A packet from another cluster has reached this coordinator."""
        header = packet.header
        if header is None or not self._cluster.is_holder:
            return []
        numbers = tuple(one for one in header.numbers if self._groups.follows(one[0]))
        logged = Logged(packet.event, packet.born_ns, header.home)
        return self._sharing.keep(now, logged, numbers, BY_PACKET, len(packet.path))
