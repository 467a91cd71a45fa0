"""How well an overlay knows and resembles its underlay (quist, section 7.2).

Discovery: what share of the links between all peers do the traced ways show, and at what price. Links are those of
section 3, between routers and without direction: last miles, which every trace sees, do not count. Likeness: how much
longer ways over the overlay are (stretch, as a ratio of mean delays, without last miles), and whether they pass the
peers that the underlay's ways pass (hop ratio, ideally 1; path match, ideally 0).
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from wend.model.compiled import compiled
from wend.model.errors import ConfigError
from wend.topology.graph import Overlay
from wend.topology.placement import Pair, Placement
from wend.topology.routing import Index, shortest
from wend.topology.underlay import Ints

_HOP_BITS = 12


class Discovery(NamedTuple):
    discovered: int
    """Links on traced ways."""
    total: int
    """Links on any way between two peers."""
    traceroutes: int

    @property
    def ratio(self) -> float:
        return self.discovered / self.total if self.total else 1.0

    @property
    def efficiency(self) -> float:
        """The share of all links that a traceroute adds on average."""
        return self.ratio / self.traceroutes if self.traceroutes else 0.0


class Similarity(NamedTuple):
    stretch: float
    hop_ratio: float
    path_match: float


def discovery(placement: Placement, traced: Iterable[Pair], traceroutes: int | None = None) -> Discovery:
    """`traced` are the pairs whose way was seen; ways are symmetric, so a pair counts once unless said otherwise."""
    wanted = sorted({(min(a, b), max(a, b)) for a, b in traced})
    a, b = np.array(wanted, dtype=np.int64).reshape(-1, 2).T
    seen = len(placement.paths(a, b).links())
    total = len(placement.paths(*placement.pairs()).links())
    return Discovery(seen, total, len(wanted) if traceroutes is None else traceroutes)


def similarity(placement: Placement, overlay: Overlay) -> Similarity:
    """Over all pairs of peers. Of equally fast overlay ways the one with fewer hops counts."""
    ends = np.array([(link.a, link.b) for link in overlay.links], dtype=np.int64).reshape(-1, 2)
    delays = placement.direct_ns[ends[:, 0], ends[:, 1]]
    costs = (delays << _HOP_BITS) + 1
    distance, before, _ = shortest(placement.peers, ends, costs, np.arange(placement.peers))
    if before.shape[1] > 1 and (before < 0).sum() > placement.peers:
        raise ConfigError("an overlay in pieces has no ways between all peers")
    a, b = placement.pairs()
    apart = placement.homes[a] != placement.homes[b]
    stretch = (distance[a, b] >> _HOP_BITS)[apart].sum() / placement.direct_ns[a, b][apart].sum()
    paths = placement.paths(a, b)
    hops, match = _compare(a, b, placement.homes, before, paths.starts, paths.components, placement.underlay.routers)
    return Similarity(float(stretch), float(hops), float(match))


@compiled
def _compare(
    a: Ints, b: Ints, homes: Ints, before: Index, starts: Ints, components: Index, routers: int
) -> tuple[float, float]:
    """Mean hop ratio and path match. A router is passed where any peer that lives there is."""
    occupied = np.zeros(routers, dtype=np.bool_)
    for home in homes:
        occupied[home] = True
    beneath = np.full(routers, -1, dtype=np.int64)
    above = np.full(routers, -1, dtype=np.int64)
    hops, match = 0.0, 0.0
    for pair in range(len(a)):
        for i in range(starts[pair], starts[pair + 1], 2):
            beneath[components[i]] = pair
        peers, strangers = 1, 0
        peer = b[pair]
        above[homes[peer]] = pair
        while peer != a[pair]:
            peer = before[a[pair], peer]
            peers += 1
            above[homes[peer]] = pair
            if beneath[homes[peer]] != pair:
                strangers += 1
        doors, missed = 0, 0
        for i in range(starts[pair], starts[pair + 1], 2):
            if occupied[components[i]]:
                doors += 1
                if above[components[i]] != pair:
                    missed += 1
        hops += doors / peers
        match += missed / doors + strangers / peers
    return hops / len(a), match / len(a)
