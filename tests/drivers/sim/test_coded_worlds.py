"""Coded events, simulated whole: nothing is lost or delivered twice that full copies would not lose."""

import pytest

from tests.scenarios import random_scenario
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.checks import check_properties
from wend.drivers.sim.engine import Engine
from wend.drivers.world import build_world

LARGE = 5_000
STRATEGIES = ["adaptive", "multipath", "mrst", "spt-k"]
Delivery = tuple[tuple[int, ...], int]


def play(scenario: Scenario) -> tuple[Engine, list[Delivery]]:
    """The run, and its deliveries: event and subscription."""
    engine = Engine(build_world(scenario).for_strategy(scenario.strategy))
    engine.run()
    return engine, sorted((tuple(row[1:4]), row[4]) for row in engine.trace.deliveries.rows())


def lossless(strategy: str, **changes: object) -> Scenario:
    fields = {"peers": 8, "degree": 4, "topics": 4, "duration": "4s", "warmup": "6s", "drain": "6s", "pf": 0.0}
    return Scenario(strategy=strategy, payload_bytes=LARGE).with_(**{**fields, "pl": 0.0, **changes})


@pytest.mark.parametrize("coding", ["1/2", "2/3", "3/5"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_subscriber_gets_every_coded_event_once(strategy: str, coding: str) -> None:
    whole, expected = play(lossless(strategy, coding="off", trees=3))
    engine, deliveries = play(lossless(strategy, coding=coding, trees=3))
    assert engine.notices["coded"] == len(engine.expected) > 0
    assert whole.notices["coded"] == 0
    assert deliveries == expected
    assert len(set(deliveries)) == len(deliveries)
    assert engine.drops == {}


@pytest.mark.parametrize("strategy", ["adaptive", "mrst", "spt-k"])
def test_blocks_that_are_lost_are_sent_again(strategy: str) -> None:
    """These strategies lose nothing while links lose packets, with blocks as with whole events."""
    engine, deliveries = play(lossless(strategy, coding="2/3", pl=0.1, trees=3))
    assert engine.notices["coded"] > 0
    wanted = sorted((tuple(id_), peer) for id_, (_, peers) in engine.expected.items() for peer in peers)
    assert deliveries == wanted


def test_adaptive_codes_of_itself_where_links_lose_packets() -> None:
    tight = {"factor": 1.5, "ack": "round-trip", "duration": "10s"}
    engine, deliveries = play(lossless("adaptive", pl=0.05, **tight))
    _, expected = play(lossless("adaptive", pl=0.05, coding="off", **tight))
    assert engine.notices["coded"] > 0
    assert deliveries == expected
    assert play(lossless("adaptive", **tight))[0].notices["coded"] == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_coded_events_keep_the_promises_while_links_and_peers_fail(strategy: str) -> None:
    for seed in range(9):
        scenario = random_scenario(seed, (strategy,)).with_(
            payload_bytes=LARGE, persistence=False, coding=("auto", "1/2", "2/3")[seed % 3], drain="3s"
        )
        outcome = simulate(scenario)
        assert check_properties(outcome, ("safety", "integrity")) == [], (strategy, seed)


def test_a_run_with_coded_events_is_repeatable() -> None:
    scenario = lossless("adaptive", pl=0.05, factor=1.5, pf=0.1)
    assert simulate(scenario).summary.trace_sha256 == simulate(scenario).summary.trace_sha256
