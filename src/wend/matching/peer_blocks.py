"""The blocks of a peer's bitmap index: which conjunctions of a block match one event.

A block divides the values of each attribute into rows. A row is one Python integer, with a bit for every conjunction
of the block that some value in the row matches. An event has one row per attribute, and one `and` per attribute leaves
the conjunctions that may match. If a bound of a conjunction lies inside the row, the conjunction itself decides.
"""

from bisect import bisect_left, bisect_right
from math import inf
from typing import Any

from wend.matching.borders import choose_borders
from wend.matching.boxes import compact_matches, intervals
from wend.matching.conjunctions import Conjunction
from wend.matching.values import Values, is_nan, pieces, values_between
from wend.model.events import Attributes, Range

MAX_ROWS = 256
"""The most borders between numbers, or between texts, of one attribute."""
FEWEST_ROWS = 32
"""A small block has fewer borders, one for 16 conjunctions, but at least this many."""
MAX_SIDES = 64
RARE = 64
"""An attribute has no rows if fewer than one in this many conjunctions constrains it."""
SPARSE = 24
"""Up to this many bits are found one by one."""


class _Side:
    """One attribute of a block: the rows of its values.

    Row 0 stands for a missing attribute and for values of other kinds. Then come the rows of numbers (below the first
    border, between two, above the last), then those of texts."""

    __slots__ = ("allowed", "first_text", "limits", "numbers", "partial", "texts")

    def __init__(self, members: list[tuple[int, Any, Any]], everyone: int) -> None:
        """`members`: slots of conjunctions with the low and the high end. `everyone`: all slots of the block."""
        self.numbers = _borders([one for one in members if type(one[1]) is not str], -inf)
        self.texts = _borders([one for one in members if type(one[1]) is str], "")
        self.first_text = 2 + len(self.numbers)
        rows = self.first_text + len(self.texts) + 1
        self.partial = [0] * rows
        """By row: the slots that allow a part of it."""
        self.limits: list[Any] = [None] * rows
        """By row: where the first of these parts ends. All of them allow the values below."""
        self.allowed: list[int] = []
        """By row: the slots that allow some value in it."""
        edges = [0] * (rows + 1)
        """By row: the slots that begin or cease to allow it."""
        free = everyone
        for slot, low, end in members:
            free &= ~(1 << slot)
            self._add_interval(1 << slot, low, end, edges)
        allowed = 0
        for row in range(rows):
            allowed ^= edges[row]
            self.allowed.append(allowed | free)

    def _add_interval(self, bit: int, low: Any, end: Any, edges: list[int]) -> None:
        """Enter an interval: the edges of its run of rows, and the rows of which it allows a part."""
        borders, base = (self.texts, self.first_text) if type(low) is str else (self.numbers, 1)
        first = bisect_right(borders, low)
        last = len(borders) if end is None else bisect_left(borders, end)
        edges[base + first] ^= bit
        edges[base + last + 1] ^= bit
        if borders[first - 1] != low if first else low not in ("", -inf):
            self.partial[base + first] |= bit
            self.limits[base + first] = "" if type(low) is str else -inf
        if end is not None and (last == len(borders) or borders[last] != end):
            self.partial[base + last] |= bit
            limit = self.limits[base + last]
            if limit is None or end < limit:
                self.limits[base + last] = end

    def row(self, value: Any) -> int:
        """The row of a single value."""
        if isinstance(value, str):
            return self.first_text + bisect_right(self.texts, value)
        if value is None or isinstance(value, bool) or is_nan(value):
            return 0
        return 1 + bisect_right(self.numbers, value)

    def find_slots(self, values: Values) -> int:
        """The slots that allow some of these values."""
        slots = self.allowed[0] if values.absent or values.booleans else 0
        for cuts, borders, base in ((values.numbers, self.numbers, 1), (values.strings, self.texts, self.first_text)):
            for low, end in pieces(cuts):
                first = bisect_right(borders, low)
                last = len(borders) if end is None else bisect_left(borders, end)
                for row in range(base + first, base + last + 1):
                    slots |= self.allowed[row]
        return slots


