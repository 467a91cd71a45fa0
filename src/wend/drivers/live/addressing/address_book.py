"""The address book: where other peers are, and which of them sent a datagram.

A peer is known by its id. It may have several addresses; the last one that was added is used for sending. `identify`
decides by the source address who sent an open datagram, so an address belongs to one peer. On sealed links the session
names the sender, and nobody asks the book: there a peer that is heard at the address of another peer does not take it
over, because its packets may have a wrong source.

The book changes only by `add`, `move` and `remove`, never by a datagram that arrives. If peers join a running overlay,
`locator.py` calls them after the address has answered a question.
"""

from typing import Literal

from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.transport.wire import Header
from wend.model.events import PeerId

Unidentified = Literal["stranger", "garbage", "misdirected", "stale"]
"""Why a datagram is refused: its address is unknown, its header is unreadable, it names an unexpected sender or
receiver, or an earlier incarnation of its sender sent it."""


class AddressBook:
    """The addresses of other peers, and the peer that each address belongs to."""

    def __init__(self, me: PeerId, *, sealed: bool = False) -> None:
        """`sealed`: sessions name the senders, not addresses."""
        self._me = me
        self._sealed = sealed
        self.reachable: dict[PeerId, Address] = {}
        """Where to send to each peer that has an address."""
        self.verified: dict[tuple[Address, bytes], PeerId] = {}
        """Senders by address and header bytes, for the current incarnation of each: a header is checked once."""
        self._owners: dict[Address, PeerId] = {}
        self._hosts: set[str] = set()
        self._incarnations: dict[PeerId, int] = {}

    def add(self, peer: PeerId, address: Address) -> None:
        """Add a resolved address of a peer. An address belongs to the peer that it was last added for."""
        former = self._owners.pop(address, peer)
        self._owners[address] = peer
        self.reachable[peer] = address
        self._hosts.add(address[0])
        if former != peer and not self._sealed:
            self._forget_headers(former)
            others = [at for at, owner in self._owners.items() if owner == former]
            if others:
                self.reachable[former] = others[-1]
            else:
                del self.reachable[former]

    def move(self, peer: PeerId, address: Address) -> None:
        """Replace all addresses of a peer by this one. Its earlier incarnations stay stale."""
        incarnation = self._incarnations.get(peer)
        self.remove(peer)
        self.add(peer, address)
        if incarnation is not None:
            self._incarnations[peer] = incarnation

    def remove(self, peer: PeerId) -> None:
        """Forget a peer."""
        self._forget_headers(peer)
        for address in [at for at, owner in self._owners.items() if owner == peer]:
            del self._owners[address]
        self.reachable.pop(peer, None)
        self._incarnations.pop(peer, None)
        self._hosts = {host for host, _ in (*self._owners, *self.reachable.values())}

    def incarnation(self, peer: PeerId) -> int:
        """The latest known incarnation of a peer, or 0."""
        return self._incarnations.get(peer, 0)

    def find_owner(self, address: Address) -> PeerId | None:
        """The peer that has this address."""
        return self._owners.get(address)

    def has_host(self, address: Address) -> bool:
        """Whether a known peer is on the same host."""
        return address[0] in self._hosts

    def identify(self, header: Header | None, address: Address) -> PeerId | Unidentified:
        """The sender of a datagram from this address. `header` is None if it could not be read."""
        owner = self._owners.get(address)
        if owner is None:
            return "stranger"
        if header is None:
            return "garbage"
        if header.sender != owner or header.receiver != self._me:
            return "misdirected"
        if header.incarnation < self._incarnations.get(owner, 0):
            return "stale"
        return owner

    def confirm(self, header: Header, address: Address, head: bytes) -> None:
        """Record the header of a datagram that was identified and decoded. Datagrams with the same header bytes need no
        further check."""
        self.record_incarnation(header)
        self.verified[address, head] = header.sender

    def record_incarnation(self, header: Header) -> None:
        """Record the incarnation of an identified sender. Its earlier incarnations are stale from now on."""
        if header.incarnation != self._incarnations.get(header.sender):
            self._forget_headers(header.sender)
            self._incarnations[header.sender] = header.incarnation

    def _forget_headers(self, peer: PeerId) -> None:
        for key in [key for key, sender in self.verified.items() if sender == peer]:
            del self.verified[key]
