"""Other traffic in simulated queues: it fills a link, shares it, and slows peers down."""

from typing import Any

import pytest

from tests.errors import raises
from wend.drivers.scenarios import Scenario
from wend.drivers.sim.background import BackgroundFlow, CubicControl, RenoControl
from wend.drivers.sim.engine import Engine
from wend.drivers.sim.managed_network import ManagedNetwork
from wend.drivers.world import build_world
from wend.model.units import MS, SECOND

LINK = {"peers": 2, "degree": 1, "topics": 1, "popularity": (1.0, 1.0), "pf": 0.0, "pl": 0.0, "strategy": "d-tree"}
LINK |= {"link_capacity": "200msg/s", "queue": 40, "rate": 0.1, "duration": "20s", "drain": "0s", "warmup": "1s"}


def played(**fields: Any) -> tuple[Engine, list[BackgroundFlow]]:
    engine = Engine(build_world(Scenario(**{**LINK, **fields})))
    engine.run()
    return engine, engine.network.background if isinstance(engine.network, ManagedNetwork) else []


def jain(values: list[int]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


@pytest.mark.parametrize("control", ["cubic", "reno"])
@pytest.mark.parametrize("discipline", ["drop-tail", "codel"])
def test_a_flow_alone_fills_its_link(control: str, discipline: str) -> None:
    flows = {"control": control, "rtt_ms": (50.0, 50.0)}
    engine, (there, back) = played(background_flows=flows, queue_discipline=discipline)
    assert 0.9 * 20 * 200 < there.delivered <= 20 * 200
    assert 0.9 * 20 * 200 < back.delivered <= 20 * 200
    assert there.lost > 0
    assert engine.notices["background-packets"] == there.delivered + back.delivered


@pytest.mark.parametrize("control", ["cubic", "reno"])
@pytest.mark.parametrize("discipline", ["drop-tail", "codel"])
def test_two_flows_share_a_link(control: str, discipline: str) -> None:
    flows = {"control": control, "flows": 2, "rtt_ms": (50.0, 50.0)}
    _, found = played(background_flows=flows, queue_discipline=discipline, duration="40s")
    pair = [flow.delivered for flow in found[:2]]
    assert sum(pair) > 0.9 * 40 * 200
    assert jain(pair) >= 0.95


def test_events_wait_behind_other_traffic() -> None:
    alone, _ = played(background_flows={"share": 0.0}, rate=10.0)
    beside, _ = played(background_flows={}, rate=10.0)
    managed, _ = played(background_flows={}, rate=10.0, queue_discipline="codel")
    delays = [engine.trace.deliveries.numbers("delay_ns").mean() / MS for engine in (alone, beside, managed)]
    assert delays[1] > delays[0] + 50
    assert delays[2] < delays[0] + 50


def test_flows_outlive_a_crash_and_an_outage() -> None:
    outages = {"up": {"kind": "fixed", "mean_s": 5.0}, "down": {"kind": "fixed", "mean_s": 1.0}}
    _, (there, _) = played(background_flows={"rtt_ms": (50.0, 50.0)}, outages=outages, peer_outages=outages)
    assert 0.4 * 20 * 200 < there.delivered < 0.9 * 20 * 200


def test_overlay_links_share_the_queues_of_an_underlay() -> None:
    fields = {"peers": 6, "degree": 3, "underlay": "power-law", "rate": 5.0, "duration": "2s"}
    engine, flows = played(**fields, background_flows={"share": 0.5})
    shared = engine.world.background
    assert any(len(each.arcs) > 1 for each in shared)
    assert len(flows) == len(shared)
    assert all(flow.delivered > 200 for flow in flows)
    quiet, _ = played(**fields, background_flows={"share": 0.0})
    delays = [each.trace.deliveries.numbers("delay_ns").mean() for each in (quiet, engine)]
    assert delays[1] > 1.5 * delays[0]


def test_cubic_returns_to_its_window_in_the_time_of_its_law() -> None:
    """From 100 packets to 70; back at 100 after the cube root of 30/0.4 = 4.2 s, if Reno's growth is slower."""
    law = CubicControl()
    law.window, now, rtt = 100.0, SECOND, 200 * MS
    law.on_loss(now)
    assert law.window == pytest.approx(70)
    for _ in range(21):
        now += rtt
        for _ in range(int(law.window)):
            law.on_ack(now, rtt)
    assert law.window == pytest.approx(100, abs=2)


def test_reno_halves_and_adds_one_in_each_round_trip() -> None:
    law = RenoControl()
    law.window = 40.0
    law.on_loss(SECOND)
    for _ in range(20):
        law.on_ack(SECOND, 50 * MS)
    assert law.window == pytest.approx(21, abs=0.1)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"link_capacity": None}, "background_flows concerns the queues of links"),
        ({"background_flows": {"flows": 0}}, "flows must be in 1..1000"),
        ({"background_flows": {"share": 2.0}}, "share must be in 0..1"),
        ({"background_flows": {"rtt_ms": (0.0, 5.0)}}, "rtt_ms needs 0 < low"),
        ({"background_flows": {"packet_bytes": 0}}, "packet_bytes must be in"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], why: str) -> None:
    with raises("invalid-setting", match=why):
        Scenario(**{**LINK, "background_flows": {}, **fields})
