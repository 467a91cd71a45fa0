"""Discovery of a peer's cluster: first its name, then a member that admits the peer.

A peer without a cluster searches in rounds, one per heartbeat period: by multicast, by contacts of any cluster, and by
others that search for the same one. A contact answers with the coordinators of its own cluster; if it is one itself, it
has the directory and names the coordinators of the cluster in question. If no peer knows the cluster, the peer begins
it; of several peers that search at once, the one with the lowest id begins. Two peers may both begin it: then their
clusters merge as after a partition."""

from collections.abc import Iterable, Iterator

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.plugins import FindPath, JoinMulticast, Multicast, PluginEffect, Refuse, Timer
from wend.strategies.clusters.membership.cluster import ClusterState
from wend.strategies.clusters.membership.contacts import ASKED, ClusterContacts
from wend.strategies.clusters.membership.leadership import Leadership
from wend.strategies.clusters.membership.merge import Merge
from wend.strategies.clusters.membership.messages import ClusterEntry, ClusterSearch, SearchAnswer, slot_holders
from wend.strategies.ring.bounded import put_newest

MAX_PATHS = 3
"""Contacts to which a peer without a cluster name traces the path."""
MULTICAST_ROUNDS = 3
MAX_SEEKERS = 64
MAX_NAMES = 256
ALONE, USUAL, BEHIND, AWAITED, HOPEFUL = 1, 3, 6, 16, 24
"""Rounds before a peer begins a cluster: without contacts; with some; if a peer with a lower id searches, too; if
contacts are still to come; if the cluster is known, but does not answer."""
SEEK, NAME = "seek", "name"


def find_domain(path: Path | None) -> str | None:
    """The routing domain of the peer at the start of a traced path: its first router. None if that did not answer."""
    return f"router {path[0]}" if path and path[0] is not None else None


