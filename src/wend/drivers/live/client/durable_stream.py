"""The events of a durable subscription, as its client reads them.

The peer repeats an event until the client confirms it. The client confirms an event when the application asks for the
next one (`ack="auto"`), or when the application says so (`event.ack()`). Over a new connection the peer sends again
what it has no confirmation of. The stream leaves out what the application has already, so while the client lives, the
application sees each event once.
"""

import asyncio
from collections import Counter, deque

from wend.drivers.live import frames
from wend.drivers.live.client.arrivals import Arrival, signer_of
from wend.drivers.live.client.event_streams import EventStream, EventStreams
from wend.model.errors import ClientError
from wend.model.events import PeerId

AUTO, EXPLICIT = "auto", "explicit"
_REMEMBERED = 20_000
"""Confirmed positions that the stream remembers, in case the confirmation was lost with the connection."""


class DurableArrival(Arrival, frozen=True):
    """An event of a durable subscription."""

    redelivered: bool = False
    """Whether a client of this subscription got it before and did not confirm it."""
    peer: PeerId = -1
    position: int = 0

    def ack(self) -> None:
        """Confirm that it is processed: the peer forgets it. To confirm it twice does no harm."""
        self.stream.confirm(self.peer, self.position)


class DurableStream(EventStream):
    """The events of a durable subscription, to iterate over; made by `Client.subscribe` with a name."""

    def __init__(
        self,
        streams: EventStreams,
        request: frames.Subscribe,
        buffer_msgs: int,
        buffer_bytes: int,
        ack: str,
    ) -> None:
        if ack not in (AUTO, EXPLICIT):
            raise ClientError(f'ack is "{AUTO}" or "{EXPLICIT}", got {ack!r}')
        super().__init__(streams, request, buffer_msgs, buffer_bytes)
        assert request.durable is not None
        self.name = request.durable.name
        self.missed: Counter[str] = Counter()
        """Events that the peer could not hold for this subscription, by reason."""
        self.moves = 0
        """How often it went on at another peer. The events that waited at the former one stay there."""
        self._auto = ack == AUTO
        self._current: DurableArrival | None = None
        self._from: PeerId = -1
        self._holds: set[int] = set()
        """Positions in the buffer and in the application's hands."""
        self._confirmed: deque[int] = deque()
        self._known: set[int] = set()
        self._unsent: list[int] = []
        self._flushes = False

    async def __anext__(self) -> Arrival:
        self._confirm_current()
        arrival = await super().__anext__()
        assert isinstance(arrival, DurableArrival)
        self._current = arrival
        return arrival

    async def __aexit__(self, *error: object) -> None:
        if error and error[0] is not None:
            self._current = None  # the application failed with it: the next client gets it again
        await self.close()

    async def close(self) -> None:
        """Detach from the subscription. It stays at the peer, and events wait for its next client."""
        self._confirm_current()
        self._flush()
        await super().close()

    def confirm(self, peer: PeerId, position: int) -> None:
        """Confirm an event; `DurableArrival.ack` calls it."""
        if peer != self._from or position not in self._holds:
            return  # it was confirmed, or it is of another peer, which will send it again
        self._holds.discard(position)
        self._remember(position)
        self._unsent.append(position)
        if not self._flushes:
            self._flushes = True
            asyncio.get_running_loop().call_soon(self._flush)

    # ---------------------------------------------------------------- inside

    def _confirm_current(self) -> None:
        if self._auto and self._current is not None:
            self._current.ack()
        self._current = None

    def _remember(self, position: int) -> None:
        self._known.add(position)
        self._confirmed.append(position)
        if len(self._confirmed) > _REMEMBERED:
            self._known.discard(self._confirmed.popleft())

    def _flush(self) -> None:
        self._flushes = False
        if self._unsent and self._streams.confirm(self._handle, tuple(self._unsent)):
            self._unsent.clear()

    def _arrival(self, delivery: frames.Delivery, age: float) -> Arrival:
        event = delivery.event
        headers, signer = signer_of(event.headers)
        return DurableArrival(
            event.id,
            event.attributes,
            event.payload,
            age,
            delivery.late,
            headers,
            self,
            signed_by=signer,
            redelivered=delivery.again,
            peer=self._from,
            position=delivery.position,
        )

    def _deliver(self, delivery: frames.Delivery) -> None:
        if self._streams.peer != self._from:
            self._moved(self._streams.peer)
        position = delivery.position
        if self._ended or position in self._holds:
            return
        if position in self._known:  # the confirmation was lost with a connection
            self._streams.confirm(self._handle, (position,))
            return
        self._holds.add(position)
        self._append(delivery)

    def _subscribed(self, peer: PeerId) -> None:
        super()._subscribed(peer)
        if peer != self._from:
            self._moved(peer)
        self._flush()

    def _moved(self, peer: PeerId) -> None:
        """Go on at another peer, whose positions mean other events."""
        if self._from != -1:
            self.moves += 1
            self._buffer.clear()  # the former peer has them, since they are not confirmed
            self._bytes = 0
            self._changed.set()  # somebody may wait until all of them are consumed
        self._from = peer
        self._holds.clear()
        self._known.clear()
        self._confirmed.clear()
        self._unsent.clear()
