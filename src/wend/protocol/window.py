"""What was seen before: exact within a window, never a high-water mark alone.

Multipath reorders and publishers restart, so "newer than the newest" proves nothing. A window remembers which of
the last numbers of one sender were seen; what lies below it counts as seen. A ring of slots, each holding the
number that was last seen there: small, and touched in one place, since a peer has hundreds of them.
"""

from array import array

_NEVER = -1
_BEYOND = 1 << 62
"""No honest sender counts that far; what does is called seen."""


class Window:
    """Numbers of one sender that were seen. Numbers are not negative."""

    __slots__ = ("_slots", "highest", "size")

    def __init__(self, size: int = 4096) -> None:
        self.size = size
        self.highest = _NEVER
        self._slots = array("q", [_NEVER]) * size

    def add(self, number: int) -> bool:
        """True if it is new. What is older than the window is not."""
        slots, place = self._slots, number % self.size
        if number > self.highest:
            if number >= _BEYOND:
                return False
            self.highest = number
        elif number <= self.highest - self.size or slots[place] == number:
            return False
        slots[place] = number
        return True

    def __contains__(self, number: int) -> bool:
        return number <= self.highest and (
            number <= self.highest - self.size or self._slots[number % self.size] == number
        )
