"""Requests and replies between clients.

A request is an event with the header `wend-reply-to`, which names the requester's inbox and the number of the request.
A reply is an event for the peer at which the request was published, and for the inbox alone. The id of the request
names that peer. So no other peer has to know of the inbox, and a reply costs one route. The inbox is a subscription
that the client makes at its first request, and that its peer does not announce. Only the first reply counts.
"""

import asyncio
import itertools
import secrets

import msgspec

from wend.drivers.live import frames
from wend.drivers.live.client.arrivals import Arrival
from wend.drivers.live.client.event_streams import EventStream, EventStreams
from wend.matching.filters import topic_filter
from wend.model.errors import ClientError, ConnectionLost, NoReply, WendError
from wend.model.events import Attributes, Headers, PeerId
from wend.model.units import SECOND

REPLY_TO = "wend-reply-to"
"""The header of a request: the topic of the inbox, a slash, and the number of the request."""
REPLY = "wend-reply"
"""The header of a reply: the number of the request."""


class Inbox(EventStream):
    """The subscription for replies to a client's requests."""

    def __init__(self, streams: EventStreams, handle: int) -> None:
        self._topic = f"wend.inbox.{secrets.token_hex(8)}"
        super().__init__(streams, frames.Subscribe(0, handle, topic_filter(self._topic), announced=False), 1, 1)
        self._opening = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Arrival]] = {}

    @property
    def ended(self) -> bool:
        return self._ended

    async def request(self, request: frames.Publish, timeout: float) -> Arrival:
        """Publish a request, and wait for the first reply."""
        async with self._opening:
            await self.__aenter__()
        number = str(next(self._numbers))
        reply: asyncio.Future[Arrival] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        try:
            async with asyncio.timeout(timeout):
                headers = {**request.headers, REPLY_TO: f"{self._topic}/{number}"}
                receipt = await self._streams.publish(msgspec.structs.replace(request, headers=headers))
                if not receipt.targets:
                    raise NoReply("nobody is subscribed to this request")
                return await reply
        except TimeoutError:
            raise NoReply(f"no reply came within {timeout:g} s") from None
        finally:
            del self._waiting[number]
            reply.cancel()

    def _deliver(self, delivery: frames.Delivery) -> None:
        reply = self._waiting.get(delivery.event.headers.get(REPLY, ""))
        if reply is not None and not reply.done():
            reply.set_result(self._arrival(delivery, delivery.age_ns / SECOND))

    def _subscribed(self, peer: PeerId) -> None:
        if self.peer not in (-1, peer):
            self._fail(ConnectionLost("the client went to another peer, where the reply cannot reach it"))
        super()._subscribed(peer)

    def _end(self, error: WendError | None) -> None:
        super()._end(error)
        self._fail(error or ClientError("the client is closed"))

    def _fail(self, error: WendError) -> None:
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(error)


def reply_to(
    request: Arrival, payload: bytes, attributes: Attributes | None, headers: Headers | None
) -> frames.Publish:
    """The publication that answers a request; it has no number yet. Raises `ClientError` if the event is none."""
    topic, slash, number = request.headers.get(REPLY_TO, "").rpartition("/")
    if not slash:
        raise ClientError("this event is no request: it names nobody to reply to")
    if attributes is not None and "topic" in attributes:
        raise ClientError("a reply has the topic of the requester's inbox: give it other attributes")
    named = {**(headers or {}), REPLY: number}
    return frames.Publish(0, {**(attributes or {}), "topic": topic}, payload, named, to=request.id.publisher)
