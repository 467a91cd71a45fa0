"""The copies of hedged destinations that wait for an answer."""

from wend.model.events import PeerId
from wend.protocol.plugins import CopyKey

Copies = tuple[CopyKey, PeerId, int]
"""The copies of an event, or of one of its blocks, for a destination that this peer sent during one visit of the
packet. The last part is the length of the packet's path so far: if the packet returns, the answer to an earlier copy
says nothing about later copies."""


class Hedges:
    """The hedged destinations whose copies wait for answers."""

    def __init__(self) -> None:
        self._waiting: dict[Copies, tuple[int, bool]] = {}
        """The number of unanswered copies, and whether one was acknowledged."""

    def add(self, key: Copies) -> None:
        """Expect answers to two more copies."""
        count, _ = self._waiting.get(key, (0, False))
        self._waiting[key] = (count + 2, False)

    def count_answer(self, key: Copies, acked: bool) -> bool:
        """Count the answer to a copy. Return whether the destination needs a retry: all its copies failed."""
        count, is_good = self._waiting.pop(key, (1, False))
        is_good = is_good or acked
        if count > 1:
            self._waiting[key] = (count - 1, is_good)
            return False
        return not is_good
