"""An attribute space: the boxes and z-codes of filters and events, and the regions (dmm, sections IV-A and IV-C).

Boxes only place filters and events: the filter itself decides which events match. A constraint that is not a range
counts as the smallest range around it. The empty space has a single region, for filters that require no attribute.
"""

import math
import struct
from collections.abc import Mapping
from typing import TypeVar

from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.matching.values import Cuts, Values, before
from wend.matching.zcode import Box, Cells, NumberDomain, Space, TextDomain, side_code, woven
from wend.model.errors import ConfigError
from wend.model.events import Attributes, Range, Scalar, Value
from wend.model.keys import key_of

K = TypeVar("K")
V = TypeVar("V")
SpaceName = tuple[str, ...]
"""The attributes of a space, sorted."""

_HALF = 1 << 16
_SIGN = 1 << 63
_TEXTS = TextDomain(3)
_CACHED = 1 << 16
"""The limit of each cache here. Other peers may name any code, region or space."""


class WideDomain:
    """All values, for an attribute without a domain: numbers in the lower half of the cells, texts in the upper half.

    The sign, exponent and first bits of a number make its cell, so that small and large numbers differ. A truth value
    counts as 0 or 1."""

    cells = 2 * _HALF

    def cell(self, value: Scalar) -> int:
        if isinstance(value, str):
            return _HALF + _TEXTS.cell(value)
        try:
            (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))  # minus zero is zero
        except OverflowError:
            return _HALF - 1 if value > 0 else 0
        return int((~bits & (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN) >> 48)


_WIDE = WideDomain()


class _Side:
    """One attribute of a space: the cells of its values."""

    __slots__ = ("_cells", "_domain", "last_text", "whole")

    def __init__(self, domain: NumberDomain | WideDomain) -> None:
        self._cells: dict[Scalar, int] = {}
        self._domain = domain
        self.whole: Cells = (0, domain.cells - 1)
        self.last_text = domain.cells - 1 if isinstance(domain, WideDomain) else 0

    def cell(self, value: Scalar) -> int:
        """The cell of a value. In a domain of numbers, any other value belongs to the first cell."""
        cell = self._cells.get(value)
        if cell is None:
            cell = self._compute_cell(value)
            remember(self._cells, value, cell)
        return cell

    def _compute_cell(self, value: Scalar) -> int:
        if isinstance(value, float) and math.isnan(value):
            return 0
        if isinstance(self._domain, WideDomain):
            return self._domain.cell(value)
        return 0 if isinstance(value, str) else self._domain.cell(value)

    def of_value(self, value: Value) -> Cells:
        if not isinstance(value, Range):
            at = self.cell(value)
            return at, at
        text = isinstance(value.low, str) or isinstance(value.high, str)
        low = ("" if text else -math.inf) if value.low is None else value.low
        first = self.cell(low)
        if value.high is None:
            return first, self.last_text if text else self.cell(math.inf)
        return first, self.cell(value.high)

    def of_values(self, values: Values) -> Cells:
        """The smallest range around a set of values."""
        ends = [*map(self.cell, values.booleans)]
        if values.numbers:
            ends += self._of_cuts(values.numbers, self.cell(math.inf))
        if values.strings:
            ends += self._of_cuts(values.strings, self.last_text)
        return (min(ends), max(ends)) if ends else self.whole

    def _of_cuts(self, cuts: Cuts, endless: int) -> Cells:
        if len(cuts) % 2:
            return self.cell(cuts[0]), endless
        last = before(cuts[-1])
        return self.cell(cuts[0]), self.cell(cuts[-1] if last is None else last)


class AttributeSpace:
    """A space with its geometry. It caches codes, keys and regions."""

    __slots__ = ("_codes", "_keys", "_regions", "_sides", "_space", "name")

    def __init__(self, name: SpaceName, domains: Mapping[str, NumberDomain]) -> None:
        self.name = name
        own_domains = [domains.get(each, _WIDE) for each in name]
        self._sides = tuple(map(_Side, own_domains))
        # Only the numbers of cells matter to the regions.
        cells = {f"{at:04}": NumberDomain(0, domain.cells - 1) for at, domain in enumerate(own_domains)}
        self._space = Space(cells) if cells else None
        self._codes: dict[Box, str] = {}
        self._keys: dict[str, int] = {}
        self._regions: dict[str, Box | None] = {}

    def box_of(self, one: Conjunction) -> Box:
        """The box of a conjunction. An attribute that it does not require is unbounded."""
        values = one.allowed() if one.bindings else dict(one.values)
        sides = []
        for name, side in zip(self.name, self._sides, strict=True):
            allowed = values.get(name)
            sides.append(side.whole if allowed is None or allowed.absent else side.of_values(allowed))
        return Box(tuple(sides))

    def box_of_filter(self, filter_: Filter) -> Box:
        if len(filter_.conjunctions) == 1:
            return self.box_of(filter_.conjunctions[0])
        return Box(tuple([side.whole for side in self._sides]))

    def box_of_event(self, attributes: Attributes) -> Box:
        """The box of an event. An attribute that it lacks is unbounded."""
        return Box(
            tuple(
                [
                    side.of_value(attributes[name]) if name in attributes else side.whole
                    for name, side in zip(self.name, self._sides, strict=True)
                ]
            )
        )

    def shares(self, one: Conjunction) -> list[float]:
        """For each attribute, the share of its domain that a conjunction matches."""
        box = self.box_of(one)
        return [
            (high - low + 1) / (side.whole[1] + 1) for (low, high), side in zip(box.sides, self._sides, strict=True)
        ]

    def code(self, box: Box) -> str:
        """The z-code of a box, as Figure 3 weaves it."""
        code = self._codes.get(box)
        if code is None:
            code = woven([side_code(cells, side.whole) for cells, side in zip(box.sides, self._sides, strict=True)])
            remember(self._codes, box, code)
        return code

    def region(self, code: str) -> Box | None:
        """The cells of a region; None if the space has no such region."""
        if code in self._regions:
            return self._regions[code]
        region: Box | None = None
        try:
            if self._space is not None:
                region = self._space.region(code)
            elif not code:
                region = Box(())
        except ConfigError:
            pass
        remember(self._regions, code, region)
        return region

    def meets(self, code: str, box: Box) -> bool:
        region = self.region(code)
        return region is not None and region.meets(box)

    def children(self, code: str) -> tuple[str, str] | None:
        """The two halves of a region; None if it is a single cell."""
        region = self.region(code)
        if region is None or all(low == high for low, high in region.sides):
            return None
        return f"{code}0", f"{code}1"

    def key(self, code: str) -> int:
        """The key of a region."""
        key = self._keys.get(code)
        if key is None:
            key = key_of(place(self.name, code))
            remember(self._keys, code, key)
        return key


def place(space: SpaceName, code: str) -> str:
    """The text that names a region."""
    return f"{','.join(space)}|{code}"


def remember(cache: dict[K, V], key: K, value: V) -> None:
    """Add to a cache. A full one starts again."""
    if len(cache) >= _CACHED:
        cache.clear()
    cache[key] = value
