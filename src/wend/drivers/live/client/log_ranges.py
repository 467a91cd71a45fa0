"""Reads ranges of the logs of a peer, for jobs that read much and follow nothing.

The peer sends records as they are in the log, many in a frame. After a break of the connection the reader asks for the
positions after the last one that it has, so it misses no event and gets none twice.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Final

import msgspec

from wend.drivers.live import frames
from wend.drivers.live.client.answers import make_no_answer_error, make_unexpected_answer_error
from wend.drivers.live.client.connection import PeerConnection
from wend.drivers.live.log_frames import LogPlace, Records
from wend.drivers.live.transport import wire
from wend.model.errors import ClientError, WendError, make_refusal

if TYPE_CHECKING:
    from wend.drivers.live.access.tls import ClientTls

WINDOW: Final = 10_000
"""The most events that the peer sends before they are taken."""
_NOTHING: Final = LogPlace("position", 0)
"""An end before all events."""


class LogRange(msgspec.Struct, frozen=True):
    """Positions of one log, of which those from `begin` up to, but without, `end` are read."""

    log: str
    log_id: str
    begin: int
    end: int


class _Reader:
    """One request to read a log, over as many connections as it takes."""

    def __init__(self, request: frames.ReadLog) -> None:
        self.blocks: deque[Records | frames.MissedFrame] = deque()
        self.reading: frames.Reading | None = None
        self.has_ended = False
        self.error: WendError | None = None
        self.changed = asyncio.Event()
        self._request = request
        self._next_position = 0

    @property
    def handle(self) -> int:
        return self._request.handle

    def request(self, ref: int) -> frames.ReadLog:
        """The request for what is missing."""
        if self._next_position:
            begin = LogPlace("position", self._next_position)
            self._request = msgspec.structs.replace(self._request, begin=begin)
        return msgspec.structs.replace(self._request, ref=ref)

    def receive(self, frame: frames.ToClient) -> None:
        match frame:
            case Records(_, records):
                self._next_position = records[-1].position + 1
                self.blocks.append(frame)
            case frames.MissedFrame(_, _, below):
                self._next_position = max(self._next_position, below)
                self.blocks.append(frame)
            case frames.Reading():
                self.reading = frame
            case frames.Finished():
                self.has_ended = True
        self.changed.set()

    def end(self, error: WendError) -> None:
        self.error = self.error or error
        self.has_ended = True
        self.changed.set()


class LogRangeClient:
    """A connection to one peer for reading its logs; one request at a time."""

    def __init__(
        self, url: str, *, timeout: float, patience: float, tls: "Callable[[], ClientTls] | None" = None
    ) -> None:
        """All times are in seconds, as in `connect`."""
        self._timeout = timeout
        self._connection = PeerConnection(
            url,
            timeout=timeout,
            patience=patience,
            received=self._on_frame,
            restore=self._restore,
            lost=self._on_connection_lost,
            ended=self._on_ended,
            tls=tls,
        )
        self._number = itertools.count(1).__next__
        self._reader: _Reader | None = None
        self._ref = 0
        """The number of the request of this reader."""

    async def start(self) -> None:
        """Connect. Raises if the peer cannot be reached."""
        await self._connection.start()

    async def close(self) -> None:
        await self._connection.close()

    async def find(self, log: str, place: LogPlace, log_id: str = "") -> frames.Reading:
        """Where a place in a log is. Raises if there is no such log, or it is not the one of this id."""
        request = frames.ReadLog(0, self._number(), "true", place, _NOTHING, log, log_id, records=True)
        try:
            async with asyncio.timeout(self._timeout):
                reader = await self._open(request)
                while reader.reading is None and not reader.has_ended:
                    reader.changed.clear()
                    await reader.changed.wait()
        except TimeoutError:
            raise make_no_answer_error(self._connection.current_url, self._timeout) from None
        finally:
            self._close_reader()
        if reader.reading is None:
            raise reader.error or make_unexpected_answer_error(self._connection.current_url)
        return reader.reading

    async def read(self, wanted: LogRange, filter: str) -> AsyncGenerator[Records | frames.MissedFrame, None]:
        """The events of a range that match a filter, and what the range lacks."""
        begin, end = (LogPlace("position", each) for each in (wanted.begin, wanted.end))
        request = frames.ReadLog(0, self._number(), filter, begin, end, wanted.log, wanted.log_id, WINDOW, records=True)
        reader = await self._open(request)
        try:
            while True:
                while reader.blocks:
                    block = reader.blocks.popleft()
                    yield block
                    if isinstance(block, Records):
                        self._write(frames.Continue(reader.handle, block.records[-1].position))
                if reader.has_ended:
                    break
                reader.changed.clear()
                await reader.changed.wait()
        finally:
            self._close_reader()
        if reader.error is not None:
            raise reader.error

    async def _open(self, request: frames.ReadLog) -> _Reader:
        await self._connection.wait_until_open()
        self._reader = _Reader(request)
        self._ask(self._reader)
        return self._reader

    def _ask(self, reader: _Reader) -> None:
        self._ref = self._number()
        self._write(reader.request(self._ref))

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            self._write(frames.Unsubscribe(self._number(), reader.handle))

    def _write(self, frame: frames.ToPeer) -> None:
        if self._connection.writer is not None:
            self._connection.unwritten.append(wire.encode_frame(frame))
            self._connection.write_soon()

    # ---------------------------------------------------------------- called by the connection

    def _on_frame(self, frame: frames.ToClient) -> None:
        reader = self._reader
        if reader is None:
            return
        if isinstance(frame, frames.RefusedFrame):
            if frame.ref == self._ref:
                reader.end(make_refusal(frame.code, frame.why))
        elif getattr(frame, "handle", None) == reader.handle:
            reader.receive(frame)

    def _restore(self) -> None:
        if self._reader is not None and not self._reader.has_ended:
            self._ask(self._reader)

    def _on_connection_lost(self, error: ClientError) -> None:
        """Do nothing: the connection comes back, or ends."""

    def _on_ended(self, error: ClientError) -> None:
        if self._reader is not None and not self._reader.has_ended:
            self._reader.end(error)
