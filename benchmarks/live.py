"""Round trips per second between two live peers over loopback, beside a bare UDP echo on the same event loop.

In a round trip, one peer publishes an event, the other delivers it and answers with another event, and the first
delivers that: four datagrams, since each event is acknowledged. The echo is two datagrams and nothing else, so it is
the best that the machine and the loop can do.
"""

import asyncio
import time

import uvloop

from benchmarks.rows import Row
from wend.drivers.live.observer import Observer
from wend.drivers.live.peer import LivePeer
from wend.model.publication import Publication
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.ports import Deliver, LocalSubscription, Neighbour, Started

SECONDS = 3.0


def round_trips(seconds: float = SECONDS) -> dict[str, float]:
    """Round trips per second, one at a time."""
    return {"wend": uvloop.run(_wend(seconds)), "udp": uvloop.run(_udp(seconds))}


class RoundTripCounter:
    """Counts round trips until the time is over."""

    def __init__(self, seconds: float) -> None:
        self._begin = time.perf_counter()
        self._end = self._begin + seconds
        self._done = asyncio.Event()
        self._count = 0

    def one_more(self) -> bool:
        """Whether to go on."""
        self._count += 1
        if time.perf_counter() < self._end:
            return True
        self._done.set()
        return False

    async def rate(self) -> float:
        await self._done.wait()
        return self._count / (time.perf_counter() - self._begin)


async def _wend(seconds: float) -> float:
    here, there = (LivePeer(PeerConfig(peer=peer, strategy="dcrd", margin_ns=100 * MS)) for peer in (0, 1))
    here.add_peer(1, there.address)
    there.add_peer(0, here.address)
    here.start(Started((Neighbour(1, MS),), (LocalSubscription(1, "topic = 'pong'"),), ("topic = 'ping'",)))
    there.start(Started((Neighbour(0, MS),), (LocalSubscription(1, "topic = 'ping'"),), ("topic = 'pong'",)))
    ping, pong = Publication({"topic": "ping"}), Publication({"topic": "pong"})
    while not here.publish(ping).targets or not there.publish(pong).targets:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    count = RoundTripCounter(seconds)

    class Ping(Observer):
        def on_delivered(self, effect: Deliver) -> None:
            there.publish(Publication({"topic": "pong"}, b"payload"))

    class Pong(Observer):
        def on_delivered(self, effect: Deliver) -> None:
            if count.one_more():
                here.publish(Publication({"topic": "ping"}, b"payload"))

    there.observe(Ping())
    here.observe(Pong())
    here.publish(Publication({"topic": "ping"}, b"payload"))
    try:
        return await count.rate()
    finally:
        here.close()
        there.close()


class _EchoServer(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.transport.sendto(data, addr)


class _EchoClient(_EchoServer):
    count: RoundTripCounter

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self.count.one_more():
            self.transport.sendto(data, addr)


async def _udp(seconds: float) -> float:
    loop = asyncio.get_running_loop()
    there, _ = await loop.create_datagram_endpoint(_EchoServer, local_addr=("127.0.0.1", 0))
    here, caller = await loop.create_datagram_endpoint(_EchoClient, local_addr=("127.0.0.1", 0))
    caller.count = RoundTripCounter(seconds)
    here.sendto(bytes(100), there.get_extra_info("sockname"))
    try:
        return await caller.count.rate()
    finally:
        here.close()
        there.close()


def rows() -> list[Row]:
    found = round_trips()
    what = "live round trips/s: publish, deliver, answer (bare asyncio UDP echo)"
    return [Row("live.round_trips_per_s", what, found["wend"], found["udp"])]
