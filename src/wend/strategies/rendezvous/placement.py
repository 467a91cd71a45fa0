"""The entries of this peer's own subscriptions: in which regions the peer places them, and how it renews them.

A method yields messages to the owners of regions one by one. This peer may own a region itself, and its answer may move
entries before the next message.
"""

from collections.abc import Iterator

from wend.matching.filters import Filter
from wend.matching.order_cells import Interval
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.strategies.rendezvous.directory import RegionDirectory
from wend.strategies.rendezvous.entry_table import digest
from wend.strategies.rendezvous.messages import OwnerMessage, PlaceEntries, RemoveEntries, RenewEntries
from wend.strategies.rendezvous.regions import RegionId, filter_region
from wend.strategies.ring.bounded import split_into_batches
from wend.strategies.ring.key_based import Entry, EntryId


class EntryPlacement:
    """Places entries in every region that their values meet, as far as the directory knows the regions."""

    def __init__(self, peer: PeerId, directory: RegionDirectory) -> None:
        self._peer = peer
        self._directory = directory
        self._homes: dict[EntryId, tuple[Entry, str, list[Interval]]] = {}
        """Each entry, with the name of its regions and its cells there."""
        self._placed: dict[RegionId, dict[EntryId, Entry]] = {}

    def names(self) -> set[str]:
        """The names of the regions that have entries of this peer."""
        return {name for name, _ in self._placed}

    def add(self, entry: Entry, filter_: Filter) -> Iterator[OwnerMessage]:
        name, cells = filter_region(filter_)
        self._homes[entry.id] = (entry, name, cells)
        for code in self._directory.codes(name, cells):
            entries = self._placed.setdefault((name, code), {})
            if entries.get(entry.id) != entry:
                entries[entry.id] = entry
                yield PlaceEntries(name, code, (entry,), self._peer)

    def remove(self, id_: EntryId) -> Iterator[OwnerMessage]:
        _, home, _ = self._homes.pop(id_)
        for (name, code), entries in list(self._placed.items()):
            if name == home and id_ in entries:
                yield RemoveEntries(name, code, (entries.pop(id_),))
                if not entries:
                    del self._placed[name, code]

    def move(self, name: str) -> Iterator[OwnerMessage]:
        """Follow a change of the regions of this name. Their owners have passed on this peer's entries. Renew them in
        the new regions at once, since these may have split in turn."""
        former = {region: entries for region, entries in self._placed.items() if region[0] == name}
        for region in former:
            del self._placed[region]
        for entry, home, cells in self._homes.values():
            if home == name:
                for code in self._directory.codes(name, cells):
                    self._placed.setdefault((name, code), {})[entry.id] = entry
        for region in [region for region in self._placed if region[0] == name and region not in former]:
            entries = self._placed.get(region)  # an answer may have moved them meanwhile
            if entries is not None:
                yield RenewEntries(*region, self._peer, digest(entries.values()))

    def renew(self, away_ns: Nanos = 0) -> Iterator[OwnerMessage]:
        """Renew all entries; if this peer stops, for the time that it will be away."""
        for (name, code), entries in list(self._placed.items()):
            yield RenewEntries(name, code, self._peer, digest(entries.values()), 0, away_ns)

    def place_again(self, region: RegionId) -> Iterator[OwnerMessage]:
        """Send all entries of a region again: its owner lacks some."""
        for batch in split_into_batches(list(self._placed.get(region, {}).values())):
            yield PlaceEntries(*region, batch, self._peer)
