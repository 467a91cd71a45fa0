"""A member of a cluster: heartbeats, the roster, the election of a head (the rule: `cluster_election.py`).

Each member sends a heartbeat to the head, once per period, and gets its beacon. Coordinators and backups send each
other heartbeats, too, so each of them knows who before it in the succession lives. Nobody else sends any, so a member's
control traffic does not grow with the cluster, and the head's only where multicast does not work.

The head writes a roster when members join, leave, die or restart. It sends it to all; its beacon carries a digest, so
that who missed the roster asks for it. Joins are collected for a moment: many make one roster.

If a member misses the head although it lives, coordinators and backups that hear both pass heartbeats and beacons on. A
beacon that is passed on says how old it is, so nobody takes a dead head for alive because others repeat it.

After a partition, heads look for lost members with their beacons, one after the other. A peer that gets the beacon of a
roster that wins over its own asks the head of that one to be added; a head that loses tells its members.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from msgspec.structs import replace

from wend.model.events import PeerId
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.keys import node_id
from wend.protocol.membership import cluster_election
from wend.protocol.membership.cluster_detector import ClusterDetector, beat_period
from wend.protocol.membership.cluster_messages import (
    MOST_MEMBERS,
    ClusterMessage,
    HeadBeacon,
    MemberAnswer,
    MemberBeat,
    MemberLeave,
    MemberProbe,
    MulticastProbe,
    PassedBeat,
    Roster,
    RosterRequest,
    RosterTold,
    agreement_of,
    digest_of,
)
from wend.protocol.membership.cluster_multicast import MulticastTest
from wend.protocol.membership.cluster_settings import ClusterSettings
from wend.protocol.membership.cluster_slots import Slots, holders_of
from wend.protocol.notices import RefusalReason
from wend.protocol.plugins import Membership, PluginEffect, SendTo, Timer
from wend.protocol.ports import Multicast, Notice, Refuse

BEAT, DETECT, ADMIT, SETTLE, TAKE_OVER = "beat", "detect", "admit", "settle", "take over"
MOST_LOST = 32
"""Former members that a head looks for."""
LOOK = 8
"""Detection times in which a head has looked for each of them once."""
MOST_ASKED = 256


class ClusterMember(Membership):
    """The roster and the election. A subclass finds the cluster, and has the directory."""

    settings: ClassVar[type[Settings]] = ClusterSettings
    messages: ClassVar[Any] = ClusterMessage

    def __init__(self, config: PeerConfig) -> None:
        self.me = config.peer
        self._settings = settings = config.of(ClusterSettings)
        self._incarnation = config.incarnation
        self._agreement = agreement_of(settings)
        self._detection = detection = settings.cluster_detection_ns
        self._period = beat_period(detection)
        self.cluster = settings.cluster
        """The name; empty until it is found out."""
        self._roster: Roster | None = None
        self._digest = 0
        self._members: dict[PeerId, int] = {}
        """With their incarnations, as the roster has them."""
        self._holders: tuple[PeerId, ...] = ()
        self._known_term = 0
        """The highest term of this cluster that this peer has heard of."""
        self._stamp = 0
        self._detector = ClusterDetector(detection)
        self._test = MulticastTest(config.peer, detection)
        self._head_ns: Nanos = 0
        """When the head itself was last heard."""
        self._joiners: dict[PeerId, int] = {}
        """For the head: whom the next roster adds, with their incarnations."""
        self._left: dict[PeerId, None] = {}
        """Members that said that they leave."""
        self._better: tuple[int, PeerId, Nanos] | None = None
        """A roster that wins over this peer's own, and until when this peer asks its head."""
        self._asked: dict[PeerId, None] = {}
        """Peers that this one asked for their roster."""
        self._answered_ns: dict[PeerId, Nanos] = {}
        """When each peer with a roster that loses was last told so."""
        self._made_ns: Nanos = 0
        """When the roster was adopted."""
        self._detect_ns: Nanos | None = None
        self._take_over_ns: Nanos | None = None
        self._beats = 0
        self._look = 0
        self._moved = False
        self._small = False
        self._out: list[PluginEffect] = []

    @property
    def is_head(self) -> bool:
        return self._roster is not None and self._roster.head == self.me

    @property
    def _group(self) -> str:
        return f"cluster {self.cluster}"

    # ---------------------------------------------------------------- for the subclass

    def _adopted(self, now: Nanos, before: Slots) -> None:
        """Another roster counts."""

    def _sighted_cluster(self, now: Nanos, head: PeerId) -> None:
        """A peer without a roster hears of its cluster's head."""

    def _tend(self, now: Nanos) -> None:
        """Once per heartbeat period."""

    # ---------------------------------------------------------------- effects

    def _say(self, peer: PeerId, message: ClusterMessage) -> None:
        if peer != self.me:
            self._out.append(SendTo(peer, message))

    def _refuse(self, peer: PeerId, reason: RefusalReason) -> None:
        self._out.append(Refuse(peer, reason))

    def _arm(self, now: Nanos) -> None:
        """Have a timer for the next peer to probe."""
        due = self._detector.next_ns()
        if due is not None and (self._detect_ns is None or due < self._detect_ns):
            self._detect_ns = max(due, now + 1)
            self._out.append(Timer(self._detect_ns, DETECT))

    # ---------------------------------------------------------------- heartbeats

    def _start_beats(self, now: Nanos) -> None:
        self._out.append(Timer(now + 1 + node_id(self.me) % self._period, BEAT))

    def _beat(self, now: Nanos) -> None:
        self._beats += 1
        self._out.append(Timer(now + self._period, BEAT))
        roster = self._roster
        if roster is not None:
            if self.is_head:
                self._send_beacons(now, roster)
            else:
                self._send_beats(now, roster)
            if self._better is not None:
                self._ask_better(now)
            if self._test.probes(now):
                self._out.append(Multicast(self._group, MulticastProbe(self.cluster)))
        self._tend(now)

    def _own_beat(self, now: Nanos) -> MemberBeat:
        term, head = (0, self.me) if self._roster is None else (self._roster.term, self._roster.head)
        missing = self._roster is not None and now - self._head_ns >= self._detector.silence_ns
        return MemberBeat(
            self.cluster,
            self._agreement,
            self._incarnation,
            term,
            head,
            seeks=missing and head != self.me,
            hears_head=self._test.hears_from(now, head),
            hears=self._test.hears(now),
            mute=self._test.mute(now),
        )

    def _send_beats(self, now: Nanos, roster: Roster) -> None:
        beat = self._own_beat(now)
        others = self._holders if beat.seeks or self.me in self._holders else ()
        for peer in dict.fromkeys((roster.head, *others)):
            self._say(peer, beat)

    def _beacon(self, now: Nanos) -> HeadBeacon:
        """The head's, or what another member passes on of it."""
        roster = self._roster
        assert roster is not None
        beacon = HeadBeacon(self.cluster, self._agreement, roster.term, roster.head, self._digest, self._stamp)
        if not self.is_head:
            return replace(beacon, age_ns=max(0, now - self._head_ns))
        works, mute = self._test.verdict(now)
        return replace(beacon, works=works, mute=mute)

    def _beacon_of(self, roster: Roster) -> HeadBeacon:
        return HeadBeacon(self.cluster, self._agreement, roster.term, roster.head)

    def _send_beacons(self, now: Nanos, roster: Roster) -> None:
        beacon = self._beacon(now)
        self._head_ns = now
        if len(self._members) > 1:
            self._out.append(Multicast(self._group, replace(beacon, by_multicast=True)))
        for peer in self._members:
            if peer != self.me and not self._test.reaches(peer):
                self._say(peer, beacon)
        self._judge(now, beacon)
        self._look_for_lost(now, roster, beacon)

    def _judge(self, now: Nanos, beacon: HeadBeacon) -> None:
        said = self._test.judge(now, beacon.works, beacon.mute)
        if said is not None:
            self._out.append(Notice("multicast-works" if said else "multicast-blocked", self.me))

    def _look_for_lost(self, now: Nanos, roster: Roster, beacon: HeadBeacon) -> None:
        """Each lost peer is asked once in a while, first those that were lost last."""
        lost = roster.lost[::-1]
        if lost:
            turns = LOOK * self._detection // self._period
            place = self._look % max(turns, len(lost))
            self._look += 1
            if place < len(lost):
                self._say(lost[place], beacon)

    # ---------------------------------------------------------------- hearing heartbeats

    def _foreign(self, sender: PeerId, cluster: str, agreement: int) -> bool:
        """Refuse the message of another cluster."""
        if cluster != self.cluster:
            self._refuse(sender, "a message of another cluster")
        elif agreement != self._agreement:
            self._refuse(sender, "the name of this cluster, with other settings")
        else:
            return False
        return True

    def _hear_beat(self, now: Nanos, sender: PeerId, beat: MemberBeat) -> None:
        if not self._foreign(sender, beat.cluster, beat.agreement):
            self._take_beat(now, sender, beat, sender)

    def _hear_passed(self, now: Nanos, sender: PeerId, message: PassedBeat) -> None:
        if (
            sender in self._members
            and self.is_head
            and not self._foreign(sender, message.beat.cluster, message.beat.agreement)
        ):
            self._take_beat(now, message.member, message.beat, sender)

    def _take_beat(self, now: Nanos, member: PeerId, beat: MemberBeat, sender: PeerId) -> None:
        roster = self._roster
        if roster is None or member == self.me:
            return
        known = self._members.get(member)
        if beat.term and cluster_election.wins(beat.term, beat.head, roster.term, roster.head):
            self._sighted(now, beat.term, beat.head, sender)
        if known is None or beat.incarnation > known:
            self._joins(now, member, beat, sender)
            return
        if beat.incarnation < known:
            return
        self._detector.heard(now, member)
        if (beat.term, beat.head) != (roster.term, roster.head):
            if self.is_head or not beat.term:
                self._tell_roster(member)
            elif beat.head != roster.head:
                self._say(member, self._beacon(now))
        if self.is_head:
            self._test.report(now, member, beat)
        elif beat.seeks and now - self._head_ns < self._detector.silence_ns:
            self._say(roster.head, PassedBeat(member, beat))
            self._say(member, self._beacon(now))

    def _joins(self, now: Nanos, member: PeerId, beat: MemberBeat, sender: PeerId) -> None:
        """A peer that is no member asks to become one, or a member has restarted."""
        if self.is_head:
            self._admit(now, member, beat.incarnation)
            return
        assert self._roster is not None
        self._restarted(now, member, beat.incarnation)
        if sender == member:
            self._say(self._roster.head, PassedBeat(member, beat))

    def _admit(self, now: Nanos, member: PeerId, incarnation: int) -> None:
        if len(self._members) + len(self._joiners) >= MOST_MEMBERS or incarnation < self._joiners.get(member, 0):
            return
        if not self._joiners:
            self._out.append(Timer(now + self._detection // 20, ADMIT))
        self._joiners[member] = incarnation
        if member in self._members:
            self._write_roster(now)  # it has restarted: its backups take over now

    def _restarted(self, now: Nanos, member: PeerId, incarnation: int) -> None:
        if incarnation > self._members.get(member, incarnation):
            if self.is_head:
                self._admit(now, member, incarnation)
            elif self._detector.tracks(member):
                self._detector.declare(member)
                self._elect(now)

    def _hear_beacon(self, now: Nanos, sender: PeerId, beacon: HeadBeacon) -> None:
        if self._foreign(sender, beacon.cluster, beacon.agreement):
            return
        roster = self._roster
        if beacon.by_multicast and sender == beacon.head:
            self._test.hear(now, sender)
        if roster is None:
            self._known_term = max(self._known_term, beacon.term)
            self._sighted_cluster(now, beacon.head)
        elif (beacon.term, beacon.head) == (roster.term, roster.head):
            self._heard_head(now, sender, beacon)
        elif cluster_election.wins(beacon.term, beacon.head, roster.term, roster.head):
            self._sighted(now, beacon.term, beacon.head, sender)
        else:
            self._answer_loser(now, sender)

    def _heard_head(self, now: Nanos, sender: PeerId, beacon: HeadBeacon) -> None:
        if self.is_head or (sender != beacon.head and sender not in self._members):
            return
        self._detector.heard(now, beacon.head, beacon.age_ns)
        if sender == beacon.head:
            self._head_ns = now
            self._stamp = max(self._stamp, beacon.stamp)
            self._judge(now, beacon)
        if not self._detector.silent(now, beacon.head):
            self._track(now)
        if beacon.digest != self._digest:
            self._ask_roster(sender)

    # ---------------------------------------------------------------- two rosters

    def _sighted(self, now: Nanos, term: int, head: PeerId, teller: PeerId) -> None:
        """Somebody has a roster that wins over this peer's own: ask its head, and who told of it."""
        self._known_term = max(self._known_term, term)
        if head == self.me:
            if self.is_head:
                self._write_roster(now)  # of a former incarnation, or made up: a higher term settles it
            return
        better = self._better
        if better is None or cluster_election.wins(term, head, better[0], better[1]):
            self._better = (term, head, now + 2 * self._detection)
            self._ask_head(now, head)
            if teller != head:
                self._ask_roster(teller)
            if self.is_head:
                told = HeadBeacon(self.cluster, self._agreement, term, head)
                for peer in self._members:
                    self._say(peer, told)

    def _ask_better(self, now: Nanos) -> None:
        assert self._better is not None
        _, head, until = self._better
        if now < until:
            self._ask_head(now, head)
            return
        self._better = None
        if self.is_head:
            self._write_roster(now)  # nobody answers for that roster: this one wins again

    def _ask_head(self, now: Nanos, head: PeerId) -> None:
        self._note_asked(head)
        self._say(head, self._own_beat(now))

    def _ask_roster(self, peer: PeerId) -> None:
        self._note_asked(peer)
        self._say(peer, RosterRequest(self.cluster))

    def _note_asked(self, peer: PeerId) -> None:
        self._asked.pop(peer, None)
        self._asked[peer] = None
        if len(self._asked) > MOST_ASKED:
            del self._asked[next(iter(self._asked))]

    def _answer_loser(self, now: Nanos, sender: PeerId) -> None:
        """The sender has a roster that loses: say so, once per period."""
        last = self._answered_ns.pop(sender, None)
        if last is None or now - last >= self._period:
            last = now
            self._say(sender, self._beacon(now))
        self._answered_ns[sender] = last
        if len(self._answered_ns) > MOST_ASKED:
            del self._answered_ns[next(iter(self._answered_ns))]

    # ---------------------------------------------------------------- rosters

    def _tell_roster(self, peer: PeerId) -> None:
        if self._roster is not None:
            self._say(peer, RosterTold(self.cluster, self._agreement, self._roster, self._stamp))

    def _hear_request(self, now: Nanos, sender: PeerId, message: RosterRequest) -> None:
        if message.cluster == self.cluster:
            self._tell_roster(sender)

    def _hear_roster(self, now: Nanos, sender: PeerId, message: RosterTold) -> None:
        if self._foreign(sender, message.cluster, message.agreement):
            return
        new, roster = message.roster, self._roster
        if message.by_multicast and sender == new.head:
            self._test.hear(now, sender)
        if sender == new.head and sender not in self._members and sender not in self._asked:
            self._hear_beacon(now, sender, self._beacon_of(new))  # ask it before believing it
        elif sender not in self._members and sender not in self._asked:
            self._refuse(sender, "slots of a cluster, and is no member of it")
        elif roster is not None and (new.term, new.head) == (roster.term, roster.head):
            digest = digest_of(new)
            if digest == self._digest:
                return
            if sender != new.head or self.is_head:
                self._refuse(sender, "slots that disagree with those of the head")
            elif (self.me, self._incarnation) in new.members:
                self._adopt(now, new, message.stamp)
        elif roster is not None and not cluster_election.wins(new.term, new.head, roster.term, roster.head):
            self._answer_loser(now, sender)
        elif (self.me, self._incarnation) in new.members:
            self._adopt(now, new, message.stamp)
        elif roster is None:
            self._known_term = max(self._known_term, new.term)
            self._sighted_cluster(now, new.head)
        else:
            self._sighted(now, new.term, new.head, sender)

    def _adopt(self, now: Nanos, roster: Roster, stamp: int) -> None:
        before = self._roster
        changed_head = before is None or before.head != roster.head
        self._moved |= before is None or before.slots != roster.slots or before.members != roster.members
        self._roster, self._digest = roster, digest_of(roster)
        self._known_term = max(self._known_term, roster.term)
        self._members = dict(roster.members)
        self._holders = holders_of(roster.slots)
        self._made_ns, self._take_over_ns = now, None
        self._stamp = max(self._stamp, stamp)
        if self._better is not None and not cluster_election.wins(*self._better[:2], roster.term, roster.head):
            self._better = None
        self._left = {peer: None for peer in self._left if peer in self._members}
        if changed_head:
            self._head_ns = now
            self._test.forget_reports()
        if not self.is_head:
            self._joiners = {}
        self._test.set_members(now, self._members)
        self._track(now)
        self._detector.heard(now, roster.head)
        self._adopted(now, () if before is None else before.slots)

    def _write_roster(self, now: Nanos, ready: bool = False) -> None:
        """Make the next roster, as the head or as who becomes it."""
        roster = self._roster
        assert roster is not None
        gone = self._detector.dead
        members = {
            peer: number for peer, number in self._members.items() if peer not in gone and peer not in self._left
        }
        members.update(self._joiners)
        members[self.me] = self._incarnation
        fresh, self._joiners = self._joiners, {}
        lost = [peer for peer in (*roster.lost, *gone) if peer not in members and peer not in self._left]
        self._known_term += 1
        live = sorted(members)
        slots = cluster_election.reassigned(roster.slots, live, fresh, self._settings.backups, self._known_term, ready)
        made = Roster(
            self._known_term,
            self.me,
            tuple((peer, members[peer]) for peer in live),
            slots,
            tuple(dict.fromkeys(reversed(lost)))[:MOST_LOST][::-1],
        )
        others = {peer: self._test.reaches(peer) and peer not in fresh for peer in members}
        self._adopt(now, made, self._stamp)
        self._send_roster(peer for peer, reached in others.items() if not reached or peer in self._holders)
        self._out.append(Timer(now + self._detection, SETTLE))

    def _send_roster(self, unreached: Iterable[PeerId]) -> None:
        """Multicast it; coordinators, backups and those that hear no multicast get it in any case."""
        assert self._roster is not None
        told = RosterTold(self.cluster, self._agreement, self._roster, self._stamp)
        if len(self._members) > 1:
            self._out.append(Multicast(self._group, replace(told, by_multicast=True)))
        for peer in unreached:
            self._say(peer, told)

    def _settle(self, now: Nanos) -> None:
        """A detection time after the last roster: new backups have the state by now."""
        roster = self._roster
        if roster is None or not self.is_head or now - self._made_ns < self._detection:
            return
        slots = cluster_election.reassigned(
            roster.slots, list(self._members), (), self._settings.backups, roster.term, True
        )
        if slots != roster.slots:
            self._write_roster(now, ready=True)
        small = len(self._members) < self._settings.coordinators
        if small and not self._small:
            self._out.append(Notice("cluster-small", self.me))
        self._small = small

    def _begin_cluster(self, now: Nanos) -> None:
        """Be the first member."""
        slots = cluster_election.first_slots(self.me, self._settings.coordinators)
        self._adopt(now, Roster(1, self.me, ((self.me, self._incarnation),), slots), 0)
        if self._known_term > 1:
            self._write_roster(now)
        self._out.append(Timer(now + self._detection, SETTLE))

    # ---------------------------------------------------------------- failures

    def _track(self, now: Nanos, suspected: bool = False) -> None:
        """Track whom this peer's role asks for; with a head that is silent, all coordinators and backups."""
        roster = self._roster
        assert roster is not None
        if self.is_head:
            peers: Iterable[PeerId] = self._members
        elif suspected or self.me in self._holders:
            peers = dict.fromkeys((roster.head, *self._holders))
        else:
            peers = (roster.head,)
        self._detector.track(now, [peer for peer in peers if peer != self.me], suspected)

    def _detect(self, now: Nanos) -> None:
        if self._detect_ns is None or now < self._detect_ns:
            return
        self._detect_ns = None
        probed, died = self._detector.due(now)
        roster = self._roster
        if roster is not None and roster.head in probed and self.me not in self._holders:
            self._track(now, suspected=True)
            more, died_too = self._detector.due(now)
            probed, died = [*probed, *more], [*died, *died_too]
        for peer in probed:
            self._probe(now, peer)
        if died:
            self._elect(now)

    def _probe(self, now: Nanos, peer: PeerId) -> None:
        self._say(peer, MemberProbe(self._detector.number(now, peer)))

    def _hear_probe(self, now: Nanos, sender: PeerId, message: MemberProbe) -> None:
        self._say(sender, MemberAnswer(message.number, self._incarnation))

    def _hear_answer(self, now: Nanos, sender: PeerId, message: MemberAnswer) -> None:
        if not self._detector.answered(now, sender, message.number):
            return
        known = self._members.get(sender)
        if known is not None and message.incarnation > known:
            self._restarted(now, sender, message.incarnation)
        elif message.incarnation == known:
            self._detector.heard(now, sender)

    def _elect(self, now: Nanos) -> None:
        """Some are dead, by what this peer knows: act if it is up to this one."""
        roster, dead = self._roster, self._detector.dead
        if roster is None or not dead:
            return
        if self.is_head:
            self._write_roster(now)
        elif roster.head not in dead:
            return
        elif self.me in self._holders:
            if cluster_election.is_first(roster, self.me, dead):
                self._write_roster(now)
        elif all(peer in dead for peer in self._holders) and self._take_over_ns is None:
            self._take_over_ns = now + cluster_election.patience(roster, self.me, dead) * self._period
            self._take_over(now)

    def _take_over(self, now: Nanos) -> None:
        """All coordinators and backups are dead: head the cluster, unless another member did before."""
        if self._take_over_ns is None:
            return
        dead = self._detector.dead
        assert self._roster is not None
        if self._roster.head not in dead or not all(peer in dead for peer in self._holders):
            self._take_over_ns = None
        elif now < self._take_over_ns:
            self._out.append(Timer(self._take_over_ns, TAKE_OVER))
        else:
            self._write_roster(now)

    def _hear_leave(self, now: Nanos, sender: PeerId, message: MemberLeave) -> None:
        if message.cluster != self.cluster or self._members.get(sender) != message.incarnation:
            return
        self._left[sender] = None
        if self.is_head:
            self._write_roster(now)
        elif self._detector.tracks(sender):
            self._detector.declare(sender)
            self._elect(now)

    def _hear_multicast(self, now: Nanos, sender: PeerId, message: MulticastProbe) -> None:
        if message.cluster == self.cluster:
            self._test.hear(now, sender)
        else:
            self._refuse(sender, "a message of another cluster")

    hears: ClassVar[dict[type, Callable[[Any, Nanos, PeerId, Any], None]]] = {
        MemberBeat: _hear_beat,
        PassedBeat: _hear_passed,
        HeadBeacon: _hear_beacon,
        RosterRequest: _hear_request,
        RosterTold: _hear_roster,
        MemberProbe: _hear_probe,
        MemberAnswer: _hear_answer,
        MemberLeave: _hear_leave,
        MulticastProbe: _hear_multicast,
    }
