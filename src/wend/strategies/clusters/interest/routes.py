"""Events between clusters by routes: a routing forwards them over links between coordinators.

- Active coordinators inform those of all other clusters of the groups that their cluster follows, with deadlines.
- For an event of its cluster, the first live coordinator hands the event to the routing. The destinations are one
  active coordinator of each cluster that follows the event. The packet carries the event's numbers (`EventNumbers`).
- The coordinator that such a packet reaches sends the event to all members of its cluster.
- Coordinators repair losses by digests. Their neighbours are other clusters that follow the group, so a cluster gets
  what it lacks even if the publisher's cluster is gone.
"""

from collections.abc import Iterator
from typing import Any

from wend.model.events import Event, EventId, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Arrived,
    DeliverySettings,
    Drop,
    GiveUp,
    GraphView,
    Notice,
    PeerConfig,
    PluginEffect,
    Refuse,
    RouteEvent,
)
from wend.strategies.clusters.interest.cluster import BATCH, NOT_A_COORDINATOR, ClusterView
from wend.strategies.clusters.interest.event_log import LogEntry, Logged
from wend.strategies.clusters.interest.groups import NOT_URGENT, FollowedGroups
from wend.strategies.clusters.interest.messages import (
    ClusterEvent,
    ClusterFollows,
    EventNumbers,
    FetchEvents,
    GroupDigest,
    TreeEvent,
    Urgency,
)
from wend.strategies.clusters.interest.repair import Repair
from wend.strategies.clusters.interest.settings import BEACONS_KEPT, ClusterEventSettings
from wend.strategies.clusters.membership.directory import ring_neighbours
from wend.strategies.ring.groups import find_groups
from wend.strategies.subscriptions.table import tighter

UNREACHABLE_NS: Nanos = 1 << 62


