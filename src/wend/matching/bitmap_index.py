"""The compiled index: the keys of very many filters that match an event or each event of a batch.

`BitmapTable` holds the bits, this module the keys. Each conjunction has a slot. A new layout assigns slots in the order
of keys; slots of removed filters are reused. The layout depends on the filters. It is computed again when the number of
filters has doubled, so its cost per addition is constant.
"""

import pickle
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from wend.matching.batch import Batch
from wend.matching.bitmap_table import BITS, SLOTS, WIDTH, BitmapTable, Cells
from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.model.errors import ConfigError
from wend.model.events import Attributes

K = TypeVar("K")
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

SMALL = 8 * SLOTS
"""With at most this many slots, single events are matched without compiled code."""

SCRATCH_WORDS = 1 << 24
FIRST_LAYOUT = 64
MANY_DOUBTS = 1024
STRAY = 8
"""A conjunction without rows in the table counts as much as this many others towards a new layout."""


class BitmapIndex(Generic[K]):
    """An exact, dynamic index. Results are sorted by key; batches need integer keys."""

    _table: BitmapTable
    _slots: dict[K, tuple[int, ...]]
    _owners: list[Any]
    _wanted: list[Any]
    _keys: Ints
    _free: list[int]
    _ranks: tuple[Ints, Ints, Ints] | None
    _packed: bytes | None
    _given: int
    _debt: int
    _integers: bool

    def __init__(self, filters: Iterable[tuple[K, Filter]] = ()) -> None:
        self._doubted: set[str] = set()
        self._compiled = False
        self._lay_out({key: wanted.conjunctions for key, wanted in filters})

    def __len__(self) -> int:
        return self._count

    def keys(self) -> list[K]:
        """All keys, sorted. `count_batch` returns counts in this order."""
        self._unpack()
        return sorted(self._slots)  # type: ignore[type-var]

    @property
    def nbytes(self) -> int:
        """The size of the arrays, up to the last slot ever used."""
        return self._used * (self._table.block_bytes + SLOTS * self._keys.itemsize)

    # ---- adding and removing filters

    def add(self, key: K, wanted: Filter) -> None:
        self.discard(key)
        slots = tuple(self._take(key, one) for one in wanted.conjunctions)
        self._slots[key] = slots
        self._several += len(slots) > 1
        self._slotless += not slots
        self._count += 1
        self._ranks = None
        if self._debt > max(FIRST_LAYOUT * STRAY, self._laid):
            self._lay_out()

    def discard(self, key: K) -> None:
        self._unpack()
        slots = self._slots.pop(key, None)
        if slots is None:
            return
        self._several -= len(slots) > 1
        self._slotless -= not slots
        self._count -= 1
        self._ranks = None
        for slot in slots:
            self._table.clear(slot, self._wanted[slot])
            self._wanted[slot] = self._owners[slot] = None
        self._free.extend(slots)

    def _take(self, key: K, one: Conjunction) -> int:
        if self._free:
            slot = self._free.pop()
            self._ordered = False
            self._owners[slot], self._wanted[slot] = key, one
        else:
            slot = self._given
            self._given += 1
            last = self._owners[-1] if slot else None
            self._ordered = self._ordered and (slot == 0 or (last is not None and last < key))
            self._owners.append(key)
            self._wanted.append(one)
        found_rows = self._table.place(slot, one)
        self._debt += 1 if found_rows else STRAY
        if self._integers and isinstance(key, int):
            if slot >= len(self._keys):
                self._keys = np.concatenate([self._keys, np.zeros(len(self._keys) + SLOTS, dtype=np.int64)])
            self._keys[slot] = key
        else:
            self._integers = False
        return slot

    def _lay_out(self, filters: dict[K, tuple[Conjunction, ...]] | None = None) -> None:
        """Assign slots in the order of keys, and choose the rows of the table for these filters."""
        if filters is None:
            filters = {key: tuple(self._wanted[slot] for slot in slots) for key, slots in self._slots.items()}
        self._slots = {}
        self._owners = []
        conjunctions: list[Conjunction] = []
        for key in sorted(filters):  # type: ignore[type-var]
            ones = filters[key]
            self._slots[key] = tuple(range(len(conjunctions), len(conjunctions) + len(ones)))
            self._owners.extend([key] * len(ones))
            conjunctions.extend(ones)
        self._wanted = list(conjunctions)
        self._table = BitmapTable(conjunctions, self._doubted)
        self._integers = all(isinstance(key, int) for key in self._slots)
        self._keys = np.zeros(self._table.blocks * SLOTS, dtype=np.int64)
        if self._integers:
            self._keys[: len(conjunctions)] = self._owners
        self._free = []
        self._several = sum(len(slots) > 1 for slots in self._slots.values())
        self._slotless = sum(not slots for slots in self._slots.values())
        """The number of filters that match nothing."""
        self._count = len(self._slots)
        self._ordered = True
        self._debt = self._asked = 0
        self._laid = self._given = len(conjunctions)
        self._ranks = None
        self._packed = None
        self._scratch = np.empty(0, dtype=np.int64)
        self._expected = 0

    # ---- one event

    def match(self, attributes: Attributes) -> tuple[K, ...]:
        slots = _positions(self._left(attributes))
        self._unpack()
        owners = self._owners
        found: list[Any] = [owners[slot] for slot in slots.tolist()]
        if self._several:
            found = list(set(found))
        return tuple(found if self._in_order else sorted(found))

    def match_array(self, attributes: Attributes) -> Ints:
        """`match` for integer keys, as an array."""
        self._need_integers()
        self._follow_doubts()
        cells = self._cells(attributes)
        if cells is not None and self._in_order:
            if len(cells.edges) or self._table.checks or self._table.rare:
                return self._listed(self._lefts(cells, lambda _: attributes), self._keys)[1]
            return self._listed_at_once(cells)
        left = self._left(attributes) if cells is None else self._lefts(cells, lambda _: attributes).reshape(-1)
        keys = self._keys[_positions(left)]
        if not self._in_order:
            keys.sort()
        if self._several and len(keys):
            keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
        return keys

    def _listed_at_once(self, cells: Cells) -> Ints:
        from wend.matching import kernels

        table = self._table
        if len(self._scratch) < self._used * SLOTS:
            self._scratch = np.empty(self._used * SLOTS, dtype=np.int64)
        self._expected = kernels.wanting(
            table.bits.reshape(-1), table.alive[: self._used * WIDTH], cells.rows[0], self._keys, self._scratch,
            self._expected, WIDTH, table.height,
        )  # fmt: skip
        return self._scratch[: self._expected].copy()

    def _cells(self, attributes: Attributes) -> Cells | None:
        """The input of compiled matching; None if it is not worthwhile or the event has a range."""
        return self._table.cells_of(attributes) if self._given > SMALL or self._compiled else None

    def _left(self, attributes: Attributes) -> Words:
        """The slots that match an event, as bits."""
        self._follow_doubts()
        cells = self._cells(attributes)
        if cells is not None:
            return self._lefts(cells, lambda _: attributes).reshape(-1)
        left, doubt = self._table.left(attributes, self._used)
        self._ask(left, _positions(doubt).tolist(), attributes)
        return left

    def _ask(self, left: Words, slots: Iterable[int], attributes: Attributes) -> None:
        """Clear those of the slots that do not match the event, and set the slots without rows that do."""
        for slot in slots:
            self._asked += 1
            if not self._one(slot).matches(attributes):
                left[slot // 64] &= ~BITS[slot % 64]
        for slot in self._table.candidates(attributes):
            if self._one(slot).matches(attributes):
                left[slot // 64] |= BITS[slot % 64]

    def _one(self, slot: int) -> Conjunction:
        self._unpack()
        return self._wanted[slot]  # type: ignore[no-any-return]

    # ---- other filters

    def intersecting(self, offer: Filter) -> tuple[K, ...]:
        """The keys of the filters that intersect this one."""
        self._unpack()
        keys: set[K] = set()
        for one in offer.conjunctions:
            proposed = _positions(self._table.meeting(one, self._used)).tolist()
            for slot in (*proposed, *self._table.without_rows()):
                if self._owners[slot] not in keys and self._wanted[slot].intersects(one):
                    keys.add(self._owners[slot])
        return tuple(sorted(keys))  # type: ignore[type-var]

    # ---- many events

    def match_batch(self, batch: Batch) -> tuple[Ints, Ints]:
        """Offsets and keys: the filters keys[offsets[i]:offsets[i + 1]] match event i, sorted."""
        self._need_integers()
        self._follow_doubts()
        parts = [self._listed(*self._by_key(self._wanting(part))) for part in self._parts(batch)]
        if len(parts) == 1:
            return parts[0]
        offsets = np.zeros(len(batch) + 1, dtype=np.int64)
        np.cumsum(np.concatenate([np.diff(part[0]) for part in parts]), out=offsets[1:])
        return offsets, np.concatenate([part[1] for part in parts])

    def count_batch(self, batch: Batch) -> tuple[Ints, Ints]:
        """The number of filters that match each event, and the number of events that the filter of each of `keys()`
        matches."""
        from wend.matching import kernels

        self._follow_doubts()
        ranks, _, places = self._ranked()
        totals = np.zeros(self._used * SLOTS, dtype=np.int64)
        counts = []
        for part in self._parts(batch):
            left = self._wanting(part)
            if self._several:
                left = _reordered(left, ranks)
            counts.append(_counts(left))
            kernels.tallied(left.reshape(-1), totals, left.shape[1])
        per_key = np.zeros(self._count, dtype=np.int64)
        if self._several:
            per_key[places] = totals[: len(places)]
        else:
            live = ranks >= 0
            per_key[places[ranks[live]]] = totals[live]
        return np.concatenate(counts), per_key

    def _parts(self, batch: Batch) -> list[Batch]:
        """The batch, split such that the scratch space is large enough for each part."""
        most = max(16, SCRATCH_WORDS // (self._used * WIDTH))
        if len(batch) <= most:
            return [batch]
        return [batch.part(start, start + most) for start in range(0, len(batch), most)]

    def _wanting(self, batch: Batch) -> Words:
        """The slots that match each event, as bits."""
        cells = self._table.cells(batch)
        left = self._lefts(cells, batch.row)
        for event in cells.ranged:
            attributes = batch.row(event)
            left[event], doubt = self._table.left(attributes, self._used)
            self._ask(left[event], _positions(doubt).tolist(), attributes)
        return left

    def _lefts(self, cells: Cells, row: Callable[[int], Attributes]) -> Words:
        from wend.matching import kernels

        self._compiled = True
        table, size, count = self._table, self._used * WIDTH, len(cells.rows)
        left = np.empty((count, size), dtype=np.uint64)
        kernels.unrefused(table.bits.reshape(-1), table.alive[:size], cells.rows, left.reshape(-1), WIDTH, table.height)
        doubtful: dict[int, list[int]] = {event: [] for event in range(count)} if table.rare else {}
        if table.checks or len(cells.edges):
            for event, slot in self._settled(cells, left):
                doubtful.setdefault(event, []).append(slot)
        for event, slots in doubtful.items():
            self._ask(left[event], slots, row(event))
        return left

    def _settled(self, cells: Cells, left: Words) -> list[tuple[int, int]]:
        """Decide doubtful slots in place by comparing doubles; returns (event, slot) of the others."""
        from wend.matching import kernels

        table, size = self._table, left.shape[1]
        room = 1024
        while True:
            doubts = np.empty((room, 2), dtype=np.int64)
            count = kernels.settle(
                table.bits.reshape(-1), table.check[:size], table.odd[:size], table.ends,
                cells.starts, cells.edges, cells.planes, cells.values,
                left.reshape(-1), doubts, WIDTH, table.height,
            )  # fmt: skip
            if count <= room:
                return [(event, slot) for event, slot in doubts[:count].tolist()]
            room = count

    def _by_key(self, left: Words) -> tuple[Words, Ints]:
        """The bits in the order of keys, and the key of each."""
        if self._in_order:
            return left, self._keys
        ranks, names, _ = self._ranked()
        return _reordered(left, ranks), names

    def _ranked(self) -> tuple[Ints, Ints, Ints]:
        """The rank of each slot's key among the keys with slots, these keys, and their positions in `keys()`."""
        if self._ranks is None:
            slots = np.array([*_positions(self._table.alive), *self._table.without_rows()], dtype=np.int64)
            names = np.zeros(self._used * SLOTS, dtype=np.int64)
            if self._integers:
                keys, rank_of_slot = np.unique(self._keys[slots], return_inverse=True)
                names[: len(keys)] = keys
            else:
                self._unpack()
                order = {key: rank for rank, key in enumerate(key for key in self.keys() if self._slots[key])}
                rank_of_slot = np.array([order[self._owners[slot]] for slot in slots.tolist()], dtype=np.int64)
            ranks = np.full(self._used * SLOTS, -1, dtype=np.int64)
            ranks[slots] = rank_of_slot
            places = np.arange(self._count)
            if self._slotless:
                places = np.array([at for at, key in enumerate(self.keys()) if self._slots[key]], dtype=np.int64)
            self._ranks = ranks, names, places
        return self._ranks

    def _listed(self, left: Words, names: Ints) -> tuple[Ints, Ints]:
        from wend.matching import kernels

        counts = _counts(left)
        offsets = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=offsets[1:])
        found = np.empty(offsets[-1], dtype=np.int64)
        kernels.listed(left.reshape(-1), names, offsets, found, left.shape[1], WIDTH)
        return offsets, found

    # ---- upkeep

    @property
    def _used(self) -> int:
        """The number of blocks up to the last slot ever used."""
        return max(1, -(-self._given // SLOTS))

    @property
    def _in_order(self) -> bool:
        return self._ordered and not self._several

    def _need_integers(self) -> None:
        if not self._integers:
            raise ConfigError("arrays of keys need integer keys")

    def _follow_doubts(self) -> None:
        """If too many conjunctions were tested one by one, make a layout with edges for the attributes in doubt."""
        if self._asked <= max(MANY_DOUBTS, self._laid // 2):
            return
        self._asked = 0
        doubts = self._table.doubts()
        if doubts:
            self._unpack()
            self._doubted |= doubts
            self._lay_out()

    def __getstate__(self) -> dict[str, Any]:
        """The bits, and the filters pickled in one piece, because matching rarely needs them."""
        self._table.shrink(self._used)
        state = self.__dict__ | {
            "_compiled": False,
            "_slots": {},
            "_owners": [],
            "_wanted": [],
            "_scratch": self._scratch[:0],
        }
        if self._packed is None:
            slotless = [key for key, slots in self._slots.items() if not slots]
            state["_packed"] = pickle.dumps((self._owners, self._wanted, slotless), protocol=5)
        return state

    def _unpack(self) -> None:
        if self._packed is None:
            return
        self._owners, self._wanted, slotless = pickle.loads(self._packed)
        self._packed = None
        slots_of: dict[K, list[int]] = {key: [] for key in slotless}
        for slot, (key, one) in enumerate(zip(self._owners, self._wanted, strict=True)):
            if one is not None:
                slots_of.setdefault(key, []).append(slot)
        self._slots = {key: tuple(slots) for key, slots in slots_of.items()}


def _positions(words: Words) -> Ints:
    """The positions of the set bits."""
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))


def _counts(left: Words) -> Ints:
    from wend.matching import kernels

    counts = np.zeros(len(left), dtype=np.int64)
    kernels.counted(left.reshape(-1), counts, left.shape[1])
    return counts


def _reordered(left: Words, ranks: Ints) -> Words:
    from wend.matching import kernels

    found = np.zeros_like(left)
    kernels.reordered(left.reshape(-1), ranks, found.reshape(-1), left.shape[1])
    return found
