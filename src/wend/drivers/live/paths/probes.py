"""A trace on a real socket: UDP with rising TTL, and what comes back. Needs no privileges; Linux only.

With IP_RECVERR the kernel keeps the ICMP errors that a socket's datagrams cause, each with who sent it, where
the datagram was going and as much of it as the router quoted. Probes go to the very port at which the other peer
listens, so they pass where its packets pass; it knows them and answers (`answer_to`), which tells how far it is. Where
nobody listens the host says so itself.

This blocks, and is meant for a thread of its own.
"""

import os
import select
import socket
import struct
import sys
import threading
import time

from wend.drivers.live.addresses import Address
from wend.drivers.live.paths.trace import Kind, Settings, Trace, Traced
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

_PROBE = struct.Struct("!6s8sH")
_ASKED, _ANSWERED = b"wend?\0", b"wend!\0"
_LONGEST_WAIT_MS = 100
"""Between two looks at whether the peer still wants to know."""
_ERRORS_BYTES = 512
_SENDS = 4
_READS = 256
"""Before it is time to look at the clock, whoever floods the socket."""


def answer_to(datagram: memoryview) -> bytes | None:
    """What a peer says to a probe: the same, as an answer; None if it is none. Never longer than what came."""
    if len(datagram) != _PROBE.size or datagram[: len(_ASKED)] != _ASKED:
        return None
    return _ANSWERED + bytes(datagram[len(_ASKED) :])


class Prober:
    """Traces from one local address; several threads may use it."""

    def __init__(self, local: str, settings: Settings = Settings()) -> None:  # noqa: B008
        self._local = local
        self._settings = settings

    def trace(self, target: Address, stopped: threading.Event) -> Traced:
        """Raises `OSError` where nothing can be sent."""
        family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probing:
            probing.setblocking(False)
            probing.bind((self._local, 0))
            probing.setsockopt(*(_IP_RECVERR if family == socket.AF_INET else _IPV6_RECVERR), 1)
            here = self._source(family, target)
            return _Probing(probing, here, target, self._settings).run(stopped)

    def _source(self, family: int, target: Address) -> str:
        """This host's address on the way there: a connection of UDP asks the routes, and sends nothing."""
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.bind((self._local, 0))
            asking.connect(target)
            return str(asking.getsockname()[0])


class _Probing:
    """One trace."""

    def __init__(self, probing: socket.socket, here: str, target: Address, settings: Settings) -> None:
        self._socket = probing
        self._target = target
        self._here = here
        self._v6 = probing.family == socket.AF_INET6
        self._nonce = os.urandom(8)
        self._trace = Trace(settings, time.monotonic_ns())

    def run(self, stopped: threading.Event) -> Traced:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not stopped.is_set():
            now = time.monotonic_ns()
            while (probe := self._trace.next(now)) is not None:
                self._send(*probe)
            if self._trace.done:
                break
            wait_ms = -((now - self._trace.wake_ns(now)) // MS)
            poll.poll(min(wait_ms, _LONGEST_WAIT_MS))
            self._read()
        return self._trace.result()

    def _send(self, number: int, hops: int) -> None:
        level, option = _IPV6_HOPLIMIT if self._v6 else _IP_TTL
        probe = _PROBE.pack(_ASKED, self._nonce, number)
        for left in reversed(range(_SENDS)):
            try:
                self._socket.sendmsg([probe], [(level, option, _INT.pack(hops))], 0, self._target)
                return
            except BlockingIOError:
                return  # lost, as in a full router
            except OSError:
                # Perhaps of an earlier probe: a socket shows an error once, wherever it is used next.
                if not left:
                    raise
                self._read()

    def _read(self) -> None:
        for _ in range(_READS):
            if not (self._read_error() or self._read_answer()):
                return

    def _read_answer(self) -> bool:
        """From the other peer itself. Whether there was something to read."""
        try:
            data, sender = self._socket.recvfrom(_ERRORS_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            return True  # an earlier error, shown once more
        if sender[:2] == self._target and (number := self._number(data, _ANSWERED)) is not None:
            self._trace.hear(number, "target", sender[0])
        return True

    def _read_error(self) -> bool:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_ERRORS_BYTES, _ERRORS_BYTES, _MSG_ERRQUEUE)
        except OSError:
            return False
        for level, option, content in ancillary:
            if (level, option) in (_IP_RECVERR, _IPV6_RECVERR) and len(content) > _ERROR.size:
                self._error(data, content)
        return True

    def _error(self, data: bytes, content: bytes) -> None:
        _, origin, kind, _, _, _ = _ERROR.unpack_from(content)
        router = _address(content[_ERROR.size :])
        # A quotation that is cut short tells nothing; one that is whole must be of a probe of this trace.
        number = self._number(data, _ASKED) if len(data) >= _PROBE.size else None
        if router is None or (number is None and len(data) >= _PROBE.size):
            return
        said: Kind
        if (origin, kind) in _TIME_EXCEEDED:
            said = "router"
        elif (origin, kind) in _UNREACHABLE:
            said = "target" if router == self._target[0] else "nowhere" if router == self._here else "unreachable"
        else:
            return
        self._trace.hear(number, said, router)

    def _number(self, data: bytes, word: bytes) -> int | None:
        if len(data) != _PROBE.size:
            return None
        said, nonce, number = _PROBE.unpack(data)
        return int(number) if (said, nonce) == (word, self._nonce) else None


def _address(sockaddr: bytes) -> str | None:
    """The address in a sockaddr_in or sockaddr_in6, None in what is neither."""
    if len(sockaddr) >= 8 and int.from_bytes(sockaddr[:2], sys.byteorder) == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, sockaddr[4:8])
    if len(sockaddr) >= 24 and int.from_bytes(sockaddr[:2], sys.byteorder) == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, sockaddr[8:24])
    return None
