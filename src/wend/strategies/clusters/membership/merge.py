"""Merging of clusters: a peer replaces its roster, or none, by the roster that wins.

After a partition a head sends its beacon to lost members, one after the other. A peer that learns of a roster that wins
over its own asks the head of that roster to add it. A head whose roster loses informs its members.
"""

from collections.abc import Iterable, Iterator

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect, Refuse
from wend.strategies.clusters.membership import election
from wend.strategies.clusters.membership.cluster import ClusterState
from wend.strategies.clusters.membership.leadership import Leadership
from wend.strategies.clusters.membership.messages import ClusterEntry, DirectoryEntries, RosterRequest
from wend.strategies.ring.bounded import put_newest

MAX_ASKED = 256
MAX_TARGETS = 16


class Merge:
    """Requests rosters that win, and informs peers whose rosters lose."""

    def __init__(self, cluster: ClusterState, leadership: Leadership) -> None:
        self._cluster = cluster
        self._leadership = leadership
        self.targets: dict[PeerId, None] = {}
        """Members that can admit this peer while it has no roster."""
        self._winner: tuple[int, PeerId, Nanos] | None = None
        """The term and head of a roster that wins over this peer's own, and until when this peer asks that head."""
        self._asked: dict[PeerId, None] = {}
        """Peers that this one asked for their roster."""
        self._refuted_ns: dict[PeerId, Nanos] = {}
        """When this peer last informed each peer that its roster loses."""

    def has_asked(self, peer: PeerId) -> bool:
        """Whether this peer asked another one for its roster."""
        return peer in self._asked

    def ask_admission(self, now: Nanos, member: PeerId) -> list[PluginEffect]:
        """Ask a member of the cluster to admit this peer, which has no roster yet."""
        if member in self.targets:
            return []
        if member != self._cluster.me and len(self.targets) < MAX_TARGETS:
            self.targets[member] = None
        return self.ask_head(now, member)

    def ask_head(self, now: Nanos, head: PeerId) -> list[PluginEffect]:
        put_newest(self._asked, head, None, MAX_ASKED)
        return self._cluster.send((head,), self._cluster.make_beat(now))

    def ask_roster(self, peer: PeerId) -> list[PluginEffect]:
        put_newest(self._asked, peer, None, MAX_ASKED)
        return self._cluster.send((peer,), RosterRequest(self._cluster.name))

    def resolve(self, now: Nanos, term: int, head: PeerId, source: PeerId) -> Iterable[PluginEffect]:
        """Compare this peer's roster with another one that `source` has."""
        if election.wins(term, head, self._cluster.term, self._cluster.head):
            return self.request_winner(now, term, head, source)
        return self._send_winner(now, source)

    def request_winner(self, now: Nanos, term: int, head: PeerId, source: PeerId) -> Iterator[PluginEffect]:
        """Request a roster that wins over this peer's own from its head and from the peer that reported it."""
        cluster = self._cluster
        cluster.note_term(term)
        if head == cluster.me:  # written by an earlier incarnation or forged: a higher term settles it
            yield from self._leadership.write_roster(now) if cluster.is_head else []
            return
        if self._winner is not None and not election.wins(term, head, *self._winner[:2]):
            return
        self._winner = (term, head, now + 2 * cluster.detection_ns)
        yield from self.ask_head(now, head)
        if source != head:
            yield from self.ask_roster(source)
        if cluster.is_head:
            yield from cluster.send(cluster.members, cluster.make_roster_hint(term, head))

    def ask_winner(self, now: Nanos) -> Iterable[PluginEffect]:
        """Once per heartbeat period: ask the head of the roster that wins again."""
        if self._winner is None:
            return []
        term, head, until_ns = self._winner
        is_ahead = election.wins(term, head, self._cluster.term, self._cluster.head)
        if is_ahead and now < until_ns:
            return self.ask_head(now, head)
        self._winner = None
        if is_ahead and self._cluster.is_head:
            return self._leadership.write_roster(now)  # no peer has confirmed that roster: this one wins again
        return []

    def _send_winner(self, now: Nanos, peer: PeerId) -> list[PluginEffect]:
        """Inform a peer that its roster loses, once per period."""
        last_ns = self._refuted_ns.get(peer)
        is_due = last_ns is None or now - last_ns >= self._cluster.period_ns
        put_newest(self._refuted_ns, peer, now if is_due or last_ns is None else last_ns, MAX_ASKED)
        return self._cluster.send((peer,), self._cluster.make_beacon(now)) if is_due else []

    def compare_entry(self, now: Nanos, entry: ClusterEntry, sender: PeerId) -> Iterable[PluginEffect]:
        """Act on this cluster's entry in another directory. After a partition it may be of another head, or old."""
        cluster, term = self._cluster, entry.slots[0].term
        if reason := cluster.refusal_code(entry.name, entry.agreement):
            return [Refuse(sender, reason)]
        if (term, entry.head) == (cluster.term, cluster.head):
            return []
        if election.wins(term, entry.head, cluster.term, cluster.head):
            out = self.request_winner(now, term, entry.head, entry.head)
            return out if cluster.is_head else [*out, *cluster.send((cluster.head,), DirectoryEntries((entry,)))]
        return [] if entry.head in cluster.members else self._send_winner(now, entry.head)
