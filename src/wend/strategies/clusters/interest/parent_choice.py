"""How the first coordinator of a cluster chooses parents whose paths share few routers (esposito, section 3.4).

A cluster joins all trees of a group at once. Each coordinator tells the first one which clusters may be the parent in
its tree, and the first one chooses a parent for each tree.

A node y that joins p trees picks the parents x that minimise `Q(x, y) + sum Div(x_i | y)`. Q adds up the routers that
the paths from y to two of its parents share. `Div(x_i | y)` is what y as a child adds to the overlap at x_i: the
routers that its path shares with the paths of x_i to its neighbours. End hosts are no routers. The paper calls zero
"diverse", so a lower sum is better. Equal sums go by the sum of round trips, then by name.

The search is exact. It leaves out candidates that another one of their tree is never worse than, and then branches
tree by tree, with a lower bound of what the remaining trees add.
"""

from collections.abc import Sequence
from itertools import combinations

import msgspec

from wend.model.paths import Path, shared
from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect, Timer
from wend.strategies.clusters.interest.cluster import ClusterView
from wend.strategies.clusters.interest.messages import ParentCandidate, ParentChosen, ParentsFound
from wend.strategies.clusters.interest.parent_search import SEARCH_NS, TreeId

Rank = tuple[int, Nanos]
"""The sum of shared routers, then the sum of round trips."""


def choose_parents(candidates: Sequence[Sequence[ParentCandidate]]) -> tuple[int, ...]:
    """The index of the chosen candidate of each tree, -1 in a tree without candidates."""
    trees = [number for number, offered in enumerate(candidates) if offered]
    best = dict(zip(trees, _Search([candidates[tree] for tree in trees]).best(), strict=True))
    return tuple(best.get(tree, -1) for tree in range(len(candidates)))


def objective(candidates: Sequence[Sequence[ParentCandidate]], chosen: Sequence[int]) -> int:
    """The sum that `choose_parents` minimises, for a choice of one candidate in each tree."""
    parents = [offered[index] for offered, index in zip(candidates, chosen, strict=True) if index >= 0]
    between = sum(shared(one.path, other.path) for one, other in combinations(parents, 2))
    return between + sum(shared(one.path, path) for one in parents for path in one.neighbour_paths)


class RouterBits:
    """Numbers the routers, so that a path is an integer with a bit for each of its routers."""

    def __init__(self) -> None:
        self._numbers: dict[int | str, int] = {}

    def mask(self, path: Path) -> int:
        mask = 0
        for router in path:
            if router is not None:
                mask |= 1 << self._numbers.setdefault(router, len(self._numbers))
        return mask


def _added(bits: RouterBits, parent: ParentCandidate) -> int:
    """`Div(x | y)`. Of the sums over pairs of neighbours of x, with and without y, the pairs with y remain."""
    own = bits.mask(parent.path)
    return sum((own & bits.mask(path)).bit_count() for path in parent.neighbour_paths)


class _Offer(msgspec.Struct, frozen=True, gc=False):
    mask: int
    added: int
    tie: tuple[Nanos, str, int]


class _Search:
    """Branch and bound over the trees in their order. In each tree the candidates are sorted by name."""

    def __init__(self, candidates: Sequence[Sequence[ParentCandidate]]) -> None:
        bits = RouterBits()
        offers = [
            [
                _Offer(bits.mask(one.path), _added(bits, one), (one.round_trip_ns, one.cluster, index))
                for index, one in enumerate(offered)
            ]
            for offered in candidates
        ]
        self._offers = [sorted(_remove_dominated(offered), key=lambda one: one.tie[1:]) for offered in offers]
        self._ahead = [
            [sum(min((one.mask & o.mask).bit_count() for o in later) for later in self._offers[tree + 1 :])
             for one in offered]
            for tree, offered in enumerate(self._offers)
        ]  # fmt: skip
        """For each candidate, the least that it can share with the candidates of later trees."""
        self._nearest = [min([one.tie[0] for one in offered]) for offered in self._offers]
        self._rank: Rank | None = None
        self._names: list[tuple[str, int]] = []

    def best(self) -> list[int]:
        self._branch([], (0, 0), [[one.added for one in offered] for offered in self._offers])
        return [index for _, index in self._names]

    def _branch(self, names: list[tuple[str, int]], rank: Rank, costs: list[list[int]]) -> None:
        """Try the candidates of the next tree. `costs` holds, for it and all later trees, the cost of each candidate
        beside those chosen so far."""
        tree = len(names)
        if not costs:
            if self._rank is None or (rank, names) < (self._rank, self._names):
                self._rank, self._names = rank, names
            return
        offered, ahead, nearest = self._offers[tree], self._ahead[tree], sum(self._nearest[tree + 1 :])
        for number in sorted(range(len(offered)), key=lambda n: costs[0][n] + ahead[n]):
            one = offered[number]
            so_far = rank[0] + costs[0][number], rank[1] + one.tie[0]
            chosen = [*names, one.tie[1:]]
            if not self._can_win(so_far[0] + ahead[number], so_far[1] + nearest, chosen):
                continue
            later = [
                [cost + (one.mask & o.mask).bit_count() for cost, o in zip(line, self._offers[place], strict=True)]
                for place, line in enumerate(costs[1:], tree + 1)
            ]
            least = sum([min(map(int.__add__, line, self._ahead[place])) for place, line in enumerate(later, tree + 1)])
            if self._can_win(so_far[0] + least, so_far[1] + nearest, chosen):
                self._branch(chosen, so_far, later)

    def _can_win(self, least: int, nearest: Nanos, names: list[tuple[str, int]]) -> bool:
        """Whether a choice that begins with these names, and has at least this rank, may be the best."""
        return self._rank is None or ((least, nearest), names) <= (self._rank, self._names[: len(names)])


def _remove_dominated(offered: list[_Offer]) -> list[_Offer]:
    """The candidates that are better than each other one with some choice in the other trees."""
    ordered = sorted(offered, key=lambda one: (one.added, one.tie))
    best: list[_Offer] = []
    for one in ordered:
        if not any(better.mask & ~one.mask == 0 and _is_not_worse(better, one) for better in best):
            best.append(one)
    return best


def _is_not_worse(better: _Offer, one: _Offer) -> bool:
    return better.added < one.added or better.tie < one.tie


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

    def offer(self, now: Nanos, message: ParentsFound) -> list[PluginEffect]:
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
                choices += self._choose(group, trees)
        return choices

    def _choose(self, group: str, trees: list[int]) -> list[ParentChosen]:
        offers = [self._offers.pop((group, tree)) for tree in trees]
        if self._is_diverse:
            indices = self._most_diverse(group, trees, offers)
        else:
            roots = [self._cluster.root(group, tree) for tree in trees]
            indices = tuple(_index_of(offer, root) for offer, root in zip(offers, roots, strict=True))
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


def _index_of(offer: Candidates, cluster: str) -> int:
    """The place of a cluster among candidates; else the first."""
    return next((index for index, candidate in enumerate(offer) if candidate.cluster == cluster), 0)
