"""`clusters`: the peers of one routing domain, behind coordinators that speak for them (esposito, section 3).

Peers with the same cluster name are members of one cluster. All members know each other. For each tree between clusters
one of them is the active coordinator, and some are its backups (`cluster_slots.py`). Coordinators and backups also know
the directory of all clusters.

| part | where |
| --- | --- |
| finding the cluster | `cluster_search.py` |
| heartbeats, rosters, election | `cluster_member.py`, by the rule in `cluster_election.py` |
| failure detector, round trips | `cluster_detector.py` |
| whether multicast works | `cluster_multicast.py` |
| other clusters | `cluster_directory.py` |
| the name, if nobody gives one | `cluster_domains.py` |

The paper leaves the election to a bully algorithm and does not say how clusters find each other; both are Wend's own.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from wend.model.events import PeerId
from wend.model.random_stream import peer_stream
from wend.model.units import Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.membership import cluster_election
from wend.protocol.membership.cluster_directory import Directory
from wend.protocol.membership.cluster_domains import domain_of_path
from wend.protocol.membership.cluster_member import ADMIT, BEAT, DETECT, SETTLE, TAKE_OVER, ClusterMember
from wend.protocol.membership.cluster_messages import (
    ClusterEntry,
    ClusterFound,
    ClusterSearch,
    DirectoryDigest,
    DirectoryEntries,
    MemberLeave,
    cannot_be,
)
from wend.protocol.membership.cluster_search import ASKED, Search
from wend.protocol.membership.cluster_slots import Slots, holders_of
from wend.protocol.notices import ComposedReason
from wend.protocol.plugins import (
    Begun,
    Changed,
    Due,
    Heard,
    Needs,
    PluginEffect,
    PluginInput,
    Timer,
    Unanswered,
    View,
)
from wend.protocol.ports import ContactFound, FindPath, JoinMulticast, Multicast, PathFound, Refuse, Stopping

CLUSTER: Final = "cluster"
"""What changed, for other plug-ins."""
MOST_TOLD = 64
"""Clusters that are told of new slots at once; others hear of them by gossip."""
TRACED = 3
"""Contacts to which a peer without a cluster name traces the path."""
MEASURED = 16
"""Heartbeat periods between two measurements of a round trip."""
MOST_LONELY = 32
"""Periods in which a coordinator that knows no other cluster asks a contact; then it does so less often."""
MOST_UNANSWERED = 256
_SEEK, _GOSSIP, _NAME = "seek", "gossip", "name"


class Clusters(ClusterMember):
    """Who belongs to this peer's cluster, and who speaks for it and for others."""

    needs: ClassVar[Needs] = Needs()
    joins: ClassVar[bool] = True

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._seed = config.seed
        self._search = Search(config.peer)
        self._directory = Directory(self._settings.directory_ns)
        self._gossips = 0
        self._unanswered: dict[PeerId, Nanos] = {}
        """When each peer last left a message of some plug-in without an answer."""
        self._lonely = 0
        """Heartbeat periods in which this coordinator or backup knew no other cluster."""
        self._gone = False

    # ---------------------------------------------------------------- what other plug-ins ask

    @property
    def joined(self) -> bool:
        """Whether this peer belongs to a cluster, which then has a coordinator for every tree."""
        return self._roster is not None and not self._gone

    @property
    def members(self) -> tuple[PeerId, ...]:
        """All members of the cluster that live, as far as its head knows; this peer is one. Sorted."""
        return tuple(self._members)

    @property
    def slots(self) -> Slots:
        """Of this peer's cluster, by tree."""
        return () if self._roster is None else self._roster.slots

    @property
    def my_trees(self) -> tuple[int, ...]:
        """The trees for which this peer is the active coordinator: several only where there are few members."""
        return tuple(tree for tree, slot in enumerate(self.slots) if slot.active == self.me)

    @property
    def my_tree(self) -> int | None:
        """The first of them."""
        return next(iter(self.my_trees), None)

    @property
    def my_backups(self) -> tuple[int, ...]:
        """The trees for which this peer is a backup."""
        return tuple(tree for tree, slot in enumerate(self.slots) if self.me in slot.backups)

    @property
    def directory(self) -> Mapping[str, Slots]:
        """All known clusters, this peer's own among them; empty unless it is a coordinator or backup."""
        return self._directory.slots

    @property
    def multicast_works(self) -> bool:
        """Whether this peer's multicast reaches all live members, as they say."""
        return self._test.works

    def round_trip_ns(self, peer: PeerId) -> Nanos:
        """The measured round trip, or a first guess."""
        return self._detector.round_trip_ns(peer)

    def believes_live(self, peer: PeerId) -> bool:
        """Whether a member, a coordinator or a backup of any cluster lives, as far as this peer knows."""
        if peer == self.me:
            return True
        known = peer in self._members or peer in self._directory
        return known and peer not in self._detector.dead and peer not in self._unanswered

    def status(self) -> dict[str, int]:
        """1 under `joined` where it has; `members`; `clusters` that it knows; `head`, the peer that assigned the slots,
        and their `term`; 1 under `multicast` where the peer's multicast reaches all members. `active/0` is 1 at the
        active coordinator of tree 0, `backup/0` at its backups."""
        shown = {
            "joined": int(self.joined),
            "members": len(self._members),
            "clusters": len(self._directory),
            "multicast": int(self.multicast_works),
        }
        if self._roster is not None:
            shown |= {"head": self._roster.head, "term": self._roster.term}
        shown |= {f"active/{tree}": 1 for tree in self.my_trees}
        return shown | {f"backup/{tree}": 1 for tree in self.my_backups}

    # ---------------------------------------------------------------- inputs

    def handle(self, now: Nanos, event: PluginInput, view: View | None = None) -> list[PluginEffect]:
        if self._gone:
            return []
        match event:
            case Heard(sender, message):
                self._hear(now, sender, message)
            case Due(name):
                self._due(now, name)
            case Begun(contacts, contacts_follow):
                self._search.begin(contacts, contacts_follow)
                self._start_beats(now)
                self._name_cluster(now)
            case ContactFound(peer):
                self._search.found_contact(peer)
                self._greet(peer)
            case PathFound(_, path):
                if not self.cluster:
                    self._named(now, domain_of_path(path))
            case Unanswered(peer):
                self._unanswered.pop(peer, None)
                self._unanswered[peer] = now
                if len(self._unanswered) > MOST_UNANSWERED:
                    del self._unanswered[next(iter(self._unanswered))]
                self._detector.suspect(now, peer)
            case Stopping():
                self._leave()
        self._arm(now)
        if self._moved:
            self._moved = False
            self._out.append(Changed(CLUSTER))
        out, self._out = self._out, []
        return out

    def _hear(self, now: Nanos, sender: PeerId, message: Any) -> None:
        self._unanswered.pop(sender, None)
        if sender == self.me or cannot_be(message, self._settings.coordinators):
            self._out.append(Refuse(sender, ComposedReason(f"{type(message).__name__}: a message that cannot be")))
        elif self.cluster:
            self.hears[type(message)](self, now, sender, message)

    def _due(self, now: Nanos, name: str) -> None:
        if name == BEAT:
            self._beat(now)
        elif name == DETECT:
            self._detect(now)
        elif name == ADMIT:
            if self.is_head and self._joiners:
                self._write_roster(now)
        elif name == SETTLE:
            self._settle(now)
        elif name == TAKE_OVER:
            self._take_over(now)
        elif name == _SEEK:
            self._seek(now)
        elif name == _GOSSIP:
            self._gossip(now)
        elif name == _NAME and not self.cluster:
            self._named(now, f"peer {self.me}")

    def _leave(self) -> None:
        if self._roster is not None:
            told = dict.fromkeys((self._roster.head, *self._holders))
            for peer in told:
                self._say(peer, MemberLeave(self.cluster, self._incarnation))
        self._gone = True

    # ---------------------------------------------------------------- the name, and joining

    def _name_cluster(self, now: Nanos) -> None:
        if self.cluster:
            self._enter(now)
            return
        for peer in self._search.next_contacts(TRACED):
            self._out.append(FindPath(peer))
        self._out.append(Timer(now + 2 * self._detection, _NAME))

    def _named(self, now: Nanos, name: str | None) -> None:
        if name is not None:
            self.cluster = name
            self._enter(now)

    def _enter(self, now: Nanos) -> None:
        """Look for the cluster, whose name is known now."""
        self._out.append(JoinMulticast(self._group))
        self._out.append(Timer(now + self._settings.directory_ns, _GOSSIP))
        self._seek(now)

    def _seek(self, now: Nanos) -> None:
        if self._roster is not None:
            return
        if self._search.next_round(self.cluster):
            self._begin_cluster(now)
            return
        search = self._own_search()
        self._out.append(Multicast(self._group, search))
        for peer in dict.fromkeys((*self._search.next_contacts(ASKED), *self._search.seekers(self.cluster, self.me))):
            self._say(peer, search)
        for peer in self._search.targets:
            self._ask_head(now, peer)
        self._out.append(Timer(now + self._period, _SEEK))

    def _own_search(self) -> ClusterSearch:
        return ClusterSearch(self.cluster, self._agreement, self._incarnation)

    def _greet(self, peer: PeerId) -> None:
        """Ask a contact who it is."""
        if self.cluster and peer not in self._members:
            self._say(peer, self._own_search())

    def _greet_contacts(self, count: int) -> None:
        for peer in self._search.next_contacts(count, self._members):
            self._greet(peer)

    def _sighted_cluster(self, now: Nanos, head: PeerId) -> None:
        if head not in self._search.targets:
            self._search.aim((head,))
            self._ask_head(now, head)

    def _hear_search(self, now: Nanos, sender: PeerId, search: ClusterSearch) -> None:
        if search.cluster == self.cluster:
            self._hear_own_search(now, sender, search)
        else:
            self._search.add_seeker(search.cluster, sender)
            entries = self._directory.named((self.cluster, search.cluster)) or self._own_entries()
            seekers = self._search.seekers(search.cluster, sender)
            self._say(sender, ClusterFound(self.cluster, search.cluster, entries, seekers))
            self._search.add_contact(sender)

    def _hear_own_search(self, now: Nanos, sender: PeerId, search: ClusterSearch) -> None:
        if search.agreement != self._agreement:
            self._refuse(sender, "the name of this cluster, with other settings")
        elif self._roster is None:
            self._search.add_seeker(self.cluster, sender)
        elif self._members.get(sender) == search.incarnation:
            pass  # it has joined, and greets a contact
        else:
            self._restarted(now, sender, search.incarnation)
            self._say(sender, self._beacon(now))

    def _hear_found(self, now: Nanos, sender: PeerId, found: ClusterFound) -> None:
        if found.asked != self.cluster:
            self._refuse(sender, "an answer about another cluster")
            return
        for entry in found.entries:
            if entry.name == self.cluster:
                if self._roster is None:
                    self._known_term = max(self._known_term, entry.slots[0].term)
                    for peer in dict.fromkeys((entry.head, *holders_of(entry.slots))):
                        self._sighted_cluster(now, peer)
                else:
                    self._compare(now, entry)
            else:
                self._hear_of(now, entry, sender)
        if self._roster is None:
            for peer in found.seekers:
                if peer != self.me and peer not in self._search.seekers(self.cluster, self.me):
                    self._search.add_seeker(self.cluster, peer)
                    self._say(peer, self._own_search())

    def _hear_of(self, now: Nanos, entry: ClusterEntry, sender: PeerId) -> None:
        """A contact of another cluster says who coordinates it."""
        if self._roster is None:
            coordinator = entry.slots[0].active
            if sender not in holders_of(entry.slots) and coordinator not in self._search.contacts:
                self._search.add_contact(coordinator, first=True)
                self._say(coordinator, self._own_search())
            return
        if self.me not in self._holders:
            self._say(self._roster.head, DirectoryEntries((entry,)))
        elif self._directory.get(entry.name) is None:
            self._learn(now, (entry,))
            for peer in holders_of(entry.slots):
                self._say(peer, self._digest_to(now, peer))

    # ---------------------------------------------------------------- the directory

    def _own_entries(self) -> tuple[ClusterEntry, ...]:
        roster = self._roster
        return () if roster is None else (ClusterEntry(self.cluster, roster.head, roster.slots, self._stamp),)

    def _adopted(self, now: Nanos, before: Slots) -> None:
        self._search.restart()
        self._search.forget_seekers(self.cluster)
        if self.me not in self._holders:
            if len(self._directory):
                self._directory.clear()
            return
        fresh = not len(self._directory)
        self._directory.learn(now, self._own_entries()[0])
        others = [peer for peer in self._holders if peer != self.me]
        if fresh:
            self._lonely = 0
            for peer in others:
                self._say(peer, self._digest_to(now, peer))
            self._greet_contacts(ASKED)
        if before != self.slots:
            self._push()

    def _push(self) -> None:
        """Tell the other clusters' coordinators of the trees that this peer coordinates."""
        names = [name for name in self._directory.slots if name != self.cluster]
        if len(names) > MOST_TOLD:
            names = self._draw("push").sample(names, MOST_TOLD)
        entries = DirectoryEntries(self._own_entries())
        for name in names:
            slots = self._directory.slots[name]
            for peer in dict.fromkeys(peer for tree in self.my_trees for peer in slots[tree].holders):
                self._say(peer, entries)

    def _draw(self, what: str) -> Any:
        self._gossips += 1
        return peer_stream(self._seed, "clusters", what, self.me, self._incarnation, self._gossips)

    def _gossip(self, now: Nanos) -> None:
        self._out.append(Timer(now + self._settings.directory_ns, _GOSSIP))
        if self._roster is None:
            return
        if self.is_head:
            self._stamp += 1
        if self.me not in self._holders:
            return
        self._greet_contacts(1)
        self._directory.learn(now, self._own_entries()[0])
        for entry in self._directory.expire(now, self.cluster):
            self._moved = True
            for peer in holders_of(entry.slots):
                self._search.add_contact(peer)
        draw = self._draw("gossip")
        name = draw.choice(list(self._directory.slots))
        peers = [peer for peer in holders_of(self._directory.slots[name]) if peer != self.me]
        if peers:
            peer = draw.choice(peers)
            self._say(peer, self._digest_to(now, peer))

    def _digest_to(self, now: Nanos, peer: PeerId) -> DirectoryDigest:
        return self._directory.digest(self._detector.number(now, peer))

    def _hear_digest(self, now: Nanos, sender: PeerId, digest: DirectoryDigest) -> None:
        if self._roster is None:
            return
        if self.me in self._holders:
            self._say(sender, self._directory.answer(digest))
        else:
            self._say(sender, DirectoryEntries(self._own_entries(), (), digest.number))

    def _hear_entries(self, now: Nanos, sender: PeerId, message: DirectoryEntries) -> None:
        if message.number:
            self._detector.answered(now, sender, message.number)
        if self.me in self._holders:
            self._learn(now, message.entries)
            if message.wanted:
                self._say(sender, DirectoryEntries(self._directory.named(message.wanted)))

    def _learn(self, now: Nanos, entries: tuple[ClusterEntry, ...]) -> None:
        for entry in entries:
            if entry.name == self.cluster:
                self._compare(now, entry)
            elif self._directory.learn(now, entry):
                self._moved = True

    def _compare(self, now: Nanos, entry: ClusterEntry) -> None:
        """Somebody knows slots of this cluster: those of another head, after a partition, or old ones."""
        roster = self._roster
        assert roster is not None
        term = entry.slots[0].term
        if (term, entry.head) == (roster.term, roster.head):
            return
        if cluster_election.wins(term, entry.head, roster.term, roster.head):
            self._sighted(now, term, entry.head, entry.head)
            if not self.is_head:
                self._say(roster.head, DirectoryEntries((entry,)))
        elif entry.head not in self._members:
            self._answer_loser(now, entry.head)

    # ---------------------------------------------------------------- round trips

    def _tend(self, now: Nanos) -> None:
        limit = now - self._detection
        for peer in [peer for peer, when in self._unanswered.items() if when < limit]:
            del self._unanswered[peer]
        if len(self._directory) == 1 and self._lonely < MOST_LONELY:
            self._lonely += 1
            self._greet_contacts(1)
        if self._beats % MEASURED == 0:
            known = [peer for peer in (*self._members, *self._others()) if peer != self.me]
            if known:
                self._probe(now, self._draw("measure").choice(known))

    def _others(self) -> list[PeerId]:
        """The coordinators of other clusters, as far as this peer knows them."""
        return [slot.active for name, slots in self._directory.slots.items() if name != self.cluster for slot in slots]

    hears: ClassVar[dict[type, Callable[[Any, Nanos, PeerId, Any], None]]] = {
        **ClusterMember.hears,
        ClusterSearch: _hear_search,
        ClusterFound: _hear_found,
        DirectoryDigest: _hear_digest,
        DirectoryEntries: _hear_entries,
    }
