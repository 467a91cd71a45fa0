"""Heartbeats and beacons: how members detect that the others are alive and have the same roster.

Each member sends a heartbeat to the head, once per period, and gets its beacon. Coordinators and backups send each
other heartbeats, too, so each of them knows which of its predecessors in the succession live. There are no other
heartbeats, so a member's control traffic does not grow with the cluster, and the head's grows only if multicast fails.

The beacon carries a digest of the roster, so that a member that missed the roster asks for it.

If a member does not receive beacons of a live head, coordinators and backups that reach both forward heartbeats and
beacons. A forwarded beacon carries its age, so a dead head does not seem alive because others repeat its beacon.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from wend.model.events import PeerId
from wend.model.keys import node_id
from wend.model.units import Nanos
from wend.protocol.plugins import Multicast, Notice, PluginEffect, Refuse, Timer
from wend.strategies.clusters.membership import election
from wend.strategies.clusters.membership.cluster import ClusterState
from wend.strategies.clusters.membership.detector import ClusterDetector
from wend.strategies.clusters.membership.leadership import Leadership
from wend.strategies.clusters.membership.merge import Merge
from wend.strategies.clusters.membership.messages import (
    HeadBeacon,
    MemberBeat,
    MulticastProbe,
    PassedBeat,
)

BEAT = "beat"
LOOK = 8
"""Detection times in which a head has looked for each lost member once."""


class Heartbeats:
    """Sends heartbeats or beacons, and acts on those of other members."""

    def __init__(self, cluster: ClusterState, detector: ClusterDetector, leadership: Leadership, merge: Merge) -> None:
        self._cluster = cluster
        self._detector = detector
        self._leadership = leadership
        self._merge = merge
        self._looks = 0

    def start(self, now: Nanos) -> list[PluginEffect]:
        return [Timer(now + 1 + node_id(self._cluster.me) % self._cluster.period_ns, BEAT)]

    def on_period(self, now: Nanos) -> Iterator[PluginEffect]:
        cluster = self._cluster
        yield Timer(now + cluster.period_ns, BEAT)
        if cluster.roster is not None:
            yield from self._send_beacons(now) if cluster.is_head else self._send_beats(now)
            yield from self._merge.ask_winner(now)
            if cluster.multicast.is_probe_due(now):
                yield Multicast(cluster.group, MulticastProbe(cluster.name))

    def _send_beats(self, now: Nanos) -> list[PluginEffect]:
        cluster, beat = self._cluster, self._cluster.make_beat(now)
        others = cluster.holders if beat.seeks or cluster.is_holder else ()
        return cluster.send(dict.fromkeys((cluster.head, *others)), beat)

    def _send_beacons(self, now: Nanos) -> list[PluginEffect]:
        cluster, test = self._cluster, self._cluster.multicast
        beacon = cluster.make_beacon(now)
        cluster.head_ns = now
        return [
            Multicast(cluster.group, replace(beacon, by_multicast=True)),
            *cluster.send((peer for peer in cluster.members if not test.reaches(peer)), beacon),
            *self._judge_multicast(now, beacon),
            *self._send_to_lost_peers(beacon),
        ]

    def _judge_multicast(self, now: Nanos, beacon: HeadBeacon) -> list[PluginEffect]:
        works = self._cluster.multicast.adopt_verdict(now, beacon.works, beacon.mute)
        if works is None:
            return []
        return [Notice("multicast-works" if works else "multicast-blocked", self._cluster.me)]

    def _send_to_lost_peers(self, beacon: HeadBeacon) -> list[PluginEffect]:
        """Send the beacon to each lost peer once in a while, to the latest ones first."""
        cluster = self._cluster
        lost = cluster.roster.lost[::-1] if cluster.roster is not None else ()
        if not lost:
            return []
        turns = LOOK * cluster.detection_ns // cluster.period_ns
        place = self._looks % max(turns, len(lost))
        self._looks += 1
        return cluster.send(lost[place : place + 1], beacon)

    def on_beat(self, now: Nanos, sender: PeerId, beat: MemberBeat) -> Iterable[PluginEffect]:
        return self._on_valid_beat(now, sender, beat, sender)

    def on_passed_beat(self, now: Nanos, sender: PeerId, message: PassedBeat) -> Iterable[PluginEffect]:
        if sender not in self._cluster.members or not self._cluster.is_head:
            return []
        if reason := self._cluster.refusal_code(message.beat.cluster, message.beat.agreement):
            return [Refuse(sender, reason)]
        return self._on_valid_beat(now, message.member, message.beat, sender)

    def _on_valid_beat(self, now: Nanos, member: PeerId, beat: MemberBeat, sender: PeerId) -> Iterator[PluginEffect]:
        cluster = self._cluster
        if cluster.roster is None or member == cluster.me:
            return
        incarnation = cluster.members.get(member)
        if beat.term and election.wins(beat.term, beat.head, cluster.term, cluster.head):
            yield from self._merge.request_winner(now, beat.term, beat.head, sender)
        if incarnation is None or beat.incarnation > incarnation:
            yield from self._request_admission(now, member, beat, sender)
        elif beat.incarnation == incarnation:
            self._detector.record_life_sign(now, member)
            yield from self._send_newer_roster(now, member, beat)
            if cluster.is_head:
                cluster.multicast.record_report(now, member, beat)
            elif beat.seeks and not cluster.has_lost_head(now):
                yield from cluster.send((cluster.head,), PassedBeat(member, beat))
                yield from cluster.send((member,), cluster.make_beacon(now))

    def _request_admission(
        self, now: Nanos, member: PeerId, beat: MemberBeat, sender: PeerId
    ) -> Iterator[PluginEffect]:
        """Act on the request of another peer to become a member, or on the restart of a member."""
        cluster = self._cluster
        if cluster.is_head:
            yield from self._leadership.admit(now, member, beat.incarnation)
            return
        yield from self._leadership.on_restart(now, member, beat.incarnation)
        if sender == member:
            yield from cluster.send((cluster.head,), PassedBeat(member, beat))

    def _send_newer_roster(self, now: Nanos, member: PeerId, beat: MemberBeat) -> Iterable[PluginEffect]:
        """Send a member this peer's roster if it has another one."""
        cluster = self._cluster
        if (beat.term, beat.head) == (cluster.term, cluster.head):
            return []
        if cluster.is_head and beat.term == cluster.term:
            return self._leadership.write_roster(
                now
            )  # the member has other slots of this term and adopts only a higher term
        if cluster.is_head or not beat.term:
            return cluster.send((member,), cluster.make_roster_update())
        return cluster.send((member,), cluster.make_beacon(now)) if beat.head != cluster.head else []

    def on_beacon(self, now: Nanos, sender: PeerId, beacon: HeadBeacon) -> Iterable[PluginEffect]:
        cluster = self._cluster
        if beacon.by_multicast and sender == beacon.head:
            cluster.multicast.record_multicast(now, sender)
        if cluster.roster is None:
            cluster.note_term(beacon.term)
            requests = self._merge.ask_admission(now, beacon.head)
            return [*requests, *self._merge.ask_admission(now, sender)]  # the sender passes requests on to the head
        if (beacon.term, beacon.head) == (cluster.term, cluster.head):
            return self._on_own_beacon(now, sender, beacon)
        return self._merge.resolve(now, beacon.term, beacon.head, sender)

    def _on_own_beacon(self, now: Nanos, sender: PeerId, beacon: HeadBeacon) -> Iterator[PluginEffect]:
        cluster = self._cluster
        if cluster.is_head or (sender != beacon.head and sender not in cluster.members):
            return
        is_heard = self._detector.record_life_sign(now, beacon.head, beacon.age_ns)
        if sender == beacon.head:
            cluster.head_ns = now
            cluster.stamp = max(cluster.stamp, beacon.stamp)
            yield from self._judge_multicast(now, beacon)
        if is_heard:
            self._leadership.track(now)
        if beacon.digest != cluster.digest:
            yield from self._merge.ask_roster(sender)

    def on_multicast(self, now: Nanos, sender: PeerId, message: MulticastProbe) -> list[PluginEffect]:
        if message.cluster != self._cluster.name:
            return [Refuse(sender, "other-cluster")]
        self._cluster.multicast.record_multicast(now, sender)
        return []
