"""Events for one peer alone, and there for subscriptions that were not announced: the interest is not asked."""

import asyncio
from pathlib import Path

import pytest

from tests.conformance.harness import SimHarness, published, subscribed
from wend.model.errors import ConfigError
from wend.model.publication import Publication
from wend.protocol.ports import LocalSubscription, Subscribed

RING = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]


async def begun(world: SimHarness) -> None:
    """Until all peers know of each other."""
    for peer in world.ids:
        world.tell(peer, subscribed(1, "a"))
        world.tell(peer, Subscribed(LocalSubscription(2, "topic = 'a'", announced=False)))
    await world.until(lambda: len(world.tell(0, published("a")).targets) == len(world.ids))  # type: ignore[union-attr]
    await world.quiet()
    world.got.clear()


@pytest.mark.parametrize("strategy", ["adaptive", "dcrd", "d-tree", "r-tree", "multipath"])
@pytest.mark.parametrize("persistence", [False, True])
def test_only_the_named_peer_gets_it(tmp_path: Path, strategy: str, persistence: bool) -> None:
    async def scene() -> None:
        async with SimHarness(RING, strategy, persistence, tmp_path) as world:
            await begun(world)
            for peer in (2, 0):
                receipt = world.tell(0, Publication({"topic": "a"}, b"for one", to=peer))
                assert receipt is not None and receipt.targets == (peer,)
                await world.quiet()
            found = [(got.peer, got.subscription, got.payload) for got in world.got]
            assert found == [(2, 2, b"for one"), (0, 2, b"for one")]
            world.tell(0, published("a", b"for all"))
            await world.quiet()
            assert {got.subscription for got in world.got[2:]} == {1} and len(world.got) == 2 + len(world.ids)

    asyncio.run(scene())


def test_it_waits_for_a_peer_that_cannot_be_reached(tmp_path: Path) -> None:
    async def scene() -> None:
        async with SimHarness([(0, 1), (1, 2)], "adaptive", True, tmp_path) as world:
            await begun(world)
            world.cut(1, 2)
            receipt = world.tell(0, Publication({"topic": "a"}, b"later", to=2))
            assert receipt is not None and receipt.kept
            await world.quiet()
            assert not world.got
            world.heal(1, 2)
            await world.until(lambda: bool(world.got))

    asyncio.run(scene())


@pytest.mark.parametrize("strategy", ["mrst", "scribe"])
def test_a_strategy_that_names_no_destinations_says_so(tmp_path: Path, strategy: str) -> None:
    async def scene() -> None:
        async with SimHarness([(0, 1)], strategy, False, tmp_path) as world:
            with pytest.raises(ConfigError, match=f"strategy {strategy} does not name the destinations of events"):
                world.tell(0, Publication({"topic": "a"}, to=1))

    asyncio.run(scene())
