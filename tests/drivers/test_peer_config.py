"""Every setting of a peer that a scenario or a peer's file states reaches the peer, simulated or live."""

from typing import Any

import pytest

from wend.drivers.live.comparison.overlay import MARGIN_NS, make_live_config
from wend.drivers.live.config import PeerFile
from wend.drivers.scenarios import SIMULATED, Scenario
from wend.drivers.settings import peer_settings
from wend.drivers.sim.engine import Engine
from wend.drivers.world import World, build_world
from wend.model.settings import Setting, SettingValue
from wend.model.units import MS
from wend.protocol.config import LinkSettings, PeerConfig

MESH = {"topology": "full-mesh", "peers": 4}
SETTINGS = peer_settings()
SPECIAL = {
    "ack": "round-trip",  # only a simulated ACK is free
    "margin": "40ms",  # a live one is at least what its host needs
    "detection": "240ms",
    "domains": {"price": [0.0, 100.0]},
    "coding": "2/3",
}
"""Values that both drivers take as they are."""


def other(each: Setting) -> SettingValue:
    """A value that is neither the declared default nor a scenario's."""
    if each.name in SPECIAL:
        return SPECIAL[each.name]
    match each.kind:
        case "bool":
            return not each.default if each.name not in SIMULATED else not SIMULATED[each.name]
        case "choice":
            return next(c for c in each.choices if c not in (each.default, SIMULATED.get(each.name)))
        case "duration":
            return "7s"
        case "int":
            return int(each.default) + 1
        case "text":
            return f"{each.default} and more"
    return 0.5


def world_of(**said: Any) -> World:
    return build_world(Scenario(**{"peers": 6, "degree": 3, "topics": 2, "duration": "1s", **said}))


def simulated(world: World) -> list[PeerConfig]:
    engine = Engine(world)
    engine.world.stop_ns = engine.world.end_ns = engine.world.begin_ns
    engine.run()
    return [peer.config for peer in engine.peers if peer is not None]


def live(world: World) -> list[PeerConfig]:
    return [make_live_config(world, peer, world.scenario.strategy) for peer in range(world.overlay.peers)]


@pytest.mark.parametrize("name", [name for name in SETTINGS if len(SETTINGS[name].choices) != 2])
def test_what_a_scenario_or_a_file_states_reaches_the_peer(name: str) -> None:
    each, stated = SETTINGS[name], other(SETTINGS[name])
    said = {name: stated, **({"underlay": "transit-stub"} if name == "trace_paths" else {})}
    meant = each.read(stated)
    file = PeerFile(id=1, paths="trace", **{name: stated}).peer_config(1)
    for configs in (simulated(world_of(**said)), live(world_of(**said)), [file]):
        assert configs and all(getattr(config.of(each.owner), each.field) == meant for config in configs)


@pytest.mark.parametrize("estimator", ["nominal", "measured"])
def test_so_does_a_choice_of_two(estimator: str) -> None:
    world = world_of(estimator=estimator)
    for configs in (simulated(world), live(world), [PeerFile(id=1, estimator=estimator).peer_config(1)]):
        assert {config.of(LinkSettings).estimator for config in configs} == {estimator}


@pytest.mark.parametrize(
    ("setting", "name", "said"),
    [
        ("strategy", "adaptive", {}),
        ("interest", "trees-by-name", {"strategy": "mrst"}),
        ("membership", "chain", {**MESH, "strategy": "mrst"}),
    ],
)
def test_so_do_the_names_of_plug_ins(setting: str, name: str, said: dict[str, Any]) -> None:
    world = world_of(**said, **{setting: name})
    file = PeerFile(id=1, **{"strategy": world.scenario.strategy, setting: name})
    for configs in (simulated(world), live(world), [file.peer_config(1)]):
        assert {getattr(config, setting) for config in configs} == {name}
    assert [config.peer for config in simulated(world)] == list(range(said.get("peers", 6)))


def test_the_seed_decides_the_draws_of_peers() -> None:
    assert {config.seed for config in simulated(world_of(seed=9))} == {9}


def test_peers_of_a_scenario_have_its_defaults() -> None:
    for config in simulated(world_of()):
        for name, each in SETTINGS.items():
            wanted = False if name == "trace_paths" else Scenario().settings[name]  # there is no underlay
            assert getattr(config.of(each.owner), each.field) == wanted, name


def test_what_only_a_host_has_is_the_driver_s() -> None:
    world = world_of(ack="free")
    links = [config.of(LinkSettings) for config in simulated(world)]
    assert {(each.ack, each.margin_ns) for each in links} == {("free", 0)}
    links = [config.of(LinkSettings) for config in live(world)]
    assert {(each.ack, each.margin_ns) for each in links} == {("round-trip", MARGIN_NS)}


@pytest.mark.parametrize(("paths", "traces"), [(None, False), ("none", False), ("trace", True), ("some.file", True)])
def test_a_live_peer_traces_paths_where_it_has_a_source_of_them(paths: str | None, traces: bool) -> None:
    assert PeerFile(id=1, paths=paths).peer_config(1).of(LinkSettings).trace_paths == traces
    assert not PeerFile(id=1, paths=paths, trace_paths=False).peer_config(1).of(LinkSettings).trace_paths


def test_a_detection_time_leaves_time_for_the_margin() -> None:
    assert PeerFile(id=1, detection="90ms").of(LinkSettings).detection_ns == 90 * MS
