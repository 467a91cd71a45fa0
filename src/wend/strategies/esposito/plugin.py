"""`esposito`: the scheme of esposito, section 3, as it is printed. `clusters` is the better one that grew from it.

Inside a cluster events travel by multicast, which counts as reliable. Between clusters they travel down several Scribe
trees, each with a coordinator of its own in every cluster. Nobody acknowledges a message, compares digests or looks for
a better parent. The membership `clusters` elects the coordinators and their backups, and knows other clusters.
"""

from collections.abc import Iterable, Iterator
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
    Interest,
    Needs,
    PathFound,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Refuse,
    SubscriptionsChanged,
    Timer,
    Undelivered,
    View,
)
from wend.strategies.esposito.cluster import NOT_A_COORDINATOR, NOT_A_MEMBER, ClusterNodes
from wend.strategies.esposito.events import TreeEvents
from wend.strategies.esposito.groups import MemberGroups
from wend.strategies.esposito.joining import SEARCH, PathAnswers, TreeJoins
from wend.strategies.esposito.messages import (
    AskPath,
    ChildRegistered,
    ChosenParent,
    DropChild,
    EspositoMessage,
    EventDown,
    EventToRoot,
    FetchEvent,
    FindParent,
    MemberFollows,
    MemberMessage,
    MulticastEvent,
    OfferEvent,
    PlaceChanged,
    RegisterChild,
    Rejoin,
    TreeMessage,
    TreeNeighbours,
)
from wend.strategies.esposito.places import Places
from wend.strategies.esposito.recovery import LATE, ExpectedEvents
from wend.strategies.esposito.settings import EspositoSettings
from wend.strategies.ring.key_based import FARTHEST_HOPS, OwnSubscriptions

BEACON = "beacon"


