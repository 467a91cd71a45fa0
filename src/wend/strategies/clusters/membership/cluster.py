"""This peer's cluster, as the peer knows it: its name, its roster, and the messages that carry them.

All other parts read it. Only `Leadership` has it adopt another roster.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect, RefusalCode, SendTo
from wend.strategies.clusters.membership.detector import beat_period, silence_limit
from wend.strategies.clusters.membership.messages import (
    ClusterEntry,
    ClusterMessage,
    ClusterSearch,
    HeadBeacon,
    MemberBeat,
    Roster,
    RosterUpdate,
    Slots,
    roster_digest,
    settings_hash,
    slot_holders,
)
from wend.strategies.clusters.membership.multicast import MulticastTest
from wend.strategies.clusters.membership.settings import ClusterSettings


class ClusterState:
    """The name and the roster, with the values derived from them."""

    def __init__(self, me: PeerId, incarnation: int, settings: ClusterSettings) -> None:
        self.me = me
        self.incarnation = incarnation
        self.name = settings.cluster
        """Empty until the peer knows its routing domain."""
        self.agreement = settings_hash(settings)
        self.detection_ns = settings.cluster_detection_ns
        self.period_ns = beat_period(self.detection_ns)
        self.multicast = MulticastTest(me, self.detection_ns)
        self.roster: Roster | None = None
        self.term = 0
        self.head = me
        """The roster's head; this peer itself if it has no roster."""
        self.digest = 0
        self.members: dict[PeerId, int] = {}
        """The members with their incarnations, sorted by id."""
        self.peers: tuple[PeerId, ...] = ()
        self.slots: Slots = ()
        self.holders: tuple[PeerId, ...] = ()
        """The coordinators and backups."""
        self.is_head = False
        self.is_holder = False
        self.my_trees: tuple[int, ...] = ()
        self.my_backups: tuple[int, ...] = ()
        self.highest_term = 0
        """The highest term of this cluster that this peer knows."""
        self.stamp = 0
        """The stamp of the cluster's entry in the directory."""
        self.head_ns: Nanos = 0
        """When this peer last received a message from the head itself."""
        self.has_news = False
        """Whether a change has not been reported to other plug-ins yet."""

    @property
    def group(self) -> str:
        """The multicast group."""
        return f"cluster {self.name}"

    def adopt(self, roster: Roster, stamp: int) -> None:
        self.roster, self.digest = roster, roster_digest(roster)
        self.term, self.head = roster.term, roster.head
        self.members = dict(roster.members)
        self.peers = tuple(self.members)
        self.slots, self.holders = roster.slots, slot_holders(roster.slots)
        self.is_head, self.is_holder = roster.head == self.me, self.me in self.holders
        self.my_trees = tuple(tree for tree, slot in enumerate(roster.slots) if slot.active == self.me)
        self.my_backups = tuple(tree for tree, slot in enumerate(roster.slots) if self.me in slot.backups)
        self.note_term(roster.term)
        self.stamp = max(self.stamp, stamp)

    def note_term(self, term: int) -> None:
        self.highest_term = max(self.highest_term, term)

    def includes_me(self, roster: Roster) -> bool:
        return (self.me, self.incarnation) in roster.members

    def has_lost_head(self, now: Nanos) -> bool:
        return now - self.head_ns >= silence_limit(self.detection_ns)

    def refusal_code(self, name: str, agreement: int) -> RefusalCode | None:
        """The reason to refuse a message with this name and agreement; None if it belongs to this cluster."""
        if name != self.name:
            return "other-cluster"
        return None if agreement == self.agreement else "cluster-settings-differ"

    def send(self, peers: Iterable[PeerId], message: ClusterMessage) -> list[PluginEffect]:
        """Send a message to each of these peers except this one."""
        return [SendTo(peer, message) for peer in peers if peer != self.me]

    def make_search(self) -> ClusterSearch:
        return ClusterSearch(self.name, self.agreement, self.incarnation)

    def make_beat(self, now: Nanos) -> MemberBeat:
        test = self.multicast
        return MemberBeat(
            self.name,
            self.agreement,
            self.incarnation,
            self.term,
            self.head,
            seeks=self.head != self.me and self.has_lost_head(now),
            hears_head=test.hears_from(now, self.head),
            hears=test.hears(now),
            mute=test.mute_members(now),
        )

    def make_beacon(self, now: Nanos) -> HeadBeacon:
        """The head's beacon, or the copy of it that another member forwards."""
        beacon = HeadBeacon(self.name, self.agreement, self.term, self.head, self.digest, self.stamp)
        if not self.is_head:
            return replace(beacon, age_ns=max(0, now - self.head_ns))
        works, mute = self.multicast.verdict(now)
        return replace(beacon, works=works, mute=mute)

    def make_roster_hint(self, term: int, head: PeerId) -> HeadBeacon:
        """A beacon that only names another roster of this cluster."""
        return HeadBeacon(self.name, self.agreement, term, head)

    def make_roster_update(self) -> RosterUpdate:
        assert self.roster is not None
        return RosterUpdate(self.name, self.agreement, self.roster, self.stamp)

    def entries(self) -> tuple[ClusterEntry, ...]:
        """The cluster's entry in the directory; none without a roster."""
        if self.roster is None:
            return ()
        return (ClusterEntry(self.name, self.agreement, self.head, self.slots, self.stamp),)
