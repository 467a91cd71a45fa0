"""The subscriptions of a client: the stream of events of each, and the table of all that are open.

A stream is what the application iterates over. The table opens and closes streams at the peer, hands them what the peer
sends, and subscribes them again over a new connection.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from typing import Any

import msgspec

from wend.drivers.live import frames
from wend.drivers.live.client.arrivals import Arrival, PublishReceipt, signer_of
from wend.drivers.live.client.connection import PeerConnection
from wend.drivers.live.client.request_channel import RequestChannel, refusal
from wend.model.errors import ClientError, FilterError, Refused, WendError
from wend.model.events import Attributes, Headers, PeerId, event_bytes
from wend.model.units import SECOND


class EventStream:
    """The events of one subscription, to iterate over; made by `Client.subscribe`.

    Its buffer is bounded by messages and by bytes, because either bound alone allows a gigabyte. A full buffer drops
    the oldest event; `dropped` counts the events that were dropped here and at the peer.
    """

    def __init__(self, streams: "EventStreams", request: frames.Subscribe, buffer_msgs: int, buffer_bytes: int) -> None:
        self._streams = streams
        self._request = request
        self._handle = request.handle
        self.filter = request.filter
        self.deadline_ns = request.deadline_ns
        self.reliability = request.reliability
        self.missed: Counter[str] = Counter()
        """Events that expired, and gaps that an ordered subscription skipped, by reason."""
        self.dropped = 0
        self.peer: PeerId = -1
        """The peer that it is subscribed at, or was last."""
        self._buffer_msgs = buffer_msgs
        self._buffer_bytes = buffer_bytes
        self._buffer: deque[tuple[frames.Delivery, int]] = deque()
        """With the size of each."""
        self._bytes = 0
        self._error: WendError | None = None
        self._entered = False
        self._ended = False
        self._changed = asyncio.Event()

    async def __aenter__(self) -> "EventStream":
        if self._ended:
            raise ClientError("this subscription is closed: make another")
        if not self._entered:
            await self._streams.open(self)
            self._entered = True
        return self

    def __await__(self) -> Generator[Any, None, "EventStream"]:
        return self.__aenter__().__await__()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the subscription; events in the buffer can still be read."""
        self._end(None)
        await self._streams.forget(self)

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> Arrival:
        """Ends when the subscription is closed; raises when the peer did not come back, or refused it then."""
        while not self._buffer:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            if not self._entered:
                raise ClientError("enter it first: async with client.subscribe(...)")
            await self._change()
        delivery, size = self._buffer.popleft()
        self._bytes -= size
        self._changed.set()
        return self._arrival(delivery, delivery.age_ns / SECOND)

    def _arrival(self, delivery: frames.Delivery, age: float) -> Arrival:
        event = delivery.event
        id_ = event.origin or event.id
        headers, signer = signer_of(event.headers)
        return Arrival(
            id_, event.attributes, event.payload, age, delivery.late, headers, self, delivery.retained, signer
        )

    async def reply(
        self, request: Arrival, payload: bytes, attributes: Attributes | None, headers: Headers | None
    ) -> PublishReceipt:
        """Answer a request that came by this subscription; `Arrival.reply` calls it."""
        from wend.drivers.live.client.requests import reply_to

        return await self._streams.publish(reply_to(request, payload, attributes, headers))

    async def consumed(self) -> None:
        """Wait until the buffer is empty."""
        while self._buffer:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # ---------------------------------------------------------------- called by `EventStreams` alone

    def _numbered(self, ref: int) -> frames.Subscribe:
        new = self.peer == -1  # over a new connection it does not get retained events again
        return msgspec.structs.replace(self._request, ref=ref, retained=self._request.retained and new)

    def _deliver(self, delivery: frames.Delivery) -> None:
        if self._ended:
            return
        self._append(delivery)
        while len(self._buffer) > self._buffer_msgs or self._bytes > self._buffer_bytes:
            self._bytes -= self._buffer.popleft()[1]
            self.dropped += 1

    def _append(self, delivery: frames.Delivery) -> None:
        size = event_bytes(delivery.event)
        self._buffer.append((delivery, size))
        self._bytes += size
        self._changed.set()

    def _subscribed(self, peer: PeerId) -> None:
        """Called when a peer has confirmed the subscription: at first, and whenever it was restored, here or at another
        peer."""
        self.peer = peer

    def _end(self, error: WendError | None) -> None:
        self._ended = True
        self._error = self._error or error
        self._changed.set()


