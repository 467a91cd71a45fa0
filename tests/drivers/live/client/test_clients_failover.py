"""Clients that know several peers, and go to the next one when their own is gone."""

import asyncio

import pytest

import wend
from tests.drivers.live.net import PAIR, known, overlay, run, until
from tests.errors import raises
from wend.drivers.live import frames
from wend.drivers.live.client import connection
from wend.drivers.live.transport import wire

NOBODY = "127.0.0.1:1"


def test_the_first_peer_that_answers_is_used() -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, b):
            there = b.url.removeprefix("wend://")
            async with wend.connect(f"wend://{NOBODY},{there}") as client:
                assert (client.peer, client.reconnects) == (1, 0)
            async with wend.connect(f"{a.url},{there}") as client:
                assert client.peer == 0
            async with wend.connect(f"{b.url}, {a.url}/") as client:
                assert client.peer == 1

    run(scene())


def test_nobody_at_any_address_is_one_sentence_that_names_them_all() -> None:
    async def scene() -> None:
        with raises("unreachable"):
            await wend.connect(f"wend://{NOBODY},127.0.0.1:2")
        with raises("invalid-setting", match="cannot read 'site:x' as an address"):
            wend.connect(f"wend://{NOBODY},site:x")

    run(scene())


def test_a_client_whose_peer_is_gone_continues_at_the_next() -> None:
    async def scene() -> None:
        async with (
            overlay(PAIR) as (a, b),
            wend.connect(f"{a.url},{b.url}") as client,
            client.subscribe("topic = 'x'") as events,
        ):
            assert (client.peer, events.peer) == (0, 0)
            await a.listener.stop()
            a.peer.close()
            await until(lambda: events.peer == 1)
            assert (client.peer, client.reconnects) == (1, 1)
            await client.publish({"topic": "x"}, b"there")
            assert (await anext(events)).payload == b"there"

    run(scene())


def test_a_client_returns_to_its_own_peer_where_that_answers() -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, b), wend.connect(f"wend://{NOBODY},{b.url},{a.url}") as client:
            for session in list(b.listener.sessions):
                session.end()
            await until(lambda: client.reconnects == 1)
            assert client.peer == 1

    run(scene())


def test_a_peer_that_falls_silent_counts_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SILENCE_S", 0.05)

    async def scene() -> None:
        asked = []

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(wire.encode_frame(frames.Welcome(7, 1)))
            splitter = wire.FrameSplitter()
            while data := await reader.read(1000):
                asked.extend(wire.decode_to_peer(body) for body in splitter.feed(data))
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with overlay([]) as (a,), wend.connect(f"wend://127.0.0.1:{port},{a.url}") as client:
            assert client.peer == 7
            server.close()
            await until(lambda: client.reconnects == 1)
            assert client.peer == 0
            await known(client, "x", 0)
        assert asked == [frames.Greet(batches=True), frames.PingFrame(0)]

    run(scene())


def test_a_silent_peer_that_answers_when_asked_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SILENCE_S", 0.02)

    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            await asyncio.sleep(0.2)
            assert (await client.publish({"topic": "x"})).targets == 0
            assert client.reconnects == 0

    run(scene())