class Esposito(Interest):
    """Hands events to multicast inside a cluster, and to several Scribe trees between clusters."""

    needs: ClassVar[Needs] = Needs(paths=True)
    messages: ClassVar[Any] = EspositoMessage
    settings: ClassVar[type[Settings]] = EspositoSettings
    hears_anyone: ClassVar[bool] = True
    knows_all_subscribers: ClassVar[bool] = False
    durable: ClassVar[bool] = False

    def __init__(self, config: PeerConfig) -> None:
        subscriptions = OwnSubscriptions(config.peer)
        super().__init__(config, subscriptions)
        settings = config.of(EspositoSettings)
        self._beacon_ns = settings.place_beacon_ns
        draw = peer_stream(config.seed, "interest", config.peer, config.incarnation)
        self._first_beacon_ns = round(draw.random() * self._beacon_ns)
        self._cluster = cluster = ClusterNodes(config.peer)
        self._groups = groups = MemberGroups(cluster, subscriptions)
        self._places = places = Places(cluster, groups, self._beacon_ns)
        self._joining = TreeJoins(cluster, places)
        self._answers = PathAnswers(cluster, places)
        self._events = TreeEvents(cluster, places, groups, subscriptions, ExpectedEvents(settings.first_gap_ns))

    def status(self) -> dict[str, int]:
        """Of a coordinator: its `places` in trees."""
        return {"places": len(self._places)}

    def tree_edges(self) -> list[tuple[str, int, str]]:
        """This coordinator's parents: group, tree and the parent's cluster."""
        return self._places.edges()

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        self._cluster.membership = view.membership
        return list(self._dispatch(now, event))

    def _dispatch(self, now: Nanos, event: PluginInput) -> Iterable[PluginEffect]:
        match event:
            case Heard(sender, message) if isinstance(message, MemberMessage):
                is_member = sender in self._cluster.members
                return self._on_member_message(now, sender, message) if is_member else [Refuse(sender, NOT_A_MEMBER)]
            case Heard(sender, message):
                return self._on_cluster_message(now, sender, message)
            case Arrived():
                return self._events.publish(now, event.event, event.born_ns)
            case SubscriptionsChanged():
                return [*self._groups.update(), *self._joining.join_trees_without_parent(now)]
            case Changed("cluster"):
                self._groups.forget_former_members()
                return [
                    *self._groups.announce(),
                    *self._places.take_over(now),
                    *self._joining.join_trees_without_parent(now),
                ]
            case PathFound():
                return self._answers.on_path(event)
            case Undelivered(peer, message) if peer == self._cluster.me:  # too large to multicast
                return self._cluster.send_to_all(self._cluster.members, message)
            case Begun():
                return [Timer(now + self._first_beacon_ns, BEACON)]
            case Due(name) if name == SEARCH:
                return self._announce_choices(now)
            case Due(name) if name == LATE:
                return self._events.tell_parents(now)
            case Due(name) if name == BEACON:
                return self._send_beacon(now)
        return []

    def _send_beacon(self, now: Nanos) -> Iterator[PluginEffect]:
        yield Timer(now + self._beacon_ns, BEACON)
        self._answers.forget_paths()
        yield from self._groups.announce()
        yield from self._places.renew(now)
        yield from self._joining.retry(now)

    # ---------------------------------------------------------------- messages

    def _on_member_message(self, now: Nanos, sender: PeerId, message: MemberMessage) -> Iterable[PluginEffect]:
        match message:
            case MulticastEvent():
                return self._events.on_multicast(now, sender, message)
            case MemberFollows():
                self._groups.on_member_follows(sender, message)
                return self._joining.join_trees_without_parent(now)
            case PlaceChanged():
                if 0 <= message.tree < len(self._cluster.slots):
                    self._places.on_place_changed(now, message)
                return self._joining.join_trees_without_parent(now)
            case ChosenParent(group, tree, parent):
                return self._places.choose(group, tree, parent) if tree in self._cluster.my_trees else []
            case Rejoin(group):
                return self._joining.rejoin(now, group)

    def _on_cluster_message(self, now: Nanos, sender: PeerId, message: TreeMessage) -> Iterable[PluginEffect]:
        cluster = self._cluster.holder_cluster(sender)
        if cluster is None or cluster == self._cluster.name:
            return [Refuse(sender, NOT_A_COORDINATOR)]
        if not 0 <= getattr(message, "hops", 0) <= FARTHEST_HOPS:
            return [Refuse(sender, "invalid-hops")]
        if isinstance(message, TreeNeighbours | RegisterChild | DropChild) and message.cluster != cluster:
            return [Refuse(sender, NOT_A_COORDINATOR)]
        if isinstance(message, TreeNeighbours):
            return [*self._joining.on_neighbours(now, message), *self._announce_choices(now)]
        if message.tree not in self._cluster.my_trees:
            return []  # it is for a coordinator before this one, or after it
        match message:
            case EventToRoot():
                return self._events.on_way_to_root(now, sender, message)
            case EventDown():
                return self._events.on_way_down(now, sender, cluster, message)
            case OfferEvent():
                return self._on_offer(now, sender, message)
            case FetchEvent():
                return self._events.on_fetch(now, sender, message)
            case FindParent():
                return self._answers.on_find_parent(message)
            case AskPath():
                return self._answers.on_ask_path(message)
            case RegisterChild():
                return [*self._places.add_child(now, message), *self._joining.join_trees_without_parent(now)]
            case ChildRegistered():
                return [
                    *self._places.on_child_registered(cluster, message),
                    *self._joining.join_trees_without_parent(now),
                ]
            case DropChild():
                return self._places.remove_child(message)

    def _on_offer(self, now: Nanos, sender: PeerId, message: OfferEvent) -> list[PluginEffect]:
        effects = self._events.on_offer(sender, message)
        return [*effects, *(self._joining.rejoin(now, message.group) if effects else [])]

    def _announce_choices(self, now: Nanos) -> Iterator[PluginEffect]:
        """Tell the coordinators of this cluster which parents were chosen for their trees."""
        for choice in self._joining.finish(now):
            if choice.tree in self._cluster.my_trees:
                yield from self._places.choose(choice.group, choice.tree, choice.parent)
            else:
                yield from self._cluster.send_to_all([self._cluster.slots[choice.tree].active], choice)
