"""The place of a cluster in a tree between clusters, and the copies that backups hold of it."""

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.strategies.clusters.interest.cluster import ClusterView
from wend.strategies.clusters.interest.messages import AddChild, HoldTrees

TreeId = tuple[str, int]
"""A group, and the number of its tree."""
Neighbours = tuple[str, tuple[str, ...]]
"""The cluster of the parent, empty if there is none, and those of the children."""


class TreePlace:
    """The neighbours of this cluster in one tree."""

    __slots__ = ("ancestors", "beacons", "children", "is_cut_off", "parent")

    def __init__(self) -> None:
        self.beacons = 0
        """How often it was renewed with a parent."""
        self.is_cut_off = False
        """Whether the last search found nobody who is connected to the root."""
        self.parent: str | None = None
        """None at the root, and until the cluster has a parent."""
        self.children: dict[str, Nanos] = {}
        """Each with the time at which it expires."""
        self.ancestors: tuple[str, ...] = ()
        """The clusters between here and the root, the parent first."""

    @property
    def neighbours(self) -> list[str]:
        return list(self.children) if self.parent is None else [self.parent, *self.children]

    def clear_parent(self) -> None:
        self.parent, self.ancestors = None, ()


class BackupPlaces:
    """At a backup: the places of the active coordinator, so that the one that takes over has the same neighbours."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._places: dict[int, dict[str, Neighbours]] = {}
        """By tree and group."""

    def hear(self, sender: PeerId, message: HoldTrees) -> None:
        slots = self._cluster.slots
        if not 0 <= message.tree < len(slots) or slots[message.tree].active != sender:
            return
        places = self._places.setdefault(message.tree, {})
        for group, parent, children in message.places:
            if parent or children:
                places[group] = (parent, children)
            else:
                places.pop(group, None)

    def add_child(self, message: AddChild) -> None:
        """The coordinator did not answer, so this backup may take over soon."""
        if message.tree in self._cluster.membership.my_backups:
            places = self._places.setdefault(message.tree, {})
            parent, children = places.get(message.group, ("", ()))
            places[message.group] = (parent, tuple(dict.fromkeys((*children, message.cluster))))

    def take(self, tree: int) -> dict[str, Neighbours]:
        """The places in a tree, by group, for a backup that takes over."""
        return self._places.pop(tree, {})
