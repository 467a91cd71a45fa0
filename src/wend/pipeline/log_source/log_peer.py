"""Asks peers for their logs, from the tasks and the planner of Spark, which know no event loop.

The event loop runs only while the caller waits. Between two calls the connection rests; if it has broken meanwhile, the
next call makes it again.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar

from wend.drivers.live import frames
from wend.drivers.live.client.connect import make_tls_reader
from wend.drivers.live.client.log_ranges import LogRange, LogRangeClient
from wend.drivers.live.log_frames import LogPlace, Records
from wend.model.errors import ConnectionLost, Refused, WendError
from wend.pipeline.log_source.options import PeerAccess

T = TypeVar("T")
Block = Records | frames.MissedFrame

FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 2.0
_OTHER_PEER: Final = ("unknown-log", "other-log")
"""Refusals after which another peer is asked."""


class LogPeer:
    """A connection to the first of several peers that has a log."""

    def __init__(self, access: PeerAccess, log: str, log_id: str = "") -> None:
        """`log_id`: the log that it must be; empty: any of this name."""
        self._access = access
        self._log = log
        self._log_id = log_id
        self._loop = asyncio.new_event_loop()  # `asyncio.Runner` costs much per call
        self._client: LogRangeClient | None = None

    def __enter__(self) -> "LogPeer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._disconnect()
        self._loop.close()

    def _run(self, play: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(play)

    def find(self, place: LogPlace, *, is_patient: bool) -> frames.Reading:
        """Where a place in the log is. With patience it tries for a while to reach a peer. Raises `WendError`."""
        give_up = time.monotonic() + (self._access.patience_s if is_patient else 0.0)
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return self._find(place)
            except ConnectionLost:
                self._disconnect()
                if time.monotonic() >= give_up:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _find(self, place: LogPlace) -> frames.Reading:
        if self._client is not None:
            return self._run(self._client.find(self._log, place, self._log_id))
        failures: list[WendError] = []
        for url in self._access.urls:
            try:
                self._client = self._connect(url)
                return self._run(self._client.find(self._log, place, self._log_id))
            except (ConnectionLost, Refused) as error:
                self._disconnect()
                if isinstance(error, Refused) and error.code not in _OTHER_PEER:
                    raise
                failures.append(error)
        lost = [error for error in failures if isinstance(error, ConnectionLost)]
        first = (lost or failures)[0]  # a peer that cannot be reached may have the log
        if len(failures) == 1:
            raise first
        raise type(first)("; ".join(map(str, failures)), code=first.code)

    def _connect(self, url: str) -> LogRangeClient:
        access = self._access
        tls = make_tls_reader(url, access.credentials)

        async def connect() -> LogRangeClient:
            client = LogRangeClient(url, timeout=access.timeout_s, patience=access.patience_s, tls=tls)
            await client.start()
            return client

        return self._run(connect())

    def read(self, wanted: LogRange, filter: str, most: int) -> Iterator[list[Block]]:
        """The events of a range that match a filter, and what the range lacks, in lists of at least `most` events
        until the last. Raises `WendError`."""
        self.find(LogPlace("position", wanted.begin), is_patient=True)
        assert self._client is not None
        blocks = self._client.read(wanted, filter)
        try:
            while gathered := self._run(_gather(blocks, most)):
                yield gathered
        finally:
            self._run(blocks.aclose())

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(WendError):
                self._run(client.close())


async def _gather(blocks: AsyncGenerator[Block, None], most: int) -> list[Block]:
    """The next blocks, up to the one with which they have so many events."""
    gathered: list[Block] = []
    count = 0
    async for block in blocks:
        gathered.append(block)
        count += len(block.records) if isinstance(block, Records) else 0
        if count >= most:
            break
    return gathered
