"""`clusters-linked`: clusters whose active coordinators have links to each other, for routings that forward over links.

Both ends of a link compute it from the directory. The coordinators of a cluster have links to each other. The
coordinator of tree t has links to those of tree t in other clusters: in all of them if there are few, else in those at
distances 1, 2, 4, ... in the sorted ring of all clusters. Other members have no links.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Changed, EndLink, MakeLink, PeerConfig, PluginEffect, PluginInput, View
from wend.strategies.clusters.membership.plugin import CLUSTER, Clusters
from wend.strategies.clusters.membership.slots import Slots

MOST_LINKED = 8
"""Up to so many clusters, each has links to every other."""


class LinkedClusters(Clusters):
    """Clusters with links between their active coordinators."""

    strategy: ClassVar[str | None] = "clusters-adaptive"

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._linked: tuple[PeerId, ...] = ()

    def handle(self, now: Nanos, event: PluginInput, view: View | None = None) -> list[PluginEffect]:
        found = super().handle(now, event, view)
        return [*self._relink(), *found] if Changed(CLUSTER) in found else found

    def _relink(self) -> list[PluginEffect]:
        before, self._linked = self._linked, coordinator_links(self.me, self.cluster, self.directory)
        ended: list[PluginEffect] = [EndLink(peer) for peer in before if peer not in self._linked]
        made: list[PluginEffect] = [MakeLink(peer, ()) for peer in self._linked if peer not in before]
        return [*ended, *made]


def coordinator_links(me: PeerId, mine: str, directory: Mapping[str, Slots]) -> tuple[PeerId, ...]:
    """The neighbours of a peer of the cluster `mine`, sorted."""
    own = [slot.active for slot in directory.get(mine, ())]
    if me not in own:
        return ()
    names = list(directory)
    near = names if len(names) <= MOST_LINKED else ring_neighbours(names, mine)
    trees = [tree for tree, active in enumerate(own) if active == me]
    abroad = [directory[name][tree].active for name in near if name != mine for tree in trees]
    return tuple(sorted({*own, *abroad} - {me}))


def ring_neighbours(names: Sequence[str], mine: str) -> list[str]:
    """The names at distances 1, 2, 4, ... from `mine`, in both directions of a ring."""
    at, count = names.index(mine), len(names)
    distances = [1 << power for power in range(count.bit_length()) if 1 << power < count]
    return list(dict.fromkeys(names[(at + side * distance) % count] for distance in distances for side in (1, -1)))
