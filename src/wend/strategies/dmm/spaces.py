"""Attribute spaces: the boxes and z-codes of filters and events, and the regions (dmm, sections IV-A and IV-C).

Boxes only place filters and events: the filter itself decides which events match. A constraint that is not a range
counts as the smallest range around it. The empty space has a single region, for filters that require no attribute.

`dmm` has one space with all attributes that have a domain (`Spaces`). `dmm-ar` has a space for each set of
attributes that some filter requires, and a space of one dimension for each attribute, in which events are published
(`AttributeRoots`).
"""

import math
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import ClassVar, TypeVar

from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.matching.values import Cuts, Values, previous_value
from wend.matching.zcode import Box, Cells, Domain, NumberDomain, TextDomain, ZCodeSpace, interleave, side_code
from wend.model.errors import ConfigError
from wend.model.events import Attributes, Range, Scalar, Value
from wend.model.keys import make_key

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

    def __init__(self, domain: Domain | WideDomain) -> None:
        self._cells: dict[Scalar, int] = {}
        self._domain = domain
        self.whole: Cells = (0, domain.cells - 1)
        self.last_text = 0 if isinstance(domain, NumberDomain) else domain.cells - 1

    def cell(self, value: Scalar) -> int:
        """The cell of a value. In a domain of numbers or of texts, any other value belongs to the first cell."""
        cell = self._cells.get(value)
        if cell is None:
            cell = 0 if isinstance(value, float) and math.isnan(value) else self._cell_in_domain(value)
            remember(self._cells, value, cell)
        return cell

    def _cell_in_domain(self, value: Scalar) -> int:
        if isinstance(self._domain, WideDomain):
            return self._domain.cell(value)
        if isinstance(value, str):
            return self._domain.cell(value) if isinstance(self._domain, TextDomain) else 0
        return self._domain.cell(value) if isinstance(self._domain, NumberDomain) else 0

    def value_cells(self, value: Value) -> Cells:
        if not isinstance(value, Range):
            at = self.cell(value)
            return at, at
        text = isinstance(value.low, str) or isinstance(value.high, str)
        low = ("" if text else -math.inf) if value.low is None else value.low
        first = self.cell(low)
        if value.high is None:
            return first, self.last_text if text else self.cell(math.inf)
        return first, self.cell(value.high)

    def bounding_cells(self, values: Values) -> Cells:
        """The smallest range around a set of values."""
        ends = [*map(self.cell, values.booleans)]
        if values.numbers:
            ends += self._cut_cells(values.numbers, self.cell(math.inf))
        if values.strings:
            ends += self._cut_cells(values.strings, self.last_text)
        return (min(ends), max(ends)) if ends else self.whole

    def _cut_cells(self, cuts: Cuts, endless: int) -> Cells:
        if len(cuts) % 2:
            return self.cell(cuts[0]), endless
        last = previous_value(cuts[-1])
        return self.cell(cuts[0]), self.cell(cuts[-1] if last is None else last)


class AttributeSpace:
    """A space with its geometry. It caches codes, keys and regions."""

    __slots__ = ("_codes", "_keys", "_regions", "_sides", "_space", "name")

    def __init__(self, name: SpaceName, domains: Mapping[str, Domain]) -> None:
        self.name = name
        own_domains = [domains.get(each, _WIDE) for each in name]
        self._sides = tuple(map(_Side, own_domains))
        # Only the numbers of cells matter to the regions.
        cells = {f"{at:04}": NumberDomain(0, domain.cells - 1) for at, domain in enumerate(own_domains)}
        self._space = ZCodeSpace(cells) if cells else None
        self._codes: dict[Box, str] = {}
        self._keys: dict[str, int] = {}
        self._regions: dict[str, Box | None] = {}

    def conjunction_box(self, conjunction: Conjunction) -> Box:
        """The box of a conjunction, unbounded for each attribute that it does not require."""
        values = conjunction.allowed() if conjunction.bindings else dict(conjunction.values)
        sides = []
        for name, side in zip(self.name, self._sides, strict=True):
            allowed = values.get(name)
            sides.append(side.whole if allowed is None or allowed.absent else side.bounding_cells(allowed))
        return Box(tuple(sides))

    def filter_box(self, filter_: Filter) -> Box:
        if len(filter_.conjunctions) == 1:
            return self.conjunction_box(filter_.conjunctions[0])
        return Box(tuple([side.whole for side in self._sides]))

    def event_box(self, attributes: Attributes) -> Box:
        """The box of an event, unbounded for each attribute that it lacks."""
        named = zip(self.name, self._sides, strict=True)
        return Box(
            tuple([side.value_cells(attributes[name]) if name in attributes else side.whole for name, side in named])
        )

    def shares(self, conjunction: Conjunction) -> list[float]:
        """For each attribute, the share of its domain that a conjunction matches."""
        cells = zip(self.conjunction_box(conjunction).sides, self._sides, strict=True)
        return [(high - low + 1) / (side.whole[1] + 1) for (low, high), side in cells]

    def code(self, box: Box) -> str:
        """The z-code of a box, as Figure 3 weaves it."""
        code = self._codes.get(box)
        if code is None:
            code = interleave(
                [side_code(cells, side.whole) for cells, side in zip(box.sides, self._sides, strict=True)]
            )
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

    def code_key(self, code: str) -> int:
        key = self._keys.get(code)
        if key is None:
            key = make_key(region_name(self.name, code))
            remember(self._keys, code, key)
        return key


