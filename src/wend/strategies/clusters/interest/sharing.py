"""Events inside a cluster: every member gets all of them by multicast, and fetches those that it missed.

Another part (`BetweenClusters`) brings events to other clusters: by trees (`trees.py`) or by a routing (`routes.py`).
"""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from wend.model.events import Event, PeerId
from wend.model.random_stream import peer_stream
from wend.model.units import FOREVER, Nanos
from wend.protocol.plugins import (
    Arrived,
    Begun,
    Changed,
    DeliverHere,
    DeliverySettings,
    Due,
    Heard,
    Notice,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Recalled,
    Refuse,
    SendTo,
    Stopping,
    SubscriptionsChanged,
    Timer,
    View,
)
from wend.strategies.clusters.interest.cluster import NOT_A_COORDINATOR, NOT_A_MEMBER, ClusterView
from wend.strategies.clusters.interest.event_log import LogEntry, Logged
from wend.strategies.clusters.interest.groups import FollowedGroups
from wend.strategies.clusters.interest.messages import (
    ClusterEvent,
    EventAccepted,
    EventsGone,
    FetchEvents,
    FollowedSince,
    GroupDigest,
    GroupNumbers,
    MemberWants,
    PublishedEvent,
    TreeEvent,
)
from wend.strategies.clusters.interest.publications import OwnPublications
from wend.strategies.clusters.interest.repair import FETCH, REPAIR, Repair
from wend.strategies.clusters.interest.settings import BEACONS_KEPT, ClusterEventSettings

BEACON = "beacon"
IDLE = 10
"""A peer forgets a stream that has not grown for this multiple of the time for which it holds events."""
FROM_MEMBER = -1
"""In place of a tree: the event is from a member of this cluster."""


class BetweenClusters(Protocol):
    """How coordinators bring events to other clusters."""

    def neighbours(self, group: str, tree: int) -> list[str]:
        """The clusters with which this one compares digests."""

    def on_event(self, now: Nanos, entry: LogEntry, tree: int, hops: int) -> Iterable[PluginEffect]:
        """Handle a coordinator's new event, from a member or from another cluster on this tree."""

    def pass_on(self, now: Nanos, entry: LogEntry, tree: int, sender: str, hops: int) -> Iterable[PluginEffect]:
        """Forward a copy from another cluster, new or not."""

    def on_groups_changed(self, now: Nanos) -> Iterable[PluginEffect]:
        """Follow a change of the groups that the cluster follows."""

    def on_cluster_changed(self, now: Nanos) -> Iterable[PluginEffect]:
        """Follow a change of members, coordinators or other clusters."""

    def renew(self, now: Nanos) -> Iterable[PluginEffect]:
        """Renew this cluster's announcements, and forget those that other clusters did not renew."""


