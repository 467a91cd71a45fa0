"""The joint choice of parents against exhaustive search."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from wend.model.paths import Path, count_shared_routers
from wend.model.random_stream import peer_stream
from wend.strategies.path_diversity.parents import ParentCandidate, choose_parents, objective

routers = st.one_of(st.integers(0, 9), st.none())
paths = st.lists(routers, max_size=5).map(tuple)
candidate = st.builds(
    ParentCandidate,
    cluster=st.sampled_from(["rome", "oslo", "bern"]),
    path=paths,
    neighbour_paths=st.lists(paths, max_size=3).map(tuple),
    round_trip_ns=st.integers(0, 3),
)
offered = st.lists(st.lists(candidate, max_size=5), max_size=4)


def offer(cluster: str, path: Path, round_trip_ns: int, neighbour_paths: tuple[Path, ...] = ()) -> ParentCandidate:
    return ParentCandidate(cluster, path, neighbour_paths, round_trip_ns)


def exhaustive(candidates: list[list[ParentCandidate]]) -> tuple[int, ...]:
    """By trying all choices, from the definition alone."""

    def rank(chosen: tuple[int, ...]) -> tuple[int, int, list[tuple[str, int]]]:
        parents = [tree[index] for tree, index in zip(candidates, chosen, strict=True) if index >= 0]
        total = 0
        for number, one in enumerate(parents):
            total += sum(len({*one.path} & {*other.path} - {None}) for other in parents[:number])
            around = [one.path, *one.neighbour_paths]
            with_child = sum(count_shared_routers(a, b) for n, a in enumerate(around) for b in around[:n])
            before = sum(count_shared_routers(a, b) for n, a in enumerate(around[1:], 1) for b in around[1:n])
            total += with_child - before
        assert total == objective(candidates, chosen)
        names = [(tree[i].cluster, i) for tree, i in zip(candidates, chosen, strict=True) if i >= 0]
        return total, sum(one.round_trip_ns for one in parents), names

    return min(product(*(range(len(tree)) if tree else (-1,) for tree in candidates)), key=rank)


@given(offered)
def test_the_choice_is_that_of_exhaustive_search(candidates: list[list[ParentCandidate]]) -> None:
    assert choose_parents(candidates) == exhaustive(candidates)


def test_the_choice_is_joint() -> None:
    """The first candidate of each tree has the shorter round trip, but both paths run through router 5."""
    a = [offer("oslo", (1, 5, 9), 1), offer("rome", (1, 6, 9), 2)]
    b = [offer("oslo", (2, 5, 8), 1), offer("rome", (2, 7, 8), 3)]
    assert choose_parents([a, b]) == (1, 0)
    assert choose_parents([a]) == (0,)
    assert choose_parents([a, [], b]) == (1, -1, 0)


def test_a_parent_whose_paths_to_its_neighbours_overlap_costs_as_much() -> None:
    busy = offer("oslo", (1, 5), 1, ((5, 6), (5, 7)))
    free = offer("rome", (1, 5, 6, 7), 2)
    assert objective([[busy, free]], (0,)) == 2
    assert choose_parents([[busy, free]]) == (1,)


def test_ties_go_by_round_trip_and_then_by_name() -> None:
    same = [
        offer("rome", (), 4),
        offer("oslo", (), 4),
        offer("bern", (), 5),
    ]
    assert choose_parents([same, same]) == (1, 1)


def test_no_other_parent_is_better_among_four_trees_of_fifty_candidates() -> None:
    drawn = peer_stream(1, "parents", "case", 0)

    def path() -> Path:
        return tuple(sorted(drawn.sample(range(60), 8)))

    trees = [
        [ParentCandidate(f"c{n}", path(), (path(), path()), drawn.randrange(99)) for n in range(50)] for _ in range(4)
    ]
    chosen = choose_parents(trees)
    for tree, index in enumerate(chosen):
        for other in range(50):
            changed = (*chosen[:tree], other, *chosen[tree + 1 :])
            ranks = [
                (objective(trees, c), sum(t[i].round_trip_ns for t, i in zip(trees, c, strict=True)))
                for c in (chosen, changed)
            ]
            assert other == index or ranks[0] <= ranks[1]
