"""Contacts for peers that start in a ready overlay: the leaf set and the routing table that Pastry would build.

A simulation of many peers begins with them instead of letting every peer join (`pastry_settled`).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from wend.model.events import PeerId
from wend.model.keys import BITS, COLUMNS, DIGIT_BITS, DIGITS, node_id
from wend.strategies.ring.leaf_set import FULL, HALF

CANDIDATES = 8
"""How many of the peers that fit a cell of the table are compared. A joining peer meets no more than these either; one
that has looked for nearer peers for hours has met more."""

Cells = list[tuple[int, int]]
"""Ranges of positions on the ring, one for each digit that some peer has after a prefix."""


def find_settled_contacts(
    peers: Sequence[PeerId],
    near: Callable[[PeerId, Sequence[PeerId]], PeerId],
    candidates: int = CANDIDATES,
) -> Iterator[tuple[PeerId, tuple[PeerId, ...]]]:
    """The contacts of each of these peers, in their order. `near(peer, others)` chooses the nearest of some others.

    `candidates`: how many it chooses from, of the peers that fit a cell of the routing table."""
    ring = sorted(peers, key=node_id)
    places = [node_id(peer) for peer in ring]
    positions = {peer: position for position, peer in enumerate(ring)}
    wrapped = ring + ring + ring
    cells: dict[tuple[int, int], Cells] = {}
    total = len(ring)
    for peer in peers:
        at = positions[peer]
        if total <= FULL + 1:
            yield peer, tuple(wrapped[at + 1 : at + total])
            continue
        contacts = dict.fromkeys(wrapped[total + at - HALF : total + at])
        contacts.update(dict.fromkeys(wrapped[at + 1 : at + 1 + HALF]))
        low, high = 0, total
        for row in range(DIGITS):
            if high - low == 1:
                break
            split = cells.get((row, low))
            if split is None:
                split = cells[row, low] = _find_digit_ranges(places, low, high, row)
            own = (low, high)
            for begin, end in split:
                if begin <= at < end:
                    own = (begin, end)
                elif end - begin == 1:
                    contacts[ring[begin]] = None
                else:
                    stride = max(1, (end - begin) // candidates)
                    some = ring[begin + at % stride : end : stride]
                    contacts[near(peer, some[:candidates])] = None
            low, high = own
        yield peer, tuple(contacts)


def _find_digit_ranges(places: list[int], low: int, high: int, row: int) -> Cells:
    """The ranges of the peers in `low..high`, which share `row` digits, by their next digit."""
    unit = 1 << (BITS - DIGIT_BITS * (row + 1))
    base = places[low] - places[low] % (unit * COLUMNS)
    ends = [bisect_left(places, base + unit * (column + 1), low, high) for column in range(COLUMNS)]
    return [(begin, end) for begin, end in zip([low, *ends[:-1]], ends, strict=True) if begin < end]
