"""Senders that share one bottleneck: a FIFO queue in front of a link of limited rate. No peer, no simulator."""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

from wend.drivers.sim.background import CubicControl
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.link.congestion import Controller
from wend.protocol.link.link_sender import LinkSender

SIZE = 100
JITTER_NS = 5 * MS


class TcpSender:
    """A flow with the window of TCP cubic, in place of a link's sender."""

    next_ns: Nanos = 0

    def __init__(self) -> None:
        self._control = CubicControl()
        self._in_flight = 0
        self._reduced_ns: Nanos = -SECOND

    def is_open(self, now: Nanos, size: int) -> bool:
        return self._in_flight < int(self._control.window)

    def count_sent(self, now: Nanos, size: int) -> None:
        self._in_flight += 1

    def on_ack(self, now: Nanos, size: int, round_trip_ns: Nanos) -> None:
        self._in_flight -= 1
        self._round_trip_ns = round_trip_ns
        self._control.on_ack(now, round_trip_ns)

    def release(self, size: int) -> None:
        self._in_flight -= 1

    def on_loss(self, now: Nanos, size: int) -> None:
        if now - self._reduced_ns > self._round_trip_ns:  # losses of one round trip count once
            self._reduced_ns = now
            self._control.on_loss(now)


class Bottleneck:
    """Every sender always has something to send. It starts one second after the one before."""

    def __init__(
        self,
        make: Callable[[Nanos], Controller],
        *,
        senders: int = 1,
        rate: int = 200,
        round_trip_ms: int = 40,
        room: int = 64,
        loss: float = 0.0,
        size: int = SIZE,
        tcp_at_s: int | None = None,
    ) -> None:
        """`tcp_at_s`: when a TCP flow begins, as the last sender."""
        self.senders: list[LinkSender] = [LinkSender(make(JITTER_NS), 1 << 22) for _ in range(senders)]
        self._all: list[LinkSender | TcpSender] = [*self.senders]
        self.queues_ms: list[float] = []
        """The queueing delay that each packet met."""
        self.served = [0] * senders
        self._service_ns = SECOND // rate
        self._base_ns = round_trip_ms * MS
        self._room = room
        self._loss = loss
        self._random = Random(1)
        self._free_ns = 0
        self._count = 0
        self._agenda: list[tuple[Nanos, int, int, Nanos | None, bool]] = []
        self._size = size
        self._tcp_ended = False
        for number in range(senders):
            self._at(number * SECOND, number, None)
        if tcp_at_s is not None:
            self._all.append(TcpSender())
            self.served.append(0)
            self._at(tcp_at_s * SECOND, senders, None)

    def blocked(self, seconds: float) -> None:
        """Let the link stand still for so long, so that the queue grows."""
        self._free_ns += int(seconds * SECOND)

    def end_tcp(self) -> None:
        self._tcp_ended = True

    def run(self, until_s: int) -> None:
        while self._agenda[0][0] < until_s * SECOND:
            now, _, number, sent_ns, arrived = heappop(self._agenda)
            sender, size = self._all[number], self._size
            if sent_ns is not None and arrived:
                self.served[number] += 1
                sender.on_ack(now, size, now - sent_ns)
            elif sent_ns is not None:
                sender.release(size)
                sender.on_loss(now, size)
            while not (self._tcp_ended and type(sender) is TcpSender) and sender.is_open(now, size):
                sender.count_sent(now, size)
                self._send(now, number)
            if now < sender.next_ns:
                self._at(sender.next_ns, number, None)

    def _send(self, now: Nanos, number: int) -> None:
        waits = max(0, self._free_ns - now)
        if waits > self._room * self._service_ns or self._random.random() < self._loss:
            self._at(now + 4 * self._base_ns, number, now, arrived=False)
            return
        self.queues_ms.append(waits / MS)
        self._free_ns = max(self._free_ns, now) + self._service_ns
        self._at(self._free_ns + self._base_ns, number, now)

    def _at(self, time: Nanos, number: int, sent_ns: Nanos | None, arrived: bool = True) -> None:
        self._count += 1
        heappush(self._agenda, (time, self._count, number, sent_ns, arrived))
