"""The inner loops of the compiled index. Whoever imports this waits for numba, so only batches and large indexes do.

Bits are kept block by block: `table[block, row]` has a bit for each slot of the block that a row refuses. A
block fits the second-level cache, so all events of a batch are put to one block before the next is touched.
Indices are unsigned, because numba lets signed ones count from the end and pays for it in every access.
"""

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from wend.model.compiled import compiled

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]
U = np.uint64

SPARSE, MIDDLE, DENSE = 0.25, 1.6, 4.0
"""Bits per word at which one way to list them overtakes another, as measured."""


def _lowest(_: Any, word: Any) -> Any:
    def made(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, False))

    return types.uint64(types.uint64), made


def _ones(_: Any, word: Any) -> Any:
    def made(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), made


lowest: Any = intrinsic(_lowest)
"""The number of the lowest bit that is set; 64 without one."""

ones: Any = intrinsic(_ones)
"""How many bits are set."""


@compiled
def refused(table: Words, rows: Ints, gathered: Words, base: Any, width: int) -> None:
    """Whom some of the rows refuses, in one block."""
    gathered[:] = 0
    side = 0
    while side + 5 <= rows.size:
        a = base + U(rows[side]) * U(width)
        b = base + U(rows[side + 1]) * U(width)
        c = base + U(rows[side + 2]) * U(width)
        d = base + U(rows[side + 3]) * U(width)
        e = base + U(rows[side + 4]) * U(width)
        for w in range(U(width)):
            gathered[w] |= table[a + w] | table[b + w] | table[c + w] | table[d + w] | table[e + w]
        side += 5
    while side < rows.size:
        a = base + U(rows[side]) * U(width)
        for w in range(U(width)):
            gathered[w] |= table[a + w]
        side += 1


