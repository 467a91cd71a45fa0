"""How long datagrams waited in the kernel, while the process was suspended or busy.

The peer's clock cannot see this time: a datagram seems to arrive when it is read. The kernel knows the time at which it
arrived, and a system call (SIOCGSTAMPNS) tells that of the last datagram that was read. It costs about a microsecond,
so a socket asks only now and then, and for every datagram while the answer is that they wait.

The kernel's time is wall-clock time, which somebody may set. So the answer is bounded by monotonic time: a datagram
that was read after another one arrived after it, and one that was read from an empty queue arrived since then.
"""

import fcntl
import socket
import struct
import sys
import time

from wend.drivers.live.clock import Clock
from wend.model.units import MS, SECOND, Nanos

SHORT_NS = 3 * MS
"""A wait that is no longer counts as none: a busy peer has that much."""
CHECK_NS = 10 * MS
"""While datagrams do not wait, the kernel is asked after this time again."""
_SIOCGSTAMPNS = 0x8907
_STAMP = struct.Struct("@ll")


class KernelQueue:
    """The queue of datagrams that the kernel has for one socket."""

    def __init__(self, socket_: socket.socket, clock: Clock) -> None:
        self._socket = socket_
        self._longest_ns: Nanos = 0
        """No datagram that was in the queue at `known_ns` had waited for longer."""
        self.known_ns = clock()
        """When the kernel was asked last, or the queue was empty."""
        self._stamp = bytearray(_STAMP.size)
        self._works = sys.platform == "linux"
        self.stamped_ns()  # the first question makes the kernel note the times

    def found_empty(self, now: Nanos) -> None:
        """Note that nothing is left to read."""
        self._longest_ns, self.known_ns = 0, now

    def waited_ns(self, now: Nanos) -> Nanos:
        """How long the datagram that was just read had waited; 0 for a short time, or where the kernel does not say."""
        stamped = self.stamped_ns()
        bound = self._longest_ns + now - self.known_ns
        waited = bound if stamped is None else max(0, min(time.time_ns() - stamped, bound))
        self._longest_ns, self.known_ns = waited, now
        return 0 if stamped is None or waited <= SHORT_NS else waited

    def stamped_ns(self) -> Nanos | None:
        """The wall-clock time at which the datagram that was just read arrived; None where the kernel does not say."""
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
