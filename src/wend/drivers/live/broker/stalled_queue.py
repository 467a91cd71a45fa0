"""The queue of a client that does not read: answers, and a bounded number of deliveries.

A full queue drops the oldest deliveries, and tells the client their number once it reads again. Answers are never
dropped. Meanwhile the queue adds up what subscriptions miss.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator

from wend.drivers.live import frames
from wend.drivers.live.clock import monotonic
from wend.drivers.live.transport import wire
from wend.model.events import event_bytes
from wend.model.units import Nanos
from wend.protocol.ports import Deliver

Encode = Callable[[int, Deliver, Nanos], bytes]
"""Makes a frame from a handle, a delivery, and the time that the delivery has waited."""


class StalledQueue:
    """The frames and deliveries that wait for one client."""

    def __init__(
        self,
        counts: Counter[str],
        most_msgs: int,
        most_bytes: int,
        encode: Encode,
        confirm: Callable[[int, tuple[int, ...]], None],
    ) -> None:
        """`confirm` takes the handle of a durable subscription and positions of events that expired in the queue."""
        self.size_bytes = 0
        self.counts = counts
        self._most_msgs = most_msgs
        self._most_bytes = most_bytes
        self._encode = encode
        self._confirm = confirm
        self._items: deque[tuple[int, int, bytes | tuple[Deliver, Nanos]]] = deque()
        """A handle and a size, with the frame of an answer (handle 0), or with a delivery and the time when it came. A
        delivery is encoded when it is written, because its age grows until then."""
        self._dropped: Counter[int] = Counter()
        self._missed: dict[int, Counter[str]] = {}
        """By handle: the events that a subscription missed since the client stopped reading, by reason."""

    def __bool__(self) -> bool:
        return bool(self._items)

    def add_answer(self, frame: bytes) -> None:
        self._append(0, len(frame), frame)

    def add_delivery(self, handle: int, effect: Deliver) -> None:
        self._append(handle, event_bytes(effect.event), (effect, monotonic()))
        while len(self._items) > self._most_msgs or self.size_bytes > self._most_bytes:
            if not self._drop_oldest():
                return

    def add_missed(self, handle: int, counts: dict[str, int]) -> None:
        self._missed.setdefault(handle, Counter()).update(counts)

    def forget_subscription(self, handle: int) -> None:
        """Drop the reports about a subscription that has ended."""
        self._dropped.pop(handle, None)
        self._missed.pop(handle, None)

    def clear(self) -> None:
        self._missed.clear()
        self._items.clear()

    def drain(self) -> Iterator[bytes]:
        """Yield encoded frames: first reports of dropped and missed events (empty if there are none), then the queue,
        oldest first. Frames that the caller does not take stay in the queue."""
        dropped, self._dropped = self._dropped, Counter()
        missed, self._missed = self._missed, {}
        reports: list[frames.ToClient] = [frames.Dropped(handle, count) for handle, count in sorted(dropped.items())]
        reports += [frames.MissedFrame(handle, dict(counts)) for handle, counts in sorted(missed.items())]
        yield b"".join(map(wire.encode_frame, reports))
        while self._items:
            handle, size, item = self._items.popleft()
            self.size_bytes -= size
            if isinstance(item, bytes):
                yield item
                continue
            effect, waited_ns = item[0], monotonic() - item[1]
            if effect.event.is_expired(effect.age_ns + waited_ns):
                yield self._report_expired(handle, effect)
            else:
                yield self._encode(handle, effect, waited_ns)

    def _report_expired(self, handle: int, effect: Deliver) -> bytes:
        """Report a delivery whose event expired in the queue."""
        self.counts["expired"] += 1
        if effect.position:
            self._confirm(handle, (effect.position,))
        return wire.encode_frame(frames.MissedFrame(handle, {"expired": 1}))

    def _append(self, handle: int, size: int, item: bytes | tuple[Deliver, Nanos]) -> None:
        self._items.append((handle, size, item))
        self.size_bytes += size

    def _drop_oldest(self) -> bool:
        """Drop the oldest delivery, if there is one. Answers stay: they are few, because no requests are read now.
        Deliveries of durable subscriptions stay, too: windows bound them, and nobody would send them again to a client
        that stays connected."""
        for place, (handle, size, item) in enumerate(self._items):
            if isinstance(item, tuple) and not item[0].position:
                del self._items[place]
                self.size_bytes -= size
                self._dropped[handle] += 1
                self.counts["dropped"] += 1
                return True
        return False
