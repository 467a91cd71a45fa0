"""Regions of `rendezvous`: the entries that meet at one place, and what a peer remembers of other peers' regions.

A region is named by what it is about (`attribute price`, `topic news`, `anything`) and by a code: the leading bits of
the cells of the attribute's values (`matching/order_cells.py`). The empty code is the whole range.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b

from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter, parse
from wend.matching.index import Index
from wend.matching.order_cells import (
    CELL_BITS,
    EVERYTHING,
    Interval,
    cells_of_value,
    cells_of_values,
    is_region,
    meet,
    region,
)
from wend.matching.values import Values
from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.strategies.rendezvous.messages import UNKNOWN_OWNER
from wend.strategies.ring.key_based import Entry, EntryId

ANYTHING = "anything"
_ATTRIBUTE = "attribute "
_TOPIC = "topic "
Name = tuple[str, str]
"""What a region is about, and its code."""
WHOLE: list[Interval] = [EVERYTHING]


def place(name: str, code: str) -> str:
    """The text whose key decides who owns the region."""
    return f"{name}|{code}"


def can_be(name: str, code: str) -> bool:
    """Whether there may be such a region."""
    if name.startswith(_ATTRIBUTE):
        return is_region(code)
    return not code and (name == ANYTHING or name.startswith(_TOPIC))


def splits(name: str, code: str) -> bool:
    return name.startswith(_ATTRIBUTE) and len(code) < CELL_BITS


def home_of(wanted: Filter) -> tuple[str, list[Interval]]:
    """Where a filter of one conjunction lives: its topic, or the attribute whose values it narrows the most."""
    if wanted.topic is not None:
        return _TOPIC + wanted.topic, WHOLE
    (one,) = wanted.conjunctions
    required = _required(one)
    if not required:
        return ANYTHING, WHOLE
    name, values = min(required, key=lambda side: (_width(side[1]), side[0]))
    return _ATTRIBUTE + name, cells_of_values(values)


@lru_cache(1 << 14)
def _cells_at_home(text: str) -> list[Interval]:
    """The cells of an entry. Its owner and the replicas ask soon after each other."""
    return home_of(parse(text))[1]


def _required(one: Conjunction) -> list[tuple[str, Values]]:
    """The attributes that an event must have, with the values that it may have."""
    sides = one.allowed().items() if one.bindings else one.values
    return [(name, values) for name, values in sides if not values.absent]


def _width(values: Values) -> int:
    return sum(high - low + 1 for low, high in cells_of_values(values))


def names_of(event: Event) -> list[tuple[str, Interval]]:
    """The names of the regions where subscribers of an event may be, each with the cells of the event's value."""
    found = [(_ATTRIBUTE + name, cells_of_value(value)) for name, value in event.attributes.items()]
    topic = event.attributes.get("topic")
    if isinstance(topic, str):
        found.append((_TOPIC + topic, EVERYTHING))
    found.append((ANYTHING, EVERYTHING))
    return found


def cells_in(name: str, event: Event) -> Interval | None:
    """The cells of an event in regions of this name; None where it has none."""
    if not name.startswith(_ATTRIBUTE):
        return EVERYTHING
    value = event.attributes.get(name.removeprefix(_ATTRIBUTE))
    return None if value is None else cells_of_value(value)


@lru_cache(1 << 16)
def _digest_of(id_: EntryId, text: str) -> int:
    hashed = blake2b(f"{id_.peer} {id_.number} {id_.part} {text}".encode(), digest_size=8).digest()
    return int.from_bytes(hashed, "big") >> 2


def digest(entries: Iterable[Entry]) -> int:
    """The same number for the same entries, whatever their order."""
    found = 0
    for entry in entries:
        found ^= _digest_of(entry.id, entry.filter)
    return found


