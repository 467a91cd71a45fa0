"""Two live peers that know each other."""

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any

from wend.drivers.live.peer import LivePeer
from wend.drivers.live.store.store import Store
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.ports import (
    LocalSubscription,
    Neighbour,
    Started,
)


def run(scene: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(200):
            await scene

    asyncio.run(bounded())


class Pair:
    """A live peer (0) and a plain socket that is its neighbour (1)."""

    def __init__(self, store: Store | None = None, wanted: tuple[LocalSubscription, ...] = ()) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.peer = LivePeer(PeerConfig(peer=0, strategy="dcrd", persistence=store is not None), store=store)
        self.peer.add_peer(1, self.socket.getsockname())
        self.peer.start(Started((Neighbour(1, 1 * MS),), wanted))

    def say(self, datagram: bytes) -> None:
        self.socket.sendto(datagram, self.peer.address)

    def deliver(self, datagram: bytes) -> None:
        """Past the sockets, at once."""
        self.peer.receive(memoryview(datagram), self.socket.getsockname())

    def close(self) -> None:
        self.peer.close()
        self.socket.close()
