"""The bitmap index of a peer: the keys of the filters that match one event, in plain Python.

Conjunctions are in blocks of up to a few thousand. A block divides the values of each attribute into rows. A row is one
integer of Python, with a bit for every conjunction of the block that some value in the row matches. An event has one
row per attribute, and one `and` per attribute leaves the conjunctions that may match. If a bound of a conjunction lies
inside the row, the conjunction itself decides.

A few new conjunctions are tried one by one. If they are many when an event comes, they become a block first, and two
blocks of one size become one of the next size. A removed conjunction only loses its bit; a block that has lost most of
them is made anew. So the cost of a change does not grow with the number of filters.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from math import inf
from typing import Any, Generic, TypeVar

from wend.matching.boxes import Compact, compact, conjunction_of, fits, intervals
from wend.matching.conjunctions import Conjunction, isnan
from wend.matching.filters import Filter
from wend.matching.values import Values, interval, pieces
from wend.model.events import Attributes, Range

K = TypeVar("K")

SMALLEST = 32
"""The size of the smallest blocks, and how many conjunctions are tried one by one. The next size is twice as large."""
SIZES = 8
MAX_ROWS = 256
"""The most borders between numbers, or between texts, of one attribute."""
FEWEST_ROWS = 32
"""A small block has fewer, one for 16 conjunctions, but not fewer than this."""
MAX_SIDES = 64
RARE = 64
"""An attribute has no rows if fewer than one in this many conjunctions constrains it."""
_PLACE_BITS = 32
_PLACE_MASK = (1 << _PLACE_BITS) - 1

Moved = tuple[int, Any, Any]
"""The place that a conjunction had, its key, and itself."""


class _Side:
    """One attribute of a block: the rows of its values.

    The rows are: any other value, or none; numbers below the first border, between two, above the last; the same for
    texts."""

    __slots__ = ("allowed", "first_text", "limits", "numbers", "partial", "texts")

    def __init__(self, members: list[tuple[int, Any, Any]], everyone: int) -> None:
        """`members`: slots of conjunctions with the low and the high end. `everyone`: all slots of the block."""
        self.numbers = _borders([one for one in members if type(one[1]) is not str], -inf)
        self.texts = _borders([one for one in members if type(one[1]) is str], "")
        self.first_text = 2 + len(self.numbers)
        rows = self.first_text + len(self.texts) + 1
        edges = [0] * (rows + 1)
        """By row: the slots that begin or end to allow it."""
        self.partial = [0] * rows
        """By row: the slots that allow a part of it."""
        self.limits: list[Any] = [None] * rows
        """By row: where the first of these parts ends. All of them allow the values below."""
        free = everyone
        for slot, low, end in members:
            bit = 1 << slot
            free &= ~bit
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
        self.allowed: list[int] = []
        allowed = 0
        for row in range(rows):
            allowed ^= edges[row]
            self.allowed.append(allowed | free)

    def row(self, value: Any) -> int:
        """The row of a single value."""
        if isinstance(value, str):
            return self.first_text + bisect_right(self.texts, value)
        if value is None or isinstance(value, bool) or isnan(value):
            return 0
        return 1 + bisect_right(self.numbers, value)

    def touched(self, values: Values) -> int:
        """The slots that allow some of these values."""
        found = self.allowed[0] if values.absent or values.booleans else 0
        for cuts, borders, base in ((values.numbers, self.numbers, 1), (values.strings, self.texts, self.first_text)):
            for low, end in pieces(cuts):
                first = bisect_right(borders, low)
                last = len(borders) if end is None else bisect_left(borders, end)
                for row in range(base + first, base + last + 1):
                    found |= self.allowed[row]
        return found


def _borders(members: list[tuple[int, Any, Any]], bottom: Any) -> list[Any]:
    """Borders between the rows of some intervals. If the next cut after an end is a beginning, the end needs no border:
    for integers no value is between them."""
    cuts: dict[Any, bool] = {end: False for _, _, end in members if end is not None}
    cuts.update({low: True for _, low, _ in members})
    cuts.pop(bottom, None)
    chosen = sorted(cuts)
    most = min(MAX_ROWS, max(FEWEST_ROWS, len(members) // 16))
    if len(chosen) > most:
        following = [*chosen[1:], None]
        chosen = [cut for cut, after in zip(chosen, following, strict=True) if cuts[cut] or not cuts.get(after, False)]
    if len(chosen) <= most:
        return chosen
    return [chosen[at * len(chosen) // most] for at in range(most)]


class _Block:
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

    def match(self, attributes: Attributes, found: list[Any]) -> None:
        """Append the keys of the conjunctions that match."""
        left, doubt = self.alive, self.check
        for name, side in self.sides:
            value: Any = attributes.get(name)
            kind = type(value)
            if kind is int:  # most values are numbers or texts: no call for these
                row = 1 + bisect_right(side.numbers, value)
            elif kind is str:
                row = side.first_text + bisect_right(side.texts, value)
            elif kind is Range:
                left &= side.touched(_values_of(value))
                doubt = -1
                continue
            else:
                row = side.row(value)
            left &= side.allowed[row]
            if not left:
                break
            partial = side.partial[row]
            if partial and value >= side.limits[row]:
                doubt |= partial
        if left:
            doubt &= left
            owners = self.owners
            if doubt:
                members = self.members
                found += [owners[slot] for slot in _positions(doubt) if fits(members[slot], attributes)]
                left ^= doubt
            if left:
                found += [owners[slot] for slot in _positions(left)]
        if self.rare:
            for name in attributes:
                for slot in self.rare.get(name, ()):
                    if fits(self.members[slot], attributes):
                        found.append(self.owners[slot])

    def intersecting(self, offer: Conjunction, found: set[Any]) -> None:
        allowed = offer.allowed() if offer.bindings else dict(offer.values)
        left = self.alive
        for name, side in self.sides:
            if name in allowed:
                left &= side.touched(allowed[name])
        for slot in (*_positions(left), *[slot for slots in self.rare.values() for slot in slots]):
            owner = self.owners[slot]
            if owner not in found and conjunction_of(self.members[slot]).intersects(offer):
                found.add(owner)


def _values_of(value: Range) -> Values:
    cuts = interval(value.low, value.high, value.low_open, value.high_open)
    return Values(strings=cuts) if cuts and isinstance(cuts[0], str) else Values(numbers=cuts)


class PeerBitmapIndex(Generic[K]):
    """An exact, dynamic index. Results are sorted by key."""

    def __init__(self, filters: Iterable[tuple[K, Filter]] = ()) -> None:
        self._places: dict[K, Any] = {}
        """By key: the place of its only conjunction, or a tuple of several places. A place is the number of a block and
        a slot in it. Block 0 has no rows yet."""
        self._several = 0
        """How many filters have several conjunctions."""
        self._new: dict[int, tuple[K, Compact]] = {}
        self._next_new = 0
        self._blocks: dict[int, _Block] = {}
        self._next_block = 1
        for key, wanted in filters:
            self.add(key, wanted)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: K) -> bool:
        return key in self._places

    def add(self, key: K, wanted: Filter) -> None:
        self.discard(key)
        self.add_conjunctions(key, [compact(one) for one in wanted.conjunctions])

    def add_conjunctions(self, key: K, ones: list[Compact]) -> None:
        """Add a filter of these conjunctions under a new key."""
        places = []
        for one in ones:
            places.append(self._next_new)
            self._new[self._next_new] = (key, one)
            self._next_new += 1
        if len(places) == 1:
            self._places[key] = places[0]
        else:
            self._places[key] = tuple(places)
            self._several += 1
        if len(self._new) >= SMALLEST << (SIZES - 1):
            self._make_block()

    def discard(self, key: K) -> None:
        places = self._places.pop(key, None)
        if places is None:
            return
        if type(places) is tuple:
            self._several -= 1
        else:
            places = (places,)
        for place in places:
            if place <= _PLACE_MASK:
                del self._new[place]
            else:
                self._blocks[place >> _PLACE_BITS].discard(place & _PLACE_MASK)
        for place in places:
            block = self._blocks.get(place >> _PLACE_BITS)
            if block is not None and 2 * block.dead > len(block.members):
                self._insert(self._taken_apart(place >> _PLACE_BITS))

    # ---------------------------------------------------------------- blocks

    def _make_block(self) -> None:
        """Make a block of the new conjunctions."""
        moved = [(slot, key, one) for slot, (key, one) in self._new.items()]
        self._new.clear()
        self._next_new = 0
        self._insert(moved)

    def _insert(self, moved: list[Moved]) -> None:
        """Make a block of these conjunctions. If there is another one of its size, both become one."""
        if len(moved) <= SMALLEST // 2:
            for place, key, one in moved:
                self._new[self._next_new] = (key, one)
                self._relocate(key, place, self._next_new)
                self._next_new += 1
            return
        size = 0
        while size < SIZES - 1 and 2 * len(moved) > 3 * SMALLEST << size:
            size += 1
        while size < SIZES - 1:
            same = [number for number, block in self._blocks.items() if block.size == size]
            if not same:
                break
            moved += self._taken_apart(same[0])
            size += 1
        number = self._next_block
        self._next_block += 1
        self._blocks[number] = _Block(size, [key for _, key, _ in moved], [one for _, _, one in moved])
        for slot, (place, key, _) in enumerate(moved):
            self._relocate(key, place, (number << _PLACE_BITS) + slot)

    def _taken_apart(self, number: int) -> list[Moved]:
        block = self._blocks.pop(number)
        base = number << _PLACE_BITS
        return [
            (base + slot, key, one)
            for slot, (key, one) in enumerate(zip(block.owners, block.members, strict=True))
            if one is not None
        ]

    def _relocate(self, key: Any, old: int, new: int) -> None:
        places = self._places[key]
        if type(places) is tuple:
            self._places[key] = tuple([new if place == old else place for place in places])
        else:
            self._places[key] = new

    def conjunctions(self, key: K) -> list[Compact]:
        places = self._places[key]
        return [self._at(place) for place in (places if type(places) is tuple else (places,))]

    def _at(self, place: int) -> Compact:
        if place <= _PLACE_MASK:
            return self._new[place][1]
        one: Compact = self._blocks[place >> _PLACE_BITS].members[place & _PLACE_MASK]
        return one

    def items(self) -> list[tuple[K, list[Compact]]]:
        """All filters with their conjunctions."""
        return [(key, self.conjunctions(key)) for key in self._places]

    # ---------------------------------------------------------------- lookups

    def match(self, attributes: Attributes) -> tuple[K, ...]:
        if len(self._new) > SMALLEST:
            self._make_block()
        found: list[Any] = []
        for block in self._blocks.values():
            block.match(attributes, found)
        for key, one in self._new.values():
            if fits(one, attributes):
                found.append(key)
        if self._several:
            return tuple(sorted(set(found)))
        found.sort()
        return tuple(found)

    def intersecting(self, offer: Filter) -> tuple[K, ...]:
        """The keys of the filters that intersect this one."""
        found: set[Any] = set()
        for one in offer.conjunctions:
            for block in self._blocks.values():
                block.intersecting(one, found)
            for key, other in self._new.values():
                if key not in found and conjunction_of(other).intersects(one):
                    found.add(key)
        return tuple(sorted(found))


def _positions(bits: int) -> list[int]:
    """The positions of the set bits, in order."""
    text = bin(bits)[:1:-1]  # the lowest first
    found = []
    at = text.find("1")
    while at >= 0:
        found.append(at)
        at = text.find("1", at + 1)
    return found
