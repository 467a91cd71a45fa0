"""The places of a cluster in the trees between clusters.

- Tree t of a group connects the coordinators of tree t of all clusters that follow the group.
- A coordinator without a parent looks for one (`parent_search.py`); the first coordinator of the cluster chooses it
  (`parent_choice.py`).
- A coordinator that finds no cluster connected to the root informs its children. They may reach other clusters, and
  then it can join below one of them.
- Backups hold the places of their coordinator."""

from collections.abc import Iterable, Iterator
from typing import Any

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import DeliverySettings, PathFound, PeerConfig, PluginEffect, Refuse
from wend.strategies.clusters.interest.cluster import BATCH, NOT_A_COORDINATOR, NOT_A_MEMBER, ClusterView
from wend.strategies.clusters.interest.groups import FollowedGroups
from wend.strategies.clusters.interest.messages import (
    AddChild,
    AskParents,
    ChildAdded,
    HoldTrees,
    ParentChosen,
    ParentsFound,
    PossibleParents,
    RemoveChild,
)
from wend.strategies.clusters.interest.parent_choice import ParentChoice
from wend.strategies.clusters.interest.parent_search import ParentSearch, TreeId, TreePlace
from wend.strategies.clusters.interest.repair import Repair
from wend.strategies.clusters.interest.settings import BEACONS_KEPT, ClusterEventSettings
from wend.strategies.ring.bounded import split_into_batches

Neighbours = tuple[str, tuple[str, ...]]
"""The cluster of the parent, empty if there is none, and those of the children."""


