"""The subscriptions of a client: the stream of events of each, and the table of all that are open.

The application iterates over a stream. The table opens and closes subscriptions at the peer, hands them their
deliveries, and restores them over a new connection.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from wend.drivers.live import frames
from wend.drivers.live.client.arrivals import Arrival, DurableArrival, PublishReceipt, reply_to, split_signer
from wend.drivers.live.client.confirmations import Confirmations
from wend.drivers.live.client.connection import PeerConnection
from wend.drivers.live.transport import wire
from wend.model.errors import ClientError, FilterError, Refused, WendError, refusal
from wend.model.events import Attributes, Headers, PeerId, event_bytes
from wend.model.publication import Publication
from wend.model.units import SECOND


class OpenSubscription(Protocol):
    """A subscription as the table sees it."""

    dropped: int
    missed: Counter[str]

    @property
    def handle(self) -> int:
        """The number of the subscription."""
        ...

    def request(self, ref: int) -> frames.Subscribe:
        """Make the request for the subscription with this number, at first or over a new connection."""
        ...

    def deliver(self, delivery: frames.Delivery) -> None:
        """Receive an event."""
        ...

    def on_subscribed(self, peer: PeerId) -> None:
        """Called when the peer has made or restored the subscription."""
        ...

    def end(self, error: WendError | None) -> None:
        """End the subscription for this reason; None if the application closed it."""
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
        self._connection = connection
        self._number = number
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
            await self._call(stream.request(self._number()))
            stream.on_subscribed(self.peer)
        except BaseException as error:
            self._open.pop(stream.handle, None)
            if self._connection.writer is not None and not isinstance(error, FilterError | Refused):
                # The caller no longer waits for the answer, and the peer may accept.
                self._write(frames.Unsubscribe(self._number(), stream.handle))
            raise

    async def forget(self, stream: OpenSubscription) -> None:
        """End its subscription at the peer."""
        if self._open.pop(stream.handle, None) is not None and self._connection.writer is not None:
            with suppress(ClientError):
                await self._call(frames.Unsubscribe(self._number(), stream.handle))

    def confirm(self, handle: int, positions: tuple[int, ...]) -> bool:
        """Confirm deliveries of a durable subscription. Returns False if there is no connection."""
        if self._connection.writer is None:
            return False
        self._write(frames.Confirm(handle, positions))
        return True

    def _write(self, frame: frames.ToPeer) -> None:
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

    def report(self, frame: frames.Dropped | frames.MissedFrame | frames.Replaced) -> None:
        """Handle a report of the peer about a subscription."""
        stream = self._open.get(frame.handle)
        if stream is None:
            return
        match frame:
            case frames.Dropped(count=count):
                stream.dropped += count
            case frames.MissedFrame(counts=counts):
                stream.missed.update(counts)
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
            stream.end(refusal(frame.code, frame.why))
        else:
            stream.on_subscribed(self.peer)

    def restore(self) -> None:
        """Restore all subscriptions over a new connection."""
        for stream in self._open.values():
            request = stream.request(self._number())
            self._restoring[request.ref] = stream
            self._write(request)

    def on_connection_lost(self) -> None:
        """Forget the subscriptions that are being restored: the connection broke, so their answers will not arrive."""
        self._restoring.clear()

    def end(self, error: ClientError) -> None:
        """End all subscriptions."""
        for stream in list(self._open.values()):
            stream.end(error)
        self._open.clear()


class BufferedSubscription:
    """A subscription whose events wait in a buffer until the application takes them.

    The buffer is bounded by messages and by bytes, because one bound alone would allow a gigabyte. A full buffer drops
    the oldest event. The buffer of a durable subscription drops nothing, because the window bounds it.
    """

    def __init__(
        self, streams: EventStreams, request: frames.Subscribe, buffer_msgs: int, buffer_bytes: int, ack: str | None
    ) -> None:
        """`ack`: how the events of a durable subscription are confirmed."""
        self.handle = request.handle
        self.missed: Counter[str] = Counter()
        self.dropped = 0
        self.peer: PeerId = -1
        self.ended = False
        self.confirmations = None
        if ack is not None:
            self.confirmations = Confirmations(ack, lambda positions: streams.confirm(self.handle, positions))
        self._streams = streams
        self._request = request
        self._buffer_msgs = buffer_msgs
        self._buffer_bytes = buffer_bytes
        self._buffer: deque[tuple[frames.Delivery, int]] = deque()
        """Deliveries with their sizes."""
        self._bytes = 0
        self._error: WendError | None = None
        self._changed = asyncio.Event()

    async def take(self) -> frames.Delivery:
        """The next event. Raises `StopAsyncIteration` if the subscription has ended."""
        while not self._buffer:
            if self._error is not None:
                raise self._error
            if self.ended:
                raise StopAsyncIteration
            await self._change()
        delivery, size = self._buffer.popleft()
        self._bytes -= size
        self._changed.set()
        return delivery

    async def wait_until_consumed(self) -> None:
        while self._buffer:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # ---------------------------------------------------------------- called by `EventStreams` (`OpenSubscription`)

    def request(self, ref: int) -> frames.Subscribe:
        is_new = self.peer == -1  # over a new connection it does not get retained events again
        return msgspec.structs.replace(self._request, ref=ref, retained=self._request.retained and is_new)

    def deliver(self, delivery: frames.Delivery) -> None:
        if self.confirmations is not None:
            self._move(self._streams.peer)
        if self.ended or (self.confirmations is not None and not self.confirmations.accept(delivery.position)):
            return
        size = event_bytes(delivery.event)
        self._buffer.append((delivery, size))
        self._bytes += size
        self._changed.set()
        while self.confirmations is None and (
            len(self._buffer) > self._buffer_msgs or self._bytes > self._buffer_bytes
        ):
            self._bytes -= self._buffer.popleft()[1]
            self.dropped += 1

    def on_subscribed(self, peer: PeerId) -> None:
        self.peer = peer
        if self.confirmations is not None:
            self._move(peer)
            self.confirmations.flush()

    def _move(self, peer: PeerId) -> None:
        """Continue at this peer. If it is another one, drop the buffer: the former peer has its unconfirmed events."""
        if self.confirmations is not None and self.confirmations.move(peer):
            self._buffer.clear()
            self._bytes = 0
            self._changed.set()  # somebody may wait until the buffer is empty

    def end(self, error: WendError | None) -> None:
        self.ended = True
        self._error = self._error or error
        self._changed.set()


class EventStream:
    """The events of one subscription, to iterate over; made by `Client.subscribe`."""

    def __init__(
        self,
        streams: EventStreams,
        request: frames.Subscribe,
        buffer_msgs: int,
        buffer_bytes: int,
        ack: str | None = None,
    ) -> None:
        self.filter = request.filter
        self.deadline_ns = request.deadline_ns
        self.reliability = request.reliability
        self.name = None if request.durable is None else request.durable.name
        """The name of a durable subscription; None for others."""
        self._streams = streams
        self._subscription = BufferedSubscription(streams, request, buffer_msgs, buffer_bytes, ack)
        self._confirmations = self._subscription.confirmations
        self._entered = False

    @property
    def dropped(self) -> int:
        """Events that the client or the peer dropped because the application or the client read too slowly."""
        return self._subscription.dropped

    @property
    def missed(self) -> Counter[str]:
        """By reason: events that expired, gaps that an ordered subscription skipped, and events for which a backlog had
        no room."""
        return self._subscription.missed

    @property
    def peer(self) -> PeerId:
        """The peer that it is subscribed at, or was last."""
        return self._subscription.peer

    @property
    def moves(self) -> int:
        """How often a durable subscription moved to another peer. The events that waited at the former peer stay
        there."""
        return 0 if self._confirmations is None else self._confirmations.moves

    async def __aenter__(self) -> "EventStream":
        if self._subscription.ended:
            raise ClientError("this subscription is closed: make another", code="closed")
        if not self._entered:
            await self._streams.open(self._subscription)
            self._entered = True
        return self

    def __await__(self) -> Generator[Any, None, "EventStream"]:
        return self.__aenter__().__await__()

    async def __aexit__(self, *error: object) -> None:
        if self._confirmations is not None and error and error[0] is not None:
            self._confirmations.forget_current()
        await self.close()

    async def close(self) -> None:
        """End the subscription. Events in the buffer can still be read. A durable subscription stays at the peer, and
        its events wait for the next client."""
        if self._confirmations is not None:
            self._confirmations.confirm_current()
            self._confirmations.flush()
        self._subscription.end(None)
        await self._streams.forget(self._subscription)

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> Arrival:
        """Ends when the subscription is closed. Raises if the peer did not come back, or refused the subscription."""
        if not self._entered and not self._subscription.ended:
            raise ClientError("enter it first: async with client.subscribe(...)", code="not-connected")
        if self._confirmations is None:
            return make_arrival(await self._subscription.take(), self)
        self._confirmations.confirm_current()
        delivery = await self._subscription.take()
        arrival = _durable_arrival(delivery, self, self._confirmations.peer)
        self._confirmations.hand_over(arrival)
        return arrival

    async def reply(
        self, request: Arrival, payload: bytes, attributes: Attributes | None, headers: Headers | None
    ) -> PublishReceipt:
        """Answer a request that came by this subscription; `Arrival.reply` calls it."""
        return await self._streams.publish(reply_to(request, payload, attributes, headers))

    def confirm(self, peer: PeerId, position: int) -> None:
        """Confirm an event of a durable subscription; `DurableArrival.ack` calls it."""
        if self._confirmations is not None:
            self._confirmations.confirm(peer, position)

    async def consumed(self) -> None:
        """Wait until the buffer is empty."""
        await self._subscription.wait_until_consumed()


def make_arrival(delivery: frames.Delivery, stream: object) -> Arrival:
    """An event as the application gets it."""
    event = delivery.event
    headers, signer = split_signer(event.headers)
    id_, age = event.origin or event.id, delivery.age_ns / SECOND
    return Arrival(id_, event.attributes, event.payload, age, delivery.late, headers, stream, delivery.retained, signer)


def _durable_arrival(delivery: frames.Delivery, stream: EventStream, peer: PeerId) -> DurableArrival:
    event = delivery.event
    headers, signer = split_signer(event.headers)
    return DurableArrival(
        event.id,
        event.attributes,
        event.payload,
        delivery.age_ns / SECOND,
        delivery.late,
        headers,
        stream,
        signed_by=signer,
        redelivered=delivery.redelivered,
        peer=peer,
        position=delivery.position,
    )
