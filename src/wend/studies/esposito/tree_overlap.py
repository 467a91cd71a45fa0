"""How much the paths of two trees overlap: plain Scribe's two trees, and two trees between clusters.

A run without failures, until the trees are formed. Then each peer, or coordinator, names its parents. The paths
under the edges are those of the underlay. Every tree of the run is paired with another: Scribe has a tree for each
topic, so two topics are two trees; clusters have two trees for each topic.
"""

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import msgspec

from wend.drivers.sim.engine import Engine
from wend.drivers.world import World, build
from wend.model.events import PeerId
from wend.protocol.peer import Peer
from wend.studies.esposito.runs import STRATEGIES, CrashRun, Metrics, scenario_of
from wend.studies.esposito.tree_diversity import PairOverlap, TreeEdge, overlap
from wend.topology.powerlaw import Homing

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
    trees = trees_of(run, seed)
    found = [overlap([trees[one] for one in pair]) for pair in _pairs(trees)]
    local, routes = _sum(one.local for one in found), _sum(one.between_routes for one in found)
    return {
        "local_shared": local.mean,
        "local_overlapping": local.overlapping / max(1, local.pairs),
        "route_shared": routes.mean,
        "route_overlapping": routes.overlapping / max(1, routes.pairs),
        "edges": sum(map(len, trees.values())),
    }


def trees_of(run: OverlapRun, seed: int) -> Trees:
    crash = CrashRun(run.strategy, run.nodes, run.homing, "none", coordinators=run.coordinators, duration_s=FORMED_S)
    engine = Engine(build(scenario_of(crash, seed)))
    engine.run()
    return _between_clusters(engine) if STRATEGIES[run.strategy].clusters else _between_peers(engine)


def _between_peers(engine: Engine) -> Trees:
    trees: Trees = {}
    for peer, made in _peers(engine).items():
        interest: Any = made.interest
        for group, parent in interest.parents().items():
            trees.setdefault((group, 0), []).append(_edge(engine.world, str(peer), str(parent), peer, parent))
    return trees


def _between_clusters(engine: Engine) -> Trees:
    """A coordinator names the cluster of its parent; the edge ends at that cluster's coordinator for the tree."""
    trees: Trees = {}
    world, peers = engine.world, _peers(engine)
    speakers: dict[tuple[str, int], PeerId] = {}
    for peer, made in peers.items():
        membership: Any = made.view.membership
        speakers.update({(world.cluster_of(peer), tree): peer for tree in membership.my_trees})
    for (cluster, tree), peer in speakers.items():
        interest: Any = peers[peer].interest
        for group, number, parent in interest.tree_edges():
            if number == tree and (parent, tree) in speakers:
                edge = _edge(world, cluster, parent, peer, speakers[parent, tree])
                trees.setdefault((group, tree), []).append(edge)
    return trees


def _peers(engine: Engine) -> dict[PeerId, Peer]:
    return {number: peer for number, peer in enumerate(engine.peers) if isinstance(peer, Peer)}


def _edge(world: World, child: str, parent: str, a: PeerId, b: PeerId) -> TreeEdge:
    assert world.placement is not None
    return TreeEdge(child, parent, tuple(world.placement.path(a, b)))


def _pairs(trees: Trees) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """The trees of one group, or, if a group has one tree, each with the next."""
    several = [pair for pair in combinations(sorted(trees), 2) if pair[0][0] == pair[1][0]]
    ordered = sorted(trees)
    return several or list(zip(ordered[::2], ordered[1::2], strict=False))


def _sum(found: Iterable[PairOverlap]) -> PairOverlap:
    every = list(found)
    return PairOverlap(
        sum(one.pairs for one in every), sum(one.overlapping for one in every), sum(one.shared for one in every)
    )
