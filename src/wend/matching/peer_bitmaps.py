"""The bitmap index of a peer: the keys of the filters that match one event, in plain Python.

Conjunctions are in blocks of up to a few thousand, with rows of bits (`peer_blocks.py`). A few new conjunctions are
tested one by one. If there are more when an event comes, they become a block first, and two blocks of one size become
one of the next size. A removed conjunction only loses its bit; a block that has lost most of its conjunctions is built
again. So the cost of a change does not grow with the number of filters.

If most of a few thousand new conjunctions are narrow in two attributes, they go to a grid (`peer_grids.py`), and so do
those that come after them.
"""

from typing import Any, Generic, TypeVar

from wend.matching.boxes import Compact, compact_matches
from wend.matching.peer_blocks import Block
from wend.matching.peer_grids import BoxGrid, make_grid
from wend.model.events import Attributes

K = TypeVar("K")

SMALLEST = 8
"""The size of the smallest blocks, and how many conjunctions are tried one by one. The next size is twice as large."""
SIZES = 10
MAX_GRIDS = 16
"""An event looks into each of them."""
_PLACE_BITS = 32
_PLACE_MASK = (1 << _PLACE_BITS) - 1

Moved = tuple[int, Any, Any]
"""The place that a conjunction had, its key, and itself."""


class PeerBitmapIndex(Generic[K]):
    """An exact, dynamic index. Results are sorted by key."""

    __slots__ = ("_blocks", "_grids", "_new", "_next_block", "_next_new", "_places", "_several")

    def __init__(self) -> None:
        self._places: dict[K, Any] = {}
        """By key: the place of its only conjunction, or a tuple of several places. A place is the number of a block and
        a slot in it. Block 0 has no rows yet."""
        self._several = 0
        """How many filters have several conjunctions."""
        self._new: dict[int, tuple[K, Compact]] = {}
        self._next_new = 0
        self._blocks: dict[int, Block] = {}
        self._next_block = 1
        self._grids: list[BoxGrid] = []
        """The keys in these have no place."""

    def __len__(self) -> int:
        return len(self._places) + sum([len(grid.boxes) for grid in self._grids])

    def __contains__(self, key: K) -> bool:
        return key in self._places or self._find_grid(key) is not None

    def _find_grid(self, key: K) -> BoxGrid | None:
        return next((grid for grid in self._grids if key in grid.boxes), None)

    def add(self, key: K, ones: list[Compact]) -> None:
        """Add a filter of these conjunctions under a new key."""
        if self._grids and len(ones) == 1:
            one = ones[0]
            if type(one) is tuple and any(grid.add(key, one) for grid in reversed(self._grids)):
                return
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
            self._discard_from_grid(key)
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
                self._insert_block(self._dissolve_block(place >> _PLACE_BITS))

    # ---------------------------------------------------------------- grids

    def _discard_from_grid(self, key: K) -> None:
        grid = self._find_grid(key)
        if grid is not None:
            grid.discard(key)
            if not grid.boxes:
                self._grids.remove(grid)

    def _move_to_grid(self, moved: list[Moved]) -> list[Moved]:
        """Make a grid of conjunctions for which it is better than a block. Returns the others."""
        if len(self._grids) >= MAX_GRIDS:
            return moved
        alone = [type(one) is tuple and type(self._places[key]) is int for _, key, one in moved]
        grid = make_grid([one for (_, _, one), is_alone in zip(moved, alone, strict=True) if is_alone])
        if grid is None:
            return moved
        rest = []
        for each, is_alone in zip(moved, alone, strict=True):
            if is_alone and grid.add(each[1], each[2]):
                del self._places[each[1]]
            else:
                rest.append(each)
        if grid.boxes:
            self._grids.append(grid)
        return rest

    # ---------------------------------------------------------------- blocks

    def _make_block(self) -> None:
        """Make a block of the new conjunctions."""
        moved = [(slot, key, one) for slot, (key, one) in self._new.items()]
        self._new.clear()
        self._next_new = 0
        self._insert_block(moved)

    def _insert_block(self, moved: list[Moved]) -> None:
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
            moved += self._dissolve_block(same[0])
            size += 1
        if size == SIZES - 1:
            rest = self._move_to_grid(moved)
            if len(rest) < len(moved):
                self._insert_block(rest)
                return
        number = self._next_block
        self._next_block += 1
        self._blocks[number] = Block(size, [key for _, key, _ in moved], [one for _, _, one in moved])
        for slot, (place, key, _) in enumerate(moved):
            self._relocate(key, place, (number << _PLACE_BITS) + slot)

    def _dissolve_block(self, number: int) -> list[Moved]:
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
        places = self._places.get(key)
        if places is None:
            grid = self._find_grid(key)
            if grid is None:
                raise KeyError(key)
            return [grid.boxes[key]]
        return [self._conjunction_at(place) for place in (places if type(places) is tuple else (places,))]

    def _conjunction_at(self, place: int) -> Compact:
        if place <= _PLACE_MASK:
            return self._new[place][1]
        one: Compact = self._blocks[place >> _PLACE_BITS].members[place & _PLACE_MASK]
        return one

    # ---------------------------------------------------------------- lookups

    def match(self, attributes: Attributes) -> tuple[K, ...]:
        if len(self._new) > SMALLEST:
            self._make_block()
        keys: list[Any] = [key for key, one in self._new.values() if compact_matches(one, attributes)]
        for block in self._blocks.values():
            block.match(attributes, keys)
        for grid in self._grids:
            grid.match(attributes, keys)
        if self._several:
            keys = list(set(keys))
        if len(keys) > 1:
            keys.sort()
        return tuple(keys)
