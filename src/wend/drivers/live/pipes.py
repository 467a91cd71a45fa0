"""The pipes of a live peer: one to every peer in reach, through the socket or a session, with the shape of its link."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypedDict, Unpack

from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.clock import Clock
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.shaper import PacketFaults, Shaper, Transmit
from wend.drivers.live.transport.socket import PeerSocket
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.units import Nanos

if TYPE_CHECKING:  # only peers with keys need ciphers
    from wend.drivers.live.transport.sealed_links import SealedLinks


class LinkShape(TypedDict, total=False):
    """What a link does to datagrams, for experiments on one machine."""

    delay_ns: Nanos
    loss: float
    faults: PacketFaults
    seed: int
    is_up: Callable[[Nanos], bool]


class PeerPipes:
    """How datagrams leave for other peers."""

    def __init__(
        self, me: PeerId, incarnation: int, socket: PeerSocket, sealed: "SealedLinks | None", clock: Clock
    ) -> None:
        self._pipes: dict[PeerId, Shaper] = {}
        self._incoming: dict[PeerId, Shaper] = {}
        """For multicast: its sender cannot shape the links to single receivers, so each receiver does."""
        self._me = me
        self._incarnation = incarnation
        self._socket = socket
        self._sealed = sealed
        self._clock = clock

    def add(self, peer: PeerId, address: Address, **shape: Unpack[LinkShape]) -> None:
        """Send to a peer at an address that the address book has."""
        sealed, queue = self._sealed, self._socket.queue
        transmit = partial(self._socket.transmit, address) if sealed is None else partial(sealed.send_to_socket, peer)
        pipe = Shaper(transmit, clock=self._clock, **shape)
        self._pipes[peer] = pipe
        self._incoming.pop(peer, None)
        if sealed is not None:
            sealed.set_address(peer, address)
            sealed.add_pipe(peer, None if pipe.is_plain else pipe.send)
            queue.add(peer, partial(sealed.send, peer))
        else:
            self._add_open_link(peer, transmit if pipe.is_plain else pipe.send)

    def remove(self, peer: PeerId) -> None:
        """Send nothing more to a peer."""
        for pipes in (self._pipes, self._incoming):
            if (pipe := pipes.pop(peer, None)) is not None:
                pipe.close()
        self._socket.queue.remove(peer)
        if self._sealed is not None:
            self._sealed.add_pipe(peer, None)

    def cut(self, peer: PeerId) -> None:
        """Lose every datagram to a peer, for experiments. Raises `ConfigError` if its address is unknown."""
        pipe = self._find_pipe(peer)
        pipe.is_cut = True
        if self._sealed is not None:
            self._sealed.add_pipe(peer, pipe.send)
        else:
            self._add_open_link(peer, pipe.send)

    def heal(self, peer: PeerId) -> None:
        """Undo `cut`."""
        self._find_pipe(peer).is_cut = False

    def receive_multicast(self, peer: PeerId, body: bytes, receive: Transmit) -> None:
        """Receive a multicast over a link that has the shape of the link to its sender."""
        outgoing = self._pipes.get(peer)
        if outgoing is None or (outgoing.is_plain and not outgoing.is_cut):
            receive(body)
            return
        pipe = self._incoming.get(peer)
        if pipe is None:
            pipe = self._incoming[peer] = outgoing.copy_for_checked(receive)
        pipe.is_cut = outgoing.is_cut
        pipe.send(body)

    def lost_count(self) -> int:
        return sum(pipe.lost for pipe in (*self._pipes.values(), *self._incoming.values()))

    def corrupted_count(self) -> int:
        return sum(pipe.corrupted for pipe in self._pipes.values())

    def in_flight(self) -> int:
        return sum(pipe.in_flight() for pipe in self._pipes.values())

    def close(self) -> None:
        for pipe in (*self._pipes.values(), *self._incoming.values()):
            pipe.close()

    def send_addresses(self, address: Address, receiver: PeerId, body: bytes) -> None:
        """Send an encoded message about addresses."""
        if self._sealed is not None:
            self._sealed.send_to(address, wire.ADDRESSES, body)
        else:
            header = wire.make_header(self._me, receiver, self._incarnation, wire.ADDRESSES)
            self._socket.transmit(address, wire.frame_datagram(header, body))

    def _find_pipe(self, peer: PeerId) -> Shaper:
        if peer not in self._pipes:
            raise ConfigError(f"there is no link to peer {peer}")
        return self._pipes[peer]

    def _add_open_link(self, peer: PeerId, transmit: Callable[[bytes], None]) -> None:
        self._socket.queue.add(peer, wire.OpenLink(self._me, peer, self._incarnation, transmit).send)
