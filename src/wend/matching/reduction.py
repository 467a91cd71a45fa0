"""The filters that no other one covers, for very many at once.

Pairwise covering is quadratic. A conjunction that covers another constrains only attributes that the other
constrains too, so filters are grouped by what they constrain, and each group looks only at groups with less. Inside,
"contains this interval" is a row of bits: for each value of an attribute, which filters begin at or before it and
which end at or after it. One `and` over a few rows tests a filter against thousands.

Wide filters come first, and only those that stay are kept as rows: covering is transitive, so nothing is missed.
Where an attribute has more values than rows, or a side is more than one interval, the bits only propose and an
exact test decides.
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
"""Values of one attribute that are told apart by bits."""

Ints = NDArray[np.int64]
Key = tuple[str, str]


def uncovered(filters: Sequence[Filter]) -> list[int]:
    """Positions of the filters that no other one covers, in order. Of equal ones the first stays.

    Exact for conjunctions. A disjunction stays unless it equals an earlier filter, and what matches nothing goes."""
    first: dict[Filter, int] = {}
    for at, one in enumerate(filters):
        first.setdefault(one, at)
    single = {at: one.conjunctions[0] for one, at in first.items() if len(one.conjunctions) == 1}
    kept = [at for one, at in first.items() if len(one.conjunctions) > 1]
    plain = _Boxes([(at, one) for at, one in single.items() if not one.bindings])
    kept.extend(plain.survivors())
    # A binding is implied by the same binding only, so these are few; they are asked one by one.
    bound = [(at, one) for at, one in single.items() if one.bindings]
    rest = [(at, one) for at, one in bound if not plain.cover(one)]
    kept.extend(at for at, one in rest if not any(_before(a, o, at, one) for a, o in rest if a != at))
    return sorted(kept)


def _before(a: int, other: Conjunction, at: int, one: Conjunction) -> bool:
    return other.covers(one) and (a < at or not one.covers(other))


def _sides(conjunction: Conjunction) -> Iterator[tuple[Key, Any, Any, bool]]:
    """Each constraint as a key with its hull, and whether the hull says all.

    Whatever has a kind also exists, so `x exists` finds all that it covers among the keys."""
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
    """Orders boxes of one hull: what holds more of it has a higher number. Zero for a box that is its hull."""
    total = 0
    for _, values in conjunction.values:
        for cuts in (values.numbers, values.strings):
            holes = listed(gaps(cuts), MAX_SET) if len(cuts) > 2 else []
            total += -len(holes) if holes is not None else len(listed(cuts, 4 * MAX_SET) or ()) - (1 << 32)
    return total


class _Side(NamedTuple):
    """One key's intervals over all filters, as codes that keep the order."""

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
    """Conjunctions without bindings, in groups of equal keys."""

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
        kept: list[int] = []
        # Fewer keys first: what covers has at most as many.
        for mask in sorted(self.groups, key=lambda m: (m.bit_count(), m)):
            kept.extend(self._reduced(mask))
        return [self.known[member][0] for member in kept]

    def cover(self, one: Conjunction) -> bool:
        """Whether one of the boxes that stayed covers a conjunction that is not among them."""
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
        """The groups with no other keys than these, found by their lowest key."""
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
        kept: list[int] = []
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
                kept.extend(int(member) for member in block)
        return kept

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
        """Which of the block are covered by one of the tile; `own` where the tile is the block itself."""
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
            # Filters are distinct, so no two of one group are the same box: what contains is truly larger.
            return np.asarray(found.any(axis=1))
        return self._decided(block, tile, found)

    def _decided(self, block: Ints, tile: _Tile, found: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """The same, where the bits only propose."""
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
            # Whoever is one interval holds all of what lies between its ends; the others are asked exactly.
            mine = self.known[me][1]
            covered[at] = self.plain[members].any() or any(self.known[other][1].covers(mine) for other in members)
        return covered


def _coded(size: int, members: list[int], lows: list[Any], highs: list[Any]) -> _Side:
    """Ends as their ranks: numbers of any size and texts become small integers in the same order."""
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
    """None is the end of the kind, above all."""
    order = {value: rank for rank, value in enumerate(sorted({v for v in ends if v is not None}))}
    order[None] = len(order)
    return np.array([order[value] for value in ends], dtype=np.int64), len(order)


def _rows(codes: Ints, count: int) -> tuple[Ints, bool]:
    """Codes as rows of a table: one each where they are few, else equally filled ones."""
    if count <= ROWS:
        return codes, True
    borders = np.unique(np.quantile(codes, np.arange(1, ROWS) / ROWS, method="lower"))
    return np.searchsorted(borders, codes, side="right"), False


def _packed(table: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Rows of truth values as rows of 64-bit words, the first value in the lowest bit."""
    rows, columns = table.shape
    padded = np.zeros((rows, -(-columns // 64) * 64), dtype=bool)
    padded[:, :columns] = table
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)
