"""How much the paths of trees overlap, at a node and along the routes of events (esposito, section 3.4)."""

from collections.abc import Iterable, Sequence

import msgspec

from wend.model.paths import Path
from wend.strategies.clusters.interest.parent_choice import RouterBits


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


def overlap(trees: Sequence[Sequence[TreeEdge]]) -> Overlap:
    """How much the trees overlap. Nodes that are not in both trees of a pair do not count."""
    bits = RouterBits()
    masks = [[(edge.child, edge.parent, bits.mask(edge.path)) for edge in tree] for tree in trees]
    local: list[int] = []
    routes: list[int] = []
    at_nodes = [_at_nodes(tree) for tree in masks]
    all_routes = [_routes(nodes) for nodes in at_nodes]
    for number in range(len(trees)):
        for other in range(number):
            one, two = at_nodes[number], at_nodes[other]
            for node in one.keys() & two.keys():
                local += [(a & b).bit_count() for _, a in one[node] for _, b in two[node]]
            ours, theirs = all_routes[number], all_routes[other]
            routes += [(ours[pair] & theirs[pair]).bit_count() for pair in ours.keys() & theirs.keys()]
    return Overlap(_pairs(local), _pairs(routes))


def _at_nodes(tree: Iterable[tuple[str, str, int]]) -> dict[str, list[tuple[str, int]]]:
    """For each node, its neighbours in the tree with the routers under the edge."""
    neighbours: dict[str, list[tuple[str, int]]] = {}
    for child, parent, mask in tree:
        neighbours.setdefault(child, []).append((parent, mask))
        neighbours.setdefault(parent, []).append((child, mask))
    return neighbours


def _routes(nodes: dict[str, list[tuple[str, int]]]) -> dict[tuple[str, str], int]:
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


def _pairs(shared: list[int]) -> PairOverlap:
    return PairOverlap(len(shared), sum(1 for count in shared if count), sum(shared))
