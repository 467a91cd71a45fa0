"""Accepts connections of clients, with TLS if the peer has keys, and limits the strangers among them.

The loop accepts a connection, and asks `StrangerLimits` before it spends anything on it. A TLS handshake has a time
limit. The session that follows reports when its client is known or has left.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable

from wend.drivers.live.access.source_limits import StrangerLimits

log = logging.getLogger("wend.clients")

BACKLOG = 1024
HANDSHAKE_S = 5.0
_RETRY_S = 0.1
"""The pause before it accepts again, after the process has run out of files."""
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class Acceptor:
    """Accepts on one bound socket until it is closed."""

    def __init__(
        self,
        bound: socket.socket,
        make_session: Callable[[str], asyncio.Protocol],
        context: Callable[[], ssl.SSLContext | None],
        limits: StrangerLimits,
        counts: Counter[str],
    ) -> None:
        """`make_session` gets the source of the connection; `context` says whether the next one uses TLS."""
        self._bound = bound
        self._make_session = make_session
        self._context = context
        self._limits = limits
        self.counts = counts
        self._handshakes: set[asyncio.Task[None]] = set()
        bound.listen(BACKLOG)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        self._task.cancel()
        for task in list(self._handshakes):
            task.cancel()
        self._bound.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._bound)
            except OSError as error:
                self.counts["unaccepted"] += 1
                log.info("cannot accept a client: %s", error.strerror)
                await asyncio.sleep(_RETRY_S)
                continue
            source = self._limits.admit(address[0])
            if source is None:
                self.counts["flood-refused"] += 1
                connection.close()
                continue
            task = loop.create_task(self._start_session(connection, source))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _start_session(self, connection: socket.socket, source: str) -> None:
        """Complete the TLS handshake and start a session. The session reports when its client is known or has left."""
        _set_options(connection)
        context = self._context()
        timeout = None if context is None else HANDSHAKE_S
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make_session(source), connection, ssl=context, ssl_handshake_timeout=timeout
            )
        except (OSError, ssl.SSLError, TimeoutError, asyncio.CancelledError) as error:
            self.counts["tls-failed"] += context is not None
            self._limits.release(source)
            if isinstance(error, asyncio.CancelledError):
                connection.close()
                raise


def _set_options(connection: socket.socket) -> None:
    # Receipts and events are small, and clients wait for them.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Without keepalive, a client whose host has crashed would stay connected for ever.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