class EntryTable:
    """The entries of a region, as its owner or a replica knows them."""

    __slots__ = ("_digests", "_index", "away", "complete_ns", "entries", "expires", "homes", "split")

    def __init__(self) -> None:
        self.entries: dict[EntryId, Entry] = {}
        self.homes: dict[EntryId, list[Interval]] = {}
        """The cells of each entry."""
        self.expires: dict[PeerId, Nanos] = {}
        """When the entries of a peer expire."""
        self.away: dict[PeerId, Nanos] = {}
        """Peers that have stopped: until when their entries live, though nobody renews them."""
        self._digests: dict[PeerId, int] = {}
        self._index: Index[EntryId] | None = None
        self.split = False
        """Whether its two halves are active instead."""
        self.complete_ns: Nanos = 0
        """When all entries of the region will have come; 0 for a region that is not a half of another."""

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, entry: Entry, expires: Nanos) -> bool:
        """Whether it is new. Raises FilterError."""
        peer = entry.id.peer
        self.expires[peer] = expires
        before = self.entries.get(entry.id)
        if before == entry:
            return False
        wanted = parse(entry.filter)
        if before is not None:
            self.remove(entry.id)
            self.expires[peer] = expires
        self.entries[entry.id] = entry
        self.homes[entry.id] = _cells_at_home(entry.filter)
        self._digests[peer] = self._digests.get(peer, 0) ^ _digest_of(entry.id, entry.filter)
        if self._index is not None:
            self._index.add(entry.id, wanted)
        return True

    def remove(self, id_: EntryId) -> bool:
        entry = self.entries.pop(id_, None)
        if entry is None:
            return False
        del self.homes[id_]
        if self._index is not None:
            self._index.discard(id_)
        self._digests[id_.peer] ^= _digest_of(id_, entry.filter)
        return True

    def digest_of(self, peer: PeerId) -> int:
        return self._digests.get(peer, 0)

    @property
    def digest(self) -> int:
        found = 0
        for one in self._digests.values():
            found ^= one
        return found

    def expire(self, now: Nanos) -> list[EntryId]:
        """Forget the entries of peers that did not renew them."""
        gone = {peer for peer, expires in self.expires.items() if max(expires, self.away.get(peer, 0)) <= now}
        found = [id_ for id_ in self.entries if id_.peer in gone] if gone else []
        for id_ in found:
            self.remove(id_)
        for peer in [peer for peer, until in self.away.items() if until <= now]:
            del self.away[peer]
        for peer in gone:
            del self.expires[peer]
            self._digests.pop(peer, None)
        return found

    def still_away(self, now: Nanos) -> tuple[tuple[PeerId, Nanos], ...]:
        """The peers that have stopped, and how long their entries still live."""
        return tuple([(peer, until - now) for peer, until in self.away.items() if until > now])

    def subscribers(self, event: Event) -> list[PeerId]:
        """The peers with an entry that matches the event, sorted."""
        if self._index is None:  # replicas never ask
            self._index = Index()
            for entry in self.entries.values():
                self._index.add(entry.id, parse(entry.filter))
        return sorted({id_.peer for id_ in self._index.match(event.attributes)})

    @property
    def divisible(self) -> bool:
        """Whether some split spares its halves a tenth of the entries: those that do not reach all across."""
        low = min((cells[0][0] for cells in self.homes.values() if cells), default=0)
        high = max((cells[-1][1] for cells in self.homes.values() if cells), default=0)
        across = sum(cells[0][0] == low and cells[-1][1] == high for cells in self.homes.values() if cells)
        return across * 10 <= len(self) * 9

    def in_half(self, code: str) -> list[Entry]:
        """The entries that meet a region."""
        cells = region(code)
        return [entry for id_, entry in self.entries.items() if meet(cells, self.homes[id_])]


class Load:
    """How hot a region is: the events since the last look, and the first and the last cell that they were in."""

    __slots__ = ("asked", "cells", "events", "since_ns")

    def __init__(self, now: Nanos) -> None:
        self.since_ns = now
        self.events = 0
        self.cells: Interval | None = None
        self.asked: dict[PeerId, None] = {}
        """The publishers' peers that know this region."""

    def count(self, cells: Interval, publisher: PeerId) -> None:
        self.events += 1
        low, high = self.cells or cells
        self.cells = (min(low, cells[0]), max(high, cells[1]))
        self.asked[publisher] = None

    @property
    def divisible(self) -> bool:
        """Whether some split divides the events."""
        return self.cells is not None and self.cells[0] < self.cells[1]


class RegionCache:
    """The regions of one name that this peer was told of, with their owners. It may be wrong: owners correct it."""

    __slots__ = ("_told_ns", "owners")

    def __init__(self) -> None:
        self.owners: dict[str, PeerId] = {}
        self._told_ns: dict[str, Nanos] = {}

    def learn(self, now: Nanos, regions: tuple[tuple[str, PeerId], ...]) -> bool:
        """Adopt regions, and forget those that overlap them. A region without an owner is only said to be there: what
        is known of its parts may be right. Whether the codes are others than before."""
        before = set(self.owners)
        for code, owner in regions:
            parts = [known for known in self.owners if known.startswith(code) and known != code]
            if owner < 0 and (parts or code in self.owners):
                parts = []
            else:
                self.owners[code] = owner
                self._told_ns[code] = now
            for other in (*parts, *[known for known in self.owners if code.startswith(known) and known != code]):
                del self.owners[other], self._told_ns[other]
        return before != self.owners.keys()

    def forget(self, owner: PeerId) -> None:
        """This peer does not answer: its regions may have other owners."""
        for code, known in self.owners.items():
            if known == owner:
                self.owners[code] = UNKNOWN_OWNER

    def age_ns(self, code: str, now: Nanos) -> Nanos:
        """The time since an owner was named."""
        return now - self._told_ns[code]

    def meeting(self, cells: list[Interval]) -> list[tuple[str, PeerId]]:
        """The regions that these cells are in. Where a part of a region is known, the region is split, and its other
        parts are there, too."""
        return list(self._below("", list(self.owners), cells))

    def _below(self, code: str, known: list[str], cells: list[Interval]) -> Iterator[tuple[str, PeerId]]:
        if not meet(region(code), cells):
            return
        if code in self.owners or not known:
            yield code, self.owners.get(code, UNKNOWN_OWNER)
            return
        for half in (f"{code}0", f"{code}1"):
            yield from self._below(half, [one for one in known if one.startswith(half)], cells)
