"""Events on trees, simulated whole: nothing is lost and nothing comes twice while links and peers go."""

import pytest
from msgspec.structs import replace

from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.checks import check_properties
from wend.drivers.sim.engine import Engine
from wend.drivers.world import World, build_world
from wend.model.units import SECOND
from wend.protocol.peer import Peer
from wend.protocol.ports import Started
from wend.strategies.trees.interest import TreeInterest
from wend.topology.faults import Intervals
from wend.topology.graph import Overlay


def calm(**changes: object) -> Scenario:
    fields = {"peers": 10, "degree": 4, "pf": 0.0, "pl": 0.0, "topics": 4, "duration": "12s", "warmup": "6s"}
    return Scenario(strategy="mrst", drain="10s").with_(**{**fields, **changes})


def played(world: World) -> Engine:
    engine = Engine(world)
    engine.run()
    return engine


def undelivered(engine: Engine) -> list[object]:
    got = {(tuple(row[1:4]), row[4]) for row in engine.trace.deliveries.rows()}
    return [(id_, s) for id_, (_, subscribers) in engine.expected.items() for s in subscribers if (id_, s) not in got]


@pytest.mark.parametrize("strategy", ["mrst", "spt-k"])
def test_every_subscriber_gets_every_event_once(strategy: str) -> None:
    engine = played(build_world(calm(strategy=strategy)))
    assert undelivered(engine) == []
    rows = [tuple(row[1:6]) for row in engine.trace.deliveries.rows()]
    assert len(rows) == len(set(rows)) > 0
    assert engine.drops == {}
    assert engine.network.control[f"{strategy}-trees"] > 0
    assert engine.network.control["trees"] > 0, "filters along the trees"


def test_filters_by_content_find_their_events() -> None:
    engine = played(build_world(calm(content={"predicates": (1, 2), "attributes": 3, "domain": 16})))
    assert undelivered(engine) == [] and len(engine.trace.deliveries) > 0


@pytest.mark.parametrize("strategy", ["mrst", "spt-k"])
def test_nothing_is_lost_when_a_link_of_a_tree_is_cut_for_good(strategy: str) -> None:
    """Every link in turn would be many runs; those of peer 0 are some, and one of them is on a tree."""
    scenario = calm(strategy=strategy)
    for other in build_world(scenario).overlay.neighbours(0)[:2]:
        world = build_world(scenario)
        cut = world.overlay.link(0, other)
        world.faults = Intervals(len(world.overlay.links), [(cut, world.begin_ns + 3 * SECOND, world.end_ns)])
        engine = played(world)
        assert undelivered(engine) == [], f"link {other}"
        rows = [tuple(row[1:6]) for row in engine.trace.deliveries.rows()]
        assert len(rows) == len(set(rows))


def test_nothing_is_lost_for_the_living_when_a_peer_dies() -> None:
    scenario = calm(duration="15s", drain="15s")
    publishers = {topic.publisher for topic in build_world(scenario).topics}
    for dead in [peer for peer in range(10) if peer not in publishers][:2]:
        world = build_world(scenario)
        world.peer_faults = Intervals(10, [(dead, world.begin_ns + 4 * SECOND, world.end_ns + SECOND)])
        engine = played(world)
        assert [(id_, s) for id_, s in undelivered(engine) if s != dead] == [], f"peer {dead}"


def test_a_restarted_peer_joins_the_next_generation() -> None:
    world = build_world(calm(duration="20s"))
    dead = next(p for p in range(10) if p not in {topic.publisher for topic in world.topics})
    world.peer_faults = Intervals(10, [(dead, world.begin_ns + 2 * SECOND, world.begin_ns + 4 * SECOND)])
    engine = played(world)
    late = [(id_, s) for id_, s in undelivered(engine) if engine.expected[id_][0] > world.begin_ns + 12 * SECOND]
    assert late == []


def test_a_link_that_turns_out_to_be_bad_is_left_by_the_next_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers were told that no link loses anything; one that is on a tree loses every third packet."""
    calm_one = calm(topology="full-mesh", peers=5, trees=1, estimator="measured", monitoring="2s", rate=5.0)
    scenario = calm_one.with_(duration="50s", topics=5, popularity=(1.0, 1.0))
    overlay = build_world(scenario).overlay
    links = [replace(link, loss=0.33) if (link.a, link.b) == (0, 1) else link for link in overlay.links]
    world = World(scenario, Overlay(overlay.peers, links, overlay.names))
    told = world.make_start_input

    def flattered(peer: int) -> Started:
        start = told(peer)
        return replace(start, neighbours=tuple(replace(n, reliability=1.0) for n in start.neighbours))

    monkeypatch.setattr(world, "make_start_input", flattered)
    engine = played(world)
    assert engine.notices["trees-renewed"] >= 1
    peer = engine.peers[0]
    assert isinstance(peer, Peer) and isinstance(peer.interest, TreeInterest)
    generations = sorted(peer.interest.tables.by_generation.items())
    assert 1 in generations[0][1][0].neighbours and 1 not in generations[-1][1][0].neighbours
    assert undelivered(engine) == []


def test_promises_of_safety_and_integrity_hold_while_everything_fails() -> None:
    failing = calm(
        pl=0.02,
        outages={"up": {"kind": "exponential", "mean_s": 4.0}, "down": {"kind": "uniform", "high_s": 2.0}},
        peer_outages={"up": {"kind": "exponential", "mean_s": 9.0}, "down": {"kind": "exponential", "mean_s": 1.0}},
    )
    assert check_properties(simulate(failing), ("safety", "integrity")) == []
