"""Clients whose connection is gone for a while, or for good."""

import asyncio
from typing import Any

import pytest

import wend
from tests.drivers.live.net import overlay, run, take, until
from tests.errors import raises


def test_a_client_comes_back_and_brings_its_subscriptions() -> None:
    async def scene() -> None:
        async with (
            overlay([]) as (a,),
            wend.connect(a.url) as client,
            client.subscribe("topic = 'x'") as events,
        ):
            for session in list(a.listener.sessions):
                session.end()
            await until(lambda: client.reconnects == 1)
            await until(lambda: bool(a.broker.subscriptions))
            await client.publish({"topic": "x"}, b"after")
            assert (await anext(events)).payload == b"after"

    run(scene())


def test_subscribing_while_the_connection_is_away_asks_once() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            for session in list(a.listener.sessions):
                session.end()
            await until(lambda: not client.connected)
            async with client.subscribe("topic = 'x'") as events:
                assert client.reconnects == 1
                await client.publish({"topic": "x"}, b"after")
                assert (await anext(events)).payload == b"after"

    run(scene())


def test_a_subscription_that_nobody_waits_for_any_more_does_not_stay_at_the_peer() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            for number in range(3):
                opening = asyncio.create_task(client.subscribe(f"topic = 't{number}'").__aenter__())
                await asyncio.sleep(0)  # the question is on its way
                opening.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await opening
            assert (await client.publish({"topic": "t0"})).targets == 0
            assert not a.broker.subscriptions
            client.timeout = 0.0
            with raises("timeout"):
                async with client.subscribe("topic = 'x'"):
                    pass
            client.timeout = 60.0
            assert (await client.publish({"topic": "x"})).targets == 0
            async with client.subscribe("topic = 'x'"):
                assert len(a.broker.subscriptions) == 1

    run(scene())


def test_a_no_to_a_restored_subscription_ends_it_with_its_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with (
            overlay([]) as (a,),
            wend.connect(a.url) as client,
            client.subscribe("topic = 'x'") as events,
        ):

            def full(*_: Any) -> None:
                raise wend.Refused("no room here")

            monkeypatch.setattr(a.broker, "subscribe", full)
            for session in list(a.listener.sessions):
                session.end()
            with raises("refused", match="no room here"):
                await anext(events)
            assert (await client.publish({"topic": "x"})).targets == 0

    run(scene())


def test_a_peer_that_stays_away_ends_everything_with_a_sentence() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            client = await wend.connect(a.url, patience=0.2)
            events = client.subscribe("topic = 'x'")
            async with events:
                await a.listener.stop()
                with raises("unreachable"):
                    await anext(events)
                with raises("unreachable"):
                    await client.publish({"topic": "x"})
            await client.close()

    run(scene())


def test_nobody_there_is_one_sentence() -> None:
    async def scene() -> None:
        with raises("unreachable"):
            await wend.connect("wend://127.0.0.1:1")
        with raises("invalid-setting", match="looks like wend://"):
            await wend.connect("http://127.0.0.1:1")

    run(scene())


@pytest.mark.parametrize("how", ["publish", "post"])
def test_the_ttl_of_an_event_includes_the_time_without_a_connection(how: str) -> None:
    async def scene() -> None:
        async with (
            overlay([]) as (a,),
            wend.connect(a.url) as client,
            client.subscribe("topic = 'x'") as events,
        ):
            publish = client.publish if how == "publish" else client.post
            for session in list(a.listener.sessions):
                session.end()
            await until(lambda: not client.connected)
            hasty = asyncio.create_task(publish({"topic": "x"}, b"short-lived", ttl=0.001))
            patient = asyncio.create_task(publish({"topic": "x"}, b"long-lived", ttl=60.0))
            with raises("expired"):
                await hasty
            await patient
            (arrived,) = await take(events, 1)
            assert arrived.payload == b"long-lived"

    run(scene())
