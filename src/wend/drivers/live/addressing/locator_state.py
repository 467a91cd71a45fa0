"""What the locator remembers: contacts, lookups and questions; and what it tells its user."""

from typing import Any, Protocol

import msgspec

from wend.drivers.live.addressing.addresses import Address
from wend.model.events import PeerId
from wend.model.keys import distance, node_id
from wend.model.units import MS, Nanos
from wend.protocol.ports import Send

MOST_ASKED = 24
"""Addresses that one lookup asks, at most."""
FIRST_RETRY: Nanos = 200 * MS


class LocatorUser(Protocol):
    """The live peer, as its locator sees it."""

    def transmit(self, address: Address, datagram: bytes) -> None: ...

    def informants(self) -> tuple[PeerId, ...]:
        """Peers that may know the addresses of others."""
        ...

    def on_located(self, peer: PeerId, address: Address) -> None:
        """The book has a new address for the peer."""

    def on_forgotten(self, peer: PeerId) -> None:
        """The book has no address for the peer any more."""

    def on_found(self, waiting: Send, waited_ns: Nanos) -> None:
        """This message, which has waited, can be sent now."""

    def on_admitted(self, datagram: bytes, address: Address, waited_ns: Nanos) -> None:
        """The sender of this datagram, which has waited, is known now."""

    def on_contact(self, peer: PeerId) -> None:
        """A peer to join by answers. This peer itself, if all addresses to join by are its own."""

    def admits(self, peer: PeerId) -> bool:
        """Whether a peer that asks for a link may have it."""
        ...

    def wants(self, peer: PeerId) -> bool:
        """Whether this peer wants a link with a contact."""
        ...

    def is_silent(self, peer: PeerId) -> bool:
        """Whether the link with a peer does not work."""
        ...

    def on_link_asked(self, peer: PeerId) -> None:
        """A peer whose address is confirmed wants a link."""

    def on_not_admitted(self, peer: PeerId, address: Address) -> None:
        """A peer to join by refuses a link."""

    def on_same_id(self, address: Address) -> None:
        """Another process with this peer's id answers at this address."""


class ContactAddress:
    def __init__(self, address: Address) -> None:
        self.address = address
        self.due_ns: Nanos = 0
        self.wait_ns = FIRST_RETRY
        self.instance: int | None = None
        self.peer: PeerId | None = None
        """Who has answered there."""


class AddressLookup:
    def __init__(self, peer: PeerId, ends_ns: Nanos) -> None:
        self.peer = peer
        self.place = node_id(peer)
        self.ends_ns = ends_ns
        self.due_ns: Nanos = 0
        self.waiting: list[tuple[Send, Nanos]] = []
        """Messages, with the time since which each waits."""
        self.candidates: dict[Address, PeerId] = {}
        """Whom it has not asked yet."""
        self.asked: set[Address] = set()
        self.open = 0
        """Questions without an answer."""
        self.doubted: Address | None = None
        self.mentioned_at: Address | None = None
        """The address of the peer that seems to have mentioned this one."""

    def add(self, peer: PeerId, address: Address) -> None:
        if address not in self.asked and len(self.asked) + len(self.candidates) < MOST_ASKED:
            self.candidates[address] = peer

    def next(self) -> Address | None:
        """The candidate that is closest to the id on the ring."""
        nearest = min(
            self.candidates, key=lambda at: (distance(node_id(self.candidates[at]), self.place), at), default=None
        )
        if nearest is not None:
            del self.candidates[nearest]
            self.asked.add(nearest)
        return nearest


class AddressQuestion(msgspec.Struct, frozen=True, gc=False):
    address: Address
    ends_ns: Nanos
    about: Any
    """The contact, claim or lookup that asks."""
