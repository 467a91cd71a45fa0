"""Clients: what they ask for, what they get, and what they cannot do to a peer."""

import asyncio
import random
import socket
import struct
from collections.abc import Coroutine
from typing import Any

import pytest

import wend
from tests.drivers.live.net import known, overlay, until
from wend.drivers.live import frames, turns
from wend.drivers.live import server as servers
from wend.drivers.live.server import Server, Session
from wend.drivers.live.subscription import Arrival, Subscription

PAIR = [(0, 1)]


def run(scene: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await scene

    asyncio.run(bounded())


async def take(events: Subscription, count: int) -> list[Arrival]:
    return [await anext(events) for _ in range(count)]


async def fresh(events: Subscription) -> Arrival:
    """The next event that is not part of finding out who is there."""
    while (event := await anext(events)).payload == b"are you there":
        pass
    return event


def test_an_event_crosses_the_overlay_with_its_receipt() -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, b), wend.connect(a.url) as here, wend.connect(b.url) as there:
            assert (here.peer, there.peer) == (0, 1)
            async with there.subscribe("topic = 'x'", deadline=30.0, reliability=0.99) as events:
                await known(here, "x", 1)
                receipt = await here.publish({"topic": "x", "n": 5, "ok": True, "t": 1.5}, b"payload", {"a": "b"})
                event = await fresh(events)
                assert event.id == receipt.id
                assert (event.attributes, event.payload) == ({"topic": "x", "n": 5, "ok": True, "t": 1.5}, b"payload")
                assert event.headers == {"a": "b"}
                assert event.age > 0 and not event.late

    run(scene())


def test_awaiting_a_connection_is_the_other_way_to_use_it() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            client = await wend.connect(a.url)
            assert (await client.publish({"topic": "x"})).targets == 0
            await client.close()
            with pytest.raises(wend.ClientError, match="closed"):
                await client.publish({"topic": "x"})

    run(scene())


def test_the_peers_no_is_raised_with_its_sentence() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            with pytest.raises(wend.FilterError, match="cannot read the filter"):
                async with client.subscribe("temperature >"):
                    pass
            with pytest.raises(wend.Refused, match="payload may have 262144 bytes"):
                await client.publish({"topic": "x"}, bytes(262_145))
            with pytest.raises(wend.Refused, match="attributes of an event may have 48000 bytes"):
                await client.publish({"topic": "x" * 50_000})
            with pytest.raises(wend.Refused, match="attributes and headers of an event may have 48000 bytes"):
                await client.publish({"topic": "x"}, b"", {"trace": "x" * 50_000})
            with pytest.raises(wend.Refused, match="may have 64 headers, this one has 65"):
                await client.publish({"topic": "x"}, b"", {str(number): "" for number in range(65)})
            with pytest.raises(wend.ClientError, match="frame may have"):
                await client.publish({"topic": "x"}, bytes(500_000))
            with pytest.raises(wend.ClientError, match="cannot be encoded"):
                await client.publish({"topic": "x", "huge": 2**80})
            with pytest.raises(wend.ClientError, match="deadline"):
                client.subscribe("topic = 'x'", deadline=-1)
            with pytest.raises(wend.ClientError, match=r"a reliability must lie above 0 and up to 1, got 1\.5"):
                client.subscribe("topic = 'x'", reliability=1.5)
            with pytest.raises(wend.Refused, match="a deadline must be above 0 and up to 4611686018 s"):
                async with client.subscribe("topic = 'x'", deadline=1e10):
                    pass
            with pytest.raises(wend.Refused, match="experiments"):
                await client.cut(1)
            assert (await client.publish({"topic": "x"})).targets == 0

    run(scene())


MONSTERS = [
    ("x = '" + "a" * 100_000 + "'", "16384 characters"),
    ("(" * 7_000 + "x = 1" + ")" * 7_000, "64 deep"),
    ("not " * 4_000 + "x = 1", "64 deep"),
    (" and ".join(f"(a{i} = 1 or b{i} = 2)" for i in range(200)), "conjunctions"),
]


def test_what_would_burn_a_peer_is_answered_with_a_sentence_and_counted() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            for text, reason in MONSTERS:
                with pytest.raises(wend.FilterError, match=reason):
                    async with client.subscribe(text):
                        pass
            with pytest.raises(wend.ClientError, match="a frame may have"):
                async with client.subscribe("x = '" + "a" * 10_000_000 + "'"):
                    pass
            with pytest.raises(wend.Refused, match="may have 1024 attributes, this one has 1000000"):
                await client.publish({str(number): number for number in range(1_000_000)})
            # A client that does not check is told the same.
            with pytest.raises(wend.Refused, match="may have 1024 attributes, this one has 20000"):
                many = {str(number): number for number in range(20_000)}
                await client._call(frames.Publish(999, many), frames.Accepted)
            assert a.server.counts["denied"] == len(MONSTERS) + 1
            assert (await client.publish({"topic": "x"})).targets == 0

    run(scene())


def test_an_event_of_a_quarter_megabyte_arrives_whole() -> None:
    payload = random.Random(1).randbytes(256 * 1024)

    async def scene() -> None:
        async with (
            overlay([(0, 1), (1, 2)]) as (a, _, c),
            wend.connect(a.url) as here,
            wend.connect(c.url) as there,
            there.subscribe("topic = 'x'") as events,
        ):
            await known(here, "x", 1)
            await here.publish({"topic": "x"}, payload, {"content-type": "noise"})
            large = await fresh(events)
            assert (large.payload, large.headers) == (payload, {"content-type": "noise"})
            await here.publish({"topic": "x"}, b"small")
            small = await fresh(events)
            assert (small.payload, small.headers) == (b"small", {})

    run(scene())


