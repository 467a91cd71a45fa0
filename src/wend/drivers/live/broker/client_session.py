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
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import msgspec

from wend.drivers.live import frames
from wend.drivers.live.access.grants import DENIALS
from wend.drivers.live.broker.admitted_client import AdmittedClient
from wend.drivers.live.broker.client_requests import ClientRequests
from wend.drivers.live.broker.posting import Posting
from wend.drivers.live.broker.publisher_pause import PublisherPause
from wend.drivers.live.broker.stalled_queue import StalledQueue
from wend.drivers.live.transport import wire
from wend.model.errors import Refused, Untrusted, WendError, WireError
from wend.model.events import event_bytes
from wend.model.publication import Publication
from wend.model.units import Nanos
from wend.protocol.notices import MissedCode
from wend.protocol.ports import Deliver, Receipt

if TYPE_CHECKING:
    from wend.drivers.live.broker.listener import TcpListener

log = logging.getLogger("wend.clients")

STRANGER_FRAME_BYTES = 4096
"""The size limit for the first frame of a client that is not known yet."""
WRITE_HIGH_BYTES = 256 * 1024
GATHER_BYTES = 64 * 1024
"""Output beyond this size is written before the turn of the event loop ends."""


class ClientOutput:
    """Gathers the frames for one client, and writes them once in a turn of the event loop."""

    def __init__(
        self, counts: Counter[str], queue_msgs: int, queue_bytes: int, confirm: Callable[[int, tuple[int, ...]], None]
    ) -> None:
        """`confirm`: see `StalledQueue`."""
        self.is_stalled = False
        """Whether the client reads more slowly than frames are written."""
        self.batches = False
        """Whether the client accepts several deliveries in one frame."""
        self.queue = StalledQueue(counts, queue_msgs, queue_bytes, self._encode_delivery, confirm)
        self.counts = counts
        self._transport: asyncio.Transport | None = None
        self._unwritten: list[bytes] = []
        """Frames that are written when this turn of the event loop ends."""
        self._gathered: list[frames.Delivery] = []
        """Deliveries after those frames, to be sent in one frame."""
        self._unwritten_bytes = 0

    def open(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES - GATHER_BYTES)

    def end(self) -> None:
        """Write the gathered frames, and accept no more."""
        self.flush()
        self._transport = None

    def clear(self) -> None:
        """Drop everything, because the connection has ended."""
        self._transport = None
        self.queue.clear()
        self._unwritten.clear()
        self._gathered.clear()

    def deliver(self, handle: int, effect: Deliver) -> None:
        if self._transport is None:
            return
        if self.is_stalled:
            self.queue.add_delivery(handle, effect)
        else:
            self._write_later(event_bytes(effect.event))
            self._gathered.append(_make_delivery(handle, effect, 0))

    def report_missed(self, handle: int, counts: dict[str, int]) -> None:
        """Report that a subscription will not get some events."""
        if self.queue or self.is_stalled:
            self.queue.add_missed(handle, counts)
        else:
            self.answer(frames.MissedFrame(handle, counts))

    def answer(self, frame: frames.ToClient) -> None:
        """Write an answer after the deliveries that wait, so that a client may rely on the order."""
        if self._transport is None:
            return
        encoded = wire.encode_frame(frame)
        if self.queue:
            self.queue.add_answer(encoded)
        else:
            self._write_later(len(encoded))
            self._close_batch()
            self._unwritten.append(encoded)

    def flush(self) -> None:
        """Write the frames gathered in this turn of the event loop."""
        self._unwritten_bytes = 0
        self._close_batch()
        if self._unwritten:
            encoded = b"".join(self._unwritten)
            self._unwritten.clear()
            if self._transport is not None:
                self._transport.write(encoded)

    def resume(self) -> None:
        """Write the frames that wait, as long as the client reads."""
        if self._transport is None:
            return
        self.is_stalled = False
        self.flush()
        for encoded in self.queue.drain():
            if encoded:
                self._transport.write(encoded)
            if self.is_stalled or self._transport is None:
                return

    def _write_later(self, size: int) -> None:
        if not self._unwritten_bytes:
            asyncio.get_running_loop().call_soon(self.flush)
        elif self._unwritten_bytes + size > GATHER_BYTES:
            self.flush()
        self._unwritten_bytes += size

    def _close_batch(self) -> None:
        """Turn the gathered deliveries into frames."""
        gathered = self._gathered
        if not gathered:
            return
        self._gathered = []
        if self.batches and len(gathered) > 1:
            try:
                self._unwritten.append(wire.encode_frame(frames.Deliveries(tuple(gathered))))
                return
            except WireError:
                pass  # one of them cannot be encoded
        self._unwritten.extend(map(self._encode, gathered))

    def _encode_delivery(self, handle: int, effect: Deliver, waited_ns: Nanos) -> bytes:
        return self._encode(_make_delivery(handle, effect, waited_ns))

    def _encode(self, delivery: frames.Delivery) -> bytes:
        """The frame of a delivery. If it cannot be encoded, the frame says that the client misses an event."""
        try:
            return wire.encode_frame(delivery)
        except WireError as error:
            self.counts["undeliverable"] += 1
            log.info("event %s cannot be delivered to a client: %s", delivery.event.id, error)
            return wire.encode_frame(frames.MissedFrame(delivery.handle, {"undeliverable": 1}))


def _make_delivery(handle: int, effect: Deliver, waited_ns: Nanos) -> frames.Delivery:
    age = effect.age_ns + waited_ns
    late = effect.deadline_ns is not None and age > effect.deadline_ns
    event = effect.event
    if event.groups or event.previous:  # these fields are for peers, and may be long
        event = msgspec.structs.replace(event, groups=(), previous=())
    return frames.Delivery(handle, event, age, late, effect.position, effect.again, effect.retained)


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
        elif isinstance(frame, frames.Confirm | frames.StandBy):
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
