"""The roster of a cluster: who writes it, when, and who takes over (the rule: `cluster_election.py`).

The head writes a roster when members join, leave, die or restart, and sends it to all. It collects joins for a moment,
so that many make one roster. A detection time after the last roster the head looks again: new backups have the state of
their slots by then, so they may become coordinators.

Each peer tracks those whose death concerns it: the head tracks all members, coordinators and backups track each other,
and other members the head. If the head is silent, these track all coordinators and backups, too.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from msgspec.structs import replace

from wend.model.events import PeerId
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Membership,
    Multicast,
    MulticastMembers,
    Notice,
    PeerConfig,
    PluginEffect,
    RefusalReason,
    Refuse,
    SendTo,
    Timer,
)
from wend.strategies.clusters.membership import election as cluster_election
from wend.strategies.clusters.membership.detector import ClusterDetector, beat_period
from wend.strategies.clusters.membership.messages import (
    MOST_MEMBERS,
    ClusterMessage,
    MemberAnswer,
    MemberLeave,
    MemberProbe,
    Roster,
    RosterTold,
    agreement_of,
    digest_of,
)
from wend.strategies.clusters.membership.multicast import MulticastTest
from wend.strategies.clusters.membership.settings import ClusterSettings
from wend.strategies.clusters.membership.slots import Slots, holders_of

BEAT, DETECT, ADMIT, SETTLE, TAKE_OVER = "beat", "detect", "admit", "settle", "take over"
MOST_LOST = 32
"""Former members that a head looks for."""


class RosterMember(Membership):
    """Has a roster, and writes it if it is the head. A subclass talks to the other members."""

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
        self._sorted: tuple[PeerId, ...] = ()
        self._holders: tuple[PeerId, ...] = ()
        """The coordinators and backups."""
        self._known_term = 0
        """The highest term of this cluster that this peer has heard of."""
        self._stamp = 0
        """Of the cluster's entry in the directory."""
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
        self._made_ns: Nanos = 0
        """When the roster was adopted."""
        self._detect_ns: Nanos | None = None
        self._take_over_ns: Nanos | None = None
        self._moved = False
        """Whether other plug-ins see something else than before."""
        self._small = False
        """Whether the cluster has fewer members than trees, and the head has said so."""
        self._out: list[PluginEffect] = []

    @property
    def is_head(self) -> bool:
        return self._roster is not None and self._roster.head == self.me

    @property
    def members(self) -> tuple[PeerId, ...]:
        """All members of the cluster that live, as far as its head knows; this peer is one. Sorted."""
        return self._sorted

    @property
    def slots(self) -> Slots:
        """Of this peer's cluster, by tree."""
        return () if self._roster is None else self._roster.slots

    @property
    def my_trees(self) -> tuple[int, ...]:
        """The trees for which this peer is the active coordinator: several only where there are few members."""
        return tuple(tree for tree, slot in enumerate(self.slots) if slot.active == self.me)

    @property
    def _group(self) -> str:
        return f"cluster {self.cluster}"

    def _adopted(self, now: Nanos, before: Slots) -> None:
        """Another roster counts."""

    def _say(self, peer: PeerId, message: ClusterMessage) -> None:
        if peer != self.me:
            self._out.append(SendTo(peer, message))

    def _refuse(self, peer: PeerId, reason: RefusalReason) -> None:
        self._out.append(Refuse(peer, reason))

    def _arm(self, now: Nanos) -> None:
        """Have a timer for the next peer to probe."""
        due = self._detector.next_ns() if self._detect_ns is None or self._detector.sooner else None
        if due is not None and (self._detect_ns is None or due < self._detect_ns):
            self._detect_ns = max(due, now + 1)
            self._out.append(Timer(self._detect_ns, DETECT))

    # ---------------------------------------------------------------- rosters

    def _tell_roster(self, peer: PeerId) -> None:
        if self._roster is not None:
            self._say(peer, RosterTold(self.cluster, self._agreement, self._roster, self._stamp))

    def _adopt(self, now: Nanos, roster: Roster, stamp: int) -> None:
        before = self._roster
        changed_head = before is None or before.head != roster.head
        if before is None or before.slots != roster.slots or before.members != roster.members:
            self._moved = True
            self._out.append(MulticastMembers(self._group, roster.slots[0].active, roster.members))
        self._roster, self._digest = roster, digest_of(roster)
        self._known_term = max(self._known_term, roster.term)
        self._members = dict(roster.members)
        self._sorted = tuple(self._members)
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

    # ---------------------------------------------------------------- joining, leaving, restarts

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

    def _hear_leave(self, now: Nanos, sender: PeerId, message: MemberLeave) -> None:
        if message.cluster != self.cluster or self._members.get(sender) != message.incarnation:
            return
        self._left[sender] = None
        if self.is_head:
            self._write_roster(now)
        elif self._detector.tracks(sender):
            self._detector.declare(sender)
            self._elect(now)

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

    hears: ClassVar[dict[type, Callable[[Any, Nanos, PeerId, Any], None]]] = {
        MemberProbe: _hear_probe,
        MemberAnswer: _hear_answer,
        MemberLeave: _hear_leave,
    }