def test_clients_that_want_the_same_share_one_subscription() -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, b), wend.connect(a.url) as here, wend.connect(b.url) as there:
            async with there.subscribe("topic = 'x'") as one, there.subscribe("topic = 'x'") as two:
                assert len(b.server._numbers) == 1
                await known(here, "x", 1)
                await here.publish({"topic": "x"}, b"both")
                assert [(await fresh(events)).payload for events in (one, two)] == [b"both", b"both"]
                await one.close()
                await here.publish({"topic": "x"}, b"one left")
                assert (await fresh(two)).payload == b"one left"
            assert not b.server._numbers

    run(scene())


def test_a_slow_application_loses_the_oldest_events_and_knows_how_many() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            async with client.subscribe("topic = 'x'", buffer_msgs=10) as events:
                for number in range(50):
                    await client.publish({"topic": "x"}, b"%d" % number)
                await until(lambda: events.dropped == 40)
                assert [event.payload for event in await take(events, 10)] == [b"%d" % n for n in range(40, 50)]
            async with client.subscribe("topic = 'x'", buffer_bytes=10_000) as events:
                for _ in range(10):
                    await client.publish({"topic": "x"}, bytes(3_000))
                await until(lambda: events.dropped == 7)

    run(scene())


def test_drain_waits_for_what_was_received() -> None:
    async def scene() -> None:
        async with (
            overlay([]) as (a,),
            wend.connect(a.url) as client,
            client.subscribe("topic = 'x'") as events,
        ):
            sending = [asyncio.create_task(client.publish({"topic": "x"}, b"%d" % n)) for n in range(20)]
            await asyncio.sleep(0)
            draining = asyncio.create_task(client.drain())
            got = await take(events, 20)
            await draining
            assert len(got) == 20 and all(task.done() for task in sending)
            await client.publish({"topic": "x"})
            with pytest.raises(wend.ClientError, match="not everything"):
                await client.drain(timeout=0.05)

    run(scene())


def test_a_client_comes_back_and_brings_its_subscriptions() -> None:
    async def scene() -> None:
        async with (
            overlay([]) as (a,),
            wend.connect(a.url) as client,
            client.subscribe("topic = 'x'") as events,
        ):
            for session in list(a.server.sessions):
                session.end()
            await until(lambda: client.reconnects == 1)
            await until(lambda: bool(a.server._numbers))
            await client.publish({"topic": "x"}, b"after")
            assert (await anext(events)).payload == b"after"

    run(scene())


def test_subscribing_while_the_connection_is_away_asks_once() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            for session in list(a.server.sessions):
                session.end()
            await until(lambda: not client._ready.is_set())
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
            assert not a.server._numbers
            client._timeout = 0.0
            with pytest.raises(wend.ConnectionLost, match="did not answer"):
                async with client.subscribe("topic = 'x'"):
                    pass
            client._timeout = 60.0
            assert (await client.publish({"topic": "x"})).targets == 0
            async with client.subscribe("topic = 'x'"):
                assert len(a.server._numbers) == 1

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

            monkeypatch.setattr(a.server, "subscribe", full)
            for session in list(a.server.sessions):
                session.end()
            with pytest.raises(wend.Refused, match="no room here"):
                await anext(events)
            assert (await client.publish({"topic": "x"})).targets == 0

    run(scene())


def test_a_peer_that_stays_away_ends_everything_with_a_sentence() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            client = await wend.connect(a.url, patience=0.2)
            events = client.subscribe("topic = 'x'")
            async with events:
                await a.server.stop()
                with pytest.raises(wend.ConnectionLost, match="gave up"):
                    await anext(events)
                with pytest.raises(wend.ConnectionLost):
                    await client.publish({"topic": "x"})
            await client.close()

    run(scene())


def test_nobody_there_is_one_sentence() -> None:
    async def scene() -> None:
        with pytest.raises(wend.ConnectionLost, match=r"cannot reach a peer at wend://127\.0\.0\.1:1:"):
            await wend.connect("wend://127.0.0.1:1")
        with pytest.raises(wend.ConfigError, match="looks like wend://"):
            await wend.connect("http://127.0.0.1:1")

    run(scene())


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
    monkeypatch.setattr(turns, "TURN_S", 0.0)  # one question each

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
                asked = [frames.Greet(), *(frames.Ping(number) for number in range(1, 501))]
                writer.write(b"".join(map(frames.encode, asked)))
            for reader, writer in clients:
                splitter, answers = frames.Splitter(), list[frames.ToClient]()
                while len(answers) < 501:
                    answers += [frames.decode_to_client(body) for body in splitter.feed(await reader.read(1 << 16))]
                assert answers[1:] == [frames.Done(number) for number in range(1, 501)]
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
        frames.encode(frames.Ping(1)),
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


def test_import_wend_is_light_and_knows_its_names() -> None:
    import subprocess
    import sys

    code = "import sys, wend; assert not {'asyncio', 'numpy', 'msgspec'} & set(sys.modules); wend.connect"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(hasattr(wend, name) for name in wend.__all__)
    with pytest.raises(AttributeError):
        _ = wend.nothing
