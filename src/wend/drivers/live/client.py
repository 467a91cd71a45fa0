"""The client of a running peer: connect, publish, subscribe.

    async with wend.connect("wend://127.0.0.1:7700") as client:
        async with client.subscribe("topic = 'stuttgart'", deadline=0.2) as events:
            receipt = await client.publish({"topic": "stuttgart", "temperature": 15}, b"payload")
            async for event in events: ...

One task reads the connection at all times, so a slow application fills only the bounded buffer of its own subscription.
A full buffer drops the oldest events and counts them in `dropped`. When the connection breaks, the client connects
again, to the same peer or to the next one that its URL names, and restores its subscriptions. It misses the events that
reach the peer meanwhile (but see `protocol/delivery/pending.py`). A request that was not answered fails with
`ConnectionLost`, since nobody can know whether the peer accepted it.
"""

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from wend.drivers.live import frames, wire
from wend.drivers.live.addresses import TLS_SCHEME, parse_urls, scheme_of
from wend.drivers.live.answer_deadlines import AnswerDeadlines
from wend.drivers.live.arrivals import Arrival, Publication, PublishReceipt, receipt_of, signer_of
from wend.drivers.live.batches import BATCH_BYTES, Calls, PendingBatch, send_batches
from wend.drivers.live.connection import PeerConnection
from wend.drivers.live.peer_requests import A, PeerRequests
from wend.drivers.live.posts import Posts
from wend.drivers.live.subscribe_options import retained_by, subscribe_frame
from wend.model.errors import (
    ClientError,
    ConfigError,
    ConnectionLost,
    FilterError,
    PartlyPublished,
    Refused,
    WendError,
    WireError,
)
from wend.model.events import Attributes, Headers, PeerId, as_scalar, event_bytes
from wend.model.units import SECOND

if TYPE_CHECKING:
    from wend.drivers.live.requests import Inbox
    from wend.drivers.live.tls import ClientTls

BUFFER_MSGS = 10_000
BUFFER_BYTES = 16 * 1024 * 1024
WINDOW_MSGS = 1024
"""`try_publish` sends nothing while so many requests of the client are unanswered."""

CONGESTED_S = 0.1
"""Nor for so long after a receipt that said `congested`."""


