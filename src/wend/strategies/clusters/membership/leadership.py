"""The head of the cluster and the rosters that it writes (`election.py` has the rule).

The head writes a roster when members join, leave, die or restart, and sends it to all members. It collects joins for a
moment, so that many joins make one roster. A detection time later new backups have the state of their slots, and the
head may make them coordinators.

Each peer tracks the peers whose death concerns it. The head tracks all members, coordinators and backups track each
other, and other members track the head. If the head is silent, they track all coordinators and backups, too.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Multicast, MulticastMembers, Notice, PluginEffect, Timer
from wend.strategies.clusters.membership import election
from wend.strategies.clusters.membership.cluster import ClusterState
from wend.strategies.clusters.membership.contacts import ClusterContacts
from wend.strategies.clusters.membership.detector import ClusterDetector
from wend.strategies.clusters.membership.messages import (
    MAX_MEMBERS,
    MemberAnswer,
    MemberLeave,
    MemberProbe,
    Roster,
)
from wend.strategies.clusters.membership.settings import ClusterSettings

DETECT, ADMIT, SETTLE, TAKE_OVER = "detect", "admit", "settle", "take over"
MAX_LOST = 32
"""Former members that a head looks for."""


class Leadership:
    """Adopts rosters, writes them if this peer is the head, and takes over if the head is dead."""

    def __init__(
        self, cluster: ClusterState, settings: ClusterSettings, detector: ClusterDetector, contacts: ClusterContacts
    ) -> None:
        self._cluster = cluster
        self._coordinators, self._backups = settings.coordinators, settings.backups
        self._detector = detector
        self._contacts = contacts
        self._joiners: dict[PeerId, int] = {}
        """For the head: the peers that the next roster adds, with their incarnations."""
        self._leavers: dict[PeerId, None] = {}
        """Members that announced that they leave."""
        self._adopted_ns: Nanos = 0
        self._take_over_ns: Nanos | None = None
        self._is_small = False
        """Whether the cluster has fewer members than trees, and the head has reported it."""

    def start_cluster(self, now: Nanos) -> Iterator[PluginEffect]:
        """Begin the cluster as its first member."""
        cluster = self._cluster
        slots = election.first_slots(cluster.me, self._coordinators)
        yield from self.adopt(now, Roster(1, cluster.me, ((cluster.me, cluster.incarnation),), slots), 0)
        if cluster.highest_term > 1:
            yield from self.write_roster(now)
        yield Timer(now + cluster.detection_ns, SETTLE)

    def adopt(self, now: Nanos, roster: Roster, stamp: int) -> Iterator[PluginEffect]:
        cluster, test = self._cluster, self._cluster.multicast
        before, slots = cluster.roster, cluster.slots
        if before is None or slots != roster.slots or before.members != roster.members:
            cluster.has_news = True
            yield MulticastMembers(cluster.group, roster.slots[0].active, roster.members)
        cluster.adopt(roster, stamp)
        self._adopted_ns, self._take_over_ns = now, None
        self._leavers = {peer: None for peer in self._leavers if peer in cluster.members}
        if before is None or before.head != roster.head:
            cluster.head_ns = now
            test.forget_reports()
        if not cluster.is_head:
            self._joiners = {}
        test.set_members(now, cluster.members)
        self.track(now)
        self._detector.record_life_sign(now, roster.head)
        yield from self._contacts.on_roster(now, slots)

    def write_roster(self, now: Nanos, ready: bool = False) -> Iterator[PluginEffect]:
        """Write the next roster, as the head or as its successor, and send it to all members.

        Coordinators, backups and members without multicast get it by unicast, too."""
        cluster, test = self._cluster, self._cluster.multicast
        members, joiners = self._next_members(), self._joiners
        cluster.highest_term += 1
        live = sorted(members)
        roster = Roster(
            cluster.highest_term,
            cluster.me,
            tuple((peer, members[peer]) for peer in live),
            election.reassign(cluster.slots, live, joiners, self._backups, cluster.highest_term, ready),
            self._next_lost(members),
        )
        self._joiners = {}
        is_reached = {peer: test.reaches(peer) and peer not in joiners for peer in members}
        yield from self.adopt(now, roster, cluster.stamp)
        message = cluster.make_roster_update()
        if len(members) > 1:
            yield Multicast(cluster.group, replace(message, by_multicast=True))
        yield from cluster.send((peer for peer in members if not is_reached[peer] or peer in cluster.holders), message)
        yield Timer(now + cluster.detection_ns, SETTLE)

    def _next_members(self) -> dict[PeerId, int]:
        dead, leavers = self._detector.dead, self._leavers
        stay = {
            peer: number for peer, number in self._cluster.members.items() if peer not in dead and peer not in leavers
        }
        return {**stay, **self._joiners, self._cluster.me: self._cluster.incarnation}

    def _next_lost(self, members: dict[PeerId, int]) -> tuple[PeerId, ...]:
        assert self._cluster.roster is not None
        candidates = (*self._cluster.roster.lost, *self._detector.dead)
        lost = [peer for peer in candidates if peer not in members and peer not in self._leavers]
        return tuple(dict.fromkeys(reversed(lost)))[:MAX_LOST][::-1]

    def promote_backups(self, now: Nanos) -> Iterator[PluginEffect]:
        """Let new backups become coordinators: a detection time after the last roster they have the state."""
        cluster = self._cluster
        if not cluster.is_head or now - self._adopted_ns < cluster.detection_ns:
            return
        live = list(cluster.members)
        slots = election.reassign(cluster.slots, live, (), self._backups, cluster.term, True)
        yield from self.write_roster(now, ready=True) if slots != cluster.slots else []
        is_small = len(cluster.members) < self._coordinators
        if is_small and not self._is_small:
            yield Notice("cluster-small", cluster.me)
        self._is_small = is_small

    def admit(self, now: Nanos, member: PeerId, incarnation: int) -> Iterator[PluginEffect]:
        """Add a peer to the next roster, as the head."""
        members, joiners = self._cluster.members, self._joiners
        if len(members) + len(joiners) >= MAX_MEMBERS or incarnation < joiners.get(member, 0):
            return
        if not joiners:
            yield Timer(now + self._cluster.detection_ns // 20, ADMIT)
        joiners[member] = incarnation
        if member in members:
            yield from self.write_roster(now)  # it has restarted: its backups take over now

    def admit_joiners(self, now: Nanos) -> Iterable[PluginEffect]:
        return self.write_roster(now) if self._cluster.is_head and self._joiners else []

    def on_restart(self, now: Nanos, member: PeerId, incarnation: int) -> Iterable[PluginEffect]:
        """Record a member's incarnation, which is higher if the member has restarted."""
        if incarnation <= self._cluster.members.get(member, incarnation):
            return []
        return self.admit(now, member, incarnation) if self._cluster.is_head else self._remove_member(now, member)

    def on_leave(self, now: Nanos, sender: PeerId, message: MemberLeave) -> Iterable[PluginEffect]:
        cluster = self._cluster
        if message.cluster != cluster.name or cluster.members.get(sender) != message.incarnation:
            return []
        self._leavers[sender] = None
        return self.write_roster(now) if cluster.is_head else self._remove_member(now, sender)

    def _remove_member(self, now: Nanos, member: PeerId) -> Iterable[PluginEffect]:
        return self._elect(now) if self._detector.mark_dead(member) else []

    def track(self, now: Nanos, suspected: bool = False) -> None:
        """Track the peers whose death concerns this one; if the head is suspected, all coordinators and backups."""
        cluster = self._cluster
        if cluster.is_head:
            peers = list(cluster.members)
        elif suspected or cluster.is_holder:
            peers = list(dict.fromkeys((cluster.head, *cluster.holders)))
        else:
            peers = [cluster.head]
        self._detector.track(now, [peer for peer in peers if peer != cluster.me], suspected)

    def detect(self, now: Nanos) -> list[PluginEffect]:
        """Probe the silent peers; elect if some are dead."""
        cluster, detector = self._cluster, self._detector
        if not detector.is_due(now):
            return []
        silent, died = detector.probe(now)
        if cluster.roster is not None and cluster.head in silent and not cluster.is_holder:
            self.track(now, suspected=True)
            more, more_died = detector.probe(now)
            silent, died = [*silent, *more], [*died, *more_died]
        out: list[PluginEffect] = []
        for peer in silent:
            out += cluster.send((peer,), MemberProbe(detector.next_number(now, peer)))
        return [*out, *self._elect(now)] if died else out

    def on_probe(self, now: Nanos, sender: PeerId, message: MemberProbe) -> list[PluginEffect]:
        return self._cluster.send((sender,), MemberAnswer(message.number, self._cluster.incarnation))

    def on_answer(self, now: Nanos, sender: PeerId, message: MemberAnswer) -> Iterable[PluginEffect]:
        if not self._detector.record_answer(now, sender, message.number):
            return []
        if message.incarnation == self._cluster.members.get(sender):
            self._detector.record_life_sign(now, sender)
        return self.on_restart(now, sender, message.incarnation)

    def _elect(self, now: Nanos) -> Iterable[PluginEffect]:
        """Replace dead members if it is this peer's turn."""
        cluster, dead = self._cluster, self._detector.dead
        if cluster.roster is None or not dead:
            return []
        if cluster.is_head:
            return self.write_roster(now)
        if cluster.head not in dead:
            return []
        if cluster.is_holder:
            return self.write_roster(now) if election.is_first(cluster.roster, cluster.me, dead) else []
        if self._take_over_ns is not None or not all(peer in dead for peer in cluster.holders):
            return []
        self._take_over_ns = now + election.takeover_delay(cluster.roster, cluster.me, dead) * cluster.period_ns
        return self.take_over(now)

    def take_over(self, now: Nanos) -> Iterable[PluginEffect]:
        """Head the cluster if all coordinators and backups are dead and no other member was faster."""
        if self._take_over_ns is None:
            return []
        dead = self._detector.dead
        if not all(peer in dead for peer in (self._cluster.head, *self._cluster.holders)):
            self._take_over_ns = None
            return []
        return [Timer(self._take_over_ns, TAKE_OVER)] if now < self._take_over_ns else self.write_roster(now)
