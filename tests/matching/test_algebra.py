"""Covering and intersecting against brute force: over all events of small worlds, and over generated ones."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching import strategies
from wend.matching.filters import Filter, parse
from wend.model.errors import FilterError
from wend.model.events import Attributes, Range, Value

# These values decide every predicate below: each cut has a value on both sides, in each kind.
VALUES: list[Value | None] = [None, False, True, -1, 0, 0.5, 1, 1.5, 2, 3, "", "a", "a\0", "aa", "ab", "b", "c"]

PREDICATES = [
    "{} exists",
    "{} absent",
    "{} = 1",
    "{} != 1",
    "{} < 1",
    "{} >= 1",
    "{} > 0",
    "{} in [0, 2]",
    "{} in ]0, 2[",
    "{} in ]0, 1]",
    "{} in {{0, 1}}",
    "{} in {{1, 2}}",
    "{} in [0, 2] and {} != 1",
    "{} = true",
    "{} != true",
    "{} in {{false, true}}",
    "{} = 'a'",
    "{} != 'a'",
    "{} <= 'a'",
    "{} > 'a'",
    "{} prefix 'a'",
    "{} prefix ''",
    "{} prefix 'a' and {} != 'ab'",
    "{} in ['a', 'b']",
    "{} in {{'a', 'b'}}",
]


def alone(name: str) -> list[Filter]:
    return [parse(form.replace("{}", name).format()) for form in PREDICATES]


def events(*names: str) -> list[Attributes]:
    return [
        {name: value for name, value in zip(names, values, strict=True) if value is not None}
        for values in product(VALUES, repeat=len(names))
    ]


def check(filters: list[Filter], world: list[Attributes]) -> None:
    """Check both relations, in both directions, over all events as bits."""
    matched = {f: sum(1 << at for at, event in enumerate(world) if f.matches(event)) for f in filters}
    for a in filters:
        for b in filters:
            assert a.covers(b) == (matched[b] & ~matched[a] == 0), f"{a} covers {b}"
            assert a.intersects(b) == (matched[a] & matched[b] != 0), f"{a} intersects {b}"


def test_one_attribute_exactly() -> None:
    check([*alone("x"), parse("true"), parse("false")], events("x"))


def test_one_attribute_with_ranges_exactly() -> None:
    """Covering is the same with ranges and without."""
    numbers = [v for v in VALUES if isinstance(v, int | float) and not isinstance(v, bool)]
    texts = [v for v in VALUES if isinstance(v, str)]
    closed = [Range(low, high) for kind in (numbers, texts) for low in kind for high in kind if low <= high]
    opened = [Range(r.low, r.high, True, True) for r in closed if r.low != r.high]
    world: list[Attributes] = [*events("x"), *({"x": r} for r in (*closed, *opened))]
    filters = [*alone("x"), parse("true"), parse("false")]
    matched = {f: sum(1 << at for at, event in enumerate(world) if f.matches(event)) for f in filters}
    for a in filters:
        for b in filters:
            assert a.covers(b) == (matched[b] & ~matched[a] == 0), f"{a} covers {b}"


def test_two_attributes_exactly() -> None:
    some = ["{} exists", "{} absent", "{} = 1", "{} != 1", "{} in ]0, 2[", "{} = true", "{} prefix 'a'", "{} > 'a'"]
    sides = {name: [form.replace("{}", name) for form in some] for name in "xy"}
    texts = ["true", *sides["x"], *sides["y"], *(f"{a} and {b}" for a in sides["x"] for b in sides["y"])]
    check([parse(text) for text in texts], events("x", "y"))


def test_neighbouring_numbers_are_distinguished() -> None:
    a, b = parse("x > 1 and x <= 1.0000000000000002"), parse("x = 1.0000000000000002")
    assert a == b
    assert not parse("x > 1").intersects(parse("x < 1.0000000000000002"))
    assert parse("x >= 9007199254740993").covers(parse("x > 9007199254740992"))
    assert not parse("s > 'a'").intersects(parse("s < 'a\\u{0}'"))


@settings(max_examples=150)
@given(strategies.filters, strategies.filters, st.lists(strategies.range_events, max_size=6))
def test_both_err_on_the_safe_side_for_every_filter(a: str, b: str, found: list[Attributes]) -> None:
    """Also with disjunctions, bindings and ranges."""
    left, right = parse(a), parse(b)
    for event in found:
        ranged = any(isinstance(value, Range) for value in event.values())
        if left.matches(event) and right.matches(event) and not ranged:
            assert left.intersects(right)
        if right.matches(event) and not left.matches(event):
            assert not left.covers(right)
    assert left.covers(left)
    try:
        both, either = parse(f"({a}) and ({b})"), parse(f"({a}) or ({b})")
    except FilterError:
        return
    if not any(one.bindings for f in (left, right, both) for one in f.conjunctions):
        assert left.covers(both) and either.covers(left)
        assert left.intersects(right) == bool(both.conjunctions)


def test_bindings() -> None:
    assert parse("x <= y").covers(parse("x < y and z = 1"))
    assert parse("x exists").covers(parse("x < 2 * y"))
    assert parse("x != y").covers(parse("y > x"))
    assert not parse("x < y").covers(parse("x <= y"))
    assert not parse("x < 2 * y").covers(parse("x < y"))
    assert parse("x < y").intersects(parse("x > y"))
    assert not parse("x < 2 * y").intersects(parse("y = 'a'"))
    assert not parse("x < y").intersects(parse("y absent"))


def test_a_range_can_match_two_filters_that_no_value_matches() -> None:
    a, b, event = parse("x = 1"), parse("x = 9"), {"x": Range(0, 10)}
    assert a.matches(event) and b.matches(event)
    assert not a.intersects(b)
