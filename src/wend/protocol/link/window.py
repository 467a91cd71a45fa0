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
_LAID_OUT = 4096
"""A window of this size is laid out, which is faster; a larger one would cost too much where little is seen."""
_CHUNK = 10
_IN_CHUNK = (1 << _CHUNK) - 1


class SequenceWindow:
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


class SparseWindow:
    """The same, as large as what was seen: a bit per number, in chunks that come when they are needed.

    For the many senders of whom little is seen, and for windows that would be too wide to lay out.
    """

    __slots__ = ("_chunks", "_most", "highest", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.highest = _NEVER
        self._chunks: dict[int, int] = {}
        self._most = (size >> _CHUNK) + 2
        """Chunks that the window can touch."""

    def add(self, number: int) -> bool:
        """True if it is new. What is older than the window is not."""
        if number > self.highest:
            if number >= _BEYOND:
                return False
            self.highest = number
        elif number <= self.highest - self.size:
            return False
        place, bit = number >> _CHUNK, 1 << (number & _IN_CHUNK)
        chunk = self._chunks.get(place, 0)
        if chunk & bit:
            return False
        self._chunks[place] = chunk | bit
        if not chunk and len(self._chunks) > self._most:
            lowest = (self.highest - self.size) >> _CHUNK
            self._chunks = {at: bits for at, bits in self._chunks.items() if at >= lowest}
        return True

    def too_old(self, number: int) -> bool:
        return number <= self.highest - self.size


class DuplicateFilter:
    """Events that were delivered here: a window per life of a publisher, for the lives that were seen last.

    Two generations: when the younger is full it becomes the older, and what the older still has is forgotten. So a
    life is remembered until as many others were seen after it as a generation holds. A life takes a third of a
    kilobyte, and up to a fifth of a byte for each number that its window spans: with the usual keep 8 KB, and 32 MB
    for all of them. Without persistency a window is laid out, for speed: 32 KB a life, 128 MB at most in all.
    """

    __slots__ = ("_older", "_size", "_windows", "lives")

    def __init__(self, size: int = 0, lives: int = 2048) -> None:
        """A larger window for those who keep events back, and so see them out of order by far."""
        self._size = max(_LAID_OUT, size)
        self.lives = lives
        """Lives that are remembered at least; twice as many at most."""
        self._windows: dict[tuple[PeerId, int], SequenceWindow | SparseWindow] = {}
        self._older: dict[tuple[PeerId, int], SequenceWindow | SparseWindow] = {}

    def add(self, id_: EventId) -> bool:
        """True if it is new."""
        publisher, life, number = id_
        try:
            window = self._windows[publisher, life]
        except KeyError:
            window = self._recall((publisher, life))
        return window.add(number)

    def too_old(self, id_: EventId) -> bool:
        """Called seen only because it lies below its window; asked just after `add`."""
        window = self._windows.get(id_[:2])
        return window is not None and window.too_old(id_[2])

    def _recall(self, key: tuple[PeerId, int]) -> SequenceWindow | SparseWindow:
        """Its window, from the older generation or anew, as one of the younger."""
        window = self._older.pop(key, None)
        if window is None:
            window = SequenceWindow(self._size) if self._size <= _LAID_OUT else SparseWindow(self._size)
        if len(self._windows) >= self.lives:
            self._older, self._windows = self._windows, {}
        self._windows[key] = window
        return window
