"""A peer on a real socket: datagrams and timers become inputs, effects become datagrams and timers.

`protocol` decides, this file carries out. No datagram from outside and no mistake inside ends the peer: it counts
each one, logs the first few with their cause, and serves the next datagram.

`socket.py` reads and writes datagrams, `sealed_links.py` seals and opens them where the peer has keys,
`senders.py` knows who sent one, `store_writer.py` writes to the disk and holds effects back while it cannot,
`wake_timer.py` wakes the peer, `shaper.py` imitates a wide-area link. `joining.py` finds peers that no file names,
`multicast.py` speaks to groups of peers.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from wend.drivers.live.access.forwarding_grants import ForwardingGrants
from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.addresses import Address, resolve, show
from wend.drivers.live.addressing.joining import Joining
from wend.drivers.live.clock import Clock, monotonic
from wend.drivers.live.counters import Counters
from wend.drivers.live.log_limit import LogLimit
from wend.drivers.live.observer import Observer, Observers
from wend.drivers.live.paths.searches import PathSearches
from wend.drivers.live.paths.source import NoPaths, PathSource
from wend.drivers.live.status import StatusSnapshot, snapshot
from wend.drivers.live.store.store import Store
from wend.drivers.live.store.writer import StoreWriter
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.link_log import LinkLog
from wend.drivers.live.transport.multicast import MulticastGroups, MulticastOptions
from wend.drivers.live.transport.senders import Senders
from wend.drivers.live.transport.shaper import NO_FAULTS, PacketFaults, Pipe, Shaper, always_up
from wend.drivers.live.transport.socket import PeerSocket
from wend.drivers.live.wake_timer import WakeTimer
from wend.model.errors import Refused, WendError, WireError
from wend.model.events import Attributes, Event, EventId, Headers, PeerId, Value
from wend.model.units import MINUTE, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.messages import (
    ACKS,
    MAX_CONTROL_BYTES,
    Ack,
    Data,
    Fragment,
    Message,
    as_unicast,
    control_name,
    event_of,
    older,
)
from wend.protocol.notices import LINK_DOWN, LINK_UP, TOO_LARGE, NoticeName
from wend.protocol.peer import Peer
from wend.protocol.ports import (
    Deliver,
    Drop,
    Effect,
    FindPath,
    Input,
    JoinMulticast,
    LeaveMulticast,
    LinkAdded,
    LinkRemoved,
    Missed,
    Multicast,
    MulticastMembers,
    Neighbour,
    Notice,
    Paused,
    Persist,
    Planned,
    Published,
    Receipt,
    Received,
    Refuse,
    Send,
    SendEach,
    Started,
    Stopping,
    Unretained,
    Unsent,
    WakeAt,
    Woken,
)
from wend.protocol.status import LinkStatus
from wend.security.identity import Credentials, Verifier
from wend.strategies.registry import make_peer

if TYPE_CHECKING:  # only peers with keys need ciphers; a plan is arrays in files, and most peers read none
    from wend.drivers.live.transport.sealed_links import SealedLinks
    from wend.model.forwarding import Forwarding

log = logging.getLogger("wend.peer")

LINGER_S = 0.5
_LOGGED_FAILURES = 20
_WOKEN = Woken()
LINES_PER_MINUTE = 10
_DOUBTS: tuple[NoticeName, ...] = ("retransmit", "undelivered")
"""After these a peer without a link may have another address."""
_LINK_CHANGES: dict[NoticeName, bool] = {LINK_UP: True, "linked": True, LINK_DOWN: False, "unlinked": False}


class LivePeer:
    """Make it, which binds its socket; add the peers that it may reach; start it."""

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
        join: tuple[Address, ...] | None = None,
        admit: bool = True,
        multicast: MulticastOptions = MulticastOptions(),  # noqa: B008
        keys: tuple[Credentials, Verifier] | None = None,
    ) -> None:
        """`join`: the addresses by which it joins an open overlay, where peers come that no file names; none for the
        first peer of it. None: it speaks only with the peers that were added. `admit`: where links are given, whether
        it makes links with peers that join by it. `keys`: its certificate with its keys, and what decides about those
        of others; None: links are neither authenticated nor encrypted."""
        self.id = config.peer
        self.incarnation = config.incarnation
        self.counters = counters or Counters()
        self.addresses = AddressBook(self.id, sealed=keys is not None)
        self._verified, self._reachable = self.addresses.verified, self.addresses.reachable
        self.shaper = Shaper()
        self._clock = clock
        self._observers = Observers(self.failed)
        self._log_limit = LogLimit(LINES_PER_MINUTE, MINUTE)
        self._peer = make_peer(config)
        self._types = wire.MessageTypes(self._peer.message_types, self._peer.header_type)
        self._store_writer = StoreWriter(self.id, store, self._deliver, self.failed, self.counters, clock)
        self._held = self._store_writer.held
        self._socket = PeerSocket(listen, insecure or keys is not None, self.receive, self.counters, clock)
        self.sealed = None if keys is None else _sealed_links(self, *keys, self._socket, clock)
        if self.sealed is not None:
            self._socket.received = self.sealed.receive
        self.forwarding: ForwardingGrants | None = None
        """What neighbours may forward; None: everything."""
        self.address, self.family = self._socket.address, self._socket.family
        self.timer = WakeTimer(clock, self._drain, partial(self._handle, _WOKEN), self._paused)
        self.multicast = MulticastGroups(self, self._socket, self._types, multicast, clock)
        self._paths = PathSearches(self, paths or NoPaths())
        self.joining: Joining | None = None
        if join is not None:
            contacts = tuple(resolve(address, self._socket.family) for address in join)
            self.joining = Joining(self, contacts, self._send_addresses, clock, admit)
        self._link_log = LinkLog(self.id, self._peer.links, self._reachable, clock)
        self.senders = Senders(
            self.id,
            self.addresses,
            self._peer.links,
            self._link_log,
            self.joining,
            self.counters,
            self._socket.transmit,
            clock,
        )
        self._started_ns: Nanos | None = None
        self._last_sender: PeerId | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._receipt: Receipt | None = None
        self._performers: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            SendEach: self._send_each,
            Deliver: self._deliver,
            Missed: self._observers.missed,
            Receipt: self._note_receipt,
            WakeAt: self.timer.wake_at,
            Persist: self._store_writer.write,
            Drop: self._count_drop,
            Notice: self._count_notice,
            Refuse: self._count_refusal,
            FindPath: self._paths.find,
            JoinMulticast: self.multicast.join,
            LeaveMulticast: self.multicast.leave,
            Multicast: self.multicast.send,
            MulticastMembers: self.multicast.set_members,
        }

    @property
    def peer(self) -> Peer:
        """The state machine; whoever looks at it must not change it."""
        return self._peer

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits for a link that publishers should pause."""
        return self._peer.is_crowded

    def is_silent(self, peer: PeerId) -> bool:
        """Whether a peer has no link that works, or has not been heard over it for long."""
        return self.senders.is_silent(peer)

    # ---------------------------------------------------------------- from start to stop

    def add_peer(
        self,
        peer: PeerId,
        address: Address,
        *,
        delay_ns: Nanos = 0,
        loss: float = 0.0,
        faults: PacketFaults = NO_FAULTS,
        seed: int = 0,
        is_up: Callable[[Nanos], bool] = always_up,
    ) -> None:
        """Add the address of another peer, linked or not, and the shape of the link that datagrams to it pass."""
        there = resolve(address, self._socket.family)
        self.addresses.add(peer, there)
        self.route_to(peer, there, delay_ns=delay_ns, loss=loss, faults=faults, seed=seed, is_up=is_up)

    def route_to(
        self,
        peer: PeerId,
        there: Address,
        *,
        delay_ns: Nanos = 0,
        loss: float = 0.0,
        faults: PacketFaults = NO_FAULTS,
        seed: int = 0,
        is_up: Callable[[Nanos], bool] = always_up,
    ) -> None:
        """Send to an address that the address book has."""
        sealed = self.sealed
        transmit = partial(self._socket.transmit, there) if sealed is None else partial(sealed.to_socket, peer)
        pipe = Pipe(transmit, delay_ns=delay_ns, loss=loss, faults=faults, seed=seed, is_up=is_up, clock=self._clock)
        self.shaper.add(peer, pipe)
        if sealed is not None:
            sealed.locate(peer, there)
            sealed.add_pipe(peer, None if pipe.is_plain else pipe.put)
            self._socket.queue.add(peer, partial(sealed.send, peer))
        else:
            self._add_open_link(peer, transmit if pipe.is_plain else pipe.put)

    def _add_open_link(self, peer: PeerId, transmit: Callable[[bytes], None]) -> None:
        self._socket.queue.add(peer, wire.OpenLink(self.id, peer, self.incarnation, transmit).send)

    def _send_addresses(self, address: Address, receiver: PeerId, body: bytes) -> None:
        """Send an encoded message about addresses."""
        if self.sealed is not None:
            self.sealed.send_to(address, wire.ADDRESSES, body)
        else:
            header = wire.header(self.id, receiver, self.incarnation, wire.ADDRESSES)
            self._socket.transmit(address, wire.frame(header, body))

    def forget_route(self, peer: PeerId) -> None:
        """Undo `route_to`."""
        self.shaper.remove(peer)
        self._socket.queue.remove(peer)
        if self.sealed is not None:
            self.sealed.add_pipe(peer, None)

    def link(self, neighbour: Neighbour) -> None:
        """Make a link while the peer runs. Raises `ConfigError` where there is one, or a membership makes the links."""
        self.ask(LinkAdded(neighbour))
        if self.joining is not None:
            self.joining.removed.discard(neighbour.peer)

    def unlink(self, peer: PeerId) -> None:
        """End a link, and forget where the neighbour is. What is in flight over the link takes other routes."""
        self.ask(LinkRemoved(peer))
        if self.joining is not None:
            self.joining.forget(peer)
        if peer in self._reachable:
            self.addresses.remove(peer)
            self.forget_route(peer)
            if self.sealed is not None:
                self.sealed.end(peer)

    def cut(self, peer: PeerId) -> None:
        """Lose every datagram to a peer, for experiments. Raises `ConfigError` where its address is unknown."""
        self.shaper.cut(peer)
        put = partial(self.shaper.put, peer)
        if self.sealed is not None:
            self.sealed.add_pipe(peer, put)
        else:
            self._add_open_link(peer, put)

    def heal(self, peer: PeerId) -> None:
        """Undo `cut`."""
        self.shaper.heal(peer)

    def observe(self, observer: Observer) -> None:
        """From now on tell this observer, too."""
        self._observers.add(observer)

    def unobserve(self, observer: Observer) -> None:
        self._observers.remove(observer)

    def start(self, started: Started) -> None:
        self._loop = asyncio.get_running_loop()
        self._started_ns = self._clock()
        self.timer.open(self._loop)
        self._socket.open(self._loop)
        if self.sealed is not None:
            self.sealed.open(self._loop)
        self.multicast.open(self._loop)
        self._paths.open(self._loop)
        if self.joining is not None:
            self.joining.start(self._loop)
        self.ask(started)

    async def stop(self, away_ns: Nanos = 0) -> None:
        """Leave in order: tell the neighbours, and wait half a second at most for outstanding ACKs.

        `away_ns`: for how long others keep events for the durable subscriptions; 0: the peer will not be back.
        """
        if self._loop is None:
            return
        self._handle(Stopping(away_ns))
        until = self._loop.time() + LINGER_S
        while (self.shaper.in_flight() or self._peer.status().in_flight) and self._loop.time() < until:
            await asyncio.sleep(0.005)
            if self._loop is None:
                return
        self._socket.queue.flush()
        self._socket.queue.release()
        self.close()

    def close(self) -> None:
        """End at once and tell nobody, as a crash would."""
        self._loop = None
        self.timer.close()
        if self.joining is not None:
            self.joining.close()
        self.multicast.close()
        self._paths.close()
        self._store_writer.close()
        self.shaper.close()
        if self.sealed is not None:
            self.sealed.close()
        self._socket.close()

    def status(self) -> StatusSnapshot:
        status, now = self._peer.status(), self._clock()
        links = tuple(self._located(link) for link in status.links)
        uptime_ns = 0 if self._started_ns is None else now - self._started_ns
        return snapshot(self.counters, status, links, self.shaper, address=show(self.address), uptime_ns=uptime_ns)

    def _located(self, link: LinkStatus) -> LinkStatus:
        """The status of a link with all that only the driver knows."""
        address = self._reachable.get(link.neighbour)
        at = "" if address is None else show(address)
        return msgspec.structs.replace(link, address=at, changed_ns=self._link_log.age_ns(link.neighbour))

    # ---------------------------------------------------------------- requests of the application

    def publish(
        self,
        attributes: Attributes,
        payload: bytes = b"",
        headers: Headers | None = None,
        ttl_ns: Nanos | None = None,
        to: PeerId | None = None,
        retain: str = "",
    ) -> Receipt:
        """Publish an event, or one for subscribers at one peer alone. Raises `Refused` where it cannot be sent."""
        if not wire.is_plain(attributes, payload, headers):
            wire.check_event(attributes, payload, headers)
        if self._held and self._store_writer.full:
            raise Refused("the peer's store cannot be written, and no more events can wait for it")
        self.ask(Published(attributes, payload, headers or {}, ttl_ns, to, retain))
        receipt, self._receipt = self._receipt, None
        if receipt is None:
            raise Refused("the peer could not take the event; its log says why")
        if not receipt.kept and self._store_writer.queued == receipt.id and self._store_writer.safe:
            receipt = Receipt(receipt.id, receipt.targets, receipt.targets == (self.id,), receipt.congested)
        return receipt

    def retained(self, filter: str) -> list[tuple[Event, Nanos]]:
        """The events that the peer retains and a filter matches, with their ages. Raises `FilterError`."""
        return self._peer.retained.matching(self._clock(), filter) if len(self._peer.retained) else []

    def held(self, attribute: str, value: Value) -> Event | None:
        """The event that the peer retains for this value of an attribute. One that has expired is forgotten now."""
        retained = self._peer.retained
        if retained.has_expired(self._clock(), attribute, value):
            self.tell(Unretained(attribute, value))
        return retained.held(attribute, value)

    def wanting(self, attributes: Attributes) -> tuple[PeerId, ...]:
        """The peers that would get an event with these attributes."""
        return self._peer.subscriptions.targets(Event(EventId(self.id, self.incarnation, 0), attributes))

    def follow(self, plan: "Forwarding | None") -> None:
        """Publish by this plan, or by none, from now on. Raises `Refused` where the strategy follows none."""
        self._check_follows()
        self.ask(Planned(plan))

    def learn_plan(self, plan: "Forwarding") -> None:
        """Forward the packets of others by this plan, before this peer publishes by it. Raises as `follow` does."""
        self._check_follows()
        self.ask(Planned(plan, publish=False))

    def _check_follows(self) -> None:
        if not self._peer.follows_plan:
            raise Refused(f"this peer's strategy is {self._peer.config.strategy}, which follows no plan")

    def ask(self, event: Input) -> None:
        """Handle an input for somebody who waits: their mistake is raised, a mistake of ours becomes `Refused`."""
        if self._loop is None:
            raise Refused("the peer is not running")
        self._socket.queue.bundle_turn()
        try:
            effects = self._peer.handle(self._clock(), event)
        except WendError:
            raise
        except Exception:
            self.failed("handle", event)
            raise Refused("the peer failed inside; its log says how") from None
        self._observers.asked(event)
        self.perform(effects)

    def tell(self, event: Input) -> None:
        """Handle an input that nobody waits for, while the peer runs."""
        if self._loop is not None:
            self._handle(event)

    def hear(self, event: Received) -> None:
        """Handle a message that did not come through the peer's own socket, while the peer runs."""
        self._last_sender = event.sender
        self.tell(event)

    def _drain(self) -> Nanos:
        """Read the datagrams that have arrived, before a timer runs; how long those had waited that are left."""
        left_ns = self._socket.drain()
        self.multicast.drain()
        return left_ns

    def _paused(self, ns: Nanos) -> None:
        self._handle(Paused(ns))

    def _handle(self, event: Input) -> None:
        """Handle an input that nobody waits for."""
        if self._held and self._store_writer.refuses(event):
            return
        try:
            effects = self._peer.handle(self._clock(), event)
        except Exception:
            self.failed("handle", event)
        else:
            self.perform(effects)

    # ---------------------------------------------------------------- datagrams that arrive

    def receive(self, datagram: memoryview, address: Address, waited_ns: Nanos = 0) -> None:
        """Handle one datagram, which waited in a queue of this host; the socket calls this for each."""
        head = datagram[: wire.HEADER_BYTES].tobytes()
        sender, header = self._verified.get((address, head)), None
        if sender is None:
            header = self.senders.identify(datagram, address)
            if header is None:
                return
            sender = header.sender
        elif crc32(datagram) != wire.INTACT:
            self.counters.refused["corrupted"] += 1
            return
        try:
            messages = wire.decode_messages(datagram, self._types)
        except WireError:
            self.counters.refused["garbage"] += 1
            return
        if header is not None:
            self.senders.confirm(header, address, head)
        self._hear_all(sender, messages, waited_ns)

    def _hear_all(self, sender: PeerId, messages: list[Message], waited_ns: Nanos) -> None:
        self._last_sender = sender
        if self.forwarding is not None:
            granted = [message for message in messages if self.forwarding.permits(sender, message)]
            self.counters.refused["an event that its neighbour may not forward"] += len(messages) - len(granted)
            messages = granted
        queue, handle, observers = self._socket.queue, self._peer.handle, self._observers
        bundles = len(messages) > 1 and queue.bundle()
        for message in messages:
            if waited_ns:
                message = older(message, waited_ns)
            event = Received(sender, message)
            if self._loop is None or (self._held and self._store_writer.refuses(event)):
                continue
            if observers.see_packets and type(message) is Data:
                observers.arrived(sender, message, waited_ns)
            try:
                effects = handle(self._clock(), event)
            except Exception:
                self.failed("handle", event)
            else:
                self.perform(effects)
        if bundles:
            queue.flush()

    def receive_opened(
        self, sender: PeerId, incarnation: int, kind: int, body: bytes, address: Address, waited_ns: Nanos
    ) -> None:
        """Handle the content of a datagram that a session has opened: its sender is certain."""
        if sender in self._reachable and kind in wire.MESSAGES:
            try:
                messages = wire.decode_body(kind, body, self._types)
            except WireError:
                self.counters.refused["garbage"] += 1
            else:
                self._hear_all(sender, messages, waited_ns)
            return
        inner = wire.InnerDatagram(wire.Header(sender, self.id, incarnation), kind, body)
        if self.joining is not None and kind == wire.ADDRESSES:
            self.joining.receive(inner, address)
        elif kind not in wire.MESSAGES:
            self.counters.refused["garbage"] += 1
        elif self.joining is None or not self.joining.hold(inner, address):
            self.senders.refuse_stranger(inner.header, address)

    def receive_admitted(self, inner: wire.InnerDatagram, address: Address, waited_ns: Nanos) -> None:
        """Handle a datagram that has waited until the address of its sender was confirmed."""
        if not self.senders.admit(inner.header, address):
            return
        try:
            messages = wire.decode_body(inner.kind, inner.body, self._types)
        except WireError:
            self.counters.refused["garbage"] += 1
        else:
            self.senders.note(inner.header)
            self._hear_all(inner.header.sender, messages, waited_ns)

    def on_session(self, peer: PeerId, incarnation: int) -> None:
        """There is a session with an incarnation of a peer."""
        if peer in self._reachable:
            self.senders.note(wire.Header(peer, self.id, incarnation))

    def on_moved(self, peer: PeerId, address: Address) -> None:
        """A peer with a session was heard from another address."""
        if peer in self._reachable and self._reachable[peer] != address:
            log.info("peer %d: neighbour %d is at %s", self.id, peer, show(address))
            self.addresses.move(peer, address)

    # ---------------------------------------------------------------- effects

    def perform(self, effects: list[Effect]) -> None:
        """Carry out effects in their order. An effect that fails is counted and does not stop the others."""
        for effect in effects:
            if self._held and self._store_writer.must_wait(effect):
                continue
            try:
                self._performers[type(effect)](effect)
            except Exception:
                self.failed("carry out", effect)

    def _send(self, effect: Send) -> None:
        peer, message = effect.peer, effect.message
        if peer not in self._reachable:
            self._find(effect)
            return
        if type(message) is Ack:  # half of all messages
            self.counters.sent_control(ACKS)
            self._socket.queue.send_ack(peer, message)
            return
        try:
            body = wire.encode_message(message)
        except WireError as error:
            self.counters.refused["oversize"] += 1
            if self._log_limit.allows(self._clock()):
                log.warning("peer %d cannot send to %d: %s", self.id, peer, error)
            self._handle(Unsent(peer, message))
            return
        if type(message) is Data:
            self.counters.sent_data(message.event.id, len(message.dests) or 1)
        elif type(message) is Fragment:
            self.counters.sent_data(message.id, as_unicast(message))
        elif (id_ := event_of(message)) is not None:
            self.counters.sent_data(id_, 1)
        else:
            self.counters.sent_control(control_name(message))
        self._socket.queue.send(peer, body)

    def _send_each(self, effect: SendEach) -> None:
        body = wire.encode_message(effect.message)
        name = control_name(effect.message)
        for peer in effect.peers:
            if peer in self._reachable:
                self.counters.sent_control(name)
                self._socket.queue.send(peer, body)
            else:
                self._find(Send(peer, effect.message))

    def _find(self, effect: Send) -> None:
        """In an open overlay, look for the address."""
        if self.joining is None or self.joining.makes_links:
            self.counters.refused["no address"] += 1
        else:
            self.joining.find(effect, self._last_sender)

    def _deliver(self, effect: Deliver) -> None:
        self.counters.deliveries += 1
        if effect.deadline_ns is not None and effect.age_ns > effect.deadline_ns:
            self.counters.late_deliveries += 1
        self._observers.delivered(effect)

    def _note_receipt(self, effect: Receipt) -> None:
        self.counters.publications += 1
        # The peer says that it stores the event. Whether the store survives a crash is known here.
        # An event that only this peer's subscribers want is not stored.
        stored = not self._peer.names_everyone or any(target != self.id for target in effect.targets)
        safe = self._store_writer.safe and stored
        self._receipt = receipt = Receipt(effect.id, effect.targets, effect.kept and safe, effect.congested)
        self._observers.published(receipt)

    def _count_drop(self, effect: Drop) -> None:
        self.counters.drops[effect.reason] += max(1, len(effect.dests))

    def _count_notice(self, effect: Notice) -> None:
        self.counters.notices[effect.what] += effect.count
        if effect.what == TOO_LARGE:
            log.warning("peer %d cannot tell %d more than %d bytes at once", self.id, effect.peer, MAX_CONTROL_BYTES)
        self._observers.noticed(effect)
        if self.joining is not None and effect.what in _DOUBTS:
            self.joining.doubt(effect.peer)
        if effect.what in _LINK_CHANGES:
            self._link_changed(effect, _LINK_CHANGES[effect.what])

    def _link_changed(self, notice: Notice, up: bool) -> None:
        self._link_log.changed(notice)
        if self.joining is not None and not up:
            self.joining.link_down(notice.peer)
        self._observers.link_changed(notice.peer, up)

    def _count_refusal(self, effect: Refuse) -> None:
        self.counters.refused[effect.reason] += 1

    # ---------------------------------------------------------------- mistakes of our own

    def failed(self, doing: str, what: Input | Effect) -> None:
        kind = type(what).__name__
        self.counters.failed[f"{doing} {kind}"] += 1
        if sum(self.counters.failed.values()) <= _LOGGED_FAILURES:
            log.exception("peer %d failed to %s %s and goes on", self.id, doing, kind)


def _sealed_links(*arguments: Any) -> "SealedLinks":
    from wend.drivers.live.transport.sealed_links import SealedLinks

    return SealedLinks(*arguments)
