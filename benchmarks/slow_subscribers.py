"""The cost of slow durable subscribers: the delay of other subscribers' events, alternately with and without them.

Two peers run in processes of their own, with persistence and stores. A publisher at one of them sends to a plain and a
durable subscriber at the other. Every second time, three more durable subscriptions at that peer want the same events:
one whose client reads ten events a second, one whose client never acknowledges any, and one whose client is gone. Their
backlogs are full for most of the time. The reference is the delay without them.

`python -m benchmarks.slow_subscribers`; `--json` for machines, `--rounds N`, `--rate N`.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

import wend
from benchmarks.rows import Row

FILTER = "topic = 'bench'"
MAX_EVENTS = 50
MAX_AGE_S = 0.3
SLOW: dict[str, dict[str, Any]] = {
    "slow": {"max_events": MAX_EVENTS, "window": 16},
    "silent": {"max_events": MAX_EVENTS, "window": 16, "ack": "explicit"},
    "gone": {"max_events": 10 * MAX_EVENTS, "max_age": MAX_AGE_S},
}
CONFIG = """
id = {me}
listen = "127.0.0.1:{mine}"
clients = "127.0.0.1:0"
persistence = true
store = "{me}.store"
[[neighbours]]
id = {other}
address = "127.0.0.1:{theirs}"
delay = "1ms"
"""


class SlowSubscribers:
    """The three durable subscriptions that nobody reads as they should. Their clients run in a process of their own."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def begin(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "benchmarks.slow_subscribers", "--read", self._url])
        async with wend.connect(self._url) as client:
            while len(await client.subscriptions()) < len(SLOW) + 1:
                await asyncio.sleep(0.01)

    async def end(self, published: int) -> list[str]:
        """Remove them. Returns the faults: a bound that does not hold, or an event that is not accounted for."""
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        wrong: list[str] = []
        async with wend.connect(self._url) as client:
            for name, options in SLOW.items():
                events = await client.subscribe(FILTER, name=name, **options)
                (waiting,) = [one.events for one in await client.subscriptions() if one.name == name]
                missed = sum(events.missed.values())
                if waiting > options["max_events"]:
                    wrong.append(f"{name}: {waiting} events wait, {options['max_events']} may")
                found = missed + waiting  # the slow one has read some; of the others, some may be counted in both
                if not missed or found > published + 20 or (found < published and name != "slow"):
                    wrong.append(f"{name}: {published} published, {waiting} wait, {missed} were reported")
                await events.close()
                await client.remove_subscription(name)
        return wrong


async def _read(url: str) -> None:
    """Be the clients of the slow subscriptions."""

    async def read(name: str) -> None:
        async with wend.connect(url) as client:
            events = await client.subscribe(FILTER, name=name, **SLOW[name])
            if name == "gone":
                return
            async for _ in events:
                if name == "slow":
                    await asyncio.sleep(0.1)

    await asyncio.gather(*map(read, SLOW))


async def _delays(publisher: wend.Client, others: list[wend.EventStream], events: int, rate: float) -> list[float]:
    """The delays of events at all other subscribers, in seconds."""
    found: list[float] = []

    async def read(stream: wend.EventStream) -> None:
        for _ in range(events):
            event = await anext(stream)
            found.append((time.monotonic_ns() - int(event.payload)) / 1e9)

    reading = [asyncio.create_task(read(stream)) for stream in others]
    began = time.monotonic()
    for number in range(events):
        await publisher.publish({"topic": "bench"}, b"%d" % time.monotonic_ns())
        await asyncio.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))
    await asyncio.gather(*reading)
    return found


async def _measure(publisher_url: str, url: str, rounds: int, events: int, rate: float) -> dict[str, Any]:
    p99: dict[bool, list[float]] = {False: [], True: []}
    wrong: list[str] = []
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(wend.connect(publisher_url))
        client = await stack.enter_async_context(wend.connect(url))
        others = [
            await stack.enter_async_context(client.subscribe(FILTER, name=name)) for name in (None, "well-behaved")
        ]
        while not (await publisher.publish({"topic": "bench"}, b"%d" % time.monotonic_ns())).targets:
            await asyncio.sleep(0.05)
        for stream in others:
            await anext(stream)
        await _delays(publisher, others, events // 4, rate)
        for _ in range(rounds):
            for with_slow in (False, True):
                slow = SlowSubscribers(url)
                if with_slow:
                    await slow.begin()
                delays = sorted(await _delays(publisher, others, events, rate))
                p99[with_slow].append(delays[int(0.99 * (len(delays) - 1))])
                if with_slow:
                    wrong += await slow.end(events)
    ratio = median(a / b for a, b in zip(p99[True], p99[False], strict=True))
    return {
        "without_ms": 1000 * median(p99[False]),
        "with_ms": 1000 * median(p99[True]),
        "ratio": ratio,
        "wrong": wrong,
    }


def delays(rounds: int = 15, events: int = 300, rate: float = 200.0) -> dict[str, Any]:
    """The 99th percentile of others' delays, the median of all rounds, and what is wrong with the slow ones' bounds."""
    with tempfile.TemporaryDirectory() as folder:
        # Ports of the kernel's own range could be taken by the clients' connections.
        first = 20_000 + os.getpid() % 10_000
        ports = (first, first + 1)
        peers = [_start(Path(folder), me, ports[me], ports[1 - me]) for me in (0, 1)]
        try:
            urls = [_url(peer) for peer in peers]
            return uvloop.run(_measure(urls[0], urls[1], rounds, events, rate))
        finally:
            for peer in peers:
                peer.terminate()
                peer.communicate()


def _start(folder: Path, me: int, mine: int, theirs: int) -> "subprocess.Popen[str]":
    file = folder / f"{me}.toml"
    file.write_text(CONFIG.format(me=me, mine=mine, other=1 - me, theirs=theirs))
    call = [sys.executable, "-m", "wend.console.start", "peer", "--config", str(file)]
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _url(peer: "subprocess.Popen[str]") -> str:
    assert peer.stdout is not None
    found = re.search(r"clients on (wend://\S+)", peer.stdout.readline())
    assert found is not None
    return found[1]


def rows() -> list[Row]:
    found = delays()
    what = "ms, p99 beside slow durable subscribers (without)"
    return [Row("slow_subscribers.p99_ms", what, found["with_ms"], found["without_ms"], less_is_better=True)]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--json", action="store_true")
    asked.add_argument("--rounds", type=int, default=15)
    asked.add_argument("--rate", type=float, default=200.0, help="events per second")
    asked.add_argument("--read", metavar="URL", help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.read:
        uvloop.run(_read(given.read))
        return
    found = delays(given.rounds, rate=given.rate)
    if given.json:
        print(json.dumps(found))
        return
    print(f"p99 {found['with_ms']:.1f} ms, {found['without_ms']:.1f} ms without them: {found['ratio']:.2f} x")
    print("\n".join(found["wrong"]) or "bounds hold, and missed events are reported")


if __name__ == "__main__":
    main()
