"""The cache of active leaves at the peer of a publisher, which sends events there directly (TreeCache in the paper).

The owner of a leaf tells it to the peers that publish there, and reminds them while they do. The cache forgets a leaf
without a reminder.
"""

from collections.abc import Iterable

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.strategies.dmm.search_trees import SearchNode
from wend.strategies.dmm.spaces import SpaceName


class TreeCache:
    """The active leaves that this peer's events have found, by space and code."""

    __slots__ = ("_expiry_ns", "_leaves", "_limit")

    def __init__(self, expiry_ns: Nanos, limit: int = 4096) -> None:
        self._expiry_ns = expiry_ns
        self._limit = limit
        self._leaves: dict[SpaceName, dict[str, tuple[PeerId, Nanos]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._leaves.values()))

    def add(self, now: Nanos, space: SpaceName, code: str, owner: PeerId) -> None:
        """Add or renew a leaf. It replaces leaves that contain it, and those that it contains."""
        if space not in self._leaves and len(self._leaves) >= self._limit:
            return
        leaves = self._leaves.setdefault(space, {})
        for other in [each for each in leaves if each != code and (code.startswith(each) or each.startswith(code))]:
            del leaves[other]
        if code in leaves or len(leaves) < self._limit:
            leaves[code] = (owner, now + self._expiry_ns)

    def find(self, now: Nanos, space: SpaceName, code: str) -> tuple[str, PeerId] | None:
        """The leaf that contains this region, and its owner."""
        leaves = self._leaves.get(space)
        if leaves:
            for length in range(len(code), -1, -1):
                leaf = leaves.get(code[:length])
                if leaf is not None and leaf[1] > now:
                    return code[:length], leaf[0]
        return None

    def discard(self, space: SpaceName, code: str) -> None:
        self._leaves.get(space, {}).pop(code, None)

    def expire(self, now: Nanos) -> None:
        for space, leaves in list(self._leaves.items()):
            for code in [code for code, (_, expires) in leaves.items() if expires <= now]:
                del leaves[code]
            if not leaves:
                del self._leaves[space]

    def users_of(self, now: Nanos, nodes: Iterable[SearchNode]) -> list[tuple[SearchNode, PeerId]]:
        """The peers that this peer, as an owner, reminds of its leaves: they have published there lately."""
        return [(node, peer) for node in nodes if node.users for peer in node.recent_users(now, self._expiry_ns)]
