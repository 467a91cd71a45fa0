"""The live peer, as its locator sees it."""

from typing import Protocol

from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.transport.wire import InnerDatagram
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.ports import Send


class LocatorUser(Protocol):
    """What a locator asks its peer, and what it reports to it."""

    def transmit(self, address: Address, receiver: PeerId, body: bytes) -> None:
        """Send an encoded message about addresses."""

    def informants(self) -> tuple[PeerId, ...]:
        """Peers that may know the addresses of others."""
        ...

    def admits(self, peer: PeerId) -> bool:
        """Whether a peer that asks for a link may have it."""
        ...

    def wants(self, peer: PeerId) -> bool:
        """Whether this peer wants a link with a contact."""
        ...

    def is_silent(self, peer: PeerId) -> bool:
        """Whether the link with a peer does not work."""
        ...

    def on_located(self, peer: PeerId, address: Address) -> None:
        """The book has a new address for the peer."""

    def on_forgotten(self, peer: PeerId) -> None:
        """The book no longer has an address for the peer."""

    def on_found(self, waiting: Send, waited_ns: Nanos) -> None:
        """A message that has waited for an address can be sent now."""

    def on_admitted(self, inner: InnerDatagram, address: Address, waited_ns: Nanos) -> None:
        """The sender of a datagram that has waited is known now."""

    def on_contact(self, peer: PeerId) -> None:
        """A contact has answered: this peer itself if all addresses to join by are its own."""

    def on_link_asked(self, peer: PeerId) -> None:
        """A peer whose address is confirmed asks for a link."""

    def on_not_admitted(self, peer: PeerId, address: Address) -> None:
        """A contact refuses a link."""

    def on_same_id(self, address: Address) -> None:
        """Another process with this peer's id answers at this address."""
