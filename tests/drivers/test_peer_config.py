"""What a scenario says of peers reaches them, simulated or live."""

from collections import deque
from typing import Any

import pytest

from wend.drivers.live.comparison import MARGIN_NS, LiveOverlay
from wend.drivers.sim.engine import Engine
from wend.drivers.world import World, build
from wend.drivers.scenarios import Scenario
from wend.model.units import MS, SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.membership.shape import OverlaySettings

MESH = {"topology": "full-mesh", "peers": 4}
ON_TREES = {**MESH, "strategy": "mrst"}

SHARED: dict[str, tuple[dict[str, Any], Any]] = {
    "strategy": ({"strategy": "adaptive"}, "adaptive"),
    "m": ({"m": 3}, 3),
    "estimator": ({"estimator": "nominal"}, "nominal"),
    "monitor_ns": ({"monitor_s": 7.0}, 7 * SECOND),
    "margin_ns": ({"margin_ms": 40.0}, 40 * MS),
    "persistency": ({"persistency": True}, True),
    "keep_msgs": ({"keep_msgs": 17}, 17),
    "redundancy": ({"strategy": "adaptive", "redundancy": "free"}, "free"),
    "detect_ns": ({"strategy": "adaptive", "detect_ms": 240.0}, 240 * MS),
    "overlay": ({**ON_TREES, "overlay": "chain"}, "chain"),
    "overlay_settings": ({**ON_TREES, "overlay": "random", "overlay_k": 2, "seed": 9}, OverlaySettings(k=2, seed=9)),
    "trees": ({**ON_TREES, "trees": 3}, 3),
    "covering": ({**ON_TREES, "covering": "merging"}, "merging"),
    "traces": ({"strategy": "adaptive", "underlay": "transit-stub"}, True),
    "reliability": ({**ON_TREES, "reliability": 0.9}, 0.9),
}
"""Of each field of a peer, what a scenario may say and what the peer is then told."""
APART = {
    "peer",
    "incarnation",
    "ack",  # only a simulated one is free
    "grace_ns",  # simulated subscribers need not come back: they are there when their peer starts
    "remembers",  # simulated stores outlive their peers; live ones need a file
    "fails",  # an owner knows it; simulated peers are all alike
}


def world_of(**said: Any) -> World:
    return build(Scenario(**{"peers": 6, "degree": 3, "topics": 2, "duration_s": 1.0, **said}))


def simulated(world: World) -> list[PeerConfig]:
    engine = Engine(world)
    engine.world.stop_ns = engine.world.end_ns = engine.world.begin_ns
    engine.run()
    return [peer.config for peer in engine.peers if peer is not None]


def live(world: World) -> list[PeerConfig]:
    overlay = LiveOverlay(world, world.scenario.strategy, lambda: 0, deque())
    overlay.close()
    return [peer._peer.config for peer in overlay.peers]


def test_every_field_of_a_peer_is_looked_at() -> None:
    assert sorted({*SHARED, *APART}) == sorted(PeerConfig.__struct_fields__)


@pytest.mark.parametrize("field", SHARED)
def test_what_a_scenario_says_reaches_both_drivers(field: str) -> None:
    said, meant = SHARED[field]
    for configs in (simulated(world_of(**said)), live(world_of(**said))):
        assert {getattr(config, field) for config in configs} == {meant}
        assert [config.peer for config in configs] == list(range(said.get("peers", 6)))


@pytest.mark.parametrize("field", SHARED)
def test_a_field_that_is_dropped_would_be_missed(field: str) -> None:
    assert getattr(PeerConfig(peer=0), field) != SHARED[field][1]


def test_what_only_a_host_has_is_the_driver_s() -> None:
    world = world_of(ack="free")
    assert {(config.ack, config.margin_ns) for config in simulated(world)} == {("free", 0)}
    assert {(config.ack, config.margin_ns) for config in live(world)} == {("round-trip", MARGIN_NS)}
