"""Clients that read slowly or ask faster than they read: they hold up nobody, and are disconnected in the end."""

import asyncio
import socket

import pytest

import wend
from tests.drivers.live.net import RawClient, Site, overlay, run, until
from wend.drivers.live import frames
from wend.drivers.live.broker import fair_scheduler
from wend.drivers.live.broker.client_output import WRITE_HIGH_BYTES
from wend.drivers.live.broker.client_session import ClientSession
from wend.drivers.live.transport import wire


async def _silent(site: Site) -> RawClient:
    """A client that subscribes and then reads nothing."""
    raw = await RawClient.connect(site.listener.address, limit=1024)
    raw.send(frames.Greet(), frames.Subscribe(1, 1, "topic = 'x'"))
    await until(lambda: bool(site.broker.subscriptions))
    return raw


def test_a_client_that_stops_reading_holds_up_nobody() -> None:
    async def scene() -> None:
        async with overlay([], queue_msgs=100, queue_bytes=1_000_000) as (a,), wend.connect(a.url) as client:
            raw = await _silent(a)
            async with client.subscribe("topic = 'x'") as events:
                sent = 0
                while not a.counts["dropped"]:
                    await client.publish({"topic": "x"}, bytes(40_000))
                    assert len((await anext(events)).payload) == 40_000
                    sent += 1
                assert sent < 2000 and events.dropped == 0
                assert max(session.queued_bytes for session in a.listener.sessions) <= 1_000_000
            raw.close()

    run(scene())


def test_a_client_that_reads_again_is_told_what_it_missed() -> None:
    async def scene() -> None:
        async with overlay([], queue_msgs=10) as (a,), wend.connect(a.url) as client:
            raw = await _silent(a)
            while not a.counts["dropped"]:
                await client.publish({"topic": "x"}, bytes(40_000))
            published = (await client.publish({"topic": "x"}, b"last")).id.sequence
            dropped = events = 0
            while dropped + events < published:
                match (await raw.receive())[0]:
                    case frames.Dropped(1, count):
                        dropped += count
                    case frames.Delivery():
                        events += 1
            assert dropped + events == published and dropped >= 1
            raw.close()

    run(scene())


def test_a_client_that_never_reads_is_disconnected() -> None:
    async def scene() -> None:
        async with overlay([], queue_msgs=10, stall_s=0.0) as (a,), wend.connect(a.url) as client:
            raw = await _silent(a)
            while not a.counts["stalled"]:
                await client.publish({"topic": "x"}, bytes(40_000))
            await until(lambda: len(a.listener.sessions) == 1)
            assert not a.broker.subscriptions
            assert (a.counts["connected"], a.broker.status().clients["now"]) == (2, 1)
            raw.close()

    run(scene())


def test_a_client_that_reads_nothing_is_disconnected_though_nothing_more_comes() -> None:
    async def scene() -> None:
        async with overlay([], stall_s=0.1) as (a,), wend.connect(a.url) as client:
            raw = await _silent(a)
            while not any(session.is_stalled for session in a.listener.sessions):
                await client.publish({"topic": "x"}, bytes(40_000))
            await until(lambda: a.counts["stalled"] == 1)
            raw.close()

    run(scene())


async def _narrow(site: Site) -> tuple[RawClient, ClientSession]:
    """A client, and its session, between whom the system holds next to nothing."""
    ours = socket.socket()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    ours.connect(site.listener.address)
    raw = RawClient(*await asyncio.open_connection(sock=ours, limit=1024))
    raw.send(frames.Greet())
    assert isinstance((await raw.receive())[0], frames.Welcome)
    (session,) = site.listener.sessions
    assert session.transport is not None
    session.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return raw, session


def test_a_client_that_is_disconnected_and_reads_nothing_is_forgotten() -> None:
    async def scene() -> None:
        async with overlay([], stall_s=0.05) as (a,):
            raw, session = await _narrow(a)
            raw.writer.write(200 * wire.encode_frame(frames.AskStatus(1)) + b"\xff" * 8)
            await until(lambda: a.counts["garbage"] == 1)
            assert a.listener.sessions == {session}, "something waits for it"
            await until(lambda: not a.listener.sessions)
            assert not a.counts["stalled"], "too little for that"
            raw.close()

    run(scene())


def test_one_who_asks_much_at_once_is_answered_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_scheduler, "TURN_S", 0.0)  # one request each

    async def scene() -> None:
        async with overlay([]) as (a,):
            loop, rounds = asyncio.get_running_loop(), 0

            def turn() -> None:
                nonlocal rounds
                rounds += 1
                loop.call_soon(turn)

            clients = [await RawClient.connect(a.listener.address) for _ in range(2)]
            turn()
            for client in clients:
                client.send(frames.Greet(), *(frames.PingFrame(number) for number in range(1, 501)))
            for client in clients:
                _, *answers = await client.receive(501)
                assert answers == [frames.Completed(number) for number in range(1, 501)]
                client.close()
            assert rounds >= 1000

    run(scene())


def test_questions_are_answered_no_faster_than_answers_are_taken() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            raw, session = await _narrow(a)
            raw.send(*[frames.AskStatus(1)] * 5000)
            await until(lambda: session.is_stalled)
            assert session.transport is not None
            assert session.transport.get_write_buffer_size() < WRITE_HIGH_BYTES + 1000
            assert len(await raw.receive(5000)) == 5000
            raw.close()

    run(scene())
