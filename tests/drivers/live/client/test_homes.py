"""Durable subscriptions of clients that know several peers: every home has them, the application sees one stream."""

import asyncio
from collections.abc import Iterable

import pytest

import wend
from tests.drivers.live.net import PAIR, Site, overlay, run, take, until
from tests.errors import raises
from wend.drivers.live.client import durable_subscription
from wend.drivers.live.client.arrivals import DurableArrival
from wend.protocol.ports import Deliver

X = "topic = 'x'"
TRIANGLE = [(0, 1), (1, 2), (0, 2)]


def both(*sites: Site) -> str:
    """The URL of these peers."""
    return ",".join(site.url for site in sites)


def waiting(site: Site) -> int:
    """How many events wait at a home."""
    return sum(status.events for status in site.broker.durable.status())


def payloads(arrivals: Iterable[wend.Arrival]) -> list[bytes]:
    return [arrival.payload for arrival in arrivals]


async def interested(publisher: Site, homes: int) -> None:
    """Until a peer knows so many peers with a subscription."""
    await until(lambda: len(publisher.peer.interested_peers({"topic": "x"})) == homes)


async def leave(site: Site) -> None:
    """Crash a peer, with its listener."""
    await site.listener.stop()
    site.peer.close()


async def publish(client: wend.Client, *contents: str) -> None:
    for content in contents:
        await client.publish({"topic": "x"}, content.encode())


def test_when_a_home_is_gone_the_events_come_from_another_once_and_in_order() -> None:
    async def scene() -> None:
        async with (
            overlay(TRIANGLE) as (a, b, c),
            wend.connect(c.url) as publisher,
            wend.connect(both(a, b)) as client,
            client.subscribe(X, name="orders", order="publisher") as events,
        ):
            await until(lambda: events.homes == (0, 1))
            await interested(c, 2)
            await publish(publisher, "1", "2", "3")
            assert (await anext(events)).payload == b"1"
            await until(lambda: waiting(a) == waiting(b) == 3)
            await leave(a)
            await publish(publisher, "4")
            assert payloads(await take(events, 3)) == [b"2", b"3", b"4"]
            await until(lambda: events.peer == 1 and events.homes == (1,))
            await publish(publisher, "5")
            last = await anext(events)
            assert (last.payload, events.missed) == (b"5", {})

    run(scene())


def test_a_confirmation_reaches_every_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_subscription, "STANDBY_NS", 10**12)

    async def scene() -> None:
        async with (
            overlay(PAIR) as (a, b),
            wend.connect(both(a, b)) as client,
            client.subscribe(X, name="orders", ack="explicit") as events,
        ):
            await until(lambda: events.homes == (0, 1))
            await interested(a, 2)
            await publish(client, "1", "2")
            first, second = await take(events, 2)
            assert isinstance(first, DurableArrival) and isinstance(second, DurableArrival)
            second.ack()
            await until(lambda: waiting(a) == waiting(b) == 1)
            first.ack()
            await until(lambda: waiting(a) == waiting(b) == 0)

    run(scene())


def test_a_home_that_was_away_gets_the_confirmations_when_it_is_back() -> None:
    async def scene() -> None:
        async with (
            overlay(PAIR) as (a, b),
            wend.connect(b.url) as publisher,
            wend.connect(both(b, a)) as client,
            client.subscribe(X, name="orders") as events,
        ):
            await until(lambda: events.homes == (1, 0))
            address = a.listener.address
            await interested(b, 2)
            await a.listener.stop()
            await until(lambda: events.homes == (1,))
            await publish(publisher, "1", "2", "3")
            assert (await anext(events)).payload == b"1"
            assert payloads(await take(events, 2)) == [b"2", b"3"]
            await until(lambda: waiting(a) >= 3)
            await a.listener.start(address)
            await until(lambda: events.homes == (1, 0) and waiting(a) <= 1)
            await publish(publisher, "4")
            assert (await anext(events)).payload == b"4", "nothing comes twice"

    run(scene())


