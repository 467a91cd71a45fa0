"""A log read through a live peer: history, then what comes, at the client's end."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.drivers.live.log_peers import ORDERS, client_of, log_of, running, write_peers
from tests.drivers.live.net import run, until
from tests.drivers.live.processes import Process
from tests.errors import raises
from wend.drivers.live.client.arrivals import LogArrival
from wend.drivers.live.client.client import Client
from wend.drivers.live.client.connect import connect
from wend.drivers.live.client.event_stream import EventStream
from wend.model.errors import ClientError
from wend.model.events import Event, EventId

FILTER = "topic = 'order'"


async def publish(client: Client, *numbers: int) -> None:
    for number in numbers:
        await client.publish({"topic": "order", "number": number, "even": number % 2 == 0})


async def read(events: EventStream, count: int) -> list[int]:
    return [(await anext(events)).attributes["number"] for _ in range(count)]  # type: ignore[misc]


async def read_all(client: Client, filter: str = FILTER, **options: Any) -> list[int]:
    async with client.subscribe(filter, **options) as events:
        return [event.attributes["number"] async for event in events]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"since": "first"}, range(1, 21)),
        ({"since": "1h"}, range(1, 21)),
        ({"since": "0s"}, []),
        ({"since": "now"}, []),
        ({"since": 5}, range(5, 21)),
        ({"since": "5"}, range(5, 21)),
        ({"since": 5, "until": 8}, range(5, 8)),
        ({"since": 500}, []),
        ({"until": 4}, range(1, 4)),
        ({"last": 3}, [18, 19, 20]),
        ({"last": 0}, []),
        ({"last": 100}, range(1, 21)),
        ({"since": datetime(2001, 1, 1, tzinfo=UTC)}, range(1, 21)),
        ({"since": "2001-01-01T00:00:00Z"}, range(1, 21)),
        ({"since": timedelta(hours=1)}, range(1, 21)),
        ({"since": "first", "until": "1h"}, []),
    ],
)
def test_where_it_begins_and_ends(tmp_path: Path, options: dict[str, Any], expected: Any) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, count=1)
        async with running(file) as peer, client_of(peer) as client:
            await publish(client, *range(1, 21))
            assert await read_all(client, **{"until": "now", **options}) == list(expected)

    run(scene())


def test_a_filter_narrows_the_log(tmp_path: Path) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, count=1)
        async with running(file) as peer, client_of(peer) as client:
            await publish(client, *range(1, 21))
            even = f"{FILTER} and even = true"
            assert await read_all(client, even, since="first", until="now") == list(range(2, 21, 2))
            assert await read_all(client, even, last=3, until="now") == [16, 18, 20]
            assert await read_all(client, f"{FILTER} and number > 90", last=3, until="now") == []

    run(scene())


def test_what_an_event_of_a_log_says(tmp_path: Path) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, count=1)
        async with running(file) as peer, client_of(peer) as client:
            before = datetime.now(UTC).timestamp()
            receipt = await client.publish({"topic": "order", "number": 1}, b"payload", {"a": "b"})
            async with client.subscribe(FILTER, since="first", deadline=1e-6) as events:
                event = await anext(events)
                assert isinstance(event, LogArrival)
                assert (event.id, event.payload, event.headers) == (receipt.id, b"payload", {"a": "b"})
                assert (event.position, events.position, events.log) == (1, 2, "orders")
                assert before - 1 < event.time < datetime.now(UTC).timestamp() + 1
                assert event.late
                await publish(client, 2)
                assert await read(events, 1) == [2]

    run(scene())


def test_an_end_in_the_future(tmp_path: Path) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, count=1)
        async with running(file) as peer, client_of(peer) as client:
            await publish(client, 1)
            soon = datetime.now(UTC) + timedelta(seconds=0.3)
            reading = asyncio.create_task(read_all(client, since="first", until=soon))
            await publish(client, 2)
            assert await reading == [1, 2]
            assert await read_all(client, since=1, until=2) == [1]

    run(scene())


def test_a_slow_reader_costs_the_peer_no_memory_and_misses_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, count=1)
        async with (
            running(file) as peer,
            client_of(peer) as client,
            client_of(peer) as other,
            client.subscribe(FILTER, since="first") as events,
        ):
            async with other.subscribe(FILTER, since="first") as fast:
                for begin in range(0, 5000, 500):
                    await other.publish_many([{"topic": "order", "number": n} for n in range(begin, begin + 500)])
                    assert await read(fast, 500) == list(range(begin, begin + 500))
            (session,) = [each for each in peer.listener.sessions if each.queued_bytes == 0][:1]
            assert session.queued_bytes == 0
            assert await read(events, 5000) == list(range(5000))
            assert not events.missed and not events.dropped

    run(scene())


def test_large_events_do_not_fill_the_window(tmp_path: Path) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, count=1)
        async with running(file) as peer, client_of(peer) as client:
            for number in range(60):
                await client.publish({"topic": "order", "number": number}, bytes(250_000))
            assert await read_all(client, since="first", until="now") == list(range(60))

    run(scene())


def test_retention_that_overtakes_a_reader_is_said_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, ORDERS.replace("1000000", "1600"), count=1)
        async with (
            running(file) as peer,
            client_of(peer) as client,
            client_of(peer) as other,
            client.subscribe(FILTER, since="first") as events,
        ):
            await publish(other, 1)
            assert await read(events, 1) == [1]
            for begin in range(2, 5002, 500):
                await other.publish_many([{"topic": "order", "number": n} for n in range(begin, begin + 500)])
            found = []
            while not found or found[-1] < 5001:
                found += await read(events, 1)
            lost = 5001 - 1 - len(found)
            assert events.missed == {"log-dropped": lost}
            assert lost > 1000
            assert found == sorted(set(found))
            below = next(b for a, b in pairwise(found) if b > a + 1)
            assert f"{lost} lost below {below}: log-dropped" in caplog.text

    run(scene())


def test_damaged_records_are_counted(tmp_path: Path) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, count=1)
        async with running(file) as peer, client_of(peer) as client:
            await publish(client, *range(1, 11))
            log = log_of(peer)
            path, size = log.segments[0].path, log.size
        content = bytearray(path.read_bytes())
        content[size // 2] ^= 255
        path.write_bytes(content)
        async with running(file) as peer, client_of(peer) as client:
            log_of(peer).tail.clear()
            async with client.subscribe(FILTER, since="first", until="now") as events:
                found = [event.attributes["number"] async for event in events]
                assert len(found) == 9
                assert events.missed == {"log-damaged": 1}

    run(scene())


def test_expired_events_are_not_read_again(tmp_path: Path) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, count=1)
        async with running(file) as peer, client_of(peer) as client:
            await client.publish({"topic": "order", "number": 1}, ttl=0.01)
            await publish(client, 2)
            await asyncio.sleep(0.02)
            async with client.subscribe(FILTER, since="first", until="now") as events:
                assert [event.attributes["number"] async for event in events] == [2]
                assert events.missed == {"expired": 1}

    run(scene())


@pytest.mark.parametrize(
    ("filter", "options", "code"),
    [
        (FILTER, {"log": "nothing"}, "unknown-log"),
        ("topic = 'other'", {"since": "first"}, "unknown-log"),
        ("topic = 'order", {"since": "first"}, "filter-syntax"),
        (FILTER, {"since": "first", "last": 3}, "invalid-call"),
        (FILTER, {"since": "yesterday"}, "invalid-call"),
        (FILTER, {"since": -3}, "invalid-call"),
        (FILTER, {"since": True}, "invalid-call"),
        (FILTER, {"since": 1.5}, "invalid-call"),
        (FILTER, {"last": -1}, "invalid-call"),
        (FILTER, {"last": 10**7}, "invalid-call"),
        (FILTER, {"since": "first", "order": "publisher"}, "not-supported"),
        (FILTER, {"since": "first", "expire": True, "deadline": 1.0}, "invalid-call"),
        (FILTER, {"since": "first", "name": "x"}, "invalid-call"),
        (FILTER, {"since": "first", "group": "x"}, "invalid-call"),
        (FILTER, {"log": ""}, "invalid-call"),
    ],
)
def test_what_is_refused(tmp_path: Path, filter: str, options: dict[str, Any], code: Any) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, count=1)
        async with running(file) as peer, client_of(peer) as client:
            with raises(code):
                async with client.subscribe(filter, **options):
                    pass
            assert await read_all(client, since="first", until="now") == []

    run(scene())


def test_a_peer_without_logs_refuses(tmp_path: Path) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, "", count=1)
        async with running(file) as peer, client_of(peer) as client:
            with raises("unknown-log", "this peer has no logs"):
                await read_all(client, since="first")

    run(scene())


def test_a_reader_goes_on_after_its_peer_was_killed(tmp_path: Path) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, count=1)
        process = await Process.start(file)
        async with (
            connect(process.url, patience=60) as client,
            connect(process.url, patience=60) as publisher,
            client.subscribe(FILTER, since="first") as events,
        ):
            expected: list[int] = []
            found: list[int] = []
            for round in range(4):
                numbers = list(range(100 * round, 100 * round + 100))
                await publish(publisher, *numbers)
                expected += numbers
                found += await read(events, 60)
                await process.kill()
                process = await Process.start(file)
            found += await read(events, len(expected) - len(found))
            assert found == expected
            await publish(publisher, 1000)
            assert await read(events, 1) == [1000]
        await process.stop()

    run(scene())


def test_a_position_of_another_log_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, count=1)
        process = await Process.start(file)
        async with connect(process.url, patience=60) as client:
            await publish(client, 1)
            async with client.subscribe(FILTER, since="first") as events:
                assert await read(events, 1) == [1]
                await process.kill()
                (tmp_path / "logs-0").rename(tmp_path / "gone")
                process = await Process.start(file)
                with raises("other-log", "is not the one that was read before"):
                    await anext(events)
        await process.stop()

    run(scene())


def test_a_client_reads_what_it_is_granted(tmp_path: Path) -> None:
    async def scene() -> None:
        grants = """[grants.local]\npublish = "true"\nsubscribe = "topic = 'order' and even = true"\n"""
        (file,) = write_peers(tmp_path, ORDERS + grants, count=1)
        async with running(file) as peer, client_of(peer) as client:
            await publish(client, *range(1, 11))
            assert await read_all(client, since="first", until="now") == [2, 4, 6, 8, 10]
            assert await read_all(client, f"{FILTER} and number > 4", last=9, until="now") == [6, 8, 10]
            with raises("subscribe-refused"):
                await read_all(client, "topic = 'order' and even = false", since="first")

    run(scene())


def test_readers_end_with_their_client(tmp_path: Path) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, count=1)
        async with running(file) as peer:
            assert peer.logs is not None
            waiting = peer.logs.named("orders").waiting
            async with client_of(peer) as client:
                async with client.subscribe(FILTER, since="first"):
                    await until(lambda: len(waiting) == 1)
                await until(lambda: not waiting)
                await client.subscribe(FILTER, since="first")
                await until(lambda: len(waiting) == 1)
            await until(lambda: not waiting)

    run(scene())


def test_a_misfit_in_the_log_is_counted(tmp_path: Path) -> None:
    """A record that another version wrote, and that this one cannot read."""

    async def scene() -> None:
        (file,) = write_peers(tmp_path, count=1)
        async with running(file) as peer, client_of(peer) as client:
            log_of(peer).append(Event(EventId(1, 1, 1), {"topic": "order", "number": None}))  # type: ignore[dict-item]
            await publish(client, 2)
            async with client.subscribe(FILTER, since="first", until="now") as events:
                assert [event.attributes["number"] async for event in events] == [2]
                assert events.missed == {"log-damaged": 1}

    run(scene())


def test_options_that_cannot_be_understood() -> None:
    with pytest.raises(ClientError, match="a position, a time, a duration"):
        connect("wend://127.0.0.1:1").subscribe(FILTER, since="whenever")
