"""The inner loops of the compiled index. Importing numba takes a while, so this is imported when a batch comes.

Bits are stored by block: `table[block, row]` has a bit for each slot of the block that the row refuses. A block fits
into the second-level cache, so the loops process all events of a batch with one block before the next. Indices are
unsigned, because numba checks signed indices for negative values at every access.
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
"""The bits per word from which each variant of `write_keys` is the fastest, as measured."""


def _lowest_bit(_: Any, word: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, False))

    return types.uint64(types.uint64), emit


def _bit_count(_: Any, word: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), emit


lowest_bit: Any = intrinsic(_lowest_bit)
"""The position of the lowest set bit; 64 if there is none."""

bit_count: Any = intrinsic(_bit_count)
"""The number of set bits."""


@compiled
def gather(table: Words, rows: Ints, gathered: Words, base: Any, width: int) -> None:
    """The slots of one block that any of the rows refuses."""
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
def combine_rows(table: Words, alive: Words, rows: Ints, remaining: Words, width: int, height: int) -> None:
    """Fill `remaining[event, block, word]`: the slots that none of an event's rows refuses. All arrays but `rows` are
    flat."""
    gathered = np.zeros(width, dtype=np.uint64)
    for block in range(alive.size // width):
        here = U(block) * U(width)
        for event in range(rows.shape[0]):
            gather(table, rows[event], gathered, here * U(height), width)
            there = U(event) * U(alive.size) + here
            for w in range(U(width)):
                remaining[there + w] = alive[here + w] & ~gathered[w]


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
    remaining: Words,
    doubts: Ints,
    width: int,
    height: int,
) -> int:
    """Decide doubtful slots by comparing doubles if possible, and list the others in `doubts`, as (event, slot).

    The doubtful cells of event i are those from `starts[i]` to before `starts[i + 1]`. For each cell, `edges` is the
    row with the doubtful slots (0: all slots are), `planes` is the index of their ends, and `values` is the event's
    value. Returns the number of slots to list, which may exceed the size of `doubts`; the caller may call again."""
    size = U(check.size)
    marked = np.zeros(width, dtype=np.uint64)
    count = 0
    for block in range(check.size // width):
        here = U(block) * U(width)
        base = here * U(height)
        for event in range(starts.size - 1):
            first, last = starts[event], starts[event + 1]
            gather(table, edges[first:last], marked, base, width)
            for cell in range(first, last):
                if edges[cell] == 0:
                    marked[:] = ~U(0)
            for w in range(U(width)):
                at = here + w
                doubt = remaining[U(event) * size + at] & (marked[w] | check[at])
                while doubt != U(0):
                    place = lowest_bit(doubt)
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
                                remaining[U(event) * size + at] &= ~bit
                                ask = False
                                break
                    if ask:
                        if count < doubts.shape[0]:
                            doubts[count, 0] = event
                            doubts[count, 1] = slot
                        count += 1
    return count


@compiled
def reorder_bits(remaining: Words, ranks: Ints, by_rank: Words, size: int) -> None:
    """Reorder bits from slots to ranks. Several slots may have the same rank."""
    for at in range(U(remaining.size)):
        word = remaining[at]
        base = at // U(size) * U(size)
        first = (at - base) * U(64)
        while word != U(0):
            rank = U(ranks[first + lowest_bit(word)])
            by_rank[base + rank // U(64)] |= U(1) << (rank % U(64))
            word &= word - U(1)


@compiled
def count_bits(remaining: Words, counts: Ints, size: int) -> None:
    """Count the bits of each event, which has `size` words."""
    for event in range(counts.size):
        total = U(0)
        base = U(event) * U(size)
        for w in range(U(size)):
            total += bit_count(remaining[base + w])
        counts[event] = total


@compiled
def add_bits(remaining: Words, totals: Ints, size: int) -> None:
    """Add to `totals` the number of events for which each bit is set."""
    for at in range(U(remaining.size)):
        word = remaining[at]
        first = at % U(size) * U(64)
        while word != U(0):
            totals[first + lowest_bit(word)] += 1
            word &= word - U(1)


@compiled
def write_two(word: Any, keys: Ints, first: Any, out: Ints, to: Any) -> Any:
    """Write the keys of the two lowest bits (arbitrary keys if there are fewer); returns the other bits."""
    out[to] = keys[first + (lowest_bit(word) & U(63))]
    word &= word - U(1)
    out[to + U(1)] = keys[first + (lowest_bit(word) & U(63))]
    return word & (word - U(1))


@compiled
def write_keys(word: Any, keys: Ints, first: Any, out: Ints, to: Any, limit: Any, density: float) -> None:
    """Write the keys of all bits of a word, and nothing at or after `limit`.

    The variant depends on the average number of bits per word. A loop over single bits is slow, because the processor
    cannot predict its length. So two, four or eight keys are written at once; the next word overwrites surplus keys."""
    if density >= SPARSE and to + U(8) <= limit:
        word = write_two(word, keys, first, out, to)
        to += U(2)
        if density >= MIDDLE:
            word = write_two(word, keys, first, out, to)
            to += U(2)
        if density >= DENSE:
            word = write_two(word, keys, first, out, to)
            word = write_two(word, keys, first, out, to + U(2))
            to += U(4)
    while word != U(0):
        out[to] = keys[first + lowest_bit(word)]
        word &= word - U(1)
        to += U(1)


@compiled
def list_keys(remaining: Words, keys: Ints, offsets: Ints, out: Ints, size: int, width: int) -> None:
    """Write the keys of all bits, for each event at its offset. It proceeds by block, so that keys stay in the
    cache."""
    at = offsets[:-1].copy()
    for block in range(size // width):
        for event in range(at.size):
            density = (offsets[event + 1] - offsets[event]) / size
            begin = U(event) * U(size) + U(block) * U(width)
            first = U(block) * U(width) * U(64)
            limit = U(offsets[event + 1])
            to = U(at[event])
            for w in range(U(width)):
                word = remaining[begin + w]
                write_keys(word, keys, first + w * U(64), out, to, limit, density)
                to += bit_count(word)
            at[event] = to
