"""False failures: outages that busy peers and busy hosts see although no link ever fails.

- `load`: two linked peers on loopback are offered 10 events per millisecond for 30 seconds.
- `hog`: 20 peers with five or six links each publish an event per second that all others want, for 20 seconds, beside
  as many processes that only compute as there are cores.

Every `link-down`, every reroute and every duplicate is a mistake. All peers are processes of their own.

`python -m benchmarks.false_failures [--only load|hog] [--seconds N] [--json]`.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import uvloop

from benchmarks.loopback import open_client, peer_command, peer_url, start_quietly, write_peer
from wend.drivers.live.client.client import Client
from wend.drivers.live.client.connect import connect
from wend.drivers.live.client.event_stream import EventStream
from wend.matching.filters import topic_filter

LOAD_PER_S = 10_000
LOAD_SECONDS, HOG_SECONDS = 30.0, 20.0
PEERS = 20
STEPS = (1, 4, 9)
"""To which peers ahead on a ring a peer has links."""
WARM_UP_S = 3.0
SETTLE_S = 2.0
_PORT = 18_500
_HOG = "while True: pass"


@contextmanager
def _processes(commands: list[list[str]]) -> Iterator[None]:
    """Run processes, and end them afterwards."""
    processes = [start_quietly(each) for each in commands]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _peers(folder: Path, links: set[tuple[int, int]], peers: int) -> list[list[str]]:
    """The commands of peers with these links."""
    neighbours = {me: [a + b - me for a, b in sorted(links) if me in (a, b)] for me in range(peers)}
    return [peer_command(write_peer(folder, _PORT, me, others)) for me, others in neighbours.items()]


@asynccontextmanager
async def _clients(peers: int) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as open_:
        yield [await open_.enter_async_context(open_client(_PORT, number)) for number in range(peers)]


async def _counts(clients: list[Client]) -> Counter[str]:
    """The counts of all peers together."""
    found: Counter[str] = Counter()
    for client in clients:
        status = await client.status()
        found.update(status.notices)
        found["data"] += status.data
        found.update({f"dropped: {why}": count for why, count in status.drops.items()})
    return found


async def _read(events: EventStream, got: Counter[str]) -> None:
    async for _ in events:
        got["delivered"] += 1


def _report(before: Counter[str], after: Counter[str], published: int, wanted: int, delivered: int) -> dict[str, float]:
    spent = Counter({name: count - before[name] for name, count in after.items()})
    return {
        "published": published,
        "delivered_share": delivered / max(1, wanted),
        "link_downs": spent["link-down"],
        "reroutes": spent["reroute"],
        "duplicates": spent["duplicate"],
        "duplicates_share": spent["duplicate"] / max(1, spent["data"]),
        "late_acks": spent["late-ack"],
        "dropped": sum(count for name, count in spent.items() if name.startswith("dropped")),
    }


async def load(seconds: float) -> dict[str, float]:
    """Two peers that are offered more than they can carry."""
    with tempfile.TemporaryDirectory() as folder, _processes(_peers(Path(folder), {(0, 1)}, 2)):
        async with _clients(2) as (publisher, subscriber), connect(peer_url(_PORT, 0)) as observer:
            got: Counter[str] = Counter()
            async with subscriber.subscribe(topic_filter("t")) as events:
                reader = asyncio.create_task(_read(events, got))
                while not got:
                    await publisher.publish({"topic": "t"}, bytes(100))
                    await asyncio.sleep(0.1)
                before, delivered = await _counts([observer, subscriber]), got["delivered"]
                published = await _publish_fast(publisher, seconds)
                await publisher.flush()
                await _wait_until_settled(got)
                after = await _counts([observer, subscriber])
                reader.cancel()
            return _report(before, after, published, published, got["delivered"] - delivered) | {
                "per_ms": published / seconds / 1000
            }


async def _publish_fast(client: Client, seconds: float) -> int:
    """Post 10 events per millisecond. A peer that pushes back takes less, and then the rest is not offered later."""
    published, payload, began = 0, bytes(100), time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        due = min(int((now - began) * LOAD_PER_S) - published, LOAD_PER_S // 100)
        if due <= 0:
            await asyncio.sleep(0.001)
        for _ in range(due):
            await client.post({"topic": "t"}, payload)
        published += max(0, due)
    return published


async def _wait_until_settled(got: Counter[str]) -> None:
    """Wait until nothing more comes."""
    before = -1
    while before != got["delivered"]:
        before = got["delivered"]
        await asyncio.sleep(SETTLE_S)


async def hog(seconds: float) -> dict[str, float]:
    """Many peers on a host that is busy with something else."""
    links = {(min(a, b), max(a, b)) for a in range(PEERS) for b in [(a + step) % PEERS for step in STEPS]}
    with tempfile.TemporaryDirectory() as folder, _processes(_peers(Path(folder), links, PEERS)):
        async with AsyncExitStack() as open_:
            clients = await open_.enter_async_context(_clients(PEERS))
            got: Counter[str] = Counter()
            for number, client in enumerate(clients):
                for other in range(PEERS):
                    if other != number:
                        events = await open_.enter_async_context(client.subscribe(topic_filter(f"t{other}")))
                        open_.callback(asyncio.create_task(_read(events, got)).cancel)
            open_.enter_context(_processes([[sys.executable, "-c", _HOG]] * (os.cpu_count() or 1)))
            await _publish(clients, WARM_UP_S)
            await _wait_until_settled(got)
            before, delivered = await _counts(clients), got["delivered"]
            published = await _publish(clients, seconds)
            await _wait_until_settled(got)
            wanted = published * (PEERS - 1)
            return _report(before, await _counts(clients), published, wanted, got["delivered"] - delivered)


async def _publish(clients: list[Client], seconds: float) -> int:
    """One event per second by each client, evenly over time."""
    began, wanted = time.monotonic(), int(seconds * len(clients))
    for number in range(wanted):
        await asyncio.sleep(max(0.0, began + number / len(clients) - time.monotonic()))
        publisher = number % len(clients)
        await clients[publisher].post({"topic": f"t{publisher}"}, bytes(100))
    return wanted


EXPERIMENTS = {"load": (load, LOAD_SECONDS), "hog": (hog, HOG_SECONDS)}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", choices=list(EXPERIMENTS))
    asked.add_argument("--seconds", type=float)
    asked.add_argument("--json", action="store_true")
    given = asked.parse_args()
    if given.seconds is not None and given.seconds <= 0:
        asked.error("--seconds must be above 0")
    found = {
        name: uvloop.run(experiment(given.seconds or seconds))
        for name, (experiment, seconds) in EXPERIMENTS.items()
        if given.only in (None, name)
    }
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for name, metrics in found.items():
        print(name)
        for metric, value in metrics.items():
            print(f"  {metric:18} {value:12,.4g}")


if __name__ == "__main__":
    main()
