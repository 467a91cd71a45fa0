"""Sealed links: the session layer of a live peer, on its socket and clocks.

A peer with keys seals every datagram as the last step before the socket, and opens it as the first step after. So a
decoder sees only bytes that another peer of the same root has sent. The session names the sender, whose address may
change. Messages to a peer without a session wait briefly for the handshake.

A multicast is sealed with the key of its group, which members get in their sessions (`security/group_keys.py`).
"""

import asyncio
import logging
import os
from collections.abc import Callable

from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.addresses import Address, format_address
from wend.drivers.live.clock import Clock, wall_s
from wend.drivers.live.counters import Counters
from wend.drivers.live.log_limit import LogLimit
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.senders import Senders
from wend.drivers.live.transport.socket import PeerSocket
from wend.model.events import PeerId
from wend.model.units import MINUTE, Nanos
from wend.security import packets
from wend.security.group_keys import GroupKeys, GroupOpened
from wend.security.identity import Credentials, Identity, Verifier
from wend.security.session_effects import SessionEnded, SessionMoved, SessionReady, SessionRefused, TransmitPacket
from wend.security.session_layer import SessionLayer

log = logging.getLogger("wend.peer")

TICK_S = 0.25
LINES_PER_MINUTE = 10
MAX_REMEMBERED = 1024

Transmit = Callable[[bytes], None]


