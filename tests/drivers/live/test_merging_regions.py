"""Regions of live peers on a ring split under many subscriptions, and merge when these end; no event is lost."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

import wend
from tests.drivers.live.addressing.test_joining import file_of, ring, started, url
from tests.drivers.live.net import run, until
from wend.drivers.live.process import PeerProcess

HOT = 10
"""Subscriptions that come and go, half of them of negative prices."""


LIMITS = {"rendezvous": "split_entries", "dmm-ar": "delegation"}
COUNTS = {"rendezvous": "regions", "dmm-ar": "nodes"}


@pytest.mark.parametrize("strategy", LIMITS)
def test_regions_split_and_merge_while_events_flow(strategy: str) -> None:
    quick = {"strategy": strategy, "beacon": "300ms", "expiry": "900ms", LIMITS[strategy]: 6}

    def regions(peers: list[PeerProcess]) -> int:
        return sum(one.peer.status().plugins[strategy][COUNTS[strategy]] for one in peers)

    async def scene() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(started(file_of(0, **quick)))
            others = [
                await stack.enter_async_context(started(file_of(n, first.peer.address, **quick))) for n in range(1, 5)
            ]
            peers = [first, *others]
            await until(lambda: all(ring(one)["joined"] and ring(one)["leaf-set"] == 4 for one in peers))
            clients = [await stack.enter_async_context(wend.connect(url(one))) for one in peers]
            staying = await stack.enter_async_context(clients[1].subscribe("price > -1000 and price < 1000"))
            await until(lambda: regions(peers) == 1)
            got: Counter[bytes] = Counter()
            sent: list[bytes] = []
            has_ended = asyncio.Event()

            async def collect() -> None:
                async for event in staying:
                    got[event.payload] += 1

            async def publish() -> None:
                while not has_ended.is_set():
                    number = len(sent)
                    sent.append(b"%d" % number)
                    await clients[2 + number % 3].publish({"price": (1.0, -1.0)[number % 2] * (number % 40)}, sent[-1])
                    await asyncio.sleep(0.02)

            collecting = asyncio.create_task(collect())
            publishing = asyncio.create_task(publish())
            async with AsyncExitStack() as hot:
                for at in range(HOT):
                    sign = "-" if at % 2 else ""
                    await hot.enter_async_context(clients[at % 5].subscribe(f"price = {sign}{at + 1}"))
                await until(lambda: regions(peers) >= 3)
            await until(lambda: regions(peers) == 1)
            has_ended.set()
            await publishing
            await until(lambda: len(got) == len(sent))
            collecting.cancel()
            assert set(got.values()) == {1}

    run(scene())