class Routes:
    """How coordinators bring events to other clusters by a routing."""

    def __init__(self, config: PeerConfig, cluster: ClusterView, groups: FollowedGroups, repair: Repair) -> None:
        self._cluster = cluster
        self._groups = groups
        self._repair = repair
        self._persistence = config.of(DeliverySettings).persistence
        self._expiry_ns = BEACONS_KEPT * config.of(ClusterEventSettings).cluster_beacon_ns
        self._followers: dict[str, dict[str, tuple[Urgency, Nanos]]] = {}
        """By other cluster and group: how soon the cluster needs events, and when it last announced it."""
        self._announced: dict[str, Urgency] = {}
        """The groups of this cluster in its last announcement."""
        self._informed: dict[tuple[str, int], PeerId] = {}
        """By other cluster and tree: the coordinator that received the announcement."""
        self._new: dict[tuple[EventId, bool], tuple[Logged, list[tuple[str, int]], int]] = {}
        """The events that the present input brought, from this cluster (False) or another one, with their numbers and
        hops."""

    def count_followers(self) -> int:
        """The other clusters that follow something."""
        return sum(map(bool, self._followers.values()))

    def on_event(self, now: Nanos, entry: LogEntry, tree: int, hops: int) -> list[PluginEffect]:
        """Hold a new event until `send_new`, because one packet carries it with all its numbers."""
        if tree >= 0 or entry.logged.home == self._cluster.name:
            _, numbers, _ = self._new.setdefault((entry.logged.event.id, tree >= 0), (entry.logged, [], hops))
            numbers.append((entry.group, entry.number))
        return []

    def pass_on(self, now: Nanos, entry: LogEntry, tree: int, sender: str, hops: int) -> list[PluginEffect]:
        """Do nothing: the publisher's cluster sends an event to all other clusters."""
        return []

    def send_new(self, now: Nanos, graph: GraphView) -> list[PluginEffect]:
        """Hand new events of this cluster to the routing, and send those of others to all members."""
        if not self._new:
            return []
        new, self._new = self._new, {}
        packets: list[PluginEffect] = []
        copies: list[PluginEffect] = []
        for (_, is_foreign), (logged, numbers, hops) in new.items():
            if is_foreign:
                followed = tuple(one for one in numbers if self._groups.cluster_since(one[0]) is not None)
                if followed:
                    message = ClusterEvent(logged.home, followed, logged.event, now - logged.born_ns, hops)
                    copies += self._cluster.multicast(message)
            elif self._is_speaker() and (dests := self._destinations([group for group, _ in numbers], graph)):
                header = EventNumbers(logged.home, tuple(numbers))
                packet = Arrived(self._cluster.me, logged.event, logged.born_ns, dests, header=header)
                packets.append(RouteEvent(packet))
        return packets + copies

    def _is_speaker(self) -> bool:
        """Whether this peer is the first active coordinator of its cluster that is believed to live."""
        believes_live = self._cluster.membership.believes_live
        live = (slot.active for slot in self._cluster.slots if believes_live(slot.active))
        return next(live, None) == self._cluster.me

    def _destinations(self, groups: list[str], graph: GraphView) -> tuple[PeerId, ...]:
        """The nearest live coordinator of each cluster that follows one of the groups."""
        delays = graph.distances(self._cluster.me)
        dests = []
        for cluster, follows in self._followers.items():
            if any(group in follows for group in groups):
                actives = [slot.active for slot in self._cluster.directory.get(cluster, ())]
                live = [peer for peer in actives if self._cluster.membership.believes_live(peer)] or actives
                if live:
                    dests.append(min(live, key=lambda peer: (delays.get(peer, UNREACHABLE_NS), live.index(peer))))
        return tuple(sorted(dests))

    def try_next_coordinators(self, stuck: GiveUp) -> list[PluginEffect]:
        """Send an event to the next coordinators of the clusters to which the routing has no route.

        Nothing is stored here. Coordinators repair losses by their digests.
        """
        others = {dest: self._next_coordinator(dest) for dest in stuck.dests}
        dests = tuple(sorted({other for other in others.values() if other not in (None, self._cluster.me)}))
        lost = tuple(dest for dest in stuck.dests if others[dest] not in dests)
        effects: list[PluginEffect] = [Drop(stuck.event.id, lost, stuck.code)] if lost else []
        if dests:
            packet = Arrived(self._cluster.me, stuck.event, stuck.born_ns, dests, header=stuck.header)
            effects += [Notice("reroute", dests[0]), RouteEvent(packet)]
        return effects

    def _next_coordinator(self, peer: PeerId) -> PeerId | None:
        """The active coordinator that comes after this one in its cluster; None after the last."""
        for slots in self._cluster.directory.values():
            actives = list(dict.fromkeys(slot.active for slot in slots))
            if peer in actives[:-1]:
                return actives[actives.index(peer) + 1]
        return None

    def deadline_ns(self, event: Event, origin: PeerId, dest: PeerId, graph: GraphView) -> Nanos | None:
        """The tightest deadline that the cluster of `dest` announced for an event from `origin`."""
        tightest: Nanos | None = None
        for cluster, follows in self._followers.items():
            if any(slot.active == dest for slot in self._cluster.directory.get(cluster, ())):
                for group in find_groups(event):
                    (deadline_ns, factor), _ = follows.get(group, (NOT_URGENT, 0))
                    shortest_ns = None if factor is None else graph.distances(origin).get(dest)
                    tightest = tighter(tightest, deadline_ns)
                    tightest = tighter(tightest, None if shortest_ns is None else round((factor or 1.0) * shortest_ns))
        return tightest

    def on_groups_changed(self, now: Nanos) -> Iterator[PluginEffect]:
        groups = self._groups.cluster_urgencies()
        if self._cluster.my_trees and groups != self._announced:
            gone = tuple(group for group in self._announced if group not in groups)
            self._announced = groups
            for cluster in self._cluster.directory:
                for tree in self._cluster.my_trees:
                    yield from self._announce(cluster, tree, gone)

    def _announce(
        self, cluster: str, tree: int, gone: tuple[str, ...] = (), asks: bool = False
    ) -> Iterator[PluginEffect]:
        if cluster != self._cluster.name:
            groups = [(group, *urgency) for group, urgency in self._announced.items()]
            for at in range(0, max(1, len(groups)), BATCH):
                message = ClusterFollows(cluster, tree, tuple(groups[at : at + BATCH]), gone, asks and not at)
                yield from self._cluster.send_to_cluster(message)

    def on_groups(self, now: Nanos, sender: PeerId, message: ClusterFollows) -> Iterator[PluginEffect]:
        """Record the groups that another cluster follows."""
        if not self._cluster.is_addressed(message):
            return
        cluster = self._cluster.holder_cluster(sender)
        if cluster is None:
            yield Refuse(sender, NOT_A_COORDINATOR)
            return
        if cluster == self._cluster.name:
            return
        is_mine = message.tree in self._cluster.my_trees
        follows = self._followers.setdefault(cluster, {})
        for group in message.gone:
            follows.pop(group, None)
        for group, deadline_ns, factor in message.groups:
            if group not in follows and is_mine:
                yield from self._repair.send_digests(group, message.tree, cluster)
            follows[group] = ((deadline_ns, factor), now)
        if message.asks and is_mine:
            yield from self._announce(cluster, message.tree)

    def neighbours(self, group: str, tree: int) -> list[str]:
        """Some of the other clusters that follow a group: its neighbours in a ring of all of them."""
        mine = self._cluster.name
        others = [cluster for cluster, follows in self._followers.items() if group in follows]
        return [name for name in ring_neighbours(sorted([*others, mine]), mine) if name in self._cluster.directory]

    def renew(self, now: Nanos) -> Iterator[PluginEffect]:
        for cluster, follows in list(self._followers.items()):
            if cluster not in self._cluster.directory:
                del self._followers[cluster]
            elif not self._persistence:
                for group in [group for group, (_, heard_ns) in follows.items() if heard_ns < now - self._expiry_ns]:
                    del follows[group]
        yield from self.on_groups_changed(now)
        for tree in self._cluster.my_trees:
            for cluster in self._cluster.directory:
                yield from self._announce(cluster, tree)
            for group in dict.fromkeys(stream[2] for stream in self._repair.log.streams):
                for cluster in self.neighbours(group, tree):
                    yield from self._repair.send_digests(group, tree, cluster)

    def on_cluster_changed(self, now: Nanos) -> Iterator[PluginEffect]:
        if not self._cluster.is_holder:
            self._followers.clear()
            self._groups.urgencies.clear()
        mine = self._cluster.my_trees
        if not mine:
            self._announced.clear()
            self._informed.clear()
            return
        # a coordinator that takes over does not know which events the earlier one handed over
        yield from [] if self._informed else self._repair.announce_all(now)
        yield from self.on_groups_changed(now)
        before, self._informed = self._informed, {}
        for cluster, slots in self._cluster.directory.items():
            for tree in mine:
                if tree < len(slots) and cluster != self._cluster.name:
                    active = self._informed[cluster, tree] = slots[tree].active
                    if before.get((cluster, tree)) != active:
                        yield from self._announce(cluster, tree, asks=not self._followers.get(cluster))

    def on_undelivered(self, peer: PeerId, message: Any) -> list[PluginEffect]:
        """Try the next backup of a cluster that does not answer."""
        match message:
            case ClusterFollows(to, tree):
                self._informed.pop((to, tree), None)
                return self._cluster.send_to_cluster(message, peer)
            case TreeEvent():
                return self._cluster.send_to_cluster(message, peer)
            case GroupDigest(to=to) | FetchEvents(to=to) if to:
                return self._cluster.send_to_cluster(message, peer)
        return []
