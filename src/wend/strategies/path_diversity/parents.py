"""The choice of parents in several trees whose underlay paths share few routers (esposito, section 3.4).

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

from wend.model.paths import Path, count_shared_routers
from wend.model.units import Nanos

RouterPath = tuple[int | str, ...]
"""The routers between two nodes, without those that did not answer."""

Rank = tuple[int, Nanos]
"""The sum of shared routers, then the sum of round trips."""


class ParentCandidate(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A cluster that may be the parent of another: the routers between them, and those to its neighbours."""

    cluster: str
    path: RouterPath
    neighbour_paths: tuple[RouterPath, ...]
    round_trip_ns: Nanos


def choose_parents(candidates: Sequence[Sequence[ParentCandidate]]) -> tuple[int, ...]:
    """The index of the chosen candidate of each tree, -1 in a tree without candidates."""
    trees = [number for number, offered in enumerate(candidates) if offered]
    best = dict(zip(trees, _Search([candidates[tree] for tree in trees]).best(), strict=True))
    return tuple(best.get(tree, -1) for tree in range(len(candidates)))


def objective(candidates: Sequence[Sequence[ParentCandidate]], chosen: Sequence[int]) -> int:
    """The sum that `choose_parents` minimises, for a choice of one candidate in each tree."""
    parents = [offered[index] for offered, index in zip(candidates, chosen, strict=True) if index >= 0]
    between = sum(count_shared_routers(parent.path, other.path) for parent, other in combinations(parents, 2))
    paths = ((parent.path, path) for parent in parents for path in parent.neighbour_paths)
    return between + sum(count_shared_routers(own, path) for own, path in paths)


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


def _added_overlap(bits: RouterBits, parent: ParentCandidate) -> int:
    """`Div(x | y)`. Of the sums over pairs of neighbours of x, with and without y, the pairs with y remain."""
    own = bits.mask(parent.path)
    return sum((own & bits.mask(path)).bit_count() for path in parent.neighbour_paths)


class _Candidate(msgspec.Struct, frozen=True, gc=False):
    mask: int
    added: int
    tie: tuple[Nanos, str, int]


class _Search:
    """Branch and bound over the trees in their order. In each tree the candidates are sorted by name."""

    def __init__(self, candidates: Sequence[Sequence[ParentCandidate]]) -> None:
        bits = RouterBits()
        candidates_by_tree = [
            [
                _Candidate(
                    bits.mask(candidate.path),
                    _added_overlap(bits, candidate),
                    (candidate.round_trip_ns, candidate.cluster, index),
                )
                for index, candidate in enumerate(offered)
            ]
            for offered in candidates
        ]
        self._by_tree = [
            sorted(_drop_dominated(offered), key=lambda candidate: candidate.tie[1:]) for offered in candidates_by_tree
        ]
        self._ahead = [
            [self._least_shared(candidate, tree + 1) for candidate in offered]
            for tree, offered in enumerate(self._by_tree)
        ]
        """For each candidate, the least that it can share with the candidates of later trees."""
        self._nearest = [min([candidate.tie[0] for candidate in offered]) for offered in self._by_tree]
        self._rank: Rank | None = None
        self._names: list[tuple[str, int]] = []

    def _least_shared(self, candidate: _Candidate, first: int) -> int:
        later = self._by_tree[first:]
        return sum(min((candidate.mask & other.mask).bit_count() for other in offered) for offered in later)

    def best(self) -> list[int]:
        self._branch([], (0, 0), [[candidate.added for candidate in offered] for offered in self._by_tree])
        return [index for _, index in self._names]

    def _branch(self, names: list[tuple[str, int]], rank: Rank, costs: list[list[int]]) -> None:
        """Try the candidates of the next tree. `costs` holds, for it and all later trees, the cost of each candidate
        beside those chosen so far."""
        tree = len(names)
        if not costs:
            if self._rank is None or (rank, names) < (self._rank, self._names):
                self._rank, self._names = rank, names
            return
        offered, ahead, nearest = self._by_tree[tree], self._ahead[tree], sum(self._nearest[tree + 1 :])
        for number in sorted(range(len(offered)), key=lambda n: costs[0][n] + ahead[n]):
            candidate = offered[number]
            so_far = rank[0] + costs[0][number], rank[1] + candidate.tie[0]
            chosen = [*names, candidate.tie[1:]]
            if not self._can_win(so_far[0] + ahead[number], so_far[1] + nearest, chosen):
                continue
            later = [
                [
                    cost + (candidate.mask & other.mask).bit_count()
                    for cost, other in zip(line, self._by_tree[place], strict=True)
                ]
                for place, line in enumerate(costs[1:], tree + 1)
            ]
            least = sum([min(map(int.__add__, line, self._ahead[place])) for place, line in enumerate(later, tree + 1)])
            if self._can_win(so_far[0] + least, so_far[1] + nearest, chosen):
                self._branch(chosen, so_far, later)

    def _can_win(self, least: int, nearest: Nanos, names: list[tuple[str, int]]) -> bool:
        """Whether a choice that begins with these names and has at least this rank may be the best."""
        return self._rank is None or ((least, nearest), names) <= (self._rank, self._names[: len(names)])


def _drop_dominated(offered: list[_Candidate]) -> list[_Candidate]:
    """The candidates that are better than each other candidate with some choice in the other trees."""
    ordered = sorted(offered, key=lambda candidate: (candidate.added, candidate.tie))
    best: list[_Candidate] = []
    for candidate in ordered:
        if not any(better.mask & ~candidate.mask == 0 and _is_not_worse(better, candidate) for better in best):
            best.append(candidate)
    return best


def _is_not_worse(better: _Candidate, candidate: _Candidate) -> bool:
    return better.added < candidate.added or better.tie < candidate.tie
