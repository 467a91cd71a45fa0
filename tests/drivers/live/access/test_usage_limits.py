"""Limits of a client's usage at a live peer: they hold under clients that try."""

import asyncio
from typing import Any

import pytest

from tests.drivers.live.granting import granting
from tests.drivers.live.key_ring import KeyRing
from tests.drivers.live.net import run, until
from tests.errors import raises
from wend.drivers.live.access.grants import Grant, UsageLimits


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> KeyRing:
    return KeyRing(tmp_path_factory.mktemp("keys"))


def limited(**limits: Any) -> dict[str, Grant]:
    return {"plant": Grant(publish="true", subscribe="true", client_limits=UsageLimits(**limits))}


def test_connections_of_a_client_are_limited(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring, **limited(connections=2)) as s:
            async with s.connect("p", "plant"), s.connect("p", "plant"), s.connect("q", "plant"):
                with raises("connections-refused"):
                    await s.connect("p", "plant")
                assert s.counts["connections-refused"] == 1
            await until(lambda: s.counts["now"] == 0)
            async with s.connect("p", "plant"):
                pass

    run(scene())


def test_connections_of_a_group_are_limited(ring: KeyRing) -> None:
    async def scene() -> None:
        grants = {"plant": Grant(group_limits=UsageLimits(connections=2))}
        async with granting(ring, **grants) as s, s.connect("p", "plant"), s.connect("q", "plant"):
            with raises("connections-refused"):
                await s.connect("r", "plant")

    run(scene())


def test_subscriptions_are_limited_over_all_connections(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring, **limited(subscriptions=3)) as s:
            async with s.connect("p", "plant") as first, s.connect("p", "plant") as second:
                streams = [await client.subscribe(f"a = {i}") for i, client in enumerate((first, first, second))]
                with raises("subscriptions-refused"):
                    await second.subscribe("a = 5")
                await streams[0].close()
                await second.subscribe("a = 5")
                assert s.counts["subscriptions-refused"] == 1
            await until(lambda: s.counts["now"] == 0)
            async with s.connect("p", "plant") as third:
                for i in range(3):
                    await third.subscribe(f"a = {i}")

    run(scene())


@pytest.mark.parametrize("again", [False, True], ids=["one connection", "many connections"])
def test_the_rate_of_publications_is_limited(ring: KeyRing, again: bool) -> None:
    async def scene() -> None:
        async with granting(ring, **limited(events_per_s=10)) as s:

            async def attempt(count: int) -> int:
                async with s.connect("p", "plant") as client:
                    results = await asyncio.gather(
                        *(client.publish({"topic": "a"}) for _ in range(count)), return_exceptions=True
                    )
                assert all("may publish 10 events a second" in str(r) for r in results if isinstance(r, Exception))
                return sum(not isinstance(result, Exception) for result in results)

            accepted = sum([await attempt(5) for _ in range(8)]) if again else await attempt(40)
            assert accepted == 10 and s.counts["rate-refused"] == 30
            s.clock.now_s += 0.5
            assert await attempt(20) == 5
            s.clock.now_s += 100
            assert await attempt(20) == 10

    run(scene())


def test_the_bytes_of_publications_are_limited(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring, **limited(bytes_per_s=10_000)) as s, s.connect("p", "plant") as client:
            await client.publish({"topic": "a"}, b"x" * 50_000)  # more than a second's worth: the client has to wait
            for _ in range(4):
                with raises("rate-refused"):
                    await client.publish({"topic": "a"}, b"x")
                s.clock.now_s += 1
            s.clock.now_s += 2.0
            await client.publish({"topic": "a"}, b"x")

    run(scene())


def test_nothing_may_be_published_at_a_rate_of_0(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring, **limited(events_per_s=0)) as s, s.connect("p", "plant") as client:
            with raises("rate-refused"):
                await client.publish({"topic": "a"})

    run(scene())


def test_kept_bytes_are_limited(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring, **limited(kept_bytes=10_000)) as s, s.connect("p", "plant") as client:
            await client.publish({"topic": "a"}, b"x" * 3000, retain=True)
            await client.publish({"topic": "a"}, b"x" * 4000, retain=True)
            with raises("kept-refused"):
                await client.publish({"topic": "b"}, b"x" * 9000, retain=True)
            async with client.subscribe("topic = 'c'", name="one"):
                backlogs = {backlog.options.name: backlog.options for backlog in s.site.peer.peer.durable.values()}
                assert 5000 < backlogs["p/one"].max_bytes < 6000
                with raises("kept-refused"):
                    await client.subscribe("topic = 'd'", name="two")
            await client.remove_subscription("one")
            await client.unretain("a")
            async with client.subscribe("topic = 'd'", name="two"):
                pass
            assert s.counts["kept-refused"] == 2

    run(scene())
