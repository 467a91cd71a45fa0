"""What a session writes to its client: answers, and a bounded queue of deliveries while the client does not read.

While the client reads, frames are gathered and written once in a turn of the event loop, and the queue is empty. When
the client stops reading, the queue fills. A full queue drops the oldest deliveries, and the client is told their number
once it reads again. Answers are never dropped. What subscriptions miss is added up meanwhile.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable

import msgspec

from wend.drivers.live import frames
from wend.drivers.live.clock import monotonic
from wend.model.errors import WireError
from wend.model.events import event_bytes
from wend.model.units import Nanos
from wend.protocol.ports import Deliver

log = logging.getLogger("wend.clients")

WRITE_HIGH_BYTES = 256 * 1024
GATHER_BYTES = 64 * 1024
"""So much is written before the turn of the event loop ends."""


class ClientOutput:
    """The frames on their way to one client."""

    def __init__(
        self, counts: Counter[str], queue_msgs: int, queue_bytes: int, confirm: Callable[[int, tuple[int, ...]], None]
    ) -> None:
        """`confirm` takes the handle of a durable subscription and positions of events that expired in the queue."""
        self.counts = counts
        self._queue_msgs = queue_msgs
        self._queue_bytes = queue_bytes
        self._confirm = confirm
        self._transport: asyncio.Transport | None = None
        self.stalled = False
        """Whether the client reads more slowly than frames are written."""
        self.batches = False
        """Whether the client takes several deliveries in one frame."""
        self._queue: deque[tuple[int, int, bytes | tuple[Deliver, Nanos]]] = deque()
        """What waits for the client, after its size: the frame of an answer, with 0 for a handle, or a delivery, with
        the time since which it waits. A delivery is encoded when it is written, because it grows older until then."""
        self.queued_bytes = 0
        self._unwritten: list[bytes] = []
        """Frames that are written when this turn of the event loop ends."""
        self._gathered: list[frames.Delivery] = []
        """Deliveries after them, for one frame."""
        self._unwritten_bytes = 0
        self._dropped: Counter[int] = Counter()
        self._missed: dict[int, Counter[str]] = {}
        """By handle: what the subscription missed since the client does not read, by reason."""

    def open(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES - GATHER_BYTES)

    def end(self) -> None:
        """Write what was gathered, and take no more."""
        self.flush()
        self._transport = None

    def clear(self) -> None:
        """Forget everything: the connection is gone."""
        self._transport = None
        self._missed.clear()
        self._queue.clear()
        self._unwritten.clear()
        self._gathered.clear()

    def forget(self, handle: int) -> None:
        """The client does not want to hear of this subscription any more."""
        self._dropped.pop(handle, None)
        self._missed.pop(handle, None)

    def deliver(self, handle: int, effect: Deliver) -> None:
        if self._transport is None:
            return
        if not self.stalled:
            self._write_later(event_bytes(effect.event))
            self._gathered.append(_delivery(handle, effect, 0))
            return
        self._enqueue(handle, event_bytes(effect.event), (effect, monotonic()))
        while len(self._queue) > self._queue_msgs or self.queued_bytes > self._queue_bytes:
            if not self._drop_oldest():
                return

    def missed(self, handle: int, counts: dict[str, int]) -> None:
        """A subscription will not get some events."""
        if self._queue or self.stalled:
            self._missed.setdefault(handle, Counter()).update(counts)
        else:
            self.answer(frames.MissedFrame(handle, counts))

    def answer(self, frame: frames.ToClient) -> None:
        """Write an answer behind the deliveries that wait, so that the answer to a ping comes after them."""
        if self._transport is not None:
            encoded = frames.encode(frame)
            if self._queue:
                self._enqueue(0, len(encoded), encoded)
            else:
                self._write(encoded)

    # ---------------------------------------------------------------- one write per turn of the event loop

    def _write(self, encoded: bytes) -> None:
        """Write a frame with others of this turn of the event loop."""
        self._write_later(len(encoded))
        self._close_batch()
        self._unwritten.append(encoded)

    def _write_later(self, size: int) -> None:
        if not self._unwritten_bytes:
            asyncio.get_running_loop().call_soon(self.flush)
        elif self._unwritten_bytes + size > GATHER_BYTES:
            self.flush()
        self._unwritten_bytes += size

    def _close_batch(self) -> None:
        """Make frames of the deliveries that were gathered."""
        gathered = self._gathered
        if not gathered:
            return
        self._gathered = []
        if self.batches and len(gathered) > 1:
            try:
                self._unwritten.append(frames.encode(frames.Deliveries(tuple(gathered))))
                return
            except WireError:
                pass  # one of them cannot be encoded
        self._unwritten.extend(map(self._encoded, gathered))

    def _encoded(self, delivery: frames.Delivery) -> bytes:
        """The frame of a delivery. Instead of one that cannot be encoded, the client is told that it misses it."""
        try:
            return frames.encode(delivery)
        except WireError as error:
            self.counts["undeliverable"] += 1
            log.info("event %s cannot be delivered to a client: %s", delivery.event.id, error)
            return frames.encode(frames.MissedFrame(delivery.handle, {"undeliverable": 1}))

    def flush(self) -> None:
        """Write what was gathered in this turn of the event loop."""
        self._unwritten_bytes = 0
        self._close_batch()
        if self._unwritten:
            encoded = b"".join(self._unwritten)
            self._unwritten.clear()
            if self._transport is not None:
                self._transport.write(encoded)

    # ---------------------------------------------------------------- a client that does not read

    def resume(self) -> None:
        """Write what waits, as far as the client reads."""
        if self._transport is None:
            return
        self.stalled = False
        self.flush()
        for handle, count in sorted(self._dropped.items()):
            self._transport.write(frames.encode(frames.Dropped(handle, count)))
        self._dropped.clear()
        missed, self._missed = self._missed, {}
        for handle, counts in sorted(missed.items()):
            self._transport.write(frames.encode(frames.MissedFrame(handle, dict(counts))))
        while self._queue and not self.stalled and self._transport is not None:
            handle, size, what = self._queue.popleft()
            self.queued_bytes -= size
            if isinstance(what, tuple):
                effect, waited_ns = what[0], monotonic() - what[1]
                if effect.event.is_expired(effect.age_ns + waited_ns):
                    self._expired(handle, effect)
                    continue
                what = self._encoded(_delivery(handle, effect, waited_ns))
            self._transport.write(what)

    def _expired(self, handle: int, effect: Deliver) -> None:
        """A delivery waited here for longer than its event lives."""
        self.counts["expired"] += 1
        if effect.position:
            self._confirm(handle, (effect.position,))
        if self._transport is not None:
            self._transport.write(frames.encode(frames.MissedFrame(handle, {"expired": 1})))

    def _enqueue(self, handle: int, size: int, what: bytes | tuple[Deliver, Nanos]) -> None:
        self._queue.append((handle, size, what))
        self.queued_bytes += size

    def _drop_oldest(self) -> bool:
        """Drop the oldest delivery. Answers stay; they are few, since no requests are read now. So do deliveries of
        durable subscriptions: their windows bound them, and nobody would send them again to a client that stays."""
        for place, (handle, size, what) in enumerate(self._queue):
            if isinstance(what, tuple) and not what[0].position:
                del self._queue[place]
                self.queued_bytes -= size
                self._dropped[handle] += 1
                self.counts["dropped"] += 1
                return True
        return False


def _delivery(handle: int, effect: Deliver, waited_ns: Nanos) -> frames.Delivery:
    age = effect.age_ns + waited_ns
    late = effect.deadline_ns is not None and age > effect.deadline_ns
    event = effect.event
    if event.groups or event.previous:  # these are for peers, and may be long
        event = msgspec.structs.replace(event, groups=(), previous=())
    return frames.Delivery(handle, event, age, late, effect.position, effect.again, effect.retained)
