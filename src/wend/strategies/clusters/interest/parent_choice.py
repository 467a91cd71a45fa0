"""The choice of parents whose paths share few routers, by the first coordinator of a cluster (esposito, section 3.4).

A cluster joins all trees of a group at once. Each coordinator tells the first one which clusters may be the parent in
its tree, and the first one chooses a parent for each tree.
"""

from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect, Timer
from wend.strategies.clusters.interest.cluster import ClusterView
from wend.strategies.clusters.interest.messages import ParentChosen, ParentsFound
from wend.strategies.clusters.interest.parent_search import SEARCH_NS, TreeId
from wend.strategies.path_diversity.parents import ParentCandidate, choose_parents, objective

CHOOSE = "choose"
Candidates = tuple[ParentCandidate, ...]


class ParentChoice:
    """The candidates that coordinators of this cluster offer, and the parents that this one chose."""

    def __init__(self, cluster: ClusterView, is_diverse: bool) -> None:
        self._cluster = cluster
        self._is_diverse = is_diverse
        """Whether the paths to the parents should share few routers. Else the root is the parent if possible."""
        self._offers: dict[TreeId, Candidates] = {}
        self._parents: dict[TreeId, ParentCandidate] = {}
        self._deadlines: dict[str, Nanos] = {}
        """The groups to choose for, each with the time until which this coordinator waits for other offers."""

    def add_candidates(self, now: Nanos, message: ParentsFound) -> list[PluginEffect]:
        self._offers[message.group, message.tree] = message.candidates
        if message.group in self._deadlines:
            return []
        self._deadlines[message.group] = now + SEARCH_NS
        return [Timer(now + SEARCH_NS, CHOOSE)]

    def choose(self, now: Nanos) -> list[ParentChosen]:
        """Choose parents in all trees of a group if all coordinators have offered some, or the deadline has passed."""
        choices: list[ParentChosen] = []
        for group, deadline_ns in list(self._deadlines.items()):
            mine = self._cluster.name
            others = [tree for tree in range(len(self._cluster.slots)) if self._cluster.root(group, tree) != mine]
            trees = [tree for tree in others if (group, tree) in self._offers]
            if deadline_ns <= now or trees == others:
                del self._deadlines[group]
                choices += self._choose_in_group(group, trees)
        return choices

    def _choose_in_group(self, group: str, trees: list[int]) -> list[ParentChosen]:
        offers = [self._offers.pop((group, tree)) for tree in trees]
        if self._is_diverse:
            indices = self._most_diverse(group, trees, offers)
        else:
            roots = [self._cluster.root(group, tree) for tree in trees]
            indices = tuple(_candidate_index(offer, root) for offer, root in zip(offers, roots, strict=True))
        choices = []
        for tree, offer, index in zip(trees, offers, indices, strict=True):
            self._parents[group, tree] = offer[index]
            choices.append(ParentChosen(group, tree, offer[index].cluster))
        return choices

    def _most_diverse(self, group: str, trees: list[int], offers: list[Candidates]) -> tuple[int, ...]:
        """The best choice given the parents in other trees. Present parents stay if no choice is better."""
        fixed = [parent for (of, tree), parent in self._parents.items() if of == group and tree not in trees]
        options = [*offers, *((parent,) for parent in fixed)]
        best = choose_parents(options)
        names = [[candidate.cluster for candidate in offer] for offer in offers]
        present = [self._parents.get((group, tree)) for tree in trees]
        stay = [
            clusters.index(parent.cluster)
            for parent, clusters in zip(present, names, strict=True)
            if parent is not None and parent.cluster in clusters
        ]
        if len(stay) == len(trees) and objective(options, (*stay, *(0 for _ in fixed))) <= objective(options, best):
            return tuple(stay)
        return best[: len(trees)]

    def forget(self, group: str) -> None:
        """Forget the parents in a group, because this cluster has left one of its trees."""
        for tree_id in [tree_id for tree_id in self._parents if tree_id[0] == group]:
            del self._parents[tree_id]


def _candidate_index(offer: Candidates, cluster: str) -> int:
    """The place of a cluster among candidates; else the first."""
    return next((index for index, candidate in enumerate(offer) if candidate.cluster == cluster), 0)
