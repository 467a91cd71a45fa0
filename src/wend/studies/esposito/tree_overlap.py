"""How much the paths of two trees overlap, at a node and along the routes of events (esposito, section 3.4).

A run without failures, until the trees are formed. Then each peer, or coordinator, names its parents. The paths
under the edges are those of the underlay. Every tree of the run is paired with another: Scribe has a tree for each
topic, so two topics are two trees; clusters have two trees for each topic.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import msgspec

from wend.drivers.sim.engine import Engine
from wend.drivers.world import World, build_world
from wend.model.events import PeerId
from wend.model.paths import Path
from wend.protocol.peer import Peer
from wend.strategies.path_diversity.parents import RouterBits
from wend.studies.esposito.runs import STRATEGIES, CrashRun, Metrics, make_scenario
from wend.topology.powerlaw import Homing


class TreeEdge(msgspec.Struct, frozen=True, gc=False):
    """An edge of a tree and the routers under it."""

    child: str
    parent: str
    path: Path


class PairOverlap(msgspec.Struct, frozen=True, gc=False):
    """How many pairs of paths there are, how many of them share a router, and the number of shared routers."""

    pairs: int = 0
    overlapping: int = 0
    shared: int = 0

    @property
    def mean(self) -> float:
        """The shared routers of a pair: Q on average."""
        return self.shared / self.pairs if self.pairs else 0.0


class Overlap(msgspec.Struct, frozen=True, gc=False):
    """The overlap between trees, as one node sees it and as all events do."""

    local: PairOverlap
    """Pairs of edges of one node in different trees. The trees are locally diverse if none overlaps."""
    between_routes: PairOverlap
    """Pairs of routes of one event in different trees, for all sources and destinations: the global diversity."""


def measure_overlap(trees: Sequence[Sequence[TreeEdge]]) -> Overlap:
    """How much the trees overlap. Nodes that are not in both trees of a pair do not count."""
    bits = RouterBits()
    masks = [[(edge.child, edge.parent, bits.mask(edge.path)) for edge in tree] for tree in trees]
    local: list[int] = []
    routes: list[int] = []
    at_nodes = [_find_neighbours(tree) for tree in masks]
    all_routes = [_find_routes(nodes) for nodes in at_nodes]
    for number in range(len(trees)):
        for other in range(number):
            one, two = at_nodes[number], at_nodes[other]
            for node in one.keys() & two.keys():
                local += [(a & b).bit_count() for _, a in one[node] for _, b in two[node]]
            ours, theirs = all_routes[number], all_routes[other]
            routes += [(ours[pair] & theirs[pair]).bit_count() for pair in ours.keys() & theirs.keys()]
    return Overlap(_count_overlaps(local), _count_overlaps(routes))


def _find_neighbours(tree: Iterable[tuple[str, str, int]]) -> dict[str, list[tuple[str, int]]]:
    """For each node, its neighbours in the tree with the routers under the edge."""
    neighbours: dict[str, list[tuple[str, int]]] = {}
    for child, parent, mask in tree:
        neighbours.setdefault(child, []).append((parent, mask))
        neighbours.setdefault(parent, []).append((child, mask))
    return neighbours


def _find_routes(nodes: dict[str, list[tuple[str, int]]]) -> dict[tuple[str, str], int]:
    """For each pair of nodes, the routers under the tree's route between them."""
    routes: dict[tuple[str, str], int] = {}
    for source in nodes:
        masks = {source: 0}
        open_nodes = [source]
        while open_nodes:
            node = open_nodes.pop()
            for neighbour, mask in nodes[node]:
                if neighbour not in masks:
                    masks[neighbour] = masks[node] | mask
                    open_nodes.append(neighbour)
        routes.update({(source, node): mask for node, mask in masks.items() if node > source})
    return routes


def _count_overlaps(shared: list[int]) -> PairOverlap:
    return PairOverlap(len(shared), sum(1 for count in shared if count), sum(shared))


# ---------------------------------------------------------------- the trees of a run


Trees = dict[tuple[str, int], list[TreeEdge]]
"""By group and number of the tree: its edges."""


class OverlapRun(msgspec.Struct, frozen=True):
    """Trees of one strategy."""

    strategy: str
    nodes: int = 120
    homing: Homing = "multi"
    coordinators: int = 2


OVERLAP_METRICS = ("local_shared", "local_overlapping", "route_shared", "route_overlapping", "edges")
FORMED_S = 40.0


def run_overlap(run: OverlapRun, seed: int) -> Metrics:
    """The routers that two paths share on average, and the share of pairs that share any: at a node, and of the two
    routes of an event."""
    trees = form_trees(run, seed)
    overlaps = [measure_overlap([trees[one] for one in pair]) for pair in _pair_trees(trees)]
    local, routes = _sum_overlaps(one.local for one in overlaps), _sum_overlaps(one.between_routes for one in overlaps)
    return {
        "local_shared": local.mean,
        "local_overlapping": local.overlapping / max(1, local.pairs),
        "route_shared": routes.mean,
        "route_overlapping": routes.overlapping / max(1, routes.pairs),
        "edges": sum(map(len, trees.values())),
    }


def form_trees(run: OverlapRun, seed: int) -> Trees:
    crash = CrashRun(
        run.strategy, run.nodes, run.homing, crashes="none", coordinators=run.coordinators, duration_s=FORMED_S
    )
    engine = Engine(build_world(make_scenario(crash, seed)))
    engine.run()
    return _read_cluster_trees(engine) if STRATEGIES[run.strategy].clusters else _read_peer_trees(engine)


def _read_peer_trees(engine: Engine) -> Trees:
    trees: Trees = {}
    for peer, made in _running_peers(engine).items():
        interest: Any = made.interest
        for group, parent in interest.parents().items():
            trees.setdefault((group, 0), []).append(_make_edge(engine.world, str(peer), str(parent), peer, parent))
    return trees


def _read_cluster_trees(engine: Engine) -> Trees:
    """A coordinator names the cluster of its parent; the edge ends at that cluster's coordinator for the tree."""
    trees: Trees = {}
    world, peers = engine.world, _running_peers(engine)
    speakers: dict[tuple[str, int], PeerId] = {}
    for peer, made in peers.items():
        membership: Any = made.view.membership
        speakers.update({(world.cluster_name(peer), tree): peer for tree in membership.my_trees})
    for (cluster, tree), peer in speakers.items():
        interest: Any = peers[peer].interest
        for group, number, parent in interest.tree_edges():
            if number == tree and (parent, tree) in speakers:
                edge = _make_edge(world, cluster, parent, peer, speakers[parent, tree])
                trees.setdefault((group, tree), []).append(edge)
    return trees


def _running_peers(engine: Engine) -> dict[PeerId, Peer]:
    return {number: peer for number, peer in enumerate(engine.peers) if isinstance(peer, Peer)}


def _make_edge(world: World, child: str, parent: str, a: PeerId, b: PeerId) -> TreeEdge:
    assert world.placement is not None
    return TreeEdge(child, parent, tuple(world.placement.path(a, b)))


def _pair_trees(trees: Trees) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """The trees of one group, or, if a group has one tree, each with the next."""
    several = [pair for pair in combinations(sorted(trees), 2) if pair[0][0] == pair[1][0]]
    ordered = sorted(trees)
    return several or list(zip(ordered[::2], ordered[1::2], strict=False))


def _sum_overlaps(overlaps: Iterable[PairOverlap]) -> PairOverlap:
    counts = ((one.pairs, one.overlapping, one.shared) for one in overlaps)
    return PairOverlap(*map(sum, zip(*counts, strict=True)))
