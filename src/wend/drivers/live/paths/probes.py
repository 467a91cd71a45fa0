"""A traceroute on a real socket: UDP probes with rising TTL, ICMP errors as answers. Linux only, without privileges.

With IP_RECVERR the kernel queues the ICMP errors that a socket's datagrams cause, each with its sender and the quoted
start of the datagram. Probes go to the port at which the other peer listens, so they take the path of its packets. The
peer recognizes a probe and answers it (`make_probe_answer`), which shows its distance. If nothing listens at the port,
the host sends an ICMP error.

`Prober.trace` blocks; call it in a thread.
"""

import os
import select
import socket
import struct
import sys
import threading
import time

from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.paths.traceroute import AnswerKind, TracerouteResult, TracerouteSession, TracerouteSettings
from wend.model.units import MS

HAS_ERROR_QUEUE = sys.platform == "linux"

# Of <linux/in.h>, <linux/in6.h> and <linux/errqueue.h>; not all are in `socket`.
_IP_TTL, _IP_RECVERR = (socket.IPPROTO_IP, 2), (socket.IPPROTO_IP, 11)
_IPV6_HOPLIMIT, _IPV6_RECVERR = (socket.IPPROTO_IPV6, 52), (socket.IPPROTO_IPV6, 25)
_MSG_ERRQUEUE = 0x2000
_ERROR = struct.Struct("=IBBBxII")
_FROM_ICMP, _FROM_ICMPV6 = 2, 3
_TIME_EXCEEDED = {(_FROM_ICMP, 11), (_FROM_ICMPV6, 3)}
_UNREACHABLE = {(_FROM_ICMP, 3), (_FROM_ICMPV6, 1)}
_INT = struct.Struct("=i")

PROBE = struct.Struct("!6s8sH")
PROBE_MAGIC, ANSWER_MAGIC = b"wend?\0", b"wend!\0"
_LONGEST_WAIT_MS = 100
"""The longest wait between two checks of `stopped`."""
_ERRORS_BYTES = 512
_SENDS = 4
_READS = 256
"""The most datagrams read before the next look at the clock, also if someone floods the socket."""


def make_probe_answer(datagram: memoryview) -> bytes | None:
    """The answer to a probe, of the same length; None if the datagram is not a probe."""
    if len(datagram) != PROBE.size or datagram[: len(PROBE_MAGIC)] != PROBE_MAGIC:
        return None
    return ANSWER_MAGIC + bytes(datagram[len(PROBE_MAGIC) :])


class Prober:
    """Runs traceroutes from one local address. Several threads may use it."""

    def __init__(self, local: str, settings: TracerouteSettings = TracerouteSettings()) -> None:  # noqa: B008
        self._local = local
        self._settings = settings

    def trace(self, target: Address, stopped: threading.Event) -> TracerouteResult:
        """Run a traceroute, until it is complete or `stopped` is set. Raises `OSError` if it cannot send."""
        family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probing:
            probing.setblocking(False)
            probing.bind((self._local, 0))
            probing.setsockopt(*(_IP_RECVERR if family == socket.AF_INET else _IPV6_RECVERR), 1)
            here = self._source_address(family, target)
            return _ProbeRun(probing, here, target, self._settings).run(stopped)

    def _source_address(self, family: int, target: Address) -> str:
        """The source address of packets to `target`. Connecting a UDP socket looks up the route and sends nothing."""
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.bind((self._local, 0))
            asking.connect(target)
            return str(asking.getsockname()[0])


class _ProbeRun:
    """One traceroute on one socket."""

    def __init__(self, probing: socket.socket, here: str, target: Address, settings: TracerouteSettings) -> None:
        self._socket = probing
        self._target = target
        self._here = here
        self._v6 = probing.family == socket.AF_INET6
        self._nonce = os.urandom(8)
        self._trace = TracerouteSession(settings, time.monotonic_ns())

    def run(self, stopped: threading.Event) -> TracerouteResult:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not stopped.is_set():
            now = time.monotonic_ns()
            while (probe := self._trace.next_probe(now)) is not None:
                self._send(*probe)
            if self._trace.is_done:
                break
            wait_ms = -((now - self._trace.wake_ns(now)) // MS)
            poll.poll(min(wait_ms, _LONGEST_WAIT_MS))
            self._read()
        return self._trace.result()

    def _send(self, number: int, hops: int) -> None:
        level, option = _IPV6_HOPLIMIT if self._v6 else _IP_TTL
        probe = PROBE.pack(PROBE_MAGIC, self._nonce, number)
        for more in reversed(range(_SENDS)):
            try:
                self._socket.sendmsg([probe], [(level, option, _INT.pack(hops))], 0, self._target)
                return
            except BlockingIOError:
                return  # the probe is lost, as in a full queue
            except OSError:
                # The error may be of an earlier probe: the next call on the socket reports it once.
                if not more:
                    raise
                self._read()

    def _read(self) -> None:
        for _ in range(_READS):
            if not (self._read_error() or self._read_answer()):
                return

    def _read_answer(self) -> bool:
        """Read an answer of the target. Returns whether there was something to read."""
        try:
            data, sender = self._socket.recvfrom(_ERRORS_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            return True  # the error of an earlier probe
        if sender[:2] == self._target and (number := self._probe_number(data, ANSWER_MAGIC)) is not None:
            self._trace.on_answer(number, "target", sender[0])
        return True

    def _read_error(self) -> bool:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_ERRORS_BYTES, _ERRORS_BYTES, _MSG_ERRQUEUE)
        except OSError:
            return False
        for level, option, content in ancillary:
            if (level, option) in (_IP_RECVERR, _IPV6_RECVERR) and len(content) > _ERROR.size:
                self._on_error(data, content)
        return True

    def _on_error(self, data: bytes, content: bytes) -> None:
        _, origin, kind, _, _, _ = _ERROR.unpack_from(content)
        router = _read_address(content[_ERROR.size :])
        # A truncated quote does not show the probe; a complete one must be of this traceroute.
        number = self._probe_number(data, PROBE_MAGIC) if len(data) >= PROBE.size else None
        if router is None or (number is None and len(data) >= PROBE.size):
            return
        answer: AnswerKind
        if (origin, kind) in _TIME_EXCEEDED:
            answer = "router"
        elif (origin, kind) in _UNREACHABLE:
            answer = "target" if router == self._target[0] else "nowhere" if router == self._here else "unreachable"
        else:
            return
        self._trace.on_answer(number, answer, router)

    def _probe_number(self, data: bytes, magic: bytes) -> int | None:
        if len(data) != PROBE.size:
            return None
        head, nonce, number = PROBE.unpack(data)
        return int(number) if (head, nonce) == (magic, self._nonce) else None


def _read_address(sockaddr: bytes) -> str | None:
    """The address in a sockaddr_in or sockaddr_in6; None if it is neither."""
    if len(sockaddr) >= 8 and int.from_bytes(sockaddr[:2], sys.byteorder) == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, sockaddr[4:8])
    if len(sockaddr) >= 24 and int.from_bytes(sockaddr[:2], sys.byteorder) == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, sockaddr[8:24])
    return None
