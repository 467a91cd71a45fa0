"""How unevenly an overlay loads its peers: links, traceroutes, and routes that pass a peer.

The thesis names two drawbacks of landmarks without measuring them: each has to trace the paths to all other peers
(section 5.2), and it has many links, so that in the worst case all traffic passes it (section 7.2).
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from wend.model.errors import ConfigError
from wend.topology.graph import Overlay
from wend.topology.placement import Pair, Placement
from wend.topology.routing import shortest

_HOP_BITS = 12


class PeerLoad(NamedTuple):
    """What the peer bears that bears most. It is another peer for each metric."""

    degree: int
    """Links."""
    traceroutes: int
    passing: float
    """The share of the routes between other peers that pass it."""


def measure_load(placement: Placement, overlay: Overlay, traced: Iterable[Pair]) -> PeerLoad:
    """`traced`: the traceroutes, each as its source and its target."""
    degrees = np.bincount(np.concatenate(overlay.ends), minlength=overlay.peers)
    sources = Counter(source for source, _ in set(traced))
    others = (overlay.peers - 1) * (overlay.peers - 2)
    passing = count_passing(placement, overlay)
    return PeerLoad(int(degrees.max()), max(sources.values(), default=0), max(passing) / max(1, others))


def count_passing(placement: Placement, overlay: Overlay) -> list[int]:
    """By peer: the shortest overlay routes between two others that pass it, each direction once. Of several shortest
    routes, one with the fewest hops counts."""
    ends = np.stack(overlay.ends, axis=1)
    costs = (placement.direct_ns[ends[:, 0], ends[:, 1]] << _HOP_BITS) + 1
    distance, before, _ = shortest(overlay.peers, ends, costs, np.arange(overlay.peers))
    passing = [0] * overlay.peers
    for source in range(overlay.peers):
        behind = [1] * overlay.peers
        for peer in reversed(np.argsort(distance[source], kind="stable").tolist()):
            last = int(before[source, peer])
            if peer == source:
                continue
            if last < 0:
                raise ConfigError("the overlay is not connected: it has no routes between some peers")
            behind[last] += behind[peer]
            passing[peer] += behind[peer] - 1
    return passing
