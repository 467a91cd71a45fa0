"""Events on as many trees as a reliability target needs: it is met, and it costs less than all trees."""

from collections import defaultdict
from math import sqrt

import msgspec
import pytest

from tests.errors import raises
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.engine import Engine
from wend.drivers.world import World, build_world
from wend.model.events import EventId, PeerId
from wend.model.randomness import stream
from wend.protocol.peer import Peer
from wend.strategies.trees.interest import TreeInterest
from wend.topology.graph import Overlay

TREES = 3
TARGET = 0.97
EVENTS = 400
MARGIN = 3 * sqrt(TARGET * (1 - TARGET) / EVENTS)


def lossy(reliability: float | None) -> Engine:
    """All links lose packets, each by its own measure, which peers know."""
    scenario = Scenario(
        strategy="mrst", topology="full-mesh", peers=8, trees=TREES, pf=0.0, topics=2, rate=10.0,
        duration=f"{EVENTS / 10.0}s", reliability=reliability, trace_level="hops",
    )  # fmt: skip
    drawn = stream(1, "tests", "loss")
    overlay = build_world(scenario).overlay
    links = [msgspec.structs.replace(link, loss=float(drawn.uniform(0.01, 0.08))) for link in overlay.links]
    engine = Engine(World(scenario, Overlay(overlay.peers, links, overlay.names)))
    engine.run()
    return engine


def tree_edges(engine: Engine) -> dict[tuple[PeerId, PeerId], int]:
    """Which tree a link is on; no two share one."""
    found: dict[tuple[PeerId, PeerId], int] = {}
    for peer in engine.peers:
        assert isinstance(peer, Peer) and isinstance(peer.interest, TreeInterest)
        [tables] = peer.interest.tables.by_generation.values()
        for table in tables:
            for other in table.neighbours:
                assert found.setdefault((peer.me, other), table.tree) == table.tree
    return found


def first_go(engine: Engine) -> dict[tuple[PeerId, PeerId], float]:
    """By publisher and subscriber: the share of events that came on a tree on which no packet was lost on the way."""
    trees = tree_edges(engine)
    over: dict[EventId, dict[tuple[PeerId, PeerId], int]] = defaultdict(dict)
    for _, sender, receiver, *id_, _, arrived in engine.trace.hops.rows():
        over[EventId(*id_)].setdefault((sender, receiver), arrived)
    found: dict[tuple[PeerId, PeerId], list[bool]] = defaultdict(list)
    for id_, (_, subscribers) in engine.expected.items():
        came: set[PeerId] = set()
        for tree in range(TREES):
            reached, fresh = {id_.publisher}, [id_.publisher]
            while fresh:
                at = fresh.pop()
                for (sender, receiver), arrived in over[id_].items():
                    if sender == at and arrived and trees[sender, receiver] == tree and receiver not in reached:
                        reached.add(receiver)
                        fresh.append(receiver)
            came |= reached
        for subscriber in subscribers:
            found[id_.publisher, subscriber].append(subscriber in came)
    return {pair: sum(came) / len(came) for pair, came in found.items()}


def test_a_target_is_met_with_fewer_packets_than_all_trees_take() -> None:
    every, some, one = lossy(None), lossy(TARGET), lossy(0.01)
    assert some.notices["trees-spared"] > 0 and "trees-spared" not in every.notices
    assert one.transmissions < some.transmissions < 0.85 * every.transmissions
    shares = first_go(some)
    assert min(shares.values()) >= TARGET - MARGIN
    assert min(first_go(one).values()) < TARGET - MARGIN, "a single tree would have done"


@pytest.mark.parametrize("strategy", ["mrst", "spt-k"])
def test_whatever_the_target_nothing_is_lost_where_nothing_fails_for_good(strategy: str) -> None:
    scenario = Scenario(strategy=strategy, peers=10, degree=4, pf=0.0, pl=0.05, topics=3, duration="8s")
    s = simulate(scenario.with_(reliability=0.8)).summary
    assert s.notices["trees-spared"] > 0
    assert s.delivered == s.expected > 0


def test_a_target_lies_between_nothing_and_everything() -> None:
    for wrong, bound in ((0.0, "be above 0"), (-0.5, "be above 0"), (1.5, "be at most 1")):
        with raises("invalid-setting", match=f"reliability must {bound}(.0)?, got {wrong}"):
            Scenario(reliability=wrong)
