"""The bitmap table of a compiled index: for each row of each attribute, the conjunctions that it refuses.

Each conjunction has a slot, and a row has a bit for every slot that it refuses. So a conjunction costs nothing for
attributes that it does not constrain. An event has one row per attribute (`AttributeBuckets`); the slots that none of
these rows refuses remain. If a row is not exact for the event's value, a second row has bits for the few slots that
divide its bucket, and these are tested. Constraints that bits cannot express (bindings, rare attributes) are tested on
the conjunction itself.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wend.matching.batch import Batch
from wend.matching.batch_buckets import BatchBuckets
from wend.matching.buckets import AttributeBuckets, borders, constraints, others, required, with_rows
from wend.matching.conjunctions import Conjunction
from wend.matching.values import Values
from wend.model.events import Attributes, Range

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

WIDTH = 128
"""Words of a block: few enough that its rows stay in the cache for a batch, enough for fast sequential access."""

SLOTS = WIDTH * 64

BITS = tuple(np.uint64(1 << at) for at in range(64))
NO_STARTS, NO_INTS, NO_DOUBLES = np.zeros(2, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)


class BitmapTable:
    """The bits of all slots, built at once. `place` and `clear` change one slot."""

    def __init__(self, conjunctions: Sequence[Conjunction], doubted: Iterable[str] = ()) -> None:
        self.blocks = max(1, -(-len(conjunctions) // SLOTS))
        self.doubted = frozenset(doubted)
        self.sides: dict[str, AttributeBuckets] = {}
        self._columns: dict[str, BatchBuckets] = {}
        self.planes: dict[str, int] = {}
        self.height = 1
        """Row 0 refuses no slot."""
        fillings = [_Filling(name, *sets) for name, sets in with_rows(conjunctions).items()]
        for filling in fillings:
            self._add_side(filling.side)
        self.bits = np.zeros((self.blocks, self.height, WIDTH), dtype=np.uint64)
        self.alive, self.check, self.odd = (np.zeros(self.blocks * WIDTH, dtype=np.uint64) for _ in range(3))
        self.checks = 0
        self.ends = np.zeros((2 * len(self.planes), self.blocks * SLOTS))
        self.rare: dict[str, dict[int, None]] = {}
        """Slots without rows, by an attribute that they require; '' if they require none."""
        for filling in fillings:
            filling.fill(self)
        for slot, one in enumerate(conjunctions):
            self._register(slot, one)

    def _add_side(self, side: AttributeBuckets) -> None:
        side.base = self.height
        self.height += side.rows
        if side.begins_inside or side.name in self.doubted:
            side.edges = self.height
            self.height += side.rows
            self.planes[side.name] = len(self.planes)
        self.sides[side.name] = side
        self._columns[side.name] = BatchBuckets(side)

    # ---- one slot

    def place(self, slot: int, one: Conjunction) -> bool:
        """Put a conjunction into a slot. Returns whether all its attributes have rows."""
        while slot >= self.blocks * SLOTS:
            self._grow()
        for name, values in constraints(one):
            side = self.sides.get(name)
            if side is not None:
                self.refuse(slot, side, others(side.runs(values), side.rows))
                self.mark(slot, side, values)
        return self._register(slot, one)

    def clear(self, slot: int, one: Conjunction) -> None:
        block, word, bit = _place(slot)
        keep = ~bit
        for name, _ in constraints(one):
            side = self.sides.get(name)
            if side is None:
                continue
            self.bits[block, side.base : side.base + side.rows, word] &= keep
            if side.edges:
                self.bits[block, side.edges : side.edges + side.rows, word] &= keep
        at = slot // 64
        self.checks -= bool(self.check[at] & bit)
        for bits in (self.alive, self.check, self.odd):
            bits[at] &= keep
        if self.rare:
            self.rare.get(required(one), {}).pop(slot, None)

    def refuse(self, slot: int, side: AttributeBuckets, runs: Iterable[tuple[int, int]]) -> None:
        block, word, bit = _place(slot)
        for first, last in runs:
            self.bits[block, side.base + first : side.base + last + 1, word] |= bit

    def mark(self, slot: int, side: AttributeBuckets, values: Values) -> None:
        """Record the buckets that a constraint divides, and its ends for the exact test."""
        rows = side.note(values)
        if not rows or not side.edges:
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

    def _register(self, slot: int, one: Conjunction) -> bool:
        at, bit = slot // 64, BITS[slot % 64]
        rows = [name in self.sides for name, _ in constraints(one)]
        if not any(rows):
            self.rare.setdefault(required(one), {})[slot] = None
            return not rows
        self.alive[at] |= bit
        if one.bindings or not all(rows):
            self.check[at] |= bit
            self.checks += 1
        return all(rows)

    def _grow(self) -> None:
        """Double the number of blocks. Memory that is not yet written is not yet allocated."""
        more = 2 * self.blocks
        bits = np.zeros((more, self.height, WIDTH), dtype=np.uint64)
        bits[: self.blocks] = self.bits
        ends = np.zeros((2 * len(self.planes), more * SLOTS))
        ends[:, : self.blocks * SLOTS] = self.ends
        grown = [np.zeros(more * WIDTH, dtype=np.uint64) for _ in range(3)]
        for new, old in zip(grown, (self.alive, self.check, self.odd), strict=True):
            new[: len(old)] = old
        self.bits, self.ends, self.blocks = bits, ends, more
        self.alive, self.check, self.odd = grown

    def shrink(self, blocks: int) -> None:
        """Drop all blocks after the first `blocks`."""
        self.bits, self.ends = self.bits[:blocks], self.ends[:, : blocks * SLOTS]
        self.alive, self.check, self.odd = (bits[: blocks * WIDTH] for bits in (self.alive, self.check, self.odd))
        self.blocks = blocks

    @property
    def block_bytes(self) -> int:
        return (self.height + 3) * WIDTH * 8 + len(self.ends) * SLOTS * 8

    # ---- events

    def left(self, attributes: Attributes, used: int) -> tuple[Words, Words]:
        """The slots of the first `used` blocks that are not refused, and those of them that are in doubt. It uses
        no compiled code."""
        rows, edges, certain = [0], [0], True
        refused = np.zeros((used, WIDTH), dtype=np.uint64)
        for side in self.sides.values():
            value = attributes.get(side.name)
            if isinstance(value, Range):
                first, last = side.touched(value)
                refused |= np.bitwise_and.reduce(self.bits[:used, side.base + first : side.base + last + 1], axis=1)
                certain = False
                continue
            row, exact, _ = side.cell(value)
            rows.append(side.base + row)
            if not exact:
                side.doubtful = True
                certain = certain and bool(side.edges)
                edges.append(side.edges + row)
        size = used * WIDTH
        refused |= np.bitwise_or.reduce(self.bits[:used, rows], axis=1)
        left = self.alive[:size] & ~refused.reshape(size)
        if not certain:
            return left, left
        doubt = self.check[:size]
        if len(edges) > 1:
            doubt = doubt | np.bitwise_or.reduce(self.bits[:used, edges], axis=1).reshape(size)
        return left, left & doubt

    def meeting(self, one: Conjunction, used: int) -> Words:
        """The slots of the first `used` blocks that share a row with this conjunction on every attribute. They are
        candidates for an intersection."""
        refused = np.zeros((used, WIDTH), dtype=np.uint64)
        for name, values in constraints(one):
            side = self.sides.get(name)
            if side is not None:
                apart = np.full((used, WIDTH), ~np.uint64(0))
                for first, last in side.runs(values):
                    rows = self.bits[:used, side.base + first : side.base + last + 1]
                    apart &= np.bitwise_and.reduce(rows, axis=1)
                refused |= apart
        return self.alive[: used * WIDTH] & ~refused.reshape(used * WIDTH)

    def cells(self, batch: Batch) -> "Cells":
        """The cells of a batch. Events with ranges are listed in `ranged`; their cells ignore the ranges."""
        count, sides = len(batch), list(self.sides.values())
        rows = np.zeros((count, len(sides)), dtype=np.int64)
        inexact = np.zeros((count, len(sides)), dtype=bool)
        values = np.zeros((count, len(sides)))
        ranged: set[int] = set()
        for at, side in enumerate(sides):
            column, buckets = batch.columns.get(side.name), self._columns[side.name]
            column_cells = buckets.cells(column, count)
            if column_cells is None:
                assert isinstance(column, list)
                ranged.update(event for event, value in enumerate(column) if isinstance(value, Range))
                column_cells = buckets.cells([None if isinstance(value, Range) else value for value in column], count)
                assert column_cells is not None
            rows[:, at] = column_cells[0] + side.base
            inexact[:, at] = column_cells[1]
            values[:, at] = column_cells[2]
            side.doubtful = side.doubtful or bool(column_cells[1].any())
        events, at_sides = np.nonzero(inexact)
        starts = np.searchsorted(events, np.arange(count + 1))
        bases = np.array([side.base for side in sides], dtype=np.int64)
        firsts = np.array([side.edges for side in sides], dtype=np.int64)
        planes = np.array([self.planes.get(side.name, 0) for side in sides], dtype=np.int64)
        picked = firsts[at_sides]
        edges = np.where(picked > 0, rows[events, at_sides] - bases[at_sides] + picked, 0)
        return Cells(rows, starts, edges, planes[at_sides], values[events, at_sides], sorted(ranged))

    def cells_of(self, attributes: Attributes) -> "Cells | None":
        """The cells of one event; None if it has a range."""
        rows: list[int] = []
        doubts: list[tuple[int, int, float]] = []
        for side in self.sides.values():
            value = attributes.get(side.name)
            if isinstance(value, Range):
                return None
            row, exact, number = side.cell(value)
            rows.append(side.base + row)
            if not exact:
                side.doubtful = True
                doubts.append((side.edges + row if side.edges else 0, self.planes.get(side.name, 0), number))
        table_rows = np.array([rows], dtype=np.int64)
        if not doubts:
            return Cells(table_rows, NO_STARTS, NO_INTS, NO_INTS, NO_DOUBLES, [])
        edges, planes, values = zip(*doubts, strict=True)
        ints = np.array([(0, len(doubts)), *zip(edges, planes, strict=True)], dtype=np.int64)
        return Cells(table_rows, ints[0], ints[1:, 0].copy(), ints[1:, 1].copy(), np.array(values), [])

    def doubts(self) -> set[str]:
        """The attributes without edges for which some value was in doubt."""
        return {side.name for side in self.sides.values() if side.doubtful and not side.edges}

    def candidates(self, attributes: Iterable[str]) -> list[int]:
        """The slots without rows that may match an event with these attributes."""
        if not self.rare:
            return []
        return [slot for name in ("", *attributes) for slot in self.rare.get(name, ())]

    def without_rows(self) -> list[int]:
        return [slot for slots in self.rare.values() for slot in slots]


class Cells:
    """Events as rows of the table. `kernels.settle` describes the arrays."""

    def __init__(
        self, rows: Ints, starts: Ints, edges: Ints, planes: Ints, values: NDArray[np.float64], ranged: list[int]
    ) -> None:
        self.rows, self.starts, self.edges, self.planes = rows, starts, edges, planes
        self.values, self.ranged = values, ranged


class _Filling:
    """Writes all sets of one attribute into the table at once. The same set often occurs many times."""

    def __init__(self, name: str, slots: list[int], sets: list[Values]) -> None:
        known: dict[int, int] = {}
        self.which = np.array([known.setdefault(id(one), len(known)) for one in sets], dtype=np.int64)
        distinct = {id(one): one for one in sets}
        self.sets = [distinct[one] for one in known]
        self.slots = np.array(slots, dtype=np.int64)
        self.side = AttributeBuckets(name, borders("numbers", self.sets), borders("strings", self.sets), 0)
        self.first = np.zeros(len(self.sets), dtype=np.int64)
        self.last = np.zeros(len(self.sets), dtype=np.int64)
        self.broken: list[int] = []
        """The sets with more than one run of rows."""
        for at, one in enumerate(self.sets):
            runs = self.side.runs(one)
            self.first[at], self.last[at] = (runs[0][0], runs[-1][1]) if runs else (1, 0)
            if len(runs) > 1:
                self.broken.append(at)
            self.side.note(one)

    def fill(self, table: BitmapTable) -> None:
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
            gaps = list(others(side.runs(self.sets[at]), side.rows))
            for slot in self.slots[self.which == at].tolist():
                table.refuse(slot, side, gaps)
        if side.edges:
            for slot, which in zip(self.slots.tolist(), self.which.tolist(), strict=True):
                table.mark(slot, side, self.sets[which])


def _place(slot: int) -> tuple[int, int, Any]:
    block, rest = divmod(slot, SLOTS)
    return block, rest // 64, BITS[rest % 64]
