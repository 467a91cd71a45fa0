"""Workloads follow the papers, and their rows do not depend on the tasks that draw them."""

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.spark import needs_java
from wend.matching.filters import parse
from wend.model.errors import ConfigError
from wend.pipeline.workload_generator import (
    BLOCK,
    KINDS,
    draw_event_block,
    draw_events,
    draw_subscription_block,
    draw_subscriptions,
    make_workload,
)

FIRST = 400


@cache
def filters(kind: str, **more: Any) -> list[dict[str, tuple[int, int]]]:
    """The bounds of the first filters, as the parser reads them."""
    texts = draw_subscription_block(make_workload(kind, 7, **more), 0).column("filter").to_pylist()
    found = []
    for text in texts[:FIRST]:
        (only,) = parse(text).conjunctions
        found.append({name: (values.numbers[0], values.numbers[1]) for name, values in only.values})
    return found


@cache
def rows(kind: str, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = draw_event_block(make_workload(kind, 7, **more), 0).slice(0, FIRST).to_pylist()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_is_drawn_from_its_seed_and_number_alone(kind: str) -> None:
    workload = make_workload(kind, 7)
    asked, published = draw_subscription_block(workload, 3), draw_event_block(workload, 3)
    assert draw_subscription_block(workload, 3).equals(asked)
    assert draw_event_block(workload, 3).equals(published)
    for other, block in ((make_workload(kind, 8), 3), (workload, 4)):
        assert not published.column(1).equals(draw_event_block(other, block).column(1))
        assert asked["filter"] != draw_subscription_block(other, block)["filter"]


def test_uniform_filters_have_one_to_five_of_ten_attributes_and_events_one_to_ten() -> None:
    sizes = Counter(len(sides) for sides in filters("uniform"))
    assert set(sizes) == {1, 2, 3, 4, 5}
    assert {name for sides in filters("uniform") for name in sides} == {f"a{i}" for i in range(10)}
    carried = Counter(sum(value is not None for value in row.values()) - 1 for row in rows("uniform"))
    assert set(carried) == set(range(1, 11))
    values = [value for row in rows("uniform") for name, value in row.items() if name != "id" and value is not None]
    assert min(values) >= 1 and max(values) <= 256
    assert np.mean(values) == pytest.approx(128.5, abs=10)


def test_narrow_ranges_hold_at_most_their_share_of_the_domain() -> None:
    sizes = [end - low for sides in filters("narrow", width=0.1) for low, end in sides.values()]
    # The parser stores an inclusive upper bound as the next double.
    assert 0 < min(sizes) < 1.1 and 23.9 < max(sizes) < 24.1
    assert all(None not in row.values() for row in rows("narrow"))


def test_zipf_prefers_the_first_names_and_the_small_values() -> None:
    named = Counter(name for sides in filters("zipf", predicates=(1, 1)) for name in sides)
    harmonic = sum(1 / rank for rank in range(1, 11))
    assert named["a0"] / FIRST == pytest.approx(1 / harmonic, abs=0.08)
    assert named["a0"] > named["a9"]
    values = Counter(row["a0"] for row in rows("zipf", present=(10, 10)))
    assert values[1] / FIRST == pytest.approx(1 / sum(1 / rank for rank in range(1, 257)), abs=0.06)


@pytest.mark.parametrize("count", [1, 4, 10])
def test_of_a_fixed_number_of_predicates_only_one_excludes_anything(count: int) -> None:
    for sides in filters("fixed", predicates=(count, count)):
        assert len(sides) == count
        assert sum(not (low <= 1 and end > 256) for low, end in sides.values()) <= 1


def test_a_rectangle_matches_as_often_as_its_size_says() -> None:
    # A side of half-width h around a uniform centre covers 2h - h² of the unit domain after clipping. The mean over
    # all h up to 1/2 is 5/12, and a rectangle has two sides.
    found = filters("rectangles")
    matched = [
        sum(low <= row[name] < end for name, (low, end) in sides.items()) == 2
        for row in rows("rectangles")
        for sides in found
    ]
    assert np.mean(matched) == pytest.approx((5 / 12) ** 2, abs=0.015)


def test_published_ranges_hold_their_low_end_first() -> None:
    values = [v for row in rows("narrow", ranges=0.5) for name, v in row.items() if name != "id"]
    assert all(value["low"] <= value["high"] for value in values)
    assert np.mean([value["low"] < value["high"] for value in values]) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("kind", "more", "sentence"),
    [
        ("gauss", {}, "there is no workload 'gauss'"),
        ("uniform", {"width": 0.1}, "width applies to the workload narrow only"),
        ("uniform", {"attributes": 3, "predicates": (1, 5)}, "filters must have 1 to 3"),
        ("narrow", {"width": 0.0}, "are shares"),
        ("fixed", {"predicates": (1, 2)}, "takes one number"),
        ("rectangles", {"attributes": 3}, "rectangles have two attributes"),
        ("uniform", {"attributes": 0}, "a workload has 1 to"),
        ("uniform", {"ranges": 1.5}, "are shares"),
    ],
)
def test_what_cannot_be_drawn_is_refused(kind: str, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_workload(kind, **more)


@needs_java
@pytest.mark.spark
@pytest.mark.parametrize("kind", ["zipf", "rectangles"])
def test_rows_are_the_same_for_any_number_of_tasks_and_of_rows(spark: Any, kind: str) -> None:
    workload = make_workload(kind, 3, ranges=0.25)
    few, many = BLOCK + 5, 2 * BLOCK + 7
    for make in (draw_events, draw_subscriptions):
        whole = make(spark, workload, many).orderBy("id").toArrow()
        assert whole["id"].to_pylist() == list(range(many))
        spark.conf.set("spark.sql.leafNodeDefaultParallelism", "5")
        try:
            part = make(spark, workload, few).orderBy("id").toArrow()
        finally:
            spark.conf.unset("spark.sql.leafNodeDefaultParallelism")
        assert part.equals(whole.slice(0, few))


@needs_java
@pytest.mark.spark
def test_a_workload_may_be_empty_but_not_less(spark: Any) -> None:
    assert draw_events(spark, make_workload("uniform"), 0).count() == 0
    with pytest.raises(ConfigError, match="must not be negative, got -1"):
        draw_subscriptions(spark, make_workload("uniform"), -1)