def _borders(members: list[tuple[int, Any, Any]], bottom: Any) -> list[Any]:
    most = min(MAX_ROWS, max(FEWEST_ROWS, len(members) // 16))
    lows, ends = [low for _, low, _ in members], [end for _, _, end in members if end is not None]
    return choose_borders(lows, ends, bottom, most)


class Block:
    """Conjunctions in slots, with rows for their attributes."""

    __slots__ = ("alive", "check", "dead", "members", "owners", "rare", "sides", "size")

    def __init__(self, size: int, owners: list[Any], members: list[Any]) -> None:
        self.size = size
        """Two blocks of one size become one of the next."""
        self.owners = owners
        self.members = members
        self.dead = 0
        count = len(members)
        everyone = (1 << count) - 1
        by_name: dict[str, list[tuple[int, Any, Any]]] = {}
        for slot, one in enumerate(members):
            for name, low, end in intervals(one):
                group = by_name.get(name)
                if group is None:
                    by_name[name] = [(slot, low, end)]
                else:
                    group.append((slot, low, end))
        common = [name for name, group in by_name.items() if len(group) * RARE >= count]
        common.sort(key=lambda name: (-len(by_name[name]), name))
        named = set(common[:MAX_SIDES])
        self.sides = tuple([(name, _Side(by_name[name], everyone)) for name in common[:MAX_SIDES]])
        self.check = 0
        """The slots that rows alone never decide."""
        self.rare: dict[str, dict[int, None]] = {}
        """Slots without rows, by an attribute that they require."""
        self.alive = everyone
        for slot, one in enumerate(members):
            names = [name for name, _, _ in intervals(one)]
            rows = len([name for name in names if name in named])
            if names and not rows:
                self.rare.setdefault(names[0], {})[slot] = None
                self.alive &= ~(1 << slot)
            elif rows < len(names) or isinstance(one, Conjunction):
                self.check |= 1 << slot

    def discard(self, slot: int) -> None:
        self.alive &= ~(1 << slot)
        self.dead += 1
        if self.rare:
            for slots in self.rare.values():
                slots.pop(slot, None)
        self.owners[slot] = self.members[slot] = None

    def match(self, attributes: Attributes, keys: list[Any]) -> None:
        """Append the keys of the conjunctions that match."""
        remaining, doubt = self.alive, self.check
        for name, side in self.sides:
            value: Any = attributes.get(name)
            kind = type(value)
            if kind is int:  # most values are numbers or texts: no call for these
                row = 1 + bisect_right(side.numbers, value)
            elif kind is str:
                row = side.first_text + bisect_right(side.texts, value)
            elif kind is Range:
                remaining &= side.find_slots(values_between(value.low, value.high, value.low_open, value.high_open))
                doubt = -1
                continue
            else:
                row = side.row(value)
            remaining &= side.allowed[row]
            if not remaining:
                break
            partial = side.partial[row]
            if partial and value >= side.limits[row]:
                doubt |= partial
        if remaining:
            doubt &= remaining
            owners = self.owners
            if doubt:
                members = self.members
                keys += [owners[slot] for slot in _positions(doubt) if compact_matches(members[slot], attributes)]
                remaining ^= doubt
            if remaining:
                keys += [owners[slot] for slot in _positions(remaining)]
        if self.rare:
            self._match_rare(attributes, keys)

    def _match_rare(self, attributes: Attributes, keys: list[Any]) -> None:
        """Append the keys of the matching conjunctions without rows."""
        for name in attributes:
            for slot in self.rare.get(name, ()):
                if compact_matches(self.members[slot], attributes):
                    keys.append(self.owners[slot])


def _positions(bits: int) -> list[int]:
    """The positions of the set bits."""
    positions = []
    if bits.bit_count() <= SPARSE:
        while bits:
            at = bits.bit_length() - 1
            positions.append(at)
            bits ^= 1 << at
        return positions
    text = bin(bits)[:1:-1]  # the lowest first
    at = text.find("1")
    while at >= 0:
        positions.append(at)
        at = text.find("1", at + 1)
    return positions