def region_name(space: SpaceName, code: str) -> str:
    """The text that names a region."""
    return f"{','.join(space)}|{code}"


def remember(cache: dict[K, V], key: K, value: V) -> None:
    """Add to a cache. A full one starts again."""
    if len(cache) >= _CACHED:
        cache.clear()
    cache[key] = value


class Spaces:
    """The space of `dmm`, with all attributes that have a domain. A subclass has several spaces."""

    has_detour: ClassVar[bool] = False
    """Whether every event also goes to a space without attributes, for filters that require none."""

    def __init__(self, domains: Mapping[str, Domain]) -> None:
        self._domains = domains
        self._only: SpaceName = tuple(sorted(domains))
        self._spaces: dict[SpaceName, AttributeSpace | None] = {}

    def __getitem__(self, name: SpaceName) -> AttributeSpace:
        space = self.find(name)
        assert space is not None
        return space

    def find(self, name: SpaceName) -> AttributeSpace | None:
        """None if there is no such space."""
        if name in self._spaces:
            return self._spaces[name]
        space = AttributeSpace(name, self._domains) if self.is_space(name) else None
        remember(self._spaces, name, space)
        return space

    def is_space(self, name: SpaceName) -> bool:
        return name == self._only

    def home(self, filter_: Filter) -> SpaceName:
        """The space in which a filter is stored."""
        return self._only

    def root(self, filter_: Filter) -> SpaceName:
        """The space in which events meet the filter: its home, or the one that the home passes it on to."""
        return self._only

    def publishes_in(self, name: SpaceName) -> bool:
        """Whether events are published in this space, and not passed on from another."""
        return True

    def event_spaces(self, attributes: Attributes) -> Sequence[SpaceName]:
        """The spaces in which an event is published."""
        return (self._only,)


class AttributeRoots(Spaces):
    """The spaces of `dmm-ar`: one for each set of attributes that a filter requires, and one for each attribute."""

    has_detour: ClassVar[bool] = True

    def is_space(self, name: SpaceName) -> bool:
        return name == tuple(sorted(set(name)))

    def home(self, filter_: Filter) -> SpaceName:
        if len(filter_.conjunctions) != 1:
            return ()
        (conjunction,) = filter_.conjunctions
        values = conjunction.allowed().items() if conjunction.bindings else conjunction.values
        return tuple(sorted([name for name, allowed in values if not allowed.absent]))

    def root(self, filter_: Filter) -> SpaceName:
        """Of several attributes the most selective one, by which the fewest events find the filter."""
        home = self.home(filter_)
        if len(home) <= 1:
            return home
        shares = self[home].shares(filter_.conjunctions[0])
        return (home[shares.index(min(shares))],)

    def publishes_in(self, name: SpaceName) -> bool:
        return len(name) <= 1

    def event_spaces(self, attributes: Attributes) -> Sequence[SpaceName]:
        return (*[(name,) for name in attributes], ())


Domains = tuple[tuple[str, Domain], ...]
MAX_LETTERS = 16


def read_domains(table: Mapping[str, Sequence[int | float]]) -> Domains:
    """The domains of a setting: `[low, high]` or `[low, high, granularity]` for an attribute with numbers, `[letters]`
    for one with texts."""
    return tuple([(name, _read_domain(name, domain)) for name, domain in sorted(table.items())])


def _read_domain(name: str, domain: Sequence[int | float]) -> Domain:
    if len(domain) == 1:
        if domain[0] not in range(1, MAX_LETTERS + 1):
            raise ConfigError(f"the domain of {name} needs 1 to {MAX_LETTERS} letters of a text, got {domain[0]}")
        return TextDomain(int(domain[0]))
    if len(domain) not in (2, 3):
        raise ConfigError(f"the domain of {name} needs a low and a high end and perhaps a granularity, got {domain}")
    try:
        return NumberDomain(*domain)
    except ConfigError as error:
        raise ConfigError(f"the domain of {name}: {error}", code=error.code) from None


@lru_cache
def global_space(domains: Domains) -> Spaces:
    """The space of `dmm` for these domains. All peers of a process share one object, and its caches."""
    return Spaces(dict(domains))


@lru_cache
def attribute_roots(domains: Domains) -> AttributeRoots:
    return AttributeRoots(dict(domains))