class SealedLinks:
    """Seals and opens the datagrams of one peer."""

    def __init__(
        self,
        me: PeerId,
        incarnation: int,
        credentials: Credentials,
        verifier: Verifier,
        socket: PeerSocket,
        book: AddressBook,
        counters: Counters,
        clock: Clock,
    ) -> None:
        self._me = me
        self._book = book
        self._socket = socket
        self._transmit = socket.transmit
        self._flood_filter = socket.flood_filter()
        self._clock = clock
        self._layer = SessionLayer(
            credentials,
            verifier,
            incarnation=incarnation,
            version=wire.VERSION,
            random=os.urandom,
            refused=counters.refused,
            notices=counters.notices,
        )
        self._sessions = self._layer.peers
        self.groups = GroupKeys(me, os.urandom, counters.refused, counters.notices)
        """The keys of multicast groups. After a change, call `perform_groups`."""
        self._pipes: dict[PeerId, Transmit] = {}
        """By peer: the pipe that imitates the link. Without one, datagrams go straight to the socket."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._limit = LogLimit(LINES_PER_MINUTE, MINUTE)
        self._logged: dict[tuple[Address, str], None] = {}
        self._tell_time()

    def connect(
        self,
        senders: Senders,
        receive: Callable[[PeerId, int, int, bytes, Address, Nanos], None],
        hear_multicast: Callable[[PeerId, bytes], None],
    ) -> None:
        """Connect it with the parts of the peer. `receive` gets the sender of each opened datagram, its incarnation,
        the kind and body, the address, and how long it waited; `hear_multicast` gets multicasts that waited for a
        key."""
        self._senders = senders
        self._receive = receive
        self._hear_multicast = hear_multicast

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tick()

    def close(self) -> None:
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    @property
    def entry_count(self) -> int:
        """The number of entries in all tables of sessions. Strangers must not make it grow."""
        return self._layer.size

    def identity(self, peer: PeerId) -> Identity | None:
        """The content of the certificate of a peer."""
        return self._layer.identity(peer)

    def renew(self, credentials: Credentials, verifier: Verifier) -> None:
        """Use another certificate from the next handshake on, and end sessions that the verifier does not accept.
        Raises `Untrusted` for the certificate of another peer."""
        self._layer.renew(credentials)
        self._tell_time()
        self._layer.recheck(self._clock(), verifier)
        self._perform_session_effects()

    # ---------------------------------------------------------------- datagrams that leave

    def add_pipe(self, peer: PeerId, pipe: Transmit | None) -> None:
        """Send sealed datagrams to a peer through this pipe; None: straight to the socket."""
        if pipe is None:
            self._pipes.pop(peer, None)
        else:
            self._pipes[peer] = pipe

    def set_address(self, peer: PeerId, address: Address) -> None:
        """Send to a peer at this address, until a datagram of the peer arrives from another address."""
        self._layer.set_address(self._clock(), peer, address)

    def end(self, peer: PeerId) -> None:
        """End the session with a peer."""
        self._layer.forget(peer)

    def send_to_socket(self, peer: PeerId, datagram: bytes) -> None:
        """Send a sealed datagram to the address from which the peer last sent one."""
        session = self._sessions.get(peer)
        if session is not None and session.address is not None:
            self._transmit(session.address, datagram)

    def send(self, peer: PeerId, kind: int, body: bytes) -> None:
        """Seal the body of a datagram of this kind, and send it to a peer."""
        layer, pipes = self._layer, self._pipes
        datagram = layer.seal(self._clock(), peer, kind, body)
        if datagram is not None:
            if pipes and peer in pipes:
                pipes[peer](datagram)
            elif (address := self._sessions[peer].address) is not None:
                self._transmit(address, datagram)
        if layer.effects:
            self._perform_session_effects()

    def send_to(self, address: Address, kind: int, body: bytes) -> None:
        """Seal the body of a datagram of this kind, and send it to the peer at an address."""
        self._layer.send_to(self._clock(), address, kind, body)
        self._perform_session_effects()

    # ---------------------------------------------------------------- datagrams that arrive

    def receive(self, datagram: memoryview, address: Address, waited_ns: Nanos = 0) -> None:
        """Handle one datagram from the socket."""
        layer = self._layer
        opened = layer.open(self._socket.now_ns, datagram, address)
        if layer.effects:
            self._perform_session_effects()
        if opened is not None:
            sender, incarnation, kind, body = opened
            if kind == packets.GROUP_KEY:
                self.groups.receive(self._clock(), sender, incarnation, body)
                self.perform_groups()
            else:
                self._receive(sender, incarnation, kind, body, address, waited_ns)
            return
        self._flood_filter.count_datagram(datagram)
        if not self._senders.answer_probe(datagram, address) and wire.is_open_datagram(datagram):
            self._warn(address, "they are not sealed, and this peer has keys")

    # ---------------------------------------------------------------- time and effects

    def _tick(self) -> None:
        if self._loop is None:
            return
        self._timer = self._loop.call_later(TICK_S, self._tick)  # first, so that ticks go on if something below fails
        self._tell_time()
        self._perform_session_effects()
        self.groups.tick(self._clock())
        self.perform_groups()
        self._flood_filter.tick()

    def _tell_time(self) -> None:
        self._layer.tick(self._clock(), wall_s())

    def _perform_session_effects(self) -> None:
        for effect in self._layer.take_effects():
            match effect:
                case TransmitPacket(address=address, peer=peer, datagram=datagram):
                    pipe = None if peer is None else self._pipes.get(peer)
                    if pipe is not None and peer is not None and address == self._layer.address(peer):
                        pipe(datagram)
                    else:
                        self._transmit(address, datagram)
                case SessionReady(peer=peer, incarnation=incarnation):
                    if peer in self._book.reachable:
                        self._senders.record_incarnation(wire.Header(peer, self._me, incarnation))
                    self.groups.include(self._clock(), peer)
                    self.perform_groups()
                case SessionMoved(peer=peer, address=address):
                    self._on_address_changed(peer, address)
                case SessionEnded(peer=peer, reason=reason):
                    log.warning("peer %d no longer accepts peer %d: %s", self._me, peer, reason)
                    self.groups.exclude(self._clock(), peer)
                    self.perform_groups()
                case SessionRefused(address=address, reason=reason):
                    self._warn(address, reason)

    def _on_address_changed(self, peer: PeerId, address: Address) -> None:
        """Use the new address of a peer whose datagrams arrive from there."""
        if self._book.reachable.get(peer, address) != address:
            log.info("peer %d: neighbour %d is at %s", self._me, peer, format_address(address))
            self._book.move(peer, address)

    def perform_groups(self) -> None:
        """Send messages about group keys, and hand over multicasts that waited for a key."""
        for effect in self.groups.take_effects():
            if isinstance(effect, GroupOpened):
                self._hear_multicast(effect.sender, effect.body)
            elif effect.peer in self._book.reachable:  # otherwise it is repeated later
                self.send(effect.peer, packets.GROUP_KEY, effect.body)

    def _warn(self, address: Address, why: str) -> None:
        """Log why datagrams from an address are refused, once for each address, at a bounded rate."""
        if (address, why) in self._logged or not self._limit.allows(self._clock()):
            return
        if len(self._logged) >= MAX_REMEMBERED:
            del self._logged[next(iter(self._logged))]
        self._logged[address, why] = None
        log.warning("peer %d refuses datagrams from %s: %s", self._me, format_address(address), why)
