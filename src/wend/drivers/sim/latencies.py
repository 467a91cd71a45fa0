"""Latencies between the hosts of a large simulation, looked up between the routers that they are attached to.

A table of all pairs of 50 000 peers would need gigabytes. But peers share routers: the table between the 5050 routers
of dmm's transit-stub network has 25 million entries, and a peer needs only the number of its router. A host reaches its
router over a LAN.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.randomness import stream
from wend.model.units import MS, Nanos
from wend.topology.transit_stub import DMM, TransitStub, transit_stub
from wend.topology.underlay import Ints, Underlay

LAN_NS: Nanos = MS
"""The delay between a host and its router."""
LINK_BITS: Final = 8
MAX_LINKS: Final = 1 << LINK_BITS
LONGEST_US: Final = 1 << (31 - LINK_BITS)
_US: Nanos = 1000
_ROWS = 512
"""Sources of one pass of Dijkstra, which bounds its temporary arrays."""


class Latencies(Protocol):
    """The delays and hops between the hosts of peers."""

    def delay_ns(self, a: PeerId, b: PeerId) -> Nanos: ...

    def hops(self, a: PeerId, b: PeerId) -> int:
        """The physical links between two hosts."""
        ...

    def delay_and_hops(self, a: PeerId, b: PeerId) -> tuple[Nanos, int]:
        """Both, by one lookup."""
        ...


class RouterTable:
    """Delays and physical hops of the shortest paths between all routers of an underlay.

    A lookup misses the processor's caches, so both stand in one number: the delay in microseconds, times `MAX_LINKS`,
    plus the links."""

    __slots__ = ("access", "paths", "routers")

    def __init__(self, underlay: Underlay) -> None:
        self.routers = underlay.routers
        self.access = underlay.access()
        self.paths: NDArray[np.int32] = np.empty((self.routers, self.routers), dtype=np.int32)
        ends = underlay.ends
        costs = csr_array((underlay.delay_ns / _US, (ends[:, 0], ends[:, 1])), shape=(self.routers, self.routers))
        for first in range(0, self.routers, _ROWS):
            rows = np.arange(first, min(first + _ROWS, self.routers))
            distance, before = dijkstra(costs, directed=False, indices=rows, return_predecessors=True)
            delay_us = np.rint(distance)
            if delay_us.max() >= LONGEST_US:
                raise ConfigError(f"a path between two routers may take {LONGEST_US} us, one takes {delay_us.max():g}")
            self.paths[rows] = delay_us.astype(np.int32) * MAX_LINKS + _count_tree_depths(before)


def _count_tree_depths(before: NDArray[np.int32]) -> NDArray[np.uint8]:
    """The depth of each node in the tree of its row, from its predecessors. Each pass doubles the stretch counted."""
    rows, nodes = before.shape
    at = np.arange(nodes, dtype=np.int64)
    above = np.where(before < 0, at, before) + np.arange(rows, dtype=np.int64)[:, None] * nodes
    above = above.ravel()
    depth = (before >= 0).astype(np.uint8).ravel()
    while (more := depth[above]).any():
        depth += more
        above = above[above]
    depths: NDArray[np.uint8] = depth.reshape(rows, nodes)
    return depths


@lru_cache(maxsize=1)
def transit_stub_table(seed: int, shape: TransitStub = DMM) -> RouterTable:
    """The table of a transit-stub network. A process computes it once: 5050 routers take some seconds."""
    return RouterTable(transit_stub(seed, shape))


class RouterLatencies:
    """Latencies of peers that are attached to random access routers, by a table between routers."""

    __slots__ = ("_paths", "_routers", "_size", "router", "table")

    def __init__(self, table: RouterTable, peers: int, seed: int) -> None:
        self.table = table
        self.router: Ints = stream(seed, "placement").choice(table.access, size=peers)
        """The router of each peer."""
        self._size = table.routers
        self._routers: list[int] = self.router.tolist()
        self._paths = table.paths.ravel().data  # an entry of a memoryview is a plain int, and soon found

    def delay_ns(self, a: PeerId, b: PeerId) -> Nanos:
        return self.delay_and_hops(a, b)[0]

    def hops(self, a: PeerId, b: PeerId) -> int:
        return self.delay_and_hops(a, b)[1]

    def delay_and_hops(self, a: PeerId, b: PeerId) -> tuple[Nanos, int]:
        if a == b:
            return 0, 0
        routers = self._routers
        entry: int = self._paths[routers[a] * self._size + routers[b]]
        return (entry >> LINK_BITS) * _US + 2 * LAN_NS, (entry & (MAX_LINKS - 1)) + 2

    def find_nearest(self, peer: PeerId, others: Sequence[PeerId]) -> PeerId:
        """The nearest of some other peers; of equal ones the first."""
        paths, routers = self._paths, self._routers
        row = routers[peer] * self._size
        return min(others, key=lambda other: paths[row + routers[other]] >> LINK_BITS)

    def delays_ns(self, a: Ints, b: Ints) -> Ints:
        """The delay of each pair, for arrays of peers."""
        apart = (self.table.paths[self.router[a], self.router[b]].astype(np.int64) >> LINK_BITS) * _US + 2 * LAN_NS
        return np.where(a == b, 0, apart)
