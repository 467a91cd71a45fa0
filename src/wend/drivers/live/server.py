"""The clients of a peer: sessions over TCP, none of which can hold up the peer or another client.

A session has a bounded queue of deliveries. While the client's socket takes what is written, the queue
is empty; when the client stops reading it fills, and then the oldest deliveries give way to the
newest, counted and reported to the client as soon as it reads again. One that reads nothing for a
minute while something waits for it is sent away, as is one that does not greet. Answers are not dropped:
while a client does not take them, its questions are not read. Who asks much at once is answered a few milliseconds
at a time, in turn with the others who do, and the peer does its own work in between.

Clients that want the same thing equally soon share one subscription of the peer, so what is flooded
through the overlay does not grow with their number.
"""

import asyncio
import logging
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from typing import cast

from wend.drivers.live import frames
from wend.drivers.live.addresses import Address, bind, check_listen
from wend.drivers.live.fair_scheduler import FairScheduler
from wend.drivers.live.peer import LivePeer
from wend.matching.filters import parse
from wend.model.errors import ConfigError, FilterError, Refused, WendError, WireError
from wend.model.events import MAX_DEADLINE_NS, Qos
from wend.model.units import SECOND, Nanos
from wend.protocol.ports import Deliver, LocalSubscription, Subscribed, Unsubscribed

log = logging.getLogger("wend.clients")

QUEUE_MSGS = 10_000
QUEUE_BYTES = 8 * 1024 * 1024
STALL_S = 60.0
GREET_S = 10.0
MAX_CLIENTS = 1_000
MAX_HANDLES = 1_000
# Every change floods all subscriptions of a peer.
MAX_INTEREST_BYTES = 48_000
_SUBSCRIPTION_BYTES = 96
_WRITE_HIGH_BYTES = 256 * 1024
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}

Wanted = tuple[str, Nanos | None, float | None]
"""A filter, a deadline, a reliability."""
Handle = tuple["Session", int]


class Server:
    """Between one live peer and all its clients."""

    def __init__(
        self,
        peer: LivePeer,
        *,
        queue_msgs: int = QUEUE_MSGS,
        queue_bytes: int = QUEUE_BYTES,
        stall_s: float = STALL_S,
        greet_s: float = GREET_S,
        experiments: bool = False,
        load_plan: Callable[[], Coroutine[None, None, int]] | None = None,
    ) -> None:
        self.peer = peer
        self.queue_msgs = queue_msgs
        self.queue_bytes = queue_bytes
        self.stall_s = stall_s
        self.greet_s = greet_s
        self.experiments = experiments
        self.load_plan = load_plan
        self.counts: Counter[str] = Counter()
        self.address: Address = ("", 0)
        self.sessions: set[Session] = set()
        self._listener: asyncio.Server | None = None
        self._numbers: dict[Wanted, int] = {}
        self._handles: dict[int, dict[Handle, None]] = {}
        self._next_number = 1
        self.turns = FairScheduler()
        peer.on_deliver = self._deliver

    async def start(self, listen: Address = ("127.0.0.1", 0), *, insecure: bool = False) -> None:
        bound = bind(check_listen(listen, insecure), socket.SOCK_STREAM)
        self.address = bound.getsockname()[:2]
        self._listener = await asyncio.get_running_loop().create_server(lambda: Session(self), sock=bound)

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for session in list(self.sessions):
            session.end()
        await asyncio.sleep(0)

    def status(self) -> dict[str, int]:
        """What was counted, and how the peer stands now."""
        return self.counted() | {"clients.now": len(self.sessions)} | self.peer.standing()

    def counted(self) -> dict[str, int]:
        mine = {f"clients.{what}": count for what, count in sorted(self.counts.items())}
        lost = {"shaper.lost": self.peer.shaper.lost()}
        return self.peer.counters.flat() | mine | lost

    # ---------------------------------------------------------------- subscriptions

    def subscribe(self, handle: Handle, wanted: Wanted) -> None:
        number = self._numbers.get(wanted)
        if number is None:
            number = self._new_subscription(wanted)
        self._handles[number][handle] = None

    def unsubscribe(self, handle: Handle, wanted: Wanted) -> None:
        number = self._numbers[wanted]
        handles = self._handles[number]
        del handles[handle]
        if not handles:
            del self._numbers[wanted], self._handles[number]
            self.peer.ask(Unsubscribed(number))

    def _new_subscription(self, wanted: Wanted) -> int:
        text, deadline, reliability = wanted
        parse(text)
        size = sum(_SUBSCRIPTION_BYTES + len(t.encode()) for t, *_ in (*self._numbers, wanted))
        if size > MAX_INTEREST_BYTES:
            raise Refused(f"this peer has {len(self._numbers)} subscriptions and cannot announce more")
        number = self._next_number
        self.peer.ask(Subscribed(LocalSubscription(number, text, Qos(deadline_ns=deadline, reliability=reliability))))
        self._next_number += 1
        self._numbers[wanted], self._handles[number] = number, {}
        return number

    def _deliver(self, effect: Deliver) -> None:
        late = effect.deadline_ns is not None and effect.age_ns > effect.deadline_ns
        for session, handle in list(self._handles.get(effect.subscription.number, ())):
            session.deliver(handle, frames.encode(frames.Delivery(handle, effect.event, effect.age_ns, late)))


