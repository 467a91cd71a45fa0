"""The pictures of links and of late events, and the times below them."""

from typing import Any

import pytest

from tests.spark import needs_java
from wend.model.errors import ConfigError
from wend.model.units import SECOND
from wend.pipeline.telemetry.telemetry_pictures import _choose_ticks, draw_availability_map, draw_lost_time_bars

DAY = 86_400 * SECOND
TUESDAY = 1_763_424_000 * SECOND
LINKS = "begin_ns bigint, window_ns bigint, a bigint, b bigint, down_ns bigint, observed_ns bigint"
CAUSES = "cause string, peer bigint, neighbour bigint, time_ns bigint, deliveries bigint"
LATENESS = "late bigint, with_deadline bigint, incomplete bigint"


def test_a_week_has_a_tick_at_each_midnight() -> None:
    half_hour = 1800 * SECOND
    assert _choose_ticks(TUESDAY, half_hour, 336) == [
        (48 * day, f"{name} {18 + day} Nov")
        for day, name in enumerate(("Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Mon"))
    ]
    assert _choose_ticks(TUESDAY + 17 * half_hour, half_hour, 300)[0] == (31, "Wed 19 Nov")
    assert len(_choose_ticks(TUESDAY, DAY, 60)) <= 8


def test_a_few_hours_have_times_of_day() -> None:
    assert _choose_ticks(TUESDAY, 60 * SECOND, 120)[1] == (20, "00:20")
    assert _choose_ticks(TUESDAY, SECOND, 60)[-1] == (50, "00:00:50")
    assert _choose_ticks(TUESDAY, 600 * SECOND, 288)[1] == (48, "18 Nov 08:00")


@needs_java
@pytest.mark.spark
def test_a_link_that_was_down_is_dark_and_one_that_was_not_seen_is_blank(spark: Any) -> None:
    window = 60 * SECOND
    rows = [(TUESDAY + at * window, window, 1, 2, window if at == 1 else 0, window) for at in range(4)]
    rows += [(TUESDAY + at * window, window, 1, 3, 0, window) for at in (0, 3)]
    drawn = draw_availability_map(spark.createDataFrame(rows, LINKS))
    assert "1 – 2: 100.00 % down" in drawn and "75.00 %" in drawn
    assert drawn.count("<title>1 – 2:") == 2, "the ground, and one cell on it"
    assert drawn.count("<title>1 – 3: 0.00 % down") == 2, "two cells, and nothing between them"
    with pytest.raises(ConfigError, match="there are no links to draw"):
        draw_availability_map(spark.createDataFrame([], LINKS))


@needs_java
@pytest.mark.spark
def test_the_place_where_most_time_was_lost_comes_first(spark: Any) -> None:
    causes = [
        ("waiting", 1, 2, 3 * SECOND, 3), ("link", 1, 2, SECOND, 3), ("receiving", 4, 2, 2 * SECOND, 1),
        ("local", 4, None, SECOND, 1), ("incomplete", 9, None, 100 * SECOND, 1),
    ]  # fmt: skip
    lateness = spark.createDataFrame([(4, 10, 1)], LATENESS)
    drawn = draw_lost_time_bars(spark.createDataFrame(causes, CAUSES), lateness)
    assert (
        "4 of 10 deliveries with a deadline were late; of 1 the route is not known; right: the share of their time"
        in drawn
    )
    places = [drawn.index(f">{label}<") for label in ("1 → 2", "2 → 4", "in 4")]
    assert places == sorted(places)
    assert "57.1 %" in drawn
    with pytest.raises(ConfigError, match="no event was late"):
        draw_lost_time_bars(spark.createDataFrame([], CAUSES), lateness)
