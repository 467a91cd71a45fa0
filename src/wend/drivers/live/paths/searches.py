"""The searches for underlay paths that a live peer has under way."""

import asyncio
from typing import TYPE_CHECKING

from wend.drivers.live.paths.source import PathSource
from wend.model.paths import Path
from wend.protocol.ports import FindPath, PathFound

if TYPE_CHECKING:
    from wend.drivers.live.peer import LivePeer


class PathSearches:
    """Answers `FindPath` with what a source finds."""

    def __init__(self, peer: "LivePeer", source: PathSource) -> None:
        self._peer = peer
        self._source = source
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def close(self) -> None:
        self._loop = None
        for task in self._tasks:
            task.cancel()
        self._source.close()

    def find(self, effect: FindPath) -> None:
        if self._loop is not None:
            task = self._loop.create_task(self._search(effect))
            self._tasks.add(task)  # the loop itself holds tasks only weakly
            task.add_done_callback(self._tasks.discard)

    async def _search(self, effect: FindPath) -> None:
        path: Path | None = None
        try:
            address = self._peer.addresses.reachable.get(effect.peer)
            if address is not None:
                path = await self._source.find(self._peer.id, effect.peer, address)
        except Exception:
            self._peer.failed("carry-out-effect", effect)
        self._peer.tell(PathFound(effect.peer, path))
