"""One suite, two drivers: what a peer promises holds under virtual time and on real sockets, open and sealed."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.harness import HARNESSES, LIVE, Harness, Stopping, published, subscribed
from tests.multicasters import CASTS_OF_MEMBERS, Casts
from wend.model.publication import MAX_PAYLOAD_BYTES
from wend.model.units import MS, SECOND
from wend.protocol.ports import ContactFound, Unsubscribed
from wend.strategies.registry import MEMBERSHIP, load

Scene = Callable[[Harness], Awaitable[None]]
Links = list[tuple[int, int]]
Play = Callable[..., None]

LINE = [(0, 1), (1, 2)]
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
TREES = ["mrst", "spt-k"]
STRATEGIES = ["dcrd", "d-tree", "r-tree", "multipath", "adaptive"]
AT_ONCE = 12

_RUNS: Counter[str] = Counter()
"""Scenes run at the same time: the last one that has a membership from outside the tree takes it out."""


async def run(
    driver: str,
    folder: Path,
    scene: Scene,
    links: Links = LINE,
    strategy: str = "dcrd",
    persistence: bool = False,
    membership: str | None = None,
) -> None:
    if membership is not None:
        load("membership", membership)
        _RUNS[membership] += 1
    try:
        async with HARNESSES[driver](links, strategy, persistence, folder, membership) as world:
            await scene(world)
    finally:
        if membership is not None:
            _RUNS[membership] -= 1
            if not _RUNS[membership]:
                MEMBERSHIP.pop(membership, None)


@pytest.fixture(scope="session")
def live_results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, BaseException | None]:
    """How the live scenes ended, by test. They mostly wait, so several run at once, in one event loop."""
    running: dict[str, Any] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.module.__name__ == __name__:
            arguments = dict(item.callspec.params)
            if (driver := arguments.pop("play")) in LIVE:

                def play(*args: Any, test: str = item.nodeid, driver: str = driver, **options: Any) -> None:
                    running[test] = run(driver, tmp_path_factory.mktemp("live"), *args, **options)

                item.function(play, **arguments)

    async def run_all() -> list[BaseException | None]:
        free = asyncio.Semaphore(AT_ONCE)

        async def one(scene: Awaitable[None]) -> None:
            async with free:
                await scene

        return await asyncio.gather(*map(one, running.values()), return_exceptions=True)

    return dict(zip(running, asyncio.run(run_all()), strict=True))


@pytest.fixture(params=HARNESSES)
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Runs a scene; on real sockets it has run already."""
    if request.param not in LIVE:
        return lambda *args, **options: asyncio.run(run(request.param, tmp_path, *args, **options))
    error = request.getfixturevalue("live_results")[request.node.nodeid]

    def reported(*_: object, **__: object) -> None:
        if error is not None:
            raise error

    return reported


async def known(world: Harness, publisher: int, topic: str, targets: int) -> None:
    """Until the publisher has heard of so many interested peers; what it sends meanwhile is forgotten."""

    def reached() -> bool:
        receipt = world.tell(publisher, published(topic, b"are you there"))
        return receipt is not None and len(receipt.targets) == targets

    await world.until(reached)
    await world.quiet()
    world.got.clear()


def payloads(world: Harness, peer: int) -> list[bytes]:
    return sorted(got.payload for got in world.got if got.peer == peer)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_subscriber_gets_every_event_once(play: Play, strategy: str) -> None:
    async def scene(world: Harness) -> None:
        for peer in (1, 2, 3):
            world.tell(peer, subscribed(1, "a"))
        world.tell(2, subscribed(2, "another"))
        await known(world, 0, "a", 3)
        wanted = [b"%02d" % number for number in range(20)]
        for payload in wanted:
            world.tell(0, published("a", payload))
        await world.until(lambda: len(world.got) >= 60)
        await world.quiet()
        assert [payloads(world, peer) for peer in (1, 2, 3)] == [wanted] * 3
        assert {got.subscription for got in world.got} == {1}

    play(scene, RING, strategy)


@pytest.mark.parametrize("strategy", ["multipath", "adaptive", *TREES])
def test_a_large_event_arrives_once_from_its_blocks(play: Play, strategy: str) -> None:
    async def scene(world: Harness) -> None:
        for peer in (1, 2):
            world.tell(peer, subscribed(1, "a"))
        await world.until(lambda: arrives(world, 2))
        await world.quiet()
        world.got.clear()
        wanted = [bytes(random.Random(number).randbytes(20_000)) for number in range(5)]
        for payload in wanted:
            world.tell(0, published("a", payload))
        await world.until(lambda: len(world.got) >= 10)
        await world.quiet()
        assert [payloads(world, peer) for peer in (1, 2)] == [sorted(wanted)] * 2
        assert world.blocks > 5 * 20

    def arrives(world: Harness, peers: int) -> bool:
        world.tell(0, published("a", b"are you there"))
        return len({got.peer for got in world.got}) == peers

    play(scene, RING, strategy)


