"""`cluster-graph`: `clusters` inside a cluster; between clusters a routing forwards events over links.

- Active coordinators tell those of all other clusters which groups their cluster follows, and how soon it needs events.
- For an event of its cluster, the first live coordinator hands the event to the routing. The destinations are one
  active coordinator of each cluster that follows the event. The packet carries the event's numbers (`EventNumbers`).
- The coordinator that such a packet reaches sends the event to all members of its cluster.
- Coordinators repair losses by digests, as `clusters` does. Their neighbours are other clusters that follow the group.
  So a cluster gets what it lacks even if the publisher's cluster is gone.
"""

from typing import Any, ClassVar

import msgspec

from wend.matching.filters import parse
from wend.model.events import Event, EventId, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Arrived, GraphView, Needs, PeerConfig, PluginEffect, PluginInput, RouteEvent, View
from wend.strategies.clusters.interest.event_log import Logged, Stream
from wend.strategies.clusters.interest.groups import BATCH, TOLD
from wend.strategies.clusters.interest.messages import (
    ClusterEvent,
    EventAccepted,
    EventsGone,
    FetchEvents,
    FollowedSince,
    GroupDigest,
    MemberWants,
    PublishedEvent,
    TreeEvent,
)
from wend.strategies.clusters.interest.plugin import ClusterInterest
from wend.strategies.clusters.membership.links import ring_neighbours
from wend.strategies.ring.groups import group_of, groups_of
from wend.strategies.subscriptions.table import tighter

Urgency = tuple[Nanos | None, float | None]
"""The tightest deadline, and the tightest factor of the shortest delay, of some subscriptions."""
GroupUrgency = tuple[str, Nanos | None, float | None]


