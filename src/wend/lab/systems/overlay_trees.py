"""Spanning trees of the overlay, for systems whose links must form a tree."""

from wend.drivers.world import World
from wend.model.events import PeerId
from wend.topology import paths
from wend.topology.graph import Overlay


def costs(overlay: Overlay) -> dict[PeerId, dict[PeerId, int]]:
    """Link delays by node and neighbour, as input for the shortest-path functions."""
    delays: dict[PeerId, dict[PeerId, int]] = {peer: {} for peer in range(overlay.peers)}
    for link in overlay.links:
        delays[link.a][link.b] = delays[link.b][link.a] = link.delay_ns
    return delays


def best_tree(world: World) -> dict[PeerId, PeerId]:
    """Each host's parent in the tree with the least mean delay between publishers and subscribers.

    The candidates are the shortest-path trees of all roots. An operator who knows the workload would choose this tree.
    """
    graph = costs(world.overlay)
    candidates = [paths.tree(graph, root)[1] for root in range(world.overlay.peers)]
    return min(candidates, key=lambda parent: _total_delay(world, graph, parent))


def _total_delay(world: World, graph: paths.Costs, parent: dict[PeerId, PeerId]) -> int:
    tree: dict[PeerId, dict[PeerId, int]] = {peer: {} for peer in graph}
    for child, above in parent.items():
        tree[child][above] = tree[above][child] = graph[child][above]
    total = 0
    for topic in world.topics:
        distance, _ = paths.tree(tree, topic.publisher)
        total += sum(distance[s] for s in topic.subscribers)
    return total
