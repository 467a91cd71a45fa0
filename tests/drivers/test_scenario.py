"""A scenario says in one sentence what is wrong with it."""

from pathlib import Path
from typing import Any

import pytest

from tests.errors import raises
from wend.drivers.scenarios import Scenario, load_scenario, make_scenario
from wend.drivers.sim import simulate
from wend.drivers.world import build_world

NAN, INF = float("nan"), float("inf")
CRASH = {"up": {"kind": "fixed", "mean_s": 1.0}, "down": {"kind": "fixed", "mean_s": 1.0}}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"peers": 1}, "peers must be at least 2, got 1"),
        ({"peers": 5, "degree": 5}, "degree 5 needs at least 6 peers, got 5"),
        ({"peers": 5, "degree": 3}, "degree 3 times 5 peers is odd"),
        ({"peers": 4, "degree": 1}, "degree 1 cannot connect 4 peers"),
        ({"degree": 0}, "degree must be at least 1, got 0"),
        ({"degree": -2}, "degree must be at least 1, got -2"),
        ({"rate": -1.0}, "rate must lie in"),
        ({"rate": 0.0}, "rate must lie in"),
        ({"rate": NAN}, "rate must lie in .* got nan"),
        ({"rate": 1e-30}, "rate must lie in"),
        ({"factor": INF}, "factor must lie in"),
        ({"pf": 1.5}, "pf must lie in 0..1, got 1.5"),
        ({"pf": NAN}, "pf must lie in 0..1, got nan"),
        ({"pl": -0.1}, "pl must lie in 0..1"),
        ({"popularity": [0.8, 0.2]}, "popularity needs the lower value first, got 0.8 and 0.2"),
        ({"popularity": [0.8, 1.2]}, "popularity must lie in 0..1, got 1.2"),
        ({"interest": [0.2, 0.6]}, "^interest must be a text, got "),
        ({"delay": ["50ms", "10ms"]}, "delay needs the lower value first, got 50ms and 10ms"),
        ({"delay": ["0ms", "10ms"]}, "delay must lie in"),
        ({"delay": ["10ms", "infms"]}, "cannot read 'infms' as a duration"),
        ({"delay": ["10ms", "9e11ms"]}, "delay must lie in"),
        ({"delay": [NAN, 10.0]}, "delay needs a unit"),
        ({"duration": "2e8s"}, "duration must lie in"),
        ({"duration": 5}, '^duration needs a unit: "5s", not 5$'),
        ({"warmup": "0s"}, "warmup must lie in"),
        ({"drain": "-1s"}, "cannot read '-1s' as a duration"),
        ({"drain": "2e8s"}, "drain must lie in"),
        ({"heal": "nan"}, "cannot read 'nan' as a duration"),
        ({"heal": "2e8s"}, "heal must lie in"),
        ({"monitoring": "1e-12s"}, "monitoring must lie in"),
        ({"transmissions": 0}, "transmissions must be at least 1, got 0"),
        ({"topics": 0}, "topics must be at least 1"),
        ({"topics": 21}, "21 topics need 21 publishers, but there are 20 peers"),
        ({"retry_limit": 0}, "retry_limit must be at least 1"),
        ({"payload_bytes": -1}, "payload_bytes must be at least 0"),
        ({"seed": 2**80}, "seed must lie in"),
        ({"outages": {"up": {"kind": "exponential"}, "down": {"kind": "fixed", "mean_s": 1.0}}}, "outages.up: exponen"),
        ({"outages": {"up": {"kind": "fixed", "mean_s": NAN}, "down": {"kind": "fixed", "mean_s": 1.0}}}, "outages.up"),
        (
            {"peer_outages": {"up": {"kind": "fixed", "mean_s": 1.0}, "down": {"kind": "uniform", "low_s": 3.0}}},
            "peer_outages.down: uniform needs",
        ),
        ({"ack": "never"}, "^ack must be free or round-trip, got 'never'$"),
        ({"redundancy": "much"}, "^redundancy must be none, tight or free, got 'much'$"),
        ({"peers": "many"}, "^peers must be a whole number, got 'many'$"),
        ({"peers": 7.5}, "^peers must be a whole number, got 7.5$"),
        ({"factor": True}, "^factor must be a number, got True$"),
        ({"persistence": 1}, "^persistence must be true or false, got 1$"),
        ({"delay": ["1ms"]}, "^delay must be a list of 2, got 1$"),
        (
            {"outages": {"up": {"kind": "odd"}, "down": {"kind": "fixed"}}},
            "^outages.up.kind must be exponential, fixed or",
        ),
        ({"outages": {"up": {"kind": "fixed", "mean_s": 1.0}}}, "^outages lacks 'down'$"),
        ({"content": {"predicate": 3}}, "^content has no field 'predicate': did you mean predicates"),
        ({"weather": "fine"}, "^there is no setting 'weather'$"),
        ({"durations": "5s"}, "^there is no setting 'durations': did you mean duration?"),
        ({"outages": {"up": 3}}, "outages"),
        ({"mean_outage": "5s"}, "mean_outage concerns routers, and there are none: name an underlay"),
        ({"anonymous": 0.1}, "anonymous concerns routers"),
        ({"underlay": "brite", "anonymous": 1.1}, "anonymous must lie in 0..1, got 1.1"),
        ({"underlay": "brite", "mean_outage": "0s"}, "mean_outage must lie in"),
        ({"underlay": "brite", "last_mile": "0ms"}, "last_mile must lie in"),
        (
            {"underlay": "brite", "topology": "topohub:topozoo/Abilene"},
            "linked by full-mesh or regular or random, not by topohub",
        ),
        (
            {"underlay": "brite", "mean_outage": "5s", "router_outages": CRASH},
            "how components fail: leave out router_outages$",
        ),
        (
            {"underlay": "brite", "mean_outage": "5s", "failures": "f"},
            "neither drawn nor healed: leave out mean_outage$",
        ),
    ],
)
def test_what_cannot_work_is_said_in_one_sentence(fields: dict[str, Any], said: str) -> None:
    with raises("invalid-setting", match=said) as error:
        make_scenario(fields)
    assert "\n" not in str(error.value)


