"""The places of this cluster in the trees: its parent and children in each of them.

The active coordinator of a tree keeps the place there. It tells its partners and backups of each change, so that a
backup knows the neighbours when it takes over, and the coordinator that joins the trees knows where a parent lacks.

The paper does not say how clusters avoid a loop when several of them join again at once. Here a place has the list of
its ancestors: a cluster takes none of its descendants for a parent, and leaves a parent that turns out to be one.
"""

from collections.abc import Iterator

import msgspec

from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect
from wend.strategies.esposito.cluster import ClusterNodes
from wend.strategies.esposito.groups import MemberGroups
from wend.strategies.esposito.messages import ChildRegistered, DropChild, PlaceChanged, RegisterChild

TreeId = tuple[str, int]
"""A group, and the number of its tree."""
BEACONS_KEPT = 4
"""A parent forgets a child that does not say so again for as many beacons."""


class Place(msgspec.Struct, eq=False):
    """The neighbours of this cluster in one tree."""

    parent: str | None = None
    """None at the root, and until the cluster has chosen one."""
    children: dict[str, Nanos] = {}
    """Each with the time at which it expires."""
    ancestors: tuple[str, ...] = ()
    """The clusters between here and the root, the parent first. Empty until the parent answers."""

    @property
    def neighbours(self) -> list[str]:
        return list(self.children) if self.parent is None else [self.parent, *self.children]


