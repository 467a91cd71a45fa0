"""How many parity blocks a large event needs while links lose packets.

Without coding, a large event travels in fragments, and waits at every hop for those that are lost; a hedge does the
same on another route. In blocks, it waits for nothing as long as no more are lost than there are parity blocks. The
chance that too many are lost follows from the loss of the route to each destination. Parity is added while it lowers
the sum of these chances by more than its price: a copy of the whole event on a link has the price of a hedge, and a
block is a share of it. An event whose parity does not pay stays whole.
"""

from collections.abc import Sequence


def choose_parity(needed: int, losses: Sequence[float], price: float) -> int:
    """The number of parity blocks with the least sum of lateness and price, at most as many as are needed.

    `losses` are the probabilities that a block is late, by destination; `price` is that of one parity block.
    """
    chances = [(1.0 - loss) ** needed for loss in losses]
    """By destination, that exactly this many blocks are late before enough are in time."""
    late = [1.0 - chance for chance in chances]
    best, least = 0, sum(late, 0.0)
    for parity in range(1, needed + 1):
        if price * parity >= least:
            break
        for index, loss in enumerate(losses):
            chances[index] *= loss * (needed + parity - 1) / parity
            late[index] -= chances[index]
        total = sum(late, 0.0) + price * parity
        if total < least:
            best, least = parity, total
    return best
