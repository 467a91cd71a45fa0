"""Who comes to the clients' door and does not speak as clients do."""

import asyncio
import struct

import pytest

import wend
from tests.drivers.live.net import overlay, run
from wend.drivers.live import frames


def test_a_subscription_numbered_below_one_is_refused() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            reader, writer = await asyncio.open_connection(*a.server.address)
            writer.write(frames.encode(frames.Greet()))
            for handle in (0, -1):
                writer.write(frames.encode(frames.Subscribe(5, handle, "topic = 'x'")))
            splitter, answers = frames.Splitter(), list[frames.ToClient]()
            while len(answers) < 3:
                answers += [frames.decode_to_client(body) for body in splitter.feed(await reader.read(1 << 16))]
            assert all(isinstance(answer, frames.No) and "starts at 1" in answer.why for answer in answers[1:])
            assert not a.server._numbers
            writer.close()

    run(scene())


def test_a_connection_that_never_greets_is_closed_and_one_that_greets_stays() -> None:
    async def scene() -> None:
        async with overlay([], greet_s=0.2) as (a,), wend.connect(a.url) as client:
            reader, writer = await asyncio.open_connection(*a.server.address)
            assert b"has to greet" in await reader.read()
            writer.close()
            assert a.server.counts["silent"] == 1
            assert (await client.publish({"topic": "x"})).targets == 0 and client.reconnects == 0

    run(scene())


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!I", 2**31) + b"x",
        struct.pack("!I", 5) + b"\xc1\xc1\xc1\xc1\xc1",
        frames.encode(frames.Greet(version=99)),
        frames.encode(frames.PingFrame(1)),
        frames.encode(frames.Greet()) + struct.pack("!I", 3) + b"abc",
    ],
    ids=["http", "too long", "garbage", "another version", "no greeting", "garbage later"],
)
def test_a_stranger_at_the_clients_door_is_answered_and_sent_away(noise: bytes) -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            reader, writer = await asyncio.open_connection(*a.server.address)
            writer.write(noise)
            await reader.read()
            writer.close()
            assert a.server.counts["garbage"] == 1
            assert (await client.publish({"topic": "x"})).targets == 0

    run(scene())
