"""Random worlds with capacities and overload: no strategy breaks what it promises, and send queues stay in bounds.

`python -m tests.drivers.sim.overloaded_worlds 10000` plays many. Controllers that are broken on purpose must be caught.
"""

import pytest

from tests.cores import pure_only
from tests.drivers.sim.overloaded_worlds import CONTROLLED, STRATEGIES, ObservedEngine, single_link, world_of, wrong_in
from tests.protocol.link.broken_controllers import NeverGrows, NeverShrinks
from wend.drivers.world import build_world
from wend.model.units import SECOND
from wend.protocol.link.copa import Copa
from wend.protocol.link.link_sender import CONTROLLERS


@pytest.mark.parametrize("first", range(0, 16, 4))
def test_overload_breaks_no_promise(first: int) -> None:
    wrong = {seed: found for seed in range(first, first + 4) if (found := wrong_in(world_of(seed)))}
    assert wrong == {}


@pytest.mark.parametrize("seed", [20196, 20264, 3180, 4096, 6368])
def test_a_lost_packet_does_not_hold_the_window_for_long(seed: int) -> None:
    """Links with a loss of 1 % and a short round trip, whose packets wait long for their turn."""
    assert wrong_in(world_of(seed)) == []


def test_the_worlds_have_all_that_can_go_wrong() -> None:
    scenarios = [world_of(seed).scenario for seed in range(120)]
    assert {each.strategy for each in scenarios} == set(STRATEGIES)
    assert {each.queue_discipline for each in scenarios} == {"drop-tail", "codel"}
    assert sum(each.background_flows is not None for each in scenarios) > 5
    assert sum(each.peers == 2 for each in scenarios) == 30


@pure_only
@pytest.mark.parametrize(("broken", "found_as"), [(NeverShrinks, "packets wait for"), (NeverGrows, "of its capacity")])
def test_a_broken_controller_is_caught(broken: type[Copa], found_as: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONTROLLERS, "copa", broken)
    for seed in range(10):
        engine = ObservedEngine(build_world(single_link(seed, CONTROLLED)))
        if any(found_as in wrong for wrong in wrong_in(engine)):
            return
    pytest.fail(f"no world shows that {broken.__name__} is broken")


def test_a_full_link_without_another_route_stays_on_time() -> None:
    """At twice the load of the only link, half of the events fit in time. That stays so, however long it lasts."""
    scenario = single_link(0, CONTROLLED).with_(
        delay=("10ms", "10ms"), rate=200.0, link_capacity="100msg/s", factor=10.0, duration="15s", pl=0.0, drain="0s"
    )
    engine = ObservedEngine(build_world(scenario))
    assert wrong_in(engine) == []
    rows = [row for row in engine.trace.deliveries.rows() if row[0] > engine.world.begin_ns + 8 * SECOND]
    assert sum(row[-2] <= row[-1] for row in rows) > 0.8 * 7 * 100
