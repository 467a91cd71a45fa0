"""Round trips to sampled peers, measured by probes, for memberships that join the nearest or the farthest ones."""

from collections.abc import Container

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import SendTo
from wend.strategies.tdo.messages import ProbePing
from wend.strategies.tdo.sampling import Sampling


class ProbedRoundTrips:
    """Samples peers, probes them, and ranks those that answered."""

    def __init__(self, sampling: Sampling, size: int, sign: int) -> None:
        """`size`: how many peers to probe. `sign`: 1 to rank the nearest first, -1 the farthest."""
        self._sampling = sampling
        self._size = size
        self._sign = sign
        self._pinged: dict[PeerId, Nanos] = {}
        self._trips: dict[PeerId, Nanos] = {}

    def probe(self, now: Nanos, round_: int) -> list[SendTo]:
        """Probe more peers, until the sample is full."""
        count = max(0, self._size - len(self._pinged))
        peers = self._sampling.sample(count, frozenset(self._pinged))
        self._pinged.update(dict.fromkeys(peers, now))
        return [SendTo(peer, ProbePing(round_)) for peer in peers]

    def answer(self, now: Nanos, peer: PeerId) -> None:
        """Handle the answer of a probed peer. Its first one counts."""
        sent = self._pinged.get(peer)
        if sent is not None and peer not in self._trips:
            self._trips[peer] = now - sent

    def best(self, count: int, without: Container[PeerId]) -> list[PeerId]:
        peers = [peer for peer in self._trips if peer not in without]
        return sorted(peers, key=lambda peer: (self._sign * self._trips[peer], peer))[:count]

    def clear(self) -> None:
        """Start again with another sample."""
        self._pinged.clear()
        self._trips.clear()
