"""The groups that this peer and its cluster follow.

A member informs coordinators and backups of the groups that it follows. If the routing between clusters uses deadlines,
it also announces how soon it needs their events. The cluster follows every group that a member follows.
"""

from collections.abc import Iterator

from wend.matching.filters import parse
from wend.model.events import Event, PeerId
from wend.model.keys import make_key
from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect, Remember, View
from wend.strategies.clusters.interest.cluster import BATCH, ClusterView
from wend.strategies.clusters.interest.messages import (
    FollowedSince,
    MemberDeadlines,
    MemberWants,
    Urgency,
)
from wend.strategies.ring.bounded import split_into_batches
from wend.strategies.ring.groups import find_group
from wend.strategies.subscriptions.table import SubscriptionTable, tighter

ALWAYS_NS: Nanos = -(1 << 62)
"""A time before all events."""
NOT_URGENT: Urgency = (None, None)


class FollowedGroups:
    """The groups of this peer's subscriptions; at coordinators and backups also those of other members."""

    def __init__(self, cluster: ClusterView, table: SubscriptionTable, tells_deadlines: bool) -> None:
        self._cluster = cluster
        self._table = table
        self._tells_deadlines = tells_deadlines
        self.own: dict[str, Nanos] = {}
        """The groups that this peer follows, each with the start time."""
        self._stored: dict[str, Nanos] = {}
        """The groups that an earlier incarnation followed, each with the start time."""
        self._members: dict[PeerId, dict[str, tuple[Nanos, Nanos]]] = {}
        """The groups that other members follow, each with the start time and the time of their last message."""
        self.urgencies: dict[PeerId, dict[str, Urgency]] = {}
        """How soon other members need events of their groups."""

    def follows(self, group: str) -> bool:
        return group in self.own or (self._cluster.is_holder and self.cluster_since(group) is not None)

    def cluster_since(self, group: str) -> Nanos | None:
        """The start time of the cluster in a group, as a coordinator or backup knows it; None if it does not follow
        it."""
        times = [groups[group][0] for groups in self._members.values() if group in groups]
        if group in self.own:
            times.append(self.own[group])
        return min(times, default=None)

    def oldest_ns(self, group: str) -> Nanos:
        """This peer needs no events of a group that were published before this time."""
        times = [self.own[group]] if group in self.own else []
        if self._cluster.is_holder:
            since = self.cluster_since(group)
            times.append(ALWAYS_NS if since is None else since)  # a coordinator forwards events that others need
        return min(times, default=0)

    def cluster_groups(self) -> dict[str, None]:
        """The groups that the cluster follows."""
        groups = dict.fromkeys(self.own)
        for followed in self._members.values():
            groups.update(dict.fromkeys(followed))
        return groups

    def cluster_urgencies(self) -> dict[str, Urgency]:
        """The groups that the cluster follows, each with how soon it needs events."""
        tables = [self._own_urgencies(), *(self.urgencies.get(peer, {}) for peer in self._members)]
        tightest: dict[str, Urgency] = {}
        for group in self.cluster_groups():
            for urgencies in tables:
                if group in urgencies:
                    tightest[group] = _tighter(tightest.get(group), urgencies[group])
            tightest.setdefault(group, NOT_URGENT)
        return tightest

    def _own_urgencies(self) -> dict[str, Urgency]:
        urgencies: dict[str, Urgency] = {}
        for subscription in self._table.own:
            group, qos = find_group(parse(subscription.filter)), subscription.qos
            urgencies[group] = _tighter(urgencies.get(group), (qos.deadline_ns, qos.factor))
        return urgencies

    def restore(self, now: Nanos, record: FollowedSince) -> None:
        self._stored[record.group] = record.since_ns if record.since_ns <= now else ALWAYS_NS

    def wants(self, event: Event) -> bool:
        """Whether a subscription of this peer matches the event."""
        return bool(self._table.targets(event))

    def update(self, now: Nanos, view: View) -> Iterator[PluginEffect]:
        """Follow the groups of this peer's subscriptions, and store since when."""
        self._table.next_announcement(view)
        groups = dict.fromkeys(find_group(parse(subscription.filter)) for subscription in self._table.own)
        before, self.own = self.own, {}
        for group in groups:
            since = before.get(group)
            if since is None:
                since = self._stored.get(group, now)
                yield Remember(make_key(group) >> 80, FollowedSince(group, since))
            self.own[group] = since

    def announce(self, now: Nanos, gone: tuple[str, ...] = ()) -> Iterator[PluginEffect]:
        """Announce to coordinators and backups the groups that this peer follows, and those that it left."""
        yield from self._announce_deadlines() if self._tells_deadlines else []
        groups = [(group, now - since) for group, since in self.own.items()]
        if groups or gone:
            holders = self._cluster.other_holders
            parts = split_into_batches(groups, BATCH) or [()]
            yield from [self._cluster.send(peer, MemberWants(part, gone)) for peer in holders for part in parts]

    def _announce_deadlines(self) -> list[PluginEffect]:
        urgent = [(group, *urgency) for group, urgency in self._own_urgencies().items() if urgency != NOT_URGENT]
        holders = self._cluster.other_holders
        return [
            self._cluster.send(peer, MemberDeadlines(part))
            for part in split_into_batches(urgent, BATCH)
            for peer in holders
        ]

    def on_member_groups(self, now: Nanos, member: PeerId, message: MemberWants) -> bool:
        """Record the groups that a member follows. Returns whether they have changed."""
        groups, gone = self._members.setdefault(member, {}), message.gone
        has_changed = any(group not in groups for group, _ in message.groups) or any(group in groups for group in gone)
        for group in gone:
            groups.pop(group, None)
        for group, age_ns in message.groups:
            groups[group] = (now - max(0, age_ns), now)
        return has_changed

    def on_deadlines(self, member: PeerId, message: MemberDeadlines) -> None:
        self.urgencies[member] = {group: (deadline, factor) for group, deadline, factor in message.deadlines}

    def expire(self, oldest_ns: Nanos) -> None:
        """Forget groups that members have not renewed since this time."""
        for peer, groups in list(self._members.items()):
            for group in [group for group, (_, heard_ns) in groups.items() if heard_ns < oldest_ns]:
                del groups[group]
            if not groups:
                del self._members[peer]
        for peer in [peer for peer in self.urgencies if peer not in self._members]:
            del self.urgencies[peer]

    def forget_members(self) -> None:
        self._members.clear()


def _tighter(one: Urgency | None, other: Urgency) -> Urgency:
    if one is None:
        return other
    factors = [factor for factor in (one[1], other[1]) if factor is not None]
    return tighter(one[0], other[0]), min(factors, default=None)
