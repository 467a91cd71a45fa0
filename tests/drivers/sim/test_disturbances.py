"""Faults of links that are up, partitions, and peers that leave and join again."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.errors import raises
from wend.drivers.scenarios import Scenario, make_scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.checks import check, is_healed, promised_properties
from wend.drivers.sim.disturbances import draw_queue_length
from wend.drivers.sim.engine import LEAVE_NS, Engine
from wend.drivers.sim.missing import UNEXPLAINED, UNKNOWN, explain_missing
from wend.drivers.sim.run import Outcome
from wend.drivers.world import build_world
from wend.model.units import MS, SECOND
from wend.topology.faults import Intervals


def fixed(up: float, down: float, **more: Any) -> dict[str, Any]:
    return {"up": {"kind": "fixed", "mean_s": up}, "down": {"kind": "fixed", "mean_s": down}, **more}


TWO = Scenario(
    topology="full-mesh", peers=2, topics=1, popularity=(1.0, 1.0), pf=0.0, pl=0.0, duration="20s", drain="2s",
    ack="free", strategy="d-tree", rate=10.0,
)  # fmt: skip
EIGHT = Scenario(peers=8, degree=4, topics=4, pf=0.0, pl=0.0, duration="10s", rate=4.0, ack="round-trip")


def delays(outcome: Outcome) -> list[int]:
    return list(outcome.trace.deliveries.column("delay_ns"))


def kinds(outcome: Outcome) -> Counter[str]:
    return Counter(str(kind) for kind in outcome.trace.faults.column("kind"))


# ---------------------------------------------------------------- packets


def test_a_corrupted_packet_is_refused_and_counted() -> None:
    outcome = simulate(TWO.with_(corruption=0.25, duration="200s"))
    refused = outcome.summary.notices["refused-corrupted"]
    assert outcome.summary.delivery == pytest.approx(0.75, abs=0.04)
    assert refused == outcome.summary.expected - outcome.summary.delivered
    assert kinds(outcome) == {"corruption": 1}


def test_a_peer_that_is_down_refuses_nothing() -> None:
    world = build_world(TWO.with_(corruption=1.0))
    world.peer_faults = Intervals(2, [(world.topics[0].subscribers[0], world.begin_ns, world.end_ns)])
    engine = Engine(world)
    engine.run()
    assert "refused-corrupted" not in engine.notices


def test_reordered_packets_are_overtaken_and_nothing_is_lost() -> None:
    outcome = simulate(TWO.with_(reordering=0.3, reordering_delay="500ms"))
    numbers = list(outcome.trace.deliveries.column("sequence"))
    assert numbers != sorted(numbers)
    assert sorted(numbers) == list(range(min(numbers), min(numbers) + 200))
    usual = outcome.world.overlay.links[0].delay_ns
    assert set(delays(outcome)) - {usual}
    assert all(usual <= delay <= usual + 500 * MS + 1 for delay in delays(outcome))


def test_a_spike_delays_packets_and_lets_none_overtake() -> None:
    outcome = simulate(TWO.with_(delay_spikes=fixed(2.0, 1.0, extra_ms=[300, 300])))
    usual = outcome.world.overlay.links[0].delay_ns
    numbers = list(outcome.trace.deliveries.column("sequence"))
    assert numbers == sorted(numbers) and len(numbers) == 200
    assert max(delays(outcome)) == usual + 300 * MS
    slow = sum(delay > usual for delay in delays(outcome)) / 200
    assert slow == pytest.approx(1.2 / 3, abs=0.07)  # a second of each three, and what waits behind it
    assert kinds(outcome) == {"delay": 7}


def test_congestion_makes_packets_wait_and_loses_some() -> None:
    load = fixed(1e-3, 1e6, load=[1.0, 1.0], queue_msgs=9, service_ms=5.0)
    outcome = simulate(TWO.with_(congestion=load, duration="200s"))
    usual = outcome.world.overlay.links[0].delay_ns
    extra = np.array(delays(outcome)) - usual
    assert outcome.summary.delivery == pytest.approx(0.9, abs=0.02)  # a queue of 9 is full with probability 1/10
    assert extra.min() >= 0 and extra.max() <= 8 * 5 * MS
    assert extra.mean() == pytest.approx(4 * 5 * MS, rel=0.1)


def test_a_queue_follows_its_load() -> None:
    uniform = (np.arange(20000) + 0.5) / 20000
    for load in (0.5, 0.9, 1.0, 1.3):
        found = np.bincount([draw_queue_length(load, 4, u) for u in uniform], minlength=5) / len(uniform)
        wanted = load ** np.arange(5)
        assert found == pytest.approx(wanted / wanted.sum(), abs=1e-3)
    assert [draw_queue_length(0.5, 4, u) for u in (0.0, 1 - 1e-16)] == [0, 4]


def test_on_an_underlay_links_that_share_a_router_link_are_disturbed_together() -> None:
    world = build_world(EIGHT.with_(underlay="power-law", delay_spikes=fixed(3.0, 1.0)))
    assert world.disturbances is not None
    spikes = [{id(one) for one in link.spikes_ms} for link in world.disturbances.links]
    assert any(a & b for n, a in enumerate(spikes) for b in spikes[:n])


def test_strategies_on_a_ring_meet_the_disturbances_of_all_links_of_a_route() -> None:
    world = build_world(EIGHT.with_(corruption=0.1, delay_spikes=fixed(3.0, 1.0), strategy="scribe"))
    seen = world.for_strategy("scribe")
    assert world.disturbances is not None and seen.disturbances is not None
    assert len(seen.disturbances.links) == len(seen.overlay.links) == 28
    assert {round(link.corruption, 3) for link in seen.disturbances.links} >= {0.1, 0.19}
    assert {len(link.spikes_ms) for link in seen.disturbances.links} >= {1, 2}


def test_packets_wait_for_capacities_and_disturbances() -> None:
    fields = {"link_capacity": "1000msg/s", "reordering_delay": "100ms"}
    calm, disturbed = (simulate(TWO.with_(**fields, reordering=share)) for share in (0.0, 1.0))
    assert set(delays(calm)) == {calm.world.overlay.links[0].delay_ns + MS}
    assert min(delays(disturbed)) > delays(calm)[0]


def test_disturbances_heal() -> None:
    fields = {"corruption": 0.9, "delay_spikes": fixed(0.1, 0.5), "congestion": fixed(0.1, 0.5), "reordering": 0.9}
    outcome = simulate(TWO.with_(**fields, heal="5s"))
    healed_ns = outcome.world.begin_ns + 5 * SECOND
    late = [row for row in outcome.trace.publications.rows() if row[0] >= healed_ns + SECOND]
    usual = outcome.world.overlay.links[0].delay_ns
    arrived = {row[1:4]: row[6] for row in outcome.trace.deliveries.rows()}
    assert [arrived[row[1:4]] for row in late] == [usual] * len(late)
    assert all(until <= healed_ns for until in outcome.trace.faults.column("until_ns"))
    assert len(late) > 100


# ---------------------------------------------------------------- partitions and churn


def test_a_partition_cuts_all_links_between_a_group_and_the_others(tmp_path: Path) -> None:
    outcome = simulate(EIGHT.with_(peer_partitions=fixed(2.0, 3.0, share=[0.3, 0.4])))
    world = outcome.world
    first = world.partitions[0]
    assert len(first.peers) in (2, 3)
    assert (first.start_ns, first.until_ns) == (world.begin_ns + 2 * SECOND, world.begin_ns + 5 * SECOND)
    for number, link in enumerate(world.overlay.links):
        assert world.faults.is_up(number, first.start_ns) == ((link.a in first.peers) == (link.b in first.peers))
    assert kinds(outcome)["partition"] == sum(len(one.peers) for one in world.partitions)
    outcome.trace.write(tmp_path)
    again = simulate(EIGHT.with_(failures=str(tmp_path / "faults.parquet")))
    assert list(again.trace.deliveries.rows()) == list(outcome.trace.deliveries.rows())


def test_a_replay_leaves_disturbances_to_its_scenario(tmp_path: Path) -> None:
    noisy = {"corruption": 0.1, "congestion": fixed(1.0, 1.0), "delay_spikes": fixed(1.0, 1.0), "reordering": 0.1}
    outcome = simulate(EIGHT.with_(**noisy, outages=fixed(3.0, 1.0)))
    assert {"link", "corruption", "congestion", "delay", "reordering"} == set(kinds(outcome))
    outcome.trace.write(tmp_path)
    again = simulate(EIGHT.with_(**noisy, failures=str(tmp_path / "faults.parquet")))
    assert again.summary.trace_sha256 == outcome.summary.trace_sha256


def test_a_peer_that_leaves_withdraws_its_subscriptions_and_joins_again() -> None:
    scenario = EIGHT.with_(churn=fixed(4.0, 2.0), heal="5s", persistence=True, drain="30s", strategy="dcrd")
    outcome = simulate(scenario)
    assert kinds(outcome) == {"churn": 8}
    begin = outcome.world.begin_ns
    away = [row for row in outcome.trace.publications.rows() if begin + 4 * SECOND <= row[0] < begin + 5 * SECOND]
    assert not away  # all publishers left, too
    assert set(outcome.trace.publications.column("incarnation")) == {1, 2}
    assert len(promised_properties(outcome.world)) == 5
    assert check(outcome) == []
    assert UNEXPLAINED not in outcome.summary.missing


def test_who_left_is_not_expected_and_what_was_lost_is_explained() -> None:
    world = build_world(EIGHT.with_(strategy="dcrd", rate=50.0))
    left = world.topics[0].subscribers[0]
    away = (world.begin_ns + 2 * SECOND, world.begin_ns + 4 * SECOND)
    world.churn = Intervals(8, [(left, *away)])
    engine = Engine(world)
    engine.run()
    for time, subscribers in engine.expected.values():
        assert left not in subscribers or not away[0] <= time < away[1]
    got = [row[0] for row in engine.trace.deliveries.rows() if row[4] == left]
    assert not [time for time in got if away[0] + LEAVE_NS <= time < away[1]]
    assert [time for time in got if time > away[1]]


def test_on_trees_a_peer_that_has_just_joined_again_is_not_known_yet() -> None:
    world = build_world(EIGHT.with_(strategy="mrst", duration="4s", drain="1s", seed=5))
    topic = world.topics[0]
    left = topic.subscribers[0]
    world.churn = Intervals(8, [(left, world.begin_ns + SECOND, world.begin_ns + 2 * SECOND)])
    engine = Engine(world)
    engine.run()
    missing = explain_missing(engine)
    assert missing[UNKNOWN] > 0
    assert UNEXPLAINED not in missing


def test_a_peer_that_is_down_does_not_leave() -> None:
    world = build_world(EIGHT.with_(churn=fixed(1.0, 1.0), peer_outages=fixed(1.5, 0.25)))
    down, absent = list(world.peer_faults.outages()), list(world.churn.outages())
    assert absent
    assert not [1 for p, a, b in absent for q, c, d in down if p == q and a <= d and c <= b]


# ---------------------------------------------------------------- promises and mistakes


@pytest.mark.parametrize(
    "fields",
    [
        {"corruption": 0.15, "pl": 0.1},
        {"delay_spikes": fixed(1.0, 1.0)},
        {"congestion": fixed(1.0, 1.0)},
        {"peer_partitions": fixed(1.0, 1.0)},
        {"churn": fixed(1.0, 1.0)},
    ],
)
def test_a_world_that_goes_on_failing_has_not_healed(fields: dict[str, Any]) -> None:
    world = build_world(EIGHT.with_(drain="25s"))
    assert is_healed(world)
    assert not is_healed(build_world(EIGHT.with_(drain="25s", **fields)))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"corruption": 1.5}, "corruption must lie in 0..1"),
        ({"delay_spikes": fixed(1.0, 1.0, extra_ms=[5, 1])}, "delay_spikes.extra_ms needs"),
        ({"congestion": fixed(1.0, 1.0, load=[0, 1])}, "congestion.load needs"),
        ({"congestion": fixed(1.0, 1.0, queue_msgs=0)}, "congestion needs queue_msgs"),
        ({"peer_partitions": fixed(1.0, 1.0, share=[0.5, 1.0])}, "peer_partitions.share needs"),
        ({"churn": fixed(0.0, 1.0)}, "churn.up: fixed needs a mean_s above 0"),
        ({"peer_partitions": fixed(1.0, 1.0), "failures": "x"}, "neither drawn nor healed"),
    ],
)
def test_mistakes_are_one_sentence(fields: dict[str, Any], why: str) -> None:
    with raises("invalid-setting", match=why):
        make_scenario(fields)


def test_the_oracle_knows_no_churn() -> None:
    with raises("invalid-setting", match="leave churn out"):
        simulate(EIGHT.with_(strategy="oracle", churn=fixed(1.0, 1.0)))
