"""How many peers are there? Minima of random draws spread like rumours and tell, without anyone counting twice.

Every peer draws a few exponential numbers per epoch; the least of all draws, place by place, is about 1/n. An epoch
is begun anew after some periods, so that peers who have gone are forgotten.
"""

import numpy as np

DRAWS = 32
EPOCH = 24
"""Periods; a rumour reaches all within a few."""


class Census:
    def __init__(self, draw: np.random.Generator) -> None:
        self._draw = draw
        self._left = EPOCH
        self._last = 1.0
        self.epoch = 1
        self.ended = 0
        """Epochs that this peer has seen from begin to end, or nearly so."""
        self.minima = self._fresh()

    @property
    def peers(self) -> float:
        """The estimate of the epoch before, or of this one while it is the first."""
        return max(self._last, 1.0) if self.ended else max(self._estimate(), 1.0)

    def tick(self) -> bool:
        """A period is over; True if an epoch is too."""
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
        return tuple(float(m) for m in self._draw.exponential(size=DRAWS))
