"""Other traffic: transfers with TCP-like congestion control that share the queue of a link with peers' packets.

A flow always has data, and as many packets in flight as its window allows. An ACK comes one round trip after a packet
left the queue. The flow learns of a drop one measured round trip after it sent the packet, as the ACKs of later packets
would tell it. A window shrinks at most once for all packets that were in flight together.

Not simulated: timeouts, delayed ACKs, pacing, and anything on the flow's path beyond this link.
"""

from collections.abc import Callable
from math import cbrt
from typing import Literal

from wend.drivers.sim.managed_queue import ManagedQueue
from wend.drivers.sim.network import LEAVING, Agenda
from wend.model.events import PeerId
from wend.model.rates import BITS_PER_BYTE
from wend.model.units import SECOND, Nanos

FIRST_WINDOW = 10.0
MIN_WINDOW = 1.0
CUBIC_SCALE = 0.4
CUBIC_BETA = 0.7
"""RFC 9438: C, in packets/s^3, and the factor of a decrease."""


class RenoControl:
    """The window of RFC 5681, in packets: slow start, then one more in each round trip; half after a loss."""

    def __init__(self) -> None:
        self.window = FIRST_WINDOW
        self.threshold = float("inf")

    def on_ack(self, now: Nanos, rtt_ns: Nanos) -> None:
        self.window += 1.0 if self.window < self.threshold else self.growth_per_ack(now, rtt_ns)

    def growth_per_ack(self, now: Nanos, rtt_ns: Nanos) -> float:
        """How much one ACK adds after slow start."""
        return 1.0 / self.window

    def on_loss(self, now: Nanos) -> None:
        self.window = self.threshold = max(MIN_WINDOW, self.window / 2)


class CubicControl(RenoControl):
    """The window of RFC 9438: it grows with the cube of the time since it was as large as at the last loss."""

    def __init__(self) -> None:
        super().__init__()
        self._most = 0.0
        self._since: Nanos = 0
        self._friendly = 0.0
        """The window that RenoControl would have."""

    def growth_per_ack(self, now: Nanos, rtt_ns: Nanos) -> float:
        turn_s = cbrt(max(0.0, self._most - self.threshold) / CUBIC_SCALE)
        ahead_s = (now - self._since + rtt_ns) / SECOND
        target = self._most + CUBIC_SCALE * (ahead_s - turn_s) ** 3
        self._friendly += 3 * (1 - CUBIC_BETA) / (1 + CUBIC_BETA) / self.window
        if self._friendly > target:
            return max(0.0, self._friendly - self.window)
        return (min(max(target, self.window), 1.5 * self.window) - self.window) / self.window

    def on_loss(self, now: Nanos) -> None:
        shrinking = self.window < self._most
        self._most = self.window * (1 + CUBIC_BETA) / 2 if shrinking else self.window
        self.window = self.threshold = self._friendly = max(MIN_WINDOW, CUBIC_BETA * self.window)
        self._since = now


CONTROLS: dict[Literal["cubic", "reno"], Callable[[], RenoControl]] = {"cubic": CubicControl, "reno": RenoControl}


class BackgroundPacket:
    """One packet of a background flow."""

    __slots__ = ("bits", "entered_ns", "flow", "parts")

    def __init__(self, flow: "BackgroundFlow", bits: int) -> None:
        self.flow = flow
        self.bits = bits
        self.parts = 1
        self.entered_ns = 0

    def on_served(self, now: Nanos) -> None:
        self.flow.on_served(now, self)

    def on_dropped(self, now: Nanos, reason: str) -> None:
        self.flow.on_dropped(now, self)

    def on_lost(self, now: Nanos) -> None:
        self.flow.on_dropped(now, self)

    def is_expired(self, now: Nanos) -> bool:
        return False


class FlowFeedback:
    """Tells a flow whether a packet arrived."""

    __slots__ = ("arrived", "packet")

    def __init__(self, packet: BackgroundPacket, arrived: bool) -> None:
        self.packet = packet
        self.arrived = arrived

    def run(self, now: Nanos) -> None:
        self.packet.flow.on_feedback(now, self.packet, self.arrived)


class FlowStart:
    """Lets a flow begin."""

    __slots__ = ("flow",)

    def __init__(self, flow: "BackgroundFlow") -> None:
        self.flow = flow

    def run(self, now: Nanos) -> None:
        self.flow.send(now)


class BackgroundFlow:
    """A transfer that never ends, through one queue."""

    def __init__(
        self,
        agenda: Agenda,
        peer: PeerId,
        queue: ManagedQueue,
        rtt_ns: Nanos,
        control: RenoControl,
        packet_bytes: int,
        up: Callable[[Nanos], bool],
    ) -> None:
        """`peer`: under whose name the agenda has its packets. `up`: whether the link works."""
        self.delivered = 0
        """Packets that arrived."""
        self.lost = 0
        self._agenda = agenda
        self._peer = peer
        self._queue = queue
        self._rtt_ns = self._measured_ns = rtt_ns
        self._control = control
        self._bits = BITS_PER_BYTE * packet_bytes
        self._up = up
        self._in_flight = 0
        self._reduced_ns: Nanos = -1
        """When the window shrank last."""

    def begin(self, now: Nanos) -> None:
        self._agenda.push(now, LEAVING, self._peer, FlowStart(self))

    def send(self, now: Nanos) -> None:
        """Send as much as the window allows."""
        while self._in_flight < int(self._control.window):
            self._in_flight += 1
            self._queue.offer(now, BackgroundPacket(self, self._bits))

    def on_served(self, now: Nanos, packet: BackgroundPacket) -> None:
        """A packet is on the link."""
        if self._up(now):
            self._agenda.push(now + self._rtt_ns, LEAVING, self._peer, FlowFeedback(packet, True))
        else:
            self.on_dropped(now, packet)

    def on_dropped(self, now: Nanos, packet: BackgroundPacket) -> None:
        known = max(now, packet.entered_ns + self._measured_ns)
        self._agenda.push(known, LEAVING, self._peer, FlowFeedback(packet, False))

    def on_feedback(self, now: Nanos, packet: BackgroundPacket, arrived: bool) -> None:
        self._in_flight -= 1
        if arrived:
            self.delivered += 1
            self._measured_ns = now - packet.entered_ns
            self._control.on_ack(now, self._measured_ns)
        else:
            self.lost += 1
            if packet.entered_ns > self._reduced_ns:
                self._reduced_ns = now
                self._control.on_loss(now)
        self.send(now)
