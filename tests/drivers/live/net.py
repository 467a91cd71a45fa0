"""Small overlays in this process, with clients' doors, for tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from wend.drivers.live.client import Client
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.server import Server
from wend.drivers.live.subscription import Arrival, Subscription
from wend.model.events import PeerId
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.ports import Neighbour, Started

PATIENCE_S = 60
PAIR = [(0, 1)]


class Site:
    def __init__(self, peer: LivePeer, server: Server) -> None:
        self.peer = peer
        self.server = server

    @property
    def url(self) -> str:
        return f"wend://127.0.0.1:{self.server.address[1]}"


@asynccontextmanager
async def overlay(links: list[tuple[PeerId, PeerId]], **server: Any) -> AsyncIterator[list[Site]]:
    """Peers numbered from 0; `server` goes to each peer's `Server`."""
    ids = sorted({peer for link in links for peer in link}) or [0]
    peers = [LivePeer(PeerConfig(peer=peer, margin_ns=100 * MS)) for peer in ids]
    sites = [Site(peer, Server(peer, **server)) for peer in peers]
    for a, b in links:
        peers[a].link(b, peers[b].address)
        peers[b].link(a, peers[a].address)
    for site in sites:
        await site.server.start()
        near = sorted({b for a, b in links if a == site.peer.id} | {a for a, b in links if b == site.peer.id})
        site.peer.start(Started(tuple(Neighbour(n, 1 * MS) for n in near)))
    try:
        yield sites
    finally:
        for site in sites:
            await site.server.stop()
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


async def take(events: Subscription, count: int) -> list[Arrival]:
    return [await anext(events) for _ in range(count)]


async def fresh(events: Subscription) -> Arrival:
    """The next event that is not part of finding out who is there."""
    while (event := await anext(events)).payload == b"are you there":
        pass
    return event
