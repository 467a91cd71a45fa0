"""The census estimates the number of peers from the minima of random draws, which spread by gossip.

Every peer draws a few exponential numbers per epoch. The minimum over all n peers, for each of these numbers, is about
1/n. A minimum counts no peer twice. A new epoch starts after some periods, so that the estimate forgets former peers.
"""

from wend.model.random_stream import RandomStream

DRAWS = 32
EPOCH = 24
"""Periods of an epoch. Gossip reaches all peers within a few."""


class Census:
    """The minima of the current epoch and the estimate of the last."""

    def __init__(self, draw: RandomStream) -> None:
        self._draw = draw
        self._left = EPOCH
        self._last = 1.0
        self.epoch = 1
        self.ended = 0
        """The number of epochs that this peer has seen for at least half of their length."""
        self.minima = self._fresh()

    @property
    def peers(self) -> float:
        """The estimate of the previous epoch, or of the current one while it is the first."""
        return max(self._last, 1.0) if self.ended else max(self._estimate(), 1.0)

    def tick(self) -> bool:
        """End a period. Return True if an epoch ended, too."""
        self._left -= 1
        if self._left > 0:
            return False
        self._begin(self.epoch + 1)
        return True

    def merge(self, epoch: int, minima: tuple[float, ...]) -> None:
        if len(minima) != DRAWS or epoch < self.epoch or not all(m > 0.0 for m in minima):
            return
        if epoch > self.epoch:
            self._begin(epoch)
        self.minima = tuple(map(min, self.minima, minima))

    def _begin(self, epoch: int) -> None:
        if self._left < EPOCH // 2:
            self._last = self._estimate()
            self.ended += 1
        self.epoch = epoch
        self._left = EPOCH
        self.minima = self._fresh()

    def _estimate(self) -> float:
        return (DRAWS - 1) / sum(self.minima)

    def _fresh(self) -> tuple[float, ...]:
        return tuple(self._draw.expovariate(1.0) for _ in range(DRAWS))