def test_subscriptions_at_the_publisher_and_twice_at_one_peer(play: Play) -> None:
    async def scene(world: Harness) -> None:
        world.tell(0, subscribed(1, "a"))
        world.tell(2, subscribed(1, "a"))
        world.tell(2, subscribed(2, "a"))
        await known(world, 0, "a", 2)
        world.tell(0, published("a", b"x"))
        await world.until(lambda: len(world.got) >= 3)
        await world.quiet()
        assert sorted((got.peer, got.subscription) for got in world.got) == [(0, 1), (2, 1), (2, 2)]

    play(scene)


def test_unsubscribing_stops_the_events(play: Play) -> None:
    async def scene(world: Harness) -> None:
        world.tell(1, subscribed(1, "a"))
        world.tell(2, subscribed(1, "a"))
        await known(world, 0, "a", 2)
        world.tell(2, Unsubscribed(1))
        await known(world, 0, "a", 1)
        world.tell(0, published("a", b"x"))
        await world.until(lambda: bool(world.got))
        await world.quiet()
        assert [got.peer for got in world.got] == [1]

    play(scene)


def test_a_peer_that_leaves_withdraws_its_interest(play: Play) -> None:
    async def scene(world: Harness) -> None:
        world.tell(2, subscribed(1, "a"))
        await known(world, 0, "a", 1)
        world.tell(2, Stopping())
        await known(world, 0, "a", 0)

    play(scene)


def test_what_comes_after_its_deadline_is_marked_and_still_delivered(play: Play) -> None:
    async def scene(world: Harness) -> None:
        world.tell(2, subscribed(1, "a", 1 * MS))
        world.tell(2, subscribed(2, "a", 60 * SECOND))
        world.tell(2, subscribed(3, "a"))
        await known(world, 0, "a", 1)
        world.tell(0, published("a", b"x"))
        await world.until(lambda: len(world.got) >= 3)
        assert {got.subscription: got.late for got in world.got} == {1: True, 2: False, 3: False}

    play(scene)


@pytest.mark.parametrize("strategy", ["dcrd", "adaptive"])
def test_events_find_their_way_around_a_cut_link_once(play: Play, strategy: str) -> None:
    async def scene(world: Harness) -> None:
        world.tell(1, subscribed(1, "a"))
        await known(world, 0, "a", 1)
        world.cut(0, 1)
        wanted = [b"%02d" % number for number in range(10)]
        for payload in wanted:
            world.tell(0, published("a", payload))
        await world.until(lambda: len(world.got) >= 10)
        await world.quiet()
        assert payloads(world, 1) == wanted

    play(scene, RING, strategy)


@pytest.mark.parametrize("strategy", ["dcrd", "adaptive"])
def test_what_cannot_go_on_is_kept_until_the_link_heals(play: Play, strategy: str) -> None:
    async def scene(world: Harness) -> None:
        world.tell(2, subscribed(1, "a"))
        await known(world, 0, "a", 1)
        world.cut(1, 2)
        for number in range(5):
            world.tell(0, published("a", b"%d" % number))
        await world.quiet()
        assert not world.got
        world.heal(1, 2)
        await world.until(lambda: len(world.got) >= 5)
        await world.quiet()
        assert payloads(world, 2) == [b"0", b"1", b"2", b"3", b"4"]

    play(scene, LINE, strategy, persistence=True)


@pytest.mark.parametrize("strategy", ["dcrd", "adaptive", "multipath"])
def test_a_removed_link_loses_nothing_and_a_new_one_serves(play: Play, strategy: str) -> None:
    """The link goes while events are in flight over it, and for a while there is no other."""

    async def scene(world: Harness) -> None:
        world.tell(2, subscribed(1, "a"))
        await known(world, 0, "a", 1)
        wanted = [b"%02d" % number for number in range(12)]
        for payload in wanted[:6]:
            world.tell(0, published("a", payload))
        world.unlink(0, 1)
        for payload in wanted[6:]:
            world.tell(0, published("a", payload))
        await world.quiet()
        assert set(payloads(world, 2)) <= set(wanted[:6])
        world.link(0, 2)
        await world.until(lambda: len(world.got) >= 12)
        await world.quiet()
        assert payloads(world, 2) == wanted

    play(scene, LINE, strategy, persistence=True)


@pytest.mark.parametrize("strategy", ["mrst", "adaptive"])
def test_events_go_around_a_removed_link(play: Play, strategy: str) -> None:
    async def scene(world: Harness) -> None:
        world.tell(1, subscribed(1, "a"))
        if strategy == "adaptive":  # trees hold events until they know who wants them
            await known(world, 0, "a", 1)
        await world.ages_tell()
        wanted = [b"%02d" % number for number in range(15)]
        for payload in wanted[:5]:
            world.tell(0, published("a", payload))
        await world.until(lambda: len(world.got) >= 5)
        for payload in wanted[5:10]:
            world.tell(0, published("a", payload))
        world.unlink(0, 1)
        for payload in wanted[10:]:
            world.tell(0, published("a", payload))
        await world.until(lambda: len(world.got) >= 15)
        await world.quiet()
        assert payloads(world, 1) == wanted

    play(scene, RING, strategy)


