"""Peers that choose their neighbours by themselves, simulated whole, with events on the trees that they grow."""

import pytest

from tests.errors import raises
from tests.strategies.tdo.worlds import LINKING, Underlay
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.checks import check, promised_properties
from wend.drivers.sim.engine import Engine
from wend.drivers.world import build_world
from wend.model.units import SECOND
from wend.strategies.registry import linked_strategies
from wend.topology.faults import Intervals

PEERS = 9


def free(kind: str, **changes: object) -> Scenario:
    fields = {"topology": "full-mesh", "peers": PEERS, "pf": 0.0, "pl": 0.001, "topics": 3, "duration": "8s"}
    return Scenario(strategy="mrst", warmup="40s", drain="8s").with_(membership=kind, **{**fields, **changes})


def undelivered(engine: Engine) -> list[object]:
    got = {(tuple(row[1:4]), row[4]) for row in engine.trace.deliveries.rows()}
    return [(id_, s) for id_, (_, subscribers) in engine.expected.items() for s in subscribers if (id_, s) not in got]


@pytest.mark.parametrize("kind", LINKING)
def test_every_subscriber_gets_every_event_over_links_that_peers_chose(kind: str) -> None:
    world = build_world(free(kind))
    world.paths = Underlay(3, 14, PEERS).path
    engine = Engine(world)
    engine.run()
    assert undelivered(engine) == [] and len(engine.trace.deliveries) > 0
    linked = {(peer.me, other) for peer in engine.peers if peer is not None for other in peer.links}
    assert linked == {(b, a) for a, b in linked}
    if kind != "random":
        assert len(linked) < PEERS * (PEERS - 1)
        assert engine.notices["paths"] > 0


def test_the_overlay_closes_over_a_dead_peer() -> None:
    world = build_world(free("tdo-landmark", duration="20s", drain="20s"))
    world.paths = Underlay(3, 14, PEERS).path
    dead = next(p for p in range(PEERS) if p not in {topic.publisher for topic in world.topics})
    world.peer_faults = Intervals(PEERS, [(dead, world.begin_ns + 2 * SECOND, world.end_ns + SECOND)])
    engine = Engine(world)
    engine.run()
    assert [(id_, s) for id_, s in undelivered(engine) if s != dead] == []
    assert all(dead not in peer.links for peer in engine.peers if peer is not None)


def test_other_strategies_run_on_such_links_too() -> None:
    engine = Engine(build_world(free("tdo-random", strategy="adaptive")))
    engine.run()
    assert undelivered(engine) == []


@pytest.mark.parametrize("strategy", sorted(linked_strategies()))
def test_what_is_published_before_a_subscriber_is_known_is_stored_for_it(strategy: str) -> None:
    early = {"strategy": strategy, "peers": 6, "pl": 0.0, "warmup": "1s", "duration": "4s", "drain": "25s"}
    outcome = simulate(free("tdo-landmark", persistence=True, **early))
    assert len(promised_properties(outcome.world)) == 5
    assert check(outcome) == []
    assert outcome.summary.notices["queued"] > 0 and outcome.summary.missing == {}


def test_an_overlay_needs_peers_that_reach_each_other() -> None:
    with raises("invalid-setting", match="needs peers that all reach each other: full-mesh, not regular"):
        Scenario(membership="chain")
