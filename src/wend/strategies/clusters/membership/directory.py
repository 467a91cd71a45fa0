"""The directory: which clusters there are, and who speaks for each. Coordinators and backups have one.

Each of them compares its directory with one of a random cluster, once per period: it sends a digest, gets what it lacks
and sends what the other lacks. So news reaches all in a few periods, and the cost depends on the number of clusters,
not on their members. When slots change, active coordinators tell those of the same tree at once.

The head of a cluster raises the stamp of its entry once per period. If the stamp of an entry no longer grows, the
cluster is gone, and the entry expires. What expired comes back only with a higher stamp or term.
"""

from collections.abc import Iterable

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.strategies.clusters.membership.messages import MOST_CLUSTERS, ClusterEntry, DirectoryDigest, DirectoryEntries
from wend.strategies.clusters.membership.slots import Slots, holders_of

EXPIRY = 24
"""Periods after which an entry expires whose stamp did not grow."""
MOST_BURIED = 1000
Version = tuple[int, int, int]


class Directory:
    def __init__(self, period: Nanos) -> None:
        self._expiry_ns = EXPIRY * period
        self._entries: dict[str, ClusterEntry] = {}
        self._fresh: dict[str, Nanos] = {}
        """When each entry was last renewed."""
        self._buried: dict[str, Version] = {}
        """The versions of entries that have expired."""
        self.slots: dict[str, Slots] = {}
        """By name of the cluster, sorted."""
        self._holders: frozenset[PeerId] = frozenset()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, peer: PeerId) -> bool:
        """Whether a peer is a coordinator or backup of some cluster."""
        return peer in self._holders

    def get(self, name: str) -> ClusterEntry | None:
        return self._entries.get(name)

    def last_term(self, name: str) -> int:
        """The term of a cluster whose entry has expired; 0 where none has."""
        return 0 if name in self._entries else self._buried.get(name, (0, 0, 0))[0]

    def has_outlived(self, entry: ClusterEntry) -> bool:
        """Whether a roster that wins over the entry's has expired here: a new head does not know of that one."""
        buried = self._buried.get(entry.name)
        return buried is not None and entry.name not in self._entries and buried[:2] > entry.version[:2]

    def learn(self, now: Nanos, entry: ClusterEntry) -> bool:
        """Take over an entry that is newer than the known one; whether the slots are others."""
        known = self._entries.get(entry.name)
        least = known.version if known is not None else self._buried.get(entry.name)
        if least is not None and entry.version <= least:
            return False
        if known is None and len(self._entries) >= MOST_CLUSTERS:
            return False
        self._entries[entry.name] = entry
        self._fresh[entry.name] = now
        self._buried.pop(entry.name, None)
        if known is not None and known.slots == entry.slots:
            return False
        self._show()
        return True

    def expire(self, now: Nanos, mine: str) -> list[ClusterEntry]:
        """Drop the entries of clusters that nobody has heard of for long."""
        old = [name for name, fresh in self._fresh.items() if now - fresh > self._expiry_ns and name != mine]
        gone = [self._entries.pop(name) for name in old]
        for entry in gone:
            del self._fresh[entry.name]
            self._buried[entry.name] = entry.version
        while len(self._buried) > MOST_BURIED:
            del self._buried[next(iter(self._buried))]
        if gone:
            self._show()
        return gone

    def _show(self) -> None:
        self.slots = {name: self._entries[name].slots for name in sorted(self._entries)}
        self._holders = frozenset(peer for slots in self.slots.values() for peer in holders_of(slots))

    # ---------------------------------------------------------------- gossip

    def digest(self, number: int) -> DirectoryDigest:
        return DirectoryDigest(number, tuple((name, *entry.version) for name, entry in self._entries.items()))

    def answer(self, digest: DirectoryDigest) -> DirectoryEntries:
        """The entries that the sender of a digest lacks, and the names of those that this directory lacks."""
        theirs: dict[str, Version] = {name: (term, head, stamp) for name, term, head, stamp in digest.known}
        entries = [entry for name, entry in self._entries.items() if entry.version > theirs.get(name, (0, 0, 0))]
        wanted = [name for name, version in theirs.items() if self._lacks(name, version)]
        return DirectoryEntries(tuple(entries), tuple(wanted), digest.number)

    def _lacks(self, name: str, version: Version) -> bool:
        known = self._entries.get(name)
        least = known.version if known is not None else self._buried.get(name)
        return least is None or version > least

    def entries(self, names: Iterable[str]) -> tuple[ClusterEntry, ...]:
        return tuple(self._entries[name] for name in dict.fromkeys(names) if name in self._entries)