@compiled
def unrefused(table: Words, alive: Words, rows: Ints, left: Words, width: int, height: int) -> None:
    """`left[event, block, word]`: the slots that none of an event's rows refuses. All arrays but `rows` are flat."""
    gathered = np.zeros(width, dtype=np.uint64)
    for block in range(alive.size // width):
        here = U(block) * U(width)
        for event in range(rows.shape[0]):
            refused(table, rows[event], gathered, here * U(height), width)
            there = U(event) * U(alive.size) + here
            for w in range(U(width)):
                left[there + w] = alive[here + w] & ~gathered[w]


@compiled
def settle(
    table: Words,
    check: Words,
    odd: Words,
    ends: Doubles,
    starts: Ints,
    edges: Ints,
    planes: Ints,
    values: Doubles,
    left: Words,
    asked: Ints,
    width: int,
    height: int,
) -> int:
    """Decides what rows leave open where two doubles can, and lists the rest in `asked`, as (event, slot).

    Event i is in doubt in its cells `starts[i]` to before `starts[i + 1]`: `edges` is the row that marks who may be
    wrong (zero: all may), `planes` says where their ends stand, `values` what the event says. Answers with how many
    are to be asked, which may be more than `asked` holds; calling again is harmless."""
    size = U(check.size)
    marked = np.zeros(width, dtype=np.uint64)
    count = 0
    for block in range(check.size // width):
        here = U(block) * U(width)
        base = here * U(height)
        for event in range(starts.size - 1):
            first, last = starts[event], starts[event + 1]
            refused(table, edges[first:last], marked, base, width)
            for cell in range(first, last):
                if edges[cell] == 0:
                    marked[:] = ~U(0)
            for w in range(U(width)):
                at = here + w
                doubt = left[U(event) * size + at] & (marked[w] | check[at])
                while doubt != U(0):
                    place = lowest(doubt)
                    bit = U(1) << place
                    doubt ^= bit
                    slot = at * U(64) + place
                    ask = check[at] & bit != U(0)
                    for cell in range(first, last):
                        if edges[cell] == 0:
                            ask = True
                        elif table[base + U(edges[cell]) * U(width) + w] & bit != U(0):
                            value = values[cell]
                            if odd[at] & bit != U(0) or value != value:  # noqa: PLR0124 - NaN
                                ask = True
                            elif not (ends[2 * planes[cell], slot] <= value < ends[2 * planes[cell] + 1, slot]):
                                left[U(event) * size + at] &= ~bit
                                ask = False
                                break
                    if ask:
                        if count < asked.shape[0]:
                            asked[count, 0] = event
                            asked[count, 1] = slot
                        count += 1
    return count


@compiled
def reordered(left: Words, ranks: Ints, found: Words, size: int) -> None:
    """Bits by slot as bits by rank. Slots of one rank become one bit."""
    for at in range(U(left.size)):
        word = left[at]
        base = at // U(size) * U(size)
        first = (at - base) * U(64)
        while word != U(0):
            rank = U(ranks[first + lowest(word)])
            found[base + rank // U(64)] |= U(1) << (rank % U(64))
            word &= word - U(1)


@compiled
def counted(left: Words, counts: Ints, size: int) -> None:
    """How many bits each event has; an event has `size` words."""
    for event in range(counts.size):
        total = U(0)
        base = U(event) * U(size)
        for w in range(U(size)):
            total += ones(left[base + w])
        counts[event] = total


@compiled
def tallied(left: Words, totals: Ints, size: int) -> None:
    """How many events each bit is set for, added to `totals`."""
    for at in range(U(left.size)):
        word = left[at]
        first = at % U(size) * U(64)
        while word != U(0):
            totals[first + lowest(word)] += 1
            word &= word - U(1)


@compiled
def two(word: Any, keys: Ints, first: Any, found: Ints, to: Any) -> Any:
    """Writes the keys of the two lowest bits, or whatever where there are not that many; answers with the others."""
    found[to] = keys[first + (lowest(word) & U(63))]
    word &= word - U(1)
    found[to + U(1)] = keys[first + (lowest(word) & U(63))]
    return word & (word - U(1))


@compiled
def spread(word: Any, keys: Ints, first: Any, found: Ints, to: Any, limit: Any, density: float) -> None:
    """Writes the keys of all bits of a word, and nothing from `limit` on.

    How many bits a word has on average decides the way: a loop over each is slow where its length cannot be foreseen,
    so two, four or eight are written at once, and what is too much is overwritten by the next word."""
    if density >= SPARSE and to + U(8) <= limit:
        word = two(word, keys, first, found, to)
        to += U(2)
        if density >= MIDDLE:
            word = two(word, keys, first, found, to)
            to += U(2)
        if density >= DENSE:
            word = two(word, keys, first, found, to)
            word = two(word, keys, first, found, to + U(2))
            to += U(4)
    while word != U(0):
        found[to] = keys[first + lowest(word)]
        word &= word - U(1)
        to += U(1)


@compiled
def listed(left: Words, keys: Ints, offsets: Ints, found: Ints, size: int, width: int) -> None:
    """Writes the keys of all bits, event by event at its offset, block by block so that the keys stay in the cache."""
    at = offsets[:-1].copy()
    for block in range(size // width):
        for event in range(at.size):
            density = (offsets[event + 1] - offsets[event]) / size
            begin = U(event) * U(size) + U(block) * U(width)
            first = U(block) * U(width) * U(64)
            limit = U(offsets[event + 1])
            to = U(at[event])
            for w in range(U(width)):
                word = left[begin + w]
                spread(word, keys, first + w * U(64), found, to, limit, density)
                to += ones(word)
            at[event] = to


@compiled
def wanting(
    table: Words, alive: Words, rows: Ints, keys: Ints, found: Ints, expected: int, width: int, height: int
) -> int:
    """`unrefused` and `listed` at once, for one event; answers with how many it found. There is room for all keys."""
    gathered = np.zeros(width, dtype=np.uint64)
    density = expected / alive.size
    to = U(0)
    for block in range(alive.size // width):
        here = U(block) * U(width)
        refused(table, rows, gathered, here * U(height), width)
        for w in range(U(width)):
            word = alive[here + w] & ~gathered[w]
            spread(word, keys, (here + w) * U(64), found, to, U(found.size), density)
            to += ones(word)
    return int(to)
