"""What a peer and peers of other clusters tell each other: the search for its own cluster, and the directory.

How a search proceeds says `cluster_search.py`, how directories are compared `cluster_directory.py`.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from wend.model.events import PeerId
from wend.model.random_stream import RandomStream, peer_stream
from wend.model.units import Nanos
from wend.protocol.plugins import FindPath, JoinMulticast, Multicast, PeerConfig, Timer
from wend.strategies.clusters.membership import election as cluster_election
from wend.strategies.clusters.membership.directory import Directory
from wend.strategies.clusters.membership.member import ClusterMember
from wend.strategies.clusters.membership.messages import (
    ClusterEntry,
    ClusterFound,
    ClusterSearch,
    DirectoryDigest,
    DirectoryEntries,
)
from wend.strategies.clusters.membership.search import ASKED, Search
from wend.strategies.clusters.membership.slots import Slots, holders_of

MOST_TOLD = 64
"""Clusters that are told of new slots at once; others hear of them by gossip."""
TRACED = 3
"""Contacts to which a peer without a cluster name traces the path."""
MOST_LONELY = 32
"""Periods in which a coordinator that knows no other cluster asks a contact; then it does so less often."""
SEEK, GOSSIP, NAME = "seek", "gossip", "name"


class ClusterContacts(ClusterMember):
    """Finds its cluster, and tells other clusters of it."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._seed = config.seed
        self._search = Search(config.peer)
        self._directory = Directory(self._settings.directory_ns)
        self._draws = 0
        self._lonely = 0
        """Heartbeat periods in which this coordinator or backup knew no other cluster."""

    # ---------------------------------------------------------------- the name, and joining

    def _name_cluster(self, now: Nanos) -> None:
        if self.cluster:
            self._enter(now)
            return
        for peer in self._search.next_contacts(TRACED):
            self._out.append(FindPath(peer))
        self._out.append(Timer(now + 2 * self._detection, NAME))

    def _named(self, now: Nanos, name: str | None) -> None:
        if name is not None:
            self.cluster = name
            self._enter(now)

    def _enter(self, now: Nanos) -> None:
        """Look for the cluster, whose name is known now."""
        self._out.append(JoinMulticast(self._group))
        self._out.append(Timer(now + self._settings.directory_ns, GOSSIP))
        self._seek(now)

    def _seek(self, now: Nanos) -> None:
        if self._roster is not None:
            return
        if self._search.next_round(self.cluster):
            others = self._search.seekers(self.cluster, self.me)
            self._begin_cluster(now)
            for peer in others:
                self._say(peer, self._beacon(now))
            return
        search = self._own_search()
        if self._search.multicasts:
            self._out.append(Multicast(self._group, search))
        lowest = sorted(self._search.seekers(self.cluster, self.me))[:ASKED]
        for peer in dict.fromkeys((*self._search.next_contacts(ASKED), *lowest)):
            self._say(peer, search)
        for peer in self._search.targets:
            self._ask_head(now, peer)
        self._out.append(Timer(now + self._period, SEEK))

    def _own_search(self) -> ClusterSearch:
        return ClusterSearch(self.cluster, self._agreement, self._incarnation)

    def _greet(self, peer: PeerId) -> None:
        """Ask a contact who it is."""
        if self.cluster and peer not in self._members:
            self._say(peer, self._own_search())

    def _greet_contacts(self, count: int) -> None:
        for peer in self._search.next_contacts(count, self._members):
            self._greet(peer)

    def _sighted_cluster(self, now: Nanos, member: PeerId) -> None:
        if member not in self._search.targets:
            self._search.aim((member,))
            self._ask_head(now, member)

    def _hear_search(self, now: Nanos, sender: PeerId, search: ClusterSearch) -> None:
        if search.cluster == self.cluster:
            self._hear_own_search(now, sender, search)
        else:
            self._search.add_seeker(search.cluster, sender)
            entries = self._directory.named((self.cluster, search.cluster)) or self._own_entries()
            seekers = self._search.seekers(search.cluster, sender)
            term = self._directory.last_term(search.cluster)
            self._say(sender, ClusterFound(self.cluster, search.cluster, entries, seekers, term))
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
        self._exceed(now, found)
        for entry in found.entries:
            if entry.name == self.cluster:
                if entry.agreement != self._agreement:
                    self._refuse(sender, "the name of this cluster, with other settings")
                elif self._roster is None:
                    for peer in dict.fromkeys((entry.head, *holders_of(entry.slots))):
                        self._sighted_cluster(now, peer)
                else:
                    self._compare(now, entry, sender)
            else:
                self._hear_of(now, entry, sender)
        if self._roster is None:
            for peer in found.seekers:
                if peer != self.me and peer not in self._search.seekers(self.cluster, self.me):
                    self._search.add_seeker(self.cluster, peer)
                    self._say(peer, self._own_search())

    def _exceed(self, now: Nanos, found: ClusterFound) -> None:
        """Somebody knew this cluster in a term that is not lower, before it expired: take a higher one."""
        self._known_term = max(self._known_term, found.term)
        if self._roster is not None and self._roster.term <= found.term:
            if self.is_head:
                self._write_roster(now)
            elif self.me in self._holders:
                self._say(self._roster.head, found)

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
            self._learn(now, (entry,), sender)
            for peer in holders_of(entry.slots):
                self._say(peer, self._digest_to(now, peer))

    # ---------------------------------------------------------------- the directory

    def _own_entries(self) -> tuple[ClusterEntry, ...]:
        roster = self._roster
        if roster is None:
            return ()
        return (ClusterEntry(self.cluster, self._agreement, roster.head, roster.slots, self._stamp),)

    def _adopted(self, now: Nanos, before: Slots) -> None:
        self._search.restart()
        self._search.forget_seekers(self.cluster)
        if self.me not in self._holders:
            if len(self._directory):
                self._directory = Directory(self._settings.directory_ns)
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
            self._push([name for name in self._directory.slots if name != self.cluster])

    def _push(self, names: list[str]) -> None:
        """Tell the coordinators of other clusters, and their backups, on the trees that this peer coordinates."""
        if len(names) > MOST_TOLD:
            names = self._draw("push").sample(names, MOST_TOLD)
        entries = DirectoryEntries(self._own_entries())
        for name in names:
            slots = self._directory.slots[name]
            for peer in dict.fromkeys(peer for tree in self.my_trees for peer in slots[tree].holders):
                self._say(peer, entries)

    def _draw(self, what: str) -> RandomStream:
        self._draws += 1
        return peer_stream(self._seed, "clusters", what, self.me, self._incarnation, self._draws)

    def _gossip(self, now: Nanos) -> None:
        self._out.append(Timer(now + self._settings.directory_ns, GOSSIP))
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
            for entry in message.entries:
                if self._directory.outlived(entry) and sender in holders_of(entry.slots):
                    last = self._directory.last_term(entry.name)
                    self._say(sender, ClusterFound(self.cluster, entry.name, self._own_entries(), (), last))
            self._learn(now, message.entries, sender)
            if message.wanted:
                self._say(sender, DirectoryEntries(self._directory.named(message.wanted)))
        elif self._roster is not None and sender not in self._members:
            self._say(self._roster.head, DirectoryEntries(message.entries))  # the sender's list of coordinators is old

    def _learn(self, now: Nanos, entries: tuple[ClusterEntry, ...], sender: PeerId) -> None:
        """Take over entries. A cluster that was not known hears of this one at once. An active coordinator passes on to
        the others of its cluster what another cluster told it: that one's list of them may be old."""
        new: list[str] = []
        changed: list[ClusterEntry] = []
        for entry in entries:
            known = self._directory.get(entry.name)
            if entry.name == self.cluster:
                self._compare(now, entry, sender)
            elif self._directory.learn(now, entry):
                changed.append(entry)
                new += [entry.name] if known is None else []
        if changed:
            self._moved = True
            self._push(new)
        if changed and sender not in self._members and self.my_trees:
            for peer in self._holders:
                self._say(peer, DirectoryEntries(tuple(changed)))

    def _compare(self, now: Nanos, entry: ClusterEntry, sender: PeerId) -> None:
        """Somebody knows slots of this cluster: those of another head, after a partition, or old ones."""
        roster = self._roster
        assert roster is not None
        term = entry.slots[0].term
        if entry.agreement != self._agreement:
            self._refuse(sender, "the name of this cluster, with other settings")
            return
        if (term, entry.head) == (roster.term, roster.head):
            return
        if cluster_election.wins(term, entry.head, roster.term, roster.head):
            self._sighted(now, term, entry.head, entry.head)
            if not self.is_head:
                self._say(roster.head, DirectoryEntries((entry,)))
        elif entry.head not in self._members:
            self._answer_loser(now, entry.head)

    def _tend(self, now: Nanos) -> None:
        if len(self._directory) == 1 and self._lonely < MOST_LONELY:
            self._lonely += 1
            self._greet_contacts(1)

    hears: ClassVar[dict[type, Callable[[Any, Nanos, PeerId, Any], None]]] = {
        **ClusterMember.hears,
        ClusterSearch: _hear_search,
        ClusterFound: _hear_found,
        DirectoryDigest: _hear_digest,
        DirectoryEntries: _hear_entries,
    }
