"""Metrics of how well an overlay knows its underlay and how similar it is to it (quist, section 7.2).

Discovery: the share of the links between all peers that the traced paths show, and its cost in traceroutes. Links are
those of section 3, between routers and without direction; last miles do not count, because every trace shows them.
Similarity: how much longer overlay routes are than underlay paths (stretch, a ratio of mean delays without last miles),
and whether they pass the peers on the underlay paths (hop ratio, ideally 1; path match, ideally 0).
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from wend.model.compiled import compiled
from wend.model.errors import ConfigError
from wend.topology.graph import Overlay
from wend.topology.placement import Pair, Placement
from wend.topology.routing import shortest
from wend.topology.underlay import Index, Ints

_HOP_BITS = 12


class Discovery(NamedTuple):
    discovered: int
    """The number of links on traced paths."""
    total: int
    """The number of links on paths between any two peers."""
    traceroutes: int

    @property
    def ratio(self) -> float:
        return self.discovered / self.total if self.total else 1.0

    @property
    def efficiency(self) -> float:
        """The share of all links that one traceroute discovers on average."""
        return self.ratio / self.traceroutes if self.traceroutes else 0.0


class Similarity(NamedTuple):
    stretch: float
    hop_ratio: float
    path_match: float


def measure_discovery(placement: Placement, traced: Iterable[Pair], traceroutes: int | None = None) -> Discovery:
    """The links that traces between the pairs `traced` show. Paths are symmetric: a pair counts as one traceroute,
    unless `traceroutes` states the number."""
    pairs = sorted({(min(a, b), max(a, b)) for a, b in traced})
    a, b = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    seen = len(placement.paths(a, b).links())
    total = len(placement.paths(*placement.pairs()).links())
    return Discovery(seen, total, len(pairs) if traceroutes is None else traceroutes)


def measure_similarity(placement: Placement, overlay: Overlay) -> Similarity:
    """The metrics over all pairs of peers. Of several shortest overlay routes the one with the fewest hops counts."""
    ends = np.array([(link.a, link.b) for link in overlay.links], dtype=np.int64).reshape(-1, 2)
    delays = placement.direct_ns[ends[:, 0], ends[:, 1]]
    costs = (delays << _HOP_BITS) + 1
    distance, before, _ = shortest(placement.peers, ends, costs, np.arange(placement.peers))
    if before.shape[1] > 1 and (before < 0).sum() > placement.peers:
        raise ConfigError("the overlay is not connected: it has no routes between some peers")
    a, b = placement.pairs()
    apart = placement.homes[a] != placement.homes[b]
    stretch = (distance[a, b] >> _HOP_BITS)[apart].sum() / placement.direct_ns[a, b][apart].sum()
    paths = placement.paths(a, b)
    hops, match = _compare_routes(
        a, b, placement.homes, before, paths.starts, paths.components, placement.underlay.routers
    )
    return Similarity(float(stretch), float(hops), float(match))


@compiled
def _compare_routes(
    a: Ints, b: Ints, homes: Ints, before: Index, starts: Ints, components: Index, routers: int
) -> tuple[float, float]:
    """The mean hop ratio and path match. A route passes a router if it passes any peer attached to it."""
    occupied = np.zeros(routers, dtype=np.bool_)
    for home in homes:
        occupied[home] = True
    on_path = np.full(routers, -1, dtype=np.int64)
    on_route = np.full(routers, -1, dtype=np.int64)
    hops, match = 0.0, 0.0
    for pair in range(len(a)):
        for i in range(starts[pair], starts[pair + 1], 2):
            on_path[components[i]] = pair
        peers, strangers = 1, 0
        peer = b[pair]
        on_route[homes[peer]] = pair
        while peer != a[pair]:
            peer = before[a[pair], peer]
            peers += 1
            on_route[homes[peer]] = pair
            if on_path[homes[peer]] != pair:
                strangers += 1
        homed, missed = 0, 0
        for i in range(starts[pair], starts[pair + 1], 2):
            if occupied[components[i]]:
                homed += 1
                if on_route[components[i]] != pair:
                    missed += 1
        hops += homed / peers
        match += missed / homed + strangers / peers
    return hops / len(a), match / len(a)
