"""Simulated traceroute: the routers between two peers.

Like a real traceroute it may have holes. A router may never answer (anonymous), an answer may get lost, and a trace
may end before its target. The draws depend only on the seed, the two peers and the attempt, so the same question gets
the same answer.
"""

import msgspec
import numpy as np

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.randomness import stream
from wend.model.units import Nanos
from wend.topology.placement import Placement

Hop = int | None


class Traceroute(msgspec.Struct, frozen=True):
    """The result of a trace. `hops` are the routers on the path, None for those that did not answer."""

    source: PeerId
    target: PeerId
    hops: tuple[Hop, ...]
    reached: bool = True
    rtt_ns: Nanos = 0


class Tracer:
    """Traces paths in an underlay. `anonymous` is a share of routers, `loss` of answers, `cut` of traces."""

    def __init__(
        self, placement: Placement, *, seed: int, anonymous: float = 0.0, loss: float = 0.0, cut: float = 0.0
    ) -> None:
        for what, share in (("anonymous", anonymous), ("loss", loss), ("cut", cut)):
            if not 0 <= share <= 1:
                raise ConfigError(f"traceroute: {what} must be a share from 0 to 1, got {share:g}")
        self._placement = placement
        self._seed, self._loss, self._cut = seed, loss, cut
        drawn = stream(seed, "traceroute", "anonymous").random(placement.underlay.routers)
        self.anonymous = frozenset(np.flatnonzero(drawn < anonymous).tolist())

    def trace(self, source: PeerId, target: PeerId, attempt: int = 0) -> Traceroute:
        path = self._placement.path(source, target)
        rtt = 2 * (int(self._placement.direct_ns[source, target]) + 2 * self._placement.last_mile_ns)
        hops: list[Hop] = [None if router in self.anonymous else router for router in path]
        if not self._loss and not self._cut:
            return Traceroute(source, target, tuple(hops), True, rtt)
        rng = stream(self._seed, "traceroute", source, target, attempt)
        lost = rng.random(len(path)) < self._loss
        hops = [None if gone else hop for hop, gone in zip(hops, lost.tolist(), strict=True)]
        if rng.random() < self._cut:
            return Traceroute(source, target, tuple(hops[: int(rng.integers(len(hops)))]), False, 0)
        return Traceroute(source, target, tuple(hops), True, rtt)
