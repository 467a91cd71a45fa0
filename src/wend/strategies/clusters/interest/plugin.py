"""`cluster-trees`: events travel by multicast inside a cluster, and by several trees between clusters (esposito).

The membership `clusters` knows the clusters and who coordinates them. `cluster-graph` (`graph.py`) has the same parts
inside a cluster, and another one between clusters.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, get_args

from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.plugins import (
    DeliverySettings,
    Due,
    Heard,
    Interest,
    Needs,
    PathFound,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Undelivered,
    View,
)
from wend.strategies.clusters.interest.cluster import ClusterView
from wend.strategies.clusters.interest.event_log import EventLog
from wend.strategies.clusters.interest.groups import FollowedGroups
from wend.strategies.clusters.interest.messages import HaveEvent, SharedMessage, TreeMessage
from wend.strategies.clusters.interest.parent_choice import CHOOSE
from wend.strategies.clusters.interest.parent_search import SEARCH
from wend.strategies.clusters.interest.places import TreePlaces
from wend.strategies.clusters.interest.repair import Repair
from wend.strategies.clusters.interest.settings import ClusterEventSettings
from wend.strategies.clusters.interest.sharing import Sharing
from wend.strategies.clusters.interest.trees import LATE, Trees
from wend.strategies.subscriptions.table import SubscriptionTable

SHARED_TYPES = frozenset(get_args(SharedMessage))


class ClusterInterest(Interest):
    """Shares events inside a cluster, and between clusters by trees."""

    needs: ClassVar[Needs] = Needs(paths=True)
    messages: ClassVar[Any] = SharedMessage | TreeMessage
    settings: ClassVar[type[Settings]] = ClusterEventSettings
    hears_anyone: ClassVar[bool] = True
    knows_all_subscribers: ClassVar[bool] = False

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
        if type(event) is Heard and type(event.message) in SHARED_TYPES:  # most inputs, so not the last of many
            return list(self._sharing.on_message(now, event.sender, event.message))
        return list(self._dispatch(now, event, view))

    def _dispatch(self, now: Nanos, event: PluginInput, view: View) -> Iterable[PluginEffect]:
        match event:
            case Heard(sender, HaveEvent() as message):
                return self._trees.on_offer(now, sender, message)
            case Heard(sender, message):
                return self._places.on_message(now, sender, message)
            case Due(name) if name == LATE:
                return self._trees.offer_late(now)
            case Due(name) if name == SEARCH:
                return self._places.finish_searches(now)
            case Due(name) if name == CHOOSE:
                return self._places.choose_parents(now)
            case Undelivered(peer, message):
                return self._trees.on_undelivered(now, peer, message)
            case PathFound():
                return self._places.on_path(now, event)
        return self._sharing.handle(now, event, view)
