"""Simulated traceroute: the routers between two peers.

Like a real traceroute it may have holes: a router may never answer (anonymous), or an answer may get lost. The draws
depend only on the seed, the two peers and the attempt, so the same question gets the same answer.
"""

import numpy as np
from numpy.typing import NDArray

from wend.model.events import PeerId
from wend.model.randomness import stream
from wend.topology.placement import Placement

Hop = int | None
"""A router, or None if it did not answer."""


def router_address(router: int) -> str:
    """The address with which a router answers."""
    return f"10.{router >> 16 & 255}.{router >> 8 & 255}.{router & 255}"


def draw_anonymous(routers: int, share: float, seed: int) -> NDArray[np.bool_]:
    """Which routers never answer."""
    anonymous: NDArray[np.bool_] = stream(seed, "traceroute", "anonymous").random(routers) < share
    return anonymous


class Tracer:
    """Traces paths in an underlay. `anonymous` is a share of routers, `loss` a share of answers."""

    def __init__(self, placement: Placement, *, seed: int, anonymous: float = 0.0, loss: float = 0.0) -> None:
        self._placement = placement
        self._seed, self._loss = seed, loss
        drawn = draw_anonymous(placement.underlay.routers, anonymous, seed)
        self.anonymous = frozenset(np.flatnonzero(drawn).tolist())

    def trace(self, source: PeerId, target: PeerId, attempt: int = 0) -> tuple[Hop, ...]:
        path = self._placement.path(source, target)
        lost = np.zeros(len(path), dtype=bool)
        if self._loss:
            lost = stream(self._seed, "traceroute", source, target, attempt).random(len(path)) < self._loss
        silent = zip(path, lost.tolist(), strict=True)
        return tuple(None if is_lost or router in self.anonymous else router for router, is_lost in silent)
