"""The searches for underlay paths that a live peer has under way."""

import asyncio
from collections.abc import Callable, Mapping

from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.counters import FailureCode
from wend.drivers.live.paths.source import PathSource
from wend.model.events import PeerId
from wend.model.paths import Path
from wend.protocol.ports import FindPath, PathFound


class PathSearches:
    """Answers `FindPath` with what a source finds."""

    def __init__(
        self,
        me: PeerId,
        source: PathSource,
        addresses: Mapping[PeerId, Address],
        tell: Callable[[PathFound], None],
        failed: Callable[[FailureCode, FindPath], None],
    ) -> None:
        """`tell` gets each answer; `failed` counts a mistake of the source."""
        self._me = me
        self._source = source
        self._addresses = addresses
        self._tell = tell
        self._failed = failed
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
            address = self._addresses.get(effect.peer)
            if address is not None:
                path = await self._source.find(self._me, effect.peer, address)
        except Exception:
            self._failed("carry-out-effect", effect)
        self._tell(PathFound(effect.peer, path))
