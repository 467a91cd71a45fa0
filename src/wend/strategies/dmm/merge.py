"""The merge of a region: a split node with few entries takes them back from its children and becomes a leaf again.

The paper merges regions (section IV-A) without saying how. Here a node that has passed few entries on for a whole
expiry takes three steps, one with each beacon, so that no event meets a leaf that lacks an entry:

1. The children send their entries (`COLLECT`). They stay active and do not split. The node stores new entries, too, and
   still sends them to the children.
2. The node has all entries and becomes a leaf (`HOLD`). The children stay active for another beacon period: by then
   the spaces to which the node passes entries on have them under its name.
3. The children are removed (`DROP`). Events that would meet them now go up to the node.

If a child has split, has changed its owner, or does not answer, the node stays split and tries again later. A new owner
of the node finds it split, too.
"""

from collections.abc import Iterable

from wend.model.units import Nanos
from wend.strategies.ring.reverse_paths import Branch, ReversePaths


class RegionMerge:
    """The entries that a node has taken back from its children so far."""

    __slots__ = ("_missing", "_received", "began_ns", "children", "entries")

    def __init__(self, now: Nanos, children: Iterable[str], entries: ReversePaths) -> None:
        self.began_ns = now
        self.children = dict.fromkeys(children)
        """The children that are still active."""
        self.entries = entries
        self._received: dict[str, set[Branch]] = {}
        self._missing = dict.fromkeys(children)

    def receive(self, child: str, total: int, branches: Iterable[Branch]) -> None:
        """Record entries of a child, which has `total` of them. Ignore others than the children."""
        if child not in self.children:
            return
        received = self._received.setdefault(child, set())
        received.update(branches)
        if len(received) >= total:
            self._missing.pop(child, None)

    def is_incomplete(self, child: str) -> bool:
        """Whether entries of a child are still to come."""
        return child in self._missing

    @property
    def is_complete(self) -> bool:
        return not self._missing
