"""The listener for `wend://` and `wends://`: accepts clients over TCP, and ends sessions whose clients may not stay.

`acceptor.py` accepts connections and shakes hands, `client_session.py` serves each client.
"""

import asyncio
import socket
import time

from wend.drivers.live.access.acceptor import Acceptor
from wend.drivers.live.access.admission import ClientAdmission
from wend.drivers.live.access.source_limits import STATUS_PER_S, STATUS_PER_SOURCE_S, ClientSlots, StrangerLimits
from wend.drivers.live.addressing.addresses import SCHEME, TLS_SCHEME, Address, bind_socket, check_listen_address
from wend.drivers.live.broker.broker import Broker
from wend.drivers.live.broker.client_session import ClientSession
from wend.security.token_buckets import SourceBuckets

QUEUE_MSGS = 10_000
QUEUE_BYTES = 8 * 1024 * 1024
STALL_S = 60.0
GREET_S = 10.0
RECHECK_S = 30.0
"""How often to check whether the keys of connected clients have expired."""


class TcpListener:
    """Accepts clients for one broker."""

    def __init__(
        self,
        broker: Broker,
        *,
        queue_msgs: int = QUEUE_MSGS,
        queue_bytes: int = QUEUE_BYTES,
        stall_s: float = STALL_S,
        greet_s: float = GREET_S,
        admission: ClientAdmission | None = None,
        limits: StrangerLimits | None = None,
    ) -> None:
        self.broker = broker
        self.admission = admission or ClientAdmission()
        self.limits = StrangerLimits(time.monotonic) if limits is None else limits
        self.status_of_clients = SourceBuckets(STATUS_PER_S, 5 * STATUS_PER_S)
        self.status_of_sources = SourceBuckets(STATUS_PER_SOURCE_S, 5 * STATUS_PER_SOURCE_S)
        self.queue_msgs = queue_msgs
        self.queue_bytes = queue_bytes
        self.stall_s = stall_s
        self.greet_s = greet_s
        self.slots = ClientSlots()
        self.address: Address = ("", 0)
        self.sessions: set[ClientSession] = set()
        self._bound: socket.socket | None = None
        self._acceptor: Acceptor | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def scheme(self) -> str:
        return SCHEME if self.admission.context is None else TLS_SCHEME

    def bind(self, listen: Address, *, insecure: bool = False) -> None:
        """Bind the address, to find out whether it can be used. Nobody can connect before `start`."""
        secure = self.admission.context is not None
        self._bound = bind_socket(check_listen_address(listen, insecure or secure), socket.SOCK_STREAM)
        self.address = self._bound.getsockname()[:2]

    async def start(self, listen: Address = ("127.0.0.1", 0), *, insecure: bool = False) -> None:
        """Accept clients. Binds the address unless `bind` has done so."""
        if self._bound is None:
            self.bind(listen, insecure=insecure)
        assert self._bound is not None
        self._acceptor = Acceptor(
            self._bound,
            lambda source: ClientSession(self, source),
            lambda: self.admission.context,
            self.limits,
            self.broker.counts,
        )
        self._recheck()

    def recheck(self) -> None:
        """End the sessions of clients whose keys have expired or are revoked, or whose rights have changed."""
        for session in list(self.sessions):
            session.recheck()

    def _recheck(self) -> None:
        self.recheck()
        self._timer = asyncio.get_running_loop().call_later(RECHECK_S, self._recheck)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._acceptor is not None:
            self._acceptor.close()
        elif self._bound is not None:
            self._bound.close()
        self._bound = self._acceptor = None
        for session in list(self.sessions):
            session.end()
        await asyncio.sleep(0)
