"""How a peer gets from its roster, or from none, to the roster that wins.

After a partition, heads look for lost members with their beacons, one after the other. A peer that hears of a roster
that wins over its own asks the head of that one to be added; a head that loses tells its members.
"""

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect, Refuse
from wend.strategies.clusters.membership import election
from wend.strategies.clusters.membership.cluster import Cluster
from wend.strategies.clusters.membership.leadership import Leadership
from wend.strategies.clusters.membership.messages import ClusterEntry, DirectoryEntries, RosterRequest
from wend.strategies.clusters.membership.search import Search

MOST_ASKED = 256


class Merge:
    """Asks for rosters that win, and tells others of rosters that lose."""

    def __init__(self, cluster: Cluster, leadership: Leadership, search: Search) -> None:
        self._cluster = cluster
        self._leadership = leadership
        self._search = search
        self._winner: tuple[int, PeerId, Nanos] | None = None
        """The term and head of a roster that wins over this peer's own, and until when this peer asks that head."""
        self._asked: dict[PeerId, None] = {}
        """Peers that this one asked for their roster."""
        self._refuted_ns: dict[PeerId, Nanos] = {}
        """When this peer last told each other one that its roster loses."""

    def expects(self, peer: PeerId) -> bool:
        """Whether this peer asked another one for its roster."""
        return peer in self._asked

    def ask_admission(self, now: Nanos, member: PeerId) -> list[PluginEffect]:
        """Ask a member of the cluster to admit this peer, which has no roster yet."""
        if member in self._search.targets:
            return []
        self._search.aim(member)
        return self.ask_head(now, member)

    def ask_head(self, now: Nanos, head: PeerId) -> list[PluginEffect]:
        self._note_asked(head)
        return self._cluster.send((head,), self._cluster.beat(now))

    def ask_roster(self, peer: PeerId) -> list[PluginEffect]:
        self._note_asked(peer)
        return self._cluster.send((peer,), RosterRequest(self._cluster.name))

    def _note_asked(self, peer: PeerId) -> None:
        self._asked.pop(peer, None)
        self._asked[peer] = None
        if len(self._asked) > MOST_ASKED:
            del self._asked[next(iter(self._asked))]

    def follow(self, now: Nanos, term: int, head: PeerId, source: PeerId) -> list[PluginEffect]:
        """Ask for a roster that wins over this peer's own: its head, and the peer that told of it."""
        cluster = self._cluster
        cluster.hear_term(term)
        if head == cluster.me:  # of an earlier incarnation, or made up: a higher term settles it
            return self._leadership.write(now) if cluster.is_head else []
        if self._winner is not None and not election.wins(term, head, *self._winner[:2]):
            return []
        self._winner = (term, head, now + 2 * cluster.detection_ns)
        out = self.ask_head(now, head)
        if source != head:
            out += self.ask_roster(source)
        if cluster.is_head:
            out += cluster.send(cluster.members, cluster.beacon_of(term, head))
        return out

    def ask_winner(self, now: Nanos) -> list[PluginEffect]:
        """Once per heartbeat period: ask the head of the roster that wins again."""
        if self._winner is None:
            return []
        term, head, until_ns = self._winner
        is_ahead = election.wins(term, head, self._cluster.term, self._cluster.head)
        if is_ahead and now < until_ns:
            return self.ask_head(now, head)
        self._winner = None
        if is_ahead and self._cluster.is_head:
            return self._leadership.write(now)  # nobody answers for that roster: this one wins again
        return []

    def refute(self, now: Nanos, peer: PeerId) -> list[PluginEffect]:
        """Tell a peer that its roster loses, once per period."""
        out: list[PluginEffect] = []
        last = self._refuted_ns.pop(peer, None)
        if last is None or now - last >= self._cluster.period_ns:
            last = now
            out = self._cluster.send((peer,), self._cluster.beacon(now))
        self._refuted_ns[peer] = last
        if len(self._refuted_ns) > MOST_ASKED:
            del self._refuted_ns[next(iter(self._refuted_ns))]
        return out

    def compare(self, now: Nanos, entry: ClusterEntry, sender: PeerId) -> list[PluginEffect]:
        """Act on this cluster's entry in another directory: of another head, after a partition, or an old one."""
        cluster, term = self._cluster, entry.slots[0].term
        if reason := cluster.mismatch(entry.name, entry.agreement):
            return [Refuse(sender, reason)]
        if (term, entry.head) == (cluster.term, cluster.head):
            return []
        if election.wins(term, entry.head, cluster.term, cluster.head):
            out = self.follow(now, term, entry.head, entry.head)
            return out if cluster.is_head else [*out, *cluster.send((cluster.head,), DirectoryEntries((entry,)))]
        return [] if entry.head in cluster.members else self.refute(now, entry.head)
