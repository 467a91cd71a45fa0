"""The peer on a real socket: datagrams and timers become inputs, effects become datagrams and timers.

All that a peer decides, it decides in `protocol`; this file only carries out. Its promise is that
nothing that comes from outside, and no mistake inside, ends the peer: each is counted, the first few
are logged with their cause, and the next datagram is served.

It reads its socket itself instead of through an asyncio transport: a flood is taken in bounded
batches, so that timers and clients are served in between, and strangers are turned away before
anything is allocated for them.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import structs

from wend.drivers.live import wire
from wend.drivers.live.addresses import Address, bind, check_listen, resolve
from wend.drivers.live.clock import Clock, monotonic
from wend.drivers.live.counters import Counters
from wend.drivers.live.outbox import Outbox
from wend.drivers.live.paths.probes import answer_to
from wend.drivers.live.paths.source import NoPaths, Paths
from wend.drivers.live.shaper import Pipe, Shaper, always_up
from wend.drivers.live.standing import standing
from wend.drivers.live.store import Store
from wend.model.errors import Refused, WendError, WireError
from wend.model.events import Attributes, Headers, PeerId
from wend.model.forwarding import Forwarding
from wend.model.units import MS, Nanos
from wend.protocol import ports
from wend.protocol.config import PeerConfig
from wend.protocol.messages import Ack
from wend.protocol.overlay.words import Path
from wend.protocol.peer import Peer
from wend.protocol.ports import (
    Deliver,
    Drop,
    Effect,
    FindPath,
    Input,
    Notice,
    PathFound,
    Planned,
    Published,
    Receipt,
    Received,
    Refuse,
    Send,
    Started,
    Stopping,
    WakeAt,
    Woken,
)

log = logging.getLogger("wend.peer")

RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
BATCH_DATAGRAMS = 64
WAITING_DATAGRAMS = 2048
"""Read before a timer runs, so that a busy host does not take for missing what waits at its own door."""
QUIET_NS = MS
"""A socket that had nothing to read for this long is quiet."""
LINGER_S = 0.5
STORE_AGAIN_S = 0.1
MAX_HELD = 10_000
"""Records and deliveries that wait for a store that cannot be written."""
_LOGGED_FAILURES = 20
_WOKEN = Woken()


class LivePeer:
    """Bound when made, so that its address is known; linked; then started."""

    def __init__(
        self,
        config: PeerConfig,
        *,
        listen: Address = ("127.0.0.1", 0),
        insecure: bool = False,
        store: Store | None = None,
        counters: Counters | None = None,
        clock: Clock = monotonic,
        paths: Paths | None = None,
        on_deliver: Callable[[Deliver], None] = lambda _: None,
        on_receipt: Callable[[Receipt], None] = lambda _: None,
        on_notice: Callable[[Notice], None] = lambda _: None,
    ) -> None:
        self.id = config.peer
        self.incarnation = config.incarnation
        self.counters = counters or Counters()
        self.shaper = Shaper()
        self._clock = clock
        self._paths = paths or NoPaths()
        self._finding: set[asyncio.Task[None]] = set()
        self.on_deliver = on_deliver
        self.on_receipt = on_receipt
        self.on_notice = on_notice
        self._peer = Peer(config)
        self._store = store
        self._outbox = Outbox(self.shaper.put)
        self._neighbours: dict[Address, PeerId] = {}
        self._addresses: dict[PeerId, Address] = {}
        self._hosts: set[str] = set()
        self._lives: dict[PeerId, int] = {}
        self._wake_ns: Nanos | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._receipt: Receipt | None = None
        self._held: deque[ports.Store | Deliver] = deque()
        self._again: asyncio.TimerHandle | None = None
        self._carry_out: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Deliver: self._deliver,
            Receipt: self._keep_receipt,
            WakeAt: self._wake_at,
            ports.Store: self._write,
            Drop: self._count_drop,
            Notice: self._count_notice,
            Refuse: self._count_refusal,
            FindPath: self._find_path,
        }
        self._read_ns: Nanos = 0
        self._batch = 1
        self._buffer = bytearray(65536)
        self._view = memoryview(self._buffer)
        self._socket = bind(check_listen(listen, insecure), socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        host, port = self._socket.getsockname()[:2]
        self.address: Address = (host, port)

    # ---------------------------------------------------------------- life

    def link(
        self,
        neighbour: PeerId,
        address: Address,
        *,
        delay_ns: Nanos = 0,
        loss: float = 0.0,
        seed: int = 0,
        is_up: Callable[[Nanos], bool] = always_up,
    ) -> None:
        """A neighbour's address, and what the link to it should play at being."""
        there = resolve(address, self._socket.family)
        self._neighbours[there] = neighbour
        self._addresses[neighbour] = there
        self._hosts.add(there[0])
        self._outbox.link(neighbour, wire.header(self.id, neighbour, self.incarnation))

        def transmit(datagram: bytes) -> None:
            self._transmit(there, datagram)

        self.shaper.add(
            neighbour, Pipe(transmit, delay_ns=delay_ns, loss=loss, seed=seed, is_up=is_up, clock=self._clock)
        )

    def start(self, started: Started) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._readable)
        self.ask(started)

    async def stop(self) -> None:
        """Leave in order: neighbours hear it and acknowledge what is under way, as far as half a second allows."""
        if self._loop is None:
            return
        self._tell(Stopping())
        until = self._loop.time() + LINGER_S
        while (self.shaper.in_flight() or self._peer.transmissions.under_way()) and self._loop.time() < until:
            await asyncio.sleep(0.005)
            if self._loop is None:
                return
        self.close()

    def close(self) -> None:
        """End at once, as a crash would: nobody is told."""
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop = None
        for task in self._finding:
            task.cancel()
        self._paths.close()
        if self._again is not None:
            self._again.cancel()
        self._store_again()
        self._outbox.drop()
        self.shaper.close()
        self._socket.close()
        if self._store is not None:
            self._store.close()

    def standing(self) -> dict[str, int]:
        return standing(self._peer)

    # ---------------------------------------------------------------- what the application wants

    def publish(self, attributes: Attributes, payload: bytes = b"", headers: Headers | None = None) -> Receipt:
        """Raises `Refused` where the event cannot travel."""
        wire.check_event(attributes, payload, headers)
        self._receipt = None
        self.ask(Published(attributes, payload, headers or {}))
        if self._receipt is None:
            raise Refused("the peer could not take the event; its log says why")
        return self._receipt

    def follow(self, plan: Forwarding) -> None:
        """Publish by this plan from here on. Raises `Refused` where the peer follows none."""
        if self._peer.config.strategy != "planned":
            raise Refused(f"this peer's strategy is {self._peer.config.strategy}, which follows no plan")
        self.ask(Planned(plan))

    def ask(self, event: Input) -> None:
        """An input on somebody's behalf: their mistake is raised, ours becomes `Refused`."""
        if self._loop is None:
            raise Refused("the peer is not running")
        try:
            effects = self._peer.handle(self._clock(), event)
        except WendError:
            raise
        except Exception:
            self._failed("handle", event)
            raise Refused("the peer failed inside; its log says how") from None
        self._carry(effects)

    def _tell(self, event: Input) -> None:
        """An input that nobody waits for."""
        try:
            effects = self._peer.handle(self._clock(), event)
        except Exception:
            self._failed("handle", event)
        else:
            self._carry(effects)

    # ---------------------------------------------------------------- the socket

    def _readable(self) -> None:
        """One datagram on a quiet socket, more at once on a busy one: asking in vain costs as much as reading."""
        began = self._clock()
        if began - self._read_ns > QUIET_NS:
            self._batch = 1
        if self._batch > 1:
            self._outbox.gather()
        for _ in range(self._batch):
            if not self._read():
                break
        else:
            self._batch = min(2 * self._batch, BATCH_DATAGRAMS)
        self._outbox.flush()
        self._read_ns = self._clock()

    def _read(self) -> bool:
        """Whether there was something, and may be more."""
        try:
            size, address = self._socket.recvfrom_into(self._buffer)
        except BlockingIOError:
            return False
        except OSError:
            self.counters.failed["receive"] += 1
            return False
        self._datagram(self._view[:size], address[:2])
        return self._loop is not None

    def _datagram(self, datagram: memoryview, address: Address) -> None:
        sender = self._neighbours.get(address)
        if sender is None:
            self._stranger(datagram, address)
            return
        try:
            header = wire.decode_header(datagram)
            if header.sender != sender or header.receiver != self.id:
                self.counters.refused["misdirected"] += 1
                return
            if header.incarnation < self._lives.get(sender, 0):
                self.counters.refused["stale"] += 1
                return
            messages = wire.decode_messages(datagram)
        except WireError:
            self.counters.refused["garbage"] += 1
            return
        self._lives[sender] = header.incarnation
        for message in messages:
            if self._loop is not None:
                self._tell(Received(sender, message))

    def _stranger(self, datagram: memoryview, address: Address) -> None:
        """Who probes the way to this peer from a neighbour's host is answered, and nobody else."""
        answer = answer_to(datagram) if address[0] in self._hosts else None
        if answer is None:
            self.counters.refused["stranger"] += 1
        else:
            self.counters.paths["probes answered"] += 1
            self._transmit(address, answer)

    def _transmit(self, address: Address, datagram: bytes) -> None:
        try:
            self._socket.sendto(datagram, address)
        except OSError:
            # A full send buffer loses datagrams as a full router would; the protocol is made for it.
            self.counters.failed["send"] += 1

    # ---------------------------------------------------------------- effects

    def _carry(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self._held and self._must_wait(effect):
                continue
            try:
                self._carry_out[type(effect)](effect)
            except Exception:
                self._failed("carry out", effect)

    def _find_path(self, effect: FindPath) -> None:
        if self._loop is not None:
            task = self._loop.create_task(self._find(effect))
            self._finding.add(task)  # the loop itself holds tasks only weakly
            task.add_done_callback(self._finding.discard)

    async def _find(self, effect: FindPath) -> None:
        path: Path | None = None
        try:
            if effect.peer in self._addresses:  # else it is known by rumour only
                path = await self._paths.find(self.id, effect.peer, self._addresses[effect.peer])
        except Exception:
            self._failed("carry out", effect)
        if self._loop is not None:
            self._tell(PathFound(effect.peer, path))

    def _send(self, effect: Send) -> None:
        if effect.peer not in self._outbox:
            self.counters.refused["no address"] += 1  # known by rumour only
            return
        try:
            body = wire.encode_message(effect.message)
        except WireError as error:
            self.counters.refused["oversize"] += 1
            log.warning("peer %d cannot send to %d: %s", self.id, effect.peer, error)
            return
        self.counters.sent(effect.message)
        self._outbox.say(effect.peer, body)

    def _deliver(self, effect: Deliver) -> None:
        self.on_deliver(effect)

    def _keep_receipt(self, effect: Receipt) -> None:
        # The peer says what it keeps; whether that survives a crash is known here.
        safe = self._store is not None and not self._held and any(target != self.id for target in effect.targets)
        self._receipt = structs.replace(effect, kept=effect.kept and safe)
        self.on_receipt(self._receipt)

    def _write(self, effect: ports.Store) -> None:
        if self._store is None:
            return
        try:
            self._store.append(effect.record)
        except OSError:
            self._failed("carry out", effect)
            self._held.append(effect)
            self._try_later()

    # ---------------------------------------------------------------- a store that cannot be written

    def _must_wait(self, effect: Effect) -> bool:
        """While a record is not stored, nothing behind it is promised: no ACK, no delivery, no receipt as kept.

        A sender that gets no ACK sends again or takes another way. Timers and what goes out go on.
        """
        if isinstance(effect, Send):
            if isinstance(effect.message, Ack):
                self.counters.failed["withheld ACK"] += 1
                return True
        elif isinstance(effect, ports.Store | Deliver):
            if len(self._held) < MAX_HELD:
                self._held.append(effect)
            else:
                self.counters.failed[f"lost {type(effect).__name__}"] += 1
            return True
        return False

    def _try_later(self) -> None:
        if self._again is None and self._loop is not None:
            self._again = self._loop.call_later(STORE_AGAIN_S, self._store_again)

    def _store_again(self) -> None:
        """What was held, in its order, as far as the disk takes it."""
        self._again = None
        while self._held:
            effect = self._held[0]
            try:
                if isinstance(effect, Deliver):
                    self._deliver(effect)
                elif self._store is not None:
                    self._store.append(effect.record)
            except OSError as error:
                if isinstance(effect, ports.Store):
                    log.info("peer %d still cannot store: %s", self.id, error)
                    self._try_later()
                    return
                self._failed("carry out", effect)
            except Exception:
                self._failed("carry out", effect)
            self._held.popleft()

    def _count_drop(self, effect: Drop) -> None:
        self.counters.drops[effect.reason] += max(1, len(effect.dests))

    def _count_notice(self, effect: Notice) -> None:
        self.counters.notices[effect.what] += effect.count
        if effect.what in ("link-down", "link-up"):
            log.info("peer %d: %s %d", self.id, effect.what, effect.peer)
        self.on_notice(effect)

    def _count_refusal(self, effect: Refuse) -> None:
        self.counters.refused[effect.reason] += 1

    # ---------------------------------------------------------------- time

    def _wake_at(self, effect: WakeAt) -> None:
        if self._wake_ns is None or effect.time_ns < self._wake_ns:
            self._wake_ns = effect.time_ns
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._loop is None or self._wake_ns is None:
            return
        # Rounded up to the loop's tick: a timer that fires early would only be set again.
        wait_ms = max(0, -((self._clock() - self._wake_ns) // MS))
        self._timer = self._loop.call_later(wait_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._timer = None
        # What has arrived comes before what has run out, as in the simulator: an ACK that waits in the
        # socket while this process is held up is an answer.
        self._outbox.gather()
        for _ in range(WAITING_DATAGRAMS):
            if not self._read():
                break
        self._outbox.flush()
        if self._wake_ns is None or self._timer is not None:
            return
        if self._clock() < self._wake_ns:
            self._arm()
            return
        self._wake_ns = None
        self._tell(_WOKEN)

    # ---------------------------------------------------------------- mistakes of our own

    def _failed(self, doing: str, what: Input | Effect) -> None:
        kind = type(what).__name__
        self.counters.failed[f"{doing} {kind}"] += 1
        if sum(self.counters.failed.values()) <= _LOGGED_FAILURES:
            log.exception("peer %d failed to %s %s and goes on", self.id, doing, kind)
