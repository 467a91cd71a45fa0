"""How a cluster finds its parents in trees.

- A cluster joins all trees of a group at once: each coordinator asks the root of its tree who may be the parent, and
  measures the paths to them; the first coordinator chooses one parent for each tree, so that the paths share as few
  routers as possible (`strategies/clusters/interest/diverse_parents.py`).
- If the parent or the root is out of reach, a coordinator asks all clusters. If none of them is connected to the root,
  it joins below one that is not in the tree, which then joins, too. If there is none, it says so to its children: they
  may reach others, and then it can join below one of them.
- With its beacons a coordinator looks now and then for a parent whose path shares fewer routers with the other trees.
"""

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.plugins import FindPath, PathFound, PeerConfig, Timer
from wend.strategies.clusters.interest.diverse_parents import Candidate, choose_parents, objective
from wend.strategies.clusters.interest.messages import (
    AddChild,
    AskParents,
    ChildAdded,
    ParentCandidate,
    ParentChosen,
    ParentsAre,
    ParentsFound,
    RemoveChild,
)
from wend.strategies.clusters.interest.places import ClusterPlaces, Place
from wend.strategies.clusters.interest.tree_places import ParentSearch, Router, TreePlace

SEARCH_NS: Nanos = 2 * SECOND
"""How long a coordinator looks for parents before it takes one of those that it knows."""
MOST_CANDIDATES = 32
EARLY_LOOKS = (1, 2, 4)
RARE_LOOKS = 30
"""At which beacons a coordinator looks for a better parent."""
SEARCH = "search"
CHOOSE = "choose"


