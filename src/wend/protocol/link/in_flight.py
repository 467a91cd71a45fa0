"""The packets of a peer that are not acknowledged yet: their numbers, attempts and timers."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import msgspec

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.link.event_fragments import FragmentInFlight
from wend.protocol.messages import TX_SHIFT, Slot
from wend.protocol.plugins import Forward
from wend.protocol.timers import Effects, Timers


class OutgoingControl(msgspec.Struct, frozen=True, gc=False):
    """A control message of a plug-in to a neighbour. A newer one of the same slot replaces it."""

    peer: PeerId
    plugin: str
    slot: Slot | None
    body: Any


Packet = Forward | OutgoingControl | FragmentInFlight


class PacketsInFlight:
    __slots__ = ("_on_timeout", "_timers", "packets", "tx")

    def __init__(self, incarnation: int, timers: Timers, on_timeout: Callable[[Nanos, int, Effects], None]) -> None:
        self._timers = timers
        self._on_timeout = on_timeout  # one bound method, so that `is` finds its timers
        self.tx = incarnation << TX_SHIFT
        """The number of the last packet."""
        self.packets: dict[int, tuple[Packet, int, Nanos]] = {}
        """By number: a packet, its transmissions so far, and the time of the first one."""

    def next_number(self) -> int:
        """Return a number that no packet has."""
        self.tx = tx = self.tx + 1
        return tx

    def start_timer(self, timeout_at: Nanos) -> int:
        """Start the ACK timer of a new packet. The caller adds the packet to `packets` under the number returned."""
        self.tx = tx = self.tx + 1
        timers = self._timers
        timers.count = count = timers.count + 1
        heappush(timers.heap, (timeout_at, count, self._on_timeout, tx))
        return tx

    def restart_timer(self, tx: int, packet: Packet, attempt: int, first: Nanos, timeout_at: Nanos) -> None:
        """Start the ACK timer of another transmission."""
        self.packets[tx] = (packet, attempt, first)
        self._timers.set_timer(timeout_at, self._on_timeout, tx)

    def wait_until(self, time: Nanos, tx: int) -> None:
        """Extend the ACK timer without another transmission."""
        self._timers.set_timer(time, self._on_timeout, tx)

    def remove(self, tx: int) -> bool:
        """Stop waiting for an ACK. Return False if the packet is not in flight."""
        return self.packets.pop(tx, None) is not None

    def packets_to(self, peer: PeerId) -> list[tuple[int, Packet]]:
        """The packets to a neighbour, with their numbers."""
        return [(tx, packet) for tx, (packet, _, _) in self.packets.items() if packet.peer == peer]

    def clear_timers(self) -> None:
        """Drop the next timers if their packets are acknowledged, to avoid useless wake-ups."""
        timers, packets, on_timeout = self._timers.heap, self.packets, self._on_timeout
        while timers and timers[0][2] is on_timeout and timers[0][3] not in packets:
            heappop(timers)
