"""The connection of a client to a peer: made once, and made again when it breaks.

A client may know several peers. It tries them in the order of its URL, later from the last peer on. If the first
connection fails, the client raises at once. If a connection breaks later, the client tries again, after longer and
longer pauses, until its patience ends. It asks a silent peer for an answer. If none comes, the connection counts as
broken, because the host may have crashed.

The connection knows no requests and subscriptions. It tells `client.py` what it read, when to subscribe again, and when
all that wait have to fail.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from ssl import SSLError
from typing import TYPE_CHECKING

from wend.drivers.live import frames
from wend.drivers.live.addressing.addresses import Address, format_address, parse_urls, url_scheme
from wend.drivers.live.clock import monotonic
from wend.drivers.live.transport import wire
from wend.model.errors import ClientError, ConfigError, ConnectionLost, Refused, WireError, make_refusal
from wend.model.events import PeerId
from wend.model.units import Nanos

if TYPE_CHECKING:  # most clients connect without TLS
    from wend.drivers.live.access.tls import ClientTls

FIRST_BACKOFF_S = 0.05
LAST_BACKOFF_S = 2.0
SILENCE_S = 10.0
"""After this silence the client asks the peer for an answer. After another one, the connection counts as broken."""
_CHUNK_BYTES = 256 * 1024


class PeerConnection:
    """One connection at a time, to one of the peers that `url` names."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        patience: float,
        received: Callable[[frames.ToClient], None],
        restore: Callable[[], None],
        lost: Callable[[ClientError], None],
        ended: Callable[[ClientError], None],
        tls: "Callable[[], ClientTls] | None" = None,
    ) -> None:
        """`tls` reads the client's keys, again for each connection, because certificates are renewed."""
        self.url = url
        self._tls = tls
        self.timeout = timeout
        self.patience = patience
        self.peer: PeerId = -1
        self.reconnects = 0
        self.writer: asyncio.StreamWriter | None = None
        """None while there is no connection."""
        self._addresses = parse_urls(url)
        self._last = 0
        """The index of the address that it is connected to, or was last."""
        self._received = received
        """Called with every frame that the peer sends."""
        self._restore = restore
        """Called when a new connection replaces a broken one."""
        self._lost = lost
        """Called when the connection breaks. Requests that were written before get no answer."""
        self._ended = ended
        """Called when the client gives up or is closed."""
        self.unwritten: list[bytes] = []
        """Frames of this turn of the event loop, which are written at once; see `write_soon`."""
        self._writes_soon = False
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: ClientError | None = None

    async def start(self) -> None:
        """Make the first connection. Raises if no peer can be reached."""
        if self._error is not None:
            raise self._error
        if self._task is None:
            frames_read = await self._connect()
            self._task = asyncio.create_task(self._run(frames_read), name=f"wend client of {self.url}")

    @property
    def has_ended(self) -> bool:
        """Whether it was closed or has given up."""
        return self._error is not None

    @property
    def current_url(self) -> str:
        """The URL of the peer that it is connected to, or was last."""
        return self._url(self._addresses[self._last])

    def _url(self, address: Address) -> str:
        return self.url if len(self._addresses) == 1 else f"{url_scheme(self.url)}{format_address(address)}"

    async def wait_until_open(self) -> Nanos:
        """Wait for a connection. Returns for how long. Raises if the client has given up connecting."""
        began = monotonic()
        while self.writer is None:
            if self._error is not None:
                raise self._error
            if self._task is None:
                raise ClientError("connect first: async with wend.connect(...), or await it", code="not-connected")
            await self._ready.wait()
        return monotonic() - began

    def write_soon(self) -> None:
        """Write the frames in `unwritten` when this turn of the event loop ends."""
        if not self._writes_soon:
            self._writes_soon = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._writes_soon = False
        if self.writer is not None and self.unwritten:
            self.writer.write(b"".join(self.unwritten))
        self.unwritten.clear()

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes that were written but not sent yet."""
        return 0 if self.writer is None else self.writer.transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait while the peer reads more slowly than frames are written."""
        self._write()
        if self.writer is not None:
            with suppress(OSError):  # a broken connection fails the answers, with a better sentence
                await self.writer.drain()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self._give_up(ClientError("the client is closed", code="closed"))

    async def _connect(self) -> AsyncIterator[frames.ToClient]:
        """Connect to the first peer that can be reached, starting with the last one. All attempts share the timeout."""
        count = len(self._addresses)
        failures: list[ClientError] = []
        for place in ((self._last + step) % count for step in range(count)):
            try:
                frames_read = await self._connect_to(self._addresses[place], self.timeout / count)
            except (ConnectionLost, Refused) as error:
                failures.append(error)
            else:
                self._last = place
                return frames_read
        if count == 1:
            raise failures[0]
        refused = all(isinstance(failure, Refused) for failure in failures)
        sentences = "; ".join(map(str, failures))
        if refused:
            raise Refused(sentences, code=failures[0].code)
        raise ConnectionLost(sentences, code="unreachable")

    async def _connect_to(self, address: Address, timeout: float) -> AsyncIterator[frames.ToClient]:
        url = self._url(address)
        try:
            async with asyncio.timeout(timeout):
                reader, writer, token, certified = await self._open(address)
                try:
                    writer.write(wire.encode_frame(frames.Greet(batches=True, token=token)))
                    frames_read = self._read_frames(reader, writer)
                    match await anext(frames_read, None):
                        case frames.Welcome(peer=peer, version=frames.VERSION):
                            if certified not in (None, peer):
                                said = f"says that it is peer {peer}, but has the certificate of peer {certified}"
                                raise Refused(f"{url} {said}", code="untrusted")
                            self.peer = peer
                        case frames.RefusedFrame(_, code, why):
                            raise make_refusal(code, why)
                        case None:
                            sentence = f"{url} closed the connection; perhaps {self._closing_reason()}"
                            raise ConnectionLost(sentence, code="unreachable")
                        case _:
                            raise WireError("it did not welcome us")
                except BaseException:
                    writer.close()
                    raise
        except (OSError, TimeoutError) as error:
            raise self._connect_error(url, error) from None
        except WireError as error:
            sentence = f"{url} is not a Wend peer of this version: {error}"
            raise ConnectionLost(sentence, code="other-version") from None
        self.writer = writer
        self._ready.set()
        return frames_read

    async def _open(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str, PeerId | None]:
        """A connection and, with TLS, the token to show and the peer in the certificate. Raises `Refused` if it is not
        trusted."""
        if self._tls is None:
            return *await asyncio.open_connection(*address), "", None
        from wend.security.identity import Untrusted

        try:
            tls = self._tls()
        except ConfigError as error:
            raise Refused(str(error), code=error.code) from None
        # The name is required, although nobody checks it.
        reader, writer = await asyncio.open_connection(*address, ssl=tls.context, server_hostname=address[0])
        try:
            identity = tls.verify_peer(writer.get_extra_info("ssl_object").getpeercert(True))
        except Untrusted as error:
            writer.close()
            raise Refused(f"{self._url(address)} is not trusted: {error}", code=error.code) from None
        return reader, writer, tls.token, identity.peer

    def _closing_reason(self) -> str:
        """The likeliest reason why a peer closes the connection without an answer."""
        return "it takes wends:// only" if self._tls is None else "it does not trust this client's certificate"

    def _connect_error(self, url: str, error: Exception) -> ClientError:
        """The error for a failed connection. The client does not try again if TLS failed."""
        if self._tls is None or not isinstance(error, SSLError):
            why = getattr(error, "strerror", None) or "it does not answer"
            return ConnectionLost(f"cannot reach a peer at {url}: {why}", code="unreachable")
        from wend.drivers.live.access.tls import explain_failure

        return Refused(f"{url}: {explain_failure(error)}", code="untrusted")

    async def _run(self, frames_read: AsyncIterator[frames.ToClient]) -> None:
        try:
            while True:
                with suppress(OSError, TimeoutError, WireError):
                    async for frame in frames_read:
                        self._received(frame)
                self._on_broken(ConnectionLost(f"the connection to {self.current_url} broke before the answer came"))
                frames_read = await self._reconnect()
                self.reconnects += 1
        except ClientError as error:
            self._give_up(error)
        finally:
            self._on_broken(ClientError("the client is closed", code="closed"))

    async def _reconnect(self) -> AsyncIterator[frames.ToClient]:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self.patience
        wait = FIRST_BACKOFF_S
        while True:
            # The pauses differ, so that the clients of a restarted peer do not all come at once.
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            try:
                frames_read = await self._connect()
            except ConnectionLost as error:
                if loop.time() > give_up:
                    raise ConnectionLost(f"{error}; gave up after {self.patience:g} s", code=error.code) from None
                wait = min(2 * wait, LAST_BACKOFF_S)
            else:
                self._restore()
                return frames_read

    def _on_broken(self, error: ClientError) -> None:
        if self._error is None:
            self._ready.clear()
        if self.writer is not None:
            self._write()
            self.writer.close()
            self.writer = None
        self.unwritten.clear()
        self._lost(error)

    def _give_up(self, error: ClientError) -> None:
        """Give up connecting, and fail all waiting callers."""
        self._error = self._error or error
        self._on_broken(error)
        self._ready.set()
        self._ended(error)

    async def _read_frames(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> AsyncIterator[frames.ToClient]:
        """The frames of the peer. Raises `TimeoutError` if it stays silent when asked."""
        splitter = wire.FrameSplitter()
        asked = False
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    data = await reader.read(_CHUNK_BYTES)
            except TimeoutError:
                if asked:
                    raise
                asked = True
                writer.write(wire.encode_frame(frames.PingFrame(0)))
                continue
            if not data:
                return
            asked = False
            for body in splitter.feed(data):
                yield wire.decode_to_client(body)
