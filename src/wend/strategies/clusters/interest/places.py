"""The places of a cluster in trees. Tree t of a group connects the coordinators of tree t of all clusters that follow
the group.

- The root of a tree is the cluster whose key is closest to the key of group and tree.
- A message goes to the active coordinator of a cluster, and to its backups if that does not answer.
- Backups hold the places of their coordinator, so that the one that takes over has the same neighbours.
"""

from typing import Any

from wend.model.events import PeerId
from wend.model.keys import distance, key_of
from wend.model.units import Nanos
from wend.protocol.plugins import PeerConfig
from wend.strategies.clusters.interest.groups import BATCH
from wend.strategies.clusters.interest.messages import (
    AddChild,
    ChildAdded,
    HoldTrees,
    RemoveChild,
)
from wend.strategies.clusters.interest.sharing import ClusterSharing
from wend.strategies.clusters.interest.tree_places import TreePlace
from wend.strategies.clusters.membership.slots import Slots

Place = tuple[str, int]
"""Group and tree."""


class ClusterPlaces(ClusterSharing):
    """A coordinator's places in trees. A subclass finds the parents."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._places: dict[Place, TreePlace] = {}
        self._held: dict[int, dict[str, tuple[str, tuple[str, ...]]]] = {}
        """At a backup: the active coordinator's place in the trees, by tree and group."""

    # ---------------------------------------------------------------- for the subclass

    def _tell_neighbour(self, group: str, tree: int, cluster: str, asks: bool = False) -> None:
        """Tell a neighbour on a tree what this cluster has of a group."""

    def _join(self, now: Nanos, group: str, tree: int, avoid: str = "") -> None:
        """Look for a parent."""
        raise NotImplementedError

    def _improve(self, now: Nanos, group: str, tree: int, place: TreePlace) -> None:
        """Look for a better parent."""
        raise NotImplementedError

    def _left(self, group: str, tree: int) -> None:
        """This cluster has no place in a tree any more."""

    # ---------------------------------------------------------------- clusters

    @property
    def _directory(self) -> dict[str, Slots]:
        return self._members.directory  # type: ignore[no-any-return]

    def _root(self, group: str, tree: int) -> str:
        """The cluster that is the root of a tree."""
        key = key_of(group, str(tree))
        known = self._directory or {self._members.cluster: ()}
        return min(known, key=lambda name: (distance(key_of("cluster", name), key), name))

    def _to_cluster(self, message: Any, failed: PeerId | None = None) -> bool:
        """Send a message to the coordinator of its tree, or to the one after `failed`. Whether there is one."""
        slots = self._directory.get(message.to, ())
        if not 0 <= message.tree < len(slots):
            return False
        holders = list(slots[message.tree].holders)
        if failed is not None:
            holders = holders[holders.index(failed) + 1 :] if failed in holders else []
        if not holders or holders[0] == self._me:
            return False
        self._send(holders[0], message)
        return True

    def _speaks_for(self, sender: PeerId, cluster: str) -> bool:
        return any(sender in slot.holders for slot in self._directory.get(cluster, ()))

    def _may_speak(self, sender: PeerId, cluster: str) -> bool:
        if self._speaks_for(sender, cluster):
            return True
        self._refuse(sender, "a message for a cluster that it does not coordinate")
        return False

    def _knows(self, sender: PeerId) -> bool:
        return sender in self._members.members or self._abroad(sender) is not None

    def _abroad(self, sender: PeerId) -> str | None:
        """The cluster that a peer speaks for; none is refused."""
        for name, slots in self._directory.items():
            if any(sender in slot.holders for slot in slots):
                return name
        self._refuse(sender, "a message for a cluster that it does not coordinate")
        return None

    # ---------------------------------------------------------------- places

    def _follows_more(self, now: Nanos) -> None:
        wanted = self._wanted_groups()
        for tree in self._members.my_trees:
            for group in wanted:
                if (group, tree) not in self._places:
                    self._places[group, tree] = TreePlace()
                    self._join(now, group, tree)
            for group, of in list(self._places):
                if of == tree:
                    self._tidy(now, group, tree)

    def _wanted_groups(self) -> dict[str, None]:
        wanted = dict.fromkeys(self._since)
        for groups in self._wants.values():
            wanted.update(dict.fromkeys(groups))
        return wanted

    def _tidy(self, now: Nanos, group: str, tree: int) -> None:
        """Leave a tree that this cluster does not need."""
        place = self._places[group, tree]
        if place.children or group in self._wanted_groups():
            return
        del self._places[group, tree]
        self._left(group, tree)
        self._back_up(tree, (group,))
        if place.parent is not None:
            self._to_cluster(RemoveChild(place.parent, tree, group, self._members.cluster))

    def _add_child(self, now: Nanos, sender: PeerId, told: AddChild) -> None:
        if not self._may_speak(sender, told.cluster):
            return
        if told.tree not in self._members.my_trees:
            self._hold_child(told)
            return
        key = (told.group, told.tree)
        fresh = key not in self._places
        place = self._places.setdefault(key, TreePlace())
        if place.parent == told.cluster:  # both would be the other's child
            place.parent = None
        known = told.cluster in place.children
        place.children[told.cluster] = now + 4 * self._shared.cluster_beacon_ns
        mine = self._members.cluster
        ancestors = () if place.cut_off else (mine, *place.ancestors)
        self._send(sender, ChildAdded(told.tree, told.group, mine, ancestors))
        if fresh or place.parent is None:
            self._join(now, told.group, told.tree)
        if not known:
            self._back_up(told.tree, (told.group,))
            self._tell_neighbour(told.group, told.tree, told.cluster)

    def _remove_child(self, now: Nanos, sender: PeerId, told: RemoveChild) -> None:
        place = self._places.get((told.group, told.tree))
        if place is None or not self._may_speak(sender, told.cluster):
            return
        if place.children.pop(told.cluster, None) is not None:
            self._back_up(told.tree, (told.group,))
            self._tidy(now, told.group, told.tree)

    # ---------------------------------------------------------------- beacons and changes

    def _renew_trees(self, now: Nanos) -> None:
        for (group, tree), place in list(self._places.items()):
            if tree not in self._members.my_trees:
                continue
            for child in [child for child, expires in place.children.items() if expires <= now]:
                if not self._persistency or child not in self._directory:
                    del place.children[child]
            self._tidy(now, group, tree)
            if (group, tree) not in self._places:
                continue
            if place.parent is not None and place.parent in self._directory:
                self._to_cluster(AddChild(place.parent, tree, group, self._members.cluster))
                self._improve(now, group, tree, place)
            else:
                place.parent = None
                self._join(now, group, tree)
            for neighbour in place.neighbours:
                self._tell_neighbour(group, tree, neighbour)
        for tree in self._members.my_trees:
            self._back_up(tree)

    def _cluster_changed(self, now: Nanos) -> None:
        mine = self._members.my_trees
        for tree in mine:
            for group, (parent, children) in self._held.pop(tree, {}).items():
                place = self._places.setdefault((group, tree), TreePlace())
                place.parent = parent or None
                expires = now + 4 * self._shared.cluster_beacon_ns
                place.children.update({child: expires for child in children if child != parent})
                for neighbour in place.neighbours:
                    self._tell_neighbour(group, tree, neighbour, asks=True)
        for group, tree in [key for key in self._places if key[1] not in mine]:
            del self._places[group, tree]
            self._left(group, tree)
        self._follows_more(now)
        for (group, tree), place in list(self._places.items()):
            root = self._root(group, tree)
            if root == self._members.cluster:
                if place.parent is not None:
                    self._to_cluster(RemoveChild(place.parent, tree, group, root))
                place.parent, place.ancestors = None, ()
            elif place.parent is None or place.parent not in self._directory:
                place.parent = None
                self._join(now, group, tree)

    # ---------------------------------------------------------------- backups

    def _back_up(self, tree: int, groups: tuple[str, ...] | None = None) -> None:
        """Tell the backups of a tree this coordinator's place in it, of some groups or all."""
        found = [group for group, of in self._places if of == tree] if groups is None else groups
        places = [(group, *self._place_of(group, tree)) for group in found]
        slots = self._members.slots
        for peer in slots[tree].backups if tree < len(slots) else ():
            for at in range(0, len(places), BATCH):
                self._send(peer, HoldTrees(tree, tuple(places[at : at + BATCH])))

    def _place_of(self, group: str, tree: int) -> tuple[str, tuple[str, ...]]:
        place = self._places.get((group, tree))
        return ("", ()) if place is None else (place.parent or "", tuple(place.children))

    def _hold_trees(self, sender: PeerId, told: HoldTrees) -> None:
        slots = self._members.slots
        if not 0 <= told.tree < len(slots) or slots[told.tree].active != sender:
            return
        held = self._held.setdefault(told.tree, {})
        for group, parent, children in told.places:
            if parent or children:
                held[group] = (parent, children)
            else:
                held.pop(group, None)

    def _hold_child(self, told: AddChild) -> None:
        """A backup: the coordinator did not answer, so this one may be asked to take over soon."""
        if told.tree in self._members.my_backups:
            held = self._held.setdefault(told.tree, {})
            parent, children = held.get(told.group, ("", ()))
            held[told.group] = (parent, tuple(dict.fromkeys((*children, told.cluster))))
