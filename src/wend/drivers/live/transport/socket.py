"""A peer's socket and the queue of datagrams that it sends.

The peer reads the socket in bounded batches, so that it serves timers and clients while datagrams flood in. It reads
directly instead of through an asyncio transport: so it refuses a datagram of a stranger before it allocates anything
for it, and can read datagrams that have arrived before a timer runs.

While a batch is read, or requests of clients are served, messages to the same neighbour are bundled into one datagram.
A busy peer answers many datagrams at once, and most of the answers go to a few neighbours.
"""

import asyncio
import socket
from collections.abc import Callable

from wend.drivers.live.addressing.addresses import Address, bind_socket, check_listen_address
from wend.drivers.live.clock import Clock
from wend.drivers.live.counters import Counters
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.flood_filter import FloodFilter
from wend.drivers.live.transport.kernel_queue import CHECK_NS, KernelQueue
from wend.model.events import PeerId
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.messages import Ack, increase_age

RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
BATCH_DATAGRAMS = 64
WAITING_DATAGRAMS = 2048
"""The most that are read before a timer runs, so that a busy host does not miss an answer in its own socket."""
QUIET_NS = MS
"""A socket without a datagram for this long is quiet."""
AT_ONCE_NS = MS // 10
"""A datagram that is read so soon after the last one had probably arrived before it: there may be more."""
HOLD_NS = MS
"""How long an ACK may wait for other messages to the same neighbour. Timeouts of live peers allow for more."""
MAX_ACKS = 32
"""The most ACKs that wait, so that they fit into one bundle."""

SendBody = Callable[[int, bytes], None]
"""Sends the body of an inner datagram of some kind to one peer, over an open or a sealed link."""


class SendQueue:
    """Sends messages at once, or bundles them until `flush` while a batch is read.

    If a neighbour got ACKs within the last `HOLD_NS`, the next ones wait for other messages to it, for at most as long.
    So a busy link carries a few datagrams of ACKs per millisecond instead of one for each packet, and each ACK says how
    long it waited.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._routes: dict[PeerId, SendBody] = {}
        self._bundling = False
        self._waiting: dict[PeerId, tuple[int, list[bytes]]] = {}
        """By peer: the size of the bundle, and its encoded messages."""
        self._acks: dict[PeerId, list[tuple[Ack, Nanos]]] = {}
        """By peer: the ACKs that wait, each with the time since when."""
        self._acked_ns: dict[PeerId, Nanos] = {}
        """By peer: when ACKs were last sent."""
        self._timer: asyncio.TimerHandle | None = None
        self.waited_ns: Nanos = 0
        """How long the current datagram waited for this process. ACKs for it include this time."""

    def add(self, peer: PeerId, send: SendBody) -> None:
        """Add a peer, and the function that sends it a body."""
        self._routes[peer] = send

    def remove(self, peer: PeerId) -> None:
        for by_peer in (self._routes, self._waiting, self._acks, self._acked_ns):
            by_peer.pop(peer, None)

    def send(self, peer: PeerId, body: bytes) -> None:
        """Send an encoded message."""
        if not self._bundling:
            if peer in self._acks:
                self._transmit(peer, [body])
            else:
                self._routes[peer](wire.MESSAGE, body)
            return
        size, bodies = self._waiting.get(peer, (0, []))
        if bodies and size + len(body) > wire.BUNDLE_BYTES:
            self._routes[peer](*wire.join_bodies(bodies))
            size, bodies = 0, []
        bodies.append(body)
        self._waiting[peer] = (size + len(body), bodies)

    def send_ack(self, peer: PeerId, ack: Ack) -> None:
        now = self._clock()
        since = now - self.waited_ns
        acks = self._acks.get(peer)
        if acks is not None:
            acks.append((ack, since))
            if len(acks) >= MAX_ACKS:
                self._transmit(peer, [])
        elif self._bundling:
            self._acks[peer] = [(ack, since)]
        elif now - self._acked_ns.get(peer, now - HOLD_NS) < HOLD_NS:
            self._acks[peer] = [(ack, since)]
            self._release_later()
        else:
            self._acked_ns[peer] = now
            self.send(peer, wire.encode_message(increase_age(ack, self.waited_ns) if self.waited_ns else ack))

    def start_bundling(self) -> bool:
        """Bundle messages from now on, until `flush`. False if it does so already."""
        is_new, self._bundling = not self._bundling, True
        return is_new

    def bundle_until_turn_ends(self) -> None:
        """Bundle messages until this turn of the event loop ends."""
        if not self._bundling:
            self._bundling = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        self._bundling = False
        for peer, (_, bodies) in self._waiting.items():
            self._transmit(peer, bodies)
        self._waiting.clear()
        if self._acks:
            now = self._clock()
            for peer in list(self._acks):
                if now - self._acked_ns.get(peer, now - HOLD_NS) >= HOLD_NS:
                    self._transmit(peer, [])
            if self._acks:
                self._release_later()

    def release(self) -> None:
        """Send the ACKs that wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for peer in list(self._acks):
            self._transmit(peer, [])

    def clear(self) -> None:
        """Drop all waiting messages: the peer is closed."""
        self._bundling = False
        self._waiting.clear()
        self._acks.clear()
        self.release()

    def _release_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HOLD_NS / SECOND, self.release)

    def _transmit(self, peer: PeerId, bodies: list[bytes]) -> None:
        """Send messages with the ACKs that wait."""
        send = self._routes[peer]
        if acks := self._acks.pop(peer, None):
            self._acked_ns[peer] = now = self._clock()
            encoded = [wire.encode_message(Ack(ack.tx, ack.accepted, now - since)) for ack, since in acks]
            if bodies and sum(map(len, encoded)) + sum(map(len, bodies)) > wire.BUNDLE_BYTES:
                send(*wire.join_bodies(encoded))
            else:
                bodies = [*encoded, *bodies]
        send(*wire.join_bodies(bodies))


