"""What the election of landmarks needs: an estimate of the number of peers, and the other landmarks.

The census estimates the number of peers from the minima of random draws, which spread by gossip. Every peer draws a few
exponential numbers per epoch. The minimum over all n peers, for each of these numbers, is about 1/n. A minimum counts
no peer twice. A new epoch starts after some periods, so that the estimate forgets former peers.

Gossip spreads the heartbeats of landmarks, too. A landmark whose heartbeat stops is down. Dead landmarks are remembered
by their last heartbeats, so that gossip does not bring them back.
"""

from collections.abc import Iterable, Iterator

from wend.model.events import PeerId
from wend.model.random_stream import RandomStream

DRAWS = 32
EPOCH = 24
"""Periods of an epoch. Gossip reaches all peers within a few."""
STILL = 20
"""Periods without a heartbeat after which a peer drops a landmark."""
MOST = 4
"""A peer accepts at most this many times k landmarks."""


class Census:
    """The minima of the current epoch and the estimate of the last."""

    def __init__(self, draw: RandomStream) -> None:
        self._draw = draw
        self._left = EPOCH
        self._last = 1.0
        self.epoch = 1
        self.ended = 0
        """The number of epochs that this peer has seen for at least half of their length."""
        self.minima = self._draw_minima()

    @property
    def peers(self) -> float:
        """The estimate of the previous epoch, or of the current one while it is the first."""
        return max(self._last, 1.0) if self.ended else max(self._estimate_peers(), 1.0)

    def tick(self) -> bool:
        """End a period. Return True if an epoch ended, too."""
        self._left -= 1
        if self._left > 0:
            return False
        self._begin_epoch(self.epoch + 1)
        return True

    def merge(self, epoch: int, minima: tuple[float, ...]) -> None:
        if len(minima) != DRAWS or epoch < self.epoch or not all(m > 0.0 for m in minima):
            return
        if epoch > self.epoch:
            self._begin_epoch(epoch)
        self.minima = tuple(map(min, self.minima, minima))

    def _begin_epoch(self, epoch: int) -> None:
        if self._left < EPOCH // 2:
            self._last = self._estimate_peers()
            self.ended += 1
        self.epoch = epoch
        self._left = EPOCH
        self.minima = self._draw_minima()

    def _estimate_peers(self) -> float:
        return (DRAWS - 1) / sum(self.minima)

    def _draw_minima(self) -> tuple[float, ...]:
        return tuple(self._draw.expovariate(1.0) for _ in range(DRAWS))


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

    def merge(self, beats: Iterable[tuple[PeerId, int]], round_: int) -> None:
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
