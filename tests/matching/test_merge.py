"""Merged filters: perfect where they can be, and never smaller than their parts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching import strategies, worlds
from tests.matching.test_algebra import alone, events
from tests.oracles.matching import overreach
from wend.matching.filters import Filter, parse
from wend.matching.merge import merge
from wend.model.events import Attributes


@pytest.mark.parametrize(
    ("a", "b", "merged"),
    [
        ("x in [1, 3]", "x in [2, 5]", "x in [1, 5]"),
        ("x in [1, 3]", "x in ]3, 5]", "x in [1, 5]"),
        ("x < 3", "x > 3", "x != 3"),
        ("x = 1", "x = 5", "x in {1, 5}"),
        ("x = 1 and y = 2", "x = 3 and y = 2", "x in {1, 3} and y = 2"),
        ("x = 1 and y = 2", "x = 1", "x = 1"),
        ("b = true", "b = false", "b in {false, true}"),
        ("s prefix 'a'", "s prefix 'b'", "s in ['a', 'c'["),
        ("x < 1 and x < y", "x in [1, 2] and x < y", "x <= 2 and x < y"),
        ("false", "x = 1", "x = 1"),
        ("false", "false", "false"),
    ],
)
def test_perfect_merges(a: str, b: str, merged: str) -> None:
    for one, other in ((a, b), (b, a)):
        found = merge(parse(one), parse(other))
        assert (str(found.filter), found.is_perfect, found.widened, found.dropped) == (merged, True, (), ())


@pytest.mark.parametrize(
    ("a", "b", "merged", "widened", "dropped"),
    [
        ("x in [1, 2]", "x in [4, 5]", "x in [1, 5]", ("x",), ()),
        ("x in [1, 2] and x != 1.5", "x in [4, 5]", "x in [1, 5] and x != 1.5", ("x",), ()),
        ("x = 1 and y = 1", "x = 2 and y = 2", "x in {1, 2} and y in {1, 2}", (), ()),
        ("x = 1 and y = 1", "x = 2 and z = 1", "x in {1, 2}", (), ("y", "z")),
        ("x = 1", "y = 1", "true", (), ("x", "y")),
        ("x = 1", "x = 'a'", "x exists", ("x",), ()),
        ("x = 1", "x absent", "true", (), ("x",)),
        ("x exists", "x absent", "true", (), ("x",)),  # NaN neither exists nor is absent
        ("x exists and y = 2", "x absent and y = 2", "y = 2", (), ("x",)),
        ("x < 5", "x >= 5", "x exists", ("x",), ()),
        ("x < y and z = 1", "x > y and z = 2", "z in {1, 2} and x != y", (), ("x", "y")),
        ("x = 2 * y", "x != 2 * y", "x exists and y exists", (), ("x", "y")),
        ("x = 1 or x = 7", "x in [2, 3]", "x in [1, 7]", ("x",), ()),
    ],
)
def test_imperfect_merges_tell_what_they_add(
    a: str, b: str, merged: str, widened: tuple[str, ...], dropped: tuple[str, ...]
) -> None:
    found = merge(parse(a), parse(b))
    assert (str(found.filter), found.is_perfect, found.widened, found.dropped) == (merged, False, widened, dropped)


def test_a_merge_stays_small_and_readable() -> None:
    def many(first: int) -> str:
        return f"x in {{{', '.join(map(str, range(first, first + 100)))}}}"

    assert str(merge(parse(many(0)), parse(many(150))).filter) == "x in [0, 249]"
    same = [parse(f"({many(0)} or {many(100)}) and y = {y}") for y in (1, 2)]
    assert merge(*(Filter(one.conjunctions[:1]) for one in same)).is_perfect
    long = [" and ".join(f"{'n' * 60}{i} = '{c * 60}'" for i in range(100)) for c in "ab"]
    found = merge(*map(parse, long))
    assert str(found.filter) == "true" and not found.is_perfect and len(found.dropped) == 100


def matched(wanted: Filter, world: list[Attributes]) -> int:
    return sum(1 << at for at, event in enumerate(world) if wanted.matches(event))


def test_no_event_is_lost_and_a_perfect_merge_adds_none() -> None:
    world = events("x", "y")
    some = alone("x")[::2]
    pool = [*some, *(parse(f"({a}) and y = 1") for a in some), *(parse(f"({a}) and y != 1") for a in some[:6])]
    bits = {one: matched(one, world) for one in pool}
    for a in pool:
        for b in pool:
            found = merge(a, b)
            assert parse(str(found.filter)) == found.filter
            union, all_of_it = bits[a] | bits[b], matched(found.filter, world)
            assert union & ~all_of_it == 0, f"{a} | {b} -> {found}"
            # The small world proves one direction only: a merge that adds none of its events may add others.
            assert union == all_of_it or not found.is_perfect, f"{a} | {b} -> {found}"


@settings(max_examples=100)
@given(strategies.filters, strategies.filters, st.lists(strategies.range_events, max_size=6))
def test_no_event_is_lost_by_any_merge(a: str, b: str, found: list[Attributes]) -> None:
    left, right = parse(a), parse(b)
    merged = merge(left, right)
    assert merged.filter.covers(left) and merged.filter.covers(right)
    assert parse(str(merged.filter)) == merged.filter
    for event in found:
        if left.matches(event) or right.matches(event):
            assert merged.filter.matches(event)


def measured(seed: int, widest: int, pairs: int = 300) -> tuple[float, float]:
    """The median overreach of merging two filters on the same attributes, and the share of perfect merges."""
    found = worlds.boxes(seed, 20 * pairs, widest, most=2)
    by_names: dict[tuple[str, ...], Filter] = {}
    world, ratios, perfect = worlds.events(seed, 2000), [], 0
    for one in found:
        names = tuple(name for name, _ in one.conjunctions[0].values)
        other = by_names.pop(names, None)
        if other is None:
            by_names[names] = one
            continue
        merged = merge(one, other)
        perfect += merged.is_perfect
        ratios.append(overreach(merged.filter, [one, other], world))
        if len(ratios) == pairs:
            break
    return sorted(ratios)[len(ratios) // 2], perfect / len(ratios)


@pytest.mark.parametrize(("widest", "most"), [(256, 2.0), (26, 20.0)])
def test_how_much_a_merge_adds(widest: int, most: float, capsys: pytest.CaptureFixture[str]) -> None:
    ratio, perfect = measured(7, widest, pairs=60)
    with capsys.disabled():
        print(f"\n  ranges up to {widest}: a merge matches {ratio:.2f} x the wanted events; {perfect:.0%} are perfect")
    assert 1.0 <= ratio < most
