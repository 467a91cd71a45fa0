"""The peers that this one takes for dead: those that did not answer its probes, and those that left."""

from wend.model.events import PeerId
from wend.model.units import Nanos

MOST_NAMED = 8
"""The most dead peers that a probe names."""
MEMORY = 12
"""Detection times for which a peer remembers who is dead. Then it asks each of them once more, and forgets it."""
DOUBTED = 2
"""Detection times after which a peer probes a dead one that others name: by then they would know, too."""


class DeadPeers:
    """When each of them was found dead, oldest first, and which peers others took for dead by mistake."""

    __slots__ = ("_detection_ns", "_since_ns", "refuted_ns")

    def __init__(self, detection_ns: Nanos) -> None:
        self._detection_ns = detection_ns
        self._since_ns: dict[PeerId, Nanos] = {}
        self.refuted_ns: dict[PeerId, Nanos] = {}
        """When each peer that others took for dead last answered."""

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._since_ns

    def add(self, now: Nanos, peer: PeerId) -> None:
        self._since_ns.pop(peer, None)
        self._since_ns[peer] = now

    def discard(self, peer: PeerId) -> None:
        self._since_ns.pop(peer, None)

    def is_certain(self, now: Nanos, peer: PeerId) -> bool:
        """Whether the peer is dead even if others name it: they may not know yet."""
        since_ns = self._since_ns.get(peer)
        return since_ns is not None and now <= since_ns + DOUBTED * self._detection_ns

    def is_refuted(self, now: Nanos, peer: PeerId) -> bool:
        """Whether the peer has lately answered a probe although others took it for dead."""
        answered_ns = self.refuted_ns.get(peer)
        return answered_ns is not None and now < answered_ns + self._detection_ns

    def recent(self, now: Nanos) -> tuple[PeerId, ...]:
        """The peers to name in a probe."""
        if not self._since_ns:
            return ()
        limit_ns = now - 2 * self._detection_ns
        return tuple([peer for peer, since_ns in list(self._since_ns.items())[-MOST_NAMED:] if since_ns >= limit_ns])

    def outdated(self, now: Nanos) -> list[PeerId]:
        """The peers to ask once more."""
        limit_ns = now - MEMORY * self._detection_ns
        return [peer for peer, since_ns in self._since_ns.items() if since_ns < limit_ns]
