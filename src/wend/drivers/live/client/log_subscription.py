"""A subscription that reads a log: history, then the events that come.

The peer reads both through one cursor, and sends on as the application takes events. After a break of the connection
the client asks for the positions after the last one that it has, so it misses no event and gets none twice.
"""

import logging
from collections import Counter

import msgspec

from wend.drivers.live import frames
from wend.drivers.live.client.event_streams import DeliveryBuffer, EventStreams
from wend.drivers.live.log_frames import LogPlace
from wend.model.errors import WendError
from wend.model.events import PeerId

log = logging.getLogger("wend.client")


class LogSubscription:
    """One reader of a log (`OpenSubscription`)."""

    def __init__(self, streams: EventStreams, request: frames.ReadLog) -> None:
        self.handle = request.handle
        self.missed: Counter[str] = Counter()
        self.dropped = 0
        self.peer: PeerId = -1
        self.buffer = DeliveryBuffer()
        self.log = request.log
        """The name of the log, once the peer has told it."""
        self.next_position = 0
        """The position after the last event that the client has; 0 before the peer has told where it begins."""
        self._streams = streams
        self._request = request
        self._log_id = ""
        self._taken = 0
        """Events that the application has taken since the peer was told."""

    async def open(self) -> None:
        await self._streams.open(self)

    async def close(self) -> None:
        await self._streams.unsubscribe(self)

    async def take(self) -> frames.Delivery:
        """The next event. Raises like `DeliveryBuffer.take`."""
        delivery = await self.buffer.take()
        self._taken += 1
        if not self.buffer or self._taken >= max(1, self._request.window // 4):
            self._taken = 0
            self._streams.go_on(self.handle, delivery.position)
        return delivery

    # ---------------------------------------------------------------- called by `EventStreams` (`OpenSubscription`)

    def request(self, ref: int) -> frames.ReadLog:
        if not self._log_id:
            return msgspec.structs.replace(self._request, ref=ref)
        begin = LogPlace("position", self.next_position)
        return msgspec.structs.replace(self._request, ref=ref, begin=begin, log=self.log, log_id=self._log_id)

    def deliver(self, delivery: frames.Delivery) -> None:
        if not self.buffer.ended and delivery.position >= self.next_position:
            self.next_position = delivery.position + 1
            self.buffer.add(delivery)

    def on_reading(self, frame: frames.Reading) -> None:
        """The peer has found where to begin."""
        self.log, self._log_id = frame.log, frame.log_id
        self.next_position = max(self.next_position, frame.position)

    def on_missed(self, frame: frames.MissedFrame) -> None:
        self.missed.update(frame.counts)
        self.next_position = max(self.next_position, frame.below)
        for code, count in frame.counts.items():
            log.warning("log %s: %d lost below %d: %s", self.log, count, frame.below, code)

    def on_subscribed(self, peer: PeerId) -> None:
        self.peer = peer

    def on_connection_lost(self) -> None:
        """The buffer keeps what it has."""

    def end(self, error: WendError | None) -> None:
        self.buffer.end(error)

    async def wait_until_consumed(self) -> None:
        await self.buffer.wait_until_consumed()
