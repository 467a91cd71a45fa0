"""Every matching pair meets in exactly one region, for any filters and events."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching.strategies import events, filters, range_events
from tests.matching.worlds import boxes
from tests.matching.worlds import events as worlds_events
from wend.matching.batch import Batch
from wend.matching.filters import Filter, parse
from wend.model.errors import FilterError
from wend.model.events import Attributes
from wend.pipeline.match.attribute_regions import (
    EVERYWHERE,
    MAX_REGIONS,
    AttributeAxis,
    AttributePlane,
    Region,
    RegionRouter,
    choose_planes,
    choose_regions,
    is_reported_here,
    required_values,
)

MANY = 10**6
"""The number of filters that the sample stands for: so many that regions are fine."""


def readable(texts: list[str]) -> list[Filter]:
    found = []
    for text in texts:
        try:
            found.append(parse(text))
        except FilterError:
            continue
    return found


def meetings(
    planes: list[AttributePlane], wanted: list[Filter], published: list[Attributes]
) -> Counter[tuple[int, int]]:
    """Count how often each matching pair of event and filter is reported, without an index."""
    homes = [choose_regions(planes, one) for one in wanted]
    regions = [Region(*key, 1) for key in sorted({(number, code) for number, codes in homes for code in codes})]
    batch = Batch.of(published)
    rows, at, wide = RegionRouter(planes, regions).find_regions(batch)
    found: Counter[tuple[int, int]] = Counter()
    for row, number, is_wide in zip(rows.tolist(), at.tolist(), wide.tolist(), strict=True):
        region = regions[number]
        for key, one in enumerate(wanted):
            if homes[key][0] != region.plane or region.code not in homes[key][1] or not one.matches(published[row]):
                continue
            if is_wide:
                plane = planes[region.plane]
                event = plane.corners(batch)[0][row : row + 1]
                lowest = np.array([[low for low, _ in plane.box(required_values(one)).sides]])
                if not is_reported_here(plane, region.code, event, lowest)[0]:
                    continue
            found[row, key] += 1
    return found


def brute_force(wanted: list[Filter], published: list[Attributes]) -> Counter[tuple[int, int]]:
    return Counter(
        (row, key) for row, event in enumerate(published) for key, one in enumerate(wanted) if one.matches(event)
    )


@settings(max_examples=150)
@given(st.lists(filters, min_size=1, max_size=12), st.lists(st.one_of(events, range_events), min_size=1, max_size=8))
def test_each_match_is_answered_for_once(texts: list[str], published: list[Attributes]) -> None:
    wanted = readable(texts)
    assert meetings(choose_planes(wanted, MANY), wanted, published) == brute_force(wanted, published)


@settings(max_examples=100)
@given(
    st.lists(filters, min_size=1, max_size=12),
    st.lists(st.one_of(events, range_events), min_size=1, max_size=8),
    st.lists(st.sampled_from(["a", "b", "c", "_"]), min_size=1, max_size=3, unique=True),
)
def test_also_on_planes_that_nobody_would_choose(
    texts: list[str], published: list[Attributes], names: list[str]
) -> None:
    wanted = readable(texts)
    planes = [AttributePlane([AttributeAxis(name, (-1.0, 0.0, 2.0, 2.0**53), ("a", "ab")) for name in names])]
    assert meetings(planes, wanted, published) == brute_force(wanted, published)


def test_a_subscription_has_few_regions_and_none_within_another() -> None:
    wanted = boxes(3, 300, widest=25)
    planes = choose_planes(wanted, MANY)
    for one in wanted:
        _, codes = choose_regions(planes, one)
        assert 1 <= len(codes) <= MAX_REGIONS
        assert not any(a != b and b.startswith(a) for a in codes for b in codes)


def test_narrow_ranges_leave_little_to_compare() -> None:
    wanted, published = boxes(3, 400, widest=25), worlds_events(4, 200)
    planes = choose_planes(wanted, MANY)
    assert 1 <= len(planes) <= 12
    homes = [choose_regions(planes, one) for one in wanted]
    regions = [Region(*key, 1) for key in sorted({(number, code) for number, codes in homes for code in codes})]
    held = Counter((number, code) for number, codes in homes for code in codes)
    _, at, wide = RegionRouter(planes, regions).find_regions(Batch.of(published))
    assert not wide.any()
    compared = sum(held[regions[number][:2]] for number in at.tolist()) / (len(wanted) * len(published))
    assert compared < 0.25


def test_what_asks_for_everything_goes_everywhere_and_what_asks_for_nothing_nowhere() -> None:
    planes = choose_planes([parse("x in [1, 2]"), parse("x in [5, 6]")], MANY)
    assert choose_regions(planes, parse("true")) == (EVERYWHERE, [""])
    assert choose_regions(planes, parse("y = 1")) == (EVERYWHERE, [""])
    assert choose_regions(planes, parse("false")) == (EVERYWHERE, [])
    assert choose_regions(planes, parse("x = 1"))[0] != EVERYWHERE


def test_topics_have_a_plane_of_their_own() -> None:
    wanted = [parse(f"topic = 't{number}' and price < {number}") for number in range(40)]
    planes = choose_planes(wanted, MANY)
    assert any("topic" in plane.names for plane in planes)
    published: list[Attributes] = [{"topic": f"t{number}", "price": 7} for number in range(40)]
    assert meetings(planes, wanted, published) == brute_force(wanted, published)
