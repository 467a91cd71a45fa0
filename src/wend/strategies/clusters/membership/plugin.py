"""`clusters`: the peers of one routing domain, represented by coordinators (esposito, section 3).

Peers with the same cluster name are members of one cluster. All members know each other. For each tree between clusters
one of them is the active coordinator, and some are its backups. Coordinators and backups also know the directory of
all clusters.

The paper leaves the election to a bully algorithm and does not say how clusters find each other; both are Wend's own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

from wend.model.events import PeerId
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Begun,
    Changed,
    ContactFound,
    Due,
    EndLink,
    Heard,
    MakeLink,
    Membership,
    PathFound,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Refuse,
    Stopping,
    Timer,
    Unanswered,
    View,
)
from wend.strategies.clusters.membership.cluster import ClusterState
from wend.strategies.clusters.membership.contacts import GOSSIP, ClusterContacts
from wend.strategies.clusters.membership.detector import ClusterDetector
from wend.strategies.clusters.membership.directory import coordinator_links
from wend.strategies.clusters.membership.discovery import NAME, SEEK, ClusterDiscovery, find_domain
from wend.strategies.clusters.membership.heartbeats import BEAT, Heartbeats
from wend.strategies.clusters.membership.leadership import ADMIT, DETECT, SETTLE, TAKE_OVER, Leadership
from wend.strategies.clusters.membership.merge import Merge
from wend.strategies.clusters.membership.messages import (
    ClusterEntry,
    ClusterMessage,
    ClusterSearch,
    DirectoryDigest,
    DirectoryEntries,
    HeadBeacon,
    IntraClusterMessage,
    MemberAnswer,
    MemberBeat,
    MemberLeave,
    MemberProbe,
    MulticastProbe,
    PassedBeat,
    RosterRequest,
    RosterUpdate,
    SearchAnswer,
    Slots,
    is_invalid,
)
from wend.strategies.clusters.membership.roster_exchange import RosterExchange
from wend.strategies.clusters.membership.settings import ClusterSettings
from wend.strategies.ring.bounded import put_newest

CLUSTER: Final = "cluster"
"""What changed, for other plug-ins."""
MAX_UNANSWERED = 256


class Clusters(Membership):
    """Knows the members of this peer's cluster, and the coordinators of this and other clusters."""

    settings: ClassVar[type[Settings]] = ClusterSettings
    messages: ClassVar[Any] = ClusterMessage
    joins: ClassVar[bool] = True
    strategy: ClassVar[str | None] = "clusters"
    domain_setting: ClassVar[str | None] = "cluster"

    def __init__(self, config: PeerConfig) -> None:
        self.me = config.peer
        settings = config.of(ClusterSettings)
        self._trees = settings.coordinators
        self._cluster = cluster = ClusterState(config.peer, config.incarnation, settings)
        self._detector = detector = ClusterDetector(cluster.detection_ns)
        self._contacts = contacts = ClusterContacts(cluster, detector, settings.directory_ns, config.seed)
        self._leadership = leadership = Leadership(cluster, settings, detector, contacts)
        self._merge = merge = Merge(cluster, leadership)
        self._heartbeats = heartbeats = Heartbeats(cluster, detector, leadership, merge)
        rosters = RosterExchange(cluster, leadership, merge, heartbeats)
        self._discovery = discovery = ClusterDiscovery(cluster, contacts, leadership, merge)
        self._unanswered: dict[PeerId, Nanos] = {}
        """When each peer last failed to answer a message of some plug-in."""
        self._has_left = False
        self._handlers: dict[type, Callable[[Nanos, PeerId, Any], Iterable[PluginEffect]]] = {
            ClusterSearch: discovery.on_search,
            SearchAnswer: discovery.on_answer,
            MemberBeat: heartbeats.on_beat,
            PassedBeat: heartbeats.on_passed_beat,
            HeadBeacon: heartbeats.on_beacon,
            RosterRequest: rosters.on_request,
            RosterUpdate: rosters.on_roster,
            MulticastProbe: heartbeats.on_multicast,
            MemberProbe: leadership.on_probe,
            MemberAnswer: leadership.on_answer,
            MemberLeave: leadership.on_leave,
            DirectoryDigest: contacts.on_digest,
            DirectoryEntries: self._on_entries,
        }
        self._timers: dict[str, Callable[[Nanos], Iterable[PluginEffect]]] = {
            NAME: discovery.name_after_peer,
            SEEK: discovery.search_again,
            BEAT: self._on_period,
            DETECT: leadership.detect,
            ADMIT: leadership.admit_joiners,
            SETTLE: leadership.promote_backups,
            TAKE_OVER: leadership.take_over,
            GOSSIP: contacts.gossip,
        }

    # ---------------------------------------------------------------- queries of other plug-ins

    @property
    def cluster_name(self) -> str:
        """The name; empty until the peer knows its routing domain."""
        return self._cluster.name

    @property
    def has_joined(self) -> bool:
        """Whether this peer belongs to a cluster, which then has a coordinator for every tree."""
        return self._cluster.roster is not None and not self._has_left

    @property
    def members(self) -> tuple[PeerId, ...]:
        """All live members of the cluster, as far as its head knows; this peer is one. Sorted."""
        return self._cluster.peers

    @property
    def slots(self) -> Slots:
        """The slots of this peer's cluster, by tree."""
        return self._cluster.slots

    @property
    def my_trees(self) -> tuple[int, ...]:
        """The trees for which this peer is the active coordinator: several only if there are few members."""
        return self._cluster.my_trees

    @property
    def my_backups(self) -> tuple[int, ...]:
        """The trees for which this peer is a backup."""
        return self._cluster.my_backups

    @property
    def directory(self) -> Mapping[str, Slots]:
        """All known clusters, this peer's own among them; empty unless it is a coordinator or backup."""
        return self._contacts.directory.slots

    @property
    def multicast_works(self) -> bool:
        """Whether this peer's multicast reaches all live members, by their reports."""
        return self._cluster.multicast.works

    def round_trip_ns(self, peer: PeerId) -> Nanos:
        """The measured round trip, or a first guess."""
        return self._detector.round_trip_ns(peer)

    def believes_live(self, peer: PeerId) -> bool:
        """Whether a member, a coordinator or a backup of any cluster lives, as far as this peer knows."""
        if peer == self.me:
            return True
        is_known = peer in self._cluster.members or peer in self._contacts.directory
        return is_known and peer not in self._detector.dead and peer not in self._unanswered

    def informants(self) -> tuple[PeerId, ...]:
        """The head, which hears all members, and coordinators, which hear coordinators of other clusters."""
        peers = (self._cluster.head, *self._cluster.holders, *self._contacts.coordinators())
        return tuple(peer for peer in dict.fromkeys(peers) if peer != self.me)

    def status(self) -> dict[str, int]:
        """1 under `joined` if it has; `members`; `clusters` that it knows; `head`, the peer that assigned the slots,
        and their `term`; 1 under `multicast` if the peer's multicast reaches all members. `active/0` is 1 at the
        active coordinator of tree 0, `backup/0` at its backups."""
        shown = {
            "joined": int(self.has_joined),
            "members": len(self._cluster.members),
            "clusters": len(self._contacts.directory),
            "multicast": int(self.multicast_works),
        }
        if self._cluster.roster is not None:
            shown |= {"head": self._cluster.head, "term": self._cluster.term}
        shown |= {f"active/{tree}": 1 for tree in self.my_trees}
        return shown | {f"backup/{tree}": 1 for tree in self.my_backups}

    # ---------------------------------------------------------------- inputs

    def handle(self, now: Nanos, event: PluginInput, view: View | None = None) -> list[PluginEffect]:
        if self._has_left:
            return []
        out = list(self._dispatch(now, event))
        timer_ns = self._detector.next_timer_ns(now)
        if timer_ns is not None:
            out.append(Timer(timer_ns, DETECT))
        if self._cluster.has_news:
            self._cluster.has_news = False
            out.append(Changed(CLUSTER))
        return out

    def _dispatch(self, now: Nanos, event: PluginInput) -> Iterable[PluginEffect]:
        match event:
            case Heard(sender, message):
                return self._on_message(now, sender, message)
            case Due(name):
                return self._timers[name](now)
            case Begun(contacts, contacts_follow):
                self._contacts.start(contacts, contacts_follow)
                return [*self._heartbeats.start(now), *self._discovery.start(now)]
            case ContactFound(peer):
                return self._contacts.on_contact_found(peer)
            case PathFound(_, path):
                return self._discovery.set_name(now, find_domain(path))
            case Unanswered(peer):
                put_newest(self._unanswered, peer, now, MAX_UNANSWERED)
                self._detector.suspect(now, peer)
            case Stopping():
                return self._leave_cluster()
        return []

    def _on_message(self, now: Nanos, sender: PeerId, message: Any) -> Iterable[PluginEffect]:
        self._unanswered.pop(sender, None)
        if sender == self.me or is_invalid(message, self._trees):
            return [Refuse(sender, "invalid-message", type(message).__name__)]
        if not self._cluster.name:
            return []
        if isinstance(message, IntraClusterMessage):
            reason = self._cluster.refusal_code(message.cluster, message.agreement)
            if reason is not None:
                return [Refuse(sender, reason)]
        return self._handlers[type(message)](now, sender, message)

    def _on_period(self, now: Nanos) -> list[PluginEffect]:
        limit = now - self._cluster.detection_ns
        self._unanswered = {peer: when for peer, when in self._unanswered.items() if when >= limit}
        return [*self._heartbeats.on_period(now), *self._contacts.on_period(now)]

    def _leave_cluster(self) -> list[PluginEffect]:
        self._has_left = True
        cluster = self._cluster
        leave = MemberLeave(cluster.name, cluster.incarnation)
        return cluster.send(dict.fromkeys((cluster.head, *cluster.holders)), leave)

    def _on_entries(self, now: Nanos, sender: PeerId, message: DirectoryEntries) -> Iterator[PluginEffect]:
        cluster, contacts = self._cluster, self._contacts
        if message.number:
            self._detector.record_answer(now, sender, message.number)
        if not cluster.is_holder:  # the sender's list of coordinators is old
            is_news = cluster.roster is not None and sender not in cluster.members
            yield from cluster.send((cluster.head,), DirectoryEntries(message.entries)) if is_news else []
            return
        yield from contacts.warn_successor(message.entries, sender)
        yield from self._add_entries(now, message.entries, sender)
        if message.wanted:
            yield from cluster.send((sender,), DirectoryEntries(contacts.directory.select_entries(message.wanted)))

    def _add_entries(self, now: Nanos, entries: tuple[ClusterEntry, ...], sender: PeerId) -> Iterator[PluginEffect]:
        contacts = self._contacts
        changed: list[ClusterEntry] = []
        new: list[str] = []
        for entry in entries:
            is_new = contacts.directory.get(entry.name) is None
            if entry.name == self.cluster_name:
                yield from self._merge.compare_entry(now, entry, sender)
            elif contacts.directory.add(now, entry):
                changed.append(entry)
                new += [entry.name] if is_new else []
        yield from contacts.on_new_entries(changed, new, sender)


class LinkedClusters(Clusters):
    """Clusters with links between their active coordinators."""

    strategy: ClassVar[str | None] = "clusters-adaptive"

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._linked_peers: tuple[PeerId, ...] = ()
        """The coordinators to which this peer has links."""

    def handle(self, now: Nanos, event: PluginInput, view: View | None = None) -> list[PluginEffect]:
        out = super().handle(now, event, view)
        if Changed(CLUSTER) not in out:
            return out
        before, self._linked_peers = self._linked_peers, coordinator_links(self.me, self.cluster_name, self.directory)
        ends: list[PluginEffect] = [EndLink(peer) for peer in before if peer not in self._linked_peers]
        return [*ends, *(MakeLink(peer, ()) for peer in self._linked_peers if peer not in before), *out]
