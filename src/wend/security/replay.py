"""The replay window: each number of a sender is accepted once.

Networks reorder packets, so a receiver cannot compare a number with the highest one alone. The window has a bit for
each of the last `WINDOW` numbers, and refuses all older ones. The receiver looks a number up before it opens a packet,
and adds it after: a forged packet changes nothing.

Most numbers come in sequence. Those only raise `highest`; their bits are set when a number comes that needs them.
"""

from typing import Final

WINDOW: Final = 2048
_MASK: Final = (1 << WINDOW) - 1


class ReplayWindow:
    __slots__ = ("_marked", "_seen", "highest")

    def __init__(self) -> None:
        self.highest = -1
        self._marked = -1
        """All numbers after this one, up to `highest`, have been added."""
        self._seen = 0
        """Bit i: the number `_marked - i` has been added."""

    def is_new(self, number: int) -> bool:
        """Whether the number has not been added and is not older than the window."""
        back = self.highest - number
        if back < 0:
            return True
        self._set_bits()
        return back < WINDOW and not self._seen >> back & 1

    def add(self, number: int) -> bool:
        """Add a number that `is_new`. Returns whether it is the highest."""
        ahead = number - self.highest
        if ahead == 1:
            self.highest = number
            return True
        self._set_bits()
        if ahead > 0:
            self._seen = (self._seen << ahead | 1) & _MASK if ahead < WINDOW else 1
            self.highest = self._marked = number
            return True
        self._seen |= 1 << -ahead
        return False

    def _set_bits(self) -> None:
        """Set the bits of the numbers that came in sequence."""
        count = self.highest - self._marked
        if count:
            self._seen = (self._seen << count | (1 << count) - 1) & _MASK if count < WINDOW else _MASK
            self._marked = self.highest
