"""Requests and replies between clients.

A request is an event with the header `wend-reply-to`, which names the requester's inbox and the number of the request.
A reply is an event for the peer at which the request was published, and for the inbox alone. The id of the request
names that peer. So no other peer has to know of the inbox, and a reply costs one route. The client subscribes to its
inbox at its first request, and its peer does not announce the subscription. Only the first reply counts.
"""

import asyncio
import itertools
import secrets
from collections import Counter

import msgspec

from wend.drivers.live import frames
from wend.drivers.live.client.arrivals import REPLY, REPLY_TO, Arrival, PublishReceipt, make_reply
from wend.drivers.live.client.event_streams import EventStreams, make_arrival
from wend.matching.filters import topic_filter
from wend.model.errors import ClientError, ConnectionLost, NoReply, WendError
from wend.model.events import Attributes, Headers, PeerId
from wend.model.publication import Publication


class Inbox:
    """The subscription for replies to a client's requests."""

    def __init__(self, streams: EventStreams, handle: int) -> None:
        self.handle = handle
        self.dropped = 0
        self.missed: Counter[str] = Counter()
        self.ended = False
        self._streams = streams
        self._topic = f"wend.inbox.{secrets.token_hex(8)}"
        self._peer: PeerId = -1
        """The peer that has the subscription, or had it last."""
        self._opening = asyncio.Lock()
        self._opened = False
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Arrival]] = {}

    async def ask(self, publication: Publication, timeout: float) -> Arrival:
        """Publish a request, and wait for the first reply."""
        await self._open()
        number = str(next(self._numbers))
        reply: asyncio.Future[Arrival] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        try:
            async with asyncio.timeout(timeout):
                headers = {**publication.headers, REPLY_TO: f"{self._topic}/{number}"}
                receipt = await self._streams.publish(msgspec.structs.replace(publication, headers=headers))
                if not receipt.targets:
                    raise NoReply("nobody is subscribed to this request", code="nobody-subscribed")
                return await reply
        except TimeoutError:
            raise NoReply(f"no reply came within {timeout:g} s") from None
        finally:
            del self._waiting[number]
            reply.cancel()

    async def reply(
        self, request: Arrival, payload: bytes, attributes: Attributes | None, headers: Headers | None
    ) -> PublishReceipt:
        """Answer a reply that is itself a request; `Arrival.reply` calls it."""
        return await self._streams.publish(make_reply(request, payload, attributes, headers))

    async def _open(self) -> None:
        async with self._opening:
            if not self._opened:
                await self._streams.open(self)
                self._opened = True

    # ---------------------------------------------------------------- called by `EventStreams` (`OpenSubscription`)

    def request(self, ref: int) -> frames.Subscribe:
        return frames.Subscribe(ref, self.handle, topic_filter(self._topic), announced=False)

    def deliver(self, delivery: frames.Delivery) -> None:
        reply = self._waiting.get(delivery.event.headers.get(REPLY, ""))
        if reply is not None and not reply.done():
            reply.set_result(make_arrival(delivery, self))

    def on_missed(self, frame: frames.MissedFrame) -> None:
        self.missed.update(frame.counts)

    def on_reading(self, frame: frames.Reading) -> None:
        """Do nothing: it reads no log."""

    def on_subscribed(self, peer: PeerId) -> None:
        if self._peer not in (-1, peer):
            self._fail(ConnectionLost("the client moved to another peer, where the reply cannot reach it"))
        self._peer = peer

    def on_connection_lost(self) -> None:
        """Keep waiting: replies may come over the next connection if it is to the same peer."""

    def end(self, error: WendError | None) -> None:
        self.ended = True
        self._fail(error or ClientError("the client is closed", code="closed"))

    async def wait_until_consumed(self) -> None:
        """Return at once: replies never wait in a buffer."""

    def _fail(self, error: WendError) -> None:
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(error)
