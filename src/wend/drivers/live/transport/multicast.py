"""UDP multicast of a live peer: it joins groups, sends to them and hears them.

A group has a name. Its address in 239.192.0.0/14 (RFC 2365: for one organisation) and its port follow from the name, so
the peers of a group need not agree on them, unless a file names an address. The header of a datagram has the number of
the group in the place of the receiver, because several groups, and other programs, may share an address.

If the peer has keys, it seals datagrams with the key of their group (`security/group_keys.py`), which names the sender.
Otherwise it sends from its own socket. So a receiver knows the sender of a multicast as it knows the sender of any
datagram, by the address book. In an open overlay it asks a stranger who it is.
"""

import asyncio
import ipaddress
import logging
import socket
import sys
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from wend.drivers.live.addressing.addresses import Address, check_listen_address, format_address, parse_address
from wend.drivers.live.clock import Clock
from wend.drivers.live.counters import Counters
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.kernel_queue import KernelQueue
from wend.drivers.live.transport.senders import Senders
from wend.drivers.live.transport.socket import BATCH_DATAGRAMS, RECEIVE_BUFFER_BYTES, WAITING_DATAGRAMS, PeerSocket
from wend.model.errors import ConfigError, WireError
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.messages import Message, PlainMessage, control_name, find_event_id
from wend.protocol.ports import Input, JoinMulticast, LeaveMulticast, Multicast, MulticastMembers, Unsent

if TYPE_CHECKING:  # only peers with keys need ciphers
    from wend.drivers.live.transport.sealed_links import SealedLinks

log = logging.getLogger("wend.peer")

AUTO, OFF = "auto", "off"
_FIRST_ADDRESS = int(ipaddress.IPv4Address("239.192.0.0"))
_ADDRESSES = 1 << 18
_FIRST_PORT, _PORTS = 16384, 16384
"""Below the ports that systems assign to programs that ask for any."""
_IP_MULTICAST_ALL = 49
"""Of <linux/in.h>. With 0 a socket hears only groups that it has joined itself."""


class MulticastOptions(msgspec.Struct, frozen=True):
    """The multicast settings of a peer's file."""

    is_on: bool = True
    address: Address | None = None
    """The address of all groups; None: it follows from the name of a group."""
    ttl: int = 1
    interface: str = ""
    """The IPv4 address of the interface; empty: the one on which the peer listens."""
    scope: str = ""
    """Part of the name of all groups, for several overlays on one machine."""


def parse_multicast(text: str) -> tuple[bool, Address | None]:
    """Read `auto`, `off` or `239.192.7.7:7800`."""
    if text in (AUTO, OFF):
        return text == AUTO, None
    host, port = parse_address(text)
    try:
        is_multicast = ipaddress.IPv4Address(host).is_multicast
    except ValueError:
        is_multicast = False
    if not is_multicast or not port:
        raise ConfigError(
            f'multicast_address is "auto", "off" or an IPv4 address for multicast like 239.192.7.7:7800, not {text!r}'
        )
    return True, (host, port)