@pytest.mark.parametrize("strategy", TREES)
def test_trees_find_whoever_wants_it_and_go_around_a_cut_link(play: Play, strategy: str) -> None:
    """Nobody knows all who want an event there: what is published before the trees stand is held for them."""

    async def scene(world: Harness) -> None:
        for peer in (1, 2):
            world.tell(peer, subscribed(1, "a"))
        await world.ages_tell()
        wanted = [b"%02d" % number for number in range(10)]
        for payload in wanted[:5]:
            world.tell(0, published("a", payload))
        await world.until(lambda: len(world.got) >= 10)
        world.cut(0, 1)
        for payload in wanted[5:]:
            world.tell(0, published("a", payload))
        await world.until(lambda: len(world.got) >= 20)
        await world.quiet()
        assert [payloads(world, peer) for peer in (1, 2)] == [wanted] * 2

    play(scene, RING, strategy)


async def kept_over_a_crash(world: Harness) -> None:
    """Published over a link that is down, by a peer that then dies, and told when both are back."""
    world.tell(2, subscribed(1, "a"))
    await known(world, 0, "a", 1)
    world.cut(0, 1)
    receipt = world.tell(0, published("a", b"kept"))
    assert receipt is not None and receipt.kept
    world.crash(0)
    world.restart(0)
    world.heal(0, 1)
    await world.until(lambda: b"kept" in payloads(world, 2))
    await world.quiet()


def test_trees_keep_what_was_promised_over_a_crash(play: Play) -> None:
    async def scene(world: Harness) -> None:
        await kept_over_a_crash(world)
        assert payloads(world, 2).count(b"kept") == 1

    play(scene, LINE, "spt-k", persistence=True)


def test_a_publisher_that_returns_is_not_taken_for_its_former_self(play: Play) -> None:
    async def scene(world: Harness) -> None:
        world.tell(2, subscribed(1, "a"))
        await known(world, 0, "a", 1)
        world.tell(0, published("a", b"before"))
        await world.until(lambda: payloads(world, 2) == [b"before"])
        world.crash(0)
        world.restart(0)
        await known(world, 0, "a", 1)
        world.tell(0, published("a", b"after"))
        await world.until(lambda: payloads(world, 2) == [b"after"])

    play(scene)


def test_a_subscriber_that_returns_gets_what_follows(play: Play) -> None:
    async def scene(world: Harness) -> None:
        world.tell(2, subscribed(1, "a"))
        await known(world, 0, "a", 1)
        world.crash(2)
        world.restart(2)

        def arrives() -> bool:
            world.tell(0, published("a", b"hello again"))
            return bool(world.got)

        await world.until(arrives)

    play(scene)


def test_what_was_promised_survives_a_crash_of_the_publishing_peer(play: Play) -> None:
    async def scene(world: Harness) -> None:
        await kept_over_a_crash(world)
        assert payloads(world, 2) == [b"kept"]

    play(scene, LINE, "dcrd", persistence=True)


def test_a_large_event_survives_the_restart_of_a_peer_that_has_some_of_it(play: Play) -> None:
    async def scene(world: Harness) -> None:
        world.tell(2, subscribed(1, "a"))
        await known(world, 0, "a", 1)
        large = bytes(MAX_PAYLOAD_BYTES)
        world.tell(0, published("a", large))
        await world.until(lambda: world.unfinished(1) or bool(world.got))
        world.crash(1)
        world.restart(1)
        await world.until(lambda: bool(world.got))
        await world.quiet()
        assert payloads(world, 2) == [large]

    play(scene, LINE, "dcrd", persistence=True)


def test_a_multicast_reaches_all_members_but_those_behind_a_cut_link(play: Play) -> None:
    """It never comes back to its sender. A peer that crashed hears it again after it has joined again."""

    async def scene(world: Harness) -> None:
        def plugin(peer: int) -> Casts:
            found = world.plugin(peer, CASTS_OF_MEMBERS)
            assert isinstance(found, Casts)
            return found

        def heard_by(peers: tuple[int, ...], *numbers: int) -> bool:
            return all(plugin(peer).heard_asked == [(0, number) for number in numbers] for peer in peers)

        async def joined(*peers: int) -> None:
            """Where they have keys, they get that of the group, and may miss what came before."""
            await world.until(lambda: all(0 in dict(plugin(peer).heard) for peer in peers))

        await joined(1, 2, 3)
        world.tell(0, ContactFound(1))
        await world.until(lambda: heard_by((1, 2, 3), 101))
        world.cut(0, 1)
        world.tell(0, ContactFound(1))
        await world.until(lambda: heard_by((2, 3), 101, 102))
        world.heal(0, 1)
        world.crash(2)
        world.restart(2)
        await joined(2)
        world.tell(0, ContactFound(1))
        await world.until(lambda: heard_by((1,), 101, 103) and heard_by((2,), 103) and heard_by((3,), 101, 102, 103))
        world.tell(3, Stopping())
        world.tell(0, ContactFound(1))
        await world.until(lambda: heard_by((1,), 101, 103, 104))
        assert heard_by((3,), 101, 102, 103) and heard_by((0,))

    play(scene, [(a, b) for a in range(4) for b in range(a)], membership=CASTS_OF_MEMBERS)