class BackupPlaces:
    """At a backup: the places of the active coordinator, so that the one that takes over has the same neighbours."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._places: dict[int, dict[str, Neighbours]] = {}
        """By tree and group."""

    def on_hold_trees(self, sender: PeerId, message: HoldTrees) -> None:
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
        """Add a child whose message the coordinator did not answer: this backup may take over soon."""
        if message.tree in self._cluster.membership.my_backups:
            places = self._places.setdefault(message.tree, {})
            parent, children = places.get(message.group, ("", ()))
            places[message.group] = (parent, tuple(dict.fromkeys((*children, message.cluster))))

    def pop_places(self, tree: int) -> dict[str, Neighbours]:
        """Remove and return the places in a tree, by group, for a backup that takes over."""
        return self._places.pop(tree, {})


class TreePlaces:
    """A coordinator's places in trees: joining, leaving, parents and children."""

    def __init__(self, config: PeerConfig, cluster: ClusterView, groups: FollowedGroups, repair: Repair) -> None:
        settings = config.of(ClusterEventSettings)
        self._persistence = config.of(DeliverySettings).persistence
        self._expiry_ns = BEACONS_KEPT * settings.cluster_beacon_ns
        self._cluster = cluster
        self._groups = groups
        self._repair = repair
        self._places: dict[TreeId, TreePlace] = {}
        self._backups = BackupPlaces(cluster)
        self._search = ParentSearch(cluster, settings.diverse_parents)
        self._choice = ParentChoice(cluster, settings.diverse_parents)

    def __contains__(self, tree_id: TreeId) -> bool:
        return tree_id in self._places

    def __len__(self) -> int:
        return len(self._places)

    def get(self, group: str, tree: int) -> TreePlace | None:
        return self._places.get((group, tree))

    def edges(self) -> list[tuple[str, int, str]]:
        """Group, tree and the parent's cluster."""
        return [(group, tree, place.parent) for (group, tree), place in self._places.items() if place.parent]

    def count_neighbours(self) -> int:
        return sum(len(place.neighbours) for place in self._places.values())

    # ---------------------------------------------------------------- inputs

    def on_message(self, now: Nanos, sender: PeerId, message: Any) -> Iterable[PluginEffect]:
        match message:
            case HoldTrees():
                self._backups.on_hold_trees(sender, message)
            case AddChild() | AskParents() if not self._cluster.is_holder_in(sender, message.cluster):
                return [Refuse(sender, NOT_A_COORDINATOR)]
            case ParentsFound() | ParentChosen() if sender not in self._cluster.members:
                return [Refuse(sender, NOT_A_MEMBER)]
            case AskParents():
                return self._on_question(sender, message)
            case PossibleParents():
                return self._on_answer(now, sender, message)
            case ParentsFound():
                return self._add_offer(now, message)
            case ParentChosen():
                return self._adopt_parent(message)
            case AddChild():
                return self._add_child(now, sender, message)
            case ChildAdded():
                return self._on_ancestors(now, sender, message)
            case RemoveChild():
                return self._remove_child(sender, message)
        return []

    def on_path(self, now: Nanos, answer: PathFound) -> Iterable[PluginEffect]:
        self._search.paths.add(answer)
        return self.finish_searches(now)

    def on_groups_changed(self, now: Nanos) -> Iterator[PluginEffect]:
        """Join the trees of groups that the cluster follows, and leave others."""
        groups = self._groups.cluster_groups()
        for tree in self._cluster.my_trees:
            for group in groups:
                if (group, tree) not in self._places:
                    yield from self.join(now, group, tree)
            for tree_id in [tree_id for tree_id in self._places if tree_id[1] == tree]:
                yield from self._leave_if_unneeded(*tree_id)

    def on_cluster_changed(self, now: Nanos) -> Iterator[PluginEffect]:
        mine, directory = self._cluster.name, self._cluster.directory
        yield from self._take_over(now)
        for tree_id in [tree_id for tree_id in self._places if tree_id[1] not in self._cluster.my_trees]:
            self._remove_place(tree_id)
        yield from self.on_groups_changed(now)
        for (group, tree), place in list(self._places.items()):
            if self._cluster.root(group, tree) == mine:
                yield from self._leave_parent(group, tree, place)
                place.clear_parent()
            elif place.parent is None or place.parent not in directory:
                place.parent = None
                yield from self.join(now, group, tree)

    def _take_over(self, now: Nanos) -> Iterator[PluginEffect]:
        """Take over the places of the former coordinators."""
        for tree in self._cluster.my_trees:
            for group, (parent, children) in self._backups.pop_places(tree).items():
                place = self._places.setdefault((group, tree), TreePlace())
                place.parent = parent or None
                place.children.update({child: now + self._expiry_ns for child in children if child != parent})
                for neighbour in place.neighbours:
                    yield from self._repair.send_digests(group, tree, neighbour, asks=True)

    def renew(self, now: Nanos) -> Iterator[PluginEffect]:
        """Renew places at parents, forget children that did not renew theirs, and send the neighbours digests."""
        directory, my_trees = self._cluster.directory, self._cluster.my_trees
        for (group, tree), place in list(self._places.items()):
            if tree not in my_trees:
                continue
            for child in [child for child, expires_ns in place.children.items() if expires_ns <= now]:
                if not self._persistence or child not in directory:
                    del place.children[child]
            yield from self._leave_if_unneeded(group, tree)
            if (group, tree) not in self._places:
                continue
            if place.parent is not None and place.parent in directory:
                yield from self._tell_parent(group, tree, place.parent)
                yield from self._search.improve(now, (group, tree), place)
            else:
                place.parent = None
                yield from self.join(now, group, tree)
            for neighbour in place.neighbours:
                yield from self._repair.send_digests(group, tree, neighbour)
        for tree in my_trees:
            yield from self._send_to_backups(tree, [group for group, of in self._places if of == tree])

    # ---------------------------------------------------------------- parents

    def join(self, now: Nanos, group: str, tree: int, avoid: str = "") -> Iterable[PluginEffect]:
        """Look for a parent in a tree, another one than `avoid`."""
        place = self._places.setdefault((group, tree), TreePlace())
        return self._search.join(now, (group, tree), place, avoid)

    def _on_question(self, sender: PeerId, question: AskParents) -> Iterable[PluginEffect]:
        if question.tree not in self._cluster.my_trees:
            return []
        place = self._places.setdefault((question.group, question.tree), TreePlace())
        return self._search.answer(sender, question, place)

    def _on_answer(self, now: Nanos, sender: PeerId, answer: PossibleParents) -> Iterator[PluginEffect]:
        if answer.tree in self._cluster.my_trees:
            yield from self._search.on_answer(sender, answer)
            yield from self._finish_search(now, answer.group, answer.tree)

    def finish_searches(self, now: Nanos) -> Iterator[PluginEffect]:
        """End the searches that are complete or over."""
        for group, tree in self._search.trees:
            yield from self._finish_search(now, group, tree)

    def _finish_search(self, now: Nanos, group: str, tree: int) -> Iterable[PluginEffect]:
        candidates = self._search.finish(now, (group, tree))
        if candidates is None:
            return []
        if not candidates:
            return self._tell_children_cut_off(group, tree)  # the next beacon tries again
        offer = ParentsFound(group, tree, candidates)
        chooser = self._cluster.slots[0].active
        if chooser == self._cluster.me:
            return self._add_offer(now, offer)
        return [self._cluster.send(chooser, offer)]

    def _tell_children_cut_off(self, group: str, tree: int) -> list[PluginEffect]:
        """Inform the children that no reachable cluster is connected to the root."""
        place = self._places[group, tree]
        place.is_cut_off, place.ancestors = True, ()
        message = ChildAdded(tree, group, self._cluster.name, ())
        slots = [self._cluster.directory.get(child, ()) for child in place.children]
        return [self._cluster.send(each[tree].active, message) for each in slots if tree < len(each)]

    def _add_offer(self, now: Nanos, offer: ParentsFound) -> Iterator[PluginEffect]:
        yield from self._choice.add_candidates(now, offer)
        yield from self.choose_parents(now)

    def choose_parents(self, now: Nanos) -> Iterator[PluginEffect]:
        """Choose the parents of the cluster if this coordinator has all offers, or the time is over."""
        for choice in self._choice.choose(now):
            active = self._cluster.slots[choice.tree].active
            if active == self._cluster.me:
                yield from self._adopt_parent(choice)
            else:
                yield self._cluster.send(active, choice)

    def _adopt_parent(self, choice: ParentChosen) -> Iterator[PluginEffect]:
        group, tree, parent = choice.group, choice.tree, choice.parent
        place = self._places.get((group, tree))
        if place is None or tree not in self._cluster.my_trees or place.parent == parent:
            return
        if self._cluster.root(group, tree) == self._cluster.name:
            return
        yield from self._leave_parent(group, tree, place)
        place.parent = parent
        place.children.pop(parent, None)
        yield from self._tell_parent(group, tree, parent)
        yield from self._send_to_backups(tree, [group])
        yield from self._repair.send_digests(group, tree, parent, asks=True)

    def _tell_parent(self, group: str, tree: int, parent: str) -> list[PluginEffect]:
        return self._cluster.send_to_cluster(AddChild(parent, tree, group, self._cluster.name))

    def _leave_parent(self, group: str, tree: int, place: TreePlace) -> list[PluginEffect]:
        if place.parent is None:
            return []
        return self._cluster.send_to_cluster(RemoveChild(place.parent, tree, group, self._cluster.name))

    def _on_ancestors(self, now: Nanos, sender: PeerId, message: ChildAdded) -> Iterable[PluginEffect]:
        """Record the parent's ancestors."""
        group, tree, parent = message.group, message.tree, message.cluster
        place = self._places.get((group, tree))
        if place is None or place.parent != parent or not self._cluster.is_holder_in(sender, parent):
            return []
        place.ancestors = message.ancestors
        if self._cluster.name in message.ancestors:  # a circle without the root
            place.clear_parent()
        elif message.ancestors:
            place.is_cut_off = False
            return []
        return self.join(now, group, tree, parent)

    # ---------------------------------------------------------------- children

    def _add_child(self, now: Nanos, sender: PeerId, message: AddChild) -> Iterator[PluginEffect]:
        group, tree, child = message.group, message.tree, message.cluster
        if tree not in self._cluster.my_trees:
            self._backups.add_child(message)
            return
        place = self._places.setdefault((group, tree), TreePlace())
        if place.parent == child:  # else each would be the other's child
            place.parent = None
        is_new = child not in place.children
        place.children[child] = now + self._expiry_ns
        mine = self._cluster.name
        ancestors = () if place.is_cut_off else (mine, *place.ancestors)
        yield self._cluster.send(sender, ChildAdded(tree, group, mine, ancestors))
        if place.parent is None:
            yield from self.join(now, group, tree)
        if is_new:
            yield from self._send_to_backups(tree, [group])
            yield from self._repair.send_digests(group, tree, child)

    def _remove_child(self, sender: PeerId, message: RemoveChild) -> list[PluginEffect]:
        group, tree = message.group, message.tree
        place = self._places.get((group, tree))
        if place is None:
            return []
        if not self._cluster.is_holder_in(sender, message.cluster):
            return [Refuse(sender, NOT_A_COORDINATOR)]
        if place.children.pop(message.cluster, None) is None:
            return []
        return self._send_to_backups(tree, [group]) + self._leave_if_unneeded(group, tree)

    def _leave_if_unneeded(self, group: str, tree: int) -> list[PluginEffect]:
        """Leave a tree that this cluster does not need."""
        place = self._places[group, tree]
        if place.children or group in self._groups.cluster_groups():
            return []
        self._remove_place((group, tree))
        return self._send_to_backups(tree, [group]) + self._leave_parent(group, tree, place)

    def _remove_place(self, tree_id: TreeId) -> None:
        del self._places[tree_id]
        self._search.stop(tree_id)
        self._choice.forget(tree_id[0])

    # ---------------------------------------------------------------- backups

    def _send_to_backups(self, tree: int, groups: list[str]) -> list[PluginEffect]:
        """Send the backups of a tree this coordinator's place in it, for some groups."""
        slots = self._cluster.slots
        backups = slots[tree].backups if tree < len(slots) else ()
        places = split_into_batches([(group, *self._make_neighbours(group, tree)) for group in groups], BATCH)
        return [self._cluster.send(peer, HoldTrees(tree, batch)) for peer in backups for batch in places]

    def _make_neighbours(self, group: str, tree: int) -> Neighbours:
        place = self._places.get((group, tree))
        return ("", ()) if place is None else (place.parent or "", tuple(place.children))