class EventStream:
    """The events of one subscription, to iterate over; made by `Client.subscribe`.

    Its buffer is bounded by messages and by bytes, because either bound alone allows a gigabyte. A full buffer drops
    the oldest event; `dropped` counts the events that were dropped here and at the peer.
    """

    def __init__(self, client: "Client", request: frames.Subscribe, buffer_msgs: int, buffer_bytes: int) -> None:
        self._client = client
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
            await self._client._open(self)
            self._entered = True
        return self

    def __await__(self) -> Generator[Any, None, "EventStream"]:
        return self.__aenter__().__await__()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the subscription; events in the buffer can still be read."""
        self._end(None)
        await self._client._forget(self)

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
        from wend.drivers.live.requests import reply_to

        return await self._client._publish(reply_to(request, payload, attributes, headers))

    async def consumed(self) -> None:
        """Wait until the buffer is empty."""
        while self._buffer:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # ---------------------------------------------------------------- called by the client alone

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


class Client(PeerRequests):
    """A connection to a peer; made by `connect`."""

    def __init__(
        self, url: str, *, timeout: float, patience: float, tls: "Callable[[], ClientTls] | None" = None
    ) -> None:
        self.url = url
        self.timeout = timeout
        self._refs = itertools.count(1)
        self._calls: Calls = {}
        self._streams: dict[int, EventStream] = {}
        self._inbox: Inbox | None = None
        self._restoring: dict[int, EventStream] = {}
        self._connection = PeerConnection(
            url,
            timeout=timeout,
            patience=patience,
            received=self._received,
            restore=self._restore,
            lost=self._lost,
            ended=self._ended,
            tls=tls,
        )
        self._congested_until = 0.0
        self._deadlines = AnswerDeadlines(self._calls, self._overdue)
        self._posts = Posts(self._connection, self._calls, self._refs.__next__)

    def __await__(self) -> Generator[Any, None, "Client"]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> "Client":
        await self._connection.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def connected(self) -> bool:
        return self._connection.writer is not None

    @property
    def patience(self) -> float:
        return self._connection.patience

    @property
    def peer(self) -> PeerId:
        """The peer that it is connected to, or was last."""
        return self._connection.peer

    @property
    def reconnects(self) -> int:
        """How often a new connection replaced a broken one."""
        return self._connection.reconnects

    # ---------------------------------------------------------------- called by the application

    async def publish(
        self,
        attributes: Attributes,
        payload: bytes = b"",
        headers: Headers | None = None,
        *,
        ttl: float | None = None,
        retain: bool | str = False,
    ) -> PublishReceipt:
        """Hand an event to the peer, and wait until it has accepted it. An invalid event is not sent.

        Peers drop the event when it is older than `ttl` seconds. `retain=True`: the peer retains it for subscriptions
        that come later, until another one with its topic replaces it; `retain="sensor"`: with its sensor.
        """
        request = self._publication(attributes, payload, headers, ttl, retain)
        return receipt_of(await self._call(request, frames.Accepted))

    async def post(
        self,
        attributes: Attributes,
        payload: bytes = b"",
        headers: Headers | None = None,
        *,
        ttl: float | None = None,
        retain: bool | str = False,
    ) -> None:
        """Publish as `publish` does, but do not wait for the receipt: the fastest way to publish many events.

        It waits only while too many posted events are unanswered. An invalid event raises at once; that the peer
        refused one, or that the connection broke before the answer, is raised by the next `flush`.
        """
        attributes = _checked(attributes, payload, headers)
        retained = retained_by(attributes, retain) if retain else ""
        ttl_ns = None if ttl is None else wire.ttl_ns(ttl)
        await self._posts.add(frames.PostedEvent(attributes, payload, headers or {}, ttl_ns, retained))

    async def flush(self, timeout: float | None = None) -> int:
        """Wait until the peer has answered everything that was posted. Returns how many events it accepted since the
        last flush. Raises `Refused` or `ConnectionLost` with the number of the others, and the first cause."""
        return await self._posts.flush(self.timeout if timeout is None else timeout)

    async def request(
        self, attributes: Attributes, payload: bytes = b"", headers: Headers | None = None, *, timeout: float = 10.0
    ) -> Arrival:
        """Publish a request, and wait for the first reply to it. Subscribers answer with `event.reply(...)`.

        Raises `NoReply` at once if nobody is subscribed, or after `timeout` seconds without a reply.
        """
        if self._inbox is None or self._inbox.ended:
            from wend.drivers.live.requests import Inbox

            self._inbox = Inbox(self, next(self._refs))
        return await self._inbox.request(attributes, payload, headers or {}, timeout)

    async def try_publish(
        self,
        attributes: Attributes,
        payload: bytes = b"",
        headers: Headers | None = None,
        *,
        ttl: float | None = None,
    ) -> PublishReceipt | None:
        """Publish as `publish` does, but only if the event can be sent at once. None: it was not sent, because there
        is no connection, the peer is behind with this client's requests, or its links were just congested."""
        request = self._publication(attributes, payload, headers, ttl)
        if not self.connected or len(self._calls) >= WINDOW_MSGS or self._connection.unsent_bytes > BATCH_BYTES:
            return None
        if asyncio.get_running_loop().time() < self._congested_until:
            return None
        return receipt_of(await self._call(request, frames.Accepted))

    async def publish_many(self, events: Iterable[Attributes | Publication]) -> list[PublishReceipt]:
        """Hand many events to the peer, in this order, and wait for all receipts.

        An event is its attributes, or a tuple of attributes, payload and headers. All are checked before the first is
        sent. If the peer refuses some, it publishes the others all the same. If the connection breaks, the rest is not
        sent. In both cases `PartlyPublished` has the result of each event.
        """
        requests: list[frames.Publish] = []
        for number, event in enumerate(events):
            try:
                requests.append(self._publication(*(event if isinstance(event, tuple) else (event,))))
            except ClientError as error:
                raise type(error)(f"event {number} of many: {error}") from None
        results = await send_batches(self._connection, self._calls, requests, self.timeout)
        receipts = [result for result in results if isinstance(result, PublishReceipt)]
        if len(receipts) < len(results):
            raise PartlyPublished(results)
        return receipts

    def subscribe(
        self,
        filter: str,
        *,
        deadline: float | None = None,
        reliability: float | None = None,
        order: str | None = None,
        expire: bool = False,
        group: str | None = None,
        retained: bool = True,
        name: str | None = None,
        ack: str = "auto",
        max_events: int | None = None,
        max_bytes: int | None = None,
        max_age: float | None = None,
        window: int = 256,
        buffer_msgs: int = BUFFER_MSGS,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> EventStream:
        """A subscription: enter it with `async with`, or await it; then iterate.

        `deadline` is in seconds; `reliability` is the share of events that is enough at the first attempt, for peers
        that send on several trees. `order="publisher"`: events of one publisher come in the order of publication.
        `expire=True`: the peer drops events that are past the deadline. `group="workers"`: of all subscriptions with
        this group, at any peers, one gets each event. `retained=False`: no events that peers retain.

        With a `name` the subscription is durable: it stays at the peer when the client is gone, its events wait for the
        next client that gives the name, and the peer repeats each until the client has confirmed it: by `ack="auto"`
        when the application asks for the next one, by `ack="explicit"` when it calls `event.ack()`. At most `window`
        events are on the way unconfirmed. What waits is bounded by `max_events`, `max_bytes` and `max_age` (seconds).
        """
        if buffer_msgs < 1 or buffer_bytes < 1:
            raise ClientError(f"a buffer of {buffer_msgs} messages and {buffer_bytes} bytes holds nothing")
        request = subscribe_frame(
            next(self._refs),
            filter,
            deadline=deadline,
            reliability=reliability,
            order=order,
            expire=expire,
            group=group,
            retained=retained,
            name=name,
            max_events=max_events,
            max_bytes=max_bytes,
            max_age=max_age,
            window=window,
        )
        if name is None:
            return EventStream(self, request, buffer_msgs, buffer_bytes)
        from wend.drivers.live.durable_stream import DurableStream

        return DurableStream(self, request, buffer_msgs, buffer_bytes, ack, self._confirm)

    async def drain(self, timeout: float | None = None) -> None:
        """Wait until everything published is acknowledged and everything received is consumed."""
        try:
            async with asyncio.timeout(timeout):
                calls = [call.complete if isinstance(call, PendingBatch) else call for call in self._calls.values()]
                if calls:
                    await asyncio.wait(calls)
                await self._call(frames.PingFrame(next(self._refs)), frames.Completed)
                for stream in list(self._streams.values()):
                    await stream.consumed()
        except TimeoutError:
            raise ClientError(f"not everything was consumed within {timeout} s") from None

    async def close(self) -> None:
        await self._connection.close()

    # ---------------------------------------------------------------- called by streams alone

    async def _open(self, stream: EventStream) -> None:
        # If it were registered before the connection is back, it would be restored and then subscribed a second time.
        await self._connection.opened()
        self._streams[stream._handle] = stream
        try:
            await self._call(stream._numbered(next(self._refs)), frames.Completed)
            stream._subscribed(self.peer)
        except BaseException as error:
            self._streams.pop(stream._handle, None)
            if self.connected and not isinstance(error, FilterError | Refused):
                # Nobody waits for the answer any more, and it may be yes.
                self._write(frames.encode(frames.Unsubscribe(next(self._refs), stream._handle)))
            raise

    async def _forget(self, stream: EventStream) -> None:
        if self._streams.pop(stream._handle, None) is None or not self.connected:
            return
        with suppress(ClientError):
            await self._call(frames.Unsubscribe(next(self._refs), stream._handle), frames.Completed)

    def _confirm(self, handle: int, positions: tuple[int, ...]) -> bool:
        """Confirm deliveries of a durable subscription. False if there is no connection."""
        if not self.connected:
            return False
        self._write(frames.encode(frames.Confirm(handle, positions)))
        return True

    # ---------------------------------------------------------------- requests and answers

    def _publication(
        self,
        attributes: Attributes,
        payload: bytes = b"",
        headers: Headers | None = None,
        ttl: float | None = None,
        retain: bool | str = False,
    ) -> frames.Publish:
        """The request for an event. Raises `ClientError` or `Refused` if the event is invalid."""
        attributes = _checked(attributes, payload, headers)
        retained = retained_by(attributes, retain) if retain else ""
        ttl_ns = None if ttl is None else wire.ttl_ns(ttl)
        return frames.Publish(next(self._refs), attributes, payload, headers or {}, ttl_ns, retain=retained)

    async def _publish(self, request: frames.Publish) -> PublishReceipt:
        """Send a publication that has no number yet. Raises if it is invalid."""
        wire.check_kinds(request.attributes, request.payload, request.headers)
        wire.check_event(request.attributes, request.payload, request.headers)
        return receipt_of(await self._call(msgspec.structs.replace(request, ref=next(self._refs)), frames.Accepted))

    async def _call(self, frame: frames.Request, expected: type[A]) -> A:
        try:
            data = frames.encode(frame)
        except WireError as error:
            raise ClientError(str(error)) from None
        connection = self._connection
        if connection.writer is None:
            await connection.opened()
        answer: asyncio.Future[frames.Answer] = asyncio.get_running_loop().create_future()
        self._calls[frame.ref] = answer
        try:
            self._write(data)
            self._deadlines.add(frame.ref, self.timeout)
            if connection.unsent_bytes > BATCH_BYTES:
                async with asyncio.timeout(self.timeout):
                    await connection.drain()
            found = await answer
        except TimeoutError:
            raise self._no_answer() from None
        finally:
            self._calls.pop(frame.ref, None)
        if isinstance(found, frames.No):
            raise _refusal(found)
        if not isinstance(found, expected):
            raise ClientError(f"{self._connection.at} gave an answer that does not fit the request")
        return found

    def _write(self, data: bytes) -> None:
        """Write a frame, with others of this turn of the event loop."""
        self._connection.unwritten.append(data)
        self._connection.write_soon()

    def _no_answer(self) -> ConnectionLost:
        return ConnectionLost(f"{self._connection.at} did not answer within {self.timeout:g} s")

    def _overdue(self, ref: int) -> None:
        call = self._calls.get(ref)
        if call is not None and not isinstance(call, PendingBatch) and not call.done():
            call.set_exception(self._no_answer())

    def _received(self, frame: frames.ToClient) -> None:
        match frame:
            case frames.Deliveries(deliveries):
                for delivery in deliveries:
                    if (stream := self._streams.get(delivery.handle)) is not None:
                        stream._deliver(delivery)
            case frames.Delivery(handle=handle):
                if handle in self._streams:
                    self._streams[handle]._deliver(frame)
            case frames.Dropped(handle, count):
                if handle in self._streams:
                    self._streams[handle].dropped += count
            case frames.MissedFrame(handle, counts):
                if handle in self._streams:
                    self._streams[handle].missed.update(counts)
            case frames.Replaced(handle):
                if (replaced := self._streams.pop(handle, None)) is not None:
                    replaced._end(ClientError("another client took over this durable subscription"))
            case frames.Welcome():
                pass
            case _:
                if isinstance(frame, frames.Accepted | frames.Posted) and frame.congested:
                    self._congested_until = asyncio.get_running_loop().time() + CONGESTED_S
                restored = self._restoring.pop(frame.ref, None)
                if restored is not None and isinstance(frame, frames.No):
                    self._streams.pop(restored._handle, None)
                    restored._end(_refusal(frame))
                elif restored is not None:
                    restored._subscribed(self.peer)
                call = self._calls.get(frame.ref)
                if isinstance(call, PendingBatch):
                    call.answered(frame)
                elif call is not None and not call.done():
                    call.set_result(frame)

    # ---------------------------------------------------------------- called by the connection alone

    def _restore(self) -> None:
        """Subscribe again to everything, over a new connection."""
        for stream in self._streams.values():
            request = stream._numbered(next(self._refs))
            self._restoring[request.ref] = stream
            self._write(frames.encode(request))

    def _lost(self, error: ClientError) -> None:
        """Fail all requests: no answer will come over the connection that broke."""
        self._restoring.clear()
        for call in self._calls.values():
            if isinstance(call, PendingBatch):
                call.failed(error)
            elif not call.done():
                call.set_exception(error)

    def _ended(self, error: ClientError) -> None:
        """End all subscriptions: there will be no other connection."""
        for stream in list(self._streams.values()):
            stream._end(error)
        self._streams.clear()


def _checked(attributes: Attributes, payload: bytes, headers: Headers | None) -> Attributes:
    """The attributes of an event that is valid, as Python's own values. Raises `ClientError` or `Refused`."""
    if not wire.is_plain(attributes, payload, headers):
        if isinstance(attributes, dict):
            attributes = {name: as_scalar(value) for name, value in attributes.items()}
        wire.check_kinds(attributes, payload, headers)
        wire.check_event(attributes, payload, headers)
    return attributes


def _refusal(answer: frames.No) -> WendError:
    return (FilterError if answer.filter else Refused)(answer.why)


def connect(
    url: str,
    *,
    timeout: float = 10.0,
    patience: float = 60.0,
    keys: str | Path | None = None,
    root: str | Path | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    token: str | Path | None = None,
) -> Client:
    """A client of the peer at `url`: enter it with `async with`, or await it.

    A URL with several peers, such as `wend://site-a:7700,site-b:7700`, lets the client go to another one when its own
    is gone. In seconds: `timeout` bounds each attempt to connect, and each answer once the request is sent; `patience`
    is how long a broken connection is tried again. Requests that are made meanwhile wait.

    `wends://` connects by TLS. The client shows a certificate: `keys` is its folder, as `wend key new` made it, or
    `root`, `certificate` and `key` are single files. Or it shows a `token`, a text or the `Path` of a private file.
    """
    options = {"keys": keys, "root": root, "certificate": certificate, "key": key, "token": token}
    given = [name for name, value in options.items() if value is not None]
    parse_urls(url)
    if scheme_of(url) != TLS_SCHEME:
        if given:
            raise ConfigError(f"{given[0]} is for {TLS_SCHEME}, not for {url}")
        return Client(url, timeout=timeout, patience=patience)
    from wend.drivers.live.tls import client_tls

    read = partial(client_tls, **options)
    read()  # a mistake is told now
    return Client(url, timeout=timeout, patience=patience, tls=read)
