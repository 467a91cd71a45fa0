"""A member of a cluster among the others: heartbeats, beacons, and what to do about two rosters.

Each member sends a heartbeat to the head, once per period, and gets its beacon. Coordinators and backups send each
other heartbeats, too, so each of them knows who before it in the succession lives. Nobody else sends any, so a member's
control traffic does not grow with the cluster, and the head's only where multicast does not work.

The beacon carries a digest of the roster, so that who missed the roster asks for it.

If a member misses the head although it lives, coordinators and backups that hear both pass heartbeats and beacons on. A
beacon that is passed on says how old it is, so nobody takes a dead head for alive because others repeat it.

After a partition, heads look for lost members with their beacons, one after the other. A peer that gets the beacon of a
roster that wins over its own asks the head of that one to be added; a head that loses tells its members.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec.structs import replace

from wend.model.events import PeerId
from wend.model.keys import node_id
from wend.model.units import Nanos
from wend.protocol.plugins import Multicast, Notice, PeerConfig, Timer
from wend.strategies.clusters.membership import election as cluster_election
from wend.strategies.clusters.membership.messages import (
    HeadBeacon,
    MemberBeat,
    MulticastProbe,
    PassedBeat,
    Roster,
    RosterRequest,
    RosterTold,
    digest_of,
)
from wend.strategies.clusters.membership.roster import BEAT, RosterMember

LOOK = 8
"""Detection times in which a head has looked for each lost member once."""
MOST_ASKED = 256


class ClusterMember(RosterMember):
    """Talks to the other members. A subclass finds the cluster, and has the directory."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._asked: dict[PeerId, None] = {}
        """Peers that this one asked for their roster."""
        self._answered_ns: dict[PeerId, Nanos] = {}
        """When each peer with a roster that loses was last told so."""
        self._beats = 0
        self._look = 0

    # ---------------------------------------------------------------- for the subclass

    def _sighted_cluster(self, now: Nanos, member: PeerId) -> None:
        """A peer without a roster hears of its cluster's head or of a member."""

    def _tend(self, now: Nanos) -> None:
        """Once per heartbeat period."""

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
            if self.is_head and beat.term == roster.term:
                self._write_roster(now)  # the member has other slots of this term, and adopts only a higher one
            elif self.is_head or not beat.term:
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

    def _hear_beacon(self, now: Nanos, sender: PeerId, beacon: HeadBeacon) -> None:
        if self._foreign(sender, beacon.cluster, beacon.agreement):
            return
        roster = self._roster
        if beacon.by_multicast and sender == beacon.head:
            self._test.hear(now, sender)
        if roster is None:
            self._known_term = max(self._known_term, beacon.term)
            self._sighted_cluster(now, beacon.head)
            self._sighted_cluster(now, sender)  # it passes requests on to the head
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

    def _hear_multicast(self, now: Nanos, sender: PeerId, message: MulticastProbe) -> None:
        if message.cluster == self.cluster:
            self._test.hear(now, sender)
        else:
            self._refuse(sender, "a message of another cluster")

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
        elif (self.me, self._incarnation) in new.members and (roster is None or new.term > roster.term):
            self._adopt(now, new, message.stamp)
        elif roster is None:
            self._known_term = max(self._known_term, new.term)
            self._sighted_cluster(now, new.head)
        else:
            self._sighted(now, new.term, new.head, sender)

    hears: ClassVar[dict[type, Callable[[Any, Nanos, PeerId, Any], None]]] = {
        **RosterMember.hears,
        MemberBeat: _hear_beat,
        PassedBeat: _hear_passed,
        HeadBeacon: _hear_beacon,
        RosterRequest: _hear_request,
        RosterTold: _hear_roster,
        MulticastProbe: _hear_multicast,
    }
