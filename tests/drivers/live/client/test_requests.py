"""Requests of clients, and replies to them, also across peers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import wend
from tests.drivers.live.net import PAIR, Site, overlay, run, take, until
from tests.errors import raises
from wend.drivers.live.peer import LivePeer
from wend.protocol.config import PeerConfig
from wend.protocol.ports import Started

LINE = [(0, 1), (1, 2)]


async def answer(events: wend.EventStream) -> None:
    async for event in events:
        await event.reply(b"re: " + event.payload, {"load": 3}, {"unit": "jobs"})


@asynccontextmanager
async def replier(url: str, filter: str = "topic = 'ask'") -> AsyncIterator[wend.EventStream]:
    """A client that answers every request."""
    async with wend.connect(url) as client, client.subscribe(filter) as events:
        task = asyncio.create_task(answer(events))
        yield events
        task.cancel()


async def asked(client: wend.Client, payload: bytes = b"x", timeout: float = 10.0) -> wend.Arrival:
    """Until somebody is subscribed."""
    while True:
        try:
            return await client.request({"topic": "ask"}, payload, timeout=timeout)
        except wend.NoReply as error:
            assert str(error) == "nobody is subscribed to this request"
            await asyncio.sleep(0.01)


def test_a_request_is_answered_across_peers() -> None:
    async def scene() -> None:
        async with overlay(LINE) as (a, _, c), replier(c.url), wend.connect(a.url) as client:
            reply = await asked(client, b"how many?")
            assert (reply.payload, reply.id.publisher) == (b"re: how many?", 2)
            assert (reply.attributes["load"], reply.headers["unit"]) == (3, "jobs")
            many = [client.request({"topic": "ask"}, b"%d" % number) for number in range(20)]
            assert [reply.payload for reply in await asyncio.gather(*many)] == [b"re: %d" % n for n in range(20)]
            # no other peer was told of the inbox
            assert "wend.inbox" in "".join(a.broker.subscriptions)
            assert len(a.peer.peer.plugins["flooded"].table.interests[0].subscriptions) == 0  # type: ignore[attr-defined]
            assert "wend.inbox" not in str(c.peer.peer.plugins["flooded"].table.interests)  # type: ignore[attr-defined]

    run(scene())


def test_a_request_at_the_same_peer_is_answered() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), replier(a.url), wend.connect(a.url) as client:
            assert (await client.request({"topic": "ask"}, b"here")).payload == b"re: here"
            async with client.subscribe("true") as everything:
                assert (await client.request({"topic": "ask"}, b"again", {"a": "b"})).payload == b"re: again"
                await client.publish({"topic": "x"}, b"last")
                seen = [event.payload for event in await take(everything, 2)]
                assert seen == [b"again", b"last"]  # not the reply

    run(scene())


def test_nobody_to_ask_is_said_at_once_and_silence_after_the_time() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            with raises("nobody-subscribed"):
                await client.request({"topic": "ask"})
            async with client.subscribe("topic = 'ask'") as events:
                with raises("no-reply"):
                    await client.request({"topic": "ask"}, timeout=0.05)
                request = await anext(events)
                assert (await request.reply(b"too late")).targets == 1  # nobody waits, and nothing happens
                assert (await client.publish({"topic": "ask"})).targets == 1
                event = await anext(events)
                with raises("invalid-call", match="this event is not a request"):
                    await event.reply(b"?")
                with raises("invalid-call", match="leave out topic"):
                    await request.reply(b"?", {"topic": "mine"})

    run(scene())


def test_the_first_reply_counts() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), replier(a.url), replier(a.url), wend.connect(a.url) as client:
            for number in range(5):
                assert (await client.request({"topic": "ask"}, b"%d" % number)).payload == b"re: %d" % number

    run(scene())


def test_a_reply_to_a_client_that_is_gone_is_counted() -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, b), wend.connect(b.url) as there, there.subscribe("topic = 'ask'") as events:
            client = await wend.connect(a.url)
            asking = asyncio.create_task(asked(client))
            request = await anext(events)
            asking.cancel()
            await client.close()
            await until(lambda: not a.broker.subscriptions)
            await request.reply(b"anybody?")
            await until(lambda: a.peer.counters.notices["no-subscriber"] > 0)

    run(scene())


def test_requests_work_over_a_new_connection() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), replier(a.url), wend.connect(a.url) as client:
            assert (await client.request({"topic": "ask"}, b"1")).payload == b"re: 1"
            for session in list(a.listener.sessions):
                session.end()
            await until(lambda: client.reconnects == 1)
            assert (await asked(client, b"2")).payload == b"re: 2"

    run(scene())


def test_a_request_fails_when_its_client_goes_to_another_peer() -> None:
    async def scene() -> None:
        async with (
            overlay(PAIR) as (a, b),
            wend.connect(f"{a.url},{b.url}") as client,
            wend.connect(b.url) as there,
            there.subscribe("topic = 'ask'") as events,
        ):
            asking = asyncio.create_task(asked(client))
            await anext(events)
            await a.listener.stop()
            with raises("connection-lost"):
                await asking
            await client.close()
            with raises("closed"):
                await client.request({"topic": "ask"})

    run(scene())


def test_a_strategy_that_names_no_destinations_refuses_requests() -> None:
    async def scene() -> None:
        site = Site(LivePeer(PeerConfig(peer=0, strategy="mrst")))
        await site.listener.start()
        site.peer.start(Started(()))
        async with wend.connect(site.url) as client:
            with raises("not-supported"):
                await client.request({"topic": "ask"})
        await site.listener.stop()
        site.peer.close()

    run(scene())
