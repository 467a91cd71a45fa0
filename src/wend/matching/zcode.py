"""Z-codes: regions of an attribute space as bit strings (dmm, section IV-A, Figures 2 and 3).

A space is halved again and again, one attribute after the other. Each half has a bit, so a region is a string of bits.
Its parent is the string without the last bit, and a region contains another if its string is a prefix of the other's.
This module is independent of the DHT and of the join that use the strings as keys.

Differences from the paper:
- In Figure 2 the upper half begins at ⌈m⌉, so for an integral m both halves would contain m. Here it begins at
  ⌊m⌋ + 1.
- An attribute that cannot be halved further is skipped, so a coarse attribute does not stop the finer ones.
- The string of a box is the smallest region around it. Figure 3 stops at whole rounds; its string is a prefix of ours.
- Whether a region meets a box is decided by their sides. A prefix test of two strings has false positives, because a
  wide box has a short string.
"""

import heapq
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import msgspec

from wend.model.errors import ConfigError

Cells = tuple[int, int]
"""The first and the last cell of an interval."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class NumberDomain(msgspec.Struct, frozen=True):
    """Numbers between two bounds, in cells of a granularity. Numbers outside belong to the first or last cell."""

    low: int | float
    high: int | float
    granularity: int | float = 1

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.low, self.high, self.granularity))):
            raise ConfigError("a domain needs finite bounds and a finite granularity")
        if self.low > self.high or self.granularity <= 0:
            raise ConfigError(
                f"a domain needs bounds in order and a granularity above 0, got {self.low}, {self.high} and "
                f"{self.granularity}"
            )

    @property
    def cells(self) -> int:
        return self._cell_index(self.high) + 1

    def cell(self, value: int | float) -> int:
        """The cell of a value. A larger value never has a smaller cell."""
        if value <= self.low:
            return 0
        return self.cells - 1 if value >= self.high else self._cell_index(value)

    def _cell_index(self, value: int | float) -> int:
        return math.floor((Fraction(value) - Fraction(self.low)) / Fraction(self.granularity))


class TextDomain(msgspec.Struct, frozen=True):
    """Texts over an alphabet, in cells by their first characters.

    There is a cell for each text of at most `length` letters, in the order of texts. Any other text belongs to the cell
    of the last such text that is not above it."""

    length: int
    letters: str = LETTERS

    def __post_init__(self) -> None:
        if self.length < 1 or not self.letters or list(self.letters) != sorted(set(self.letters)):
            raise ConfigError("a domain of texts needs a length above 0 and letters in order, each once")

    @property
    def cells(self) -> int:
        return self._count_cells_below(0)

    def _count_cells_below(self, depth: int) -> int:
        """The number of cells that begin with a given text of `depth` letters, with its own."""
        base = len(self.letters)
        return sum(base**more for more in range(self.length - depth + 1))

    def cell(self, value: str) -> int:
        number = 0
        for depth, letter in enumerate(value[: self.length]):
            under = self._count_cells_below(depth + 1)
            at = bisect_left(self.letters, letter)
            if at < len(self.letters) and self.letters[at] == letter:
                number += 1 + at * under
            else:
                # It is above all texts that continue with a smaller letter, and below those with a larger one.
                return number + at * under
        return number


Domain = NumberDomain | TextDomain


class Box(NamedTuple):
    """An interval of cells for each attribute of a space."""

    sides: tuple[Cells, ...]

    def meets(self, other: "Box") -> bool:
        return all(a <= d and c <= b for (a, b), (c, d) in zip(self.sides, other.sides, strict=True))

    def contains(self, other: "Box") -> bool:
        return all(a <= c and d <= b for (a, b), (c, d) in zip(self.sides, other.sides, strict=True))

    @property
    def volume(self) -> int:
        return math.prod(high - low + 1 for low, high in self.sides)


def split_cells(cells: Cells) -> tuple[Cells, Cells]:
    """The two halves of Figure 2, the upper one after the middle."""
    middle = (cells[0] + cells[1]) // 2
    return (cells[0], middle), (middle + 1, cells[1])


def side_code(side: Cells, bounds: Cells) -> str:
    """Figure 2: the code of the smallest part of one attribute's domain that contains the side."""
    code = ""
    while bounds[0] < bounds[1]:
        lower, upper = split_cells(bounds)
        if side[1] <= lower[1]:
            code, bounds = f"{code}0", lower
        elif side[0] >= upper[0]:
            code, bounds = f"{code}1", upper
        else:
            break
    return code