class PeerSocket:
    """The UDP socket of one peer. It is bound at once, so that its address is known, and read once it is opened."""

    def __init__(
        self,
        listen: Address,
        insecure: bool,
        receive: Callable[[memoryview, Address, Nanos], None],
        counters: Counters,
        clock: Clock,
    ) -> None:
        """`receive` gets each datagram, its sender's address, and the time for which it waited in the kernel."""
        self.queue = SendQueue(clock)
        self.receive = receive
        self._counters = counters
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._read_ns: Nanos = 0
        self._batch = 1
        self._buffer = bytearray(65536)
        self._view = memoryview(self._buffer)
        self._socket = bind_socket(check_listen_address(listen, insecure), socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self._kernel_queue = KernelQueue(self._socket, clock)
        self._waited_ns: Nanos = 0
        self.now_ns: Nanos = clock()
        """When the current datagram was read."""
        self.family = self._socket.family
        host, port = self._socket.getsockname()[:2]
        self.address: Address = (host, port)

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.add_reader(self._socket.fileno(), self._on_readable)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop = None
        self.queue.clear()
        self._socket.close()

    def drain(self) -> Nanos:
        """Read the datagrams that have arrived. If there are too many, returns how long the others have waited."""
        self.queue.start_bundling()
        are_left = self._read_batch(WAITING_DATAGRAMS) == WAITING_DATAGRAMS
        self.queue.flush()
        return self._waited_ns if are_left else 0

    def transmit(self, address: Address, datagram: bytes) -> None:
        try:
            self._socket.sendto(datagram, address)
        except (OSError, OverflowError, TypeError, ValueError):
            # A full send buffer loses datagrams, as a full router does. The protocol repairs such losses. The other
            # errors come from invalid addresses, which another peer may have sent.
            self._counters.failed["send"] += 1

    def flood_filter(self) -> FloodFilter:
        """The filter of this socket against floods."""
        return FloodFilter(self._socket)

    def prepare_multicast(self, interface: str, ttl: int) -> None:
        """Send to multicast groups over an interface, named by its IPv4 address; empty: the system's choice."""
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)  # for other peers on this host
        if interface:
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))

    def _on_readable(self) -> None:
        """Read one datagram from a quiet socket, and several from a busy one: a failed attempt costs as much as a
        read."""
        quiet_ns = self._clock() - self._read_ns
        if self._batch == 1 or quiet_ns > QUIET_NS:
            self._read()
            self._batch = 2 if quiet_ns < AT_ONCE_NS else 1
        else:
            self.queue.start_bundling()
            try:
                count = self._read_batch(self._batch)
            finally:
                self.queue.flush()
            self._batch = min(2 * count, BATCH_DATAGRAMS) if count == self._batch else max(1, count)
        self._read_ns = self._clock()

    def _read_batch(self, most: int) -> int:
        for count in range(most):
            if not self._read():
                return count
        return most

    def _read(self) -> bool:
        """Read one datagram. Returns whether there was one, so that there may be more."""
        try:
            size, address = self._socket.recvfrom_into(self._buffer)
        except BlockingIOError:
            self._kernel_queue.note_empty(self._clock())
            return False
        except OSError:
            self._counters.failed["receive"] += 1
            return False
        self.now_ns = now = self._clock()
        if self._waited_ns or now - self._kernel_queue.checked_ns > CHECK_NS:
            self._waited_ns = self._kernel_queue.waited_ns(now)
        self.queue.waited_ns = self._waited_ns
        self.receive(self._view[:size], address[:2], self._waited_ns)
        self.queue.waited_ns = 0
        return self._loop is not None
