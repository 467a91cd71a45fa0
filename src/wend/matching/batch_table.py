"""The bitmap table of a compiled index: for each row of each attribute, the conjunctions that it refuses.

Each conjunction has a slot, and a row has a bit for every slot that it refuses. So a conjunction costs nothing for
attributes that it does not constrain. An event has one row per attribute (`AttributeBuckets`); the slots that none of
these rows refuses remain. If a row is not exact for the event's value, an edge row has bits for the few slots that
divide its bucket, and these are tested. Constraints that bits cannot express (bindings, rare attributes) are tested on
the conjunction itself.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wend.matching.batch import Batch
from wend.matching.batch_buckets import AttributeBuckets, bucket_borders, common_attributes, complement_runs
from wend.matching.conjunctions import Conjunction
from wend.matching.values import Values
from wend.model.events import Attributes, Range

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

WIDTH = 128
"""Words of a block: few enough that its rows stay in the cache for a batch, enough for fast sequential access."""

SLOTS = WIDTH * 64

BITS = tuple(np.uint64(1 << at) for at in range(64))


class Cells(NamedTuple):
    """Events as rows of the table. `batch_kernels.settle` describes the arrays."""

    rows: Ints
    starts: Ints
    edges: Ints
    planes: Ints
    values: NDArray[np.float64]
    ranged: list[int]
    """The events with ranges, which the arrays treat as missing."""


class BitmapTable:
    """The bits of all slots. `edged`: attributes that get edge rows even if their buckets seem not to need them."""

    def __init__(self, conjunctions: Sequence[Conjunction], edged: Iterable[str] = ()) -> None:
        self.used = len(conjunctions)
        self.blocks = max(1, -(-len(conjunctions) // SLOTS))
        self.edged = frozenset(edged)
        self.sides: dict[str, AttributeBuckets] = {}
        self.planes: dict[str, int] = {}
        self.height = 1
        """Row 0 refuses no slot."""
        writers = [_AttributeWriter(name, *sets) for name, sets in common_attributes(conjunctions).items()]
        for writer in writers:
            self._allocate_rows(writer.side)
        self.bits = np.zeros((self.blocks, self.height, WIDTH), dtype=np.uint64)
        self.alive, self.check, self.odd = (np.zeros(self.blocks * WIDTH, dtype=np.uint64) for _ in range(3))
        self.checks = 0
        self.ends = np.zeros((2 * len(self.planes), self.blocks * SLOTS))
        self.rare: dict[str, list[int]] = {}
        """Slots without rows, by an attribute that they require; '' if they require none."""
        for writer in writers:
            writer.write(self)
        for slot, one in enumerate(conjunctions):
            self._register(slot, one)

    def _allocate_rows(self, side: AttributeBuckets) -> None:
        side.base = self.height
        self.height += side.rows
        if side.begins_inside or side.name in self.edged:
            side.edges = self.height
            self.height += side.rows
            self.planes[side.name] = len(self.planes)
        self.sides[side.name] = side

    def _register(self, slot: int, one: Conjunction) -> None:
        has_rows = [name in self.sides for name, _ in one.constraints()]
        if not any(has_rows):
            required = next((name for name, values in one.constraints() if not values.absent), "")
            self.rare.setdefault(required, []).append(slot)
            return
        at, bit = slot // 64, BITS[slot % 64]
        self.alive[at] |= bit
        if one.bindings or not all(has_rows):
            self.check[at] |= bit
            self.checks += 1

    @property
    def slots(self) -> int:
        """The number of slots, used or not."""
        return self.blocks * SLOTS

    @property
    def nbytes(self) -> int:
        return self.bits.nbytes + self.ends.nbytes + self.alive.nbytes + self.check.nbytes + self.odd.nbytes

    # ---- building

    def refuse(self, slot: int, side: AttributeBuckets, runs: Iterable[tuple[int, int]]) -> None:
        block, word, bit = _place(slot)
        for first, last in runs:
            self.bits[block, side.base + first : side.base + last + 1, word] |= bit

    def mark_edges(self, slot: int, side: AttributeBuckets, values: Values) -> None:
        """Record the buckets that a constraint divides, and its ends for the exact test."""
        rows = side.divide(values)
        if not rows:
            return
        block, word, bit = _place(slot)
        for row in rows:
            self.bits[block, side.edges + row, word] |= bit
        ends = side.ends(values)
        if ends is None:
            self.odd[slot // 64] |= bit
        else:
            plane = 2 * self.planes[side.name]
            self.ends[plane : plane + 2, slot] = ends

    # ---- events

    def match_ranges(self, attributes: Attributes) -> tuple[Words, Words]:
        """The slots that are not refused for an event with ranges, and those of them that are in doubt: all."""
        refused = np.zeros((self.blocks, WIDTH), dtype=np.uint64)
        for side in self.sides.values():
            value = attributes.get(side.name)
            first, last = side.find_rows(value) if isinstance(value, Range) else (side.cell(value).row,) * 2
            refused |= np.bitwise_and.reduce(self.bits[:, side.base + first : side.base + last + 1], axis=1)
        remaining = self.alive & ~refused.reshape(-1)
        return remaining, remaining

    def cells(self, batch: Batch) -> Cells:
        """The cells of a batch."""
        count, sides = len(batch), list(self.sides.values())
        rows = np.zeros((count, len(sides)), dtype=np.int64)
        inexact = np.zeros((count, len(sides)), dtype=bool)
        values = np.zeros((count, len(sides)))
        ranged: set[int] = set()
        for at, side in enumerate(sides):
            column = batch.columns.get(side.name)
            cells = side.cells(column, count)
            if cells is None:
                assert isinstance(column, list)
                ranged.update(event for event, value in enumerate(column) if isinstance(value, Range))
                cells = side.cells([None if isinstance(value, Range) else value for value in column], count)
                assert cells is not None
            rows[:, at], inexact[:, at], values[:, at] = cells[0] + side.base, cells[1], cells[2]
            side.doubtful = side.doubtful or bool(inexact[:, at].any())
        events, at_sides = np.nonzero(inexact)
        starts = np.searchsorted(events, np.arange(count + 1))
        bases = np.array([side.base for side in sides], dtype=np.int64)
        firsts = np.array([side.edges for side in sides], dtype=np.int64)
        planes = np.array([self.planes.get(side.name, 0) for side in sides], dtype=np.int64)
        picked = firsts[at_sides]
        edges = np.where(picked > 0, rows[events, at_sides] - bases[at_sides] + picked, 0)
        return Cells(rows, starts, edges, planes[at_sides], values[events, at_sides], sorted(ranged))

    def doubted_attributes(self) -> set[str]:
        """The attributes without edge rows for which some value was in doubt."""
        return {side.name for side in self.sides.values() if side.doubtful and not side.edges}

    def candidates(self, attributes: Iterable[str]) -> list[int]:
        """The slots without rows that may match an event with these attributes."""
        return [slot for name in ("", *attributes) for slot in self.rare.get(name, ())] if self.rare else []


class _AttributeWriter:
    """Writes all sets of one attribute into the table at once. The same set often occurs many times."""

    def __init__(self, name: str, slots: list[int], sets: list[Values]) -> None:
        numbers: dict[int, int] = {}
        self.which = np.array([numbers.setdefault(id(one), len(numbers)) for one in sets], dtype=np.int64)
        distinct = {id(one): one for one in sets}
        self.sets = [distinct[one] for one in numbers]
        self.slots = np.array(slots, dtype=np.int64)
        self.side = AttributeBuckets(name, bucket_borders("numbers", self.sets), bucket_borders("strings", self.sets))
        self.first = np.zeros(len(self.sets), dtype=np.int64)
        self.last = np.zeros(len(self.sets), dtype=np.int64)
        self.broken: list[int] = []
        """The sets with more than one run of rows."""
        for at, one in enumerate(self.sets):
            runs = self.side.runs(one)
            self.first[at], self.last[at] = (runs[0][0], runs[-1][1]) if runs else (1, 0)
            if len(runs) > 1:
                self.broken.append(at)
            self.side.divide(one)

    def write(self, table: BitmapTable) -> None:
        side = self.side
        rows = np.arange(side.rows, dtype=np.uint16)[:, None]
        first, last = (ends.astype(np.uint16)[self.which] for ends in (self.first, self.last))
        starts = np.searchsorted(self.slots, np.arange(table.blocks + 1) * SLOTS)
        for block in range(table.blocks):
            mine = slice(starts[block], starts[block + 1])
            slots = self.slots[mine] - block * SLOTS
            low = np.zeros(SLOTS, dtype=np.uint16)
            high = np.full(SLOTS, side.rows - 1, dtype=np.uint16)
            low[slots], high[slots] = first[mine], last[mine]
            refused = np.packbits((rows < low) | (rows > high), axis=1, bitorder="little")
            table.bits[block, side.base : side.base + side.rows] = refused.view(np.uint64)
        for at in self.broken:
            gaps = list(complement_runs(side.runs(self.sets[at]), side.rows))
            for slot in self.slots[self.which == at].tolist():
                table.refuse(slot, side, gaps)
        if side.edges:
            for slot, which in zip(self.slots.tolist(), self.which.tolist(), strict=True):
                table.mark_edges(slot, side, self.sets[which])


def _place(slot: int) -> tuple[int, int, Any]:
    block, rest = divmod(slot, SLOTS)
    return block, rest // 64, BITS[rest % 64]
