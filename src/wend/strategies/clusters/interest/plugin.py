"""`clusters`: events travel by multicast inside a cluster, and by several trees between clusters (esposito).

The membership of the same name knows the clusters and who coordinates them. What every member does is in
`cluster_groups.py` and `cluster_sharing.py`, what coordinators do in `cluster_places.py`, `cluster_parents.py` and
`cluster_trees.py`; this file dispatches.
"""

from typing import Any, ClassVar

from wend.model.events import PeerId
from wend.model.random_stream import peer_stream
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Arrived,
    Begun,
    Changed,
    Due,
    Heard,
    Needs,
    Notice,
    PathFound,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Recalled,
    Stopping,
    SubscriptionsChanged,
    Timer,
    Undelivered,
    View,
)
from wend.strategies.clusters.interest.groups import FETCH, REPAIR, ClusterEventSettings
from wend.strategies.clusters.interest.messages import (
    AddChild,
    AskParents,
    ChildAdded,
    ClusterEvent,
    ClusterMessage,
    EventAccepted,
    EventsGone,
    FetchEvents,
    FollowedSince,
    GroupDigest,
    HaveEvent,
    HoldTrees,
    MemberWants,
    ParentChosen,
    ParentsAre,
    ParentsFound,
    PublishedEvent,
    RemoveChild,
    TreeEvent,
)
from wend.strategies.clusters.interest.parents import CHOOSE, SEARCH
from wend.strategies.clusters.interest.trees import LATE, TreesBetweenClusters

_BEACON = "beacon"


class ClusterInterest(TreesBetweenClusters):
    """Shares events inside a cluster and between clusters."""

    needs: ClassVar[Needs] = Needs(paths=True)
    messages: ClassVar[Any] = ClusterMessage
    settings: ClassVar[type[Settings]] = ClusterEventSettings
    hears_anyone: ClassVar[bool] = True
    names_everyone: ClassVar[bool] = False
    durable: ClassVar[bool] = True

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._draw = peer_stream(config.seed, "interest", config.peer, config.incarnation)
        self._roles: tuple[tuple[PeerId, ...], ...] = ()
        """By tree: the coordinator and its backups, as this peer last saw them."""

    def status(self) -> dict[str, int]:
        """The `groups` that this peer follows, `streams` of publishers that it knows, events `held` for others, those
        `missing` here, and `waiting` for a coordinator. Of a coordinator: its `places` in trees and its `neighbours`
        there."""
        return {
            "groups": len(self._since),
            "streams": len(self._log.streams),
            "held": len(self._log),
            "missing": sum(found.lacks for found in self._log.streams.values()),
            "waiting": len(self._waiting),
            "places": len(self._places),
            "neighbours": sum(len(place.neighbours) for place in self._places.values()),
        }

    def tree_edges(self) -> list[tuple[str, int, str]]:
        """This coordinator's parents: group, tree and the parent's cluster."""
        return [(group, tree, place.parent) for (group, tree), place in self._places.items() if place.parent]

    # ---------------------------------------------------------------- inputs

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        self._members = view.membership
        match event:
            case Heard(sender, message):
                self._heard(now, sender, message)
            case Arrived():
                self._publish(now, event.event, event.born_ns)
            case Due(name):
                self._due(now, name)
            case Undelivered(peer, message):
                self._undelivered(now, peer, message)
            case SubscriptionsChanged():
                self._subscriptions_changed(now, view)
            case Changed("cluster"):
                self._changed(now)
            case PathFound():
                self._path_found(now, event)
            case Begun():
                self._out.append(Timer(now + round(self._draw.random() * self._shared.cluster_beacon_ns), _BEACON))
                if self._waiting:
                    self._repair_soon(now)
            case Recalled(PublishedEvent() as record):
                self._recalled_event(now, record)
            case Recalled(FollowedSince(group, since)):
                self._stored_since[group] = since if since <= now else -(1 << 62)
            case Stopping():
                self._stopping = True
        out, self._out = self._out, []
        return out

    def _due(self, now: Nanos, name: str) -> None:
        if name == REPAIR:
            self._repair(now)
        elif name == FETCH:
            self._fetch(now)
        elif name == LATE:
            self._look_for_late(now)
        elif name == SEARCH:
            for group, tree in list(self._searches):
                self._look_at_search(now, group, tree)
        elif name == CHOOSE:
            self._look_at_choices(now)
        elif name == _BEACON and not self._stopping:
            self._tell_wants(now)
            self._expire_wants(now)
            self._renew_trees(now)
            self._out.append(Timer(now + self._shared.cluster_beacon_ns, _BEACON))

    def _changed(self, now: Nanos) -> None:
        """Members, coordinators or other clusters are others than before."""
        slots = self._members.slots
        roles = tuple(slot.holders for slot in slots)
        if roles != self._roles:
            for before, after in zip(self._roles, roles, strict=False):
                if after[0] == self._me != before[0]:
                    self._out.append(Notice("took-over", before[0]))
            self._roles = roles
            self._tell_wants(now)
            if not self._holds:
                self._wants.clear()
            for waiting in self._waiting.values():
                waiting.until_ns = now
            if self._waiting:
                self._hand_over(now)
                self._repair_soon(now)
        self._cluster_changed(now)

    def _heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        match message:
            case ClusterEvent():
                self._hear_event(now, sender, message)
            case TreeEvent():
                self._hear_tree_event(now, sender, message)
            case EventAccepted():
                self._accepted(sender, message)
            case GroupDigest(to=""):
                self._hear_digest(now, sender, message)
            case GroupDigest():
                self._hear_tree_digest(now, sender, message)
            case FetchEvents():
                self._give(now, sender, message)
            case EventsGone():
                self._gone(now, sender, message)
            case MemberWants():
                self._hear_wants(now, sender, message)
            case HoldTrees():
                self._hold_trees(sender, message)
            case AskParents():
                self._asked_for_parents(sender, message)
            case ParentsAre():
                self._parents_are(now, sender, message)
            case ParentsFound():
                self._parents_found(now, sender, message)
            case ParentChosen():
                self._parent_chosen(now, sender, message)
            case AddChild():
                self._add_child(now, sender, message)
            case ChildAdded():
                self._child_added(now, sender, message)
            case RemoveChild():
                self._remove_child(now, sender, message)
            case HaveEvent():
                self._have_event(now, sender, message)
