"""How long datagrams waited in the kernel, while the process was suspended or busy.

The peer cannot measure this time: to it, a datagram arrives when it is read. The kernel knows when it arrived, and a
system call (SIOCGSTAMPNS) says so for the last datagram that was read. The call costs about a microsecond, so a peer
makes it only now and then, and for every datagram while datagrams wait.

The kernel's time is wall-clock time, which somebody may change. So monotonic time bounds the answer: datagrams arrive
in the order in which they are read, and those in a queue arrived after it was last empty.
"""

import fcntl
import socket
import struct
import sys
import time

from wend.drivers.live.clock import Clock
from wend.model.units import MS, SECOND, Nanos

SHORT_NS = 3 * MS
"""A wait up to this long counts as none, because it is normal on a busy peer."""
CHECK_NS = 10 * MS
"""How often to ask the kernel while datagrams do not wait."""
_SIOCGSTAMPNS = 0x8907
_STAMP = struct.Struct("@ll")


class KernelQueue:
    """The queue of datagrams that the kernel has for one socket."""

    def __init__(self, socket_: socket.socket, clock: Clock) -> None:
        self._socket = socket_
        self._longest_ns: Nanos = 0
        """The longest that a datagram in the queue at `checked_ns` can have waited."""
        self.checked_ns = clock()
        """When the kernel was last asked, or the queue was last empty."""
        self._stamp = bytearray(_STAMP.size)
        self._works = sys.platform == "linux"
        self.arrival_time_ns()  # the first call makes the kernel note the times

    def note_empty(self, now: Nanos) -> None:
        """Record that the queue is empty, so that later datagrams cannot have arrived before now."""
        self._longest_ns, self.checked_ns = 0, now

    def waited_ns(self, now: Nanos) -> Nanos:
        """How long the datagram that was just read had waited; 0 for a short time, or if the kernel does not say."""
        stamped = self.arrival_time_ns()
        bound = self._longest_ns + now - self.checked_ns
        wait_ns = bound if stamped is None else max(0, min(time.time_ns() - stamped, bound))
        self._longest_ns, self.checked_ns = wait_ns, now
        return 0 if stamped is None or wait_ns <= SHORT_NS else wait_ns

    def arrival_time_ns(self) -> Nanos | None:
        """The wall-clock time at which the datagram that was just read arrived; None if the kernel does not say."""
        if not self._works:
            return None
        try:
            fcntl.ioctl(self._socket, _SIOCGSTAMPNS, self._stamp)
        except FileNotFoundError:  # no datagram has a time yet
            return None
        except OSError:
            self._works = False
            return None
        seconds, rest = _STAMP.unpack(self._stamp)
        return int(seconds * SECOND + rest)
