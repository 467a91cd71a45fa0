"""k trees over an overlay, computed centrally: the oracle for the trees that peers build by messages.

`mrst` builds the thesis's k maximum-reliability spanning trees (quist, section 6.1). It runs Kruskal k times; tree i
orders the links by eq. 6.1.1, unused links first, with the level corrected to `level[l] + 1` on rejection.
`shortest_path_trees` is Wend's own `spt-k`: each tree consists of the most reliable paths from the best of some roots,
and components that earlier trees use cost more.
"""

from collections.abc import Sequence

import numpy as np

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.randomness import stream
from wend.studies.quist.joint_reliability import compute_joint_reliability
from wend.topology.graph import Overlay
from wend.topology.placement import Placement
from wend.topology.routing import shortest
from wend.topology.underlay import Floats, Index, Ints

_SCALE = 1 << 40
"""The factor that turns -ln r into an integer, so that sums are exact."""


def mrst(overlay: Overlay, weight: Sequence[float] | Floats, k: int) -> list[list[int]]:
    """k spanning trees, each a sorted list of links. Links of equal weight are ordered by the ids of their ends."""
    if k < 1:
        raise ConfigError(f"the number of trees must be at least 1, got {k}")
    if len(weight) != len(overlay.links):
        raise ConfigError(f"{len(overlay.links)} links need as many weights, got {len(weight)}")
    level = [1] * len(overlay.links)
    trees = []
    for _ in range(k):
        order = sorted(
            range(len(overlay.links)),
            key=lambda i: (-level[i], weight[i], overlay.links[i].a, overlay.links[i].b),
        )
        tree = kruskal(overlay, order)
        trees.append(tree)
        used = set(tree)
        for i in range(len(level)):
            if i not in used:
                level[i] += 1
    return trees


def kruskal(overlay: Overlay, order: Sequence[int]) -> list[int]:
    """The spanning tree of the links that, taken in this order, close no cycle."""
    leader = list(range(overlay.peers))

    def find(peer: PeerId) -> PeerId:
        while leader[peer] != peer:
            leader[peer] = leader[leader[peer]]
            peer = leader[peer]
        return peer

    tree = []
    for i in order:
        a, b = find(overlay.links[i].a), find(overlay.links[i].b)
        if a != b:
            leader[max(a, b)] = min(a, b)
            tree.append(i)
    if len(tree) < overlay.peers - 1:
        raise ConfigError(f"an overlay with {overlay.peers - len(tree)} connected components has no spanning tree")
    return sorted(tree)


def shortest_path_trees(
    placement: Placement,
    overlay: Overlay,
    reliability: Floats,
    k: int,
    *,
    seed: int,
    roots: int = 25,
    penalty: float = 1.0,
    judges: int = 40,
) -> list[list[int]]:
    """`spt-k`: each tree has the root that adds most to the joint reliability between `judges` random peers.

    A component that n trees use costs the next tree 1 + n `penalty` times its -ln r.
    """
    if k < 1 or roots < 1 or penalty < 0:
        raise ConfigError(
            f"spt-k needs at least 1 tree, 1 root and a penalty of 0 or more, got {k}, {roots} and {penalty:g}"
        )
    candidates = np.sort(stream(seed, "trees", "roots").permutation(placement.peers)[:roots])
    pairs = _some_pairs(placement, judges, seed)
    starts, components = placement.link_components(overlay)
    uses = np.zeros(placement.components)
    trees: list[list[int]] = []
    for _ in range(k):
        costs = _costs(placement, overlay, starts, components, -np.log(reliability) * (1 + penalty * uses))
        offered = trees_from(overlay, costs, candidates)
        gains = [
            float(
                compute_joint_reliability(placement, overlay, [*trees, t], reliability, pairs).reliability[:, -1].mean()
            )
            for t in offered
        ]
        best = offered[int(np.argmax(gains))]
        trees.append(best)
        used = np.zeros(placement.components, dtype=bool)
        for link in best:
            used[components[starts[link] : starts[link + 1]]] = True
        uses += used
    return trees


def trees_from(overlay: Overlay, costs: Ints, roots: Ints) -> list[list[int]]:
    """The shortest-path tree from each root."""
    ends = np.array([(link.a, link.b) for link in overlay.links], dtype=np.int64).reshape(-1, 2)
    _, _, by = shortest(overlay.peers, ends, costs, roots)
    found = []
    for row in by:
        tree = sorted(int(link) for link in row if link >= 0)
        if len(tree) < overlay.peers - 1:
            raise ConfigError(f"an overlay with {overlay.peers - len(tree)} connected components has no spanning tree")
        found.append(tree)
    return found


def _costs(placement: Placement, overlay: Overlay, starts: Ints, components: Index, loads: Floats) -> Ints:
    """The cost of each link: its components, and half of each of its peers, because a route enters and leaves them."""
    ends = np.array([(link.a, link.b) for link in overlay.links], dtype=np.int64).reshape(-1, 2)
    peers = loads[placement.first_peer : placement.first_last_mile]
    total = np.add.reduceat(loads[components], starts[:-1]) + peers[ends].sum(axis=1) / 2
    found: Ints = np.maximum(1, np.round(total * _SCALE)).astype(np.int64)
    return found


def _some_pairs(placement: Placement, judges: int, seed: int) -> tuple[Ints, Ints]:
    chosen = np.sort(stream(seed, "trees", "judges").permutation(placement.peers)[:judges])
    i, j = np.triu_indices(len(chosen), 1)
    return chosen[i].astype(np.int64), chosen[j].astype(np.int64)