class ClusterDiscovery:
    def __init__(self, cluster: ClusterState, contacts: ClusterContacts, leadership: Leadership, merge: Merge) -> None:
        self._cluster = cluster
        self._contacts = contacts
        self._leadership = leadership
        self._merge = merge
        self._rounds = 0
        self._seekers: dict[str, dict[PeerId, None]] = {}
        """By the name of a cluster, the peers that asked this one for it."""

    def start(self, now: Nanos) -> list[PluginEffect]:
        """Search for the cluster if its name is known; else trace paths to find the peer's routing domain."""
        if self._cluster.name:
            return self._search_or_begin(now)
        paths = [FindPath(peer) for peer in self._contacts.next_contacts(MAX_PATHS)]
        return [*paths, Timer(now + 2 * self._cluster.detection_ns, NAME)]

    def name_after_peer(self, now: Nanos) -> list[PluginEffect]:
        """Name the cluster after this peer, because no path was traced in time."""
        return self.set_name(now, f"peer {self._cluster.me}")

    def set_name(self, now: Nanos, name: str | None) -> list[PluginEffect]:
        """Name the cluster and search for it, unless it has a name already."""
        if self._cluster.name or name is None:
            return []
        self._cluster.name = name
        return self._search_or_begin(now)

    def _search_or_begin(self, now: Nanos) -> list[PluginEffect]:
        return [JoinMulticast(self._cluster.group), *self._contacts.start_gossip(now), *self.search_again(now)]

    def search_again(self, now: Nanos) -> Iterator[PluginEffect]:
        """Search for one more round, or begin the cluster."""
        cluster = self._cluster
        if cluster.roster is not None:
            return
        seekers = self._other_seekers(cluster.name, cluster.me)
        if self._is_last_round(seekers):
            yield from self._leadership.start_cluster(now)
            yield from cluster.send(seekers, cluster.make_beacon(now))
            return
        message = cluster.make_search()
        if self._rounds % MULTICAST_ROUNDS == 1:  # if many begin at once, all of them receive it
            yield Multicast(cluster.group, message)
        contacts = self._contacts.next_contacts(ASKED)
        yield from cluster.send(dict.fromkeys((*contacts, *sorted(seekers)[:ASKED])), message)
        for peer in self._merge.targets:
            yield from self._merge.ask_head(now, peer)
        yield Timer(now + cluster.period_ns, SEEK)

    def _is_last_round(self, seekers: tuple[PeerId, ...]) -> bool:
        """Count a round. Returns whether to begin the cluster now."""
        self._rounds += 1
        if self._merge.targets:
            limit = HOPEFUL
        elif lower := sum(peer < self._cluster.me for peer in seekers):
            limit = BEHIND + min(lower, USUAL)
        elif self._contacts.awaits_contacts:
            limit = AWAITED
        else:
            limit = USUAL if self._contacts.contacts else ALONE
        if self._rounds % (HOPEFUL // 2) == 0:
            self._merge.targets.clear()  # they may have left: find other members
        return self._rounds > limit

    def _add_seeker(self, cluster: str, peer: PeerId) -> None:
        seekers = self._seekers.setdefault(cluster, {})
        put_newest(seekers, peer, None, MAX_SEEKERS)
        if len(self._seekers) > MAX_NAMES:
            del self._seekers[next(iter(self._seekers))]

    def _other_seekers(self, cluster: str, without: PeerId) -> tuple[PeerId, ...]:
        return tuple(peer for peer in self._seekers.get(cluster, ()) if peer != without)

    def on_search(self, now: Nanos, sender: PeerId, message: ClusterSearch) -> Iterable[PluginEffect]:
        cluster, directory = self._cluster, self._contacts.directory
        if message.cluster == cluster.name:
            return self._on_own_search(now, sender, message)
        self._add_seeker(message.cluster, sender)
        self._contacts.add(sender)
        answer = SearchAnswer(
            cluster.name,
            message.cluster,
            directory.select_entries((cluster.name, message.cluster)) or cluster.entries(),
            self._other_seekers(message.cluster, sender),
            directory.last_term(message.cluster),
        )
        return cluster.send((sender,), answer)

    def _on_own_search(self, now: Nanos, sender: PeerId, message: ClusterSearch) -> Iterator[PluginEffect]:
        cluster = self._cluster
        if reason := cluster.refusal_code(message.cluster, message.agreement):
            yield Refuse(sender, reason)
            return
        if cluster.roster is None:
            self._add_seeker(cluster.name, sender)
            return
        if cluster.members.get(sender) == message.incarnation:
            return  # it has joined, and greets a contact
        yield from self._leadership.on_restart(now, sender, message.incarnation)
        yield from cluster.send((sender,), cluster.make_beacon(now))

    def on_answer(self, now: Nanos, sender: PeerId, message: SearchAnswer) -> Iterator[PluginEffect]:
        cluster = self._cluster
        if message.asked != cluster.name:
            yield Refuse(sender, "answer-other-cluster")
            return
        yield from self._exceed_former_term(now, message)
        for entry in message.entries:
            if entry.name == cluster.name:
                yield from self._on_own_entry(now, entry, sender)
            else:
                yield from self._contacts.on_coordinators(now, entry, sender)
        if cluster.roster is None:
            for peer in message.seekers:
                if peer != cluster.me and peer not in self._other_seekers(cluster.name, cluster.me):
                    self._add_seeker(cluster.name, peer)
                    yield from cluster.send((peer,), cluster.make_search())

    def _exceed_former_term(self, now: Nanos, message: SearchAnswer) -> Iterable[PluginEffect]:
        """Take a higher term if the sender knew this cluster in the same or a higher term before its entry expired."""
        cluster = self._cluster
        cluster.note_term(message.term)
        if cluster.term > message.term:
            return []
        if cluster.is_head:
            return self._leadership.write_roster(now)
        return cluster.send((cluster.head,), message) if cluster.is_holder else []

    def _on_own_entry(self, now: Nanos, entry: ClusterEntry, sender: PeerId) -> Iterator[PluginEffect]:
        cluster = self._cluster
        if cluster.roster is not None:
            yield from self._merge.compare_entry(now, entry, sender)
            return
        if reason := cluster.refusal_code(entry.name, entry.agreement):
            yield Refuse(sender, reason)
            return
        for peer in dict.fromkeys((entry.head, *slot_holders(entry.slots))):
            yield from self._merge.ask_admission(now, peer)
