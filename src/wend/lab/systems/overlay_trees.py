"""Spanning trees of the overlay, for systems whose links must form a tree."""

from wend.drivers.world import World
from wend.lab.address_plan import link_costs
from wend.model.events import PeerId
from wend.topology import paths


def find_best_tree(world: World) -> dict[PeerId, PeerId]:
    """Each host's parent in the tree with the least mean delay between publishers and subscribers.

    The candidates are the shortest-path trees of all roots. An operator who knows the workload would choose this tree.
    """
    graph = link_costs(world.overlay)
    candidates = [paths.shortest_path_tree(graph, root)[1] for root in range(world.overlay.peers)]
    return min(candidates, key=lambda parent: _total_delay(world, graph, parent))


def _total_delay(world: World, graph: paths.Costs, parent: dict[PeerId, PeerId]) -> int:
    tree: dict[PeerId, dict[PeerId, int]] = {peer: {} for peer in graph}
    for child, above in parent.items():
        tree[child][above] = tree[above][child] = graph[child][above]
    total = 0
    for topic in world.topics:
        distance, _ = paths.shortest_path_tree(tree, topic.publisher)
        total += sum(distance[s] for s in topic.subscribers)
    return total
