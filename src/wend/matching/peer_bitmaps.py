"""The bitmap index of a peer: the keys of the filters that match one event, in plain Python.

It is the index of `bitmaps.py` without arrays: a row is one integer of Python, with a bit for every conjunction that
the row refuses. An event has one row per attribute (`AttributeBuckets`), and one `or` per attribute leaves the
conjunctions that match. If rows cannot decide (a value inside a bucket, a binding, a rare attribute), the conjunction
itself does. The layout is computed again when the number of conjunctions has doubled, so its cost per filter is
constant.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from wend.matching.buckets import AttributeBuckets, Run, borders, constraints, others, required, with_rows
from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.matching.values import Values
from wend.model.events import Attributes, Range

K = TypeVar("K")

FIRST_LAYOUT = 64
STRAY = 8
"""A conjunction without rows for all its attributes counts as much as this many others towards a new layout."""


class _Rows:
    """One attribute: for each row, the slots that it refuses."""

    def __init__(self, name: str, slots: Sequence[int], sets: Sequence[Values]) -> None:
        self.buckets = AttributeBuckets(name, borders("numbers", sets), borders("strings", sets), 0)
        edges = [0] * (self.buckets.rows + 1)
        """By row: the slots that begin or end to allow it."""
        constrained = 0
        for slot, values in zip(slots, sets, strict=True):
            bit = 1 << slot
            constrained |= bit
            for first, last in self.buckets.runs(values):
                edges[first] ^= bit
                edges[last + 1] ^= bit
            self.buckets.note(values)
        self.refused: list[int] = []
        allowed = 0
        for row in range(self.buckets.rows):
            allowed ^= edges[row]
            self.refused.append(constrained & ~allowed)

    def place(self, bit: int, values: Values) -> None:
        for first, last in others(self.buckets.runs(values), self.buckets.rows):
            for row in range(first, last + 1):
                self.refused[row] |= bit
        self.buckets.note(values)

    def clear(self, bit: int) -> None:
        self.refused = [row & ~bit for row in self.refused]

    def refused_by_all(self, runs: Iterable[Run]) -> int:
        """The slots that all of these rows refuse."""
        found = -1
        for first, last in runs:
            for row in range(first, last + 1):
                found &= self.refused[row]
        return found


class PeerBitmapIndex(Generic[K]):
    """An exact, dynamic index. Results are sorted by key."""

    def __init__(self, filters: Iterable[tuple[K, Filter]] = ()) -> None:
        self._lay_out({key: wanted.conjunctions for key, wanted in filters})

    def _lay_out(self, filters: dict[K, tuple[Conjunction, ...]]) -> None:
        """Assign slots, and choose the rows for these filters."""
        self._slots: dict[K, tuple[int, ...]] = {}
        self._owners: list[Any] = []
        self._wanted: list[Any] = []
        self._free: list[int] = []
        self._alive = self._check = 0
        """The slots with rows, and those of them that rows alone cannot decide."""
        self._rare: dict[str, dict[int, None]] = {}
        """Slots without rows, by an attribute that they require; '' if they require none."""
        wanted = [one for ones in filters.values() for one in ones]
        self._rows = {name: _Rows(name, *sets) for name, sets in with_rows(wanted).items()}
        for key, ones in filters.items():
            self._slots[key] = tuple([self._register(key, one) for one in ones])
        self._laid = len(wanted)
        self._debt = 0

    def _register(self, key: K, one: Conjunction) -> int:
        """Give a conjunction a slot, without bits in the rows."""
        if self._free:
            slot = self._free.pop()
            self._owners[slot], self._wanted[slot] = key, one
        else:
            slot = len(self._owners)
            self._owners.append(key)
            self._wanted.append(one)
        rows = [name in self._rows for name, _ in constraints(one)]
        if not any(rows):
            self._rare.setdefault(required(one), {})[slot] = None
            return slot
        self._alive |= 1 << slot
        if one.bindings or not all(rows):
            self._check |= 1 << slot
        return slot

    def add(self, key: K, wanted: Filter) -> None:
        self.discard(key)
        slots = []
        for one in wanted.conjunctions:
            slot = self._register(key, one)
            slots.append(slot)
            self._debt += 1
            for name, values in constraints(one):
                if name in self._rows:
                    self._rows[name].place(1 << slot, values)
                else:
                    self._debt += STRAY
        self._slots[key] = tuple(slots)
        if self._debt > max(FIRST_LAYOUT * STRAY, self._laid):
            self._lay_out({key: tuple([self._wanted[slot] for slot in own]) for key, own in self._slots.items()})

    def discard(self, key: K) -> None:
        for slot in self._slots.pop(key, ()):
            one, bit = self._wanted[slot], 1 << slot
            for name, _ in constraints(one):
                if name in self._rows:
                    self._rows[name].clear(bit)
            self._alive &= ~bit
            self._check &= ~bit
            self._rare.get(required(one), {}).pop(slot, None)
            self._owners[slot] = self._wanted[slot] = None
            self._free.append(slot)

    def match(self, attributes: Attributes) -> tuple[K, ...]:
        refused, exact = 0, True
        for name, rows in self._rows.items():
            value = attributes.get(name)
            if isinstance(value, Range):
                refused |= rows.refused_by_all([rows.buckets.touched(value)])
                exact = False
            else:
                row, sure, _ = rows.buckets.cell(value)
                refused |= rows.refused[row]
                exact = exact and sure
        left = self._alive & ~refused
        doubt = left & self._check if exact else left
        owners, wanted = self._owners, self._wanted
        found = [owners[slot] for slot in _positions(left ^ doubt)]
        found += [owners[slot] for slot in _positions(doubt) if wanted[slot].matches(attributes)]
        for name in ("", *attributes) if self._rare else ():
            found += [owners[slot] for slot in self._rare.get(name, ()) if wanted[slot].matches(attributes)]
        return tuple(sorted(set(found)))

    def intersecting(self, offer: Filter) -> tuple[K, ...]:
        """The keys of the filters that intersect this one."""
        found: set[Any] = set()
        without_rows = [slot for slots in self._rare.values() for slot in slots]
        for one in offer.conjunctions:
            refused = 0
            for name, values in constraints(one):
                if name in self._rows:
                    rows = self._rows[name]
                    refused |= rows.refused_by_all(rows.buckets.runs(values))
            for slot in (*_positions(self._alive & ~refused), *without_rows):
                if self._owners[slot] not in found and self._wanted[slot].intersects(one):
                    found.add(self._owners[slot])
        return tuple(sorted(found))


def _positions(bits: int) -> Iterator[int]:
    """The positions of the set bits, in order."""
    text = bin(bits)[:1:-1]  # the lowest first
    at = text.find("1")
    while at >= 0:
        yield at
        at = text.find("1", at + 1)
