"""Fixed trees, the paper's first two baselines: shortest delay (D-Tree) and fewest hops (R-Tree).

Every peer computes the publisher's tree from the link-state graph and forwards packets down it. If a link does
not answer m transmissions, the peer gives the packet up for the destinations behind it.
"""

from collections.abc import Mapping

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Arrived,
    Changed,
    Failed,
    Forward,
    GiveUp,
    GraphView,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Ranks,
    Routing,
    View,
    give_up_failed,
    subset,
)
from wend.topology import paths


class SourceTree(Routing):
    """Forwards packets along a tree from each publisher. Subclasses say which cost a link has."""

    def __init__(self, config: PeerConfig) -> None:
        self._hops_by_root: dict[PeerId, dict[PeerId, PeerId]] = {}

    def costs(self, graph: GraphView) -> Mapping[PeerId, Mapping[PeerId, int]]:
        raise NotImplementedError

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Arrived():
                return self._on_arrived(event, view)
            case Failed(forward):
                return [give_up_failed(forward)]
            case Changed():
                self._hops_by_root.clear()
        return []

    def _on_arrived(self, packet: Arrived, view: View) -> list[PluginEffect]:
        hops = self._next_hops(packet.event.id[0], view)
        # a retry may find that this peer left the publisher's tree: it follows this peer's own tree
        own = self._next_hops(view.me, view) if packet.sender == view.me else {}
        groups: dict[PeerId, list[PeerId]] = {}
        stuck = []
        for dest in packet.dests:
            hop = hops.get(dest, own.get(dest))
            if hop is None:
                stuck.append(dest)
            else:
                groups.setdefault(hop, []).append(dest)
        effects: list[PluginEffect] = [
            Forward(hop, packet.event, packet.born_ns, tuple(group), packet.path, None, _ranks(group, packet))
            for hop, group in groups.items()
        ]
        if stuck:
            effects.append(GiveUp(packet.event, packet.born_ns, tuple(stuck), "not-on-tree", _ranks(stuck, packet)))
        return effects

    def _next_hops(self, root: PeerId, view: View) -> dict[PeerId, PeerId]:
        """By destination: this peer's child on the root's tree that leads to it."""
        hops = self._hops_by_root.get(root)
        if hops is None:
            if root not in view.graph.costs:  # a neighbour can invent a peer: do not cache that
                return {}
            hops = self._hops_by_root[root] = {}
            _, parent = paths.shortest_path_tree(self.costs(view.graph), root)
            for dest in parent:
                path = paths.path_in_tree(parent, root, dest)
                if view.me in path[:-1]:
                    hops[dest] = path[path.index(view.me) + 1]
        return hops


def _ranks(dests: list[PeerId], packet: Arrived) -> Ranks:
    return subset(tuple(dests), packet.dests, packet.ranks)


class DelayTree(SourceTree):
    """Shortest delay from the publisher to each subscriber."""

    def costs(self, graph: GraphView) -> Mapping[PeerId, Mapping[PeerId, int]]:
        return graph.costs


class HopTree(SourceTree):
    """Fewest hops: the most reliable route if all links fail alike. The id breaks ties."""

    def costs(self, graph: GraphView) -> Mapping[PeerId, Mapping[PeerId, int]]:
        return {a: dict.fromkeys(row, 1) for a, row in graph.costs.items()}
