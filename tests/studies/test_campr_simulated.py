"""Chapter 5 on a very small network."""

import msgspec
import pytest

from wend.studies.campr.simulated import (
    SimulatedTrial,
    draw_simulated_workload,
    make_simulated_network,
    make_simulated_plan,
    run_simulated,
)

SEED = 3
SMALL = SimulatedTrial("balance", nodes=24, messages=1200, popularity=0.2, scale=20, queue_msgs=16, duration_s=4.0)


def small(strategy: str, load: float = 1.0) -> SimulatedTrial:
    return msgspec.structs.replace(SMALL, strategy=strategy, load=load)


def test_links_carry_just_what_the_balanced_plan_needs() -> None:
    for load in (0.5, 1.0):
        trial = small("balance", load)
        workload = draw_simulated_workload(trial, SEED)
        network, single_load = make_simulated_network(trial, workload, SEED)
        plan = make_simulated_plan(trial, network, workload)
        assert plan.head.highest_load == pytest.approx(load, rel=1e-6)
        assert plan.head.highest_load_single == pytest.approx(single_load)
        assert single_load > load


@pytest.mark.parametrize("strategy", ["min-usage", "balance"])
@pytest.mark.parametrize(("per", "seed"), [("link", SEED), ("node", 1)])
def test_a_plan_delivers_everything(strategy: str, per: str, seed: int) -> None:
    found = run_simulated(msgspec.structs.replace(small(strategy), per=per), seed)
    assert found["undelivered"] == found["dropped"] == found["promised"] == 0.0
    assert found["single_load"] > 1.1, "single paths would not fit"
    assert found["split"] > 0 or per == "node"


@pytest.mark.parametrize(("per", "seed"), [("link", SEED), ("node", 1)])
def test_single_paths_lose_at_the_same_load(per: str, seed: int) -> None:
    found = run_simulated(msgspec.structs.replace(small("d-tree"), per=per), seed)
    assert found["undelivered"] == pytest.approx(found["dropped"])
    assert found["undelivered"] > 0.01
    assert "graphs" not in found


def test_with_room_minimum_usage_splits_less() -> None:
    usage, balance = (run_simulated(small(goal, 0.5), SEED) for goal in ("min-usage", "balance"))
    assert usage["split"] < balance["split"]
    assert usage["packets"] <= balance["packets"]


def test_of_too_much_what_is_promised_arrives() -> None:
    found = run_simulated(small("balance", 1.5), SEED)
    assert found["dropped"] == 0.0
    assert found["undelivered"] == pytest.approx(found["promised"], abs=0.02)
    assert found["promised"] > 0.02


def test_a_plan_loses_no_message_at_once_if_queues_hold_what_links_carry() -> None:
    undelivered = {}
    for strategy in ("min-usage", "balance", "d-tree"):
        trial = msgspec.structs.replace(small(strategy), at_once=True, queue_share=1.0)
        undelivered[strategy] = run_simulated(trial, SEED)["undelivered"]
    assert undelivered["min-usage"] == undelivered["balance"] == 0.0 < undelivered["d-tree"]
    trial = msgspec.structs.replace(small("balance"), at_once=True, queue_share=0.1)
    assert run_simulated(trial, SEED)["undelivered"] > 0.1


def test_at_once_each_flow_publishes_what_it_publishes_in_a_second() -> None:
    spread, once = (
        run_simulated(msgspec.structs.replace(small("balance"), at_once=at_once, duration_s=1.0, queue_msgs=500), SEED)
        for at_once in (False, True)
    )
    assert spread["packets"] == pytest.approx(once["packets"])
    assert once["delay_s"] > spread["delay_s"]
