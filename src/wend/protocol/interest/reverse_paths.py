"""Reverse paths: subscriptions leave a trail on their way to a place, and events follow it back.

At each hop a table remembers, for every entry, the peer that it came from. A hop passes on only entries that no other
one covers: events that the covered one wants come for the covering one, and the table sends them both ways.
"""

from wend.matching.covering import CoveringIndex
from wend.matching.filters import Filter, parse
from wend.matching.index import Index
from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.interest.key_based import Entry, EntryId


class ReversePaths:
    """The entries on their way through this peer to one place."""

    __slots__ = ("_expires", "_filters", "_index", "_onward", "entries", "next_hop", "previous")

    def __init__(self) -> None:
        self.entries: dict[EntryId, Entry] = {}
        self.previous: dict[EntryId, PeerId] = {}
        """The peer that each entry came from; this peer's own id for its own."""
        self._expires: dict[EntryId, Nanos] = {}
        self._filters: dict[EntryId, Filter] = {}
        self._index: Index[EntryId] = Index()
        self._onward: CoveringIndex[EntryId] = CoveringIndex()
        self.next_hop: PeerId | None = None
        """The peer that was told the uncovered entries; None where this peer owns the place, or told nobody."""

    def __len__(self) -> int:
        return len(self.entries)

    def knows(self, id_: EntryId, previous: PeerId) -> bool:
        return self.previous.get(id_) == previous

    def add(self, entry: Entry, wanted: Filter | None, previous: PeerId, expires: Nanos) -> list[EntryId]:
        """Add or renew an entry. Returns the entries to pass on. Raises FilterError.

        What the subscriber's own peer said is not changed by others, nor is anything by the next hop: while hops do not
        agree on the owner, an entry may come back."""
        id_ = entry.id
        known = self.previous.get(id_)
        if known is not None and known != previous and (known == id_.peer or previous == self.next_hop):
            return []
        self._expires[id_] = expires
        self.previous[id_] = previous
        if self.entries.get(id_) == entry:
            return []
        wanted = parse(entry.filter) if wanted is None else wanted
        self.entries[id_] = entry
        self._filters[id_] = wanted
        self._index.add(id_, wanted)
        return self._onward.add(id_, wanted)

    def renew(self, id_: EntryId, previous: PeerId, expires: Nanos) -> bool:
        """Whether the entry is known as coming from this peer."""
        if self.previous.get(id_) != previous:
            return False
        self._expires[id_] = expires
        return True

    def remove(self, id_: EntryId) -> tuple[bool, list[EntryId]]:
        """Forget an entry. Returns whether it had been passed on, and the entries that are to be passed on now."""
        if self.entries.pop(id_, None) is None:
            return False, []
        del self.previous[id_], self._expires[id_], self._filters[id_]
        self._index.discard(id_)
        onward = self._onward.uncovered(id_)
        return onward, self._onward.discard(id_)

    def expired(self, now: Nanos) -> list[EntryId]:
        return [id_ for id_, expires in self._expires.items() if expires <= now]

    @property
    def onward(self) -> list[EntryId]:
        """The entries that are passed on: those that no other one covers."""
        return self._onward.all_uncovered

    def wanted(self, id_: EntryId) -> Filter:
        return self._filters[id_]

    def towards(self, event: Event) -> list[PeerId]:
        """The peers that entries that match the event came from, each once."""
        previous = self.previous
        return list(dict.fromkeys([previous[id_] for id_ in self._index.match(event.attributes)]))
