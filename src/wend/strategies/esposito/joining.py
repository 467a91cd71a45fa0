"""How a cluster joins the trees of a group (section 3.4, Figure 6).

Only one coordinator at a time joins, and in all trees that it needs at once:

1. It sends a `FindParent` for each tree towards the root. The first cluster on the way that belongs to the tree answers
   with its neighbours there, its paths to them, and its path to the joiner.
2. It asks these neighbours for the same.
3. It chooses a parent in each tree so that the paths share as few routers as possible (`path_diversity/parents.py`),
   and tells its partners, who write to the parents.

Nobody repeats a message that is lost: what is lacking is joined with the next beacon.
"""

from collections.abc import Iterable, Iterator

import msgspec

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.plugins import FindPath, PathFound, PluginEffect, Timer
from wend.strategies.esposito.cluster import FIRST_TREE, ClusterNodes
from wend.strategies.esposito.messages import AskPath, ChosenParent, FindParent, TreeNeighbours
from wend.strategies.esposito.places import Places
from wend.strategies.path_diversity.parents import ParentCandidate, RouterPath, choose_parents
from wend.strategies.ring.key_based import MAX_HOPS

SEARCH = "search"
SEARCH_NS: Nanos = 2 * SECOND
"""How long a joiner waits for answers."""
MAX_NEIGHBOURS = 16
"""In one answer."""
MAX_PENDING = 256


class _Question(msgspec.Struct, frozen=True):
    """The question of another cluster, for paths that are still being traced."""

    group: str
    tree: int
    cluster: str
    coordinator: PeerId
    neighbours: dict[str, PeerId]
    """The neighbours here, each with its coordinator."""


class PathAnswers:
    """Answers clusters that want to join with the paths from here."""

    def __init__(self, cluster: ClusterNodes, places: Places) -> None:
        self._cluster = cluster
        self._places = places
        self._paths: dict[PeerId, RouterPath | None] = {}
        """None until the path is traced."""
        self._questions: list[_Question] = []

    def on_find_parent(self, message: FindParent) -> Iterable[PluginEffect]:
        """Answer, or pass the message on towards the root."""
        group, tree = message.group, message.tree
        if self._places.is_on_tree(group, tree):
            return self.answer(group, tree, message.cluster)
        hop = self._cluster.next_to_root(group, tree)
        if hop is None or message.hops >= MAX_HOPS:
            return []
        return self._cluster.send(hop, tree, msgspec.structs.replace(message, hops=message.hops + 1))

    def on_ask_path(self, message: AskPath) -> Iterable[PluginEffect]:
        is_on_tree = self._places.is_on_tree(message.group, message.tree)
        return self.answer(message.group, message.tree, message.cluster) if is_on_tree else []

    def answer(self, group: str, tree: int, joiner: str) -> Iterator[PluginEffect]:
        coordinator = self._cluster.active_coordinator(joiner, tree)
        if coordinator is None or len(self._questions) >= MAX_PENDING:
            return
        neighbours: dict[str, PeerId] = {}
        for name in self._places.get(group, tree).neighbours[:MAX_NEIGHBOURS]:
            peer = self._cluster.active_coordinator(name, tree)
            if name != joiner and peer is not None:
                neighbours[name] = peer
        self._questions.append(_Question(group, tree, joiner, coordinator, neighbours))
        for peer in (coordinator, *neighbours.values()):
            if peer not in self._paths:
                self._paths[peer] = None
                yield FindPath(peer)
        yield from self._answer_traced_questions()

    def on_path(self, message: PathFound) -> Iterator[PluginEffect]:
        self._paths[message.peer] = tuple(router for router in message.path or () if router is not None)
        yield from self._answer_traced_questions()

    def _answer_traced_questions(self) -> Iterator[PluginEffect]:
        """Answer the questions whose paths are all traced."""
        questions, self._questions = self._questions, []
        for one in questions:
            paths = [self._paths.get(peer) for peer in (one.coordinator, *one.neighbours.values())]
            known = tuple(path for path in paths if path is not None)
            if len(known) < len(paths):
                self._questions.append(one)
                continue
            ancestors = self._places.get(one.group, one.tree).ancestors
            message = TreeNeighbours(
                one.group, one.tree, self._cluster.name, known[0], tuple(one.neighbours), known[1:], ancestors
            )
            yield from self._cluster.send(one.cluster, FIRST_TREE, message)

    def forget_paths(self) -> None:
        """Trace paths anew from now on: they may have changed."""
        self._paths = {peer: None for peer, path in self._paths.items() if path is None}


