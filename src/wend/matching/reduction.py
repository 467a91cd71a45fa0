"""Reduction of a set of filters to those that no other one covers, for very many filters.

Testing all pairs is quadratic. A conjunction that covers another constrains only attributes that the other constrains,
too. So filters are grouped by their constrained attributes, and each group is tested only against groups with a subset
of them. Within a group, "contains this interval" is a row of bits: for each value of an attribute, the filters that
begin at or before it and those that end at or after it. A row is one Python integer, and one `and` over a few rows
tests a filter against thousands.

Wide filters come first, and only uncovered ones become rows; covering is transitive, so that is enough. If an attribute
has more values than rows, or a side is more than one interval, the bits give candidates and an exact test decides.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.matching.printer import MAX_SET
from wend.matching.values import PRESENT, Values, gaps, listed

BLOCK = 2048
ROWS = 256
"""The number of values of one attribute that have a row each."""

Key = tuple[str, str]


def uncovered(filters: Sequence[Filter]) -> list[int]:
    """The positions of the filters that no other one covers, in order. Of equal filters the first stays.

    It is exact for conjunctions. A disjunction stays unless it equals an earlier filter. A filter that matches nothing
    does not stay."""
    first: dict[Filter, int] = {}
    for at, one in enumerate(filters):
        first.setdefault(one, at)
    disjunctions = [at for one, at in first.items() if len(one.conjunctions) > 1]
    single = [(at, one.conjunctions[0]) for one, at in first.items() if len(one.conjunctions) == 1]
    boxes = _Boxes([(at, one) for at, one in single if not one.bindings])
    survivors = boxes.survivors()
    bound = [(at, one) for at, one in single if one.bindings and not boxes.cover(one)]
    return sorted([*disjunctions, *survivors, *_uncovered_bound(bound)])


def _uncovered_bound(bound: list[tuple[int, Conjunction]]) -> list[int]:
    """Of conjunctions with bindings, those that no other one covers. They are few, so each pair is tested."""

    def is_covered(at: int, one: Conjunction) -> bool:
        others = [(place, other) for place, other in bound if place != at and other.covers(one)]
        return any(place < at or not one.covers(other) for place, other in others)

    return [at for at, one in bound if not is_covered(at, one)]


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
    """The intervals of all filters for one key, by filter, as codes that preserve the order."""

    lows: dict[int, int]
    highs: dict[int, int]
    low_rows: dict[int, int]
    high_rows: dict[int, int]
    rows: int
    exact: bool


class _Tile(NamedTuple):
    """Up to `BLOCK` filters of one group, as bits: for each key and row, those that begin and end around it."""

    members: list[int]
    tables: tuple[tuple[int, list[int], list[int]], ...]


class _Boxes:
    """Conjunctions without bindings, grouped by their keys."""

    def __init__(self, known: list[tuple[int, Conjunction]]) -> None:
        self.known = known
        self.bits: dict[Key, int] = {}
        self.tiles: dict[int, list[_Tile]] = {}
        self.groups: dict[int, list[int]] = defaultdict(list)
        self.plain = [True] * len(known)
        self.fill = [0] * len(known)
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
        self.sides = {bit: _coded(*found) for bit, found in ends.items()}
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
        masks = [0] if 0 in self.tiles else []
        left = mask
        while left:
            lowest = left & -left
            left ^= lowest
            masks.extend(m for m in self.by_lowest.get(lowest, ()) if m & ~mask == 0)
        return sorted(masks, key=lambda m: (m.bit_count(), m))

    def _reduced(self, mask: int) -> list[int]:
        bits = [bit for bit in range(mask.bit_length()) if mask >> bit & 1 and bit in self.sides]
        sides = [self.sides[bit] for bit in bits]
        width = {m: sum(side.highs[m] - side.lows[m] for side in sides) for m in self.groups[mask]}
        members = sorted(self.groups[mask], key=lambda m: (-width[m], -self.fill[m], m))
        below = self._below(mask)
        uncovered: list[int] = []
        self.tiles[mask] = []
        if mask:
            self.by_lowest[mask & -mask].append(mask)
        for start in range(0, len(members), BLOCK):
            block = members[start : start + BLOCK]
            for other in (*below, mask):
                for tile in self.tiles[other]:
                    block = self._left(block, tile, own=False)
            if block:
                block = self._left(block, self._tile(block, bits), own=True)
                self.tiles[mask].append(self._tile(block, bits))
                uncovered.extend(block)
        return uncovered

    def _tile(self, members: list[int], bits: list[int]) -> _Tile:
        tables = []
        for bit in bits:
            side = self.sides[bit]
            begins, ends = [0] * side.rows, [0] * side.rows
            for at, member in enumerate(members):
                begins[side.low_rows[member]] |= 1 << at
                ends[side.high_rows[member]] |= 1 << at
            for row in range(1, side.rows):
                begins[row] |= begins[row - 1]
            for row in range(side.rows - 2, -1, -1):
                ends[row] |= ends[row + 1]
            tables.append((bit, begins, ends))
        return _Tile(members, tuple(tables))

    def _left(self, block: list[int], tile: _Tile, own: bool) -> list[int]:
        """The members of the block that none of the tile covers. `own`: the tile is the block itself."""
        sides = [(self.sides[bit], begins, ends) for bit, begins, ends in tile.tables]
        exact = all(side.exact for side, _, _ in sides) and all(self.plain[member] for member in tile.members)
        all_ = (1 << len(tile.members)) - 1
        left = []
        for at, member in enumerate(block):
            coverers = all_ & ~(1 << at) if own else all_
            for side, begins, ends in sides:
                coverers &= begins[side.low_rows[member]] & ends[side.high_rows[member]]
            # All filters are distinct, so no two boxes of a group are equal: a containing box is larger.
            if not coverers or not (exact or self._decided(member, tile, coverers)):
                left.append(member)
        return left

    def _decided(self, me: int, tile: _Tile, coverers: int) -> bool:
        """Whether one of the candidates that the bits give covers a filter, by an exact test."""
        members = []
        while coverers:
            lowest = coverers & -coverers
            coverers ^= lowest
            members.append(tile.members[lowest.bit_length() - 1])
        for bit, *_ in tile.tables:
            side = self.sides[bit]
            low, high = side.lows[me], side.highs[me]
            members = [each for each in members if side.lows[each] <= low and side.highs[each] >= high]
        # A box of single intervals contains everything between its ends; the others are tested exactly.
        mine = self.known[me][1]
        return any(self.plain[each] for each in members) or any(self.known[each][1].covers(mine) for each in members)


def _coded(members: list[int], lows: list[Any], highs: list[Any]) -> _Side:
    """Replace ends by their ranks: numbers of any size and texts become small integers in the same order."""
    low_codes, low_count = _ranks(lows)
    high_codes, high_count = _ranks(highs)
    low_rows, low_exact = _rows(low_codes, low_count)
    high_rows, high_exact = _rows(high_codes, high_count)

    def by_member(codes: list[int]) -> dict[int, int]:
        return dict(zip(members, codes, strict=True))

    count = min(ROWS, max(low_count, high_count))
    return _Side(
        by_member(low_codes), by_member(high_codes), by_member(low_rows), by_member(high_rows), count,
        low_exact and high_exact,
    )  # fmt: skip


def _ranks(ends: list[Any]) -> tuple[list[int], int]:
    """The rank of each end. None, the upper end of a kind, is above all others."""
    order: dict[Any, int] = {v: rank for rank, v in enumerate(sorted({v for v in ends if v is not None}))}
    order[None] = len(order)
    return [order[value] for value in ends], len(order)


def _rows(codes: list[int], count: int) -> tuple[list[int], bool]:
    """The rows of codes: one row per code if they are few, else rows with about the same number of filters."""
    if count <= ROWS:
        return codes, True
    ordered = sorted(codes)
    borders = sorted({ordered[(len(ordered) - 1) * i // ROWS] for i in range(1, ROWS)})
    return [bisect_right(borders, code) for code in codes], False
