"""The session of one client over TCP. It can block neither the peer nor another client.

A session reads frames (`frames.py`), admits its client (`admitted_client.py`), publishes the client's events, and lets
`client_requests.py` serve the other requests, in turns with other clients. It disconnects a client that does not greet,
and one that reads nothing for a minute while something waits for it (`stalled_queue.py`). While a client does not read
its answers, the session does not read its requests. Neither does it while the client publishes and too much waits for
the links of the peer, so publishers become as slow as the network.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from wend.drivers.live import frames
from wend.drivers.live.access.grants import DENIALS
from wend.drivers.live.broker.admitted_client import AdmittedClient
from wend.drivers.live.broker.client_output import ClientOutput
from wend.drivers.live.broker.client_requests import ClientRequests
from wend.drivers.live.broker.posting import Posting
from wend.drivers.live.broker.publisher_pause import PublisherPause
from wend.drivers.live.transport import wire
from wend.model.errors import Refused, Untrusted, WendError, WireError
from wend.model.publication import Publication
from wend.protocol.notices import MissedCode
from wend.protocol.ports import Deliver, Receipt

if TYPE_CHECKING:
    from wend.drivers.live.broker.listener import TcpListener

log = logging.getLogger("wend.clients")

STRANGER_FRAME_BYTES = 4096
"""The size limit for the first frame of a client that is not known yet."""


class ClientSession(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, listener: "TcpListener", source: str) -> None:
        self._listener = listener
        self._broker = listener.broker
        self._splitter = wire.FrameSplitter(STRANGER_FRAME_BYTES)
        self.transport: asyncio.Transport | None = None
        """The connection; None once the session has ended."""
        self._client = AdmittedClient(listener, source)
        self._output = ClientOutput(self._broker.counts, listener.queue_msgs, listener.queue_bytes, self._confirm)
        self._requests: ClientRequests | None = None
        """None until the client has greeted."""
        self._posting: Posting | None = None
        """The `Post` that the session is serving."""
        self._until = 0.0
        """The monotonic time at which the session's turn ends."""
        self._pause = PublisherPause(lambda: self._broker.peer.is_crowded, self._schedule)
        self._reading = True
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_stalled(self) -> bool:
        """Whether the client reads more slowly than frames are written."""
        return self._output.is_stalled

    @property
    def queued_bytes(self) -> int:
        """The size of the queue of a client that does not read."""
        return self._output.queue.size_bytes

    # ---------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._output.open(self.transport)
        self._broker.counts["connected"] += 1
        try:
            self._client.take_slot()
        except Refused as error:
            self._broker.counts["refused"] += 1
            self._dismiss(error)
            return
        self._listener.sessions.add(self)
        self._broker.counts["now"] += 1
        self._set_timer(self._listener.greet_s, self._on_greet_timeout)
        try:
            self._client.verify_tls(transport.get_extra_info("ssl_object"))
        except Untrusted as error:
            self._reject(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._cancel_timer()
        self._client.release_access()
        if self in self._listener.sessions:
            self._listener.sessions.discard(self)
            self._broker.counts["now"] -= 1
        self._output.clear()
        self._broker.disconnect(self)

    def end(self) -> None:
        """Close the connection. The client has as long as it may stall to read the frames written before. Other members
        of its queue groups get its further events."""
        transport, self.transport = self.transport, None
        if transport is None:
            return  # it has ended already
        self._cancel_timer()
        self._output.end()
        self._broker.disconnect(self)
        if self.is_stalled:
            transport.abort()
        else:
            self._set_timer(self._listener.stall_s, transport.abort)
            transport.close()  # by TLS it may be lost before this returns

    def _dismiss(self, error: WendError) -> None:
        """Report to the client why its session ends, and end it."""
        self._output.answer(frames.RefusedFrame(0, error.code, str(error)))
        self.end()

    def _reject(self, error: Untrusted | Refused) -> None:
        """End the session of a client that may not connect, or no longer may."""
        self._broker.counts[error.code if error.code in DENIALS else "not-admitted"] += 1
        self._dismiss(error)

    def recheck(self) -> None:
        """End the session if the client's keys have ended or are no longer trusted, or if its rights have changed."""
        if self.transport is not None:
            try:
                self._client.recheck()
            except (Untrusted, Refused) as error:
                self._reject(error)

    def _on_greet_timeout(self) -> None:
        self._broker.counts["silent"] += 1
        self._dismiss(WireError(f"a client has to greet within {self._listener.greet_s:g} s", code="not-greeted"))

    def _set_timer(self, wait_s: float, do: Callable[..., None], *arguments: int) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(wait_s, do, *arguments)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---------------------------------------------------------------- requests, in turns with other clients

    def data_received(self, data: bytes) -> None:
        self._splitter.feed(data)
        self._schedule()

    def _schedule(self) -> None:
        """Have the requests that were read served: at once, or in turn with other clients."""
        if self.transport is not None and not self._scheduled:
            self._scheduled = True
            self._broker.scheduler.add(self)

    def work(self, until: float) -> bool:
        """Serve requests until this time. Returns whether some are left."""
        self._scheduled = False
        self._until = until
        if self._is_held_up():
            return False
        try:
            return self._answer_requests()
        except WireError as error:
            self._broker.counts["garbage"] += 1
            self._dismiss(error)
        except Exception:
            self._broker.counts["failed"] += 1
            log.exception("the session of a client failed and is closed; the peer goes on")
            self.end()
        return False

    def _is_held_up(self) -> bool:
        """Whether it cannot serve requests now: it has ended, its client does not read, or links are congested."""
        return self.transport is None or self._output.is_stalled or self._pause.is_active

    def _must_pause(self) -> bool:
        return self._is_held_up() or time.monotonic() >= self._until

    def _answer_requests(self) -> bool:
        bodies = self._splitter.frames()
        while True:
            if self._posting is not None:
                answer = self._posting.serve(self._publish, self._must_pause, self._broker.counts)
                if answer is not None:
                    self._posting = None
                    self._output.answer(answer)
            elif (body := next(bodies, None)) is not None:
                self._on_request(wire.decode_to_peer(body))
            else:
                break
            if self._is_held_up():
                return False
            if time.monotonic() >= self._until:
                self._pause_reading()
                self._scheduled = True
                return True
        if not self._reading and self.transport is not None:
            self._reading = True
            self.transport.resume_reading()
        return False

    def _pause_reading(self) -> None:
        if self._reading and self.transport is not None:
            self._reading = False
            self.transport.pause_reading()

    def _on_request(self, frame: frames.ToPeer) -> None:
        requests = self._requests
        if isinstance(frame, frames.Greet):
            self._greet(frame)
        elif requests is None:
            raise WireError("a client has to greet first", code="not-greeted")
        elif isinstance(frame, frames.Note):
            requests.serve_unanswered(frame)
        elif isinstance(frame, frames.Post):
            self._posting = Posting(frame)
        else:
            try:
                if isinstance(frame, frames.Publish):
                    receipt = self._publish(frame.publication())
                    targets, repeated = len(receipt.targets), receipt.is_repeated
                    answer = frames.Accepted(frame.ref, receipt.id, targets, receipt.kept, receipt.congested, repeated)
                    self._output.answer(answer)
                else:
                    requests.serve(frame)
            except WendError as error:
                requests.refuse(frame.ref, error)

    def _greet(self, frame: frames.Greet) -> None:
        if frame.version != frames.VERSION:
            sentence = f"the client speaks version {frame.version}, this peer version {frames.VERSION}"
            raise WireError(sentence, code="other-version")
        if self._requests is None:
            try:
                self._client.admit(frame.token)
            except (Untrusted, Refused) as error:
                self._reject(error)
                return
            self._splitter.limit = frames.MAX_FRAME_BYTES
            self._requests = ClientRequests(self._broker, self, self._output, self._client)
            self._cancel_timer()
        self._output.batches = frame.batches
        peer = self._broker.peer
        self._output.answer(frames.Welcome(peer.id, peer.incarnation))

    def _confirm(self, handle: int, positions: tuple[int, ...]) -> None:
        self._broker.confirm_deliveries(self, handle, positions)

    # ---------------------------------------------------------------- publications

    def _publish(self, publication: Publication) -> Receipt:
        """Publish for the client, and pause the client if links are congested. Raises `WendError` if it is refused."""
        receipt = self._broker.publish(publication, self._client.access)
        if receipt.congested:
            self._pause_reading()
            self._pause.begin()
        return receipt

    # ---------------------------------------------------------------- deliveries (`BrokerClient`)

    def on_missed(self, handle: int, counts: dict[MissedCode, int]) -> None:
        self._output.report_missed(handle, {str(reason): count for reason, count in counts.items()})

    def on_replaced(self, handle: int) -> None:
        if self._client.access is not None:
            self._client.access.release_subscription(handle)
        self._output.answer(frames.Replaced(handle))

    def deliver(self, handle: int, effect: Deliver) -> None:
        if self.transport is None:
            return
        access = self._client.access
        checks = access is not None and (effect.position or effect.event.headers)  # others match what it subscribed to
        if access is None or not checks or access.may_receive(effect.event, effect.position > 0):
            self._output.deliver(handle, effect)
        else:
            self._skip_ungranted(handle, effect.position)

    def _skip_ungranted(self, handle: int, position: int) -> None:
        """Skip an event in a backlog that the client may no longer receive."""
        self._broker.counts["withheld"] += 1
        self._output.report_missed(handle, {"not-granted": 1})
        # Not now: the peer is handing over the event.
        asyncio.get_running_loop().call_soon(self._confirm, handle, (position,))

    def pause_writing(self) -> None:
        if self.transport is not None:
            self._output.is_stalled = True
            self._pause_reading()
            self._set_timer(self._listener.stall_s, self._on_stall_timeout, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if self.transport is None:
            return
        self._cancel_timer()
        self._output.resume()
        self._broker.readers.resume(self)
        if not self.is_stalled:
            self._schedule()

    def _on_stall_timeout(self, unread_before: int) -> None:
        """End the session if the client has read nothing since the last check."""
        if self.transport is None:
            return
        unread = self.transport.get_write_buffer_size()
        if unread < unread_before:
            self._set_timer(self._listener.stall_s, self._on_stall_timeout, unread)
        else:
            self._broker.counts["stalled"] += 1
            self.end()
