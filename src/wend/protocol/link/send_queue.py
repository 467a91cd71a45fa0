"""The send queue of one link: what waits for the congestion window, by deadline.

Packets that are due leave first, the most urgent one before others. A packet that would come too late even if it left
now does not leave: routing gets it back. Packets without a deadline get what is left, in turn by publisher, so that a
busy one does not push others aside. ACKs, hellos and control do not pass here.

While nothing waits, and the window is open, a packet passes at once, and only its size is counted.
"""

from bisect import bisect_right, insort
from collections import deque
from typing import Any, Final

from wend.model.choices import Congestion
from wend.model.events import PeerId
from wend.model.units import FOREVER, Nanos
from wend.protocol.link.congestion import LEAST_PACKETS, UNLIMITED, Aimd, Controller
from wend.protocol.link.copa import Copa

BURST_PACKETS: Final = 10
"""How many packets may leave at once after a pause."""
PROBES: Final = 2
"""How many packets may be in flight over a link that is down."""

CONTROLLERS: dict[Congestion, type[Controller]] = {"copa": Copa, "aimd": Aimd}

Waiting = Any
"""A packet that waits: its owner knows what it is."""


class LinkSender:
    """The congestion window of a link, and what waits for it."""

    __slots__ = (
        "_due", "_limit", "_number", "_offered", "_others", "_restarted", "_sent", "_timed_bytes", "_waited",
        "capacity", "controller", "flight_bytes", "newest_ns", "next_ns", "offered_rate", "price_ns", "queued_bytes",
        "stopped", "wait_ns", "waited", "wake_ns",
    )  # fmt: skip

    def __init__(self, controller: Controller, limit: int) -> None:
        """`limit`: how many bytes may wait."""
        self.controller = controller
        self._limit = limit
        self.flight_bytes = 0
        self.queued_bytes = 0
        self.next_ns: Nanos = 0
        """When the pace lets the next packet leave."""
        self.wake_ns: Nanos = FOREVER
        """When a timer will look at the queue; the owner of the timers sets it."""
        self.stopped = False
        """Whether the link is down: then only probes leave."""
        self.wait_ns: Nanos = 0
        """How long a packet that is due would wait here now."""
        self._due: list[tuple[Nanos, int, int, Waiting]] = []
        """Packets with a deadline: latest arrival at the neighbour, number, size and packet, most urgent first."""
        self._timed_bytes = 0
        self._others: dict[PeerId, deque[tuple[int, Waiting]]] = {}
        """Packets without one, by publisher; the first publisher is the next."""
        self._number = 0
        self.newest_ns: Nanos = 0
        """When the newest packet was sent that is acknowledged."""
        self.price_ns: Nanos = 0
        """What routing adds to the delay of the link, because it is full; `prices.py` sets it."""
        self.capacity = 0.0
        """Bytes per nanosecond that the link has carried while packets waited for it; 0 where none did."""
        self.offered_rate = 0.0
        """Bytes per nanosecond that routing wanted to send in the last period."""
        self.waited = False
        """Whether packets had to wait in that period."""
        self._offered = self._sent = self._waited = 0
        """Bytes in the current period."""
        self._restarted = False
        """Whether the link came back in this period: it starts slowly, and that says nothing about its capacity."""

    @property
    def is_crowded(self) -> bool:
        """Whether half of the room is taken, so publishers should pause."""
        return 2 * self.queued_bytes > self._limit

    @property
    def is_busy(self) -> bool:
        """Whether the application sends about as much as it may, so ACKs may be late because of queues."""
        return self.queued_bytes > 0 or 2 * self.flight_bytes >= self.controller.window

    def take(self, now: Nanos, size: int) -> bool:
        """Whether a packet may leave now. It counts as in flight then."""
        self._offered += size
        if self.queued_bytes or not self.is_open(now, size):
            self._waited += size
            return False
        self.leaves(now, size)
        return True

    def is_open(self, now: Nanos, size: int) -> bool:
        """Whether window and pace let a packet of this size leave."""
        flight = self.flight_bytes
        if self.stopped:
            return flight < PROBES * size
        if flight and flight + size > self.controller.window:
            return False
        return now >= self.next_ns

    def leaves(self, now: Nanos, size: int) -> None:
        controller = self.controller
        if not controller.segment:
            controller.first(size)
        self.flight_bytes += size
        self._sent += size
        if controller.pace:
            earliest = now - int(controller.pace * controller.segment * BURST_PACKETS)
            self.next_ns = max(self.next_ns, earliest) + int(controller.pace * size)

    def acked(self, now: Nanos, size: int, round_trip_ns: Nanos) -> None:
        """An ACK came for a packet in flight. `round_trip_ns` is 0 where a retransmission makes it ambiguous."""
        if self.is_busy:
            self.flight_bytes -= size
            self.controller.acked(now, size, round_trip_ns, False)
            return
        self.flight_bytes -= size
        if not 0 <= round_trip_ns - self.controller.least_ns <= self.controller.jitter_ns:
            self.controller.acked(now, size, round_trip_ns, True)  # else there is nothing to learn

    def late(self, now: Nanos, round_trip_ns: Nanos) -> None:
        """An ACK came for a packet that was given up: the queue is longer than was thought."""
        self.controller.acked(now, 0, round_trip_ns, True)

    def released(self, size: int) -> None:
        """Nobody waits for a packet in flight any more."""
        self.flight_bytes -= size

    def lost(self, now: Nanos, size: int) -> None:
        """No ACK came for a packet, though the neighbour is heard."""
        self.controller.lost(now, size)

    # ---------------------------------------------------------------- the queue

    def arrival_ns(self, now: Nanos) -> Nanos:
        """When a packet that leaves now arrives at the neighbour, at the latest."""
        controller = self.controller
        least = controller.least_ns
        return now + least // 2 + int(controller.srtt_ns - least + 4 * controller.rttvar_ns)

    def expected_ns(self, now: Nanos, due_ns: Nanos) -> Nanos:
        """When a packet with this deadline arrives, behind those that are more urgent."""
        ahead = bisect_right(self._due, (due_ns, self._number + 1))
        if not ahead:
            return self.arrival_ns(now)
        size = self._timed_bytes * ahead / len(self._due)
        return self.arrival_ns(now) + int(size / self.controller.rate)

    def push(self, what: Waiting, size: int, publisher: PeerId, due_ns: Nanos) -> bool:
        """Let a packet wait, with a deadline or `FOREVER`. False if there is no room."""
        if self.queued_bytes + size > self._limit:
            return False
        self._number = number = self._number + 1
        self.queued_bytes += size
        if due_ns < FOREVER:
            insort(self._due, (due_ns, number, size, what))
            self._timed_bytes += size
            self._estimate()
        else:
            self._others.setdefault(publisher, deque()).append((size, what))
        return True

    def hopeless(self, now: Nanos) -> Waiting | None:
        """Remove a packet that cannot be in time any more."""
        if not self._due or self._due[0][0] >= self.arrival_ns(now):
            return None
        return self._pop_due()

    def pop(self, now: Nanos) -> tuple[Waiting, int] | None:
        """Remove the next packet if it may leave now; with its size. The caller says that it `leaves`."""
        if self._due:
            size = self._due[0][2]
            return (self._pop_due(), size) if self.is_open(now, size) else None
        for publisher, waiting in self._others.items():
            size, what = waiting[0]
            if not self.is_open(now, size):
                return None
            waiting.popleft()
            self.queued_bytes -= size
            del self._others[publisher]
            if waiting:
                self._others[publisher] = waiting  # behind the others
            return what, size
        return None

    def waiting(self) -> list[Waiting]:
        """All packets that wait."""
        return [*(entry[3] for entry in self._due), *(what for queue in self._others.values() for _, what in queue)]

    def clear(self) -> list[Waiting]:
        """Remove all packets that wait."""
        found = self.waiting()
        self._due.clear()
        self._others.clear()
        self.queued_bytes = self._timed_bytes = self.wait_ns = 0
        return found

    # ---------------------------------------------------------------- load

    def end_period(self, period_ns: Nanos) -> None:
        """Measure load and capacity of the period that ends now."""
        self.waited = self._waited > 0
        self.offered_rate = self._offered / period_ns
        if 2 * self._waited > self._offered and not self._restarted:  # the link was busy all the time
            rate = self._sent / period_ns
            self.capacity = rate if not self.capacity else (self.capacity + rate) / 2
        self.capacity = max(self.capacity, self._sent / period_ns) if self.capacity else 0.0
        self._offered = self._sent = self._waited = 0
        self._restarted = False

    # ---------------------------------------------------------------- outages

    def stop(self) -> None:
        """The link is down."""
        self.stopped = True

    def restart(self, now: Nanos) -> None:
        """The link is up again. It starts slowly."""
        self.stopped = False
        self._restarted = True
        controller = self.controller
        if controller.segment:
            controller.restart(now)
            self.next_ns = now + int(controller.pace * controller.segment * (BURST_PACKETS - LEAST_PACKETS))

    def _pop_due(self) -> Waiting:
        _, _, size, what = self._due.pop(0)
        self._timed_bytes -= size
        self.queued_bytes -= size
        self._estimate()
        return what

    def _estimate(self) -> None:
        rate = self.controller.rate
        self.wait_ns = int(self._timed_bytes / rate) if self._timed_bytes and rate < UNLIMITED else 0
