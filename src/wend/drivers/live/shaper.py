"""A traffic shaper: delay, loss and outages of wide-area links for peers on one machine.

A peer has one `Pipe` per neighbour, between itself and its socket. The pipe holds a datagram for the link's delay. It
loses some datagrams, and all of them while the link is cut. Datagrams never overtake each other. A pipe without delay,
loss or outages costs one call.

Timers of the event loop have a resolution of one millisecond. A pipe sends a datagram that is due in less than half a
millisecond, so delays are right on average.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable

from wend.drivers.live.clock import Clock, monotonic
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.units import MS, Nanos

Transmit = Callable[[bytes], None]
_HALF_TICK: Nanos = MS // 2
MAX_QUEUED = 20_000
"""The most datagrams in flight on a link. It drops further ones, as a full queue does."""


def always_up(_: Nanos) -> bool:
    return True


class Pipe:
    """One direction of one link."""

    def __init__(
        self,
        transmit: Transmit,
        *,
        delay_ns: Nanos = 0,
        loss: float = 0.0,
        seed: int = 0,
        is_up: Callable[[Nanos], bool] = always_up,
        clock: Clock = monotonic,
    ) -> None:
        if delay_ns < 0 or not 0.0 <= loss <= 1.0:
            raise ConfigError(f"a link cannot have a delay of {delay_ns} ns and a loss of {loss}")
        self.delay_ns = delay_ns
        self.loss = loss
        self.is_cut = False
        self.lost = 0
        self._transmit = transmit
        self._is_up = is_up
        self._clock = clock
        self._random = random.Random(seed)
        self.is_plain = not delay_ns and not loss and is_up is always_up
        self._queue: deque[tuple[Nanos, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def put(self, datagram: bytes) -> None:
        """Send a datagram. The state of the link at this moment decides whether it is lost."""
        if self.is_plain and not self.is_cut:
            self._transmit(datagram)
            return
        now = self._clock()
        if self._loses(now):
            self.lost += 1
        elif not self.delay_ns and not self._queue:
            self._transmit(datagram)
        else:
            self._queue.append((now + self.delay_ns, datagram))
            if self._timer is None:
                self._arm(now)

    def twin(self, transmit: Transmit) -> "Pipe":
        """A pipe of the same shape, with losses of its own."""
        return Pipe(
            transmit,
            delay_ns=self.delay_ns,
            loss=self.loss,
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

    def _loses(self, now: Nanos) -> bool:
        if self.is_cut or len(self._queue) >= MAX_QUEUED or not self._is_up(now):
            return True
        return self.loss > 0.0 and self._random.random() < self.loss

    def _arm(self, now: Nanos) -> None:
        wait_ms = max(0, self._queue[0][0] - now + _HALF_TICK) // MS
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._release)

    def _release(self) -> None:
        self._timer = None
        now = self._clock()
        while self._queue and self._queue[0][0] <= now + _HALF_TICK:
            self._transmit(self._queue.popleft()[1])
        if self._queue:
            self._arm(now)


class Shaper:
    """The pipes of one peer, by neighbour."""

    def __init__(self) -> None:
        self._pipes: dict[PeerId, Pipe] = {}
        self._incoming: dict[PeerId, Pipe] = {}
        """For multicast: its sender cannot shape the links to single receivers, so each receiver does."""

    def add(self, neighbour: PeerId, pipe: Pipe) -> None:
        self._pipes[neighbour] = pipe
        self._incoming.pop(neighbour, None)

    def remove(self, neighbour: PeerId) -> None:
        for pipes in (self._pipes, self._incoming):
            if (pipe := pipes.pop(neighbour, None)) is not None:
                pipe.close()

    def arrive(self, neighbour: PeerId, datagram: bytes, receive: Transmit) -> None:
        """Receive a multicast datagram over a link that has the shape of the link to its sender."""
        there = self._pipes.get(neighbour)
        if there is None or (there.is_plain and not there.is_cut):
            receive(datagram)
            return
        pipe = self._incoming.get(neighbour)
        if pipe is None:
            pipe = self._incoming[neighbour] = there.twin(receive)
        pipe.is_cut = there.is_cut
        pipe.put(datagram)

    def put(self, neighbour: PeerId, datagram: bytes) -> None:
        self._pipes[neighbour].put(datagram)

    def __contains__(self, neighbour: object) -> bool:
        return neighbour in self._pipes

    def cut(self, neighbour: PeerId) -> None:
        self._pipe(neighbour).is_cut = True

    def heal(self, neighbour: PeerId) -> None:
        self._pipe(neighbour).is_cut = False

    def lost(self) -> int:
        return sum(pipe.lost for pipe in (*self._pipes.values(), *self._incoming.values()))

    def in_flight(self) -> int:
        return sum(pipe.in_flight() for pipe in self._pipes.values())

    def close(self) -> None:
        for pipe in (*self._pipes.values(), *self._incoming.values()):
            pipe.close()

    def _pipe(self, neighbour: PeerId) -> Pipe:
        if neighbour not in self._pipes:
            raise ConfigError(f"there is no link to peer {neighbour}")
        return self._pipes[neighbour]