class EventNumbers(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The header of a packet between clusters."""

    home: str
    """The cluster of the event's publisher."""
    numbers: tuple[tuple[str, int], ...]
    """Its groups, each with its number there."""


class MemberDeadlines(msgspec.Struct, frozen=True, gc=False, tag="cx"):
    """To the coordinators and backups: how soon a member needs events of these groups."""

    deadlines: tuple[GroupUrgency, ...]


class ClusterFollows(msgspec.Struct, frozen=True, gc=False, tag="tf"):
    """To a coordinator of another cluster: the groups that the sender's cluster follows, and how soon it needs their
    events. It says so again with every beacon."""

    to: str
    tree: int
    groups: tuple[GroupUrgency, ...]
    gone: tuple[str, ...] = ()
    """Those that it follows no longer."""
    asks: bool = False
    """Whether the receiver is to answer with its own."""


GraphMessage = (
    MemberWants
    | MemberDeadlines
    | ClusterEvent
    | EventAccepted
    | GroupDigest
    | FetchEvents
    | EventsGone
    | TreeEvent
    | ClusterFollows
    | PublishedEvent
    | FollowedSince
)


class ClusterGraph(ClusterInterest):
    """Shares events inside a cluster, and hands them to the routing for other clusters."""

    needs: ClassVar[Needs] = Needs()
    messages: ClassVar[Any] = GraphMessage
    takes_packets: ClassVar[bool] = True

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._urgencies: dict[PeerId, dict[str, Urgency]] = {}
        """At coordinators and backups: how soon members need events."""
        self._followers: dict[str, dict[str, tuple[Urgency, Nanos]]] = {}
        """By other cluster and group: how soon it needs events, and when it last said so."""
        self._told: dict[str, Urgency] = {}
        """What this coordinator last told other clusters."""
        self._told_to: dict[tuple[str, int], PeerId] = {}
        """By other cluster and tree: the coordinator that knows it."""
        self._new: dict[tuple[EventId, bool], tuple[Logged, list[tuple[str, int]], int]] = {}
        """What this input brought, from this cluster (False) or another one: events with their numbers and hops."""

    def status(self) -> dict[str, int]:
        """The `groups` that this peer follows, `streams` of publishers that it knows, events `held` for others, those
        `missing` here, and `waiting` for a coordinator. Of a coordinator: the other clusters that follow something,
        `followers`."""
        shown = super().status()
        del shown["places"], shown["neighbours"]
        return {**shown, "followers": sum(map(bool, self._followers.values()))}

    # ---------------------------------------------------------------- inputs

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        self._members = view.membership
        if type(event) is Arrived and event.dests:
            self._landed(now, event)
            out, self._out = self._out, []
        else:
            out = super().handle(now, event, view)
        if self._new:
            out += self._pass_on(now, view)
        return out

    def _heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        match message:
            case ClusterFollows():
                self._hear_follows(now, sender, message)
            case MemberDeadlines(deadlines):
                if self._is_member(sender):
                    self._urgencies[sender] = {group: (deadline, factor) for group, deadline, factor in deadlines}
            case _:
                super()._heard(now, sender, message)

    def _undelivered(self, now: Nanos, peer: PeerId, message: Any) -> None:
        match message:
            case ClusterFollows(to, tree):
                self._told_to.pop((to, tree), None)
                self._to_cluster(message, peer)
            case TreeEvent():
                self._to_cluster(message, peer)
            case _:
                super()._undelivered(now, peer, message)

    # ---------------------------------------------------------------- events

    def _received(self, now: Nanos, stream: Stream, number: int, logged: Logged, tree: int, hops: int) -> None:
        if tree >= 0 or logged.home == self._members.cluster:
            found = self._new.setdefault((logged.event.id, tree >= 0), (logged, [], hops))
            found[1].append((stream[2], number))

    def _forward(
        self, now: Nanos, stream: Stream, number: int, logged: Logged, tree: int, sender: str, hops: int
    ) -> None:
        """The publisher's cluster sends an event to all others, so nobody else does."""

    def _landed(self, now: Nanos, packet: Arrived) -> None:
        """A packet has reached this coordinator."""
        if packet.header is None or not self._holds:
            return
        id_ = packet.event.id
        logged = Logged(packet.event, packet.born_ns, packet.header.home)
        for group, number in packet.header.numbers:
            if self._follows(group):
                self._keep(now, (id_.publisher, id_.incarnation, group), number, logged, 0, len(packet.path))

    def _pass_on(self, now: Nanos, view: View) -> list[PluginEffect]:
        """Hand new events of this cluster to the routing, and send those of others to all members."""
        new, self._new = self._new, {}
        found: list[PluginEffect] = []
        for (_, from_abroad), (logged, numbers, hops) in new.items():
            if from_abroad:
                followed = tuple(one for one in numbers if self._cluster_since(one[0]) is not None)
                if followed:
                    self._cast(now, ClusterEvent(logged.home, followed, logged.event, now - logged.born_ns, hops))
            elif self._speaks and (dests := self._destinations([group for group, _ in numbers], view)):
                header = EventNumbers(logged.home, tuple(numbers))
                found.append(RouteEvent(Arrived(self._me, logged.event, logged.born_ns, dests, header=header)))
        found += self._out
        self._out = []
        return found

    @property
    def _speaks(self) -> bool:
        """Whether this peer is the first active coordinator of its cluster that is believed to live."""
        live = (slot.active for slot in self._members.slots if self._members.believes_live(slot.active))
        return next(live, None) == self._me

    def _destinations(self, groups: list[str], view: View) -> tuple[PeerId, ...]:
        """The nearest live coordinator of each cluster that follows one of the groups."""
        away = view.graph.distances(self._me)
        found = []
        for cluster, follows in self._followers.items():
            if any(group in follows for group in groups):
                actives = [slot.active for slot in self._directory.get(cluster, ())]
                live = [peer for peer in actives if self._members.believes_live(peer)] or actives
                if live:
                    found.append(min(live, key=lambda peer: (away.get(peer, 1 << 62), live.index(peer))))
        return tuple(sorted(found))

    def next_coordinator(self, peer: PeerId) -> PeerId | None:
        """The active coordinator that comes after this one in its cluster; None after the last."""
        for slots in self._directory.values():
            actives = list(dict.fromkeys(slot.active for slot in slots))
            if peer in actives[:-1]:
                return actives[actives.index(peer) + 1]
        return None

    # ---------------------------------------------------------------- what clusters follow

    def _tell_wants(self, now: Nanos, gone: tuple[str, ...] = ()) -> None:
        mine = [one for one in self._own_urgencies().items() if one[1] != (None, None)]
        for at in range(0, len(mine), BATCH):
            part = tuple((group, *urgency) for group, urgency in mine[at : at + BATCH])
            for peer in self._holders:
                self._send(peer, MemberDeadlines(part))
        super()._tell_wants(now, gone)

    def _own_urgencies(self) -> dict[str, Urgency]:
        found: dict[str, Urgency] = {}
        for one in self.table.own:
            group = group_of(parse(one.filter))
            found[group] = _tightest(found.get(group), (one.qos.deadline_ns, one.qos.factor))
        return found

    def _following(self) -> dict[str, Urgency]:
        """The groups that the cluster follows, each with how soon."""
        told = [self._own_urgencies(), *(self._urgencies.get(peer, {}) for peer in self._wants)]
        found: dict[str, Urgency] = {}
        for group in self._wanted_groups():
            for urgencies in told:
                if group in urgencies:
                    found[group] = _tightest(found.get(group), urgencies[group])
            found.setdefault(group, (None, None))
        return found

    def _follows_more(self, now: Nanos) -> None:
        following = self._following()
        if self._members.my_trees and following != self._told:
            gone = tuple(group for group in self._told if group not in following)
            self._told = following
            for cluster in self._directory:
                for tree in self._members.my_trees:
                    self._tell_follows(cluster, tree, gone)

    def _tell_follows(self, cluster: str, tree: int, gone: tuple[str, ...] = (), asks: bool = False) -> None:
        if cluster == self._members.cluster:
            return
        groups = [(group, *urgency) for group, urgency in self._told.items()]
        for at in range(0, max(1, len(groups)), BATCH):
            self._to_cluster(ClusterFollows(cluster, tree, tuple(groups[at : at + BATCH]), gone, asks and not at))

    def _hear_follows(self, now: Nanos, sender: PeerId, told: ClusterFollows) -> None:
        cluster = self._abroad(sender) if told.to == self._members.cluster and self._holds else None
        if cluster is None or cluster == self._members.cluster:
            return
        follows = self._followers.setdefault(cluster, {})
        for group in told.gone:
            follows.pop(group, None)
        for group, deadline, factor in told.groups:
            if group not in follows and told.tree in self._members.my_trees:
                self._tell_neighbour(group, told.tree, cluster)
            follows[group] = ((deadline, factor), now)
        if told.asks and told.tree in self._members.my_trees:
            self._tell_follows(cluster, told.tree)

    def cluster_deadline_ns(self, event: Event, origin: PeerId, dest: PeerId, graph: GraphView) -> Nanos | None:
        """When an event from one coordinator is due at another: the tightest that the other's cluster has told."""
        found: Nanos | None = None
        for cluster, follows in self._followers.items():
            if any(slot.active == dest for slot in self._directory.get(cluster, ())):
                for group in groups_of(event):
                    (deadline, factor), _ = follows.get(group, ((None, None), 0))
                    shortest = None if factor is None else graph.distances(origin).get(dest)
                    found = tighter(found, deadline)
                    found = tighter(found, None if shortest is None else round((factor or 1.0) * shortest))
        return found

    # ---------------------------------------------------------------- beacons, changes and repair

    def _neighbours(self, group: str, tree: int) -> list[str]:
        mine = self._members.cluster
        others = [cluster for cluster, follows in self._followers.items() if group in follows]
        return [one for one in ring_neighbours(sorted([*others, mine]), mine) if one in self._directory]

    def _renew_trees(self, now: Nanos) -> None:
        old = now - 4 * self._shared.cluster_beacon_ns
        for cluster, follows in list(self._followers.items()):
            if cluster not in self._directory:
                del self._followers[cluster]
            elif not self._persistency:
                for group in [group for group, (_, heard) in follows.items() if heard < old]:
                    del follows[group]
        for peer in [peer for peer in self._urgencies if peer not in self._wants]:
            del self._urgencies[peer]
        self._follows_more(now)
        for tree in self._members.my_trees:
            for cluster in self._directory:
                self._tell_follows(cluster, tree)
            for group in dict.fromkeys(stream[2] for stream in self._log.streams):
                for cluster in self._neighbours(group, tree):
                    self._tell_neighbour(group, tree, cluster)

    def _cluster_changed(self, now: Nanos) -> None:
        if not self._holds:
            self._followers.clear()
            self._urgencies.clear()
        mine = self._members.my_trees
        if not mine:
            self._told.clear()
            self._told_to.clear()
            return
        if not self._told_to:  # another one may have handed events over before, or not
            for stream in self._log.streams:
                self._news[stream[2]] = TOLD
            self._repair_soon(now)
        self._follows_more(now)
        before, self._told_to = self._told_to, {}
        for cluster, slots in self._directory.items():
            for tree in mine:
                if tree < len(slots) and cluster != self._members.cluster:
                    active = self._told_to[cluster, tree] = slots[tree].active
                    if before.get((cluster, tree)) != active:
                        self._tell_follows(cluster, tree, asks=not self._followers.get(cluster))


def _tightest(one: Urgency | None, other: Urgency) -> Urgency:
    if one is None:
        return other
    factors = [factor for factor in (one[1], other[1]) if factor is not None]
    return tighter(one[0], other[0]), min(factors, default=None)
