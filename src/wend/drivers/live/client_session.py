"""The session of one client over TCP, which can hold up neither the peer nor another client.

A session translates frames (`frames.py`) into requests to the broker, and deliveries into frames. It has a bounded
queue of deliveries. While the client reads, the queue is empty. When the client stops reading, the queue fills. A full
queue drops the oldest deliveries, and the session reports their number once the client reads again. A client that reads
nothing for a minute while something waits for it is disconnected, as is one that does not greet. Answers are never
dropped: while a client does not read them, its requests are not read either. Nor are the requests of a client that
publishes while too much waits for the links of the peer: so publishers become as slow as the network.
"""

import asyncio
import logging
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from wend.drivers.live import frames
from wend.drivers.live.access import Access
from wend.drivers.live.clock import monotonic
from wend.drivers.live.config import NeighbourEntry
from wend.drivers.live.grants import Denial, NotGranted
from wend.drivers.live.plan_pieces import PlanPieces
from wend.drivers.live.source_limits import STATUS_PER_S, STATUS_PER_SOURCE_S
from wend.model.errors import FilterError, Refused, WendError, WireError
from wend.model.events import Attributes, Headers, PeerId, Qos, Value, event_bytes
from wend.model.units import Nanos
from wend.protocol.notices import MissedReason
from wend.protocol.ports import Deliver, Receipt, Unretained
from wend.security.identity import Identity, Untrusted

if TYPE_CHECKING:
    from wend.drivers.live.listener import TcpListener

log = logging.getLogger("wend.clients")

