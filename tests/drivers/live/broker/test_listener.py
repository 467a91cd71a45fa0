"""Connections to the listener that do not behave as clients do."""

import asyncio
import struct

import pytest

import wend
from tests.drivers.live.net import RawClient, overlay, run
from wend.drivers.live import frames
from wend.drivers.live.transport import wire


def test_a_subscription_numbered_below_one_is_refused() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            raw = await RawClient.connect(a.listener.address)
            raw.send(frames.Greet(), *(frames.Subscribe(5, handle, "topic = 'x'") for handle in (0, -1)))
            _, *answers = await raw.receive(3)
            assert all(
                isinstance(answer, frames.RefusedFrame) and answer.code == "invalid-subscription" for answer in answers
            )
            assert not a.broker.subscriptions
            raw.close()

    run(scene())


def test_a_handle_is_used_once_and_may_be_given_up_twice() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            raw = await RawClient.connect(a.listener.address)
            raw.send(frames.Greet(), *(frames.Subscribe(ref, 1, f"topic = '{ref}'") for ref in (1, 2)))
            raw.send(*(frames.Unsubscribe(ref, 1) for ref in (3, 4)))
            _, first, second, *ended = await raw.receive(5)
            assert (first, ended) == (frames.Completed(1), [frames.Completed(3), frames.Completed(4)])
            assert second == frames.RefusedFrame(2, "invalid-subscription", "subscription 1 exists already")
            assert not a.broker.subscriptions
            raw.close()

    run(scene())


def test_a_connection_that_never_greets_is_closed_and_one_that_greets_stays() -> None:
    async def scene() -> None:
        async with overlay([], greet_s=0.05) as (a,), wend.connect(a.url) as client:
            reader, writer = await asyncio.open_connection(*a.listener.address)
            assert b"has to greet" in await reader.read()
            writer.close()
            assert a.counts["silent"] == 1
            assert (await client.publish({"topic": "x"})).targets == 0 and client.reconnects == 0

    run(scene())


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!I", 2**31) + b"x",
        struct.pack("!I", 5) + b"\xc1\xc1\xc1\xc1\xc1",
        wire.encode_frame(frames.Greet(version=99)),
        wire.encode_frame(frames.PingFrame(1)),
        wire.encode_frame(frames.Greet()) + struct.pack("!I", 3) + b"abc",
    ],
    ids=["http", "too long", "garbage", "other-version", "no greeting", "garbage later"],
)
def test_a_stranger_at_the_listener_is_answered_and_disconnected(noise: bytes) -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            reader, writer = await asyncio.open_connection(*a.listener.address)
            writer.write(noise)
            await reader.read()
            writer.close()
            assert a.counts["garbage"] == 1
            assert (await client.publish({"topic": "x"})).targets == 0

    run(scene())