class Places:
    """The places by group and tree."""

    def __init__(self, cluster: ClusterNodes, groups: MemberGroups, beacon_ns: Nanos) -> None:
        self._cluster = cluster
        self._groups = groups
        self._expiry_ns = BEACONS_KEPT * beacon_ns
        self._places: dict[TreeId, Place] = {}
        self._my_trees: tuple[int, ...] = ()

    def __len__(self) -> int:
        return sum(tree in self._cluster.my_trees for _, tree in self._places)

    def get(self, group: str, tree: int) -> Place:
        return self._places.get((group, tree)) or Place()

    def edges(self) -> list[tuple[str, int, str]]:
        """This coordinator's parents: group, tree and the parent's cluster."""
        return [
            (group, tree, place.parent)
            for (group, tree), place in self._places.items()
            if place.parent is not None and tree in self._cluster.my_trees
        ]

    def is_on_tree(self, group: str, tree: int) -> bool:
        """Whether this cluster is the root or has a parent that has answered."""
        return bool(self.get(group, tree).ancestors) or self._cluster.is_root(group, tree)

    def trees_without_parent(self) -> dict[str, list[int]]:
        """By group, the trees in which this cluster needs a parent and has none."""
        groups = self._groups.cluster_groups()
        groups.update(dict.fromkeys(group for (group, _), place in self._places.items() if place.children))
        trees = range(len(self._cluster.slots))
        lacking = {
            group: [
                tree
                for tree in trees
                if self.get(group, tree).parent is None and not self._cluster.is_root(group, tree)
            ]
            for group in groups
        }
        return {group: trees for group, trees in lacking.items() if trees}

    # ---------------------------------------------------------------- the parent

    def choose(self, group: str, tree: int, parent: str) -> Iterator[PluginEffect]:
        """Become a child of another cluster, and leave the former parent."""
        mine = self._cluster.name
        place = self._places.setdefault((group, tree), Place())
        before, place.parent = place.parent, parent
        if before != parent:
            place.ancestors = ()
            if before is not None:
                yield from self._cluster.send(before, tree, DropChild(group, tree, mine))
            yield from self._tell_partners(group, tree)
        yield from self._cluster.send(parent, tree, RegisterChild(group, tree, mine))

    def on_child_registered(self, cluster: str, message: ChildRegistered) -> Iterator[PluginEffect]:
        """Record the ancestors that the parent sent."""
        group, tree, ancestors = message.group, message.tree, message.ancestors
        mine = self._cluster.name
        place = self.get(group, tree)
        if place.parent != cluster:
            yield from self._cluster.send(cluster, tree, DropChild(group, tree, mine))
        elif mine in ancestors:  # the parent is a descendant
            place.parent, place.ancestors = None, ()
            yield from self._cluster.send(cluster, tree, DropChild(group, tree, mine))
            yield from self._tell_partners(group, tree)
        elif ancestors != place.ancestors:
            place.ancestors = ancestors
            yield from self._tell_partners(group, tree)
            yield from self._tell_children(group, tree)

    # ---------------------------------------------------------------- children

    def add_child(self, now: Nanos, message: RegisterChild) -> Iterator[PluginEffect]:
        group, tree, child = message.group, message.tree, message.cluster
        place = self._places.setdefault((group, tree), Place())
        is_new = child not in place.children
        place.children[child] = now + self._expiry_ns
        yield from self._cluster.send(child, tree, self._make_child_registered(group, tree))
        if is_new:
            yield from self._tell_partners(group, tree)

    def remove_child(self, message: DropChild) -> Iterator[PluginEffect]:
        place = self.get(message.group, message.tree)
        if place.children.pop(message.cluster, None) is not None:
            yield from self._tell_partners(message.group, message.tree)

    def _make_child_registered(self, group: str, tree: int) -> ChildRegistered:
        return ChildRegistered(group, tree, (self._cluster.name, *self.get(group, tree).ancestors))

    def _tell_children(self, group: str, tree: int) -> Iterator[PluginEffect]:
        for child in self.get(group, tree).children:
            yield from self._cluster.send(child, tree, self._make_child_registered(group, tree))

    # ---------------------------------------------------------------- partners and backups

    def _tell_partners(self, group: str, tree: int) -> list[PluginEffect]:
        place = self.get(group, tree)
        message = PlaceChanged(group, tree, place.parent, tuple(place.children), place.ancestors)
        return self._cluster.send_to_partners(message)

    def on_place_changed(self, now: Nanos, message: PlaceChanged) -> None:
        """Record the place of the active coordinator of another tree, or of one that this peer backs up."""
        children = dict.fromkeys(message.children, now + self._expiry_ns)
        self._places[message.group, message.tree] = Place(message.parent, children, message.ancestors)

    def take_over(self, now: Nanos) -> Iterator[PluginEffect]:
        """Tell the neighbours in trees whose coordinator this peer has just become."""
        new = [tree for tree in self._cluster.my_trees if tree not in self._my_trees]
        self._my_trees = self._cluster.my_trees
        for (group, tree), place in self._places.items():
            if tree in new:
                place.children = dict.fromkeys(place.children, now + self._expiry_ns)
                yield from self._renew_parent(group, tree, place)
                yield from self._tell_children(group, tree)

    def renew(self, now: Nanos) -> Iterator[PluginEffect]:
        """Renew the places in this coordinator's trees, and leave those that nobody here or below needs."""
        groups = self._groups.cluster_groups()
        for (group, tree), place in list(self._places.items()):
            if tree not in self._cluster.my_trees:
                continue
            for child in [child for child, expires_ns in place.children.items() if expires_ns <= now]:
                del place.children[child]
            is_needed = group in groups or bool(place.children)
            if place.parent is not None and (not is_needed or self._cluster.is_root(group, tree)):
                leave = DropChild(group, tree, self._cluster.name)
                yield from self._cluster.send(place.parent, tree, leave)
                place.parent, place.ancestors = None, ()
                yield from self._tell_children(group, tree)
            yield from self._renew_parent(group, tree, place)
            yield from self._tell_partners(group, tree)
            if not is_needed:
                del self._places[group, tree]

    def _renew_parent(self, group: str, tree: int, place: Place) -> list[PluginEffect]:
        if place.parent is None:
            return []
        return self._cluster.send(place.parent, tree, RegisterChild(group, tree, self._cluster.name))
