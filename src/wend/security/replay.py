"""The replay window: each number of a sender is accepted once.

Networks reorder packets, so a receiver cannot compare a number with the highest one alone. The window has a bit for
each of the last `WINDOW` numbers, and refuses all that are older. A number is looked up before a packet is opened, and
added after: a forged packet changes nothing.
"""

from typing import Final

WINDOW: Final = 2048
_MASK: Final = (1 << WINDOW) - 1


class ReplayWindow:
    __slots__ = ("_seen", "highest")

    def __init__(self) -> None:
        self.highest = -1
        self._seen = 0
        """Bit i: the number `highest - i` was added."""

    def is_new(self, number: int) -> bool:
        """Whether the number was not added before and is not too old to say."""
        back = self.highest - number
        return back < 0 or (back < WINDOW and not self._seen >> back & 1)

    def add(self, number: int) -> bool:
        """Add a number that `is_new`. Returns whether it is the highest."""
        ahead = number - self.highest
        if ahead > 0:
            seen = (self._seen << ahead | 1) if ahead < WINDOW else 1
            # Of numbers in order, bits beyond the window are cut off now and then: it costs as much as the shift.
            self._seen = seen if ahead == 1 and number & 255 else seen & _MASK
            self.highest = number
            return True
        self._seen |= 1 << -ahead
        return False
