"""What was seen before: exact within a window, never a high-water mark alone.

Multipath reorders and publishers restart, so "newer than the newest" proves nothing. A window remembers which of
the last numbers of one sender were seen; what lies below it counts as seen. A ring of slots, each holding the
number that was last seen there: small, and touched in one place, since a peer has hundreds of them.
"""

from array import array

from wend.model.events import EventId, PeerId

_NEVER = -1
_BEYOND = 1 << 62
"""No honest sender counts that far; what does is called seen."""
TOO_OLD = "a packet too old to know whether it came before"


class Window:
    """Numbers of one sender that were seen. Numbers are not negative."""

    __slots__ = ("_slots", "highest", "size")

    def __init__(self, size: int = 4096) -> None:
        self.size = size
        self.highest = _NEVER
        self._slots = array("q", [_NEVER]) * size

    def add(self, number: int) -> bool:
        """True if it is new. What is older than the window is not."""
        place = number % self.size
        if number > self.highest:
            if number >= _BEYOND:
                return False
            self.highest = number
        elif number <= self.highest - self.size or self._slots[place] == number:
            return False
        self._slots[place] = number
        return True

    def too_old(self, number: int) -> bool:
        return number <= self.highest - self.size

    def __contains__(self, number: int) -> bool:
        return number <= self.highest and (
            number <= self.highest - self.size or self._slots[number % self.size] == number
        )


class Seen:
    """Events that were delivered here: a window per life of a publisher, for the lives that were seen last."""

    __slots__ = ("_size", "_windows", "lives")

    def __init__(self, size: int = 0, lives: int = 2048) -> None:
        """A larger window for those who keep events back, and so see them out of order by far."""
        self._size = max(4096, size)
        self.lives = max(1, lives * 4096 // self._size)
        self._windows: dict[tuple[PeerId, int], Window] = {}

    def add(self, id_: EventId) -> bool:
        """True if it is new."""
        publisher, life, number = id_
        try:
            window = self._windows[publisher, life]
        except KeyError:
            window = self._windows[publisher, life] = Window(self._size)
            if len(self._windows) > self.lives:
                del self._windows[next(iter(self._windows))]
        return window.add(number)

    def too_old(self, id_: EventId) -> bool:
        """Called seen only because it lies below its window."""
        window = self._windows.get(id_[:2])
        return window is not None and window.too_old(id_[2])
