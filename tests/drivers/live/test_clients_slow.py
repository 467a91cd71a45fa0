"""Clients that read slowly or ask faster than they read: they hold up nobody, and are sent away in the end."""

import asyncio
import socket

import pytest

import wend
from tests.drivers.live.net import overlay, run, until
from wend.drivers.live import fair_scheduler, frames
from wend.drivers.live import server as servers
from wend.drivers.live.server import Server, Session


async def _silent(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that subscribes and then reads nothing."""
    reader, writer = await asyncio.open_connection(*server.address, limit=1024)
    writer.write(frames.encode(frames.Greet()) + frames.encode(frames.Subscribe(1, 1, "topic = 'x'")))
    await until(lambda: bool(server._numbers))
    return reader, writer


def test_a_client_that_stops_reading_holds_up_nobody() -> None:
    async def scene() -> None:
        async with overlay([], queue_msgs=100, queue_bytes=1_000_000) as (a,), wend.connect(a.url) as client:
            _, writer = await _silent(a.server)
            async with client.subscribe("topic = 'x'") as events:
                sent = 0
                while not a.server.counts["dropped"]:
                    await client.publish({"topic": "x"}, bytes(40_000))
                    assert len((await anext(events)).payload) == 40_000
                    sent += 1
                assert sent < 2000 and events.dropped == 0
                assert max(s._queue_bytes for s in a.server.sessions) <= 1_000_000
            writer.close()

    run(scene())


def test_a_client_that_reads_again_is_told_what_it_missed() -> None:
    async def scene() -> None:
        async with overlay([], queue_msgs=10) as (a,), wend.connect(a.url) as client:
            reader, writer = await _silent(a.server)
            while not a.server.counts["dropped"]:
                await client.publish({"topic": "x"}, bytes(40_000))
            splitter, dropped, events = frames.Splitter(), 0, 0
            published = client_sequence = (await client.publish({"topic": "x"}, b"last")).id.sequence
            while dropped + events < client_sequence:
                for body in splitter.feed(await reader.read(1 << 20)):
                    match frames.decode_to_client(body):
                        case frames.Dropped(1, count):
                            dropped += count
                        case frames.Delivery():
                            events += 1
            assert dropped + events == published and dropped >= 1
            writer.close()

    run(scene())


def test_a_client_that_never_reads_is_sent_away() -> None:
    async def scene() -> None:
        async with overlay([], queue_msgs=10, stall_s=0.0) as (a,), wend.connect(a.url) as client:
            _, writer = await _silent(a.server)
            while not a.server.counts["stalled"]:
                await client.publish({"topic": "x"}, bytes(40_000))
            await until(lambda: len(a.server.sessions) == 1)
            assert not a.server._numbers
            writer.close()

    run(scene())


def test_a_client_that_reads_nothing_is_sent_away_though_nothing_more_comes() -> None:
    async def scene() -> None:
        async with overlay([], stall_s=0.2) as (a,), wend.connect(a.url) as client:
            _, writer = await _silent(a.server)
            while not any(s._stalled for s in a.server.sessions):
                await client.publish({"topic": "x"}, bytes(40_000))
            await until(lambda: a.server.counts["stalled"] == 1)
            writer.close()

    run(scene())


async def _narrow(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Session]:
    """A client, and its session, between whom the system holds next to nothing."""
    ours = socket.socket()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    ours.connect(server.address)
    reader, writer = await asyncio.open_connection(sock=ours, limit=1024)
    writer.write(frames.encode(frames.Greet()))
    await until(lambda: any(s._greeted for s in server.sessions))
    (session,) = server.sessions
    assert session._transport is not None
    session._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return reader, writer, session


def test_a_client_that_is_sent_away_and_reads_nothing_is_forgotten() -> None:
    async def scene() -> None:
        async with overlay([], stall_s=0.05) as (a,):
            _, writer, session = await _narrow(a.server)
            writer.write(500 * frames.encode(frames.AskStatus(1)) + b"\xff" * 8)
            await until(lambda: a.server.counts["garbage"] == 1)
            assert a.server.sessions == {session}, "something waits for it"
            await until(lambda: not a.server.sessions)
            assert not a.server.counts["stalled"], "too little for that"
            writer.close()

    run(scene())


def test_one_who_asks_much_at_once_is_answered_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_scheduler, "TURN_S", 0.0)  # one question each

    async def scene() -> None:
        async with overlay([]) as (a,):
            loop, rounds = asyncio.get_running_loop(), 0

            def turn() -> None:
                nonlocal rounds
                rounds += 1
                loop.call_soon(turn)

            clients = [await asyncio.open_connection(*a.server.address) for _ in range(2)]
            turn()
            for _, writer in clients:
                asked = [frames.Greet(), *(frames.PingFrame(number) for number in range(1, 501))]
                writer.write(b"".join(map(frames.encode, asked)))
            for reader, writer in clients:
                splitter, answers = frames.Splitter(), list[frames.ToClient]()
                while len(answers) < 501:
                    answers += [frames.decode_to_client(body) for body in splitter.feed(await reader.read(1 << 16))]
                assert answers[1:] == [frames.DoneFrame(number) for number in range(1, 501)]
                writer.close()
            assert rounds >= 1000

    run(scene())


def test_questions_are_answered_no_faster_than_answers_are_taken() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            reader, writer, session = await _narrow(a.server)
            question = frames.encode(frames.AskStatus(1))
            writer.write(5000 * question)
            await until(lambda: session._stalled)
            assert session._transport is not None
            assert session._transport.get_write_buffer_size() < servers._WRITE_HIGH_BYTES + 1000
            splitter, answers = frames.Splitter(), 0
            while answers < 1 + 5000:
                answers += sum(1 for _ in splitter.feed(await reader.read(1 << 20)))
            writer.close()

    run(scene())