class _Search(msgspec.Struct, eq=False):
    """The search for parents in the trees of a group."""

    until_ns: Nanos
    trees: list[int]
    asked: dict[tuple[int, str], None] = {}
    answers: dict[tuple[int, str], TreeNeighbours] = {}
    """By tree and cluster."""
    candidates: dict[int, list[ParentCandidate]] = {}

    @property
    def is_complete(self) -> bool:
        return all(tree in self.candidates for tree in self.trees) and all(one in self.answers for one in self.asked)


class TreeJoins:
    """The searches of the coordinator that joins the trees for its cluster."""

    def __init__(self, cluster: ClusterNodes, places: Places) -> None:
        self._cluster = cluster
        self._places = places
        self._searches: dict[str, _Search] = {}
        self._failed: dict[str, None] = {}
        """Groups for which this beacon period has seen a search without success."""
        self._parents: dict[tuple[str, int], ParentCandidate] = {}
        """What this coordinator chose last."""

    def join_trees_without_parent(self, now: Nanos) -> Iterator[PluginEffect]:
        """Join the trees that this cluster needs and in which it has no parent."""
        if self._cluster.joins_trees:
            for group, trees in self._places.trees_without_parent().items():
                if group not in self._failed:
                    yield from self._start_search(now, group, trees)

    def retry(self, now: Nanos) -> Iterator[PluginEffect]:
        self._failed = {}
        yield from self.join_trees_without_parent(now)

    def rejoin(self, now: Nanos, group: str) -> Iterator[PluginEffect]:
        """Join all trees again: this cluster has missed an event on its way in."""
        if self._cluster.joins_trees:
            trees = [tree for tree in range(len(self._cluster.slots)) if not self._cluster.is_root(group, tree)]
            yield from self._start_search(now, group, trees)

    def _start_search(self, now: Nanos, group: str, trees: list[int]) -> Iterator[PluginEffect]:
        if group in self._searches or not trees:
            return
        self._searches[group] = _Search(now + SEARCH_NS, trees)
        yield Timer(now + SEARCH_NS, SEARCH)
        for tree in trees:
            hop = self._cluster.next_to_root(group, tree)
            if hop is not None:
                yield from self._cluster.send(hop, tree, FindParent(group, tree, self._cluster.name))

    def on_neighbours(self, now: Nanos, message: TreeNeighbours) -> Iterator[PluginEffect]:
        """Record the answer of a cluster on a tree. Ask the neighbours of the first that answers, too."""
        search, mine = self._searches.get(message.group), self._cluster.name
        tree, cluster = message.tree, message.cluster
        if search is None or tree not in search.trees or (tree, cluster) in search.answers:
            return
        is_first = all(asked != tree for asked, _ in search.asked)
        search.answers[tree, cluster] = message
        search.asked[tree, cluster] = None
        candidates = search.candidates.setdefault(tree, [])
        peer = self._cluster.active_coordinator(cluster, tree)
        if peer is not None and cluster != mine and mine not in message.ancestors:
            trip_ns = self._cluster.round_trip_ns(peer)
            candidates.append(ParentCandidate(cluster, message.path, message.neighbour_paths, trip_ns))
        if is_first:
            for other in message.neighbours[:MAX_NEIGHBOURS]:
                if other != mine and (tree, other) not in search.asked:
                    search.asked[tree, other] = None
                    yield from self._cluster.send(other, tree, AskPath(message.group, tree, mine))

    def finish(self, now: Nanos) -> list[ChosenParent]:
        """End the searches that are complete or whose time is over. Returns the parents that they chose."""
        choices: list[ChosenParent] = []
        for group, search in list(self._searches.items()):
            if now >= search.until_ns or search.is_complete:
                del self._searches[group]
                choices += self._choose(group, search)
        return choices

    def _choose(self, group: str, search: _Search) -> list[ChosenParent]:
        """Choose parents in the trees of the search, beside those that this cluster has in other trees."""
        trees = [tree for tree in search.trees if search.candidates.get(tree)]
        if len(trees) < len(search.trees):
            self._failed[group] = None
        fixed = [parent for (of, tree), parent in self._parents.items() if of == group and tree not in trees]
        offers = [search.candidates[tree] for tree in trees]
        indices = choose_parents([*offers, *([parent] for parent in fixed)])
        choices: list[ChosenParent] = []
        for tree, offer, index in zip(trees, offers, indices, strict=False):
            self._parents[group, tree] = offer[index]
            choices.append(ChosenParent(group, tree, offer[index].cluster))
        return choices