def test_a_small_overlay_has_as_many_topics_as_peers_unless_it_says_otherwise() -> None:
    worlds = [build_world(make_scenario({"peers": n, "degree": 2})) for n in (3, 9, 10, 30)]
    assert [len(world.topics) for world in worlds] == [3, 9, 10, 10]
    on_map = build_world(make_scenario({"topology": "topohub:topozoo/Abilene", "peers": 5}))
    assert len(on_map.topics) == 10, "a map has its own peers"
    with raises("invalid-setting", match="10 topics need 10 publishers, but there are 8 peers"):
        make_scenario({"peers": 8, "topics": 10})


def test_unknown_strategy() -> None:
    with raises("invalid-setting", match=r"unknown strategy 'fastest': choose one of .*dcrd.*oracle"):
        simulate(Scenario(strategy="fastest"))


def test_unknown_topology() -> None:
    with raises("invalid-setting", match="'torus' is neither full-mesh, regular, topohub:<name> nor a file"):
        build_world(Scenario(topology="torus"))


def test_unknown_underlay() -> None:
    with raises("invalid-setting", match="there is no network 'sand'; known are transit-stub, "):
        build_world(Scenario(underlay="sand"))


def test_more_peers_than_routers() -> None:
    with raises("invalid-setting", match="20 peers need as many access routers, but topohub:topozoo/Abilene has 11"):
        build_world(Scenario(underlay="topohub:topozoo/Abilene"))


def test_too_many_topics_for_a_map() -> None:
    with raises("invalid-setting", match="12 topics need 12 publishers, but there are 11 peers"):
        build_world(Scenario(topology="topohub:topozoo/Abilene", topics=12))


def test_the_oracle_knows_no_peers_that_leave() -> None:
    outages = {"up": {"kind": "fixed", "mean_s": 1.0}, "down": {"kind": "fixed", "mean_s": 1.0}}
    with raises("invalid-setting", match="leave churn out"):
        simulate(make_scenario({"strategy": "oracle", "churn": outages}))


# ---------------------------------------------------------------- files


def test_a_file_and_what_overrides_it(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text('strategy = "d-tree"\npeers = 12\n[outages]\nup = {kind = "exponential", mean_s = 9.0}\n'
                    'down = {kind = "fixed", mean_s = 1.0}\n')  # fmt: skip
    scenario = load_scenario(path, peers=14)
    assert (scenario.strategy, scenario.peers) == ("d-tree", 14)
    assert scenario.outages is not None
    assert scenario.outages.up.mean_s == 9.0


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with raises("unreadable"):
        load_scenario(tmp_path / "none.toml")
    with raises("unreadable"):
        load_scenario(tmp_path)


@pytest.mark.parametrize("content", [b"peers = ", b"= 3", b"\xff\xfe", b"[outages", b"peers = 3\npeers = 4"])
def test_a_malformed_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with raises("unreadable"):
        load_scenario(path)


def test_a_wrong_field_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("peers = 5\ndegree = 7\n")
    with raises("invalid-setting", match=r"wrong.toml: degree 7 needs at least 8 peers, got 5"):
        load_scenario(path)


def test_a_change_is_checked_again() -> None:
    assert Scenario().with_(pf=0.5).pf == 0.5
    with raises("invalid-setting"):
        Scenario().with_(pf=5.0)
    with raises("invalid-setting", match="transmissions must be at least 1"):
        Scenario().with_(transmissions=0)
    with raises("invalid-setting"):
        Scenario(peers=1)