class EventStreams:
    """The open streams of a client, by the number of their subscription."""

    def __init__(
        self,
        connection: PeerConnection,
        channel: RequestChannel,
        publish: Callable[[frames.Publish], Awaitable[PublishReceipt]],
    ) -> None:
        """`publish` sends a publication that has no number yet."""
        self.publish = publish
        self._connection = connection
        self._channel = channel
        self._open: dict[int, EventStream] = {}
        self._restoring: dict[int, EventStream] = {}
        """By the number of the request that subscribes them again."""

    @property
    def peer(self) -> PeerId:
        """The peer that the client is connected to, or was last."""
        return self._connection.peer

    # ---------------------------------------------------------------- called by streams

    async def open(self, stream: EventStream) -> None:
        """Subscribe it at the peer. Raises where the peer refuses it."""
        # If it were registered before the connection is back, it would be restored and then subscribed a second time.
        await self._connection.opened()
        channel = self._channel
        self._open[stream._handle] = stream
        try:
            await channel.call(stream._numbered(channel.number()), frames.Completed)
            stream._subscribed(self.peer)
        except BaseException as error:
            self._open.pop(stream._handle, None)
            if self._connection.writer is not None and not isinstance(error, FilterError | Refused):
                # Nobody waits for the answer any more, and it may be yes.
                channel.write(frames.encode(frames.Unsubscribe(channel.number(), stream._handle)))
            raise

    async def forget(self, stream: EventStream) -> None:
        """End its subscription at the peer."""
        if self._open.pop(stream._handle, None) is None or self._connection.writer is None:
            return
        with suppress(ClientError):
            await self._channel.call(frames.Unsubscribe(self._channel.number(), stream._handle), frames.Completed)

    def confirm(self, handle: int, positions: tuple[int, ...]) -> bool:
        """Confirm deliveries of a durable subscription. False if there is no connection."""
        if self._connection.writer is None:
            return False
        self._channel.write(frames.encode(frames.Confirm(handle, positions)))
        return True

    # ---------------------------------------------------------------- called by the client

    async def consumed(self) -> None:
        """Wait until all buffers are empty."""
        for stream in list(self._open.values()):
            await stream.consumed()

    def deliver(self, deliveries: tuple[frames.Delivery, ...]) -> None:
        for delivery in deliveries:
            if (stream := self._open.get(delivery.handle)) is not None:
                stream._deliver(delivery)

    def dropped(self, handle: int, count: int) -> None:
        """The peer dropped events of a subscription."""
        if handle in self._open:
            self._open[handle].dropped += count

    def missed(self, handle: int, counts: dict[str, int]) -> None:
        """Events of a subscription expired, or cannot come any more; by reason."""
        if handle in self._open:
            self._open[handle].missed.update(counts)

    def replaced(self, handle: int) -> None:
        if (replaced := self._open.pop(handle, None)) is not None:
            replaced._end(ClientError("another client took over this durable subscription"))

    def answered(self, frame: frames.Answer) -> None:
        """The peer answered a request. It may be one of `restore`."""
        restored = self._restoring.pop(frame.ref, None)
        if restored is None:
            return
        if isinstance(frame, frames.No):
            self._open.pop(restored._handle, None)
            restored._end(refusal(frame))
        else:
            restored._subscribed(self.peer)

    def restore(self) -> None:
        """Subscribe again to everything, over a new connection."""
        for stream in self._open.values():
            request = stream._numbered(self._channel.number())
            self._restoring[request.ref] = stream
            self._channel.write(frames.encode(request))

    def lost(self) -> None:
        """No answer will come over the connection that broke."""
        self._restoring.clear()

    def end(self, error: ClientError) -> None:
        """End all: there will be no other connection."""
        for stream in list(self._open.values()):
            stream._end(error)
        self._open.clear()
