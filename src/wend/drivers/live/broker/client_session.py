"""The session of one client over TCP, which can hold up neither the peer nor another client.

A session reads frames (`frames.py`), admits its client, and has `client_requests.py` serve what it asks for, in turns
with other clients. `client_output.py` writes answers and deliveries. A client that reads nothing for a minute while
something waits for it is disconnected, as is one that does not greet. While a client does not read its answers, its
requests are not read either. Nor are the requests of a client that publishes while too much waits for the links of the
peer: so publishers become as slow as the network.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from wend.drivers.live import frames
from wend.drivers.live.access.access import Access
from wend.drivers.live.access.grants import Denial, NotGranted
from wend.drivers.live.access.source_limits import STATUS_PER_S, STATUS_PER_SOURCE_S
from wend.drivers.live.broker.client_output import ClientOutput
from wend.drivers.live.broker.client_requests import ClientRequests
from wend.model.errors import WendError, WireError
from wend.model.publication import Publication
from wend.protocol.notices import MissedReason
from wend.protocol.ports import Deliver, Receipt
from wend.security.identity import Identity, Untrusted

if TYPE_CHECKING:
    from wend.drivers.live.broker.listener import TcpListener

log = logging.getLogger("wend.clients")

ROOM_S = 0.005
"""How often a session looks whether the peer can take more."""
MAX_PAUSE_S = 2.0
"""After so long it serves another request all the same, so that its client does not believe the peer gone."""
STRANGER_FRAME_BYTES = 4096
"""The first frame of a client that is not known yet."""
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


def _tune(connection: socket.socket) -> None:
    # Receipts and events are small and wanted now.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Without keepalive, a client whose host is gone would stay for ever.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class ClientSession(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, listener: "TcpListener", source: str) -> None:
        self._listener = listener
        self._broker = listener.broker
        self._splitter = frames.Splitter(STRANGER_FRAME_BYTES)
        self._transport: asyncio.Transport | None = None
        self._source: str | None = source
        """Where it comes from, until the client is known."""
        self._identity: Identity | None = None
        """Who the client is; None: it did not connect by TLS, or is not known yet."""
        self._certificate: bytes | None = None
        """The certificate that it showed."""
        self._verified_by: object = None
        """What has verified that."""
        self._access: Access | None = None
        """What the client may do; None: everything."""
        self._host = source
        self._output = ClientOutput(self._broker.counts, listener.queue_msgs, listener.queue_bytes, self._confirm)
        self._requests: ClientRequests | None = None
        """Serves the client; None until it has greeted."""
        self._posting: Posting | None = None
        """The `Post` that is being served. It may take several turns."""
        self._served_at: float | None = None
        """When the last request was served, while the peer cannot take more; None: it can."""
        self._reading = True
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection; None once the session has ended."""
        return self._transport

    @property
    def greeted(self) -> bool:
        return self._requests is not None

    @property
    def stalled(self) -> bool:
        """Whether the client reads more slowly than frames are written."""
        return self._output.stalled

    @property
    def queued_bytes(self) -> int:
        """What waits for a client that does not read."""
        return self._output.queued_bytes

    # ---------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        _tune(transport.get_extra_info("socket"))
        self._output.open(self._transport)
        self._broker.counts["connected"] += 1
        most = self._listener.max_clients
        if len(self._listener.sessions) >= most:
            self._broker.counts["refused"] += 1
            self._output.answer(frames.No(0, f"this peer serves {most} clients and takes no more"))
            self.end()
            return
        self._listener.sessions.add(self)
        self._broker.counts["now"] += 1
        self._call_in(self._listener.greet_s, self._not_greeted)
        tls = transport.get_extra_info("ssl_object")
        shown = None if tls is None else tls.getpeercert(True)
        if shown is not None:
            self._certificate = shown
            try:
                self._check_certificate(shown)
            except Untrusted as error:
                self._turn_away(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._cancel_timer()
        self._known()
        if self._access is not None:
            self._access.close()
        if self in self._listener.sessions:
            self._listener.sessions.discard(self)
            self._broker.counts["now"] -= 1
        self._output.clear()
        self._broker.disconnect(self)

    def data_received(self, data: bytes) -> None:
        self._splitter.feed(data)
        self._schedule()

    def _schedule(self) -> None:
        """Answer the requests that were read; until that is done, no more are read."""
        if self._transport is not None and not self._scheduled:
            self._scheduled = True
            self._broker.scheduler.add(self)

    def work(self, until: float) -> bool:
        """Answer requests until then; whether some are left."""
        self._scheduled = False
        if self._transport is None or self._output.stalled or self._served_at is not None:
            return False
        try:
            bodies = self._splitter.frames()
            while True:
                if self._posting is not None:
                    self._post_some(self._posting, until)
                elif (body := next(bodies, None)) is not None:
                    self._request(frames.decode_to_peer(body))
                else:
                    break
                if self._transport is None or self._output.stalled or self._served_at is not None:
                    return False
                if time.monotonic() >= until:
                    self._pause_reading(self._transport)
                    self._scheduled = True
                    return True
            if not self._reading:
                self._reading = True
                self._transport.resume_reading()
        except WireError as error:
            self._broker.counts["garbage"] += 1
            self._output.answer(frames.No(0, str(error)))
            self.end()
        except Exception:
            self._broker.counts["failed"] += 1
            log.exception("the session of a client failed and is closed; the peer goes on")
            self.end()
        return False

    def _pause_reading(self, transport: asyncio.Transport) -> None:
        if self._reading:
            self._reading = False
            transport.pause_reading()

    def end(self) -> None:
        """Close the connection. The client can read the frames written before, for as long as it may stall. It gets no
        more events: other members of its queue groups do."""
        transport, self._transport = self._transport, None
        if transport is None:
            return  # it has ended, and a timer makes sure of it
        self._cancel_timer()
        self._output.end()
        self._broker.disconnect(self)
        if self.stalled:
            transport.abort()
        else:
            self._call_in(self._listener.stall_s, transport.abort)
            transport.close()  # by TLS it may be lost before this returns

    def _known(self) -> None:
        """The client is no stranger any more, or is gone."""
        if self._source is not None:
            self._listener.limits.known(self._source)
            self._source = None

    def _turn_away(self, why: str, counter: Denial = "not-admitted") -> None:
        """End the session of a client that may not connect, or not any more."""
        self._broker.counts[counter] += 1
        self._output.answer(frames.No(0, why))
        self.end()

    def recheck(self) -> None:
        """End the session if the client's keys have ended or are not trusted any more, or its rights have changed."""
        if self._transport is None:
            return
        admission = self._listener.admission
        try:
            if self._certificate is not None:
                self._check_certificate(self._certificate)
            elif self._identity is not None:
                self._identity = admission.check(self._identity)
            if self.greeted and admission.is_changed(self._identity, self._access):
                self._turn_away("what this client may do has changed: it connects again", "rights-changed")
        except Untrusted as error:
            self._turn_away(str(error))
        except NotGranted as error:
            self._turn_away(str(error), error.counter)

    def _check_certificate(self, certificate: bytes) -> None:
        """Verify the client's certificate, or only look whether it has ended if nothing else has changed. Raises
        `Untrusted`."""
        admission = self._listener.admission
        verifier = None if admission.keys is None else admission.keys.verifier
        if self._identity is None or verifier is not self._verified_by:
            self._identity, self._verified_by = admission.by_certificate(certificate), verifier
        else:
            admission.check(self._identity)

    # ---------------------------------------------------------------- time limits

    def _call_in(self, wait_s: float, do: Callable[..., None], *arguments: int) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(wait_s, do, *arguments)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _not_greeted(self) -> None:
        self._broker.counts["silent"] += 1
        self._output.answer(frames.No(0, f"a client has to greet within {self._listener.greet_s:g} s"))
        self.end()

    def _still_stalled(self, unread_before: int) -> None:
        """End the session of a client that has read nothing since so many bytes waited for it."""
        if self._transport is None:
            return
        unread = self._transport.get_write_buffer_size()
        if unread < unread_before:
            self._call_in(self._listener.stall_s, self._still_stalled, unread)
        else:
            self._broker.counts["stalled"] += 1
            self.end()

    # ---------------------------------------------------------------- requests and answers

    def _request(self, frame: frames.ToPeer) -> None:
        requests = self._requests
        if isinstance(frame, frames.Greet):
            self._greet(frame)
        elif requests is None:
            raise WireError("a client has to greet first")
        elif isinstance(frame, frames.Confirm):
            self._confirm(frame.handle, frame.positions)
        elif isinstance(frame, frames.Post):
            self._posting = Posting(frame.ref, frame.events)
        else:
            try:
                if isinstance(frame, frames.Publish):
                    self._publish_one(frame)
                else:
                    requests.serve(frame)
            except WendError as error:
                requests.refuse(frame.ref, error)

    def _greet(self, frame: frames.Greet) -> None:
        if frame.version != frames.VERSION:
            raise WireError(f"the client speaks version {frame.version}, this peer version {frames.VERSION}")
        if self._requests is None:
            try:
                self._requests = self._admit(frame.token)
            except (Untrusted, NotGranted) as error:
                counter = error.counter if isinstance(error, NotGranted) else "not-admitted"
                self._turn_away(str(error), counter)
                return
            self._cancel_timer()
        self._output.batches = frame.batches
        peer = self._broker.peer
        self._output.answer(frames.Welcome(peer.id, peer.incarnation))

    def _admit(self, token: str) -> ClientRequests:
        """Find out who the client is, and serve what it may do. Raises `Untrusted` or `NotGranted`."""
        admission = self._listener.admission
        tls = self._transport is not None and self._transport.get_extra_info("ssl_object") is not None
        if tls and self._identity is None:
            self._identity = admission.by_token(token)
        backlogs = self._broker.peer.peer.durable.values()
        options = [backlog.options for backlog in backlogs]
        self._access = admission.open(self._identity, options, self._broker)
        self._splitter.limit = frames.MAX_FRAME_BYTES
        self._known()
        return ClientRequests(self._broker, self, self._output, self._access, self._check_status)

    def _check_status(self) -> None:
        """Over all connections of a client that shows keys, and over all clients of one source."""
        if self._identity is None:
            return
        listener, now_s = self._listener, time.monotonic()
        if not listener.status_of_clients.take(self._identity.name, now_s):
            raise NotGranted("status-refused", f"a client may ask for the status {STATUS_PER_S:g} times a second")
        if not listener.status_of_sources.take(self._host, now_s):
            most = f"{STATUS_PER_SOURCE_S:g} times a second"
            raise NotGranted("status-refused", f"clients of one host may ask for the status {most}")

    def _confirm(self, handle: int, positions: tuple[int, ...]) -> None:
        self._broker.confirm(self, handle, positions)

    # ---------------------------------------------------------------- publications

    def _publish(self, publication: Publication) -> Receipt:
        """Raises `WendError` if the event is refused. While links are congested, the client has to wait."""
        receipt = self._broker.publish(publication, self._access)
        if receipt.congested:
            self._wait_for_room()
        return receipt

    def _publish_one(self, frame: frames.Publish) -> None:
        receipt = self._publish(frame.publication())
        targets = len(receipt.targets)
        self._output.answer(frames.Accepted(frame.ref, receipt.id, targets, receipt.kept, receipt.congested))

    def _post_some(self, posting: "Posting", until: float) -> None:
        """Publish posted events until then. A frame has many, and other clients wait."""
        publish, output = self._publish, self._output
        for event in posting.left:
            try:
                receipt = publish(event.publication())
                posting.accepted += 1
                posting.congested = posting.congested or receipt.congested
            except WendError as error:
                if isinstance(error, NotGranted):
                    self._broker.counts[error.counter] += 1
                posting.refused += 1
                posting.why = posting.why or str(error)
            if self._transport is None or output.stalled or self._served_at is not None or time.monotonic() >= until:
                return
        self._posting = None
        self._broker.counts["denied"] += posting.refused
        output.answer(frames.Posted(posting.ref, posting.accepted, posting.refused, posting.why, posting.congested))

    def _wait_for_room(self) -> None:
        """Serve no more requests until the peer can take more events."""
        if self._transport is not None:
            self._pause_reading(self._transport)
            loop = asyncio.get_running_loop()
            self._served_at = loop.time()
            loop.call_later(ROOM_S, self._look_for_room)

    def _look_for_room(self) -> None:
        loop = asyncio.get_running_loop()
        if self._transport is None or self._served_at is None:
            return
        if self._broker.peer.is_crowded and loop.time() < self._served_at + MAX_PAUSE_S:
            loop.call_later(ROOM_S, self._look_for_room)
            return
        self._served_at = None
        self._schedule()

    # ---------------------------------------------------------------- deliveries

    def missed(self, handle: int, counts: dict[MissedReason, int]) -> None:
        self._output.missed(handle, {str(reason): count for reason, count in counts.items()})

    def replaced(self, handle: int) -> None:
        if self._access is not None:
            self._access.unsubscribed(handle)
        self._output.answer(frames.Replaced(handle))

    def deliver(self, handle: int, effect: Deliver) -> None:
        if self._transport is None:
            return
        if self._access is not None and not self._access.takes(effect.event, effect.position > 0):
            self._withhold(handle, effect.position)
            return
        self._output.deliver(handle, effect)

    def _withhold(self, handle: int, position: int) -> None:
        """Skip an event of a backlog that came there when more was granted."""
        self._broker.counts["withheld"] += 1
        self._output.missed(handle, {"not granted": 1})
        # Not now: the peer is handing over the event.
        asyncio.get_running_loop().call_soon(self._confirm, handle, (position,))

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._output.stalled = True
            self._pause_reading(self._transport)
            self._call_in(self._listener.stall_s, self._still_stalled, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if self._transport is None:
            return
        self._cancel_timer()
        self._output.resume()
        if not self.stalled:
            self._schedule()


class Posting:
    """A `Post` that is being served."""

    def __init__(self, ref: int, events: tuple[frames.PostedEvent, ...]) -> None:
        self.ref = ref
        self.left = iter(events)
        self.accepted = self.refused = 0
        self.why = ""
        self.congested = False
