"""Joint path reliability and underlay link resilience of k trees, exactly, for all pairs of peers.

A component on several of the k paths between two peers fails them together, so the paths are not independent. Each
component gets a mask, with bit i for the path on tree i. The sum of log r by mask gives the reliability of any union
of paths. Inclusion and exclusion over the 2^k unions (quist, eq. 2.1.2) gives the probability that at least one path
is up. The masks also tell how many links must fail to cut all paths: the smallest number of masks that cover all bits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wend.model.compiled import compiled
from wend.model.errors import ConfigError
from wend.topology.graph import Overlay
from wend.topology.placement import Placement
from wend.topology.underlay import Floats, Index, Ints

MAX_TREES = 8
Flags = NDArray[np.bool_]
Tree = Sequence[int]
"""The indices of the overlay links of a spanning tree."""


class JointReliability(NamedTuple):
    """Results by pair and number of trees: row i is the pair (a[i], b[i]), column j is for the first j + 1 trees."""

    a: Ints
    b: Ints
    reliability: Floats
    resilience: Floats
    """The number of underlay links that must fail to cut all paths; infinite between peers on one router."""

    def mean_reliability(self) -> Floats:
        return np.asarray(self.reliability.mean(axis=0))

    def mean_resilience(self) -> Floats:
        """The mean over pairs of peers on different routers."""
        apart = np.isfinite(self.resilience).all(axis=1)
        return np.asarray(self.resilience[apart].mean(axis=0))


def compute_joint_reliability(
    placement: Placement,
    overlay: Overlay,
    trees: Sequence[Tree],
    reliability: Floats,
    pairs: tuple[Ints, Ints] | None = None,
) -> JointReliability:
    """The joint reliability and resilience of the given pairs of peers, or of all pairs."""
    if not 1 <= len(trees) <= MAX_TREES:
        raise ConfigError(f"joint reliability is computed for 1 to {MAX_TREES} trees, not {len(trees)}")
    if len(reliability) != placement.components:
        raise ConfigError(f"{placement.components} components need as many reliabilities, got {len(reliability)}")
    rooted = [root_tree(overlay, tree) for tree in trees]
    parents, uplinks, depths = (np.array([r[i] for r in rooted], dtype=np.int32) for i in range(3))
    starts, components = placement.link_components(overlay)
    a, b = placement.pairs() if pairs is None else pairs
    with np.errstate(divide="ignore"):
        logs = np.log(reliability)
    bounds = (placement.first_link, placement.first_peer)
    return JointReliability(a, b, *_compute_joint(a, b, parents, uplinks, depths, starts, components, logs, *bounds))


def root_tree(overlay: Overlay, tree: Tree, root: int = 0) -> tuple[list[int], list[int], list[int]]:
    """For each peer: its parent, the overlay link to the parent, and its depth. The root is its own parent."""
    near: list[list[tuple[int, int]]] = [[] for _ in range(overlay.peers)]
    for index in sorted(tree):
        link = overlay.links[index]
        near[link.a].append((link.b, index))
        near[link.b].append((link.a, index))
    parent, uplink, depth = ([-1] * overlay.peers for _ in range(3))
    parent[root], depth[root] = root, 0
    todo = [root]
    for peer in todo:
        for other, index in near[peer]:
            if parent[other] < 0:
                parent[other], uplink[other], depth[other] = peer, index, depth[peer] + 1
                todo.append(other)
    if len(todo) < overlay.peers or len(tree) != overlay.peers - 1:
        reached = f"they reach {len(todo)} of {overlay.peers} peers"
        raise ConfigError(f"{len(tree)} links are not a spanning tree: {reached}")
    return parent, uplink, depth


@compiled
def _mark_component(component: int, bit: int, mask: Ints, touched: Ints, count: int) -> int:
    """Mark a component that is on the path of a tree. Returns the number of marked components."""
    if mask[component] == 0:
        touched[count] = component
        count += 1
    mask[component] |= bit
    return count


@compiled
def _mark_path(
    x: int, y: int, bit: int, parents: Index, uplinks: Index, depths: Index, starts: Ints, components: Index,
    first_peer: int, mask: Ints, touched: Ints, count: int,
) -> int:  # fmt: skip
    """Mark the components on the path between two peers in one tree."""
    count = _mark_component(first_peer + x, bit, mask, touched, count)
    count = _mark_component(first_peer + y, bit, mask, touched, count)
    while x != y:
        if depths[x] >= depths[y]:
            link = uplinks[x]
            x = peer = parents[x]
        else:
            link = uplinks[y]
            y = peer = parents[y]
        count = _mark_component(first_peer + peer, bit, mask, touched, count)
        for i in range(starts[link], starts[link + 1]):
            count = _mark_component(components[i], bit, mask, touched, count)
    return count


@compiled
def _add_union_terms(tree: int, sums: Floats, total: float) -> float:
    """Add the terms of inclusion and exclusion for the unions of a tree with any of those before it."""
    for union in range(1 << tree, 2 << tree):
        log, sign = 0.0, -1.0
        for m in range(1, len(sums)):
            if m & union:
                log += sums[m]
        for bit in range(tree + 1):
            if union >> bit & 1:
                sign = -sign
        total += sign * np.exp(log)
    return total


@compiled
def _find_fewest_links(tree: int, links: Flags, fewest: Floats) -> float:
    """The least number of links that cut the paths of the first trees, up to this one."""
    reach = (2 << tree) - 1
    fewest[:] = np.inf
    fewest[0] = 0.0
    for covered in range(reach + 1):  # a mask that covers more bits is a higher number: one pass is enough
        for m in range(1, len(links)):
            if links[m]:
                more = covered | (m & reach)
                fewest[more] = min(fewest[more], fewest[covered] + 1)
    return float(fewest[reach])


@compiled
def _compute_joint(
    a: Ints, b: Ints, parents: Index, uplinks: Index, depths: Index, starts: Ints, components: Index, logs: Floats,
    first_link: int, first_peer: int,
) -> tuple[Floats, Floats]:  # fmt: skip
    k = len(parents)
    full = 1 << k
    reliability = np.zeros((len(a), k))
    cut = np.zeros((len(a), k))
    mask = np.zeros(len(logs), dtype=np.int64)
    touched = np.empty(len(logs), dtype=np.int64)
    sums = np.zeros(full)
    links = np.zeros(full, dtype=np.bool_)
    fewest = np.zeros(full)
    for pair in range(len(a)):
        count = 0
        for tree in range(k):
            count = _mark_path(
                a[pair], b[pair], 1 << tree, parents[tree], uplinks[tree], depths[tree], starts, components, first_peer,
                mask, touched, count,
            )  # fmt: skip
        sums[:] = 0.0
        links[:] = False
        for i in range(count):
            component = touched[i]
            sums[mask[component]] += logs[component]
            if first_link <= component < first_peer:
                links[mask[component]] = True
            mask[component] = 0
        total = 0.0
        for tree in range(k):
            total = _add_union_terms(tree, sums, total)
            reliability[pair, tree] = total
            cut[pair, tree] = _find_fewest_links(tree, links, fewest)
    return reliability, cut
