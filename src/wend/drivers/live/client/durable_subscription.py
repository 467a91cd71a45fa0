"""A durable subscription of a client: attached at each of its homes, and merged into one stream.

Every home stores the events and sends them, but one of them sends first: the others are on standby, and send what has
not been confirmed after a second. If events come from a home on standby, the first one has fallen behind, and the two
change roles. So no event waits for a connection that seems to be alive.
"""

import asyncio
from collections import Counter
from contextlib import suppress

import msgspec

from wend.drivers.live import frames
from wend.drivers.live.client.confirmations import Confirmations
from wend.drivers.live.client.event_streams import DeliveryBuffer, EventStreams
from wend.drivers.live.client.homes import ClientHome, Homes
from wend.model.errors import ConnectionLost, FilterError, Refused, WendError
from wend.model.events import EventId, PeerId
from wend.model.units import SECOND

STANDBY_NS = 1 * SECOND
FIRST_PAUSE_S = 0.05
LAST_PAUSE_S = 2.0


class HomeAttachment:
    """A durable subscription at one of its homes (`OpenSubscription`)."""

    def __init__(self, subscription: "DurableSubscription", home: ClientHome, request: frames.Subscribe) -> None:
        self.home = home
        self.peer: PeerId = -1
        """The peer that it is attached at, or was last."""
        self.is_attached = False
        self.claimed: PeerId | None = None
        """The peer that it is attached at or about to be; None if there is none."""
        self.standby_ns = 0
        self.handle = request.handle
        self.dropped = 0
        self.lost = asyncio.Event()
        """Set when the home has ended the subscription."""
        self.error: WendError | None = None
        """Why it could not be attached, or was ended."""
        self._subscription = subscription
        self._request = request
        self._streams: EventStreams | None = None
        self.confirmations = subscription.confirmations.add_home(self._confirm)

    @property
    def missed(self) -> Counter[str]:
        """The missed events that the home reports. All homes miss the same events, so only the first home's count."""
        return self._subscription.missed_by(self)

    async def attach(self, streams: EventStreams) -> None:
        """Attach at this home. Raises `ClientError` if it fails."""
        if self._streams is not streams:
            self._streams = streams
            self.handle = streams.number()
        self.lost.clear()
        await streams.open(self)

    async def detach(self) -> None:
        self.is_attached = False
        if self._streams is not None:
            await self._streams.unsubscribe(self)

    def stand_by(self, standby_ns: int) -> None:
        """Get events from this age on; 0: at once."""
        if standby_ns != self.standby_ns and self.is_attached and self._streams is not None:
            self.standby_ns = standby_ns
            self._streams.stand_by(self.handle, standby_ns)

    def _confirm(self, positions: tuple[int, ...], ids: tuple[EventId, ...]) -> bool:
        return self.is_attached and self._streams is not None and self._streams.confirm(self.handle, positions, ids)

    # ---------------------------------------------------------------- called by `EventStreams` (`OpenSubscription`)

    def request(self, ref: int) -> frames.Subscribe:
        self.standby_ns = self._subscription.standby_age_ns(self)
        how = {"handle": self.handle, "shared": self._subscription.is_shared, "standby_ns": self.standby_ns}
        return msgspec.structs.replace(self._request, ref=ref, **how)

    def deliver(self, delivery: frames.Delivery) -> None:
        self._subscription.deliver(self, delivery)

    def on_missed(self, frame: frames.MissedFrame) -> None:
        self.missed.update(frame.counts)

    def on_reading(self, frame: frames.Reading) -> None:
        """Do nothing: it reads no log."""

    def on_subscribed(self, peer: PeerId) -> None:
        if self.peer not in (-1, peer):
            self._subscription.confirmations.on_home_moved(self.confirmations)
        self.peer = peer
        self.is_attached = True
        self.error = None
        self._subscription.on_attached(self)
        self.confirmations.flush()

    def on_connection_lost(self) -> None:
        self.is_attached = False
        self._subscription.on_detached(self)

    def end(self, error: WendError | None) -> None:
        self.is_attached = False
        self.error = error
        self.lost.set()
        self._subscription.on_ended_at(self, error)

    async def wait_until_consumed(self) -> None:
        await self._subscription.buffer.wait_until_consumed()


