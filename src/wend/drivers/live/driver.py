"""The driver of a live peer: it feeds the peer's state machine, and carries out the effects.

`protocol` decides, and this file carries out. No datagram from outside and no mistake inside ends the peer: the driver
counts each one, logs the first few with their cause, and serves the next datagram. Every event passes through here, on
its way from the application to other peers and back.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol
from zlib import crc32

from wend.drivers.live.access.forwarding_grants import ForwardingGrants
from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.addressing.joining import Joining
from wend.drivers.live.clock import Clock
from wend.drivers.live.counters import Counters
from wend.drivers.live.log_limit import LogLimit
from wend.drivers.live.logs.peer_logs import LogWriteError, PeerLogs
from wend.drivers.live.observer import Observers
from wend.drivers.live.reports import FailureLog
from wend.drivers.live.store.store import Store
from wend.drivers.live.store.writer import StoreWriter
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.senders import Senders
from wend.drivers.live.transport.socket import SendQueue
from wend.model.errors import Refused, WendError, WireError
from wend.model.events import PeerId
from wend.model.publication import Publication
from wend.model.units import MINUTE, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.messages import (
    ACKS,
    Ack,
    Data,
    Fragment,
    Message,
    as_unicast,
    control_name,
    find_event_id,
    increase_age,
)
from wend.protocol.ports import (
    Delayed,
    Deliver,
    Effect,
    Input,
    Missed,
    Persist,
    Receipt,
    Received,
    Send,
    SendEach,
    Unsent,
)
from wend.strategies.registry import make_peer

log = logging.getLogger("wend.peer")

LINES_PER_MINUTE = 10
Performers = dict[type, Callable[[Any], None]]
"""By type of effect: what carries it out."""


class LocalSubscribers(Protocol):
    """The subscribers of a live peer: a broker with its clients, or an application in this process."""

    def deliver(self, delivery: Deliver) -> None:
        """Take an event for a subscription. It must not block."""
        ...

    def report_missed(self, effect: Missed) -> None:
        """Report that a subscription will not get some events."""
        ...


class PeerDriver:
    """Passes inputs to one state machine, and its effects to the parts of the live peer."""

    def __init__(
        self, config: PeerConfig, addresses: AddressBook, counters: Counters, store: Store | None, clock: Clock
    ) -> None:
        self.id = config.peer
        self.peer = make_peer(config)
        """The state machine; whoever looks at it must not change it."""
        self.types = wire.MessageTypes(self.peer.message_types, self.peer.header_type)
        self.failed = FailureLog(self.id, counters).count_failure
        """Counts a mistake of our own."""
        self.observers = Observers(self.failed)
        self.subscribers: LocalSubscribers | None = None
        self.forwarding: ForwardingGrants | None = None
        """What neighbours may forward; None: everything."""
        self.logs: PeerLogs | None = None
        self.running = False
        self.store = StoreWriter(self.id, store, self._deliver_late, self.failed, counters, clock)
        self._held = self.store.held
        self._counters = counters
        self._clock = clock
        self._verified, self._reachable = addresses.verified, addresses.reachable
        self._log_limit = LogLimit(LINES_PER_MINUTE, MINUTE)
        self._last_sender: PeerId | None = None

    def connect(self, queue: SendQueue, senders: Senders, joining: Joining | None, performers: Performers) -> None:
        """Connect it with the parts of the peer. `performers` carry out the effects that the driver does not."""
        self._queue = queue
        self._senders = senders
        self._joining = joining
        self._performers: Performers = {
            Send: self._send,
            SendEach: self._send_each,
            Deliver: self._deliver,
            Missed: self._report_missed,
            Receipt: self._on_receipt,
            Persist: self.store.write,
            **performers,
        }

    # ---------------------------------------------------------------- inputs of the application

    def publish(self, publication: Publication) -> Receipt:
        """Publish an event, or one for subscribers at one peer alone. Raises `ClientError` if it is invalid, and
        `Refused` if the peer cannot take it."""
        publication.check()
        if self._held and self.store.is_full:
            raise Refused("the peer's store cannot be written, and no more events can wait for it", code="store-full")
        for effect in self.ask(publication):
            if type(effect) is Receipt:
                return self._add_promise(effect)
        raise Refused("the peer could not take the event; its log says why", code="internal")

    def _add_promise(self, receipt: Receipt) -> Receipt:
        """The receipt with the promise of this peer's store: only the driver knows whether it survives a crash. An
        event for local subscribers alone is stored if they are durable."""
        is_kept = False
        if self.store.has_stored_all:
            others = not self.peer.knows_all_subscribers or any(target != self.id for target in receipt.targets)
            queued = self.store.queued == receipt.id and receipt.targets == (self.id,)
            is_kept = (receipt.kept and others) or queued
        if is_kept == receipt.kept:
            return receipt
        return Receipt(receipt.id, receipt.targets, is_kept, receipt.congested, receipt.is_repeated)

    def ask(self, event: Input) -> list[Effect]:
        """Handle an input for a caller who waits. Carries out the effects, and returns them. A mistake of the caller is
        raised; a mistake of ours becomes `Refused`."""
        if not self.running:
            raise Refused("the peer is not running", code="not-running")
        self._queue.bundle_until_turn_ends()
        try:
            effects = self.peer.handle(self._clock(), event)
        except WendError:
            raise
        except Exception:
            self.failed("handle-input", event)
            raise Refused("the peer failed inside; its log says how", code="internal") from None
        if self.observers.on_input:
            self.observers.notify(self.observers.on_input, event, event)
        self.perform(effects)
        return effects

    def tell(self, event: Input) -> None:
        """Handle an input that nobody waits for, while the peer runs."""
        if self.running:
            self.handle(event)

    def handle(self, event: Input) -> None:
        """Handle an input that nobody waits for."""
        if self._held and self.store.should_refuse(event):
            return
        try:
            effects = self.peer.handle(self._clock(), event)
        except Exception:
            self.failed("handle-input", event)
        else:
            self.perform(effects)

    # ---------------------------------------------------------------- messages that arrive

    def receive(self, datagram: memoryview, address: Address, waited_ns: Nanos = 0) -> None:
        """Handle one open datagram, which waited in a queue of this host. The socket calls this for each."""
        head = datagram[: wire.HEADER_BYTES].tobytes()
        sender, header = self._verified.get((address, head)), None
        if sender is None:
            header = self._senders.identify(datagram, address)
            if header is None:
                return
            sender = header.sender
        elif crc32(datagram) != wire.INTACT:
            self._counters.refused["corrupted"] += 1
            return
        try:
            messages = wire.decode_messages(datagram, self.types)
        except WireError:
            self._counters.refused["garbage"] += 1
            return
        if header is not None:
            self._senders.confirm(header, address, head)
        self.receive_all(sender, messages, waited_ns)

    def receive_opened(
        self, sender: PeerId, incarnation: int, kind: int, body: bytes, address: Address, waited_ns: Nanos
    ) -> None:
        """Handle the content of a datagram that a session has opened, so that its sender is certain."""
        if sender in self._reachable and kind in wire.MESSAGES:
            try:
                messages = wire.decode_body(kind, body, self.types)
            except WireError:
                self._counters.refused["garbage"] += 1
            else:
                self.receive_all(sender, messages, waited_ns)
            return
        inner = wire.InnerDatagram(wire.Header(sender, self.id, incarnation), kind, body)
        if self._joining is not None and kind == wire.ADDRESSES:
            self._joining.receive(inner, address)
        elif kind not in wire.MESSAGES:
            self._counters.refused["garbage"] += 1
        elif self._joining is None or not self._joining.hold(inner, address):
            self._senders.refuse_stranger(inner.header, address)

    def receive_admitted(self, inner: wire.InnerDatagram, address: Address, waited_ns: Nanos) -> None:
        """Handle a datagram that has waited until the address of its sender was confirmed."""
        if not self._senders.admit(inner.header, address):
            return
        try:
            messages = wire.decode_body(inner.kind, inner.body, self.types)
        except WireError:
            self._counters.refused["garbage"] += 1
        else:
            self._senders.record_incarnation(inner.header)
            self.receive_all(inner.header.sender, messages, waited_ns)

    def receive_all(self, sender: PeerId, messages: list[Message], waited_ns: Nanos) -> None:
        """Handle the messages of one datagram."""
        self._last_sender = sender
        if self.forwarding is not None:
            granted = [message for message in messages if self.forwarding.may_send(sender, message)]
            self._counters.refused["forwarding-not-granted"] += len(messages) - len(granted)
            messages = granted
        queue, handle, observers = self._queue, self.peer.handle, self.observers
        bundles = len(messages) > 1 and queue.start_bundling()
        for message in messages:
            if waited_ns:
                message = increase_age(message, waited_ns)
            event = Received(sender, message)
            if not self.running or (self._held and self.store.should_refuse(event)):
                continue
            if observers.on_packet and type(message) is Data:
                observers.notify(observers.on_packet, event, sender, message, waited_ns)
            try:
                effects = handle(self._clock(), event)
            except Exception:
                self.failed("handle-input", event)
            else:
                self.perform(effects)
        if bundles:
            queue.flush()

    # ---------------------------------------------------------------- effects

    def perform(self, effects: list[Effect]) -> None:
        """Carry out effects in their order. One that fails is counted, and does not stop the others."""
        for effect in effects:
            if self._held and self.store.hold_back(effect):
                continue
            try:
                self._performers[type(effect)](effect)
            except LogWriteError as error:
                assert isinstance(effect, Deliver)
                self.store.hold_for_log(effect, error)
            except Exception:
                self.failed("carry-out-effect", effect)

    def _send(self, effect: Send) -> None:
        peer, message = effect.peer, effect.message
        if peer not in self._reachable:
            self._find_address(effect)
            return
        if type(message) is Ack:  # half of all messages
            self._counters.count_control(ACKS)
            self._queue.send_ack(peer, message)
            return
        try:
            body = wire.encode_message(message)
        except WireError as error:
            self._counters.refused["oversize"] += 1
            if self._log_limit.allows(self._clock()):
                log.warning("peer %d cannot send to %d: %s", self.id, peer, error)
            self.handle(Unsent(peer, message))
            return
        if type(message) is Data:
            self._counters.count_data(message.event.id, len(message.dests) or 1)
        elif type(message) is Fragment:
            self._counters.count_data(message.id, as_unicast(message))
        elif (id_ := find_event_id(message)) is not None:
            self._counters.count_data(id_, 1)
        else:
            self._counters.count_control(control_name(message))
        self._queue.send(peer, body)

    def _send_each(self, effect: SendEach) -> None:
        body = wire.encode_message(effect.message)
        name = control_name(effect.message)
        for peer in effect.peers:
            if peer in self._reachable:
                self._counters.count_control(name)
                self._queue.send(peer, body)
            else:
                self._find_address(Send(peer, effect.message))

    def _find_address(self, effect: Send) -> None:
        """Look for the address of a peer in an open overlay; elsewhere, refuse the message."""
        if self._joining is None or self._joining.makes_links:
            self._counters.refused["no-address"] += 1
        else:
            self._joining.find_address(effect, self._last_sender)

    def _deliver(self, effect: Deliver) -> None:
        """Hand an event to subscribers, or append it to a log. Raises `LogWriteError`."""
        log_ = None if self.logs is None else self.logs.find(effect.subscription.number)
        if self.logs is not None and log_ is not None:
            self.logs.append(log_, effect)
            self.store.queued = effect.event.id
        self._counters.deliveries += 1
        if effect.deadline_ns is not None and effect.age_ns > effect.deadline_ns:
            self._counters.late_deliveries += 1
        if self.observers.on_delivered:
            self.observers.notify(self.observers.on_delivered, effect, effect)
        if self.subscribers is not None and log_ is None:
            self.subscribers.deliver(effect)

    def _deliver_late(self, effect: Deliver, waited_ns: Nanos) -> None:
        """Make a delivery that has waited for the disk, unless it has expired meanwhile."""
        for answer in self.peer.handle(self._clock(), Delayed(effect, waited_ns)):
            if type(answer) is Deliver and (answer.subscription, answer.event) == (effect.subscription, effect.event):
                self._deliver(answer)
            else:  # it may have to wait, too
                self.perform([answer])

    def _report_missed(self, effect: Missed) -> None:
        if self.subscribers is not None:
            self.subscribers.report_missed(effect)

    def _on_receipt(self, effect: Receipt) -> None:
        self._counters.publications += 1
        if self.observers.on_published:
            self.observers.notify(self.observers.on_published, effect, self._add_promise(effect))
