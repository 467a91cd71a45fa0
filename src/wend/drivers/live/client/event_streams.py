"""The open subscriptions of a client at one peer.

`EventStreams` opens and closes them at the peer, hands them their deliveries, and restores them over a new connection.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import msgspec

from wend.drivers.live import frames
from wend.drivers.live.client.arrivals import Arrival, PublishReceipt, split_signer
from wend.drivers.live.client.connection import PeerConnection
from wend.drivers.live.client.repeats import RepeatFilter
from wend.drivers.live.transport import wire
from wend.model.errors import ClientError, FilterError, Refused, WendError, make_refusal
from wend.model.events import Event, EventId, PeerId, event_bytes
from wend.model.publication import Publication
from wend.model.units import SECOND, Nanos


class OpenSubscription(Protocol):
    """A subscription as the table sees it."""

    dropped: int

    @property
    def missed(self) -> Counter[str]:
        """The events that it misses, by reason."""
        ...

    @property
    def handle(self) -> int:
        """The number of the subscription."""
        ...

    def request(self, ref: int) -> frames.Subscribe | frames.ReadLog:
        """Make request `ref`, which opens the subscription or restores it over a new connection."""
        ...

    def deliver(self, delivery: frames.Delivery) -> None:
        """Receive an event."""
        ...

    def on_missed(self, frame: frames.MissedFrame) -> None:
        """Called when the peer reports events that the subscription will not get."""
        ...

    def on_reading(self, frame: frames.Reading) -> None:
        """Called when the peer begins to read a log for the subscription."""
        ...

    def on_subscribed(self, peer: PeerId) -> None:
        """Called when the peer has made or restored the subscription."""
        ...

    def end(self, error: WendError | None) -> None:
        """End the subscription for this reason; None if the application closed it."""
        ...

    def on_connection_lost(self) -> None:
        """Called when the connection to the peer has broken. Another one will be made, or `end` is called."""
        ...

    async def wait_until_consumed(self) -> None:
        """Wait until the application has taken all events."""
        ...


class EventStreams:
    """The open subscriptions of a client, by number."""

    def __init__(
        self,
        connection: PeerConnection,
        number: Callable[[], int],
        call: Callable[[frames.Request], Awaitable[None]],
        publish: Callable[[Publication], Awaitable[PublishReceipt]],
    ) -> None:
        """`number` makes the number of a request, `call` sends one and waits until it is carried out."""
        self.publish = publish
        self.number = number
        self._connection = connection
        self._call = call
        self._open: dict[int, OpenSubscription] = {}
        self._restoring: dict[int, OpenSubscription] = {}
        """By the number of the request that subscribes them again."""

    @property
    def peer(self) -> PeerId:
        """The peer that the client is connected to, or was last."""
        return self._connection.peer

    # ---------------------------------------------------------------- called by streams

    async def open(self, stream: OpenSubscription) -> None:
        """Subscribe at the peer. Raises if the peer refuses the subscription."""
        # If it were registered before the connection is back, it would be restored and then subscribed a second time.
        await self._connection.wait_until_open()
        self._open[stream.handle] = stream
        try:
            await self._call(stream.request(self.number()))
            stream.on_subscribed(self.peer)
        except BaseException as error:
            self._open.pop(stream.handle, None)
            if self._connection.writer is not None and not isinstance(error, FilterError | Refused):
                # The caller no longer waits for the answer, and the peer may accept.
                self._write_frame(frames.Unsubscribe(self.number(), stream.handle))
            raise

    async def unsubscribe(self, stream: OpenSubscription) -> None:
        """End a subscription at the peer."""
        if self._open.pop(stream.handle, None) is not None and self._connection.writer is not None:
            with suppress(ClientError):
                await self._call(frames.Unsubscribe(self.number(), stream.handle))

    async def remove(self, name: str) -> None:
        """Remove a durable subscription from the peer, with the events that wait for it."""
        await self._call(frames.RemoveSubscription(self.number(), name))

    def confirm(self, handle: int, positions: tuple[int, ...], ids: tuple[EventId, ...]) -> bool:
        """Confirm deliveries of a durable subscription. Returns False if there is no connection."""
        if self._connection.writer is None:
            return False
        self._write_frame(frames.Confirm(handle, positions, ids))
        return True

    def go_on(self, handle: int, position: int) -> None:
        """Tell the peer that the events of a log up to this position were taken."""
        if self._connection.writer is not None:
            self._write_frame(frames.Continue(handle, position))

    def stand_by(self, handle: int, standby_ns: Nanos) -> None:
        """Ask for the events of a durable subscription from this age on."""
        if self._connection.writer is not None:
            self._write_frame(frames.StandBy(handle, standby_ns))

    def _write_frame(self, frame: frames.ToPeer) -> None:
        self._connection.unwritten.append(wire.encode_frame(frame))
        self._connection.write_soon()

    # ---------------------------------------------------------------- called by the client

    async def wait_until_consumed(self) -> None:
        """Wait until all buffers are empty."""
        for stream in list(self._open.values()):
            await stream.wait_until_consumed()

    def deliver(self, deliveries: tuple[frames.Delivery, ...]) -> None:
        for delivery in deliveries:
            if (stream := self._open.get(delivery.handle)) is not None:
                stream.deliver(delivery)

    def on_report(self, frame: frames.Report) -> None:
        """Handle a report of the peer about a subscription."""
        stream = self._open.get(frame.handle)
        if stream is None:
            return
        match frame:
            case frames.Dropped(count=count):
                stream.dropped += count
            case frames.MissedFrame():
                stream.on_missed(frame)
            case frames.Reading():
                stream.on_reading(frame)
            case frames.Finished(handle):
                del self._open[handle]
                stream.end(None)
                self._write_frame(frames.Unsubscribe(self.number(), handle))
            case frames.Replaced(handle):
                del self._open[handle]
                stream.end(ClientError("another client took over this durable subscription", code="taken-over"))

    def on_answer(self, frame: frames.Answer) -> None:
        """Handle an answer. It may be for a subscription that is being restored."""
        stream = self._restoring.pop(frame.ref, None)
        if stream is None:
            return
        if isinstance(frame, frames.RefusedFrame):
            self._open.pop(stream.handle, None)
            stream.end(make_refusal(frame.code, frame.why))
        else:
            stream.on_subscribed(self.peer)

    def restore(self) -> None:
        """Restore all subscriptions over a new connection."""
        for stream in self._open.values():
            request = stream.request(self.number())
            self._restoring[request.ref] = stream
            self._write_frame(request)

    def on_connection_lost(self) -> None:
        """Forget the subscriptions that are being restored: the connection broke, so their answers will not arrive."""
        self._restoring.clear()
        for stream in self._open.values():
            stream.on_connection_lost()

    def end(self, error: ClientError) -> None:
        """End all subscriptions."""
        for stream in list(self._open.values()):
            stream.end(error)
        self._open.clear()


class DeliveryBuffer:
    """The deliveries of one subscription that wait until the application takes them."""

    def __init__(self) -> None:
        self.bytes = 0
        self.ended = False
        self._items: deque[tuple[frames.Delivery, int]] = deque()
        """Deliveries with their sizes."""
        self._error: WendError | None = None
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, delivery: frames.Delivery) -> None:
        size = event_bytes(delivery.event)
        self._items.append((delivery, size))
        self.bytes += size
        self._changed.set()

    def drop_oldest(self) -> None:
        self.bytes -= self._items.popleft()[1]

    def end(self, error: WendError | None) -> None:
        """End it for this reason; None if the application closed the subscription. What it holds can still be taken."""
        self.ended = True
        self._error = self._error or error
        self._changed.set()

    async def take(self) -> frames.Delivery:
        """The next delivery. Raises `StopAsyncIteration` or the reason if it is empty and has ended."""
        while not self._items:
            if self._error is not None:
                raise self._error
            if self.ended:
                raise StopAsyncIteration
            await self._wake_waiters()
        delivery, size = self._items.popleft()
        self.bytes -= size
        self._changed.set()
        return delivery

    async def wait_until_consumed(self) -> None:
        while self._items:
            await self._wake_waiters()

    async def _wake_waiters(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class BufferedSubscription:
    """A subscription without a name. Its events wait in a buffer until the application takes them.

    The buffer is bounded by messages and by bytes, because one bound alone would allow a gigabyte. A full buffer drops
    the oldest event.
    """

    def __init__(
        self,
        streams: EventStreams,
        request: frames.Subscribe,
        buffer_msgs: int,
        buffer_bytes: int,
        repeats: RepeatFilter | None,
    ) -> None:
        """`repeats`: what finds the events that the client gets again from another peer; None if it knows only one."""
        self.handle = request.handle
        self.missed: Counter[str] = Counter()
        self.dropped = 0
        self.peer: PeerId = -1
        self.buffer = DeliveryBuffer()
        self._streams = streams
        self._request = request
        self._buffer_msgs = buffer_msgs
        self._buffer_bytes = buffer_bytes
        self._repeats = repeats

    async def open(self) -> None:
        await self._streams.open(self)

    async def close(self) -> None:
        await self._streams.unsubscribe(self)

    # ---------------------------------------------------------------- called by `EventStreams` (`OpenSubscription`)

    def request(self, ref: int) -> frames.Subscribe:
        is_new = self.peer == -1  # over a new connection it does not get retained events again
        return msgspec.structs.replace(self._request, ref=ref, retained=self._request.retained and is_new)

    def deliver(self, delivery: frames.Delivery) -> None:
        buffer = self.buffer
        if buffer.ended or (self._repeats is not None and not self._is_new(delivery.event, self._repeats)):
            return
        buffer.add(delivery)
        while len(buffer) > self._buffer_msgs or buffer.bytes > self._buffer_bytes:
            buffer.drop_oldest()
            self.dropped += 1

    def on_missed(self, frame: frames.MissedFrame) -> None:
        self.missed.update(frame.counts)

    def on_reading(self, frame: frames.Reading) -> None:
        """Do nothing: it reads no log."""

    def _is_new(self, event: Event, repeats: RepeatFilter) -> bool:
        verdict = repeats.classify(event)
        if verdict == "overtaken":
            self.missed["skipped"] += 1
        return verdict == "new"

    def on_subscribed(self, peer: PeerId) -> None:
        self.peer = peer

    def on_connection_lost(self) -> None:
        """Do nothing: the application can still read the events in the buffer."""

    def end(self, error: WendError | None) -> None:
        self.buffer.end(error)

    async def wait_until_consumed(self) -> None:
        await self.buffer.wait_until_consumed()


def make_arrival(delivery: frames.Delivery, stream: object) -> Arrival:
    """An event as the application gets it."""
    event = delivery.event
    headers, signer = split_signer(event.headers)
    id_, age = event.origin or event.id, delivery.age_ns / SECOND
    return Arrival(id_, event.attributes, event.payload, age, delivery.late, headers, stream, delivery.retained, signer)