def test_a_home_that_falls_behind_gives_way_to_one_on_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_subscription, "STANDBY_NS", 10**7)

    async def scene() -> None:
        async with (
            overlay(TRIANGLE) as (a, b, c),
            wend.connect(c.url) as publisher,
            wend.connect(both(a, b)) as client,
            client.subscribe(X, name="orders") as events,
        ):
            await until(lambda: events.homes == (0, 1))
            await interested(c, 2)

            def silent(delivery: Deliver) -> None:
                """The peer hangs, and its connections stay open."""

            monkeypatch.setattr(a.broker, "deliver", silent)
            await publish(publisher, "1")
            assert (await anext(events)).payload == b"1"
            assert events.peer == 1 and events.homes == (0, 1)
            await publish(publisher, "2")
            assert (await anext(events)).payload == b"2"

    run(scene())


def test_the_next_client_gets_what_was_not_confirmed_and_the_rest_is_gone_everywhere() -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, b), wend.connect(b.url) as publisher:
            async with wend.connect(both(a, b)) as client, client.subscribe(X, name="orders") as events:
                await until(lambda: events.homes == (0, 1))
                await interested(b, 2)
                await publish(publisher, "1", "2", "3")
                assert (await anext(events)).payload == b"1"
                await anext(events)  # confirms the first
            await until(lambda: waiting(a) == waiting(b) == 1)
            async with wend.connect(both(b, a)) as client, client.subscribe(X, name="orders") as events:
                again = await anext(events)
                assert (again.payload, again.redelivered) == (b"3", True)
                await publish(publisher, "4")
                assert (await anext(events)).payload == b"4"

    run(scene())


def test_another_client_takes_over_at_all_homes() -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, b), wend.connect(both(a, b)) as one, wend.connect(both(a, b)) as other:
            first = await one.subscribe(X, name="orders")
            await until(lambda: first.homes == (0, 1))
            second = await other.subscribe(X, name="orders")
            with raises("taken-over"):
                await anext(first)
            await until(lambda: second.homes == (0, 1))
            await second.close()

    run(scene())


def test_two_addresses_of_one_peer_are_one_home() -> None:
    async def scene() -> None:
        async with (
            overlay([]) as (a,),
            wend.connect(f"{a.url},localhost:{a.listener.address[1]}") as client,
            client.subscribe(X, name="orders") as events,
        ):
            await publish(client, "1", "2")
            assert payloads(await take(events, 2)) == [b"1", b"2"]
            assert events.homes == (0,)

    run(scene())


def test_a_subscription_opens_while_a_home_is_away_and_ends_if_all_refuse_it() -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, b), wend.connect(f"wend://127.0.0.1:1,{b.url},{a.url}") as client:
            async with client.subscribe(X, name="orders") as events:
                await until(lambda: set(events.homes) == {0, 1})
            with raises("filter-syntax"):
                await client.subscribe("topic =", name="other")

    run(scene())


def test_a_subscription_is_removed_from_all_homes() -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, b), wend.connect(both(a, b)) as client:
            async with client.subscribe(X, name="orders") as events:
                await until(lambda: events.homes == (0, 1))
            await client.remove_subscription("orders")
            assert not a.broker.durable.status() and not b.broker.durable.status()
            with raises("unknown-subscription"):
                await client.remove_subscription("orders")

    run(scene())


def test_a_closed_client_ends_its_subscriptions_at_all_homes() -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, b):
            before = len(asyncio.all_tasks())
            client = await wend.connect(both(a, b))
            events = await client.subscribe(X, name="orders")
            await until(lambda: events.homes == (0, 1))
            await client.close()
            with raises("closed"):
                await anext(events)
            await until(lambda: a.counts["now"] == b.counts["now"] == 0)
            assert len(asyncio.all_tasks()) == before

    run(scene())
