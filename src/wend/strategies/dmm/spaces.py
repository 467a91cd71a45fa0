"""Attribute spaces: where filters and events belong, as boxes and z-codes (dmm, sections IV-A and IV-C).

A space is a tuple of attribute names, sorted. Two strategies choose them:

    GlobalSpace     `dmm`: one space with all attributes that have a domain
    AttributeRoots  `dmm-ar`: a space for each set of attributes that some filter requires, and a space of one dimension
                    for each attribute, in which events are published

Boxes only place filters and events: what matches is decided by the filter itself. A constraint that is no range counts
as the smallest range around it. The empty space has a single region; filters that require no attribute belong there.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
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

_HALF = 1 << 16
_SIGN = 1 << 63
_TEXTS = TextDomain(3)
_CACHED = 1 << 16
"""Codes and regions that a space remembers, and spaces that there are, at most: others may name any."""


class WideDomain:
    """All values, for an attribute without a domain: numbers in the lower half of the cells, texts in the upper half.

    A number's cell are its sign, exponent and first bits, so that small and large numbers differ. A truth value counts
    as 0 or 1."""

    cells = 2 * _HALF

    def cell(self, value: Scalar) -> int:
        if isinstance(value, str):
            return _HALF + _TEXTS.cell(value)
        try:
            (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))  # minus zero is zero
        except OverflowError:
            return _HALF - 1 if value > 0 else 0
        return int((~bits & (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN) >> 48)


class _Side:
    """One attribute of a space: the cells of its values."""

    __slots__ = ("_cells", "_domain", "last_text", "whole")

    def __init__(self, domain: NumberDomain | WideDomain) -> None:
        self._cells: dict[Scalar, int] = {}
        self._domain = domain
        self.whole: Cells = (0, domain.cells - 1)
        self.last_text = domain.cells - 1 if isinstance(domain, WideDomain) else 0

    def cell(self, value: Scalar) -> int:
        """In a domain of numbers, what is no number belongs to the first cell."""
        found = self._cells.get(value)
        if found is None:
            found = self._cell(value)
            _remember(self._cells, value, found)
        return found

    def _cell(self, value: Scalar) -> int:
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
    """A space with its geometry, and what peers ask of it again and again."""

    __slots__ = ("_codes", "_keys", "_regions", "_sides", "_space", "name")

    def __init__(self, name: SpaceName, domains: Mapping[str, NumberDomain]) -> None:
        self.name = name
        known = [domains.get(each, _WIDE) for each in name]
        self._sides = tuple(map(_Side, known))
        # Only the numbers of cells matter to the regions.
        cells = {f"{at:04}": NumberDomain(0, domain.cells - 1) for at, domain in enumerate(known)}
        self._space = Space(cells) if cells else None
        self._codes: dict[Box, str] = {}
        self._keys: dict[str, int] = {}
        self._regions: dict[str, Box | None] = {}

    def box_of(self, one: Conjunction) -> Box:
        """The box of a conjunction. An attribute that it does not require is unbounded."""
        values = one.allowed() if one.bindings else dict(one.values)
        sides = []
        for name, side in zip(self.name, self._sides, strict=True):
            known = values.get(name)
            sides.append(side.whole if known is None or known.absent else side.of_values(known))
        return Box(tuple(sides))

    def box_of_filter(self, wanted: Filter) -> Box:
        if len(wanted.conjunctions) == 1:
            return self.box_of(wanted.conjunctions[0])
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
        """For each attribute, the share of its domain that a conjunction wants."""
        box = self.box_of(one)
        return [
            (high - low + 1) / (side.whole[1] + 1) for (low, high), side in zip(box.sides, self._sides, strict=True)
        ]

    def code(self, box: Box) -> str:
        """The z-code of a box, as Figure 3 weaves it."""
        found = self._codes.get(box)
        if found is None:
            found = woven([side_code(cells, side.whole) for cells, side in zip(box.sides, self._sides, strict=True)])
            _remember(self._codes, box, found)
        return found

    def region(self, code: str) -> Box | None:
        """The cells of a region; None if the space has no such region."""
        if code in self._regions:
            return self._regions[code]
        found: Box | None = None
        try:
            if self._space is not None:
                found = self._space.region(code)
            elif not code:
                found = Box(())
        except ConfigError:
            pass
        _remember(self._regions, code, found)
        return found

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
        found = self._keys.get(code)
        if found is None:
            found = key_of(place(self.name, code))
            _remember(self._keys, code, found)
        return found


def place(space: SpaceName, code: str) -> str:
    """The text that names a region."""
    return f"{','.join(space)}|{code}"


_WIDE = WideDomain()


class Spaces:
    """The spaces of all peers with the same domains. A subclass chooses them."""

    def __init__(self, domains: Mapping[str, NumberDomain]) -> None:
        self._domains = domains
        self._known: dict[SpaceName, AttributeSpace | None] = {}

    def __getitem__(self, name: SpaceName) -> AttributeSpace:
        found = self.find(name)
        assert found is not None
        return found

    def find(self, name: SpaceName) -> AttributeSpace | None:
        """None if there is no such space."""
        if name in self._known:
            return self._known[name]
        found = AttributeSpace(name, self._domains) if self._is_space(name) else None
        _remember(self._known, name, found)
        return found

    def _is_space(self, name: SpaceName) -> bool:
        raise NotImplementedError

    def home(self, wanted: Filter) -> SpaceName:
        """The space in which a filter is stored."""
        raise NotImplementedError

    def root(self, wanted: Filter) -> SpaceName:
        """The space in which events meet the filter: its home, or the one that the home passes it on to."""
        raise NotImplementedError

    def publishes_in(self, name: SpaceName) -> bool:
        """Whether events are published in this space, and not passed on from another."""
        raise NotImplementedError

    def of_event(self, attributes: Attributes) -> Sequence[SpaceName]:
        """The spaces in which an event is published."""
        raise NotImplementedError


class GlobalSpace(Spaces):
    """All attributes that have a domain, in one space."""

    def __init__(self, domains: Mapping[str, NumberDomain]) -> None:
        super().__init__(domains)
        self._only: SpaceName = tuple(sorted(domains))

    def _is_space(self, name: SpaceName) -> bool:
        return name == self._only

    def home(self, wanted: Filter) -> SpaceName:
        return self._only

    def root(self, wanted: Filter) -> SpaceName:
        return self._only

    def publishes_in(self, name: SpaceName) -> bool:
        return True

    def of_event(self, attributes: Attributes) -> Sequence[SpaceName]:
        return (self._only,)


class AttributeRoots(Spaces):
    """A space for each set of attributes that a filter requires, and one for each attribute."""

    def __init__(self, domains: Mapping[str, NumberDomain], selective: bool = True) -> None:
        super().__init__(domains)
        self._selective = selective

    def _is_space(self, name: SpaceName) -> bool:
        return name == tuple(sorted(set(name)))

    def home(self, wanted: Filter) -> SpaceName:
        if len(wanted.conjunctions) != 1:
            return ()
        (one,) = wanted.conjunctions
        values = one.allowed().items() if one.bindings else one.values
        return tuple(sorted([name for name, allowed in values if not allowed.absent]))

    def root(self, wanted: Filter) -> SpaceName:
        home = self.home(wanted)
        if len(home) <= 1:
            return home
        if not self._selective:
            return home[:1]
        shares = self[home].shares(wanted.conjunctions[0])
        return (home[shares.index(min(shares))],)

    def publishes_in(self, name: SpaceName) -> bool:
        return len(name) <= 1

    def of_event(self, attributes: Attributes) -> Sequence[SpaceName]:
        return (*[(name,) for name in attributes], ())


Domains = tuple[tuple[str, NumberDomain], ...]


def read_domains(table: Mapping[str, Sequence[int | float]]) -> Domains:
    """The domains of a setting: `[low, high]` or `[low, high, granularity]` for each attribute."""
    found = []
    for name, ends in sorted(table.items()):
        if len(ends) not in (2, 3):
            raise ConfigError(f"the domain of {name} needs a low and a high end and perhaps a granularity, got {ends}")
        try:
            found.append((name, NumberDomain(*ends)))
        except ConfigError as error:
            raise ConfigError(f"the domain of {name}: {error}") from None
    return tuple(found)


@lru_cache
def global_space(domains: Domains) -> GlobalSpace:
    """The same object for all peers of a process: what it remembers serves all of them."""
    return GlobalSpace(dict(domains))


@lru_cache
def attribute_roots(domains: Domains, selective: bool) -> AttributeRoots:
    return AttributeRoots(dict(domains), selective)


def _remember(cache: dict[K, V], key: K, value: V) -> None:
    if len(cache) >= _CACHED:
        cache.clear()
    cache[key] = value
