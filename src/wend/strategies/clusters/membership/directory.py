"""The directory: all known clusters and their coordinators. Coordinators and backups have one.

Each of them compares its directory with that of a random cluster, once per period: it sends a digest, gets the entries
that it lacks and sends those that the other lacks. So changes reach all in a few periods, and the cost depends on the
number of clusters, not on their members. When slots change, active coordinators inform the coordinators of the same
tree in other clusters at once.

The head of a cluster raises the stamp of its entry once per period. If the stamp of an entry no longer grows, the
cluster is gone, and the entry expires. An expired entry returns only with a higher stamp or term.

From the directory both ends of a link compute it, for routings that forward over links (`clusters-linked`). The
coordinators of a cluster have links to each other. The coordinator of tree t has links to those of tree t in other
clusters: in all of them if there are few, else in those at distances 1, 2, 4, ... in the sorted ring of all clusters.
Other members have no links.
"""

from collections.abc import Iterable, Mapping, Sequence

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.strategies.clusters.membership.messages import (
    MAX_CLUSTERS,
    ClusterEntry,
    DirectoryDigest,
    DirectoryEntries,
    Slots,
    slot_holders,
)
from wend.strategies.ring.bounded import put_newest

EXPIRY = 24
"""Periods after which an entry expires if its stamp did not grow."""
MAX_EXPIRED = 1000
Version = tuple[int, int, int]


class ClusterDirectory:
    def __init__(self, period: Nanos) -> None:
        self._expiry_ns = EXPIRY * period
        self._entries: dict[str, ClusterEntry] = {}
        self._renewed_ns: dict[str, Nanos] = {}
        self._expired: dict[str, Version] = {}
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
        """The term of a cluster whose entry has expired; 0 if none has."""
        return 0 if name in self._entries else self._expired.get(name, (0, 0, 0))[0]

    def has_expired_later(self, entry: ClusterEntry) -> bool:
        """Whether an entry of a later roster has expired here: a new head does not know of that roster."""
        expired = self._expired.get(entry.name)
        return expired is not None and entry.name not in self._entries and expired[:2] > entry.version[:2]

    def add(self, now: Nanos, entry: ClusterEntry) -> bool:
        """Store an entry if it is newer than the present one. Returns whether the slots changed."""
        present = self._entries.get(entry.name)
        if not self._lacks(entry.name, entry.version) or (present is None and len(self._entries) >= MAX_CLUSTERS):
            return False
        self._entries[entry.name] = entry
        self._renewed_ns[entry.name] = now
        self._expired.pop(entry.name, None)
        if present is not None and present.slots == entry.slots:
            return False
        self._rebuild_index()
        return True

    def expire(self, now: Nanos, mine: str) -> list[ClusterEntry]:
        """Drop and return the entries of other clusters whose stamps have not grown for too long."""
        limit_ns = now - self._expiry_ns
        names = [name for name, renewed_ns in self._renewed_ns.items() if renewed_ns < limit_ns and name != mine]
        entries = [self._entries.pop(name) for name in names]
        for entry in entries:
            del self._renewed_ns[entry.name]
            put_newest(self._expired, entry.name, entry.version, MAX_EXPIRED)
        if entries:
            self._rebuild_index()
        return entries

    def _rebuild_index(self) -> None:
        self.slots = {name: self._entries[name].slots for name in sorted(self._entries)}
        self._holders = frozenset(peer for slots in self.slots.values() for peer in slot_holders(slots))

    def make_digest(self, number: int) -> DirectoryDigest:
        return DirectoryDigest(number, tuple((name, *entry.version) for name, entry in self._entries.items()))

    def answer(self, digest: DirectoryDigest) -> DirectoryEntries:
        """The entries that the sender of a digest lacks, and the names of those that this directory lacks."""
        theirs: dict[str, Version] = {name: (term, head, stamp) for name, term, head, stamp in digest.known}
        entries = [entry for name, entry in self._entries.items() if entry.version > theirs.get(name, (0, 0, 0))]
        missing = [name for name, version in theirs.items() if self._lacks(name, version)]
        return DirectoryEntries(tuple(entries), tuple(missing), digest.number)

    def _lacks(self, name: str, version: Version) -> bool:
        present = self._entries.get(name)
        newest = present.version if present is not None else self._expired.get(name)
        return newest is None or version > newest

    def select_entries(self, names: Iterable[str]) -> tuple[ClusterEntry, ...]:
        return tuple(self._entries[name] for name in dict.fromkeys(names) if name in self._entries)


MAX_LINKED = 8
"""The number of clusters up to which each has links to every other."""


def coordinator_links(me: PeerId, mine: str, directory: Mapping[str, Slots]) -> tuple[PeerId, ...]:
    """The neighbours of a peer of the cluster `mine`, sorted."""
    own = [slot.active for slot in directory.get(mine, ())]
    if me not in own:
        return ()
    names = list(directory)
    near = names if len(names) <= MAX_LINKED else ring_neighbours(names, mine)
    trees = [tree for tree, active in enumerate(own) if active == me]
    abroad = [directory[name][tree].active for name in near if name != mine for tree in trees]
    return tuple(sorted({*own, *abroad} - {me}))


def ring_neighbours(names: Sequence[str], mine: str) -> list[str]:
    """The names at distances 1, 2, 4, ... from `mine`, in both directions of a ring."""
    at, count = names.index(mine), len(names)
    distances = [1 << power for power in range(count.bit_length()) if 1 << power < count]
    return list(dict.fromkeys(names[(at + side * distance) % count] for distance in distances for side in (1, -1)))
