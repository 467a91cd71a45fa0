"""The peer on a real socket: datagrams and timers become inputs, effects become datagrams and timers.

All that a peer decides, it decides in `protocol`; this file only carries out. Its promise is that
nothing that comes from outside, and no mistake inside, ends the peer: each is counted, the first few
are logged with their cause, and the next datagram is served.

`door.py` reads the socket, `storing.py` writes to the disk and knows what must wait while it cannot,
`outbox.py` bundles what goes out, `shaper.py` plays at being a wide-area link.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from wend.drivers.live import wire
from wend.drivers.live.addresses import Address, resolve
from wend.drivers.live.clock import Clock, monotonic
from wend.drivers.live.counters import Counters
from wend.drivers.live.paths.probes import answer_to
from wend.drivers.live.paths.source import NoPaths, PathSource
from wend.drivers.live.send_queue import SendQueue
from wend.drivers.live.shaper import Pipe, Shaper, always_up
from wend.drivers.live.socket import PeerSocket
from wend.drivers.live.status import standing
from wend.drivers.live.store import Store
from wend.drivers.live.store_writer import StoreWriter
from wend.model.errors import Refused, WendError, WireError
from wend.model.events import Attributes, Headers, PeerId
from wend.model.forwarding import Forwarding
from wend.model.paths import Path
from wend.model.units import FOREVER, MS, Nanos
from wend.protocol import ports
from wend.protocol.config import PeerConfig
from wend.protocol.messages import MAX_CONTROL_BYTES
from wend.protocol.notices import LINK_DOWN, LINK_UP, TOO_LARGE
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
    Unsent,
    WakeAt,
    Woken,
)

log = logging.getLogger("wend.peer")

LINGER_S = 0.5
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
        paths: PathSource | None = None,
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
        self._types = wire.MessageTypes(self._peer.message_types, self._peer.header_type)
        self._storing = StoreWriter(self.id, store, self._deliver, self._failed, self.counters)
        self._held = self._storing.held
        self._outbox = SendQueue()
        self._door = PeerSocket(listen, insecure, self._datagram, self._outbox, self.counters, clock)
        self.address = self._door.address
        self._neighbours: dict[Address, PeerId] = {}
        self._addresses: dict[PeerId, Address] = {}
        self._hosts: set[str] = set()
        self._lives: dict[PeerId, int] = {}
        self._heads: dict[bytes, PeerId] = {}
        """Headers that were found right, by their bytes: of the present life of each neighbour only."""
        self._wake_ns: Nanos | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns: Nanos = FOREVER
        """What it is set for."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._receipt: Receipt | None = None
        self._carry_out: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Deliver: self._deliver,
            Receipt: self._keep_receipt,
            WakeAt: self._wake_at,
            ports.Persist: self._storing.write,
            Drop: self._count_drop,
            Notice: self._count_notice,
            Refuse: self._count_refusal,
            FindPath: self._find_path,
        }

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
        there = resolve(address, self._door.family)
        self._neighbours[there] = neighbour
        self._addresses[neighbour] = there
        self._hosts.add(there[0])
        transmit = partial(self._door.transmit, there)
        pipe = Pipe(transmit, delay_ns=delay_ns, loss=loss, seed=seed, is_up=is_up, clock=self._clock)
        self.shaper.add(neighbour, pipe)
        self._outbox.link(neighbour, wire.header(self.id, neighbour, self.incarnation), pipe.put)

    def start(self, started: Started) -> None:
        self._loop = asyncio.get_running_loop()
        self._door.open(self._loop)
        self.ask(started)

    async def stop(self) -> None:
        """Leave in order: neighbours hear it and acknowledge what is under way, as far as half a second allows."""
        if self._loop is None:
            return
        self._tell(Stopping())
        until = self._loop.time() + LINGER_S
        while (self.shaper.in_flight() or self._peer.status().in_flight) and self._loop.time() < until:
            await asyncio.sleep(0.005)
            if self._loop is None:
                return
        self.close()

    def close(self) -> None:
        """End at once, as a crash would: nobody is told."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop = None
        for task in self._finding:
            task.cancel()
        self._paths.close()
        self._storing.close()
        self._outbox.drop()
        self.shaper.close()
        self._door.close()

    def standing(self) -> dict[str, int]:
        return standing(self._peer)

    # ---------------------------------------------------------------- what the application wants

    def publish(self, attributes: Attributes, payload: bytes = b"", headers: Headers | None = None) -> Receipt:
        """Raises `Refused` where the event cannot travel."""
        wire.check_event(attributes, payload, headers)
        if self._held and self._storing.full:
            raise Refused("the peer's store cannot be written, and no more events can wait for it")
        self._receipt = None
        self.ask(Published(attributes, payload, headers or {}))
        if self._receipt is None:
            raise Refused("the peer could not take the event; its log says why")
        return self._receipt

    def follow(self, plan: Forwarding) -> None:
        """Publish by this plan from here on. Raises `Refused` where the peer follows none."""
        if not self._peer.follows_plan:
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
        if self._held and self._storing.refuses(event):
            return
        try:
            effects = self._peer.handle(self._clock(), event)
        except Exception:
            self._failed("handle", event)
        else:
            self._carry(effects)

    # ---------------------------------------------------------------- what arrives

    def _datagram(self, datagram: memoryview, address: Address) -> None:
        sender = self._neighbours.get(address)
        if sender is None:
            self._stranger(datagram, address)
            return
        head = datagram[: wire.HEADER_BYTES].tobytes()
        known = self._heads.get(head) == sender
        try:
            if not known and self._misleads(sender, wire.decode_header(datagram)):
                return
            messages = wire.decode_messages(datagram, self._types)
        except WireError:
            self.counters.refused["garbage"] += 1
            return
        if not known:
            self._begin_life(sender, head, wire.decode_header(datagram).incarnation)
        for message in messages:
            if self._loop is not None:
                self._tell(Received(sender, message))

    def _misleads(self, sender: PeerId, header: wire.Header) -> bool:
        """Whether it is from another, to another, or from a life that is over."""
        if header.sender != sender or header.receiver != self.id:
            self.counters.refused["misdirected"] += 1
            return True
        if header.incarnation < self._lives.get(sender, 0):
            self.counters.refused["stale"] += 1
            return True
        return False

    def _begin_life(self, sender: PeerId, head: bytes, incarnation: int) -> None:
        """What follows under this header needs no other look at it."""
        if incarnation != self._lives.get(sender):
            self._heads = {other: who for other, who in self._heads.items() if who != sender}
        self._lives[sender] = incarnation
        self._heads[head] = sender

    def _stranger(self, datagram: memoryview, address: Address) -> None:
        """Who probes the way to this peer from a neighbour's host is answered, and nobody else."""
        answer = answer_to(datagram) if address[0] in self._hosts else None
        if answer is None:
            self.counters.refused["stranger"] += 1
        else:
            self.counters.paths["probes answered"] += 1
            self._door.transmit(address, answer)

    # ---------------------------------------------------------------- effects

    def _carry(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self._held and self._storing.must_wait(effect):
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
        if effect.peer not in self._addresses:
            self.counters.refused["no address"] += 1  # known by rumour only
            return
        try:
            body = wire.encode_message(effect.message)
        except WireError as error:
            self.counters.refused["oversize"] += 1
            log.warning("peer %d cannot send to %d: %s", self.id, effect.peer, error)
            self._tell(Unsent(effect.peer, effect.message))
            return
        self.counters.sent(effect.message)
        self._outbox.say(effect.peer, body)

    def _deliver(self, effect: Deliver) -> None:
        self.on_deliver(effect)

    def _keep_receipt(self, effect: Receipt) -> None:
        # The peer says what it keeps; whether that survives a crash is known here.
        safe = self._storing.safe and any(target != self.id for target in effect.targets)
        self._receipt = Receipt(effect.id, effect.targets, effect.kept and safe)
        self.on_receipt(self._receipt)

    def _count_drop(self, effect: Drop) -> None:
        self.counters.drops[effect.reason] += max(1, len(effect.dests))

    def _count_notice(self, effect: Notice) -> None:
        self.counters.notices[effect.what] += effect.count
        if effect.what in (LINK_DOWN, LINK_UP):
            log.info("peer %d: %s %d", self.id, effect.what, effect.peer)
        elif effect.what == TOO_LARGE:
            log.warning("peer %d cannot tell %d more than %d bytes at once", self.id, effect.peer, MAX_CONTROL_BYTES)
        self.on_notice(effect)

    def _count_refusal(self, effect: Refuse) -> None:
        self.counters.refused[effect.reason] += 1

    # ---------------------------------------------------------------- time

    def _wake_at(self, effect: WakeAt) -> None:
        """The newest wish counts. Most are later than the last, because ACKs come: the timer fires and is set again."""
        self._wake_ns = effect.time_ns
        if effect.time_ns < self._timer_ns:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_ns = None, FOREVER
        if self._loop is None or self._wake_ns is None:
            return
        # Rounded up to the loop's tick: a timer that fires early would only be set again.
        wait_ms = max(0, -((self._clock() - self._wake_ns) // MS))
        self._timer, self._timer_ns = self._loop.call_later(wait_ms / 1000, self._fire), self._wake_ns

    def _fire(self) -> None:
        self._timer_ns = 0  # whatever is wished meanwhile, the timer is set below
        try:
            if self._is_due():
                # What has arrived comes before what has run out, as in the simulator: an ACK that waits in the
                # socket while this process is held up is an answer.
                self._door.drain()
            if self._is_due():
                self._wake_ns = None
                self._tell(_WOKEN)
        finally:
            self._arm()

    def _is_due(self) -> bool:
        return self._loop is not None and self._wake_ns is not None and self._wake_ns <= self._clock()

    # ---------------------------------------------------------------- mistakes of our own

    def _failed(self, doing: str, what: Input | Effect) -> None:
        kind = type(what).__name__
        self.counters.failed[f"{doing} {kind}"] += 1
        if sum(self.counters.failed.values()) <= _LOGGED_FAILURES:
            log.exception("peer %d failed to %s %s and goes on", self.id, doing, kind)
