"""One peer as a process: opened from its file, served until a signal, left in order."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from wend.drivers.live import path_book
from wend.drivers.live.addresses import parse_address
from wend.drivers.live.config import NeighbourEntry, PeerFile
from wend.drivers.live.path_book import PathBook
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.server import Server
from wend.drivers.live.store import Store, fresh_incarnation
from wend.model.units import parse_duration


class Opened:
    """A peer with its clients' door and its store."""

    def __init__(self, file: PeerFile) -> None:
        self._file = file
        book = PathBook({}) if file.paths is None else path_book.read(Path(file.paths))
        store = None if file.store is None else Store(Path(file.store), sync=file.sync)
        incarnation = fresh_incarnation() if store is None else store.incarnation
        try:
            self.peer = LivePeer(
                file.peer_config(incarnation),
                listen=file.listen_address,
                insecure=file.insecure,
                store=store,
                paths=book.path,
            )
        except BaseException:
            if store is not None:
                store.close()
            raise
        if store is not None and store.torn:
            self.peer.counters.failed["torn record"] += store.torn
        self._stored = () if store is None else store.records
        self.server = Server(self.peer, experiments=file.experiments)

    async def start(self) -> None:
        try:
            await self.server.start(self._file.clients_address, insecure=self._file.insecure)
            for neighbour in self._file.neighbours:
                self._link(neighbour)
            self.peer.start(msgspec.structs.replace(self._file.started(), stored=self._stored))
        except BaseException:
            await self.server.stop()
            self.peer.close()
            raise

    async def stop(self) -> None:
        await self.server.stop()
        await self.peer.stop()

    def _link(self, neighbour: NeighbourEntry) -> None:
        address, shape = parse_address(neighbour.address), neighbour.shape
        if shape is None:
            self.peer.link(neighbour.id, address)
        else:
            seed = (self._file.id << 32) + neighbour.id
            self.peer.link(neighbour.id, address, delay_ns=parse_duration(shape.delay), loss=shape.loss, seed=seed)


async def serve(file: PeerFile, on_ready: Callable[[Opened], None]) -> dict[str, int]:
    """Until SIGTERM or Ctrl-C; returns what was counted."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    opened = Opened(file)
    await opened.start()
    on_ready(opened)
    await stop.wait()
    counted = opened.server.status()
    await opened.stop()
    return counted