WRITE_HIGH_BYTES = 256 * 1024
GATHER_BYTES = 64 * 1024
"""So much is written before the turn of the event loop ends."""
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
        self._access: Access | None = None
        """What the client may do; None: everything."""
        self._host = source
        self.greeted = False
        self.stalled = False
        """Whether the client reads more slowly than frames are written."""
        self._queue: deque[tuple[int, int, bytes | tuple[Deliver, Nanos]]] = deque()
        """What waits for the client, after its size: the frame of an answer, with 0 for a handle, or a delivery, with
        the time since which it waits. A delivery is encoded when it is written, because it grows older until then."""
        self.queued_bytes = 0
        self._batches = False
        """Whether the client takes several deliveries in one frame."""
        self._unwritten: list[bytes] = []
        """Frames that are written when this turn of the event loop ends."""
        self._gathered: list[frames.Delivery] = []
        """Deliveries after them, for one frame."""
        self._unwritten_bytes = 0
        self._posting: Posting | None = None
        """The `Post` that is being served. It may take several turns."""
        self._served_at: float | None = None
        """When the last request was served, while the peer cannot take more; None: it can."""
        self._dropped: Counter[int] = Counter()
        self._reading = True
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._plan_pieces = PlanPieces()

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection; None once the session has ended."""
        return self._transport

    # ---------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        _tune(transport.get_extra_info("socket"))
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES - GATHER_BYTES)
        self._broker.counts["connected"] += 1
        most = self._listener.max_clients
        if len(self._listener.sessions) >= most:
            self._broker.counts["refused"] += 1
            self._answer(frames.No(0, f"this peer serves {most} clients and takes no more"))
            self.end()
            return
        self._listener.sessions.add(self)
        self._broker.counts["now"] += 1
        self._call_in(self._listener.greet_s, self._not_greeted)
        tls = transport.get_extra_info("ssl_object")
        shown = None if tls is None else tls.getpeercert(True)
        if shown is not None:
            try:
                self._identity = self._listener.admission.by_certificate(shown)
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
        self._queue.clear()
        self._unwritten.clear()
        self._gathered.clear()
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
        if self._transport is None or self.stalled or self._served_at is not None:
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
                if self._transport is None or self.stalled or self._served_at is not None:
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
            self._answer(frames.No(0, str(error)))
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
        """Close the connection. The client can read the frames written before, for as long as it may stall."""
        self._cancel_timer()
        self._write_gathered()
        transport, self._transport = self._transport, None
        if transport is None:
            return
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
        self._answer(frames.No(0, why))
        self.end()

    def recheck(self) -> None:
        """End the session if the client's keys have ended, or its rights have changed."""
        admission = self._listener.admission
        try:
            if self._identity is not None:
                admission.check(self._identity)
        except Untrusted as error:
            self._turn_away(str(error))
            return
        if self.greeted and admission.is_changed(self._identity, self._access):
            self._turn_away("what this client may do has changed: it connects again", "rights-changed")

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
        self._answer(frames.No(0, f"a client has to greet within {self._listener.greet_s:g} s"))
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
        if isinstance(frame, frames.Greet):
            self._greet(frame)
        elif not self.greeted:
            raise WireError("a client has to greet first")
        elif isinstance(frame, frames.Confirm):
            self._broker.confirm(self, frame.handle, frame.positions)
        else:
            try:
                self._serve(frame)
            except WendError as error:
                self._refuse(frame.ref, error)

    def _greet(self, frame: frames.Greet) -> None:
        if frame.version != frames.VERSION:
            raise WireError(f"the client speaks version {frame.version}, this peer version {frames.VERSION}")
        if not self.greeted:
            try:
                self._admit(frame.token)
            except (Untrusted, NotGranted) as error:
                counter = error.counter if isinstance(error, NotGranted) else "not-admitted"
                self._turn_away(str(error), counter)
                return
            self._cancel_timer()
        self.greeted = True
        self._batches = frame.batches
        peer = self._broker.peer
        self._answer(frames.Welcome(peer.id, peer.incarnation))

    def _admit(self, token: str) -> None:
        """Find out who the client is and what it may do. Raises `Untrusted` or `NotGranted`."""
        admission = self._listener.admission
        tls = self._transport is not None and self._transport.get_extra_info("ssl_object") is not None
        if tls and self._identity is None:
            self._identity = admission.by_token(token)
        backlogs = self._broker.peer.peer.durable.values()
        self._access = admission.open(self._identity, [backlog.options for backlog in backlogs])
        self._splitter.limit = frames.MAX_FRAME_BYTES
        self._known()

    def _check_admin(self) -> None:
        if self._access is not None:
            self._access.check_admin()

    def _publish(
        self,
        attributes: Attributes,
        payload: bytes,
        headers: Headers,
        ttl_ns: Nanos | None,
        to: PeerId | None,
        retain: str,
    ) -> Receipt:
        if ttl_ns is not None and ttl_ns <= 0:
            raise Refused(f"a ttl must be above 0, got {ttl_ns} ns")
        if self._access is not None:
            held = self._broker.peer.peer.retained.held
            self._access.check_publication(attributes, payload, headers, to, retain, held)
        return self._broker.publish(attributes, payload, headers, ttl_ns, to, retain)

    def _subscribe(self, frame: frames.Subscribe) -> None:
        if frame.handle < 1:
            raise Refused(f"a subscription's number starts at 1, got {frame.handle}")
        qos = Qos(
            deadline_ns=frame.deadline_ns,
            reliability=frame.reliability,
            order=frame.order,
            expire=frame.expire,
            group=frame.group,
        )
        text, durable = frame.filter, frame.durable
        if self._access is not None:
            text, durable = self._access.subscription(text, durable, frame.announced)
        self._broker.subscribe(self, frame.handle, text, qos, durable, frame.window, frame.announced)
        if self._access is not None:
            self._access.subscribed(frame.handle, durable)
        self._answer(frames.Completed(frame.ref))
        if frame.retained and frame.announced and frame.durable is None and not frame.group:
            self._broker.retained.subscribed(self, frame.handle, text)

    def _unretain(self, attribute: str, value: Value) -> None:
        if self._access is not None:
            self._access.check_replace(self._broker.peer.peer.retained.held(attribute, value))
            self._access.unretained(attribute, value)
        self._broker.peer.ask(Unretained(attribute, value))

    def _remove(self, name: str) -> None:
        if self._access is not None:
            name = self._access.removable(name)
            self._access.removed(name)
        self._broker.remove(name)

    def _check_status_call(self) -> None:
        """Over all connections of a client that shows keys, and over all clients of one source."""
        if self._identity is None:
            return
        listener, now_s = self._listener, time.monotonic()
        if not listener.status_of_clients.take(self._identity.name, now_s):
            raise NotGranted("status-refused", f"a client may ask for the status {STATUS_PER_S:g} times a second")
        if not listener.status_of_sources.take(self._host, now_s):
            most = f"{STATUS_PER_SOURCE_S:g} times a second"
            raise NotGranted("status-refused", f"clients of one host may ask for the status {most}")

    def _serve(self, frame: frames.Request) -> None:
        match frame:
            case frames.Publish(ref, attributes, payload, headers, ttl_ns, to, retain):
                receipt = self._publish(attributes, payload, headers, ttl_ns, to, retain)
                if receipt.congested:
                    self._wait_for_room()
                self._answer(frames.Accepted(ref, receipt.id, len(receipt.targets), receipt.kept, receipt.congested))
            case frames.Post(ref, events):
                self._posting = Posting(ref, events)
            case frames.Subscribe():
                self._subscribe(frame)
            case frames.Unsubscribe(ref, handle):
                self._dropped.pop(handle, None)
                self._broker.unsubscribe(self, handle)
                if self._access is not None:
                    self._access.unsubscribed(handle)
                self._answer(frames.Completed(ref))
            case frames.PingFrame(ref):
                self._answer(frames.Completed(ref))
            case frames.AskStatus(ref):
                self._check_status_call()
                self._answer(frames.StatusFrame(ref, self._broker.status()))
            case frames.ListSubscriptions(ref):
                durable = self._broker.durable()
                self._answer(
                    frames.Subscriptions(ref, durable if self._access is None else self._access.visible(durable))
                )
            case frames.Unretain(ref, attribute, value):
                self._unretain(attribute, value)
                self._answer(frames.Completed(ref))
            case frames.RemoveSubscription(ref, name):
                self._remove(name)
                self._answer(frames.Completed(ref))
            case frames.SetLink(ref, peer, up):
                self._check_admin()
                self._broker.set_link(peer, up)
                self._answer(frames.Completed(ref))
            case frames.AddLink(ref, peer, address, delay, reliability):
                self._check_admin()
                self._broker.add_link(NeighbourEntry(peer, address, delay, reliability))
                self._answer(frames.Completed(ref))
            case frames.RemoveLink(ref, peer):
                self._check_admin()
                self._broker.remove_link(peer)
                self._answer(frames.Completed(ref))
            case frames.LoadPlan() | frames.PreparePlan() | frames.CommitPlan() | frames.RevertPlan():
                self._check_admin()
                task = asyncio.get_running_loop().create_task(self._change_plan(frame))
                self._tasks.add(task)  # the loop itself holds tasks only weakly
                task.add_done_callback(self._tasks.discard)

    def _post_some(self, posting: "Posting", until: float) -> None:
        """Publish posted events until then. A frame has many, and other clients wait."""
        publish = self._publish
        for event in posting.left:
            try:
                receipt = publish(event.attributes, event.payload, event.headers, event.ttl_ns, None, event.retain)
                posting.accepted += 1
                if receipt.congested:
                    posting.congested = True
                    self._wait_for_room()
            except WendError as error:
                if isinstance(error, NotGranted):
                    self._broker.counts[error.counter] += 1
                posting.refused += 1
                posting.why = posting.why or str(error)
            if self._transport is None or self.stalled or self._served_at is not None or time.monotonic() >= until:
                return
        self._posting = None
        self._broker.counts["denied"] += posting.refused
        self._answer(frames.Posted(posting.ref, posting.accepted, posting.refused, posting.why, posting.congested))

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

    async def _change_plan(self, frame: frames.PlanRequest) -> None:
        try:
            self._answer(await self._plan_pieces.serve(frame, self._broker.followed_plan()))
        except WendError as error:
            self._refuse(frame.ref, error)

    def _refuse(self, ref: int, error: WendError) -> None:
        self._broker.counts["denied"] += 1
        if isinstance(error, NotGranted):
            self._broker.counts[error.counter] += 1
        self._answer(frames.No(ref, str(error), filter=isinstance(error, FilterError)))

    def _answer(self, frame: frames.ToClient) -> None:
        """Write an answer behind the deliveries that wait, so that the answer to a ping comes after them."""
        if self._transport is not None:
            encoded = frames.encode(frame)
            if self._queue:
                self._enqueue(0, len(encoded), encoded)
            else:
                self._write(encoded)

    # ---------------------------------------------------------------- one write per turn of the event loop

    def _write(self, encoded: bytes) -> None:
        """Write a frame with others of this turn of the event loop."""
        self._write_later(len(encoded))
        self._close_batch()
        self._unwritten.append(encoded)

    def _write_later(self, size: int) -> None:
        if not self._unwritten_bytes:
            asyncio.get_running_loop().call_soon(self._write_gathered)
        elif self._unwritten_bytes + size > GATHER_BYTES:
            self._write_gathered()
        self._unwritten_bytes += size

    def _close_batch(self) -> None:
        """Make frames of the deliveries that were gathered."""
        gathered = self._gathered
        if not gathered:
            return
        if self._batches and len(gathered) > 1:
            self._unwritten.append(frames.encode(frames.Deliveries(tuple(gathered))))
        else:
            self._unwritten.extend(map(frames.encode, gathered))
        gathered.clear()

    def _write_gathered(self) -> None:
        self._close_batch()
        self._unwritten_bytes = 0
        if self._unwritten:
            encoded = b"".join(self._unwritten)
            self._unwritten.clear()
            if self._transport is not None:
                self._transport.write(encoded)

    # ---------------------------------------------------------------- deliveries

    def missed(self, handle: int, counts: dict[MissedReason, int]) -> None:
        self._answer(frames.MissedFrame(handle, {str(reason): count for reason, count in counts.items()}))

    def replaced(self, handle: int) -> None:
        if self._access is not None:
            self._access.unsubscribed(handle)
        self._answer(frames.Replaced(handle))

    def deliver(self, handle: int, effect: Deliver) -> None:
        if self._transport is None:
            return
        if self._access is not None and not self._access.takes(effect.event, effect.position > 0):
            self._withhold(handle, effect.position)
            return
        if not self.stalled:
            self._write_later(event_bytes(effect.event))
            self._gathered.append(_delivery(handle, effect, 0))
            return
        self._enqueue(handle, event_bytes(effect.event), (effect, monotonic()))
        while len(self._queue) > self._listener.queue_msgs or self.queued_bytes > self._listener.queue_bytes:
            if not self._drop_oldest():
                return

    def _withhold(self, handle: int, position: int) -> None:
        """Skip an event of a backlog that came there when more was granted."""
        self._broker.counts["withheld"] += 1
        self._answer(frames.MissedFrame(handle, {"not granted": 1}))
        # Not now: the peer is handing over the event.
        asyncio.get_running_loop().call_soon(self._broker.confirm, self, handle, (position,))

    def _enqueue(self, handle: int, size: int, what: bytes | tuple[Deliver, Nanos]) -> None:
        self._queue.append((handle, size, what))
        self.queued_bytes += size

    def _drop_oldest(self) -> bool:
        """Drop the oldest delivery. Answers stay; they are few, since no requests are read now. So do deliveries of
        durable subscriptions: their windows bound them, and nobody would send them again to a client that stays."""
        for place, (handle, size, what) in enumerate(self._queue):
            if isinstance(what, tuple) and not what[0].position:
                del self._queue[place]
                self.queued_bytes -= size
                self._dropped[handle] += 1
                self._broker.counts["dropped"] += 1
                return True
        return False

    def pause_writing(self) -> None:
        if self._transport is not None:
            self.stalled = True
            self._pause_reading(self._transport)
            self._call_in(self._listener.stall_s, self._still_stalled, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if self._transport is None:
            return
        self.stalled = False
        self._cancel_timer()
        self._write_gathered()
        for handle, count in sorted(self._dropped.items()):
            self._transport.write(frames.encode(frames.Dropped(handle, count)))
        self._dropped.clear()
        while self._queue and not self.stalled and self._transport is not None:
            handle, size, what = self._queue.popleft()
            self.queued_bytes -= size
            if isinstance(what, tuple):
                effect, waited_ns = what[0], monotonic() - what[1]
                if effect.event.is_expired(effect.age_ns + waited_ns):
                    self._expired(handle, effect)
                    continue
                what = frames.encode(_delivery(handle, effect, waited_ns))
            self._transport.write(what)
        if not self.stalled:
            self._schedule()

    def _expired(self, handle: int, effect: Deliver) -> None:
        """A delivery waited here for longer than its event lives."""
        self._broker.counts["expired"] += 1
        if effect.position:
            self._broker.confirm(self, handle, (effect.position,))
        if self._transport is not None:
            self._transport.write(frames.encode(frames.MissedFrame(handle, {"expired": 1})))


def _delivery(handle: int, effect: Deliver, waited_ns: Nanos) -> frames.Delivery:
    age = effect.age_ns + waited_ns
    late = effect.deadline_ns is not None and age > effect.deadline_ns
    return frames.Delivery(handle, effect.event, age, late, effect.position, effect.again, effect.retained)


class Posting:
    """A `Post` that is being served."""

    def __init__(self, ref: int, events: tuple[frames.PostedEvent, ...]) -> None:
        self.ref = ref
        self.left = iter(events)
        self.accepted = self.refused = 0
        self.why = ""
        self.congested = False
