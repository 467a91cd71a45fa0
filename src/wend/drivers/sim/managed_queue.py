"""A queue that holds its packets: for CoDel, which may drop a packet when its turn comes, and for background flows.

The plain queue (`capacity.py`) computes when a packet leaves as soon as it enters; this one serves one packet after the
other. A packet takes 1/capacity of a message or the time of its bits, whichever is longer.
"""

from collections import deque
from math import inf
from typing import Protocol

from wend.drivers.sim.codel import CodelControl
from wend.drivers.sim.drop_ledger import EXPIRED, QUEUE_FULL, WAITED
from wend.drivers.sim.network import LEAVING, Agenda
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos


class TimedAction(Protocol):
    """An entry of the agenda that concerns a queue or a background flow, not a peer."""

    def run(self, now: Nanos) -> None: ...


class WaitingPacket(Protocol):
    """A packet in a managed queue."""

    entered_ns: Nanos
    parts: int
    """The number of fragments of its message."""
    bits: int

    def on_served(self, now: Nanos) -> None:
        """The packet leaves the queue."""

    def on_dropped(self, now: Nanos, reason: str) -> None:
        """The queue drops the packet."""

    def on_lost(self, now: Nanos) -> None:
        """The packet is lost with its queue."""

    def is_expired(self, now: Nanos) -> bool:
        """Whether the event of the packet has expired."""


class ServiceEnd:
    """Lets a packet leave its queue, and the next one be served."""

    __slots__ = ("generation", "packet", "queue")

    def __init__(self, queue: "ManagedQueue", generation: int, packet: WaitingPacket) -> None:
        self.queue = queue
        self.generation = generation
        self.packet = packet

    def run(self, now: Nanos) -> None:
        if self.generation == self.queue.generation:
            self.queue.serve_next(now)
            self.packet.on_served(now)


class ManagedQueue:
    """A bounded queue in front of one direction of a link, with drop-tail or CoDel."""

    def __init__(self, agenda: Agenda, peer: PeerId, msgs: float, bps: float, queue_msgs: int, codel: bool) -> None:
        """`peer`: under whose name the agenda has its packets."""
        self._agenda = agenda
        self._peer = peer
        self._per_msg = 0 if msgs == inf else int(SECOND / msgs)
        self._bps = bps
        self._room = queue_msgs
        self._waiting: deque[WaitingPacket] = deque()
        self._serving: WaitingPacket | None = None
        self._codel = CodelControl(self._per_msg) if codel else None
        self.generation = 0
        """Counts the times at which all packets were lost."""

    def __len__(self) -> int:
        """The packets in the queue, with the one that is served."""
        return len(self._waiting) + (self._serving is not None)

    @property
    def wait_ns(self) -> Nanos:
        """How long a new packet would wait if the queue drops no packet. A packet in service counts in full."""
        return sum(map(self._service_ns, self._waiting)) + (self._service_ns(self._serving) if self._serving else 0)

    def offer(self, now: Nanos, packet: WaitingPacket) -> None:
        """Add a packet, or drop it if the queue is full."""
        packet.entered_ns = now
        if self._serving is None:
            self._serve(now, packet)
        elif len(self._waiting) >= self._room:
            packet.on_dropped(now, QUEUE_FULL)
        else:
            self._waiting.append(packet)

    def serve_next(self, now: Nanos) -> None:
        """Start to serve the next packet that has not expired, because the previous one has left."""
        self._serving = None
        dropped: list[tuple[WaitingPacket, str]] = []
        while self._waiting and self._serving is None:
            packet, late = self._dequeue(now)
            dropped += [(each, WAITED) for each in late]
            if packet is None:
                continue
            if packet.is_expired(now):
                dropped.append((packet, EXPIRED))
            else:
                self._serve(now, packet)
        for each, reason in dropped:
            each.on_dropped(now, reason)

    def clear(self, now: Nanos) -> None:
        """Lose all packets, with the one that is served."""
        self.generation += 1
        lost = [*([] if self._serving is None else [self._serving]), *self._waiting]
        self._serving = None
        self._waiting.clear()
        for packet in lost:
            packet.on_lost(now)

    def _dequeue(self, now: Nanos) -> tuple[WaitingPacket | None, list[WaitingPacket]]:
        if self._codel is None:
            return self._waiting.popleft(), []
        return self._codel.dequeue(now, self._waiting)

    def _serve(self, now: Nanos, packet: WaitingPacket) -> None:
        self._serving = packet
        leaving = ServiceEnd(self, self.generation, packet)
        self._agenda.push(now + self._service_ns(packet), LEAVING, self._peer, leaving)

    def _service_ns(self, packet: WaitingPacket) -> Nanos:
        return max(self._per_msg // packet.parts, int(packet.bits * SECOND / self._bps))
