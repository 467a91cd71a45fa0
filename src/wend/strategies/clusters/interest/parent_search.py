"""The search of a coordinator for clusters that may be its parent in a tree.

- It asks the root of the tree, and then the neighbours of the root. It measures the paths to all who answer.
- If the parent or the root is out of reach, it asks all clusters. If none of them is connected to the root, it may join
  below a cluster outside the tree, which then joins the tree, too.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.plugins import FindPath, PathFound, PluginEffect, Timer
from wend.strategies.clusters.interest.cluster import ClusterView
from wend.strategies.clusters.interest.messages import AskParents, PossibleParents
from wend.strategies.path_diversity.parents import ParentCandidate, RouterPath

SEARCH_NS: Nanos = 2 * SECOND
"""How long a coordinator looks for parents before it takes one of those that it knows."""
MAX_CANDIDATES = 32
EARLY_BEACONS = (1, 2, 4)
RARE_BEACONS = 30
"""The interval in beacons between searches for a better parent, after some early searches."""
SEARCH = "search"
TreeId = tuple[str, int]
"""A group, and the number of its tree."""


class TreePlace(msgspec.Struct, eq=False):
    """The neighbours of this cluster in one tree."""

    beacons: int = 0
    """How often this cluster has renewed the place at a parent."""
    is_cut_off: bool = False
    """Whether the last search found no cluster that is connected to the root."""
    parent: str | None = None
    """None at the root, and until the cluster has a parent."""
    children: dict[str, Nanos] = {}
    """Each with the time at which it expires."""
    ancestors: tuple[str, ...] = ()
    """The clusters between here and the root, the parent first."""

    @property
    def neighbours(self) -> list[str]:
        return list(self.children) if self.parent is None else [self.parent, *self.children]

    def clear_parent(self) -> None:
        self.parent, self.ancestors = None, ()


class RouterPaths:
    """The routers on the underlay paths to other coordinators."""

    def __init__(self) -> None:
        self._paths: dict[PeerId, RouterPath | None] = {}
        """None until the path is traced."""

    def trace(self, peer: PeerId) -> list[PluginEffect]:
        """Trace the path to a peer, once."""
        if peer in self._paths:
            return []
        self._paths[peer] = None
        return [FindPath(peer)]

    def add(self, answer: PathFound) -> None:
        self._paths[answer.peer] = tuple(router for router in answer.path or () if router is not None)

    def get(self, peer: PeerId) -> RouterPath:
        return self._paths.get(peer) or ()

    def has_all(self, peers: Iterable[PeerId]) -> bool:
        return all(self._paths.get(peer) is not None for peer in peers)


class _Answer(NamedTuple):
    """The answer of a cluster about itself."""

    peer: PeerId
    """Its coordinator."""
    paths: tuple[RouterPath, ...]
    """To its neighbours in the tree."""
    ancestors: tuple[str, ...]
    """The clusters between it and the root."""


class _Search(msgspec.Struct, eq=False):
    """The search for a parent in one tree: the clusters that this one has asked, and their answers."""

    until_ns: Nanos
    place: TreePlace
    avoid: str
    """A cluster that did not answer or was cut off."""
    is_wide: bool
    """Whether to ask all clusters."""
    improves: bool
    """Whether there is a parent, and another may be better."""
    asked: dict[str, None] = {}
    answers: dict[str, _Answer] = {}
    """By cluster."""


class ParentSearch:
    """The searches of one coordinator, by tree."""

    def __init__(self, cluster: ClusterView, improves: bool) -> None:
        self._cluster = cluster
        self._improves = improves
        """Whether to look for better parents now and then."""
        self._searches: dict[TreeId, _Search] = {}
        self.paths = RouterPaths()

    @property
    def trees(self) -> list[TreeId]:
        """The trees in which this cluster looks for a parent."""
        return list(self._searches)

    def stop(self, tree_id: TreeId) -> None:
        self._searches.pop(tree_id, None)

    def join(self, now: Nanos, tree_id: TreeId, place: TreePlace, avoid: str = "") -> Iterable[PluginEffect]:
        """Look for a parent, unless this cluster is the root."""
        if self._cluster.root(*tree_id) == self._cluster.name:
            place.clear_parent()
            self.stop(tree_id)
            return []
        if tree_id in self._searches:
            return []
        return self._start(now, tree_id, _Search(now + SEARCH_NS, place, avoid, bool(avoid) or place.is_cut_off, False))

    def improve(self, now: Nanos, tree_id: TreeId, place: TreePlace) -> Iterable[PluginEffect]:
        """Look for a better parent now and then, at first often: when a tree forms, its clusters know few others."""
        place.beacons += 1
        is_time = place.beacons in EARLY_BEACONS or place.beacons % RARE_BEACONS == 0
        if not (is_time and self._improves) or tree_id in self._searches or place.is_cut_off:
            return []
        return self._start(now, tree_id, _Search(now + SEARCH_NS, place, "", True, True))

    def _start(self, now: Nanos, tree_id: TreeId, search: _Search) -> Iterator[PluginEffect]:
        self._searches[tree_id] = search
        mine, root = self._cluster.name, self._cluster.root(*tree_id)
        yield Timer(search.until_ns, SEARCH)
        yield from self._ask_cluster(root, tree_id)
        if search.is_wide:
            others = [name for name in self._cluster.directory if name not in (mine, root)]
            first = now // SECOND % max(1, len(others))  # of many clusters it asks others the next time
            search.asked.update(dict.fromkeys([*others[first:], *others[:first]][:MAX_CANDIDATES]))
            for other in search.asked:
                yield from self._ask_cluster(other, tree_id)

    def _ask_cluster(self, cluster: str, tree_id: TreeId) -> list[PluginEffect]:
        group, tree = tree_id
        return self._cluster.send_to_cluster(AskParents(cluster, tree, group, self._cluster.name))

    def answer(self, sender: PeerId, question: AskParents, place: TreePlace) -> Iterator[PluginEffect]:
        """Send another cluster this one's neighbours in the tree."""
        tree, mine = question.tree, self._cluster.name
        neighbours = tuple(name for name in place.neighbours if name != question.cluster)
        paths: list[RouterPath] = []
        for neighbour in neighbours:
            slots = self._cluster.directory.get(neighbour, ())
            if tree < len(slots):
                yield from self.paths.trace(slots[tree].active)
            paths.append(self.paths.get(slots[tree].active) if tree < len(slots) else ())
        yield from self.paths.trace(sender)
        ancestors = (mine,) if place.is_cut_off else place.ancestors
        message = PossibleParents(tree, question.group, mine, neighbours, tuple(paths), ancestors)
        yield self._cluster.send(sender, message)

    def on_answer(self, sender: PeerId, message: PossibleParents) -> Iterator[PluginEffect]:
        """Record an answer. If it is from the root, ask the root's neighbours, too."""
        tree_id = (message.group, message.tree)
        search = self._searches.get(tree_id)
        if search is None:
            return
        search.answers[message.cluster] = _Answer(sender, message.paths, message.ancestors)
        yield from self.paths.trace(sender)
        if message.cluster == self._cluster.root(*tree_id):
            for other in message.neighbours[:MAX_CANDIDATES]:
                if other != self._cluster.name and other not in search.asked:
                    search.asked[other] = None
                    yield from self._ask_cluster(other, tree_id)

    def finish(self, now: Nanos, tree_id: TreeId) -> tuple[ParentCandidate, ...] | None:
        """End a search if all clusters have answered and all paths are known, or the time is over. Returns the
        candidates, or none if this cluster is cut off from the root; None if the search goes on, or found no better
        parent."""
        search = self._searches.get(tree_id)
        if search is None:
            return None
        answers = search.answers
        is_complete = bool(answers) and all(other in answers for other in search.asked)
        if now < search.until_ns and not (
            is_complete and self.paths.has_all(answer.peer for answer in answers.values())
        ):
            return None
        candidates = self._candidates(search, self._cluster.root(*tree_id))
        del self._searches[tree_id]
        return candidates if candidates or not search.improves else None

    def _candidates(self, search: _Search, root: str) -> tuple[ParentCandidate, ...]:
        """The clusters that may be the parent. In a wide search these are the clusters connected to the root or, if
        there are none, the clusters outside the tree.

        To improve, a cluster moves only below one that is nearer to the root, or as near with a lower name. So two
        clusters that move at the same time do not become each other's ancestors."""
        mine = self._cluster.name
        answers = {
            cluster: answer
            for cluster, answer in search.answers.items()
            if mine not in answer.ancestors and cluster not in (mine, search.avoid)
        }
        if search.is_wide:
            answers = _connected_answers(answers, root) or _outside_answers(answers)
        if search.improves:
            rank = len(search.place.ancestors), mine
            answers = {name: answer for name, answer in answers.items() if (len(answer.ancestors), name) < rank}
        round_trip_ns = self._cluster.membership.round_trip_ns
        return tuple(
            ParentCandidate(name, self.paths.get(answer.peer), answer.paths, round_trip_ns(answer.peer))
            for name, answer in answers.items()
        )


def _connected_answers(answers: dict[str, _Answer], root: str) -> dict[str, _Answer]:
    """The clusters that are connected to the root."""
    return {name: answer for name, answer in answers.items() if name == root or root in answer.ancestors[-1:]}


def _outside_answers(answers: dict[str, _Answer]) -> dict[str, _Answer]:
    """The clusters outside the tree."""
    return {name: answer for name, answer in answers.items() if not answer.paths and not answer.ancestors}