def check_interface(text: str, insecure: bool) -> None:
    """Raise `ConfigError` unless this is the IPv4 address of an interface that the peer may use."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        raise ConfigError(f"multicast_interface is the IPv4 address of an interface, not {text!r}") from None
    check_listen_address((text, 0), insecure)


def group_number(group: str) -> int:
    """The number of a group in headers."""
    return int.from_bytes(blake2b(group.encode(), digest_size=8).digest())


def group_address(group: str) -> Address:
    number = group_number(group)
    host = ipaddress.IPv4Address(_FIRST_ADDRESS + number % _ADDRESSES)
    return str(host), _FIRST_PORT + (number >> 32) % _PORTS


class MulticastGroups:
    """The groups of one peer. If multicast is off or does not work, the peer neither sends to them nor hears them."""

    def __init__(
        self,
        me: PeerId,
        incarnation: int,
        socket_: PeerSocket,
        types: wire.MessageTypes,
        options: MulticastOptions,
        senders: Senders,
        sealed: "SealedLinks | None",
        counters: Counters,
        clock: Clock,
        *,
        arrive: Callable[[PeerId, bytes, Callable[[bytes], None]], None],
        hear: Callable[[PeerId, list[Message], Nanos], None],
        tell: Callable[[Input], None],
    ) -> None:
        """`arrive` passes the body of a datagram over the link from its sender to a callable. `hear` handles messages,
        and gets their sender and how long they waited. `tell` gives an input to the peer."""
        self._me = me
        self._incarnation = incarnation
        self._senders = senders
        self._sealed = sealed
        self._counters = counters
        self._arrive = arrive
        self._hear = hear
        self._tell = tell
        self._clock = clock
        self._socket = socket_
        self._types = types
        self.options = options
        self._interface = options.interface or ("" if socket_.address[0] == "0.0.0.0" else socket_.address[0])
        self._loop: asyncio.AbstractEventLoop | None = None
        self._routes: dict[str, tuple[Address, bytes]] = {}
        """By group: its address, and the header of all datagrams to it."""
        self._joined: dict[int, Address] = {}
        self._listening: dict[Address, _GroupSocket] = {}
        self._usable: bool | None = None if options.is_on else False
        """None: not tried yet."""

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def close(self) -> None:
        self._loop = None
        for listening in self._listening.values():
            listening.close()
        self._listening.clear()

    def drain(self) -> None:
        """Read the datagrams that have arrived."""
        for listening in tuple(self._listening.values()):
            listening.read(WAITING_DATAGRAMS)

    # ---------------------------------------------------------------- effects

    def join(self, effect: JoinMulticast) -> None:
        if not self._can_send() or self._loop is None:
            return
        address, _ = self._find_destination(effect.group)
        if address not in self._listening:
            try:
                self._listening[address] = _GroupSocket(
                    address, self._interface, self._socket, self, self._loop, self._clock
                )
            except OSError as error:
                self._stop_using(
                    f"cannot join the multicast group {effect.group!r} at {format_address(address)}", error
                )
                return
        self._joined[self._joined_number(effect.group)] = address

    def set_members(self, effect: MulticastMembers) -> None:
        if self._sealed is not None and self.options.is_on:
            number = self._joined_number(effect.group)
            self._sealed.groups.set_members(self._clock(), number, effect.keeper, effect.members)
            self._sealed.perform_groups()

    def leave(self, effect: LeaveMulticast) -> None:
        number = self._joined_number(effect.group)
        if self._sealed is not None:
            self._sealed.groups.leave(number)
        address = self._joined.pop(number, None)
        if address is not None and address not in self._joined.values():
            self._listening.pop(address).close()

    def send(self, effect: Multicast) -> None:
        message, counters, sealed = effect.message, self._counters, self._sealed
        if not self._can_send():
            counters.notices["multicast-off"] += 1
            return
        try:
            body = wire.encode_message(message)
        except WireError as error:
            counters.refused["oversize"] += 1
            log.warning("peer %d cannot multicast to %r: %s", self._me, effect.group, error)
            self._tell(Unsent(self._me, message))
            return
        address, header = self._find_destination(effect.group)
        datagram = (
            wire.frame_datagram(header, body)
            if sealed is None
            else sealed.groups.seal(self._joined_number(effect.group), body)
        )
        if datagram is None:
            return
        counters.notices["multicast"] += 1
        if (id_ := find_event_id(message)) is None:
            counters.count_control(control_name(message))
        else:
            counters.count_data(id_, 1)
        self._socket.transmit(address, datagram)

    def _joined_number(self, group: str) -> int:
        return group_number(self.options.scope + group)

    def _find_destination(self, group: str) -> tuple[Address, bytes]:
        route = self._routes.get(group)
        if route is None:
            name = self.options.scope + group
            header = wire.make_header(self._me, group_number(name), self._incarnation, wire.MULTICAST)
            route = self._routes[group] = (self.options.address or group_address(name), header)
        return route

    def _can_send(self) -> bool:
        if self._usable is None:
            self._usable = True
            if self._socket.family != socket.AF_INET:
                self._stop_using("cannot multicast", OSError(0, "it does not listen on an IPv4 address"))
            else:
                try:
                    self._socket.prepare_multicast(self._interface, self.options.ttl)
                except OSError as error:
                    self._stop_using(f"cannot multicast on the interface {self._interface!r}", error)
        return self._usable

    def _stop_using(self, what: str, error: OSError) -> None:
        self._usable = False
        self._counters.failed["multicast"] += 1
        log.warning("peer %d %s: %s; it goes on without multicast", self._me, what, error.strerror)

    # ---------------------------------------------------------------- datagrams that arrive

    def receive(self, datagram: bytes, address: Address, waited_ns: Nanos = 0) -> None:
        """Handle a datagram to the address of a group, which waited in a queue of this host."""
        if self._sealed is not None:
            opened = self._sealed.groups.open(self._clock(), datagram)
            self._sealed.perform_groups()
            if opened is not None:
                self._arrive(opened.sender, opened.body, partial(self.receive_body, opened.sender, waited_ns=waited_ns))
            return
        fault = wire.find_fault(datagram)
        if fault is None:
            self.receive_open(wire.unframe_datagram(datagram), address, waited_ns)
        elif fault == "garbage":
            self._refuse_foreign("foreign-multicast", address)
        else:
            self._senders.refuse_unreadable(fault, datagram, address)

    def receive_open(self, inner: wire.InnerDatagram, address: Address, waited_ns: Nanos) -> None:
        """Handle an inner datagram that came over an open link."""
        sender, group, incarnation = inner.header
        if inner.kind != wire.MULTICAST:
            self._refuse_foreign("foreign-multicast", address)
        elif group not in self._joined:
            self._refuse_foreign("other-multicast-group", address)
        elif sender == self._me:
            if incarnation != self._incarnation:  # otherwise the peer hears itself
                self._counters.refused["misdirected"] += 1
        elif self._senders.identify_multicast(inner, address):
            self._arrive(sender, bytes(inner.body), partial(self.receive_body, sender, waited_ns=waited_ns))

    def receive_body(self, sender: PeerId, body: bytes, waited_ns: Nanos = 0) -> None:
        """Handle a message of a member of the group."""
        try:
            messages = wire.decode_body(wire.MESSAGE, body, self._types)
        except WireError:
            messages = []
        if messages and isinstance(messages[0], PlainMessage):
            self._hear(sender, messages, waited_ns)
        else:
            self._counters.refused["garbage"] += 1

    def _refuse_foreign(self, reason: str, sender: Address) -> None:
        """Refuse a packet of another program that uses the address of a group, and log the first."""
        refused = self._counters.refused
        refused[reason] += 1
        if refused["foreign-multicast"] + refused["other-multicast-group"] == 1:
            at = " or ".join(format_address(address) for address in self._listening)
            log.warning(
                "peer %d: other programs, such as that at %s, use the multicast address %s; their packets are refused; "
                'multicast_address = "ADDRESS:PORT" names another',
                self._me, format_address(sender), at,
            )  # fmt: skip


class _GroupSocket:
    """A socket that listens at one address. Several peers on one host can share it."""

    def __init__(
        self,
        address: Address,
        interface: str,
        socket_: PeerSocket,
        groups: MulticastGroups,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
    ) -> None:
        self._peer_socket = socket_
        self._groups = groups
        self._loop = loop
        self._buffer = bytearray(65536)
        self._socket = listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if sys.platform == "linux":
                listening.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
            else:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            listening.bind(address)
            membership = socket.inet_aton(address[0]) + socket.inet_aton(interface or "0.0.0.0")
            listening.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
        self._clock = clock
        self._kernel_queue = KernelQueue(listening, clock)
        self._open = True
        loop.add_reader(listening.fileno(), partial(self.read, BATCH_DATAGRAMS))

    def close(self) -> None:
        self._open = False
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def read(self, most: int) -> None:
        """Read datagrams that have arrived, and bundle the peer's answers to each neighbour meanwhile."""
        queue = self._peer_socket.queue
        queue.start_bundling()
        for _ in range(most):
            if not self._open or not self._read():
                break
        queue.flush()

    def _read(self) -> bool:
        try:
            size, address = self._socket.recvfrom_into(self._buffer)
        except OSError:  # nothing is left to read
            self._kernel_queue.note_empty(self._clock())
            return False
        self._groups.receive(bytes(self._buffer[:size]), address, self._kernel_queue.waited_ns(self._clock()))
        return True
