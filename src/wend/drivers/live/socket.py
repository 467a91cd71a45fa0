"""A peer's socket, read in bounded batches, so that timers and clients are served while datagrams flood in.

It is read directly instead of through an asyncio transport: strangers are turned away before anything is allocated
for them, and what has arrived can be read before a timer runs.
"""

import asyncio
import socket
from collections.abc import Callable

from wend.drivers.live.addresses import Address, bind, check_listen
from wend.drivers.live.clock import Clock
from wend.drivers.live.counters import Counters
from wend.drivers.live.send_queue import SendQueue
from wend.model.units import MS, Nanos

RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
BATCH_DATAGRAMS = 64
WAITING_DATAGRAMS = 2048
"""Read before a timer runs, so that a busy host does not take for missing what waits at its own door."""
QUIET_NS = MS
"""A socket that had nothing to read for this long is quiet."""
AT_ONCE_NS = MS // 10
"""What can be read so soon after the last was mostly there before: more may be."""


class PeerSocket:
    """Bound when made, so that its address is known. What is said while a batch is read leaves in bundles."""

    def __init__(
        self,
        listen: Address,
        insecure: bool,
        take: Callable[[memoryview, Address], None],
        outbox: SendQueue,
        counters: Counters,
        clock: Clock,
    ) -> None:
        self._take = take
        self._outbox = outbox
        self._counters = counters
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._read_ns: Nanos = 0
        self._batch = 1
        self._buffer = bytearray(65536)
        self._view = memoryview(self._buffer)
        self._socket = bind(check_listen(listen, insecure), socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self.family = self._socket.family
        host, port = self._socket.getsockname()[:2]
        self.address: Address = (host, port)

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.add_reader(self._socket.fileno(), self._readable)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop = None
        self._socket.close()

    def drain(self) -> None:
        """Read what has arrived."""
        self._outbox.gather()
        self._read_some(WAITING_DATAGRAMS)
        self._outbox.flush()

    def transmit(self, address: Address, datagram: bytes) -> None:
        try:
            self._socket.sendto(datagram, address)
        except OSError:
            # A full send buffer loses datagrams as a full router would; the protocol is made for it.
            self._counters.failed["send"] += 1

    def _readable(self) -> None:
        """One datagram on a quiet socket, more at once on a busy one: asking in vain costs as much as reading."""
        quiet_ns = self._clock() - self._read_ns
        if self._batch == 1 or quiet_ns > QUIET_NS:
            self._read()
            self._batch = 2 if quiet_ns < AT_ONCE_NS else 1
        else:
            self._outbox.gather()
            found = self._read_some(self._batch)
            self._outbox.flush()
            self._batch = min(2 * found, BATCH_DATAGRAMS) if found == self._batch else max(1, found)
        self._read_ns = self._clock()

    def _read_some(self, most: int) -> int:
        for found in range(most):
            if not self._read():
                return found
        return most

    def _read(self) -> bool:
        """Whether there was something, and may be more."""
        try:
            size, address = self._socket.recvfrom_into(self._buffer)
        except BlockingIOError:
            return False
        except OSError:
            self._counters.failed["receive"] += 1
            return False
        self._take(self._view[:size], address[:2])
        return self._loop is not None
