"""The other landmarks that a peer knows: gossip spreads their heartbeats, and a landmark whose heartbeat stops is down.

Dead landmarks are remembered by their last heartbeats, so that gossip does not bring them back.
"""

from collections.abc import Iterable, Iterator

from wend.model.events import PeerId

STILL = 20
"""Periods without a heartbeat after which a peer drops a landmark."""
MOST = 4
"""A peer accepts at most so many times k landmarks."""


class Landmarks:
    """The heartbeats of other landmarks."""

    def __init__(self, me: PeerId, k: int) -> None:
        self._me = me
        self._limit = MOST * k
        self._beats: dict[PeerId, tuple[int, int]] = {}
        """By landmark: its heartbeat, and the round in which that heartbeat was new."""
        self._dead: dict[PeerId, int] = {}

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._beats

    def __iter__(self) -> Iterator[PeerId]:
        return iter(sorted(self._beats))

    def __len__(self) -> int:
        return len(self._beats)

    @property
    def beats(self) -> dict[PeerId, int]:
        return {peer: beat for peer, (beat, _) in self._beats.items()}

    def learn(self, beats: Iterable[tuple[PeerId, int]], round_: int) -> None:
        for peer, beat in beats:
            before = self._beats.get(peer)
            if peer == self._me or beat <= self._dead.get(peer, -1):
                continue
            has_room = len(self._beats) < self._limit
            if has_room if before is None else beat > before[0]:
                self._beats[peer] = (beat, round_)

    def drop(self, peer: PeerId, beat: int = -1) -> None:
        """Drop a landmark that was down or had left at this heartbeat, or at its last one."""
        last, _ = self._beats.pop(peer, (beat, 0))
        self._dead[peer] = max(last, beat)

    def expire(self, round_: int) -> list[PeerId]:
        """Drop the landmarks whose heartbeats have stopped, and return them."""
        silent = [peer for peer, (_, since) in sorted(self._beats.items()) if round_ - since > STILL]
        for peer in silent:
            self.drop(peer)
        return silent
