"""Latencies for tests of the large simulator."""

from wend.model.events import PeerId
from wend.model.random_stream import stream_seed
from wend.model.units import MS, Nanos

_MASK = (1 << 64) - 1


class UniformLatencies:
    """Delays from a uniform distribution, each a pure function of the pair and the seed. They need no table."""

    __slots__ = ("_key", "_low", "_span")

    def __init__(self, seed: int, low_ns: Nanos = 10 * MS, high_ns: Nanos = 50 * MS) -> None:
        self._key = stream_seed(seed, "latencies") & _MASK
        self._low = low_ns
        self._span = high_ns - low_ns + 1

    def delay_ns(self, a: PeerId, b: PeerId) -> Nanos:
        return 0 if a == b else self._low + (self._mixed(a, b) >> 8) % self._span

    def hops(self, a: PeerId, b: PeerId) -> int:
        return 0 if a == b else 2 + (self._mixed(a, b) & 7)

    def delay_and_hops(self, a: PeerId, b: PeerId) -> tuple[Nanos, int]:
        return self.delay_ns(a, b), self.hops(a, b)

    def _mixed(self, a: PeerId, b: PeerId) -> int:
        """splitmix64's finaliser: neighbouring pairs give unrelated bits."""
        low, high = (a, b) if a < b else (b, a)
        bits = (self._key + (low << 32 | high) * 0x9E3779B97F4A7C15) & _MASK
        bits = ((bits ^ bits >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        bits = ((bits ^ bits >> 27) * 0x94D049BB133111EB) & _MASK
        return bits ^ bits >> 31
