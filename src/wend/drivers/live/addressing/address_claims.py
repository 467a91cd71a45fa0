"""Claims that a peer is at an address, until the address itself has answered.

If the id is known at another address, that one is asked, too. Datagrams from the new address wait until the claim is
decided. The number of claims, and the bytes that wait for them, are bounded.
"""

from collections.abc import Callable

from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.address_messages import AddressReply
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.transport.wire import FRAME_BYTES, InnerDatagram
from wend.model.events import PeerId
from wend.model.units import MS, Nanos

ANSWER_NS: Nanos = 250 * MS
"""How long the locator waits for an answer before it asks again, or asks another peer."""
CLAIM_TRIES = 4
MAX_CLAIMS = 256
MAX_HELD_BYTES = 1 << 20
"""The most bytes of all datagrams that wait for claims."""


class AddressClaim:
    """The claim that the peer with an id is at an address."""

    def __init__(self, peer: PeerId, address: Address, rival: Address | None) -> None:
        self.peer = peer
        self.address = address
        self.rival = rival
        """The address that the book has for the id, if it is another."""
        self.datagrams: list[tuple[InnerDatagram, Nanos]] = []
        """Datagrams from there, with their times of arrival."""
        self.instance: int | None = None
        self.rival_instance: int | None = None
        self.link = False
        """Whether the peer wants a link."""
        self.tries_left = CLAIM_TRIES
        self.due_ns: Nanos = 0


class AddressClaims:
    """The claims that are not decided yet."""

    def __init__(
        self,
        book: AddressBook,
        ask: Callable[[Nanos, Address, AddressClaim], None],
        decided: Callable[[Nanos, AddressClaim], None],
    ) -> None:
        """`ask` sends a question to an address; its answer goes to `on_reply`. `decided` gets each claim that is
        decided."""
        self._book = book
        self._ask = ask
        self._decided = decided
        self._claims: dict[tuple[PeerId, Address], AddressClaim] = {}
        self._held_bytes = 0

    def due_times(self) -> list[Nanos]:
        """When `tick` has something to do."""
        return [claim.due_ns for claim in self._claims.values()]

    def is_claimed(self, peer: PeerId) -> bool:
        return any(peer == claimed for claimed, _ in self._claims)

    def add(self, now: Nanos, peer: PeerId, address: Address) -> AddressClaim | None:
        """Add the claim that a peer is at an address, and ask the address. Returns None if too many claims wait."""
        claim = self._claims.get((peer, address))
        if claim is None and len(self._claims) < MAX_CLAIMS:
            current = self._book.reachable.get(peer)
            rival = None if current == address else current
            claim = self._claims[peer, address] = AddressClaim(peer, address, rival)
            self._ask_again(now, claim)
        return claim

    def hold(self, now: Nanos, claim: AddressClaim, inner: InnerDatagram) -> bool:
        """Keep a datagram of the peer until its claim is decided. Returns False if too many datagrams wait."""
        size = FRAME_BYTES + len(inner.body)
        if self._held_bytes + size > MAX_HELD_BYTES:
            return False
        claim.datagrams.append((inner._replace(body=bytes(inner.body)), now))
        self._held_bytes += size
        return True

    def tick(self, now: Nanos) -> None:
        for claim in [claim for claim in self._claims.values() if now >= claim.due_ns]:
            self._ask_again(now, claim)

    def on_reply(self, now: Nanos, claim: AddressClaim, sender: PeerId, reply: AddressReply, address: Address) -> None:
        if self._claims.get((claim.peer, claim.address)) is not claim:
            return
        if address == claim.rival:
            if sender == claim.peer:
                claim.rival_instance = reply.instance
            else:
                claim.rival = None  # another peer now has that address
        elif sender == claim.peer:
            claim.instance = reply.instance
        else:
            claim.tries_left = 0
        if claim.tries_left == 0 or (
            claim.instance is not None and (claim.rival is None or claim.rival_instance is not None)
        ):
            self._decide(now, claim)

    def _ask_again(self, now: Nanos, claim: AddressClaim) -> None:
        """Ask both addresses of a claim again, or decide it by the answers so far."""
        if claim.tries_left == 0:
            self._decide(now, claim)
            return
        claim.tries_left -= 1
        claim.due_ns = now + ANSWER_NS
        if claim.instance is None:
            self._ask(now, claim.address, claim)
        if claim.rival is not None:
            self._ask(now, claim.rival, claim)

    def _decide(self, now: Nanos, claim: AddressClaim) -> None:
        del self._claims[claim.peer, claim.address]
        self._held_bytes -= sum(FRAME_BYTES + len(inner.body) for inner, _ in claim.datagrams)
        self._decided(now, claim)
