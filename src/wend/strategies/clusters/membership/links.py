"""`clusters-linked`: clusters whose active coordinators have links to each other, for routings that forward over links.

Both ends of a link compute it from the directory. The coordinators of a cluster have links to each other. The
coordinator of tree t has links to those of tree t in other clusters: in all of them if there are few, else in those at
distances 1, 2, 4, ... in the sorted ring of all clusters. Other members have no links.
"""

from collections.abc import Mapping, Sequence

from wend.model.events import PeerId
from wend.protocol.plugins import EndLink, MakeLink, PluginEffect
from wend.strategies.clusters.membership.slots import Slots

MOST_LINKED = 8
"""Up to so many clusters, each has links to every other."""


class CoordinatorLinks:
    """The links of this peer to coordinators, while it is one."""

    def __init__(self, me: PeerId) -> None:
        self._me = me
        self._neighbours: tuple[PeerId, ...] = ()

    def update(self, mine: str, directory: Mapping[str, Slots]) -> list[PluginEffect]:
        before, after = self._neighbours, coordinator_links(self._me, mine, directory)
        self._neighbours = after
        return [
            *(EndLink(peer) for peer in before if peer not in after),
            *(MakeLink(peer, ()) for peer in after if peer not in before),
        ]


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
