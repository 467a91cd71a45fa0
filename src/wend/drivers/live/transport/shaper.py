"""A traffic shaper: delay, loss, outages and other faults of wide-area links for peers on one machine.

A peer has one `Shaper` per neighbour, between itself and its socket. It holds each datagram for the link's delay.
It loses some datagrams, and all of them while the link is cut. It may corrupt some, and hold some back so that later
ones overtake them. A shaper without delay, loss, outages and faults only costs one call.

Timers of the event loop have a resolution of one millisecond. A shaper sends a datagram up to half a millisecond early,
so delays are right on average.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable

import msgspec

from wend.drivers.live.clock import Clock, monotonic
from wend.model.errors import ConfigError
from wend.model.units import MS, Nanos

Transmit = Callable[[bytes], None]
_HALF_TICK: Nanos = MS // 2
MAX_QUEUED = 20_000
"""The most datagrams in flight on a link. It drops more, as a full queue does."""


def always_up(_: Nanos) -> bool:
    return True


class PacketFaults(msgspec.Struct, frozen=True):
    """How often a link corrupts and reorders datagrams."""

    corruption: float = 0.0
    """The probability that one bit of a datagram changes."""
    reordering: float = 0.0
    """The probability that a datagram is held back, so that later ones overtake it."""
    hold_ns: Nanos = 50 * MS
    """The longest time for which it is held back."""


NO_FAULTS = PacketFaults()


class Shaper:
    """Emulates one direction of a wide-area link: its delay, loss, outages and faults."""

    def __init__(
        self,
        transmit: Transmit,
        *,
        delay_ns: Nanos = 0,
        loss: float = 0.0,
        faults: PacketFaults = NO_FAULTS,
        seed: int = 0,
        is_up: Callable[[Nanos], bool] = always_up,
        clock: Clock = monotonic,
    ) -> None:
        if delay_ns < 0 or not 0.0 <= loss <= 1.0:
            raise ConfigError(f"a link cannot have a delay of {delay_ns} ns and a loss of {loss}")
        if not (0.0 <= faults.corruption <= 1.0 and 0.0 <= faults.reordering <= 1.0 and faults.hold_ns >= 0):
            raise ConfigError(
                f"a link cannot corrupt {faults.corruption} and reorder {faults.reordering} of its datagrams, and hold "
                f"them back for {faults.hold_ns} ns"
            )
        self.delay_ns = delay_ns
        self.loss = loss
        self.faults = faults
        self.is_cut = False
        self.lost = 0
        self.corrupted = 0
        self._transmit = transmit
        self._is_up = is_up
        self._clock = clock
        self._random = random.Random(seed)
        self.is_plain = not (delay_ns or loss or faults.corruption or faults.reordering) and is_up is always_up
        self._queue: deque[tuple[Nanos, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def send(self, datagram: bytes) -> None:
        """Send a datagram. The state of the link at this moment decides whether it is lost."""
        if self.is_plain and not self.is_cut:
            self._transmit(datagram)
            return
        now = self._clock()
        if self._is_lost(now):
            self.lost += 1
            return
        faults = self.faults
        if self._draw(faults.corruption):
            self.corrupted += 1
            datagram = self._corrupt(datagram)
        wait = self.delay_ns
        if self._draw(faults.reordering):
            wait += 1 + int(self._random.random() * faults.hold_ns)
        if not wait:
            self._transmit(datagram)
        else:
            self._queue_datagram(now, now + wait, datagram)

    def copy_for_checked(self, transmit: Transmit) -> "Shaper":
        """Copy this shaper for datagrams whose checksum was already verified. The copy drops the datagrams that this
        shaper would corrupt."""
        faults = self.faults
        return Shaper(
            transmit,
            delay_ns=self.delay_ns,
            loss=1 - (1 - self.loss) * (1 - faults.corruption),
            faults=PacketFaults(0.0, faults.reordering, faults.hold_ns),
            seed=self._random.getrandbits(32),
            is_up=self._is_up,
            clock=self._clock,
        )

    def in_flight(self) -> int:
        return len(self._queue)

    def close(self) -> None:
        """Drop all datagrams in flight, as when a host crashes."""
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_lost(self, now: Nanos) -> bool:
        if self.is_cut or len(self._queue) >= MAX_QUEUED or not self._is_up(now):
            return True
        return self._draw(self.loss)

    def _draw(self, probability: float) -> bool:
        return probability > 0.0 and self._random.random() < probability

    def _corrupt(self, datagram: bytes) -> bytes:
        """The datagram with one bit changed."""
        bit = self._random.randrange(8 * len(datagram))
        changed = bytearray(datagram)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    def _queue_datagram(self, now: Nanos, due: Nanos, datagram: bytes) -> None:
        """Queue a datagram by the time at which it is due."""
        queue, at = self._queue, len(self._queue)
        while at and queue[at - 1][0] > due:
            at -= 1
        queue.insert(at, (due, datagram))
        if at == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._set_timer(now)

    def _set_timer(self, now: Nanos) -> None:
        wait_ms = max(0, self._queue[0][0] - now + _HALF_TICK) // MS
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._release)

    def _release(self) -> None:
        self._timer = None
        now = self._clock()
        while self._queue and self._queue[0][0] <= now + _HALF_TICK:
            self._transmit(self._queue.popleft()[1])
        if self._queue:
            self._set_timer(now)
