"""The live peer, as its locator sees it."""

from typing import Protocol

from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.transport.wire import InnerDatagram
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.ports import Send


class LocatorUser(Protocol):
    """The questions and reports of a locator to its peer."""

    def transmit(self, address: Address, receiver: PeerId, body: bytes) -> None:
        """Send an encoded message about addresses."""

    def informants(self) -> tuple[PeerId, ...]:
        """Peers that may know the addresses of others."""
        ...

    def may_link(self, peer: PeerId) -> bool:
        """Whether a peer that asks for a link is admitted."""
        ...

    def wants_link(self, peer: PeerId) -> bool:
        """Whether this peer wants a link with a contact."""
        ...

    def is_silent(self, peer: PeerId) -> bool:
        """Whether the link to a peer is silent."""
        ...

    def on_located(self, peer: PeerId, address: Address) -> None:
        """Called after the book has got a new address for the peer."""

    def on_forgotten(self, peer: PeerId) -> None:
        """Called after the address of the peer was removed from the book."""

    def on_address_found(self, waiting: Send, waited_ns: Nanos) -> None:
        """Called when a message that has waited for an address can be sent."""

    def on_admitted(self, inner: InnerDatagram, address: Address, waited_ns: Nanos) -> None:
        """Called when the sender of a datagram that has waited is known."""

    def on_contact(self, peer: PeerId) -> None:
        """Called when a contact has answered; with this peer itself if all addresses to join by are its own."""

    def on_link_asked(self, peer: PeerId) -> None:
        """Called when a peer whose address is confirmed asks for a link."""

    def on_not_admitted(self, peer: PeerId, address: Address) -> None:
        """Called when a contact refuses a link."""

    def on_same_id(self, address: Address) -> None:
        """Called when another process with this peer's id answers at this address."""
