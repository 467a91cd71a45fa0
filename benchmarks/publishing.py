"""Publications per second of one client: one after another, by many tasks, and by `publish_many`.

The peer runs in a process of its own on loopback. It has no neighbours, and nobody is subscribed, so its work is what
every publication costs at least: to read the request, to look for subscribers, and to write the receipt.

`python -m benchmarks.publishing`; `--json` for machines.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

from benchmarks.rows import Row
from wend.drivers.live.broker.broker import Broker
from wend.drivers.live.broker.listener import TcpListener
from wend.drivers.live.client.client import Client
from wend.drivers.live.client.connect import connect
from wend.drivers.live.peer import LivePeer
from wend.protocol.config import PeerConfig
from wend.protocol.ports import Started

EVENTS = 20_000
TASKS = 100
PAYLOAD = bytes(100)
ATTRIBUTES = {"topic": "x", "temperature": 15}


def publications(events: int = EVENTS) -> dict[str, float]:
    """Publications per second, by the way they are published."""
    with subprocess.Popen([sys.executable, "-m", "benchmarks.publishing", "--peer"], stdout=subprocess.PIPE) as peer:
        assert peer.stdout is not None
        try:
            return uvloop.run(_measure(f"wend://127.0.0.1:{int(peer.stdout.readline())}", events))
        finally:
            peer.terminate()


async def _measure(url: str, events: int) -> dict[str, float]:
    async with connect(url) as client:
        await client.publish_many([(ATTRIBUTES, PAYLOAD)] * 1000)  # so that caches are as in the middle of a run
        return {name: await _rate(publish, client, events) for name, publish in WAYS.items()}


async def _rate(publish: Callable[[Client, int], Awaitable[object]], client: Client, events: int) -> float:
    began = time.perf_counter()
    await publish(client, events)
    return events / (time.perf_counter() - began)


async def _one_by_one(client: Client, events: int) -> None:
    for _ in range(events):
        await client.publish(ATTRIBUTES, PAYLOAD)


async def _by_tasks(client: Client, events: int) -> None:
    await asyncio.gather(*(_one_by_one(client, events // TASKS) for _ in range(TASKS)))


async def _at_once(client: Client, events: int) -> None:
    await client.publish_many([(ATTRIBUTES, PAYLOAD)] * events)


WAYS: dict[str, Callable[[Client, int], Awaitable[object]]] = {
    "publish": _one_by_one,
    "tasks": _by_tasks,
    "publish_many": _at_once,
}


async def _serve() -> None:
    peer = LivePeer(PeerConfig(peer=0))
    listener = TcpListener(Broker(peer))
    await listener.start()
    peer.start(Started(()))
    print(listener.address[1], flush=True)
    await asyncio.Event().wait()


def rows() -> list[Row]:
    found = publications()
    one_by_one = found["publish"]
    return [
        Row("publishing.tasks_per_s", f"publications/s by {TASKS} tasks (by one)", found["tasks"], one_by_one),
        Row("publishing.many_per_s", "publications/s by publish_many (by publish)", found["publish_many"], one_by_one),
    ]


def main() -> None:
    if sys.argv[1:] == ["--peer"]:
        uvloop.run(_serve())
        return
    found = publications()
    if "--json" in sys.argv:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name:12}  {rate:8.0f}/s" for name, rate in found.items()))


if __name__ == "__main__":
    main()
