"""The overlays that topology discovery converges to, computed centrally: the reference for those that peers build by
messages.

`landmark` builds the thesis's trees (quist, section 5.1). A peer's parent is the last peer whose router lies on the
path from the landmark to it, so the trees do not depend on the order of joining. `chain` is Wend's own: it cuts every
traced path at all routers that have peers. `scattered` ignores the underlay ("No TDO"): a random regular graph.
"""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from wend.model.events import PeerId
from wend.model.randomness import stream
from wend.topology.generators import regular
from wend.topology.graph import Overlay
from wend.topology.placement import Pair, Placement


def random_regular(placement: Placement, degree: int, seed: int) -> Overlay:
    drawn = regular(placement.peers, degree, delay_ms=(1.0, 1.0), loss=0.0, seed=seed)
    return placement.overlay((link.a, link.b) for link in drawn.links)


def landmark(placement: Placement, landmarks: Iterable[PeerId]) -> Overlay:
    """The union of the landmarks' trees."""
    pairs: set[Pair] = set()
    for root in landmarks:
        pairs |= set(landmark_tree(placement, root))
    return placement.overlay(pairs)


def landmark_tree(placement: Placement, root: PeerId) -> list[Pair]:
    """(parent, child) for every peer but the root, ordered by child."""
    first = router_peers(placement)
    others = np.array([peer for peer in range(placement.peers) if peer != root], dtype=np.int64)
    paths = placement.paths(np.full(len(others), root, dtype=np.int64), others)
    edges = []
    for i, peer in enumerate(others.tolist()):
        edges.append(((root, *_passed(first, paths.routers_on(i), root, peer))[-1], peer))
    return edges


def chain(placement: Placement, traced: Iterable[Pair]) -> Overlay:
    """Link peers whose routers follow each other on a traced path."""
    first = router_peers(placement)
    pairs_of_traces = sorted(set(traced))
    paths = placement.paths(np.array([a for a, _ in pairs_of_traces]), np.array([b for _, b in pairs_of_traces]))
    pairs: list[Pair] = []
    for i, (a, b) in enumerate(pairs_of_traces):
        pairs += pairwise([a, *_passed(first, paths.routers_on(i), a, b), b])
    return placement.overlay(pairs)


def _passed(first: dict[int, PeerId], routers: list[int], a: PeerId, b: PeerId) -> list[PeerId]:
    """The other peers on a path from a to b, each once."""
    passed = dict.fromkeys(first[router] for router in routers[1:-1] if router in first)
    return [peer for peer in passed if peer not in (a, b)]


def router_peers(placement: Placement) -> dict[int, PeerId]:
    """For each router with peers, the lowest of them."""
    lowest: dict[int, PeerId] = {}
    for peer, router in sorted(placement.accesses):
        lowest.setdefault(router, peer)
    return lowest


def choose_landmarks(placement: Placement, count: int, seed: int) -> list[PeerId]:
    return sorted(stream(seed, "overlay", "landmarks").permutation(placement.peers)[:count].tolist())


def choose_traced(placement: Placement, each: int, seed: int) -> list[Pair]:
    """For every peer, pairs with `each` random others."""
    pairs = []
    for peer in range(placement.peers):
        drawn = stream(seed, "overlay", "traced", peer).permutation(placement.peers)
        pairs += [(peer, other) for other in drawn[drawn != peer][:each].tolist()]
    return pairs
