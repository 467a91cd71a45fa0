"""Small overlays in this process, with listeners for clients, for tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from wend.drivers.live import frames
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.broker.broker import Broker
from wend.drivers.live.broker.listener import TcpListener
from wend.drivers.live.client.arrivals import Arrival
from wend.drivers.live.client.client import Client
from wend.drivers.live.client.event_stream import EventStream
from wend.drivers.live.observer import Observer
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.transport import wire
from wend.model.events import PeerId
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.ports import Deliver, Neighbour, Notice, Receipt, Started

PATIENCE_S = 60
PAIR = [(0, 1)]


class Site:
    """A live peer with a broker and a listener."""

    def __init__(self, peer: LivePeer, **limits: Any) -> None:
        self.peer = peer
        self.broker = Broker(peer)
        self.listener = TcpListener(self.broker, **limits)

    @property
    def url(self) -> str:
        return f"wend://127.0.0.1:{self.listener.address[1]}"

    @property
    def counts(self) -> dict[str, int]:
        """The counters of clients."""
        return self.broker.counts


class Record(Observer):
    """Records all that an observer is told."""

    def __init__(self) -> None:
        self.deliveries: list[Deliver] = []
        self.receipts: list[Receipt] = []
        self.notices: list[Notice] = []
        self.link_changes: list[tuple[PeerId, bool]] = []

    def on_delivered(self, effect: Deliver) -> None:
        self.deliveries.append(effect)

    def on_published(self, receipt: Receipt) -> None:
        self.receipts.append(receipt)

    def on_notice(self, notice: Notice) -> None:
        self.notices.append(notice)

    def on_link_change(self, neighbour: PeerId, up: bool) -> None:
        self.link_changes.append((neighbour, up))


class RawClient:
    """A connection to a listener, frame by frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._splitter = wire.FrameSplitter()
        self._received: list[frames.ToClient] = []

    @classmethod
    async def connect(cls, address: Address, **options: Any) -> "RawClient":
        return cls(*await asyncio.open_connection(*address, **options))

    def send(self, *sent: frames.ToPeer) -> None:
        self.writer.write(b"".join(map(wire.encode_frame, sent)))

    async def receive(self, count: int = 1) -> list[frames.ToClient]:
        """The next frames."""
        while len(self._received) < count:
            data = await self.reader.read(1 << 20)
            assert data, "the peer closed the connection"
            self._received += [wire.decode_to_client(body) for body in self._splitter.feed(data)]
        found, self._received = self._received[:count], self._received[count:]
        return found

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def overlay(
    links: list[tuple[PeerId, PeerId]], persistence: bool = False, **limits: Any
) -> AsyncIterator[list[Site]]:
    """Peers numbered from 0; `limits` go to each peer's `TcpListener`."""
    ids = sorted({peer for link in links for peer in link}) or [0]
    peers = [LivePeer(PeerConfig(peer=peer, margin_ns=100 * MS, persistence=persistence)) for peer in ids]
    sites = [Site(peer, **limits) for peer in peers]
    for a, b in links:
        peers[a].add_peer(b, peers[b].address)
        peers[b].add_peer(a, peers[a].address)
    for site in sites:
        await site.listener.start()
        near = sorted({b for a, b in links if a == site.peer.id} | {a for a, b in links if b == site.peer.id})
        site.peer.start(Started(tuple(Neighbour(n, 1 * MS) for n in near)))
    try:
        yield sites
    finally:
        for site in sites:
            await site.listener.stop()
            site.peer.close()


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not what():
            await asyncio.sleep(0.005)


async def known(client: Client, topic: str, targets: int) -> None:
    """Until the client's peer has heard of so many interested peers."""
    async with asyncio.timeout(PATIENCE_S):
        while (await client.publish({"topic": topic}, b"are you there")).targets != targets:
            await asyncio.sleep(0.005)


def run(scene: Coroutine[Any, Any, None]) -> None:
    """A scene of a test, which does not hang."""

    async def bounded() -> None:
        async with asyncio.timeout(120):
            await scene

    asyncio.run(bounded())


async def take(events: EventStream, count: int) -> list[Arrival]:
    return [await anext(events) for _ in range(count)]


async def fresh(events: EventStream) -> Arrival:
    """The next event that is not part of finding out who is there."""
    while (event := await anext(events)).payload == b"are you there":
        pass
    return event