def interleave(codes: Sequence[str]) -> str:
    """Figure 3: the codes interleaved bit by bit, up to the length of the shortest."""
    return "".join(bit for bits in zip(*codes, strict=False) for bit in bits)


class ZCodeSpace:
    """An attribute space: attributes in a fixed order, each with its domain."""

    def __init__(self, domains: Mapping[str, Domain]) -> None:
        if not domains:
            raise ConfigError("a space needs at least one attribute")
        self.names = tuple(sorted(domains))
        self.domains = tuple(domains[name] for name in self.names)
        self.whole = Box(tuple((0, domain.cells - 1) for domain in self.domains))

    def region(self, code: str) -> Box:
        """The cells of a region."""
        return self._find_region(code)[1]

    def code(self, box: Box) -> str:
        """The code of the smallest region around a box."""
        code, around, turn = "", self.whole, -1
        while (split := self._split_box(around, turn)) is not None:
            turn, lower, upper = split
            if lower.contains(box):
                code, around = f"{code}0", lower
            elif upper.contains(box):
                code, around = f"{code}1", upper
            else:
                break
        return code

    def cover(self, box: Box, limit: int) -> list[str]:
        """At most `limit` disjoint regions that cover the box together, in order.

        The region with the most cells outside the box is split first."""
        if limit < 1:
            raise ConfigError(f"a cover needs at least one region, got {limit}")
        start = self.code(box)
        turn, region = self._find_region(start)
        # The most waste first; ties are broken by code.
        waiting = [(-_cells_outside(region, box), start, turn, region)]
        done: list[str] = []
        while waiting and waiting[0][0] < 0:
            _, code, turn, region = heapq.heappop(waiting)
            split = self._split_box(region, turn)
            if split is None:
                done.append(code)
                continue
            now, lower, upper = split
            parts = [(f"{code}{bit}", half) for bit, half in (("0", lower), ("1", upper)) if half.meets(box)]
            if len(done) + len(waiting) + len(parts) > limit:
                done.append(code)
                continue
            for part, half in parts:
                heapq.heappush(waiting, (-_cells_outside(half, box), part, now, half))
        return sorted((*done, *(code for _, code, _, _ in waiting)))

    def _find_region(self, code: str) -> tuple[int, Box]:
        box, turn = self.whole, -1
        for bit in code:
            split = self._split_box(box, turn)
            if split is None or bit not in "01":
                raise ConfigError(f"{code!r} is not a region of this space")
            turn, lower, upper = split
            box = upper if bit == "1" else lower
        return turn, box

    def _split_box(self, box: Box, turn: int) -> tuple[int, Box, Box] | None:
        """The next attribute after `turn` that can be halved, and both halves of the box."""
        count = len(box.sides)
        for step in range(1, count + 1):
            at = (turn + step) % count
            low, high = box.sides[at]
            if low < high:
                lower, upper = split_cells((low, high))
                return at, _replace_side(box, at, lower), _replace_side(box, at, upper)
        return None


def _replace_side(box: Box, at: int, side: Cells) -> Box:
    return Box((*box.sides[:at], side, *box.sides[at + 1 :]))


def _cells_outside(region: Box, box: Box) -> int:
    """The number of cells of the region outside the box."""
    shared = math.prod(min(b, d) - max(a, c) + 1 for (a, b), (c, d) in zip(region.sides, box.sides, strict=True))
    return region.volume - shared
