"""The peers that this one knows in other clusters, and the directory that it shares with them (`directory.py`)."""

from collections.abc import Container, Iterable, Iterator

from wend.model.events import PeerId
from wend.model.random_stream import RandomStream, peer_stream
from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect, Timer
from wend.strategies.clusters.membership.cluster import ClusterState
from wend.strategies.clusters.membership.detector import ClusterDetector
from wend.strategies.clusters.membership.directory import ClusterDirectory
from wend.strategies.clusters.membership.messages import (
    ClusterEntry,
    DirectoryDigest,
    DirectoryEntries,
    MemberProbe,
    SearchAnswer,
    Slots,
    slot_holders,
)

MAX_CONTACTS = 64
ASKED = 3
"""Contacts that a peer asks in one round."""
MAX_PUSHED = 64
"""Clusters to which a coordinator sends new slots at once; gossip informs the others."""
MAX_LONELY = 32
"""Periods in which a coordinator that knows no other cluster asks a contact; then it does so less often."""
MEASURE_PERIODS = 16
"""Heartbeat periods between two measurements of a round trip."""
GOSSIP = "gossip"


class ClusterContacts:
    """Greets contacts, and shares the directory with coordinators and backups of all clusters."""

    def __init__(self, cluster: ClusterState, detector: ClusterDetector, period_ns: Nanos, seed: int) -> None:
        self._cluster = cluster
        self._detector = detector
        self._period_ns = period_ns
        self._seed = seed
        self.contacts: list[PeerId] = []
        """Peers of any cluster."""
        self.awaits_contacts = False
        """Whether the driver still looks for the first contact."""
        self._place = 0
        self.directory = ClusterDirectory(period_ns)
        self._draws = 0
        self._beats = 0
        self._lonely = 0
        """Heartbeat periods in which this coordinator or backup knew no other cluster."""

    def start(self, contacts: Iterable[PeerId], contacts_follow: bool) -> None:
        for peer in contacts:
            self.add(peer)
        self.awaits_contacts = contacts_follow and not self.contacts

    def add(self, peer: PeerId, first: bool = False) -> None:
        """Add a contact. `first`: ask it next."""
        if peer == self._cluster.me:
            self.awaits_contacts = False
        elif first:
            self.contacts = [peer, *(one for one in self.contacts if one != peer)][:MAX_CONTACTS]
            self._place = 0
        elif peer not in self.contacts and len(self.contacts) < MAX_CONTACTS:
            self.contacts.append(peer)

    def on_contact_found(self, peer: PeerId) -> list[PluginEffect]:
        """Greet a contact that the driver names. It may be this peer itself."""
        self.awaits_contacts = False
        self.add(peer, first=True)
        return self._greet((peer,))

    def next_contacts(self, count: int, without: Container[PeerId] = ()) -> list[PeerId]:
        """The next contacts in turn."""
        chosen: list[PeerId] = []
        for _ in self.contacts:
            if len(chosen) == count:
                break
            contact = self.contacts[self._place % len(self.contacts)]
            self._place += 1
            if contact not in without:
                chosen.append(contact)
        return chosen

    def _greet(self, peers: Iterable[PeerId]) -> list[PluginEffect]:
        """Send contacts a search for this cluster."""
        cluster = self._cluster
        strangers = (peer for peer in peers if peer not in cluster.members)
        return cluster.send(strangers, cluster.make_search()) if cluster.name else []

    def _greet_next(self, count: int) -> list[PluginEffect]:
        return self._greet(self.next_contacts(count, self._cluster.members))

    def coordinators(self) -> list[PeerId]:
        """The active coordinators of other clusters."""
        mine = self._cluster.name
        return [slot.active for name, slots in self.directory.slots.items() if name != mine for slot in slots]

    def on_period(self, now: Nanos) -> Iterator[PluginEffect]:
        """Once per heartbeat period: look for other clusters if none is known, and measure a round trip."""
        self._beats += 1
        if len(self.directory) == 1 and self._lonely < MAX_LONELY:
            self._lonely += 1
            yield from self._greet_next(1)
        yield from self._measure_round_trip(now)

    def _measure_round_trip(self, now: Nanos) -> list[PluginEffect]:
        """Probe a coordinator or backup that is not measured yet; if there is none, now and then any peer."""
        cluster = self._cluster
        coordinators = [peer for peer in (*cluster.holders, *self.coordinators()) if peer != cluster.me]
        candidates = [peer for peer in coordinators if not self._detector.has_measured(peer)]
        if not candidates and self._beats % MEASURE_PERIODS == 0:
            candidates = [*coordinators, *(peer for peer in cluster.members if peer != cluster.me)]
        if not candidates:
            return []
        peer = self._random_stream("measure").choice(candidates)
        return cluster.send((peer,), MemberProbe(self._detector.next_number(now, peer)))

    def _random_stream(self, what: str) -> RandomStream:
        self._draws += 1
        return peer_stream(self._seed, "clusters", what, self._cluster.me, self._cluster.incarnation, self._draws)

    def on_roster(self, now: Nanos, slots: Slots) -> Iterator[PluginEffect]:
        """Act on a new roster of this cluster. The earlier one had these slots."""
        cluster = self._cluster
        if not cluster.is_holder:
            self.directory = ClusterDirectory(self._period_ns)
            return
        is_new = not len(self.directory)
        self.directory.add(now, cluster.entries()[0])
        if is_new:
            self._lonely = 0
            yield from self._send_digests(now, (peer for peer in cluster.holders if peer != cluster.me))
            yield from self._greet_next(ASKED)
        if slots != cluster.slots:
            yield from self._send_entry([name for name in self.directory.slots if name != cluster.name])

    def _send_entry(self, names: list[str]) -> Iterator[PluginEffect]:
        """Send this cluster's entry to coordinators and backups of other clusters, on the trees that this peer
        coordinates."""
        cluster = self._cluster
        if len(names) > MAX_PUSHED:
            names = self._random_stream("push").sample(names, MAX_PUSHED)
        entries = DirectoryEntries(cluster.entries())
        for name in names:
            slots = self.directory.slots[name]
            peers = dict.fromkeys(peer for tree in cluster.my_trees for peer in slots[tree].holders)
            yield from cluster.send(peers, entries)

    def start_gossip(self, now: Nanos) -> list[PluginEffect]:
        return [Timer(now + self._period_ns, GOSSIP)]

    def gossip(self, now: Nanos) -> list[PluginEffect]:
        """Compare the directory with that of a random coordinator or backup."""
        cluster, out = self._cluster, self.start_gossip(now)
        if cluster.is_head:
            cluster.stamp += 1
        if not cluster.is_holder:
            return out
        out += self._greet_next(1)
        self.directory.add(now, cluster.entries()[0])
        for entry in self.directory.expire(now, cluster.name):
            cluster.has_news = True
            for peer in slot_holders(entry.slots):
                self.add(peer)
        draw = self._random_stream("gossip")
        slots = self.directory.slots[draw.choice(list(self.directory.slots))]
        peers = [peer for peer in slot_holders(slots) if peer != cluster.me]
        return [*out, *self._send_digests(now, (draw.choice(peers),))] if peers else out

    def _send_digests(self, now: Nanos, peers: Iterable[PeerId]) -> Iterator[PluginEffect]:
        for peer in peers:
            yield from self._cluster.send((peer,), self.directory.make_digest(self._detector.next_number(now, peer)))

    def on_digest(self, now: Nanos, sender: PeerId, digest: DirectoryDigest) -> list[PluginEffect]:
        cluster = self._cluster
        if cluster.roster is None:
            return []
        own = DirectoryEntries(cluster.entries(), (), digest.number)
        return cluster.send((sender,), self.directory.answer(digest) if cluster.is_holder else own)

    def on_new_entries(self, entries: list[ClusterEntry], names: list[str], sender: PeerId) -> Iterator[PluginEffect]:
        """Act on entries that changed the directory. Send this cluster's entry to the new clusters, which `names`
        lists.

        If another cluster sent the entries, an active coordinator passes them on inside its own cluster: the sender's
        list of coordinators may be old."""
        if not entries:
            return
        cluster = self._cluster
        cluster.has_news = True
        yield from self._send_entry(names)
        if sender not in cluster.members and cluster.my_trees:
            yield from cluster.send(cluster.holders, DirectoryEntries(tuple(entries)))

    def warn_successor(self, entries: tuple[ClusterEntry, ...], sender: PeerId) -> Iterator[PluginEffect]:
        """If the entry of the sender's cluster has expired, send it the last term, which a new head may not know."""
        cluster = self._cluster
        for entry in entries:
            if self.directory.has_expired_later(entry) and sender in slot_holders(entry.slots):
                last = self.directory.last_term(entry.name)
                answer = SearchAnswer(cluster.name, entry.name, cluster.entries(), (), last)
                yield from cluster.send((sender,), answer)

    def on_coordinators(self, now: Nanos, entry: ClusterEntry, sender: PeerId) -> Iterator[PluginEffect]:
        """Act on a contact's answer about the coordinators of another cluster."""
        cluster = self._cluster
        holders = slot_holders(entry.slots)
        if cluster.roster is None:
            coordinator = entry.slots[0].active
            if sender in holders or coordinator in self.contacts:
                return
            self.add(coordinator, first=True)
            yield from cluster.send((coordinator,), cluster.make_search())
            return
        if not cluster.is_holder:
            yield from cluster.send((cluster.head,), DirectoryEntries((entry,)))
            return
        if self.directory.get(entry.name) is not None:
            return
        is_learned = self.directory.add(now, entry)
        yield from self.on_new_entries([entry], [entry.name], sender) if is_learned else []
        yield from self._send_digests(now, holders)
