"""How a peer finds its cluster: first its name, then a member that admits it (`search.py` has the rounds)."""

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.plugins import FindPath, JoinMulticast, Multicast, PluginEffect, Refuse, Timer
from wend.strategies.clusters.membership.cluster import Cluster
from wend.strategies.clusters.membership.contacts import Contacts
from wend.strategies.clusters.membership.leadership import Leadership
from wend.strategies.clusters.membership.merge import Merge
from wend.strategies.clusters.membership.messages import ClusterEntry, ClusterFound, ClusterSearch
from wend.strategies.clusters.membership.search import ASKED
from wend.strategies.clusters.membership.slots import holders_of

MOST_PATHS = 3
"""Contacts to which a peer without a cluster name traces the path."""
SEEK, NAME = "seek", "name"


def domain_of_path(path: Path | None) -> str | None:
    """The routing domain of the peer at the start of a traced path: its first router. None if that did not answer."""
    return f"router {path[0]}" if path and path[0] is not None else None


class ClusterDiscovery:
    def __init__(self, cluster: Cluster, contacts: Contacts, leadership: Leadership, merge: Merge) -> None:
        self._cluster = cluster
        self._contacts = contacts
        self._search = contacts.search
        self._leadership = leadership
        self._merge = merge

    # ---------------------------------------------------------------- the name

    def start(self, now: Nanos) -> list[PluginEffect]:
        """Search for the cluster if its name is known; else trace paths to find the peer's routing domain."""
        if self._cluster.name:
            return self._enter(now)
        paths = [FindPath(peer) for peer in self._search.next_contacts(MOST_PATHS)]
        return [*paths, Timer(now + 2 * self._cluster.detection_ns, NAME)]

    def name_after_path(self, now: Nanos, path: Path | None) -> list[PluginEffect]:
        return self._name(now, domain_of_path(path))

    def name_after_peer(self, now: Nanos) -> list[PluginEffect]:
        """No path came in time: the peer is a cluster of its own."""
        return self._name(now, f"peer {self._cluster.me}")

    def _name(self, now: Nanos, name: str | None) -> list[PluginEffect]:
        if self._cluster.name or name is None:
            return []
        self._cluster.name = name
        return self._enter(now)

    def _enter(self, now: Nanos) -> list[PluginEffect]:
        return [JoinMulticast(self._cluster.group), *self._contacts.start_gossip(now), *self.seek(now)]

    # ---------------------------------------------------------------- the search

    def seek(self, now: Nanos) -> list[PluginEffect]:
        """Search for one more round, or begin the cluster."""
        cluster, search = self._cluster, self._search
        if cluster.roster is not None:
            return []
        begins = search.next_round(cluster.name)
        seekers = search.seekers(cluster.name, cluster.me)
        if begins:
            return [*self._leadership.begin(now), *cluster.send(seekers, cluster.beacon(now))]
        message = cluster.search()
        out: list[PluginEffect] = [Multicast(cluster.group, message)] if search.multicasts else []
        peers = dict.fromkeys((*search.next_contacts(ASKED), *sorted(seekers)[:ASKED]))
        out += cluster.send(peers, message)
        for peer in search.targets:
            out += self._merge.ask_head(now, peer)
        return [*out, Timer(now + cluster.period_ns, SEEK)]

    def hear_search(self, now: Nanos, sender: PeerId, message: ClusterSearch) -> list[PluginEffect]:
        cluster, search = self._cluster, self._search
        if message.cluster == cluster.name:
            return self._hear_own_search(now, sender, message)
        directory = self._contacts.directory
        search.add_seeker(message.cluster, sender)
        search.add_contact(sender)
        answer = ClusterFound(
            cluster.name,
            message.cluster,
            directory.entries((cluster.name, message.cluster)) or cluster.entries(),
            search.seekers(message.cluster, sender),
            directory.last_term(message.cluster),
        )
        return cluster.send((sender,), answer)

    def _hear_own_search(self, now: Nanos, sender: PeerId, message: ClusterSearch) -> list[PluginEffect]:
        cluster = self._cluster
        if reason := cluster.mismatch(message.cluster, message.agreement):
            return [Refuse(sender, reason)]
        if cluster.roster is None:
            self._search.add_seeker(cluster.name, sender)
            return []
        if cluster.members.get(sender) == message.incarnation:
            return []  # it has joined, and greets a contact
        out = self._leadership.restart(now, sender, message.incarnation)
        return [*out, *cluster.send((sender,), cluster.beacon(now))]

    def hear_found(self, now: Nanos, sender: PeerId, message: ClusterFound) -> list[PluginEffect]:
        cluster = self._cluster
        if message.asked != cluster.name:
            return [Refuse(sender, "an answer about another cluster")]
        out = self._exceed_term(now, message)
        for entry in message.entries:
            if entry.name == cluster.name:
                out += self._hear_own_entry(now, entry, sender)
            else:
                out += self._contacts.meet(now, entry, sender)
        if cluster.roster is None:
            for peer in message.seekers:
                if peer != cluster.me and peer not in self._search.seekers(cluster.name, cluster.me):
                    self._search.add_seeker(cluster.name, peer)
                    out += cluster.send((peer,), cluster.search())
        return out

    def _exceed_term(self, now: Nanos, message: ClusterFound) -> list[PluginEffect]:
        """Take a higher term if somebody knew this cluster in one that is not lower, before its entry expired."""
        cluster = self._cluster
        cluster.hear_term(message.term)
        if cluster.term > message.term:
            return []
        if cluster.is_head:
            return self._leadership.write(now)
        return cluster.send((cluster.head,), message) if cluster.is_holder else []

    def _hear_own_entry(self, now: Nanos, entry: ClusterEntry, sender: PeerId) -> list[PluginEffect]:
        cluster = self._cluster
        if cluster.roster is not None:
            return self._merge.compare(now, entry, sender)
        if reason := cluster.mismatch(entry.name, entry.agreement):
            return [Refuse(sender, reason)]
        out: list[PluginEffect] = []
        for peer in dict.fromkeys((entry.head, *holders_of(entry.slots))):
            out += self._merge.ask_admission(now, peer)
        return out
