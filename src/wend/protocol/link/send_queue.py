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
from wend.model.units import FOREVER, MS, Nanos
from wend.protocol.link.congestion import MIN_PACKETS, UNLIMITED, Aimd, Controller
from wend.protocol.link.copa import Copa

BURST_PACKETS: Final = 10
"""How many packets may leave at once after a pause."""
MEAN_PERIODS: Final = 2
"""Over how many periods the load of a link is smoothed."""
MEASURED: Final = 3
"""ACKs tell the capacity of a link if they come for one part in so many of a period, at least."""
PROBES: Final = 2
"""How many packets may be in flight over a link that is down."""
PROBE_NS: Final = 320 * MS
"""The least time between two of them: hellos probe the link more often."""

CONTROLLERS: dict[Congestion, type[Controller]] = {"copa": Copa, "aimd": Aimd}

Waiting = Any
"""A packet that waits: its owner knows what it is."""


class LinkSender:
    """The congestion window of a link, and what waits for it."""

    __slots__ = (
        "_carried", "_due", "_limit", "_number", "_offered", "_others", "_periods", "_probe_ns", "_restarted",
        "_since_ns", "_timed_bytes", "_until_ns", "_waited", "_wake_ns",
        "capacity", "controller", "flight_bytes", "load", "newest_ns", "next_ns", "price_ns", "queued_bytes", "slow_ns",
        "stopped", "wait_ns", "waited",
    )  # fmt: skip

    def __init__(self, controller: Controller, limit: int) -> None:
        """`limit`: how many bytes may wait."""
        self.controller = controller
        self._limit = limit
        self.flight_bytes = 0
        self.queued_bytes = 0
        self.next_ns: Nanos = 0
        """When the pace lets the next packet leave."""
        self._wake_ns: Nanos = FOREVER
        """When a timer will look at the queue."""
        self.slow_ns: Nanos = 0
        """A longer round trip is later than the silence that hellos announce allows for."""
        self.stopped = False
        """Whether the link is down: then only probes leave."""
        self._probe_ns: Nanos = 0
        """When the next probe may."""
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
        """What routing adds to the delay of the link, because it is full."""
        self.capacity = 0.0
        """Bytes per nanosecond that the link has carried while packets waited for it; 0 if none did."""
        self.load = 0.0
        """What routing wanted to send lately, as a share of the capacity; 0 if that is unknown."""
        self.waited = False
        """Whether packets had to wait in that period."""
        self._offered = self._waited = 0
        """Bytes in the current period."""
        self._periods = 0
        """Those of which `load` is the mean."""
        self._carried = -1
        """Bytes that were acknowledged in the current period after the first ACK; -1 before it."""
        self._since_ns = self._until_ns = 0
        """When the first and the last ACK of the period came."""
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

    def take(self, now: Nanos, size: int, late: bool = False) -> bool:
        """Whether a packet may leave now. It counts as in flight then. One that is late takes only room that is left,
        and so is no load."""
        if not late:
            self._offered += size
        if self.queued_bytes or not self.is_open(now, size):
            if not late:
                self._waited += size
            return False
        self.leaves(now, size)
        return True

    def is_open(self, now: Nanos, size: int) -> bool:
        """Whether window and pace let a packet of this size leave."""
        flight = self.flight_bytes
        if self.stopped:
            return flight < PROBES * size and now >= self._probe_ns
        if flight and flight + size > self.controller.window:
            return False
        return now >= self.next_ns

    def leaves(self, now: Nanos, size: int) -> None:
        controller = self.controller
        if not controller.segment:
            controller.first(size)
        self.flight_bytes += size
        if self.stopped:
            self._probe_ns = now + PROBE_NS
        if controller.pace:
            earliest = now - int(controller.pace * controller.segment * BURST_PACKETS)
            self.next_ns = max(self.next_ns, earliest) + int(controller.pace * size)

    def acked(self, now: Nanos, size: int, round_trip_ns: Nanos, first_ns: Nanos = 0) -> None:
        """An ACK came for a packet in flight that was first sent at `first_ns`. `round_trip_ns` is 0 if a
        retransmission makes it ambiguous."""
        self.newest_ns = max(self.newest_ns, first_ns)
        if self._carried < 0:
            self._carried, self._since_ns = 0, now
        else:
            self._carried += size
        self._until_ns = now
        controller = self.controller
        # a window that is not used up does not grow: a burst would fill all of it, and wait in the network
        if self.queued_bytes or self.flight_bytes + 2 * size > controller.window:
            self.flight_bytes -= size
            controller.acked(now, size, round_trip_ns, False)
            return
        self.flight_bytes -= size
        if not 0 <= round_trip_ns - controller.least_ns <= controller.jitter_ns:
            controller.acked(now, size, round_trip_ns, True)  # else there is nothing to learn

    def late(self, now: Nanos, round_trip_ns: Nanos) -> None:
        """An ACK came for a packet that was given up: the queue is longer than was thought."""
        self.controller.acked(now, 0, round_trip_ns, True)

    def released(self, size: int) -> None:
        """A packet in flight is no longer awaited."""
        self.flight_bytes -= size

    def lost(self, now: Nanos, size: int) -> None:
        """No ACK came for a packet, though the neighbour is heard."""
        self.controller.lost(now, size)

    # ---------------------------------------------------------------- the queue

    def arrival_ns(self, now: Nanos) -> Nanos:
        """When a packet that leaves now arrives at the neighbour, and not often later."""
        controller = self.controller
        least = controller.least_ns
        return now + least // 2 + int(controller.srtt_ns - least + controller.rttvar_ns)

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
        """Remove a packet that is too late."""
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

    def wakes_sooner(self, time: Nanos) -> bool:
        """A timer has to look at the queue at this time. False if another one will look earlier."""
        if time >= self._wake_ns:
            return False
        self._wake_ns = time
        return True

    def woken(self) -> None:
        """The timer looks at the queue."""
        self._wake_ns = FOREVER

    def expect_round_trips(self, late_ns: Nanos) -> None:
        """Packets may be late by so much before this peer has to announce longer silences."""
        self.slow_ns = self.controller.least_ns + late_ns

    # ---------------------------------------------------------------- load

    def set_price(self, price_ns: Nanos) -> None:
        self.price_ns = price_ns

    def begin_periods(self) -> None:
        """Measure from now on."""
        self._offered = self._waited = self._periods = 0
        self._carried = -1

    def end_period(self, period_ns: Nanos) -> None:
        """Measure load and capacity of the period that ends now."""
        self.waited = self._waited > 0
        span = self._until_ns - self._since_ns
        if self._carried > 0 and MEASURED * span > period_ns:
            rate = self._carried / span
            if 2 * self._waited > self._offered and not self._restarted:  # the link was busy all the time
                self.capacity = rate if not self.capacity else (self.capacity + rate) / 2
            elif self.capacity:
                self.capacity = max(self.capacity, self._carried / period_ns)
        if self.capacity:
            self._periods += self._periods < MEAN_PERIODS
            self.load += (self._offered / period_ns / self.capacity - self.load) / self._periods
        self._offered = self._waited = 0
        self._carried = -1
        self._restarted = False

    # ---------------------------------------------------------------- outages

    def stop(self) -> None:
        """The link is down."""
        self.stopped = True
        self._probe_ns = 0

    def restart(self, now: Nanos) -> None:
        """The link is up again. It starts slowly."""
        self.stopped = False
        self._restarted = True
        controller = self.controller
        if controller.segment:
            controller.restart(now)
            self.next_ns = now + int(controller.pace * controller.segment * (BURST_PACKETS - MIN_PACKETS))

    def _pop_due(self) -> Waiting:
        _, _, size, what = self._due.pop(0)
        self._timed_bytes -= size
        self.queued_bytes -= size
        self._estimate()
        return what

    def _estimate(self) -> None:
        rate = self.controller.rate
        self.wait_ns = int(self._timed_bytes / rate) if self._timed_bytes and rate < UNLIMITED else 0
