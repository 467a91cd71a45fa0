"""How few trees are enough: beside every way that links can fail."""

from itertools import combinations, product
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from wend.strategies.trees.sptk import link_cost
from wend.strategies.trees.table import RouteCost, fewest_trees, joint_reliability

LINKS = 6
unreliable = st.lists(st.sampled_from([0.0, 0.01, 0.1, 0.3, 0.6]), min_size=LINKS, max_size=LINKS)
paths = st.lists(st.sets(st.integers(0, LINKS - 1), min_size=1), min_size=1, max_size=4)


def truth(fails: list[float], ways: list[set[int]]) -> float:
    """By trying all that may happen."""
    total = 0.0
    for up in product((True, False), repeat=LINKS):
        if any(all(up[link] for link in way) for way in ways):
            total += prod(1 - f if works else f for f, works in zip(fails, up, strict=True))
    return total


def told(fails: list[float], ways: list[set[int]]) -> list[RouteCost]:
    found = []
    for way in ways:
        sums = RouteCost()
        for link in sorted(way):
            sums = sums.plus_link(link_cost(fails[link]), sum(link in other for other in ways) > 1)
        found.append(sums)
    return found


@given(unreliable, paths)
def test_what_is_promised_is_never_above_the_truth(fails: list[float], ways: list[set[int]]) -> None:
    assert joint_reliability(told(fails, ways)) <= truth(fails, ways) + 1e-6


@given(unreliable, st.lists(st.integers(0, 3), min_size=LINKS, max_size=LINKS))
def test_it_is_the_truth_where_nothing_is_shared(fails: list[float], of: list[int]) -> None:
    ways = [way for tree in range(4) if (way := {link for link in range(LINKS) if of[link] == tree})]
    assert abs(joint_reliability(told(fails, ways)) - truth(fails, ways)) < 1e-6


@given(unreliable, paths, st.sampled_from([0.5, 0.8, 0.9, 0.99]))
def test_no_fewer_trees_would_do_and_what_is_chosen_keeps_the_target(
    fails: list[float], ways: list[set[int]], need: float
) -> None:
    known = tuple(told(fails, ways))
    chosen = fewest_trees(known, need)
    if len(chosen) < len(known):
        assert truth(fails, [ways[tree] for tree in chosen]) >= need - 1e-6
    for smaller in combinations(range(len(known)), len(chosen) - 1) if len(chosen) > 1 else ():
        assert joint_reliability([known[tree] for tree in smaller]) < need


def test_without_a_target_all_trees_are_used() -> None:
    assert fewest_trees((RouteCost(), RouteCost()), 1.0) == (0, 1)
    assert fewest_trees(
        (RouteCost(own=link_cost(0.5)), RouteCost(own=link_cost(0.01)), RouteCost(own=link_cost(0.2))), 0.95
    ) == (1,)
