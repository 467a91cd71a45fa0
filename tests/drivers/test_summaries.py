"""Simulated and live runs are added up by the same rules."""

from collections import Counter

import msgspec
import numpy as np
import pytest

from wend.drivers.live.comparison.meter import SettledTotals, TrackedPublication
from wend.drivers.scenarios import make_scenario
from wend.drivers.summaries import DeliveryCounts, count_deliveries, make_summary
from wend.drivers.world import World, build_world
from wend.model.summary import LATE, Delays, DetectionDelays, Late, Packets, Summary
from wend.model.units import SECOND

NOTHING = DeliveryCounts(0, 0, [0] * len(LATE), 0.0, [])


@pytest.fixture(scope="module")
def world() -> World:
    return build_world(
        make_scenario({"peers": 6, "degree": 3, "topics": 1, "duration": "5s", "popularity": (1.0, 1.0)})
    )


def summed(found: DeliveryCounts, expected: int, packets: int = 0) -> Summary:
    counted = [Counter[str]() for _ in range(3)]
    return make_summary(
        found, publications=1, expected=expected, data_packets=packets, data_packets_unicast=2 * packets,
        control=counted[0], drops=counted[1], notices=counted[2], wall_s=1.0,
    )  # fmt: skip


def test_a_meter_finds_what_the_whole_table_gives(world: World) -> None:
    topic, totals, table = world.topics[0], SettledTotals(world), []
    for tenths in range(1, 25):
        flight = TrackedPublication(0, topic)
        flight.packets, flight.unicast = 3, 6
        for subscriber in topic.subscribers[1:]:  # one never gets anything
            deadline = world.deadline_ns(topic.publisher, subscriber)
            flight.arrived[subscriber] = deadline * tenths // 10
            table.append((flight.arrived[subscriber], deadline))
        totals.add(flight)
    live = totals.summary(Counter(), Counter(), Counter(), SECOND)
    whole = summed(
        count_deliveries(*np.array(table, dtype=np.float64).T), expected=24 * len(topic.subscribers), packets=24 * 3
    )
    assert 0 < live.on_time < live.delivery < 1
    assert live.delay_ms.mean == pytest.approx(whole.delay_ms.mean)
    same = {"publications": 24, "delay_ms": live.delay_ms}
    assert live == msgspec.structs.replace(whole, **same)


def test_ratios_of_nothing_expected_are_nought_whoever_counts(world: World) -> None:
    idle = msgspec.structs.replace(world.topics[0], subscribers=())
    totals, flight = SettledTotals(world), TrackedPublication(0, idle)
    flight.packets, flight.unicast = 5, 10  # what a publisher sent before it heard that nobody cares
    totals.add(flight)
    live, simulated = totals.summary(Counter(), Counter(), Counter(), SECOND), summed(NOTHING, 0, packets=5)
    assert live == simulated
    assert (live.delivery, live.on_time, live.packets, live.data_packets) == (0.0, 0.0, Packets(0.0, 0.0), 5)
    assert (live.late, live.delay_ms, live.outage_known_ms) == (Late(), Delays(), DetectionDelays())


def test_json_says_multiples_and_omits_what_is_not_known() -> None:
    assert LATE == (1.25, 1.5, 1.75)
    shown = msgspec.to_builtins(
        msgspec.structs.replace(summed(NOTHING, 1), outage_known_ms=DetectionDelays(unnoticed_share=1.0))
    )
    assert shown["late_within"] == {"1.25": None, "1.5": None, "1.75": None}
    assert shown["packets_per_subscriber"] == {"shared": 0.0, "unicast": 0.0}
    assert shown["outage_known_ms"] == {"unnoticed": 1.0}
