"""The compiled index: which of very many filters match each event of a batch. Spark jobs use it.

It is compiled once, from all filters; the key of a filter is its position among them. Each conjunction has a slot, in
the order of keys. `BitmapTable` holds the bits of the slots; this module turns them into keys.
"""

import pickle
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from wend.matching.batch import Batch
from wend.matching.batch_table import BITS, WIDTH, BitmapTable, Cells
from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.model.events import Attributes

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

SCRATCH_WORDS = 1 << 24
MANY_TESTS = 1024
"""After this many tests of single conjunctions, the table gets edge rows for the attributes in doubt."""


class BatchIndex:
    """An exact index of filters. Keys are positions, and results are sorted by key."""

    def __init__(self, filters: Iterable[Filter]) -> None:
        conjunctions: list[Conjunction] = []
        owners: list[int] = []
        self._count = 0
        for key, one in enumerate(filters):
            conjunctions += one.conjunctions
            owners += [key] * len(one.conjunctions)
            self._count = key + 1
        self._conjunctions = conjunctions
        self._packed: bytes | None = None
        self._tests = 0
        self._table = BitmapTable(conjunctions)
        keys, ranks = np.unique(np.array(owners, dtype=np.int64), return_inverse=True)
        self._ranked = len(keys)
        self._keys = _pad_to_slots(keys, self._table)
        """The keys of filters with slots, by rank."""
        self._ranks = _pad_to_slots(ranks, self._table) if len(keys) < len(owners) else None
        """By slot: the rank of its key. None if each filter has one conjunction: then a rank is a slot."""

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """The size of the arrays."""
        return self._table.nbytes + self._keys.nbytes + (0 if self._ranks is None else self._ranks.nbytes)

    def match_batch(self, batch: Batch) -> tuple[Ints, Ints]:
        """Offsets and keys: the filters keys[offsets[i]:offsets[i + 1]] match event i, sorted."""
        self._add_edge_rows()
        parts = [self._list_keys(self._matching_bits(part)) for part in self._split_batch(batch)]
        if len(parts) == 1:
            return parts[0]
        offsets = np.zeros(len(batch) + 1, dtype=np.int64)
        np.cumsum(np.concatenate([np.diff(part[0]) for part in parts]), out=offsets[1:])
        return offsets, np.concatenate([part[1] for part in parts])

    def count_batch(self, batch: Batch) -> tuple[Ints, Ints]:
        """The number of filters that match each event, and the number of events that each filter matches."""
        from wend.matching import batch_kernels

        self._add_edge_rows()
        totals = np.zeros(self._table.slots, dtype=np.int64)
        counts = []
        for part in self._split_batch(batch):
            matching = self._matching_bits(part)
            counts.append(_count_matches(matching))
            batch_kernels.add_bits(matching.reshape(-1), totals, matching.shape[1])
        per_filter = np.zeros(self._count, dtype=np.int64)
        per_filter[self._keys[: self._ranked]] = totals[: self._ranked]
        return np.concatenate(counts), per_filter

    def _split_batch(self, batch: Batch) -> list[Batch]:
        """The batch, split such that the scratch space is large enough for each part."""
        most = max(16, SCRATCH_WORDS // (self._table.slots // 64))
        if len(batch) <= most:
            return [batch]
        return [batch.part(start, start + most) for start in range(0, len(batch), most)]

    # ---- bits

    def _matching_bits(self, batch: Batch) -> Words:
        """The filters that match each event, as bits by rank."""
        from wend.matching import batch_kernels

        cells = self._table.cells(batch)
        slots = self._matching_slots(cells, batch)
        for event in cells.ranged:
            attributes = batch.row(event)
            slots[event], doubtful = self._table.match_ranges(attributes)
            self._test_conjunctions(slots[event], _positions(doubtful), attributes)
        if self._ranks is None:
            return slots
        by_rank = np.zeros_like(slots)
        batch_kernels.reorder_bits(slots.reshape(-1), self._ranks, by_rank.reshape(-1), slots.shape[1])
        return by_rank

    def _matching_slots(self, cells: Cells, batch: Batch) -> Words:
        from wend.matching import batch_kernels

        table, count = self._table, len(cells.rows)
        slots = np.empty((count, len(table.alive)), dtype=np.uint64)
        batch_kernels.combine_rows(
            table.bits.reshape(-1), table.alive, cells.rows, slots.reshape(-1), WIDTH, table.height
        )
        doubtful: dict[int, list[int]] = {event: [] for event in range(count)} if table.rare else {}
        if table.checks or len(cells.edges):
            for event, slot in self._decide_doubtful(cells, slots):
                doubtful.setdefault(event, []).append(slot)
        for event, some in doubtful.items():
            self._test_conjunctions(slots[event], some, batch.row(event))
        return slots

    def _decide_doubtful(self, cells: Cells, slots: Words) -> list[tuple[int, int]]:
        """Decide doubtful slots in place by comparing doubles. Return (event, slot) of those that remain in doubt."""
        from wend.matching import batch_kernels

        table, room = self._table, 1024
        while True:
            doubts = np.empty((room, 2), dtype=np.int64)
            count = batch_kernels.settle(
                table.bits.reshape(-1), table.check, table.odd, table.ends,
                cells.starts, cells.edges, cells.planes, cells.values,
                slots.reshape(-1), doubts, WIDTH, table.height,
            )  # fmt: skip
            if count <= room:
                return [(event, slot) for event, slot in doubts[:count].tolist()]
            room = count

    def _test_conjunctions(self, slots: Words, doubtful: Iterable[int], attributes: Attributes) -> None:
        """Clear the doubtful slots whose conjunctions do not match the event, and set those without rows that do."""
        conjunctions = self._unpickle_conjunctions()
        for slot in doubtful:
            self._tests += 1
            if not conjunctions[slot].matches(attributes):
                slots[slot // 64] &= ~BITS[slot % 64]
        for slot in self._table.candidates(attributes):
            if conjunctions[slot].matches(attributes):
                slots[slot // 64] |= BITS[slot % 64]

    def _list_keys(self, matching: Words) -> tuple[Ints, Ints]:
        from wend.matching import batch_kernels

        counts = _count_matches(matching)
        offsets = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=offsets[1:])
        keys = np.empty(offsets[-1], dtype=np.int64)
        batch_kernels.list_keys(matching.reshape(-1), self._keys, offsets, keys, matching.shape[1], WIDTH)
        return offsets, keys

    # ---- upkeep

    def _add_edge_rows(self) -> None:
        """If many conjunctions were tested one by one, build a table with edge rows for the attributes in doubt."""
        if self._tests <= max(MANY_TESTS, self._table.used // 2):
            return
        self._tests = 0
        doubted = self._table.doubted_attributes()
        if doubted:
            self._table = BitmapTable(self._unpickle_conjunctions(), self._table.edged | doubted)

    def __getstate__(self) -> dict[str, object]:
        """The bits, and the conjunctions pickled in one piece, because matching rarely needs them."""
        packed = self._packed or pickle.dumps(self._conjunctions, protocol=5)
        return self.__dict__ | {"_packed": packed, "_conjunctions": []}

    def _unpickle_conjunctions(self) -> list[Conjunction]:
        if self._packed is not None:
            self._conjunctions, self._packed = pickle.loads(self._packed), None
        return self._conjunctions


def _pad_to_slots(by_slot: Ints, table: BitmapTable) -> Ints:
    """The array, with an element for every slot: kernels may read beyond the last one in use."""
    padded = np.zeros(table.slots, dtype=np.int64)
    padded[: len(by_slot)] = by_slot
    return padded


def _positions(words: Words) -> list[int]:
    """The positions of the set bits."""
    positions: list[int] = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()
    return positions


def _count_matches(matching: Words) -> Ints:
    from wend.matching import batch_kernels

    counts = np.zeros(len(matching), dtype=np.int64)
    batch_kernels.count_bits(matching.reshape(-1), counts, matching.shape[1])
    return counts
