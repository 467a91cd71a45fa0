"""Underlay routing: one shortest path by delay between any two routers, the same in both directions.

If each source broke ties by itself, a third of the paths would be asymmetric, and the end of a path would not be the
path from its first router. So the cost of a link has 16 bits of a hash of its ends below the nanoseconds. Two paths of
equal delay then have different costs, and every part of a shortest path is itself a shortest path.
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from wend.model.compiled import compiled
from wend.model.errors import ConfigError
from wend.model.units import SECOND
from wend.topology.heap import pop, push
from wend.topology.underlay import Index, Ints, Underlay

_TIE_BITS = 24
_FAR = np.iinfo(np.int64).max
_LONGEST = _FAR >> (_TIE_BITS + 2)


class UnderlayPaths:
    """Many paths in two arrays. Path i is `components[starts[i]:starts[i + 1]]`: router, link, router, ..., router.

    A router has its own number; link l has the number `routers + l`.
    """

    def __init__(self, starts: Ints, components: Index, routers: int) -> None:
        self.starts, self.components, self.routers = starts, components, routers

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, path: int) -> Index:
        components: Index = self.components[self.starts[path] : self.starts[path + 1]]
        return components

    def routers_on(self, path: int) -> list[int]:
        """The routers of a path."""
        return [int(component) for component in self[path][::2]]

    def lengths(self) -> Ints:
        """The number of routers of each path."""
        counts: Ints = (np.diff(self.starts) + 1) // 2
        return counts

    def links(self) -> Ints:
        """The links that the paths use, each once, in order."""
        used = np.unique(self.components)
        links: Ints = used[used >= self.routers].astype(np.int64) - self.routers
        return links


class ShortestPaths:
    """The shortest paths from some routers to all."""

    def __init__(self, underlay: Underlay, sources: Ints, delay_ns: Ints, before: Index, by: Index) -> None:
        self.underlay = underlay
        self.sources = sources
        self.delay_ns = delay_ns
        """(sources, routers)"""
        self._before, self._by = before, by
        self._row = {int(router): row for row, router in enumerate(sources)}

    def row(self, router: int) -> int:
        return self._row[router]

    def hops(self) -> Ints:
        """(sources, routers): the number of links of each path."""
        return _count_hops(self.delay_ns, self._before)

    def paths(self, sources: Ints, targets: Ints) -> UnderlayPaths:
        """The path from each source to the target beside it."""
        try:
            rows = np.array([self._row[int(s)] for s in sources], dtype=np.int64)
        except KeyError as error:
            raise ConfigError(f"no paths were computed from router {error.args[0]}") from None
        targets = np.asarray(targets, dtype=np.int64)
        starts, components = _extract_paths(rows, targets, self.sources, self._before, self._by, self.underlay.routers)
        return UnderlayPaths(starts, components, self.underlay.routers)


def shortest_paths(underlay: Underlay, sources: Ints | None = None) -> ShortestPaths:
    """The paths from the given routers, or from all."""
    routers = np.arange(underlay.routers) if sources is None else np.unique(np.asarray(sources, dtype=np.int64))
    _check_lengths(underlay)
    distance, before, by = shortest(underlay.routers, underlay.ends, unique_costs(underlay), routers)
    return ShortestPaths(underlay, routers, distance >> _TIE_BITS, before, by)


def _check_lengths(underlay: Underlay) -> None:
    """Check that costs fit beside the tie bits. No path is longer than twice the longest one from router 0."""
    matrix = csr_array(
        (underlay.delay_ns.astype(np.float64), (underlay.ends[:, 0], underlay.ends[:, 1])),
        shape=(underlay.routers, underlay.routers),
    )
    farthest = dijkstra(matrix, directed=False, indices=0).max()
    if max(2 * farthest, underlay.delay_ns.max()) > _LONGEST:
        raise ConfigError(f"{underlay.name}: a path may have a delay of at most {_LONGEST / SECOND:.0f} s")


def unique_costs(underlay: Underlay) -> Ints:
    """Link costs with unique sums: nanoseconds, and below them bits that depend on the link's ends."""
    keys = underlay.ends[:, 0].astype(np.uint64) * np.uint64(underlay.routers) + underlay.ends[:, 1].astype(np.uint64)
    # splitmix64's finaliser: neighbouring keys give unrelated bits
    keys = (keys + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    # The tie bits of a path of up to 2^8 links do not overflow into the nanoseconds.
    ties = (keys >> np.uint64(64 - _TIE_BITS + 8)).astype(np.int64)
    costs: Ints = (underlay.delay_ns << _TIE_BITS) + ties
    return costs


def shortest(nodes: int, ends: Ints, costs: Ints, sources: Ints) -> tuple[Ints, Index, Index]:
    """From each source: distances, each node's predecessor, and the link from it (-1 for none)."""
    starts, there, link = adjacency(nodes, ends)
    return _dijkstra(starts, there, link, costs.astype(np.int64), sources.astype(np.int64))


def adjacency(nodes: int, ends: Ints) -> tuple[Ints, Index, Index]:
    """The graph in CSR form: where each node's neighbours start, then neighbours and links, in order."""
    both = np.concatenate([ends, ends[:, ::-1]])
    link = np.tile(np.arange(len(ends)), 2)
    order = np.lexsort((both[:, 1], both[:, 0]))
    starts = np.searchsorted(both[order, 0], np.arange(nodes + 1)).astype(np.int64)
    return starts, both[order, 1].astype(np.int32), link[order].astype(np.int32)


@compiled
def _dijkstra(starts: Ints, there: Index, link: Index, costs: Ints, sources: Ints) -> tuple[Ints, Index, Index]:
    nodes = len(starts) - 1
    distance = np.full((len(sources), nodes), _FAR, dtype=np.int64)
    before = np.full((len(sources), nodes), -1, dtype=np.int32)
    by = np.full((len(sources), nodes), -1, dtype=np.int32)
    keys = np.empty(len(there) + 1, dtype=np.int64)
    heap = np.empty(len(there) + 1, dtype=np.int32)
    for row in range(len(sources)):
        d = distance[row]
        d[sources[row]] = 0
        size = push(keys, heap, np.int64(0), np.int64(0), np.int32(sources[row]))
        while size:
            so_far, here = keys[0], heap[0]
            size = pop(keys, heap, size)
            if so_far > d[here]:
                continue
            for i in range(starts[here], starts[here + 1]):
                other = there[i]
                total = so_far + costs[link[i]]
                if total < d[other]:
                    d[other] = total
                    before[row, other] = here
                    by[row, other] = link[i]
                    size = push(keys, heap, size, total, other)
    return distance, before, by


@compiled
def _count_hops(distance: Ints, before: Index) -> Ints:
    hops = np.zeros(before.shape, dtype=np.int64)
    for row in range(len(before)):
        for node in np.argsort(distance[row], kind="mergesort"):  # a predecessor is nearer than its node
            if before[row, node] >= 0:
                hops[row, node] = hops[row, before[row, node]] + 1
    return hops


@compiled
def _extract_paths(
    rows: Ints, targets: Ints, sources: Ints, before: Index, by: Index, routers: int
) -> tuple[Ints, Index]:
    starts = np.zeros(len(rows) + 1, dtype=np.int64)
    for i in range(len(rows)):
        hops = 0
        here = targets[i]
        while here != sources[rows[i]]:
            here = before[rows[i], here]
            hops += 1
        starts[i + 1] = starts[i] + 2 * hops + 1
    components = np.empty(starts[-1], dtype=np.int32)
    for i in range(len(rows)):
        here = targets[i]
        at = starts[i + 1] - 1
        components[at] = here
        while here != sources[rows[i]]:
            components[at - 1] = routers + by[rows[i], here]
            here = before[rows[i], here]
            components[at - 2] = here
            at -= 2
    return starts, components
