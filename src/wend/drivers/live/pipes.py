"""The pipes of a live peer: one to every peer in reach, through the socket or a session, with the shape of its link."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypedDict, Unpack

from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.clock import Clock
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.shaper import PacketFaults, Pipe, Shaper
from wend.drivers.live.transport.socket import PeerSocket
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
    """How datagrams leave to other peers."""

    def __init__(
        self, me: PeerId, incarnation: int, socket: PeerSocket, sealed: "SealedLinks | None", clock: Clock
    ) -> None:
        self.shaper = Shaper()
        self._me = me
        self._incarnation = incarnation
        self._socket = socket
        self._sealed = sealed
        self._clock = clock

    def add(self, peer: PeerId, address: Address, **shape: Unpack[LinkShape]) -> None:
        """Send to a peer at an address that the address book has."""
        sealed, queue = self._sealed, self._socket.queue
        transmit = partial(self._socket.transmit, address) if sealed is None else partial(sealed.to_socket, peer)
        pipe = Pipe(transmit, clock=self._clock, **shape)
        self.shaper.add(peer, pipe)
        if sealed is not None:
            sealed.locate(peer, address)
            sealed.add_pipe(peer, None if pipe.is_plain else pipe.put)
            queue.add(peer, partial(sealed.send, peer))
        else:
            self._add_open_link(peer, transmit if pipe.is_plain else pipe.put)

    def remove(self, peer: PeerId) -> None:
        """Send nothing more to a peer."""
        self.shaper.remove(peer)
        self._socket.queue.remove(peer)
        if self._sealed is not None:
            self._sealed.add_pipe(peer, None)

    def cut(self, peer: PeerId) -> None:
        """Lose every datagram to a peer, for experiments. Raises `ConfigError` if its address is unknown."""
        self.shaper.cut(peer)
        put = partial(self.shaper.put, peer)
        if self._sealed is not None:
            self._sealed.add_pipe(peer, put)
        else:
            self._add_open_link(peer, put)

    def heal(self, peer: PeerId) -> None:
        """Undo `cut`."""
        self.shaper.heal(peer)

    def send_addresses(self, address: Address, receiver: PeerId, body: bytes) -> None:
        """Send an encoded message about addresses."""
        if self._sealed is not None:
            self._sealed.send_to(address, wire.ADDRESSES, body)
        else:
            header = wire.header(self._me, receiver, self._incarnation, wire.ADDRESSES)
            self._socket.transmit(address, wire.frame(header, body))

    def _add_open_link(self, peer: PeerId, transmit: Callable[[bytes], None]) -> None:
        self._socket.queue.add(peer, wire.OpenLink(self._me, peer, self._incarnation, transmit).send)
