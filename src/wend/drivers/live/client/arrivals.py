"""What a client gets from a peer: the receipt of a publication, and an event."""

from typing import Any

import msgspec

from wend.drivers.live import frames
from wend.model.errors import ClientError
from wend.model.events import SIGNED_BY_HEADER, Attributes, EventId, Headers
from wend.model.publication import Publication

REPLY_TO = "wend-reply-to"
"""The header of a request: the topic of the inbox, a slash and the number of the request."""
REPLY = "wend-reply"
"""The header of a reply: the number of the request."""
EventTuple = tuple[Attributes, bytes] | tuple[Attributes, bytes, Headers]
"""An event with its payload and perhaps headers, for `Client.publish_many`."""


class PublishReceipt(msgspec.Struct, frozen=True):
    """What a peer promises for a publication."""

    id: EventId
    targets: int
    """How many peers the event is for, as far as the publishing peer knows."""
    kept: bool
    """Whether the event survives a crash of the publishing peer."""
    congested: bool = False
    """Whether the publisher should pause, because too much waits for a link of its peer."""
    repeated: bool = False
    """Whether the event was published before with the same key. `id` is that of the earlier event."""


class Arrival(msgspec.Struct, frozen=True):
    """An event as a subscriber gets it."""

    id: EventId
    attributes: Attributes
    payload: bytes
    age: float
    """Seconds from publication to delivery at the subscriber's peer."""
    late: bool
    """Whether the age exceeds the subscription's deadline."""
    headers: Headers = {}
    stream: Any = None
    """The subscription that got the event."""
    retained: bool = False
    """Whether the event is older than the subscription, and a peer retained it."""
    signed_by: str | None = None
    """The site that signed the event, as the subscriber's peer verified; None without a trusted signature."""

    async def reply(
        self, payload: bytes = b"", attributes: Attributes | None = None, headers: Headers | None = None
    ) -> PublishReceipt:
        """Answer a request (`Client.request`). Raises `ClientError` if the event is not a request."""
        receipt: PublishReceipt = await self.stream.reply(self, payload, attributes, headers)
        return receipt


class DurableArrival(Arrival, frozen=True):
    """An event of a durable subscription."""

    redelivered: bool = False
    """Whether a client may have got the event before: it did not acknowledge it, or the peer's store was damaged."""

    def ack(self) -> None:
        """Confirm that the event is processed, so that the peer can forget it. Confirming it twice does no harm."""
        self.stream.confirm(self.id)


class LogArrival(Arrival, frozen=True):
    """An event of a log."""

    position: int = 0
    """Its position in the log."""
    time: float = 0.0
    """When it was appended to the log, in seconds since 1970."""


def make_reply(request: Arrival, payload: bytes, attributes: Attributes | None, headers: Headers | None) -> Publication:
    """The publication that answers a request. Raises `ClientError` if the event is not a request."""
    topic, slash, number = request.headers.get(REPLY_TO, "").rpartition("/")
    if not slash:
        raise ClientError("this event is not a request: it names nobody to reply to")
    if attributes is not None and "topic" in attributes:
        raise ClientError("the topic of a reply is the inbox of the requester: leave out topic")
    named = {**(headers or {}), REPLY: number}
    return Publication({**(attributes or {}), "topic": topic}, payload, named, to=request.id.publisher)


def make_receipt(accepted: frames.Accepted) -> PublishReceipt:
    return PublishReceipt(accepted.id, accepted.targets, accepted.kept, accepted.congested, accepted.repeated)


def split_signer(headers: Headers) -> tuple[Headers, str | None]:
    """The headers of the application, and the signer of the event that the peer names."""
    if not headers or SIGNED_BY_HEADER not in headers:
        return headers, None
    rest = dict(headers)
    return rest, rest.pop(SIGNED_BY_HEADER)
