"""What a client gets: the receipt of a publication, and an event."""

from typing import Any

import msgspec

from wend.drivers.live import frames
from wend.model.events import Attributes, EventId, Headers

Publication = tuple[Attributes, bytes] | tuple[Attributes, bytes, Headers]
"""An event with its payload and perhaps headers, for `Client.publish_many`."""


class PublishReceipt(msgspec.Struct, frozen=True):
    """What a peer promises for a publication."""

    id: EventId
    targets: int
    """How many peers are to get it, as far as the publishing peer knows."""
    kept: bool
    """Whether it survives a crash of the publishing peer."""
    congested: bool = False
    """Whether so much waits for a link of that peer that the publisher should pause."""


class Arrival(msgspec.Struct, frozen=True):
    """An event as a subscriber gets it."""

    id: EventId
    attributes: Attributes
    payload: bytes
    age: float
    """Seconds from publication to delivery at the subscriber's peer."""
    late: bool
    """Whether that is more than the subscription's deadline."""
    headers: Headers = {}
    stream: Any = None
    """The subscription that it came by."""
    retained: bool = False
    """Whether it was published before the subscription, and a peer retained it."""

    async def reply(
        self, payload: bytes = b"", attributes: Attributes | None = None, headers: Headers | None = None
    ) -> PublishReceipt:
        """Answer a request (`Client.request`). Raises `ClientError` if the event is none."""
        receipt: PublishReceipt = await self.stream.reply(self, payload, attributes, headers)
        return receipt


def receipt_of(accepted: frames.Accepted) -> PublishReceipt:
    return PublishReceipt(accepted.id, accepted.targets, accepted.kept, accepted.congested)
