"""What nobody wants any more goes nowhere: after an unsubscription, a goodbye, a death."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.harness import SimHarness, Stopping, published, subscribed
from wend.drivers.scenarios import Scenario
from wend.drivers.sim.engine import Engine
from wend.drivers.world import build_world
from wend.model.randomness import stream
from wend.model.scenario import Content
from wend.model.units import SECOND
from wend.protocol.peer import Peer
from wend.protocol.ports import Unsubscribed
from wend.strategies.trees.interest import TreeInterest
from wend.strategies.trees.queue import HOLD_NS
from wend.strategies.trees.routing import TreeRouting

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


class Ring(SimHarness):
    def __init__(self, strategy: str) -> None:
        super().__init__(RING, strategy, False, Path())

    def carried(self, topic: str) -> bool:
        """Whether an event that is published now crosses any link."""
        self.wait(2)
        before = self.moved
        self.tell(0, published(topic))
        self.wait(1)
        return self.moved > before

    def members(self) -> frozenset[int]:
        peer = self.peers[0]
        assert peer is not None and isinstance(peer.interest, TreeInterest)
        tables = peer.interest.tables.serving()
        assert tables is not None
        return tables[0].members


def played(strategy: str, scene: Callable[[Ring], None]) -> None:
    async def staged() -> None:
        async with Ring(strategy) as ring:
            ring.tell(2, subscribed(1, "a"))
            ring.tell(1, subscribed(1, "b"))
            ring.wait(5)
            scene(ring)

    asyncio.run(staged())


@pytest.fixture(params=["mrst", "spt-k"])
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_an_unsubscription_ends_what_is_sent_and_another_subscription_begins_it_again(strategy: str) -> None:
    def scene(ring: Ring) -> None:
        assert ring.carried("a") and not ring.carried("c")
        ring.tell(3, subscribed(7, "a"))
        ring.tell(2, Unsubscribed(1))
        assert ring.carried("a")
        ring.tell(3, Unsubscribed(7))
        assert not ring.carried("a") and ring.carried("b")
        ring.tell(2, subscribed(2, "a"))
        assert ring.carried("a")
        assert [(got.peer, got.subscription) for got in ring.got] == [(2, 1), (3, 7), (1, 1), (2, 2)]

    played(strategy, scene)


def test_who_says_goodbye_wants_nothing(strategy: str) -> None:
    def scene(ring: Ring) -> None:
        ring.tell(2, Stopping())
        assert not ring.carried("a") and ring.carried("b")

    played(strategy, scene)


def test_the_dead_are_forgotten_with_the_trees_that_they_were_on(strategy: str) -> None:
    def scene(ring: Ring) -> None:
        ring.crash(2)
        ring.wait(8)
        assert ring.members() == {0, 1, 3}
        assert not ring.carried("a") and ring.carried("b")
        ring.restart(2)
        ring.wait(5)
        assert ring.members() == {0, 1, 2, 3} and ring.carried("a")

    played(strategy, scene)


def test_nothing_is_held_for_the_dead_for_ever() -> None:
    def scene(ring: Ring) -> None:
        ring.crash(2)
        ring.wait(8)
        ring.carried("a")
        peer = ring.peers[0]
        assert peer is not None
        routing = peer.plugins["mrst"]
        assert isinstance(routing, TreeRouting) and list(routing.queue)
        ring.wait(HOLD_NS / SECOND + 1)
        assert not list(routing.queue)
        ring.wait(HOLD_NS / SECOND)
        ring.carried("a")
        assert not list(routing.queue)

    played("mrst", scene)


# ---------------------------------------------------------------- however short it is told


def told(how: str, seed: int) -> tuple[set[tuple[int, ...]], int, int]:
    scenario = Scenario(
        strategy="spt-k", seed=seed, peers=12, degree=4, pf=0.0, pl=0.0, topics=4, rate=4.0, duration="5s",
        content=Content(attributes=2, predicates=(1, 2), domain=16), covering=how,
    )  # fmt: skip
    world = build_world(scenario)
    drawn = stream(seed, "tests", "filters")
    ends = [sorted(drawn.integers(1, 17, 2).tolist()) for _ in range(12)]
    world.filters = tuple(f"a0 in [{low}, {high}]" for low, high in ends)
    engine = Engine(world)
    engine.run()
    wanted = {(*id_, s) for id_, (_, subscribers) in engine.expected.items() for s in subscribers}
    got = {tuple(row[1:5]) for row in engine.trace.deliveries.rows()}
    assert got == wanted and len(got) == len(engine.trace.deliveries) > 0
    filters = 0
    for peer in engine.peers:
        assert isinstance(peer, Peer) and isinstance(peer.interest, TreeInterest)
        for table in peer.interest.tables.serving() or []:
            for wants in (said for neighbour in table.neighbours for said in table.last_update(neighbour)):
                filters += sum(len(claim.filters) for claim in wants.claims)
    return got, engine.transmissions, filters


@pytest.mark.parametrize("seed", [1, 2])
def test_identity_covering_and_merging_carry_the_same_and_tell_less_and_less(seed: int) -> None:
    (a, sent_a, many), (b, sent_b, fewer), (c, sent_c, fewest) = (
        told(how, seed) for how in ("identity", "covering", "merging")
    )
    assert a == b == c and sent_a == sent_b == sent_c
    assert many > fewer > fewest
