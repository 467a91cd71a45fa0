"""A range of a log, read as records."""

import asyncio
from pathlib import Path

from tests.drivers.live.log_peers import client_of, log_of, running, write_peers
from tests.drivers.live.net import PATIENCE_S, run
from tests.errors import raises
from wend.drivers.live.client.client import Client
from wend.drivers.live.client.log_ranges import LogRange, LogRangeClient
from wend.drivers.live.log_frames import LogPlace, Records
from wend.drivers.live.process import PeerProcess

SIZES = (0, 1, 70_000, 256 * 1024, 256 * 1024, 5, 0, 65_536, 3)


async def publish(client: Client, *numbers: int) -> None:
    for number in numbers:
        payload = bytes(SIZES[number % len(SIZES)])
        await client.publish({"topic": "order", "number": number}, payload, {"by": "test"} if number % 2 else {})


def range_client(peer: PeerProcess) -> LogRangeClient:
    return LogRangeClient(f"wend://127.0.0.1:{peer.listener.address[1]}", timeout=PATIENCE_S, patience=PATIENCE_S)


def test_records_are_the_events_that_a_subscriber_gets(tmp_path: Path) -> None:
    """Also those that fill a frame on their own."""

    async def play() -> None:
        (file,) = write_peers(tmp_path, count=1)
        async with running(file) as peer, client_of(peer) as client:
            await publish(client, *range(40))
            async with client.subscribe("number >= 5", since=3, until=38, log="orders") as events:
                expected = [(each.position, each.id, each.payload, each.headers) async for each in events]  # type: ignore[attr-defined]
            reader = range_client(peer)
            await reader.start()
            wanted = LogRange("orders", log_of(peer).id, 3, 38)
            got = [
                (each.position, each.event.id, each.event.payload, each.event.headers)
                async for block in reader.read(wanted, "number >= 5")
                if isinstance(block, Records)
                for each in block.records
            ]
            await reader.close()
            assert got == expected and len(got) == 32

    run(play())


def test_a_range_goes_on_after_a_restart_of_the_peer(tmp_path: Path) -> None:
    async def play() -> None:
        (file,) = write_peers(tmp_path, count=1)
        positions: list[int] = []
        async with running(file) as peer, client_of(peer) as client:
            for _ in range(4):
                await publish(client, *range(20))
            reader = range_client(peer)
            await reader.start()
            wanted = LogRange("orders", log_of(peer).id, 1, 81)
            blocks = reader.read(wanted, "true")
            first = await anext(blocks)
            assert isinstance(first, Records)
            positions += [each.position for each in first.records]
            assert len(positions) < 80
        async with running(file):
            async for block in blocks:
                assert isinstance(block, Records)
                positions += [each.position for each in block.records]
        await reader.close()
        assert positions == list(range(1, 81))

    run(play())


def test_places_are_found_and_other_logs_refused(tmp_path: Path) -> None:
    async def play() -> None:
        (file,) = write_peers(tmp_path, count=1)
        async with running(file) as peer, client_of(peer) as client:
            await publish(client, *range(5))
            reader = range_client(peer)
            await reader.start()
            log_id = log_of(peer).id
            for place, position in (("first", 1), ("end", 6)):
                found = await reader.find("orders", LogPlace(place))  # type: ignore[arg-type]
                assert (found.position, found.log_id) == (position, log_id)
            for _ in range(200):  # more than a client may read at a time
                await reader.find("orders", LogPlace("end"), log_id)
            with raises("unknown-log"):
                await reader.find("trades", LogPlace("end"))
            with raises("other-log"):
                await reader.find("orders", LogPlace("end"), "another")
            with raises("filter-syntax"):
                async for _ in reader.read(LogRange("orders", log_id, 1, 5), "number ="):
                    pass
            await reader.close()

    asyncio.run(play())