class Sharing:
    """The events of this peer's cluster: published, received, delivered and repaired."""

    def __init__(
        self, config: PeerConfig, cluster: ClusterView, groups: FollowedGroups, repair: Repair, between: BetweenClusters
    ) -> None:
        self._cluster = cluster
        self._groups = groups
        self._repair = repair
        self._between = between
        self._settings = config.of(ClusterEventSettings)
        self._persistence = config.of(DeliverySettings).persistence
        self._publications = OwnPublications(cluster, repair.log, self._persistence)
        self._draw = peer_stream(config.seed, "interest", config.peer, config.incarnation)
        self._roles: tuple[tuple[PeerId, ...], ...] = ()
        """By tree: the coordinator and its backups before the latest change."""
        self._is_stopping = False

    def status(self) -> dict[str, int]:
        log = self._repair.log
        return {
            "groups": len(self._groups.own),
            "streams": len(log.streams),
            "held": len(log),
            "missing": sum(stream.has_gaps for stream in log.streams.values()),
            "waiting": len(self._publications),
        }

    # ---------------------------------------------------------------- inputs

    def handle(self, now: Nanos, event: PluginInput, view: View) -> Iterable[PluginEffect]:
        match event:
            case Heard(sender, message):
                return self.on_message(now, sender, message)
            case Arrived():
                return self._publish(now, event.event, event.born_ns)
            case Due(name):
                return self._on_timer(now, name)
            case SubscriptionsChanged():
                return self._on_subscriptions_changed(now, view)
            case Changed("cluster"):
                return self._on_cluster_changed(now)
            case Begun():
                beacon = Timer(now + round(self._draw.random() * self._settings.cluster_beacon_ns), BEACON)
                return [beacon, *(self._repair.schedule(now) if len(self._publications) else ())]
            case Recalled(PublishedEvent() as record):
                self._publications.restore(now, record)
            case Recalled(FollowedSince() as record):
                self._groups.restore(now, record)
            case Stopping():
                self._is_stopping = True
        return []

    def on_message(self, now: Nanos, sender: PeerId, message: Any) -> Iterable[PluginEffect]:
        is_member = sender in self._cluster.members
        match message:
            case GroupDigest() if message.to:
                return self._on_cluster_message(now, sender, message)
            case GroupDigest() if is_member:
                return self._repair.on_digest(now, sender, message)
            case ClusterEvent() if is_member:
                return self._on_event(now, sender, message)
            case TreeEvent():
                return self._on_event_from_other_cluster(now, sender, message)
            case EventAccepted():
                return self._on_event_accepted(sender, message)
            case EventsGone():
                return self._on_events_gone(sender, message)
            case FetchEvents() if message.tree >= 0:
                return self._on_cluster_message(now, sender, message)
            case FetchEvents() if is_member:
                return self._repair.answer(now, sender, message)
            case MemberWants() if is_member:
                return self._on_member_groups(now, sender, message)
            case PublishedEvent() | FollowedSince():  # a peer stores these and sends them to nobody
                return []
        return [Refuse(sender, NOT_A_MEMBER)]

    def _on_cluster_message(
        self, now: Nanos, sender: PeerId, message: GroupDigest | FetchEvents
    ) -> Iterable[PluginEffect]:
        if not self._cluster.is_addressed(message):
            return []
        other = self._cluster.holder_cluster(sender)
        if other is None:
            return [Refuse(sender, NOT_A_COORDINATOR)]
        if isinstance(message, FetchEvents):
            return self._repair.answer(now, sender, message, other)
        return self._repair.on_cluster_digest(now, sender, other, message)

    def _on_event_accepted(self, sender: PeerId, message: EventAccepted) -> list[PluginEffect]:
        if not self._publications.is_pending(message.id):
            return []
        if sender not in self._cluster.members:
            return [Refuse(sender, NOT_A_MEMBER)]
        return self._publications.on_accepted(sender, message)

    def _on_events_gone(self, sender: PeerId, message: EventsGone) -> list[PluginEffect]:
        if message.stream not in self._repair.log.streams:
            return []
        if sender not in self._cluster.members and self._cluster.holder_cluster(sender) is None:
            return [Refuse(sender, NOT_A_COORDINATOR)]
        self._repair.skip_lost(message)
        return []

    def _on_member_groups(self, now: Nanos, sender: PeerId, message: MemberWants) -> Iterator[PluginEffect]:
        is_new = self._groups.on_member_groups(now, sender, message)
        yield from self._between.on_groups_changed(now) if is_new else []
        slots = self._cluster.slots
        if slots and slots[0].active == self._cluster.me:
            for group, _ in message.groups:
                yield from [self._cluster.send(sender, digest) for digest in self._repair.make_digests(group)]

    def _on_timer(self, now: Nanos, name: str) -> Iterator[PluginEffect]:
        if name == REPAIR:
            yield from self._repair_all(now)
            return
        if name == FETCH:
            yield from self._repair.fetch(now, self._between.neighbours)
            return
        if name != BEACON or self._is_stopping:
            return
        beacon_ns = self._settings.cluster_beacon_ns
        yield from self._groups.announce(now)
        self._groups.expire(now - BEACONS_KEPT * beacon_ns)
        yield from self._between.renew(now)
        yield Timer(now + beacon_ns, BEACON)

    def _on_subscriptions_changed(self, now: Nanos, view: View) -> Iterator[PluginEffect]:
        before = self._groups.own
        yield from self._groups.update(now, view)
        groups = self._groups.own
        if groups.keys() != before.keys():
            self._repair.forget_streams()
            yield from self._groups.announce(now, tuple(group for group in before if group not in groups))
            if self._cluster.is_holder:
                yield from self._between.on_groups_changed(now)

    def _on_cluster_changed(self, now: Nanos) -> Iterator[PluginEffect]:
        me = self._cluster.me
        roles = tuple(slot.holders for slot in self._cluster.slots)
        if roles != self._roles:
            for before, after in zip(self._roles, roles, strict=False):
                if after[0] == me != before[0]:
                    yield Notice("took-over", before[0])
            self._roles = roles
            yield from self._groups.announce(now)
            if not self._cluster.is_holder:
                self._groups.forget_members()
            if len(self._publications):
                yield from self._publications.retry_now(now)
                yield from self._repair.schedule(now)
        yield from self._between.on_cluster_changed(now)

    # ---------------------------------------------------------------- events

    def _publish(self, now: Nanos, event: Event, born_ns: Nanos) -> list[PluginEffect]:
        """Send an event of this peer's publishers to all members, until coordinators accept it."""
        numbers, effects = self._publications.add(now, event, born_ns)
        if not numbers:
            return effects
        effects += self.log_in_groups(now, Logged(event, born_ns, self._cluster.name), numbers, FROM_MEMBER, 0)
        effects += self._publications.accept(event.id, self._cluster.my_trees)
        return effects + self._repair.schedule(now)

    def _on_event(self, now: Nanos, sender: PeerId, message: ClusterEvent) -> Iterator[PluginEffect]:
        id_ = message.event.id
        born_ns = now - max(0, message.age_ns) - self._cluster.membership.round_trip_ns(sender) // 2
        logged = Logged(message.event, born_ns, message.home)
        yield from self.log_in_groups(now, logged, message.numbers, FROM_MEMBER, message.hops, sender)
        trees = self._cluster.my_trees
        if sender == id_.publisher and trees:
            yield SendTo(sender, EventAccepted(id_, trees))

    def _on_event_from_other_cluster(self, now: Nanos, sender: PeerId, message: TreeEvent) -> Iterator[PluginEffect]:
        if not self._cluster.is_addressed(message):
            yield Notice("reroute", sender)
            return
        other = self._cluster.holder_cluster(sender)
        if other is None:
            yield Refuse(sender, NOT_A_COORDINATOR)
            return
        id_ = message.event.id
        age_ns = min(max(0, message.age_ns), FOREVER) + self._cluster.membership.round_trip_ns(sender) // 2
        logged = Logged(message.event, now - age_ns, message.home)
        entry = LogEntry((id_.publisher, id_.incarnation, message.group), message.number, logged)
        yield from self._log_in_group(now, entry, message.tree, message.hops, sender)
        yield from self._between.pass_on(now, entry, message.tree, other, message.hops)

    def log_in_groups(
        self, now: Nanos, logged: Logged, numbers: GroupNumbers, tree: int, hops: int, sender: PeerId | None = None
    ) -> Iterator[PluginEffect]:
        """Log an event in its groups and deliver it."""
        id_ = logged.event.id
        for group, number in numbers:
            entry = LogEntry((id_.publisher, id_.incarnation, group), number, logged)
            yield from self._log_in_group(now, entry, tree, hops, sender)

    def _log_in_group(
        self, now: Nanos, entry: LogEntry, tree: int, hops: int, sender: PeerId | None
    ) -> Iterator[PluginEffect]:
        """Log an event if this peer follows the group or holds events for others, deliver it, and look for gaps."""
        cluster, logged = self._cluster, entry.logged
        follows, is_holder = self._groups.follows(entry.group), cluster.is_holder
        is_own = entry.stream[0] == cluster.me
        must_hold = is_own or tree >= 0
        if not (follows or must_hold or (is_holder and logged.home == cluster.name)):
            return
        log = self._repair.log.open_stream(now, entry.stream)
        if not log.add(entry.number):
            return
        yield from self._repair.hold(now, entry) if is_holder or must_hold else []
        if follows and not is_own and self._groups.wants(logged.event):
            yield DeliverHere(logged.event, logged.born_ns)
        if log.has_gaps and sender is not None:
            yield from self._repair.fetch_soon(now, entry.stream, sender)
        if cluster.my_trees:
            yield from self._between.on_event(now, entry, tree, hops)

    # ---------------------------------------------------------------- repair

    def _repair_all(self, now: Nanos) -> Iterator[PluginEffect]:
        repair, neighbours = self._repair, self._between.neighbours
        repair.is_scheduled = False
        yield from repair.fetch(now, neighbours)
        yield from self._publications.retry(now)
        if self._cluster.my_trees:
            yield from repair.announce_new_events(neighbours)
        repair.count_down_repeats()
        if not self._persistence:
            hold_ns = self._settings.cluster_hold_ns
            repair.log.forget_before(now - hold_ns)
            repair.log.forget_idle(now - IDLE * hold_ns)
        if repair.is_busy or len(self._publications):
            yield from repair.schedule(now)
