"""The entries of one region, as its owner or a replica knows them."""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

from wend.matching.filters import parse
from wend.matching.index import Index
from wend.matching.order_cells import Interval
from wend.model.errors import FilterError
from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Refuse
from wend.strategies.rendezvous.regions import filter_region, meets
from wend.strategies.ring.key_based import Entry, EntryId


@lru_cache(1 << 14)
def _cells_at_home(text: str) -> list[Interval]:
    """The cells of an entry; cached, because in a simulation the owner and the replicas ask in turn."""
    return filter_region(parse(text))[1]


@lru_cache(1 << 16)
def _entry_digest(id_: EntryId, text: str) -> int:
    hashed = blake2b(f"{id_.peer} {id_.number} {id_.part} {text}".encode(), digest_size=8).digest()
    return int.from_bytes(hashed, "big") >> 2


def digest(entries: Iterable[Entry]) -> int:
    """A number that depends on the entries, but not on their order."""
    total = 0
    for entry in entries:
        total ^= _entry_digest(entry.id, entry.filter)
    return total


class EntryTable:
    """Entries with their expiry by peer, and an index to match events with them."""

    __slots__ = (
        "_cells",
        "_digests",
        "_index",
        "away",
        "complete_ns",
        "entries",
        "expires",
        "is_split",
        "transit_until_ns",
    )

    def __init__(self) -> None:
        self.entries: dict[EntryId, Entry] = {}
        self._cells: dict[EntryId, list[Interval]] = {}
        self.expires: dict[PeerId, Nanos] = {}
        """When the entries of a peer expire."""
        self.away: dict[PeerId, Nanos] = {}
        """The stopped peers, each with the time until which its entries live without renewal."""
        self._digests: dict[PeerId, int] = {}
        self._index: Index[EntryId] | None = None
        self.is_split = False
        """Whether the two halves of the region are active instead."""
        self.complete_ns: Nanos = 0
        """When all entries of the region will have arrived; 0 if the region was never split or merged."""
        self.transit_until_ns: Nanos = 0
        """Until when entries may be in transit from the whole region or its halves."""

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, entry: Entry, expires_ns: Nanos) -> bool:
        """Add an entry, and return whether it is new. Raises FilterError."""
        peer = entry.id.peer
        self.expires[peer] = expires_ns
        before = self.entries.get(entry.id)
        if before == entry:
            return False
        filter_ = parse(entry.filter)
        if before is not None:
            self.remove(entry.id)
        self.entries[entry.id] = entry
        self._cells[entry.id] = _cells_at_home(entry.filter)
        self._digests[peer] = self._digests.get(peer, 0) ^ _entry_digest(entry.id, entry.filter)
        if self._index is not None:
            self._index.add(entry.id, filter_)
        return True

    def add_all(
        self, sender: PeerId, entries: Iterable[Entry], expires_ns: Nanos
    ) -> tuple[tuple[Entry, ...], list[Refuse]]:
        """Add the entries of a message. Returns the new ones, and a refusal of each that is invalid."""
        added: list[Entry] = []
        refusals: list[Refuse] = []
        for entry in entries:
            try:
                if self.add(entry, expires_ns):
                    added.append(entry)
            except FilterError:
                refusals.append(Refuse(sender, "filter-syntax"))
        return tuple(added), refusals

    def remove(self, id_: EntryId) -> bool:
        """Remove an entry, and return whether it was there."""
        entry = self.entries.pop(id_, None)
        if entry is None:
            return False
        del self._cells[id_]
        if self._index is not None:
            self._index.discard(id_)
        self._digests[id_.peer] ^= _entry_digest(id_, entry.filter)
        return True

    def clear(self) -> tuple[Entry, ...]:
        """Remove all entries, and return them."""
        entries = tuple(self.entries.values())
        for entry in entries:
            self.remove(entry.id)
        return entries

    def renew(self, expires_ns: Nanos) -> None:
        """Let the entries of all peers live until this time."""
        for peer in self.expires:
            self.expires[peer] = expires_ns

    def make_digest(self, peer: PeerId) -> int:
        return self._digests.get(peer, 0)

    @property
    def digest(self) -> int:
        total = 0
        for of_peer in self._digests.values():
            total ^= of_peer
        return total

    def expire(self, now: Nanos) -> tuple[EntryId, ...]:
        """Remove the entries of peers that did not renew them, and return their ids."""
        silent = {peer for peer, expires in self.expires.items() if max(expires, self.away.get(peer, 0)) <= now}
        expired = tuple([id_ for id_ in self.entries if id_.peer in silent]) if silent else ()
        for id_ in expired:
            self.remove(id_)
        for peer in [peer for peer, until in self.away.items() if until <= now]:
            del self.away[peer]
        for peer in silent:
            del self.expires[peer]
            self._digests.pop(peer, None)
        return expired

    def absences(self, now: Nanos) -> tuple[tuple[PeerId, Nanos], ...]:
        """The peers that have stopped, and how long their entries still live."""
        return tuple([(peer, until - now) for peer, until in self.away.items() if until > now])

    def find_subscribers(self, event: Event) -> list[PeerId]:
        """The peers with an entry that matches the event, sorted."""
        if self._index is None:  # replicas never ask
            self._index = Index()
            for entry in self.entries.values():
                self._index.add(entry.id, parse(entry.filter))
        return sorted({id_.peer for id_ in self._index.match(event.attributes)})

    @property
    def is_divisible(self) -> bool:
        """Whether a tenth of the entries does not reach across all cells, so that some split can divide them."""
        low = min((cells[0][0] for cells in self._cells.values() if cells), default=0)
        high = max((cells[-1][1] for cells in self._cells.values() if cells), default=0)
        across = sum(cells[0][0] == low and cells[-1][1] == high for cells in self._cells.values() if cells)
        return across * 10 <= len(self) * 9

    def in_region(self, code: str) -> list[Entry]:
        """The entries that meet a region."""
        return [entry for id_, entry in self.entries.items() if meets(code, self._cells[id_])]
