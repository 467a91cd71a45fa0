"""The client of a running peer: connect, publish, subscribe.

    async with wend.connect("wend://127.0.0.1:7700") as client:
        async with client.subscribe("topic = 'stuttgart'", deadline=0.2) as events:
            receipt = await client.publish({"topic": "stuttgart", "temperature": 15}, b"payload")
            async for event in events: ...

One task reads the connection at all times, so a slow application fills only the bounded buffer of its own subscription.
A full buffer drops the oldest events and counts them in `dropped`. When the connection breaks, the client connects
again, to the same peer or to the next one in its URL, and restores its subscriptions. It misses the events that reach
the peer meanwhile (but see `protocol/delivery/pending.py`). A request without an answer fails with `ConnectionLost`,
because nobody can know whether the peer accepted it.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from wend.drivers.live import frames
from wend.drivers.live.addressing.addresses import split_urls
from wend.drivers.live.client.answers import BATCH_BYTES, A, PendingAnswers
from wend.drivers.live.client.arrivals import Arrival, EventTuple, PublishReceipt, make_receipt
from wend.drivers.live.client.batches import send_batches
from wend.drivers.live.client.connection import PeerConnection
from wend.drivers.live.client.durable_subscription import DurableSubscription
from wend.drivers.live.client.event_stream import EventStream
from wend.drivers.live.client.event_streams import BufferedSubscription, EventStreams
from wend.drivers.live.client.homes import Homes
from wend.drivers.live.client.log_options import When, log_request
from wend.drivers.live.client.log_subscription import LogSubscription
from wend.drivers.live.client.posts import Posts
from wend.drivers.live.client.repeats import RepeatFilter
from wend.drivers.live.client.subscribe_options import check_name, make_subscribe_frame
from wend.drivers.live.clock import monotonic
from wend.drivers.live.log_frames import Records
from wend.drivers.live.status import StatusSnapshot
from wend.drivers.live.transport import wire
from wend.model.errors import ClientError, ConnectionLost, PartlyPublished, WireError
from wend.model.events import Attributes, Headers, PeerId, Value
from wend.model.publication import Publication, check_types, make_publication
from wend.model.units import seconds

if TYPE_CHECKING:
    from wend.drivers.live.access.tls import ClientTls
    from wend.drivers.live.client.requests import Inbox

BUFFER_MSGS = 10_000
BUFFER_BYTES = 16 * 1024 * 1024
WINDOW_MSGS = 1024
"""`try_publish` sends nothing while this many requests of the client are unanswered."""
CONGESTED_S = 0.1
"""`try_publish` sends nothing for this time after a receipt that says `congested`."""
_PIECE_BYTES = 256 * 1024
"""The size of a piece of a plan in one frame."""


class Client:
    """A connection to a peer; made by `connect`."""

    def __init__(
        self, url: str, *, timeout: float, patience: float, tls: "Callable[[], ClientTls] | None" = None
    ) -> None:
        self.url = url
        self._tls = tls
        self._urls = split_urls(url)
        self._homes = Homes(self, self._urls, self._make_client)
        self._durable: WeakSet[DurableSubscription] = WeakSet()
        self._connection = PeerConnection(
            url,
            timeout=timeout,
            patience=patience,
            received=self._on_frame,
            restore=self._on_reconnected,
            lost=self._on_connection_lost,
            ended=self._on_ended,
            tls=tls,
        )
        self._answers = PendingAnswers(self._connection, timeout)
        self._number = self._answers.number
        self.streams = EventStreams(self._connection, self._number, self._ask, self._publish_checked)
        self._posts = Posts(self._connection, self._answers)
        self._inbox: Inbox | None = None
        self._congested_until = 0.0

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
    def timeout(self) -> float:
        """How long the peer may take to answer a request, in seconds."""
        return self._answers.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._answers.timeout = seconds

    @property
    def patience(self) -> float:
        return self._connection.patience

    @property
    def ended(self) -> bool:
        return self._connection.has_ended

    @property
    def peer(self) -> PeerId:
        """The peer that it is connected to, or was last."""
        return self._connection.peer

    @property
    def reconnects(self) -> int:
        """How often a new connection has replaced a broken one."""
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
        key: str | None = None,
    ) -> PublishReceipt:
        """Publish an event, and wait until the peer has accepted it. An invalid event is not sent.

        Peers drop the event when it is older than `ttl` seconds. With `retain=True` the peer retains the event for
        later subscriptions, until another event with the same topic replaces it. `retain="sensor"` does the same for
        the attribute `sensor`.

        Published again with the same `key` within ten minutes, at any peer, it is one event. So with a key the client
        itself publishes again if the connection breaks before the receipt, until `timeout` has passed.
        """
        publication = make_publication(attributes, payload, headers, ttl, retain, key)
        return await (self._publish(publication) if key is None else self._publish_again(publication))

    async def post(
        self,
        attributes: Attributes,
        payload: bytes = b"",
        headers: Headers | None = None,
        *,
        ttl: float | None = None,
        retain: bool | str = False,
    ) -> None:
        """Publish an event without waiting for its receipt: the fastest way to publish many events.

        It waits only while too many posted events are unanswered. An invalid event raises at once. If the peer refuses
        an event, or the connection breaks before the answer, the next `flush` raises.
        """
        await self._posts.add(make_publication(attributes, payload, headers, ttl, retain))

    async def flush(self, timeout: float | None = None) -> int:
        """Wait until the peer has answered all posted events. Returns how many it accepted since the last flush. Raises
        `Refused` or `ConnectionLost` with the number of the others, and the first cause."""
        return await self._posts.flush(self.timeout if timeout is None else timeout)

    async def request(
        self, attributes: Attributes, payload: bytes = b"", headers: Headers | None = None, *, timeout: float = 10.0
    ) -> Arrival:
        """Publish a request, and wait for the first reply to it. Subscribers answer with `event.reply(...)`.

        Raises `NoReply` at once if nobody is subscribed, or after `timeout` seconds without a reply.
        """
        if self._inbox is None or self._inbox.ended:
            from wend.drivers.live.client.requests import Inbox

            self._inbox = Inbox(self.streams, self._number())
        return await self._inbox.ask(make_publication(attributes, payload, headers, timeout), timeout)

    async def try_publish(
        self,
        attributes: Attributes,
        payload: bytes = b"",
        headers: Headers | None = None,
        *,
        ttl: float | None = None,
    ) -> PublishReceipt | None:
        """Publish an event if it can be sent at once. Returns None if it was not sent: there is no connection, the
        peer has many unanswered requests of this client, or its links were congested a moment ago."""
        publication = make_publication(attributes, payload, headers, ttl)
        if not self.connected or len(self._answers.calls) >= WINDOW_MSGS or self._connection.unsent_bytes > BATCH_BYTES:
            return None
        if asyncio.get_running_loop().time() < self._congested_until:
            return None
        return await self._publish(publication)

    async def publish_many(self, events: Iterable[Attributes | EventTuple]) -> list[PublishReceipt]:
        """Publish many events in this order, and wait for all receipts.

        An event is its attributes, or a tuple of attributes, payload and headers. All events are checked before the
        first is sent. If the peer refuses some events, it still publishes the others. If the connection breaks, the
        rest is not sent. In both cases `PartlyPublished` has the result of each event.
        """
        requests: list[frames.Publish] = []
        for number, event in enumerate(events):
            try:
                publication = make_publication(*(event if isinstance(event, tuple) else (event,)))
            except ClientError as error:
                raise type(error)(f"event {number} of many: {error}", code=error.code) from None
            requests.append(self._publish_frame(publication))
        results = await send_batches(self._connection, self._answers, requests)
        receipts = [result for result in results if isinstance(result, PublishReceipt)]
        if len(receipts) < len(results):
            raise PartlyPublished(results)
        return receipts

    def subscribe(
        self,
        filter: str,
        *,
        deadline: float | str | None = None,
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
        since: When | None = None,
        until: When | None = None,
        last: int | None = None,
        log: str | None = None,
        buffer_msgs: int = BUFFER_MSGS,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> EventStream:
        """A subscription: enter it with `async with`, or await it; then iterate.

        `deadline` is in seconds, or "3x" for three times the shortest delay from the publisher's peer. `reliability` is
        the share of events that must arrive at the first attempt, if peers send on several trees. `order="publisher"`
        delivers events of one publisher in the order of publication. `expire=True` lets the peer drop events that are
        past the deadline. `group="workers"` makes the subscription a member of a queue group: one member, at any peer,
        gets each event. `retained=False` excludes retained events.

        With a `name` the subscription is durable. It stays at the peer when the client leaves, and its events wait for
        the next client with this name. The peer repeats an event until the client has confirmed it: with `ack="auto"`
        when the application asks for the next event, with `ack="explicit"` when it calls `event.ack()`. At most
        `window` events are unconfirmed. `max_events`, `max_bytes` and `max_age` (seconds) bound the events that wait.

        With `since`, `last`, `until` or `log` it reads a log of the peer: history first, then what comes. `since` is
        "first", a duration such as "2h", a time or a position; `last=10` begins with the last ten events that match.
        It ends at `until`, which may be "now". Events have a `position` and a `time`. `log` names one of several logs.
        """
        if buffer_msgs < 1 or buffer_bytes < 1:
            raise ClientError(f"a buffer of {buffer_msgs} messages and {buffer_bytes} bytes holds nothing")
        request = make_subscribe_frame(
            self._number(),
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
        if (since, until, last, log) != (None, None, None, None):
            reader = LogSubscription(self.streams, log_request(request, since, until, last, log))
            return EventStream(self.streams, request, reader)
        if name is not None:
            durable = DurableSubscription(request, self._homes, ack, self.timeout)
            self._durable.add(durable)
            return EventStream(self.streams, request, durable)
        repeats = RepeatFilter(is_ordered=request.order) if request.order or len(self._urls) > 1 else None
        plain = BufferedSubscription(self.streams, request, buffer_msgs, buffer_bytes, repeats)
        return EventStream(self.streams, request, plain)

    def _make_client(self, url: str) -> "Client":
        return Client(url, timeout=self.timeout, patience=float("inf"), tls=self._tls)

    async def drain(self, timeout: float | None = None) -> None:
        """Wait until the peer has answered all requests and the application has consumed all events."""
        try:
            async with asyncio.timeout(timeout):
                await self._answers.wait_for_all()
                await self._ask(frames.PingFrame(self._number()))
                await self.streams.wait_until_consumed()
                for durable in list(self._durable):
                    await durable.buffer.wait_until_consumed()
        except TimeoutError:
            raise ClientError(f"not everything was consumed within {timeout} s", code="timeout") from None

    async def close(self) -> None:
        await self._connection.close()
        await self._homes.close()

    # ---------------------------------------------------------------- about the peer itself

    async def status(self) -> StatusSnapshot:
        """The peer's counters, and the state of its links."""
        return (await self._call(frames.AskStatus(self._number()), frames.StatusFrame)).status

    async def cut(self, neighbour: PeerId) -> None:
        """Make the peer lose everything that it sends to this neighbour, for experiments."""
        await self._ask(frames.SetLink(self._number(), neighbour, False))

    async def heal(self, neighbour: PeerId) -> None:
        """Undo `cut`."""
        await self._ask(frames.SetLink(self._number(), neighbour, True))

    async def add_link(self, neighbour: PeerId, address: str, *, delay: str = "20ms", reliability: float = 1.0) -> None:
        """Make the peer link to another neighbour, until it restarts. The neighbour does so, too, unless its file
        says `admit = false`."""
        request = frames.AddLink(self._number(), neighbour, address, delay, reliability)
        await self._ask(request)

    async def remove_link(self, neighbour: PeerId) -> None:
        """Make the peer remove the link to a neighbour. Events in flight over it take other routes."""
        await self._ask(frames.RemoveLink(self._number(), neighbour))

    async def forget_peer(self, peer: PeerId) -> None:
        """Make all peers drop the events that they store for a peer that is gone for good, and its subscriptions."""
        await self._ask(frames.ForgetPeer(self._number(), peer))

    async def load_plan(self) -> int:
        """Make the peer read its plan again and follow it, without losing or doubling events. Returns its id."""
        return (await self._call(frames.LoadPlan(self._number()), frames.Following)).plan

    async def prepare_plan(self, version: int, part: bytes) -> None:
        """Make the peer check its part of a plan (`wend.model.plan_slice`), and hold it for a minute."""
        pieces = [part[place : place + _PIECE_BYTES] for place in range(0, len(part), _PIECE_BYTES)]
        for number, piece in enumerate(pieces, 1):
            request = frames.PreparePlan(self._number(), version, piece, last=number == len(pieces))
            await self._ask(request)

    async def commit_plan(self, plan: int, version: int) -> None:
        """Make the peer follow the plan that it holds."""
        await self._call(frames.CommitPlan(self._number(), plan, version), frames.Following)

    async def revert_plan(self, plan: int, version: int) -> None:
        """Make the peer drop a plan that it holds, or return to the previous one."""
        await self._ask(frames.RevertPlan(self._number(), plan, version))

    async def subscriptions(self) -> tuple[frames.DurableStatus, ...]:
        """The durable subscriptions at the peer, by name."""
        statuses: list[frames.DurableStatus] = []
        more = True
        while more:
            request = frames.ListSubscriptions(self._number(), statuses[-1].name if statuses else "")
            answer = await self._call(request, frames.Subscriptions)
            statuses += answer.durable
            more = answer.more and bool(answer.durable)
        return tuple(statuses)

    async def remove_subscription(self, name: str) -> None:
        """Remove a durable subscription from all peers that the client's URL names, with the events that wait for
        it. Raises if one of them has none of that name, or cannot be reached."""
        check_name(name)
        await self._homes.remove(name)

    async def unretain(self, value: Value, attribute: str = "topic") -> None:
        """Make the peer forget the event that it retains for a topic, or for a value of another attribute."""
        check_types({attribute: value}, b"", {})
        await self._ask(frames.Unretain(self._number(), attribute, value))

    # ---------------------------------------------------------------- requests and answers

    async def _publish(self, publication: Publication) -> PublishReceipt:
        if self._connection.writer is None:
            publication = publication.after_waiting(await self._connection.wait_until_open())
        return make_receipt(await self._call(self._publish_frame(publication), frames.Accepted))

    async def _publish_again(self, publication: Publication) -> PublishReceipt:
        """Publish an event with a key, again if the connection breaks before the receipt."""
        began = monotonic()
        while True:
            try:
                return await self._publish(publication.after_waiting(monotonic() - began))
            except ConnectionLost:
                if self.ended or monotonic() - began >= seconds(self.timeout):
                    raise

    def _publish_frame(self, event: Publication) -> frames.Publish:
        number = self._number()
        return frames.Publish(
            number, event.attributes, event.payload, event.headers, event.ttl_ns, event.to, event.retain
        )

    async def _publish_checked(self, publication: Publication) -> PublishReceipt:
        publication.check()
        return await self._publish(publication)

    async def _ask(self, request: frames.Request) -> None:
        """Send a request, and wait until the peer has carried it out."""
        await self._call(request, frames.Completed)

    async def _call(self, request: frames.Request, expected: type[A]) -> A:
        """Send a request, and wait for its answer. Raises if the peer refuses it, or does not answer."""
        try:
            data = wire.encode_frame(request)
        except WireError as error:
            raise ClientError(str(error), code=error.code) from None
        connection = self._connection
        if connection.writer is None:
            await connection.wait_until_open()
        connection.unwritten.append(data)
        connection.write_soon()
        return await self._answers.wait_for_answer(request.ref, expected)

    # ---------------------------------------------------------------- called by the connection alone

    def _on_frame(self, frame: frames.ToClient) -> None:
        match frame:
            case frames.Deliveries(deliveries):
                self.streams.deliver(deliveries)
            case frames.Delivery():
                self.streams.deliver((frame,))
            case frames.Dropped() | frames.MissedFrame() | frames.Replaced() | frames.Reading() | frames.Finished():
                self.streams.on_report(frame)
            case frames.Welcome() | Records():
                pass
            case _:
                if isinstance(frame, frames.Accepted | frames.Posted) and frame.congested:
                    self._congested_until = asyncio.get_running_loop().time() + CONGESTED_S
                self.streams.on_answer(frame)
                self._answers.on_answer(frame)

    def _on_reconnected(self) -> None:
        self.streams.restore()

    def _on_connection_lost(self, error: ClientError) -> None:
        self.streams.on_connection_lost()
        self._answers.fail_all(error)

    def _on_ended(self, error: ClientError) -> None:
        self.streams.end(error)
        for durable in list(self._durable):
            durable.end(error)
