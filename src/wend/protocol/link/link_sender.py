"""The sender of one link: its congestion window, and the queue of packets that wait for the window.

Packets with a deadline are sent first, the most urgent before the others. A packet that would arrive too late even if
sent now goes back to routing. Packets without a deadline share the remaining capacity in round robin by publisher, so
that a busy publisher does not starve others. ACKs, hellos and control bypass the queue.

While no packet waits and the window is open, a packet is sent at once, and only its size is counted.
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
"""How many packets may be sent at once after a pause."""
MEAN_PERIODS: Final = 2
"""The number of periods over which the load of a link is smoothed."""
MEASURED: Final = 3
"""ACKs give the capacity of a link if they span at least 1 / this of a period."""
PROBES: Final = 2
"""How many packets may be in flight over a link that is down."""
PROBE_NS: Final = 320 * MS
"""The least time between two probes: hellos probe the link more often."""

CONTROLLERS: dict[Congestion, type[Controller]] = {"copa": Copa, "aimd": Aimd}

Waiting = Any
"""A waiting packet, of a type that only its owner knows."""


class LinkSender:
    """The congestion window of a link, and the packets waiting for it."""

    __slots__ = (
        "_carried", "_due", "_limit", "_number", "_offered", "_others", "_periods", "_probe_ns", "_restarted",
        "_since_ns", "_timed_bytes", "_until_ns", "_waited", "_wake_ns",
        "capacity", "controller", "flight_bytes", "load", "newest_ns", "next_ns", "price_ns", "queued_bytes", "slow_ns",
        "stopped", "wait_ns", "waited",
    )  # fmt: skip

    def __init__(self, controller: Controller, limit: int) -> None:
        """`limit`: the most bytes that may wait."""
        self.controller = controller
        self._limit = limit
        self.flight_bytes = 0
        self.queued_bytes = 0
        self.next_ns: Nanos = 0
        """When the pace allows the next packet."""
        self._wake_ns: Nanos = FOREVER
        """When a timer will check the queue."""
        self.slow_ns: Nanos = 0
        """The longest round trip for which the silence announced by hellos allows."""
        self.stopped = False
        """Whether the link is down: then only probes are sent."""
        self._probe_ns: Nanos = 0
        """When the next probe may be sent."""
        self.wait_ns: Nanos = 0
        """How long a packet with a deadline would wait here now."""
        self._due: list[tuple[Nanos, int, int, Waiting]] = []
        """Packets with a deadline: latest arrival at the neighbour, number, size and packet, most urgent first."""
        self._timed_bytes = 0
        self._others: dict[PeerId, deque[tuple[int, Waiting]]] = {}
        """Packets without a deadline, by publisher; the first publisher is served next."""
        self._number = 0
        self.newest_ns: Nanos = 0
        """When the newest acknowledged packet was sent."""
        self.price_ns: Nanos = 0
        """The cost that routing adds to the delay of a congested link."""
        self.capacity = 0.0
        """Bytes per nanosecond that the link carried while packets waited for it; 0 if none waited."""
        self.load = 0.0
        """The load that routing recently offered, as a share of the capacity; 0 if the capacity is unknown."""
        self.waited = False
        """Whether packets had to wait in the last period."""
        self._offered = self._waited = 0
        """Bytes offered, and bytes that had to wait, in the current period."""
        self._periods = 0
        """The number of periods of which `load` is the mean."""
        self._carried = -1
        """Bytes acknowledged in the current period after its first ACK; -1 before that ACK."""
        self._since_ns = self._until_ns = 0
        """When the first and the last ACK of the period arrived."""
        self._restarted = False
        """Whether the link returned in this period: its slow start must not count as its capacity."""

    @property
    def is_crowded(self) -> bool:
        """Whether the queue is half full, so that publishers should pause."""
        return 2 * self.queued_bytes > self._limit

    @property
    def is_busy(self) -> bool:
        """Whether the application uses most of the window, so that ACKs may be late because of queues."""
        return self.queued_bytes > 0 or 2 * self.flight_bytes >= self.controller.window

    def try_send(self, now: Nanos, size: int, late: bool = False) -> bool:
        """Count a packet as in flight if the window allows it now. Return whether it does. A late packet uses only
        spare capacity, so it does not count as load."""
        if not late:
            self._offered += size
        if self.queued_bytes or not self.is_open(now, size):
            if not late:
                self._waited += size
            return False
        self.count_sent(now, size)
        return True

    def is_open(self, now: Nanos, size: int) -> bool:
        """Whether window and pace allow a packet of this size."""
        flight = self.flight_bytes
        if self.stopped:
            return flight < PROBES * size and now >= self._probe_ns
        if flight and flight + size > self.controller.window:
            return False
        return now >= self.next_ns

    def count_sent(self, now: Nanos, size: int) -> None:
        controller = self.controller
        if not controller.segment:
            controller.start(size)
        self.flight_bytes += size
        if self.stopped:
            self._probe_ns = now + PROBE_NS
        if controller.pace:
            earliest = now - int(controller.pace * controller.segment * BURST_PACKETS)
            self.next_ns = max(self.next_ns, earliest) + int(controller.pace * size)

    def on_ack(self, now: Nanos, size: int, round_trip_ns: Nanos, first_ns: Nanos = 0) -> None:
        """Handle the ACK of a packet that was first sent at `first_ns`. `round_trip_ns` is 0 if a retransmission makes
        it ambiguous."""
        self.newest_ns = max(self.newest_ns, first_ns)
        if self._carried < 0:
            self._carried, self._since_ns = 0, now
        else:
            self._carried += size
        self._until_ns = now
        controller = self.controller
        # a window that is not fully used does not grow: a burst would fill it and then wait in the network
        if self.queued_bytes or self.flight_bytes + 2 * size > controller.window:
            self.flight_bytes -= size
            controller.on_ack(now, size, round_trip_ns, False)
            return
        self.flight_bytes -= size
        if not 0 <= round_trip_ns - controller.least_ns <= controller.jitter_ns:
            controller.on_ack(now, size, round_trip_ns, True)  # else the ACK gives no information

    def on_late_ack(self, now: Nanos, round_trip_ns: Nanos) -> None:
        """Handle the ACK of a packet that was given up: the queue is longer than assumed."""
        self.controller.on_ack(now, 0, round_trip_ns, True)

    def release(self, size: int) -> None:
        """Stop counting a packet as in flight."""
        self.flight_bytes -= size

    def on_loss(self, now: Nanos, size: int) -> None:
        """Handle the loss of a packet to a neighbour that is heard."""
        self.controller.on_loss(now, size)

    # ---------------------------------------------------------------- the queue

    def arrival_ns(self, now: Nanos) -> Nanos:
        """When a packet sent now arrives at the neighbour; it rarely arrives later."""
        controller = self.controller
        least = controller.least_ns
        return now + least // 2 + int(controller.srtt_ns - least + controller.rttvar_ns)

    def expected_ns(self, now: Nanos, due_ns: Nanos) -> Nanos:
        """When a packet with this deadline would arrive, behind the more urgent ones."""
        ahead = bisect_right(self._due, (due_ns, self._number + 1))
        if not ahead:
            return self.arrival_ns(now)
        size = self._timed_bytes * ahead / len(self._due)
        return self.arrival_ns(now) + int(size / self.controller.rate)

    def push(self, what: Waiting, size: int, publisher: PeerId, due_ns: Nanos) -> bool:
        """Queue a packet, with a deadline or `FOREVER`. Return False if the queue is full."""
        if self.queued_bytes + size > self._limit:
            return False
        self._number = number = self._number + 1
        self.queued_bytes += size
        if due_ns < FOREVER:
            insort(self._due, (due_ns, number, size, what))
            self._timed_bytes += size
            self._update_wait()
        else:
            self._others.setdefault(publisher, deque()).append((size, what))
        return True

    def pop_late(self, now: Nanos) -> Waiting | None:
        """Remove and return a packet that would arrive too late, if there is one."""
        if not self._due or self._due[0][0] >= self.arrival_ns(now):
            return None
        return self._pop_most_urgent()

    def pop(self, now: Nanos) -> tuple[Waiting, int] | None:
        """Remove the next packet if it may be sent now, and return it with its size. The caller calls `count_sent`."""
        if self._due:
            size = self._due[0][2]
            return (self._pop_most_urgent(), size) if self.is_open(now, size) else None
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
        """All waiting packets."""
        return [*(entry[3] for entry in self._due), *(what for queue in self._others.values() for _, what in queue)]

    def clear(self) -> list[Waiting]:
        """Remove and return all waiting packets."""
        packets = self.waiting()
        self._due.clear()
        self._others.clear()
        self.queued_bytes = self._timed_bytes = self.wait_ns = 0
        return packets

    def set_wake_time(self, time: Nanos) -> bool:
        """Set when a timer checks the queue. Return False if another timer will check it earlier."""
        if time >= self._wake_ns:
            return False
        self._wake_ns = time
        return True

    def on_wake(self) -> None:
        """Forget the timer, which has fired."""
        self._wake_ns = FOREVER

    def expect_round_trips(self, late_ns: Nanos) -> None:
        """Set how late packets may be before this peer has to announce longer silences."""
        self.slow_ns = self.controller.least_ns + late_ns

    # ---------------------------------------------------------------- load

    def set_price(self, price_ns: Nanos) -> None:
        self.price_ns = price_ns

    def begin_periods(self) -> None:
        """Start to measure the load."""
        self._offered = self._waited = self._periods = 0
        self._carried = -1

    def end_period(self, period_ns: Nanos) -> None:
        """Measure load and capacity of the period that ends now."""
        self.waited = self._waited > 0
        span = self._until_ns - self._since_ns
        if self._carried > 0 and MEASURED * span > period_ns:
            rate = self._carried / span
            if 2 * self._waited > self._offered and not self._restarted:  # the link was always busy
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
        """Stop sending all but probes, since the link is down."""
        self.stopped = True
        self._probe_ns = 0

    def restart(self, now: Nanos) -> None:
        """Restart with a small window, since the link is up again."""
        self.stopped = False
        self._restarted = True
        controller = self.controller
        if controller.segment:
            controller.restart(now)
            self.next_ns = now + int(controller.pace * controller.segment * (BURST_PACKETS - MIN_PACKETS))

    def _pop_most_urgent(self) -> Waiting:
        _, _, size, what = self._due.pop(0)
        self._timed_bytes -= size
        self.queued_bytes -= size
        self._update_wait()
        return what

    def _update_wait(self) -> None:
        rate = self.controller.rate
        self.wait_ns = int(self._timed_bytes / rate) if self._timed_bytes and rate < UNLIMITED else 0