class DurableSubscription:
    """One durable subscription of a client."""

    def __init__(self, request: frames.Subscribe, homes: Homes, ack: str, timeout: float) -> None:
        """`timeout`: how long to try to reach a home at first, in seconds."""
        self.buffer = DeliveryBuffer()
        self.confirmations = Confirmations(ack, is_ordered=request.order)
        self.is_shared = len(homes) > 1
        self._missed: Counter[str] = Counter()
        self._timeout = timeout
        self._attachments = [HomeAttachment(self, home, request) for home in homes]
        self._first = self._attachments[0]
        """The home that sends events at once."""
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def peer(self) -> PeerId:
        """The peer that sends events at once, or did so last."""
        return self._first.peer

    @property
    def homes(self) -> tuple[PeerId, ...]:
        """The peers that it is attached at now."""
        return tuple(each.peer for each in self._attachments if each.is_attached)

    @property
    def missed(self) -> Counter[str]:
        if self.confirmations.overtaken:
            return self._missed + Counter({"skipped": self.confirmations.overtaken})
        return self._missed

    @property
    def dropped(self) -> int:
        return sum(each.dropped for each in self._attachments)

    async def open(self) -> None:
        """Attach at the first home that answers, and at the others in the background. Raises if none can be reached,
        or if one refuses the subscription."""
        if not self.is_shared:
            await self._first.attach((await self._first.home.connected_client()).streams)
            return
        self._tasks = [asyncio.create_task(self._keep_attached(each)) for each in self._attachments]
        try:
            async with asyncio.timeout(self._timeout):
                await self._wait_until_attached()
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                sentence = "; ".join(str(each.error) for each in self._attachments if each.error is not None)
                raise ConnectionLost(sentence or "no peer answers", code="timeout") from None
            raise

    async def _wait_until_attached(self) -> None:
        while not any(each.is_attached for each in self._attachments):
            for each in self._attachments:
                if isinstance(each.error, FilterError | Refused):
                    raise each.error
            self._changed.clear()
            await self._changed.wait()

    async def _keep_attached(self, attachment: HomeAttachment) -> None:
        """Attach at a home, and attach again whenever that ends. Retries if the home is unreachable or refuses."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                streams = (await attachment.home.connected_client()).streams
                if not self._has_home_at(streams.peer, attachment):
                    attachment.claimed = streams.peer
                    await attachment.attach(streams)
                    pause = FIRST_PAUSE_S
                    await attachment.lost.wait()
            except WendError as error:
                attachment.error = error
                self._changed.set()
            attachment.claimed = None
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_S)

    def _has_home_at(self, peer: PeerId, attachment: HomeAttachment) -> bool:
        """Whether another address of the URL leads to the same peer."""
        return any(each.claimed == peer for each in self._attachments if each is not attachment)

    async def close(self) -> None:
        """Detach from all homes."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self.confirmations.flush()
        for each in self._attachments:
            await each.detach()

    # ---------------------------------------------------------------- called by attachments

    def standby_age_ns(self, attachment: HomeAttachment) -> int:
        """The age from which a home that is about to be attached sends events."""
        return STANDBY_NS if self._first.is_attached and self._first is not attachment else 0

    def missed_by(self, attachment: HomeAttachment) -> Counter[str]:
        return self._missed if attachment is self._first else Counter()

    def deliver(self, attachment: HomeAttachment, delivery: frames.Delivery) -> None:
        if self.buffer.ended:
            return
        if self.confirmations.accept(attachment.confirmations, delivery.event, delivery.position):
            self.buffer.add(delivery)
            if attachment is not self._first and attachment.is_attached:
                self._make_first(attachment)

    def on_attached(self, attachment: HomeAttachment) -> None:
        if not self._first.is_attached:
            self._make_first(attachment)
        self._changed.set()

    def on_detached(self, attachment: HomeAttachment) -> None:
        """Let another home send events at once."""
        if attachment is self._first:
            other = next((each for each in self._attachments if each.is_attached), None)
            if other is not None:
                self._make_first(other)

    def _make_first(self, attachment: HomeAttachment) -> None:
        self._first = attachment
        for each in self._attachments:
            each.stand_by(0 if each is attachment else STANDBY_NS)

    def on_ended_at(self, attachment: HomeAttachment, error: WendError | None) -> None:
        """Handle the end of an attachment. Ends the subscription if another client took over, or if this was the last
        home."""
        self.on_detached(attachment)
        is_taken_over = error is not None and error.code == "taken-over"
        if not self.is_shared or (is_taken_over and not self._has_home_at(attachment.peer, attachment)):
            self.end(error)

    def end(self, error: WendError | None) -> None:
        """End the stream for this reason; None if the application closed it."""
        self.buffer.end(error)
        for task in self._tasks:
            task.cancel()
