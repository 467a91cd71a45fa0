"""Latencies between the hosts of a large simulation, looked up between the routers that they are attached to.

A table of all pairs of 50 000 peers would need gigabytes. Peers share routers: the table between the 5050 routers of
dmm's transit-stub network has 25 million entries, and every peer only needs to know its router. A host reaches its
router over a LAN.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.random_stream import stream_seed
from wend.model.randomness import stream
from wend.model.units import MS, Nanos
from wend.topology.transit_stub import DMM, TransitStub, transit_stub
from wend.topology.underlay import Ints, Underlay

LAN_NS: Nanos = MS
"""The delay between a host and its router."""
_US: Nanos = 1000
_ROWS = 512
"""Sources of one pass of Dijkstra, which bounds its temporary arrays."""
_MASK = (1 << 64) - 1


class Latencies(Protocol):
    """How far apart the hosts of peers are."""

    def delay_ns(self, a: PeerId, b: PeerId) -> Nanos: ...

    def hops(self, a: PeerId, b: PeerId) -> int:
        """The physical links between two hosts."""
        ...


class UniformLatencies:
    """Delays from a uniform distribution, each a pure function of the pair and the seed. They need no table."""

    __slots__ = ("_key", "_low", "_span")

    def __init__(self, seed: int, low_ns: Nanos = 10 * MS, high_ns: Nanos = 50 * MS) -> None:
        if not 0 < low_ns <= high_ns:
            raise ConfigError(f"latencies need a range of positive delays, got {low_ns}..{high_ns} ns")
        self._key = stream_seed(seed, "latencies") & _MASK
        self._low = low_ns
        self._span = high_ns - low_ns + 1

    def delay_ns(self, a: PeerId, b: PeerId) -> Nanos:
        return 0 if a == b else self._low + (self._mixed(a, b) >> 8) % self._span

    def hops(self, a: PeerId, b: PeerId) -> int:
        return 0 if a == b else 2 + (self._mixed(a, b) & 7)

    def _mixed(self, a: PeerId, b: PeerId) -> int:
        """splitmix64's finaliser: neighbouring pairs give unrelated bits."""
        low, high = (a, b) if a < b else (b, a)
        bits = (self._key + (low << 32 | high) * 0x9E3779B97F4A7C15) & _MASK
        bits = ((bits ^ bits >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        bits = ((bits ^ bits >> 27) * 0x94D049BB133111EB) & _MASK
        return bits ^ bits >> 31


class RouterTable:
    """Delays and physical hops of the shortest paths between all routers of an underlay."""

    __slots__ = ("access", "delay_us", "links", "routers")

    def __init__(self, underlay: Underlay) -> None:
        self.routers = underlay.routers
        self.access = underlay.access()
        self.delay_us: NDArray[np.int32] = np.empty((self.routers, self.routers), dtype=np.int32)
        self.links: NDArray[np.uint8] = np.empty((self.routers, self.routers), dtype=np.uint8)
        ends = underlay.ends
        costs = csr_array((underlay.delay_ns / _US, (ends[:, 0], ends[:, 1])), shape=(self.routers, self.routers))
        for first in range(0, self.routers, _ROWS):
            rows = np.arange(first, min(first + _ROWS, self.routers))
            distance, before = dijkstra(costs, directed=False, indices=rows, return_predecessors=True)
            self.delay_us[rows] = np.rint(distance)
            self.links[rows] = _depths(before)


def _depths(before: NDArray[np.int32]) -> NDArray[np.uint8]:
    """The depth of each node in the tree of its row, from its predecessors. Each pass doubles the stretch counted."""
    rows, nodes = before.shape
    at = np.arange(nodes, dtype=np.int64)
    above = np.where(before < 0, at, before) + np.arange(rows, dtype=np.int64)[:, None] * nodes
    above = above.ravel()
    depth = (before >= 0).astype(np.uint8).ravel()
    while (more := depth[above]).any():
        depth += more
        above = above[above]
    found: NDArray[np.uint8] = depth.reshape(rows, nodes)
    return found


@lru_cache(maxsize=1)
def transit_stub_table(seed: int, shape: TransitStub = DMM) -> RouterTable:
    """The table of a transit-stub network. A process computes it once: 5050 routers take some seconds."""
    return RouterTable(transit_stub(seed, shape))


class RouterLatencies:
    """Latencies of peers that are attached to random access routers, by a table between routers."""

    __slots__ = ("_delays", "_hops", "_routers", "_size", "router", "table")

    def __init__(self, table: RouterTable, peers: int, seed: int) -> None:
        self.table = table
        self.router: Ints = stream(seed, "placement").choice(table.access, size=peers)
        """The router of each peer."""
        self._size = table.routers
        self._routers: list[int] = self.router.tolist()
        self._delays = table.delay_us.ravel().data  # an entry of a memoryview is a plain int, and soon found
        self._hops = table.links.ravel().data

    def delay_ns(self, a: PeerId, b: PeerId) -> Nanos:
        if a == b:
            return 0
        routers = self._routers
        found: int = self._delays[routers[a] * self._size + routers[b]]
        return found * _US + 2 * LAN_NS

    def hops(self, a: PeerId, b: PeerId) -> int:
        if a == b:
            return 0
        routers = self._routers
        found: int = self._hops[routers[a] * self._size + routers[b]]
        return found + 2

    def nearest(self, peer: PeerId, others: Sequence[PeerId]) -> PeerId:
        """The nearest of some other peers; of equal ones the first."""
        delays, routers = self._delays, self._routers
        row = routers[peer] * self._size
        return min(others, key=lambda other: delays[row + routers[other]])

    def delays_ns(self, a: Ints, b: Ints) -> Ints:
        """The delay of each pair, for arrays of peers."""
        apart = self.table.delay_us[self.router[a], self.router[b]].astype(np.int64) * _US + 2 * LAN_NS
        return np.where(a == b, 0, apart)