class TreeParents(ClusterPlaces):
    """How a coordinator finds the parents of its cluster."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._searches: dict[Place, ParentSearch] = {}
        self._found: dict[Place, tuple[ParentCandidate, ...]] = {}
        """At the coordinator that chooses: what others found, until it chooses."""
        self._chosen: dict[Place, ParentCandidate] = {}
        """At the coordinator that chooses: the parents."""
        self._choosing: dict[str, Nanos] = {}
        """The groups for which it chooses, each with the time until which it waits for others."""
        self._paths: dict[PeerId, tuple[Router, ...] | None] = {}
        """The routers on the way to a peer; None while nobody knows."""

    # ---------------------------------------------------------------- joining

    def _left(self, group: str, tree: int) -> None:
        self._searches.pop((group, tree), None)
        for key in [key for key in self._chosen if key[0] == group]:
            del self._chosen[key]

    def _join(self, now: Nanos, group: str, tree: int, avoid: str = "") -> None:
        """Look for a parent: ask the root first."""
        root = self._root(group, tree)
        place = self._places[group, tree]
        if root == self._members.cluster:
            place.parent, place.ancestors = None, ()
            self._searches.pop((group, tree), None)
            return
        if (group, tree) in self._searches:
            return
        self._search(now, group, tree, avoid, wide=bool(avoid) or place.cut_off)

    def _search(self, now: Nanos, group: str, tree: int, avoid: str, wide: bool, improves: bool = False) -> None:
        search = self._searches[group, tree] = ParentSearch(now + SEARCH_NS, avoid, wide, improves)
        self._out.append(Timer(now + SEARCH_NS, SEARCH))
        mine, root = self._members.cluster, self._root(group, tree)
        self._to_cluster(AskParents(root, tree, group, mine))
        if wide:
            others = [name for name in self._directory if name not in (mine, root)]
            first = now // SECOND % max(1, len(others))  # others the next time, where there are many
            search.asked.update(dict.fromkeys([*others[first:], *others[:first]][:MOST_CANDIDATES]))
            for other in search.asked:
                self._to_cluster(AskParents(other, tree, group, mine))

    def _asked_for_parents(self, sender: PeerId, told: AskParents) -> None:
        if not self._may_speak(sender, told.cluster) or told.tree not in self._members.my_trees:
            return
        place = self._places.setdefault((told.group, told.tree), TreePlace())
        neighbours = tuple(n for n in place.neighbours if n != told.cluster)
        paths = tuple(self._path_to(n, told.tree) for n in neighbours)
        self._trace(sender)
        mine = self._members.cluster
        ancestors = (mine,) if place.cut_off else place.ancestors
        self._send(sender, ParentsAre(told.tree, told.group, mine, neighbours, paths, ancestors))

    def _parents_are(self, now: Nanos, sender: PeerId, told: ParentsAre) -> None:
        search = self._searches.get((told.group, told.tree))
        if search is None or told.tree not in self._members.my_trees:
            return
        mine = self._members.cluster
        search.answers[told.cluster] = (sender, told.paths, told.ancestors)
        self._trace(sender)
        if told.cluster == self._root(told.group, told.tree):
            for other in told.neighbours[:MOST_CANDIDATES]:
                if other != mine and other not in search.asked:
                    search.asked[other] = None
                    self._to_cluster(AskParents(other, told.tree, told.group, mine))
        self._look_at_search(now, told.group, told.tree)

    def _look_at_search(self, now: Nanos, group: str, tree: int) -> None:
        """Tell the coordinator that chooses if all have answered and all paths are known, or the time is over."""
        search = self._searches.get((group, tree))
        if search is None:
            return
        complete = bool(search.answers) and all(other in search.answers for other in search.asked)
        traced = all(self._paths.get(peer) is not None for peer, _, _ in search.answers.values())
        if now < search.until_ns and not (complete and traced):
            return
        candidates = self._candidates(search, group, tree)
        del self._searches[group, tree]
        if not candidates:
            if not search.improves:
                self._cut_off(group, tree)
            return  # the next beacon tries again
        chooser = self._members.slots[0].active
        if chooser == self._me:
            self._parents_found(now, self._me, ParentsFound(group, tree, candidates))
        else:
            self._send(chooser, ParentsFound(group, tree, candidates))

    def _candidates(self, search: ParentSearch, group: str, tree: int) -> tuple[ParentCandidate, ...]:
        """Who may be the parent. If all were asked: who is connected to the root, else who is not in the tree.

        To improve, a cluster moves only below one that is nearer to the root, or as near with a lower name: two that
        move at the same time do not become each other's ancestors."""
        mine, root = self._members.cluster, self._root(group, tree)
        known = {
            cluster: answer
            for cluster, answer in search.answers.items()
            if mine not in answer[2] and cluster not in (mine, search.avoid)
        }
        chosen = list(known)
        if search.wide:
            chosen = [cluster for cluster, answer in known.items() if root == cluster or root in answer[2][-1:]]
            chosen = chosen or [cluster for cluster, (_, paths, ancestors) in known.items() if not paths + ancestors]
        if search.improves:
            place = len(self._places[group, tree].ancestors), mine
            chosen = [cluster for cluster in chosen if (len(known[cluster][2]), cluster) < place]
        found = []
        for cluster in chosen:
            peer, paths, _ = known[cluster]
            round_trip = self._members.round_trip_ns(peer)
            found.append(ParentCandidate(cluster, self._paths.get(peer) or (), paths, round_trip))
        return tuple(found)

    def _cut_off(self, group: str, tree: int) -> None:
        """Nobody in reach is connected to the root: tell the children."""
        place = self._places.get((group, tree))
        if place is not None:
            place.cut_off, place.ancestors = True, ()
            for child in place.children:
                slots = self._directory.get(child, ())
                if tree < len(slots):
                    self._send(slots[tree].active, ChildAdded(tree, group, self._members.cluster, ()))

    def _parents_found(self, now: Nanos, sender: PeerId, told: ParentsFound) -> None:
        """Choose parents in all trees of a group when all coordinators have found some, or the time is over."""
        if sender != self._me and not self._is_member(sender):
            return
        self._found[told.group, told.tree] = told.candidates
        if told.group not in self._choosing:
            self._choosing[told.group] = now + SEARCH_NS
            self._out.append(Timer(now + SEARCH_NS, CHOOSE))
        self._look_at_choices(now)

    def _look_at_choices(self, now: Nanos) -> None:
        mine = self._members.cluster
        for group, until in list(self._choosing.items()):
            trees = range(len(self._members.slots))
            found = [tree for tree in trees if (group, tree) in self._found]
            if until > now and any(self._root(group, tree) != mine for tree in trees if tree not in found):
                continue
            del self._choosing[group]
            self._choose(now, group, [tree for tree in found if self._root(group, tree) != mine])

    def _choose(self, now: Nanos, group: str, trees: list[int]) -> None:
        offered = [self._found.pop((group, tree)) for tree in trees]
        if self._shared.diverse_parents:
            chosen = self._most_diverse(group, trees, offered)
        else:
            chosen = tuple(
                _index_of(options, self._root(group, tree)) for options, tree in zip(offered, trees, strict=True)
            )
        for tree, options, at in zip(trees, offered, chosen, strict=True):
            self._chosen[group, tree] = options[at]
            told = ParentChosen(group, tree, options[at].cluster)
            active = self._members.slots[tree].active
            if active == self._me:
                self._parent_chosen(now, self._me, told)
            else:
                self._send(active, told)

    def _most_diverse(
        self, group: str, trees: list[int], offered: list[tuple[ParentCandidate, ...]]
    ) -> tuple[int, ...]:
        """The best choice beside the parents in other trees. Present parents stay if no choice is better."""
        fixed = [one for (of, tree), one in self._chosen.items() if of == group and tree not in trees]
        options = [[_option(one) for one in each] for each in (*offered, *((one,) for one in fixed))]
        best = choose_parents(options)
        present = [self._chosen.get((group, tree)) for tree in trees]
        names = [[one.cluster for one in each] for each in offered]
        if all(one is not None and one.cluster in known for one, known in zip(present, names, strict=True)):
            stay = [known.index(one.cluster) for one, known in zip(present, names, strict=True) if one is not None]
            if objective(options, (*stay, *(0 for _ in fixed))) <= objective(options, best):
                return tuple(stay)
        return best[: len(trees)]

    def _parent_chosen(self, now: Nanos, sender: PeerId, told: ParentChosen) -> None:
        if sender != self._me and not self._is_member(sender):
            return
        place = self._places.get((told.group, told.tree))
        if place is None or told.tree not in self._members.my_trees or place.parent == told.parent:
            return
        mine = self._members.cluster
        if self._root(told.group, told.tree) == mine:
            return
        if place.parent is not None:
            self._to_cluster(RemoveChild(place.parent, told.tree, told.group, mine))
        place.parent = told.parent
        place.children.pop(told.parent, None)
        self._to_cluster(AddChild(told.parent, told.tree, told.group, mine))
        self._back_up(told.tree, (told.group,))
        self._tell_neighbour(told.group, told.tree, told.parent, asks=True)

    def _child_added(self, now: Nanos, sender: PeerId, told: ChildAdded) -> None:
        place = self._places.get((told.group, told.tree))
        if place is None or place.parent != told.cluster or not self._speaks_for(sender, told.cluster):
            return
        place.ancestors = told.ancestors
        if self._members.cluster in told.ancestors:  # a circle without the root
            place.parent, place.ancestors = None, ()
            self._join(now, told.group, told.tree, told.cluster)
        elif not told.ancestors:
            self._join(now, told.group, told.tree, told.cluster)
        else:
            place.cut_off = False

    # ---------------------------------------------------------------- paths

    def _trace(self, peer: PeerId) -> None:
        if peer not in self._paths:
            self._paths[peer] = None
            self._out.append(FindPath(peer))

    def _path_found(self, now: Nanos, found: PathFound) -> None:
        self._paths[found.peer] = tuple(router for router in found.path or () if router is not None)
        for group, tree in list(self._searches):
            self._look_at_search(now, group, tree)

    def _path_to(self, cluster: str, tree: int) -> tuple[Router, ...]:
        slots = self._directory.get(cluster, ())
        if tree >= len(slots):
            return ()
        self._trace(slots[tree].active)
        return self._paths.get(slots[tree].active) or ()

    def _improve(self, now: Nanos, group: str, tree: int, place: TreePlace) -> None:
        """Look for a better parent, at first often: when a tree forms, its clusters know few others."""
        place.beacons += 1
        often = place.beacons in EARLY_LOOKS or place.beacons % RARE_LOOKS == 0
        if often and self._shared.diverse_parents and (group, tree) not in self._searches and not place.cut_off:
            self._search(now, group, tree, "", wide=True, improves=True)


def _index_of(options: tuple[ParentCandidate, ...], cluster: str) -> int:
    """The place of a cluster among candidates; else the first."""
    return next((at for at, one in enumerate(options) if one.cluster == cluster), 0)


def _option(found: ParentCandidate) -> Candidate:
    return Candidate(found.cluster, found.path, found.neighbour_paths, found.round_trip_ns)
