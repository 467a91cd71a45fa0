"""The clients of `throughput.py`: one publisher or subscriber of one system, in a process of its own.

    python -m benchmarks.throughput_clients SYSTEM publish|subscribe ADDRESS COUNT RATE

A publisher sends short messages until it reads a line, because the system may still learn of the subscriber. Then it
sends COUNT messages of 100 bytes, as fast as it can or at RATE per second. A subscriber says when the first message
came, and in the end how many came, when the last one came, and how old they were.
"""

import asyncio
import json
import struct
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

SIZE = 100
TASKS = 64
"""How many publications of a Wend client wait for their receipts at a time."""
SILENCE_S = 3.0
"""After this silence, a subscriber has got everything."""
_STAMP = struct.Struct("!q")
_WARM = b"warm"
_REST = bytes(SIZE - _STAMP.size)

Publish = Callable[[bytes], Awaitable[object]]


def time_stamp() -> bytes:
    return _STAMP.pack(time.monotonic_ns()) + _REST


class Arrivals:
    """The messages that a subscriber got."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._delays: list[int] = []
        self._last_ns = 0
        self._warm = False
        self._cpu_s = 0.0
        self.done = threading.Event()

    def take(self, payload: Any) -> None:
        if len(payload) != SIZE:
            if not self._warm:
                self._warm = True
                self._cpu_s = time.process_time()
                print("warm", flush=True)
            return
        self._last_ns = now = time.monotonic_ns()
        self._delays.append(now - _STAMP.unpack_from(payload)[0])
        if len(self._delays) >= self._count:
            self.done.set()

    def end(self) -> bool:
        """Whether all came, or nothing did for a while."""
        silent = self._last_ns and time.monotonic_ns() - self._last_ns > SILENCE_S * 1e9
        return bool(silent) or self.done.is_set()

    def tell(self) -> None:
        delays = sorted(self._delays)
        p50, p99 = (delays[int(share * (len(delays) - 1))] / 1e6 for share in (0.5, 0.99))
        said = {"count": len(delays), "last_ns": self._last_ns, "p50_ms": p50, "p99_ms": p99}
        print(json.dumps(said | {"cpu_s": time.process_time() - self._cpu_s}), flush=True)


async def _wait_for_end(arrivals: Arrivals) -> None:
    while not arrivals.end():
        await asyncio.sleep(0.05)


async def _pace(publish: Publish, count: int, rate: float) -> None:
    """One after another; at a rate, if there is one."""
    began = time.monotonic()
    for number in range(count):
        if rate:
            wait = began + number / rate - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
        await publish(time_stamp())


async def _warm_up(publish: Publish) -> None:
    """Publish short messages until the subscriber has got one and a line comes."""
    line = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    while not line.done():
        await publish(_WARM)
        await asyncio.sleep(0.02)


def _print_begin() -> float:
    print(json.dumps({"began_ns": time.monotonic_ns()}), flush=True)
    return time.process_time()


def _print_end(cpu_s: float) -> None:
    print(json.dumps({"cpu_s": time.process_time() - cpu_s}), flush=True)


# ---------------------------------------------------------------- Wend


async def wend(role: str, address: str, count: int, rate: float, receipts: bool) -> None:
    from wend.drivers.live.client.connect import connect

    attributes = {"topic": "bench"}
    async with connect(address) as client:
        if role == "subscribe":
            arrivals = Arrivals(count)

            async def read() -> None:
                async for event in events:
                    arrivals.take(event.payload)

            async with client.subscribe("topic = 'bench'") as events:
                print("ready", flush=True)
                reading = asyncio.create_task(read())
                await _wait_for_end(arrivals)
                reading.cancel()
            arrivals.tell()
            return

        async def publish(payload: bytes) -> None:
            await client.publish(attributes, payload)

        async def post(payload: bytes) -> None:
            await client.post(attributes, payload)

        await _warm_up(publish)
        cpu_s = _print_begin()
        if not receipts:
            await _pace(post, count, rate)
            await client.flush()
        elif rate:
            await _pace(publish, count, rate)
        else:
            await asyncio.gather(*(_pace(publish, count // TASKS, 0.0) for _ in range(TASKS)))
        _print_end(cpu_s)


# ---------------------------------------------------------------- others


def mqtt(role: str, address: str, count: int, rate: float, qos: int) -> None:
    from paho.mqtt import client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    host, _, port = address.partition(":")
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"bench-{role}")
    client.max_inflight_messages_set(TASKS)
    arrivals = Arrivals(count)
    if role == "subscribe":
        client.on_connect = lambda *_: client.subscribe("bench", qos)
        client.on_subscribe = lambda *_: print("ready", flush=True)
        client.on_message = lambda _client, _data, message: arrivals.take(message.payload)
    client.connect(host, int(port))
    client.loop_start()
    if role == "subscribe":
        while not arrivals.end():
            time.sleep(0.05)
        arrivals.tell()
        return

    async def publish(payload: bytes) -> Any:
        return client.publish("bench", payload, qos)

    async def run() -> None:
        await _warm_up(publish)
        cpu_s = _print_begin()
        await _pace(publish, count, rate)
        (await publish(_WARM)).wait_for_publish(60.0)
        _print_end(cpu_s)

    uvloop.run(run())


async def nats(role: str, address: str, count: int, rate: float) -> None:
    import nats as client

    connection = await client.connect(address)
    if role == "subscribe":
        arrivals = Arrivals(count)

        async def take(message: Any) -> None:
            arrivals.take(message.data)

        await connection.subscribe("bench", cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await connection.flush()
        print("ready", flush=True)
        await _wait_for_end(arrivals)
        arrivals.tell()
    else:

        async def publish(payload: bytes) -> None:
            await connection.publish("bench", payload)

        await _warm_up(publish)
        cpu_s = _print_begin()
        await _pace(publish, count, rate)
        await connection.flush(60)
        _print_end(cpu_s)
    await connection.close()


def zenoh(role: str, address: str, count: int, rate: float) -> None:
    import zenoh as client

    config = client.Config()
    config.insert_json5("mode", '"client"')
    config.insert_json5("connect/endpoints", json.dumps([address]))
    with client.open(config) as session:
        if role == "subscribe":
            arrivals = Arrivals(count)
            session.declare_subscriber("bench", lambda sample: arrivals.take(sample.payload.to_bytes()))
            print("ready", flush=True)
            while not arrivals.end():
                time.sleep(0.05)
            arrivals.tell()
            return
        blocks = client.CongestionControl.BLOCK
        publisher = session.declare_publisher("bench", congestion_control=blocks)

        async def publish(payload: bytes) -> None:
            publisher.put(payload)

        async def run() -> None:
            await _warm_up(publish)
            cpu_s = _print_begin()
            await _pace(publish, count, rate)
            _print_end(cpu_s)

        uvloop.run(run())


def zenoh_router(address: str) -> None:
    """A router, in this process: the wheel brings no program for one."""
    import zenoh as client

    config = client.Config()
    config.insert_json5("mode", '"router"')
    config.insert_json5("listen/endpoints", json.dumps([address]))
    with client.open(config):
        threading.Event().wait()


def main() -> None:
    system, role, address, count, rate = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5])
    match system.partition("-"):
        case ["wend", _, how]:
            uvloop.run(wend(role, address, count, rate, receipts=how == "publish"))
        case ["mqtt", _, qos]:
            mqtt(role, address, count, rate, int(qos))
        case ["nats", _, _]:
            uvloop.run(nats(role, address, count, rate))
        case ["zenoh", _, _] if role == "router":
            zenoh_router(address)
        case ["zenoh", _, _]:
            zenoh(role, address, count, rate)


if __name__ == "__main__":
    main()