def _tune(connection: socket.socket) -> None:
    # Receipts and events are small and wanted now.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A client whose host is gone says nothing, and would be remembered for ever.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Session(asyncio.Protocol):
    """One client."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._splitter = frames.Splitter()
        self._transport: asyncio.Transport | None = None
        self._greeted = False
        self._wanted: dict[int, Wanted] = {}
        self._queue: deque[tuple[int, bytes]] = deque()
        self._queue_bytes = 0
        self._dropped: Counter[int] = Counter()
        self._stalled = False
        self._reading = True
        self._waits = False
        """For its turn."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # ---------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        _tune(transport.get_extra_info("socket"))
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        self._server.counts["connected"] += 1
        if len(self._server.sessions) >= MAX_CLIENTS:
            self._server.counts["refused"] += 1
            self._say(frames.No(0, f"this peer serves {MAX_CLIENTS} clients and takes no more"))
            self.end()
            return
        self._server.sessions.add(self)
        self._in(self._server.greet_s, self._not_greeted)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._cancel()
        self._server.sessions.discard(self)
        self._queue.clear()
        for handle in list(self._wanted):
            self._forget(handle)

    def data_received(self, data: bytes) -> None:
        self._splitter.feed(data)
        self._serve()

    def _serve(self) -> None:
        """Until all that was read is answered, nothing more is read."""
        if self._transport is not None and not self._waits:
            self._waits = True
            self._server.turns.take(self)

    def work(self, until: float) -> bool:
        """Answer what the client has asked; whether time ran out before that was done."""
        self._waits = False
        if self._transport is None or self._stalled:
            return False
        try:
            for body in self._splitter.frames():
                self._frame(frames.decode_to_peer(body))
                if self._transport is None or self._stalled:
                    return False
                if time.monotonic() >= until:
                    self._pause_reading(self._transport)
                    self._waits = True
                    return True
            if not self._reading:
                self._reading = True
                self._transport.resume_reading()
        except WireError as error:
            self._server.counts["garbage"] += 1
            self._say(frames.No(0, str(error)))
            self.end()
        except Exception:
            self._server.counts["failed"] += 1
            log.exception("a client's session failed and is closed; the peer goes on")
            self.end()
        return False

    def _pause_reading(self, transport: asyncio.Transport) -> None:
        if self._reading:
            self._reading = False
            transport.pause_reading()

    def end(self) -> None:
        """What was said before may still be read, for as long as a client may stall."""
        self._cancel()
        if self._transport is not None:
            if self._stalled:
                self._transport.abort()
            else:
                self._transport.close()
                self._in(self._server.stall_s, self._transport.abort)
            self._transport = None

    # ---------------------------------------------------------------- patience

    def _in(self, wait_s: float, do: Callable[..., None], *words: int) -> None:
        self._cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_s, do, *words)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _not_greeted(self) -> None:
        self._server.counts["silent"] += 1
        self._say(frames.No(0, f"a client has to greet within {self._server.greet_s:g} s"))
        self.end()

    def _still_stalled(self, unread: int) -> None:
        """`unread` bytes waited for the client's socket when this was last asked."""
        if self._transport is None:
            return
        left = self._transport.get_write_buffer_size()
        if left < unread:
            self._in(self._server.stall_s, self._still_stalled, left)
        else:
            self._server.counts["stalled"] += 1
            self.end()

    # ---------------------------------------------------------------- questions and answers

    def _frame(self, frame: frames.ToPeer) -> None:
        if isinstance(frame, frames.Greet):
            self._greet(frame)
        elif not self._greeted:
            raise WireError("a client has to greet first")
        else:
            try:
                answer = self._answer(frame)
                if answer is not None:
                    self._say(answer)
            except WendError as error:
                self._server.counts["denied"] += 1
                self._say(frames.No(frame.ref, str(error), filter=isinstance(error, FilterError)))

    def _greet(self, frame: frames.Greet) -> None:
        if frame.version != frames.VERSION:
            raise WireError(f"the client speaks version {frame.version}, this peer version {frames.VERSION}")
        if not self._greeted:
            self._cancel()
        self._greeted = True
        self._say(frames.Welcome(self._server.peer.id, self._server.peer.incarnation))

    def _answer(self, frame: frames.ToPeer) -> frames.ToClient | None:
        """None where the answer comes later."""
        match frame:
            case frames.Publish(ref, attributes, payload, headers):
                receipt = self._server.peer.publish(attributes, payload, headers)
                return frames.Accepted(ref, receipt.id, len(receipt.targets), receipt.kept)
            case frames.Subscribe(ref, handle, text, deadline, reliability):
                self._subscribe(handle, (text, deadline, reliability))
                return frames.DoneFrame(ref)
            case frames.Unsubscribe(ref, handle):
                self._forget(handle)
                return frames.DoneFrame(ref)
            case frames.PingFrame(ref):
                return frames.DoneFrame(ref)
            case frames.AskStatus(ref):
                return frames.StatusFrame(ref, self._server.peer.id, self._server.status())
            case frames.LoadPlan(ref):
                self._load_plan(ref)
                return None
            case frames.SetLink(ref, peer, up):
                self._set_link(peer, up)
                return frames.DoneFrame(ref)
        raise WireError("a client greets once")

    def _subscribe(self, handle: int, wanted: Wanted) -> None:
        if handle < 1:
            raise Refused(f"a subscription's number starts at 1, got {handle}")
        if handle in self._wanted:
            raise Refused(f"subscription {handle} exists already")
        if len(self._wanted) >= MAX_HANDLES:
            raise Refused(f"a client may have {MAX_HANDLES} subscriptions")
        if wanted[1] is not None and not 0 < wanted[1] <= MAX_DEADLINE_NS:
            raise Refused(f"a deadline must be above 0 and up to {MAX_DEADLINE_NS // SECOND} s")
        if wanted[2] is not None and not 0.0 < wanted[2] <= 1.0:
            raise Refused("a reliability must lie above 0 and up to 1")
        self._server.subscribe((self, handle), wanted)
        self._wanted[handle] = wanted

    def _forget(self, handle: int) -> None:
        wanted = self._wanted.pop(handle, None)
        self._dropped.pop(handle, None)
        if wanted is not None:
            try:
                self._server.unsubscribe((self, handle), wanted)
            except WendError as error:
                log.info("unsubscribing from a peer that is gone: %s", error)

    def _load_plan(self, ref: int) -> None:
        if self._server.load_plan is None:
            raise Refused("this peer has no configuration to name a plan")
        task = asyncio.get_running_loop().create_task(self._loaded(ref, self._server.load_plan()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _loaded(self, ref: int, loading: Coroutine[None, None, int]) -> None:
        try:
            self._say(frames.Following(ref, await loading))
        except WendError as error:
            self._say(frames.No(ref, str(error)))

    def _set_link(self, neighbour: int, up: bool) -> None:
        if not self._server.experiments:
            raise Refused("this peer allows no experiments: set experiments = true in its configuration")
        try:
            (self._server.peer.shaper.heal if up else self._server.peer.shaper.cut)(neighbour)
        except ConfigError as error:
            raise Refused(str(error)) from None

    def _say(self, frame: frames.ToClient) -> None:
        if self._transport is not None:
            # Behind the deliveries that wait, so that a ping's answer comes after them.
            if self._queue:
                self._enqueue(0, frames.encode(frame))
            else:
                self._transport.write(frames.encode(frame))

    # ---------------------------------------------------------------- deliveries

    def deliver(self, handle: int, frame: bytes) -> None:
        if self._transport is None:
            return
        if not self._stalled:
            self._transport.write(frame)
            return
        self._enqueue(handle, frame)
        while len(self._queue) > self._server.queue_msgs or self._queue_bytes > self._server.queue_bytes:
            if not self._drop_oldest():
                return

    def _enqueue(self, handle: int, frame: bytes) -> None:
        self._queue.append((handle, frame))
        self._queue_bytes += len(frame)

    def _drop_oldest(self) -> bool:
        """Answers (handle 0) stay; there are few, since no questions are read now."""
        for place, (handle, frame) in enumerate(self._queue):
            if handle:
                del self._queue[place]
                self._queue_bytes -= len(frame)
                self._dropped[handle] += 1
                self._server.counts["dropped"] += 1
                return True
        return False

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._stalled = True
            self._pause_reading(self._transport)
            self._in(self._server.stall_s, self._still_stalled, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if self._transport is None:
            return
        self._stalled = False
        self._cancel()
        for handle, count in sorted(self._dropped.items()):
            self._say_now(frames.encode(frames.Dropped(handle, count)))
        self._dropped.clear()
        while self._queue and not self._stalled and self._transport is not None:
            _, frame = self._queue.popleft()
            self._queue_bytes -= len(frame)
            self._transport.write(frame)
        if not self._stalled:
            self._serve()

    def _say_now(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)
