"""The events of one subscription, as the application iterates over them."""

from collections import Counter
from collections.abc import Generator
from typing import Any

from wend.drivers.live import frames
from wend.drivers.live.client.arrivals import (
    Arrival,
    DurableArrival,
    LogArrival,
    PublishReceipt,
    make_reply,
    split_signer,
)
from wend.drivers.live.client.durable_subscription import DurableSubscription
from wend.drivers.live.client.event_streams import BufferedSubscription, EventStreams, make_arrival
from wend.drivers.live.client.log_subscription import LogSubscription
from wend.model.errors import ClientError
from wend.model.events import Attributes, EventId, Headers, PeerId
from wend.model.units import SECOND


class EventStream:
    """The events of one subscription, to iterate over; made by `Client.subscribe`."""

    def __init__(
        self,
        streams: EventStreams,
        request: frames.Subscribe,
        subscription: BufferedSubscription | DurableSubscription | LogSubscription,
    ) -> None:
        self.filter = request.filter
        self.deadline_ns = request.deadline_ns
        self.reliability = request.reliability
        self.name = None if request.durable is None else request.durable.name
        """The name of a durable subscription; None for others."""
        self._streams = streams
        self._subscription = subscription
        self._confirmations = subscription.confirmations if isinstance(subscription, DurableSubscription) else None
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
        """The peer that it is subscribed at, or was last. For a durable subscription with several homes, the peer that
        sends events first."""
        return self._subscription.peer

    @property
    def log(self) -> str | None:
        """The name of the log that it reads; None if it reads none."""
        return self._subscription.log if isinstance(self._subscription, LogSubscription) else None

    @property
    def position(self) -> int | None:
        """The position after the last event that came from a log: where another subscription goes on."""
        return self._subscription.next_position if isinstance(self._subscription, LogSubscription) else None

    @property
    def homes(self) -> tuple[PeerId, ...]:
        """The peers that a durable subscription is attached at now."""
        return self._subscription.homes if isinstance(self._subscription, DurableSubscription) else ()

    async def __aenter__(self) -> "EventStream":
        if self._subscription.buffer.ended:
            raise ClientError("this subscription is closed: make another", code="closed")
        if not self._entered:
            await self._subscription.open()
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
        self._subscription.end(None)
        await self._subscription.close()

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> Arrival:
        """Ends when the subscription is closed. Raises if the peer did not come back, or refused the subscription."""
        if not self._entered and not self._subscription.buffer.ended:
            raise ClientError("enter it first: async with client.subscribe(...)", code="not-connected")
        if isinstance(self._subscription, LogSubscription):
            return _log_arrival(await self._subscription.take(), self)
        if self._confirmations is None:
            return make_arrival(await self._subscription.buffer.take(), self)
        self._confirmations.confirm_current()
        delivery = await self._subscription.buffer.take()
        self._confirmations.set_current(delivery.event.id)
        return _durable_arrival(delivery, self)

    async def reply(
        self, request: Arrival, payload: bytes, attributes: Attributes | None, headers: Headers | None
    ) -> PublishReceipt:
        """Answer a request that came by this subscription; `Arrival.reply` calls it."""
        return await self._streams.publish(make_reply(request, payload, attributes, headers))

    def confirm(self, id: EventId) -> None:
        """Confirm an event of a durable subscription; `DurableArrival.ack` calls it."""
        if self._confirmations is not None:
            self._confirmations.confirm(id)

    async def wait_until_empty(self) -> None:
        """Wait until the buffer is empty."""
        await self._subscription.buffer.wait_until_consumed()


def _log_arrival(delivery: frames.Delivery, stream: EventStream) -> LogArrival:
    event = delivery.event
    headers, signer = split_signer(event.headers)
    return LogArrival(
        event.origin or event.id,
        event.attributes,
        event.payload,
        delivery.age_ns / SECOND,
        delivery.late,
        headers,
        stream,
        signed_by=signer,
        position=delivery.position,
        time=delivery.time_ns / SECOND,
    )


def _durable_arrival(delivery: frames.Delivery, stream: EventStream) -> DurableArrival:
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
    )
