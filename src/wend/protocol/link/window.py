"""Duplicate detection by sequence numbers: a sliding window per sender, and a filter for events.

A receiver cannot compare a number with the highest one alone, because routes reorder packets and publishers restart. So
a window remembers which of the last numbers it has seen, exactly, and treats every number below it as seen. A peer has
a window for each link and for each publisher, so a window allocates memory only for the numbers it has seen.
"""

from typing import Final, final

from wend.model.events import EventId, PeerId

_NONE: Final = -1
_UNREACHABLE: Final = 1 << 62
"""The least number that a window refuses: no sender gets that far, and accepting it would make all others too old."""
_SHIFT: Final = 10
_BLOCK: Final = 1 << _SHIFT
_LAST: Final = _BLOCK - 1
_SHORTEST: Final = 32
_FIRST: Final = 60
"""How many numbers a filter stores without a window: as many as a two-digit integer has bits."""
_DIGITS = bytes.maketrans(b"\x00\x01", b"01")
_NOTHING = bytearray()


@final
class SequenceWindow:
    """The sequence numbers seen from one sender, among the `size` numbers up to the highest one.

    Numbers are grouped in blocks. The block of the highest number has a byte for each number, which is fast to set.
    When the numbers leave a block behind, the window packs it into one integer, with a bit for each number.
    """

    __slots__ = ("_block", "_end", "_packed", "_start", "highest", "size")

    def __init__(self, size: int = 4096) -> None:
        self.size = size
        self.highest = _NONE
        self._start = 0
        self._end = _NONE
        """The last number for which the current block has a byte; `_start` is the first."""
        self._block = _NOTHING
        self._packed: dict[int, int] | None = None

    def add(self, number: int) -> bool:
        """Add a number. Return False if it was seen before, or is too old or too large."""
        if number > self.highest:
            if number > self._end and not self._extend_to(number):
                return False
            self.highest = number
            self._block[number & _LAST] = 1
            return True
        if number <= self.highest - self.size:
            return False
        if number >= self._start:
            block, place = self._block, number & _LAST
            if block[place]:
                return False
            block[place] = 1
            return True
        if self._packed is None:
            self._packed = {}
        bits, bit = self._packed.get(number >> _SHIFT, 0), _bit(number)
        if bits & bit:
            return False
        self._packed[number >> _SHIFT] = bits | bit
        if not bits:
            self._forget_below(self._packed, self.highest)
        return True

    def is_too_old(self, number: int) -> bool:
        """Whether the window has moved past this number, so that it is unknown whether it was seen."""
        return number <= self.highest - self.size

    def __contains__(self, number: int) -> bool:
        if number > self.highest:
            return False
        if number <= self.highest - self.size:
            return True
        if number >= self._start:
            return bool(self._block[number & _LAST])
        return self._packed is not None and bool(self._packed.get(number >> _SHIFT, 0) & _bit(number))

    def _extend_to(self, number: int) -> bool:
        """Extend the block to a number beyond its end, or begin the next. Return False if the number is too large."""
        if number >= _UNREACHABLE:
            return False
        start, length = number & ~_LAST, _BLOCK
        if start == self._start:  # the first block grows on demand: most senders in a large world send little
            length = max(_SHORTEST, 1 << number.bit_length())
            self._block = self._block + bytes(length - len(self._block))
        else:
            if self._block is not _NOTHING:
                if self._packed is None:
                    self._packed = {}
                self._packed[self._start >> _SHIFT] = int(self._block.translate(_DIGITS).ljust(_BLOCK, b"0"), 2)
                self._forget_below(self._packed, number)
            self._block = bytearray(_BLOCK)
        self._start, self._end = start, start + length - 1
        return True

    def _forget_below(self, packed: dict[int, int], highest: int) -> None:
        """Drop packed blocks below the window, once there are more blocks than a window can span."""
        lowest = (highest - self.size + 1) >> _SHIFT
        packed.pop(lowest - 1, None)  # if numbers arrive in order, this is the only one
        if len(packed) > (self.size >> _SHIFT) + 1:
            self._packed = {at: bits for at, bits in packed.items() if at >= lowest}


def _bit(number: int) -> int:
    """The bit of a number in its packed block: the first number has the most significant one."""
    return 1 << (~number & _LAST)


_NO_WINDOWS: dict[tuple[PeerId, int], SequenceWindow | int] = {}
"""The older generation of filters that do not have one yet; always empty."""


class DuplicateFilter:
    """The events that a peer has delivered: a window for each of the most recent incarnations of publishers.

    The filter holds two generations of windows. When the younger one is full, it replaces the older one, and the filter
    forgets the windows that are only in the older one. So it remembers an incarnation until `incarnations` others have
    followed. Most incarnations publish little, so the first numbers are stored as bits of one integer instead of a
    window. A window takes a third of a kilobyte, 1 KB more while it is in use, and a fifth of a byte for each number
    that it spans: 2 KB without persistence, and 10 KB with the default retry limit, so at most 40 MB in total.
    """

    __slots__ = ("_older", "_size", "_windows", "incarnations")

    def __init__(self, size: int = 0, incarnations: int = 2048) -> None:
        """`size`: the width of windows, for peers that store events and so see them far out of order."""
        self._size = max(4096, size)
        self.incarnations = incarnations
        """The least number of incarnations that the filter remembers; the most is twice as many."""
        self._windows: dict[tuple[PeerId, int], SequenceWindow | int] = {}
        self._older = _NO_WINDOWS

    def add(self, id_: EventId) -> bool:
        """Add an event. Return False if it was seen before, or is too old."""
        publisher, incarnation, number = id_
        try:
            window = self._windows[publisher, incarnation]
        except KeyError:
            window = self._recall((publisher, incarnation))
        if type(window) is SequenceWindow:
            return window.add(number)
        if not 0 <= number < _FIRST:
            self._windows[publisher, incarnation] = begun = self._make_window(window)
            return begun.add(number)
        bit = 1 << number
        self._windows[publisher, incarnation] = window | bit
        return not window & bit

    def __contains__(self, id_: EventId) -> bool:
        """Whether an event was seen before, or is too old."""
        publisher, incarnation, number = id_
        key = (publisher, incarnation)
        window = self._windows.get(key, self._older.get(key, 0))
        if type(window) is SequenceWindow:
            return number in window
        return 0 <= number < _FIRST and bool(window >> number & 1)

    def is_too_old(self, id_: EventId) -> bool:
        """Whether `add`, called just before, refused the event only because it lies below its window."""
        window = self._windows.get(id_[:2], 0)
        return type(window) is SequenceWindow and window.is_too_old(id_[2])

    def __len__(self) -> int:
        """How many incarnations the filter remembers."""
        return len(self._windows) + len(self._older)

    def _make_window(self, bits: int) -> SequenceWindow:
        """Make a window from the bits of the first numbers."""
        window = SequenceWindow(self._size)
        for number in range(_FIRST):
            if bits >> number & 1:
                window.add(number)
        return window

    def _recall(self, key: tuple[PeerId, int]) -> SequenceWindow | int:
        """Move a window from the older generation to the younger one, or begin one."""
        window = self._older.pop(key, 0)
        if len(self._windows) >= self.incarnations:
            self._older, self._windows = self._windows, {}
        self._windows[key] = window
        return window
