"""Recommendations: the best on time, the cheapest of equals, and a paragraph that says so."""

from statistics import stdev
from typing import Any

import pytest

from wend.model.errors import ConfigError
from wend.pipeline.sweeps.seed_means import t_quantile
from wend.pipeline.telemetry.recommendation import draw_recommendation, recommend


def rows(strategy: str, on_time: list[float], packets: float = 1.0, redundancy: str = "", **more: Any) -> list[Any]:
    return [
        {
            "strategy": strategy, "redundancy": redundancy, "begin_ns": window, "seed": 1, "on_time": share,
            "delivery": 1.0, "packets": packets, "expected": 100.0, "delay_p50_ms": 1.0, "delay_p99_ms": 2.0,
            "error": None, **more,
        }
        for window, share in enumerate(on_time)
    ]  # fmt: skip


def test_the_one_that_is_on_time_most_often_is_recommended() -> None:
    found = recommend(
        [*rows("d-tree", [0.8, 0.9, 0.85, 0.7]), *rows("adaptive", [0.99, 1.0, 0.98, 0.99], 1.2, "tight")]
    )
    assert found.settings == {"strategy": "adaptive", "redundancy": "tight"}
    first, last = found.ranked
    assert (first.on_time.mean, first.behind.mean) == (pytest.approx(0.99), 0.0)
    assert last.behind.mean == pytest.approx(0.1775) and 0.0 < last.behind.half < 0.1775  # type: ignore[operator]
    assert found.paragraph.startswith("Use adaptive with redundancy tight. Over 4 windows (4 runs), 99.00 %")
    assert "The runner-up, d-tree, is on time 17.75 points less often (± " in found.paragraph
    assert "sends 0.20 data packets fewer for each delivery" in found.paragraph


def test_of_equals_the_one_with_fewer_packets_is_recommended() -> None:
    equal = [*rows("a", [0.99, 0.98, 0.97], 1.5), *rows("b", [0.9895, 0.9799, 0.9703], 1.1)]
    assert recommend(equal).settings == {"strategy": "b"}
    worse = [*rows("a", [0.99, 0.9, 0.97], 1.5), *rows("b", [0.9, 0.98, 0.97], 1.1)]
    assert recommend(worse).settings == {"strategy": "a"}, "more than a tenth of a point"
    assert recommend(worse, equal=0.01).settings == {"strategy": "b"}
    assert "may be chance" in recommend(worse).paragraph


def test_long_windows_count_for_more() -> None:
    short, long = rows("a", [0.0, 1.0])
    found = recommend([{**short, "expected": 10.0}, {**long, "expected": 90.0}])
    assert found.ranked[0].on_time.mean == pytest.approx(0.9)


def test_intervals_are_those_of_weighted_means() -> None:
    same = [{**row, "expected": 40.0} for row in rows("a", [0.9, 0.8, 0.7, 0.9])]
    half = recommend(same).ranked[0].on_time.half
    assert half == pytest.approx(t_quantile(4) * stdev([0.9, 0.8, 0.7, 0.9]) / 2)
    tiny = [*same, {**rows("a", [0.0])[0], "begin_ns": 9, "expected": 0.01}]
    found = recommend(tiny).ranked[0].on_time
    assert found.half is not None and found.half < 1.1 * half, "a window of few deliveries says little"
    better = [{**row, "expected": weight} for row, weight in zip(rows("b", [0.5, 0.9, 0.9]), (1, 1, 8), strict=True)]
    worse = [{**row, "expected": weight} for row, weight in zip(rows("c", [0.5, 0.8, 0.7]), (1, 1, 8), strict=True)]
    first, last = recommend([*better, *worse]).ranked
    assert last.behind.mean == pytest.approx(first.on_time.mean - last.on_time.mean) == pytest.approx(0.17)


def test_runs_at_the_recorded_times_are_told_apart() -> None:
    runs = [
        *rows("a", [0.9, 0.8], times="recorded"),
        *rows("a", [0.6, 0.6], times="moved", seed=2),
        *rows("b", [0.1], times="drawn"),
    ]
    first, last = recommend(runs).ranked
    assert (first.recorded, last.recorded) == (pytest.approx(0.85), None)
    assert first.on_time.mean == pytest.approx(0.725)


def test_failed_runs_are_counted_and_no_result_is_a_sentence() -> None:
    failed = {**rows("b", [0.5])[0], "error": "RunFailed: it did", "on_time": None}
    found = recommend([*rows("a", [0.9, 0.8, 0.7]), *rows("b", [0.2]), failed])
    assert [(one.strategy, one.failed) for one in found.ranked] == [("a", 0), ("b", 1)]
    with pytest.raises(ConfigError, match="no replay has a result"):
        recommend([failed])


def test_the_picture_names_every_variant() -> None:
    drawn = draw_recommendation(recommend([*rows("d-tree", [0.8]), *rows("adaptive", [0.99], 1.2, "tight")]))
    assert drawn.startswith("<svg") and "adaptive, tight" in drawn and "d-tree" in drawn and "1.20" in drawn
