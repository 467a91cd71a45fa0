"""Reduction of a set of filters to those that no other one covers, for very many filters.

Testing all pairs is quadratic. A conjunction that covers another constrains only attributes that the other constrains,
too. So filters are grouped by their constrained attributes, and each group is tested only against groups with a subset
of them. Within a group, "contains this interval" is a row of bits: for each value of an attribute, the filters that
begin at or before it and those that end at or after it. One `and` over a few rows tests a filter against thousands.

Wide filters come first, and only uncovered ones become rows; covering is transitive, so that is enough. If an attribute
has more values than rows, or a side is more than one interval, the bits give candidates and an exact test decides.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.matching.printer import MAX_SET
from wend.matching.values import PRESENT, Values, gaps, listed

BLOCK = 2048
ROWS = 256
"""The number of values of one attribute that have a row each."""

Ints = NDArray[np.int64]
Key = tuple[str, str]


def uncovered(filters: Sequence[Filter]) -> list[int]:
    """The positions of the filters that no other one covers, in order. Of equal filters the first stays.

    It is exact for conjunctions. A disjunction stays unless it equals an earlier filter. A filter that matches nothing
    does not stay."""
    first: dict[Filter, int] = {}
    for at, one in enumerate(filters):
        first.setdefault(one, at)
    single = {at: one.conjunctions[0] for one, at in first.items() if len(one.conjunctions) == 1}
    left = [at for one, at in first.items() if len(one.conjunctions) > 1]
    plain = _Boxes([(at, one) for at, one in single.items() if not one.bindings])
    left.extend(plain.survivors())
    # Conjunctions with bindings are few: they are tested one by one.
    bound = [(at, one) for at, one in single.items() if one.bindings]
    rest = [(at, one) for at, one in bound if not plain.cover(one)]
    left.extend(at for at, one in rest if not any(_before(a, o, at, one) for a, o in rest if a != at))
    return sorted(left)


def _before(a: int, other: Conjunction, at: int, one: Conjunction) -> bool:
    return other.covers(one) and (a < at or not one.covers(other))


def _sides(conjunction: Conjunction) -> Iterator[tuple[Key, Any, Any, bool]]:
    """Each constraint as a key with its hull, and whether the constraint equals the hull.

    A constraint on the values of `x` also has the key of `x exists`, so `x exists` finds all that it covers."""
    for name, values in conjunction.values:
        yield (name, "absent" if values.absent else "exists"), None, None, True
        if values == PRESENT or values.absent:
            continue
        yield from _side(name, values)


def _side(name: str, values: Values) -> Iterator[tuple[Key, Any, Any, bool]]:
    if values.booleans:
        yield (name, "boolean"), values.booleans[0], values.booleans[-1], True
    for kind, cuts in (("number", values.numbers), ("string", values.strings)):
        if cuts:
            yield (name, kind), cuts[0], cuts[-1] if len(cuts) % 2 == 0 else None, len(cuts) <= 2


def _missing(conjunction: Conjunction) -> int:
    """An order of boxes with the same hull: a box with more of the hull has a higher number. 0 for the hull itself."""
    total = 0
    for _, values in conjunction.values:
        for cuts in (values.numbers, values.strings):
            holes = listed(gaps(cuts), MAX_SET) if len(cuts) > 2 else []
            total += -len(holes) if holes is not None else len(listed(cuts, 4 * MAX_SET) or ()) - (1 << 32)
    return total


class _Side(NamedTuple):
    """The intervals of all filters for one key, as codes that preserve the order."""

    lows: Ints
    highs: Ints
    low_rows: Ints
    high_rows: Ints
    rows: int
    exact: bool


class _Tile(NamedTuple):
    """Up to `BLOCK` filters of one group, as bits."""

    members: Ints
    tables: tuple[tuple[int, NDArray[np.uint64], NDArray[np.uint64]], ...]


class _Boxes:
    """Conjunctions without bindings, grouped by their keys."""

    def __init__(self, known: list[tuple[int, Conjunction]]) -> None:
        self.known = known
        self.bits: dict[Key, int] = {}
        self.tiles: dict[int, list[_Tile]] = {}
        self.groups: dict[int, list[int]] = defaultdict(list)
        self.plain = np.ones(len(known), dtype=bool)
        self.fill = np.zeros(len(known), dtype=np.int64)
        ends: dict[int, tuple[list[int], list[Any], list[Any]]] = {}
        for member, (_, one) in enumerate(known):
            mask = 0
            for key, low, high, exact in _sides(one):
                bit = self.bits.setdefault(key, len(self.bits))
                mask |= 1 << bit
                if key[1] not in ("exists", "absent"):
                    members, lows, highs = ends.setdefault(bit, ([], [], []))
                    members.append(member)
                    lows.append(low)
                    highs.append(high)
                    if not exact:
                        self.plain[member] = False
                        self.fill[member] = _missing(one)
            self.groups[mask].append(member)
        self.sides = {bit: _coded(len(known), *found) for bit, found in ends.items()}
        self.by_lowest: dict[int, list[int]] = defaultdict(list)

    def survivors(self) -> list[int]:
        left: list[int] = []
        # Groups with fewer keys come first: a covering box has at most as many keys.
        for mask in sorted(self.groups, key=lambda m: (m.bit_count(), m)):
            left.extend(self._reduced(mask))
        return [self.known[member][0] for member in left]

    def cover(self, one: Conjunction) -> bool:
        """Whether one of the uncovered boxes covers another conjunction."""
        mask = 0
        for name, values in one.allowed().items():
            for key, *_ in _sides(Conjunction(((name, values),))):
                mask |= 1 << self.bits[key] if key in self.bits else 0
        return any(
            self.known[member][1].covers(one)
            for below in self._below(mask)
            for tile in self.tiles[below]
            for member in tile.members
        )

    def _below(self, mask: int) -> list[int]:
        """The groups whose keys are a subset of these, found by their lowest key."""
        found = [0] if 0 in self.tiles else []
        left = mask
        while left:
            lowest = left & -left
            left ^= lowest
            found.extend(m for m in self.by_lowest.get(lowest, ()) if m & ~mask == 0)
        return sorted(found, key=lambda m: (m.bit_count(), m))

    def _reduced(self, mask: int) -> list[int]:
        bits = [bit for bit in range(mask.bit_length()) if mask >> bit & 1 and bit in self.sides]
        members = np.array(self.groups[mask], dtype=np.int64)
        width = np.zeros(len(members), dtype=np.int64)
        for bit in bits:
            width += self.sides[bit].highs[members] - self.sides[bit].lows[members]
        members = members[np.lexsort((members, -self.fill[members], -width))]
        below = self._below(mask)
        uncovered: list[int] = []
        self.tiles[mask] = []
        if mask:
            self.by_lowest[mask & -mask].append(mask)
        for start in range(0, len(members), BLOCK):
            block = members[start : start + BLOCK]
            for other in (*below, mask):
                for tile in self.tiles[other]:
                    block = block[~self._covered(block, tile, own=False)]
                    if not len(block):
                        break
            if len(block):
                block = block[~self._covered(block, self._tile(block, bits), own=True)]
                self.tiles[mask].append(self._tile(block, bits))
                uncovered.extend(int(member) for member in block)
        return uncovered

    def _tile(self, members: Ints, bits: list[int]) -> _Tile:
        tables = []
        for bit in bits:
            side = self.sides[bit]
            rows = np.arange(side.rows)[:, None]
            begins = side.low_rows[members][None, :] <= rows
            ends = side.high_rows[members][None, :] >= rows
            tables.append((bit, _packed(begins), _packed(ends)))
        return _Tile(members, tuple(tables))

    def _covered(self, block: Ints, tile: _Tile, own: bool) -> NDArray[np.bool_]:
        """Whether each member of the block is covered by one of the tile. `own`: the tile is the block itself."""
        found = np.zeros((len(block), -(-len(tile.members) // 64)), dtype=np.uint64)
        found |= _packed(np.ones((1, len(tile.members)), dtype=bool))
        exact = bool(self.plain[tile.members].all())
        for bit, begins, ends in tile.tables:
            side = self.sides[bit]
            found &= begins[side.low_rows[block]]
            found &= ends[side.high_rows[block]]
            exact = exact and side.exact
        if own:
            me = np.arange(len(block))
            found[me, me // 64] &= ~(np.uint64(1) << (me % 64).astype(np.uint64))
        if exact:
            # All filters are distinct, so no two boxes of a group are equal: a containing box is larger.
            return np.asarray(found.any(axis=1))
        return self._decided(block, tile, found)

    def _decided(self, block: Ints, tile: _Tile, found: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """`_covered` by an exact test of the candidates that the bits give."""
        covered = np.zeros(len(block), dtype=bool)
        proposed = np.nonzero(found.any(axis=1))[0]
        for at in proposed:
            bits = np.unpackbits(found[at].view(np.uint8), bitorder="little")
            members = tile.members[np.nonzero(bits)[0]]
            me = block[at]
            for bit, *_ in tile.tables:
                side = self.sides[bit]
                fits = (side.lows[members] <= side.lows[me]) & (side.highs[members] >= side.highs[me])
                members = members[fits]
            # A box of single intervals contains everything between its ends; the others are tested exactly.
            mine = self.known[me][1]
            covered[at] = self.plain[members].any() or any(self.known[other][1].covers(mine) for other in members)
        return covered


def _coded(size: int, members: list[int], lows: list[Any], highs: list[Any]) -> _Side:
    """Replace ends by their ranks: numbers of any size and texts become small integers in the same order."""
    low_codes, low_count = _ranks(lows)
    high_codes, high_count = _ranks(highs)
    low_rows, low_exact = _rows(low_codes, low_count)
    high_rows, high_exact = _rows(high_codes, high_count)

    def spread(codes: Ints) -> Ints:
        full = np.zeros(size, dtype=np.int64)
        full[members] = codes
        return full

    count = min(ROWS, max(low_count, high_count))
    return _Side(
        spread(low_codes), spread(high_codes), spread(low_rows), spread(high_rows), count, low_exact and high_exact
    )


def _ranks(ends: list[Any]) -> tuple[Ints, int]:
    """The rank of each end. None, the upper end of a kind, is above all others."""
    order = {value: rank for rank, value in enumerate(sorted({v for v in ends if v is not None}))}
    order[None] = len(order)
    return np.array([order[value] for value in ends], dtype=np.int64), len(order)


def _rows(codes: Ints, count: int) -> tuple[Ints, bool]:
    """The rows of codes: one row per code if they are few, else rows with about the same number of filters."""
    if count <= ROWS:
        return codes, True
    borders = np.unique(np.quantile(codes, np.arange(1, ROWS) / ROWS, method="lower"))
    return np.searchsorted(borders, codes, side="right"), False


def _packed(table: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Pack rows of truth values into 64-bit words, the first value in the lowest bit."""
    rows, columns = table.shape
    padded = np.zeros((rows, -(-columns // 64) * 64), dtype=bool)
    padded[:, :columns] = table
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)
