"""The frames that a peer writes to one client, gathered in a turn of the event loop.

For a client that does not read, deliveries wait in a bounded queue (`stalled_queue.py`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

import msgspec

from wend.drivers.live import frames
from wend.drivers.live.broker.stalled_queue import StalledQueue
from wend.drivers.live.transport import wire
from wend.model.errors import WireError
from wend.model.events import event_bytes
from wend.model.units import Nanos
from wend.protocol.ports import Deliver

log = logging.getLogger("wend.clients")

WRITE_HIGH_BYTES = 256 * 1024
GATHER_BYTES = 64 * 1024
"""Output beyond this size is written before the turn of the event loop ends."""


class ClientOutput:
    """Gathers the frames for one client, and writes them once in a turn of the event loop."""

    def __init__(
        self, counts: Counter[str], queue_msgs: int, queue_bytes: int, confirm: Callable[[int, tuple[int, ...]], None]
    ) -> None:
        """`confirm`: see `StalledQueue`."""
        self.is_stalled = False
        """Whether the client reads more slowly than frames are written."""
        self.batches = False
        """Whether the client accepts several deliveries in one frame."""
        self.queue = StalledQueue(counts, queue_msgs, queue_bytes, self._encode_delivery, confirm)
        self.counts = counts
        self._transport: asyncio.Transport | None = None
        self._unwritten: list[bytes] = []
        """Frames that are written when this turn of the event loop ends."""
        self._gathered: list[frames.Delivery] = []
        """Deliveries after those frames, to be sent in one frame."""
        self._unwritten_bytes = 0

    def open(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES - GATHER_BYTES)

    def end(self) -> None:
        """Write the gathered frames, and accept no more."""
        self.flush()
        self._transport = None

    def clear(self) -> None:
        """Drop everything, because the connection has ended."""
        self._transport = None
        self.queue.clear()
        self._unwritten.clear()
        self._gathered.clear()

    @property
    def is_ready(self) -> bool:
        """Whether the client reads, and nothing waits for it."""
        return self._transport is not None and not self.is_stalled and not self.queue

    def deliver(self, handle: int, effect: Deliver) -> None:
        if self._transport is None:
            return
        if self.is_stalled:
            self.queue.add_delivery(handle, effect)
        else:
            self.write_delivery(_make_delivery(handle, effect, 0), event_bytes(effect.event))

    def write_delivery(self, delivery: frames.Delivery, size: int) -> None:
        """Write a delivery of this size, although the client may read slowly."""
        self._write_later(size)
        self._gathered.append(delivery)

    def report_missed(self, handle: int, counts: dict[str, int]) -> None:
        """Report that a subscription will not get some events."""
        if self.queue or self.is_stalled:
            self.queue.add_missed(handle, counts)
        else:
            self.answer(frames.MissedFrame(handle, counts))

    def answer(self, frame: frames.ToClient) -> None:
        """Write an answer after the deliveries that wait, so that a client may rely on the order."""
        if self._transport is None:
            return
        encoded = wire.encode_frame(frame)
        if self.queue:
            self.queue.add_answer(encoded)
        else:
            self._write_later(len(encoded))
            self._close_batch()
            self._unwritten.append(encoded)

    def flush(self) -> None:
        """Write the frames gathered in this turn of the event loop."""
        self._unwritten_bytes = 0
        self._close_batch()
        if self._unwritten:
            encoded = b"".join(self._unwritten)
            self._unwritten.clear()
            if self._transport is not None:
                self._transport.write(encoded)

    def resume(self) -> None:
        """Write the frames that wait, as long as the client reads."""
        if self._transport is None:
            return
        self.is_stalled = False
        self.flush()
        for encoded in self.queue.drain():
            if encoded:
                self._transport.write(encoded)
            if self.is_stalled or self._transport is None:
                return

    def _write_later(self, size: int) -> None:
        if not self._unwritten_bytes:
            asyncio.get_running_loop().call_soon(self.flush)
        elif self._unwritten_bytes + size > GATHER_BYTES:
            self.flush()
        self._unwritten_bytes += size

    def _close_batch(self) -> None:
        """Turn the gathered deliveries into frames."""
        gathered = self._gathered
        if not gathered:
            return
        self._gathered = []
        if self.batches and len(gathered) > 1:
            try:
                self._unwritten.append(wire.encode_frame(frames.Deliveries(tuple(gathered))))
                return
            except WireError:
                pass  # one of them cannot be encoded
        self._unwritten.extend(map(self._encode, gathered))

    def _encode_delivery(self, handle: int, effect: Deliver, waited_ns: Nanos) -> bytes:
        return self._encode(_make_delivery(handle, effect, waited_ns))

    def _encode(self, delivery: frames.Delivery) -> bytes:
        """The frame of a delivery. If it cannot be encoded, the frame says that the client misses an event."""
        try:
            return wire.encode_frame(delivery)
        except WireError as error:
            self.counts["undeliverable"] += 1
            log.info("event %s cannot be delivered to a client: %s", delivery.event.id, error)
            return wire.encode_frame(frames.MissedFrame(delivery.handle, {"undeliverable": 1}))


def _make_delivery(handle: int, effect: Deliver, waited_ns: Nanos) -> frames.Delivery:
    age = effect.age_ns + waited_ns
    late = effect.deadline_ns is not None and age > effect.deadline_ns
    event = effect.event
    if event.groups or event.previous:  # these fields are for peers, and may be long
        event = msgspec.structs.replace(event, groups=(), previous=())
    return frames.Delivery(handle, event, age, late, effect.position, effect.again, effect.retained)
