"""The log of strangers: one line for each address whose datagrams a peer refuses.

Two peers that have wrong addresses for each other hear nothing. The line names the sender's address and the likely
neighbour, so that an operator can find the mistake in a file. The number of lines per minute is bounded.
"""

import logging
from collections.abc import Container

from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.addresses import Address, format_address
from wend.drivers.live.clock import Clock
from wend.drivers.live.log_limit import LogLimit
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.wire import Header
from wend.model.events import PeerId
from wend.model.units import MINUTE, Nanos

log = logging.getLogger("wend.peer")

MAX_REMEMBERED = 1024
LINES_PER_MINUTE = 10


class StrangerLog:
    """Logs the first datagram of each unknown sender."""

    def __init__(
        self, me: PeerId, book: AddressBook, links: Container[PeerId], clock: Clock, patience_ns: Nanos = 0
    ) -> None:
        """`patience_ns`: how long a sender may take to join before it is logged."""
        self._me = me
        self._book = book
        self._links = links
        self._clock = clock
        self._limit = LogLimit(LINES_PER_MINUTE, MINUTE)
        self._patience_ns = patience_ns
        self._seen: dict[tuple[Address, PeerId | None], Nanos | None] = {}
        """By address and claimed id, oldest first: when the first datagram came, or None once it was logged."""

    def log_refused(self, header: Header | None, datagram: bytes | memoryview, address: Address) -> None:
        """Log a refused datagram: its sender is unknown, it is for another peer, or it is stale. `header`: None if it
        could not be read."""
        key = (address, None if header is None else header.sender)
        now = self._clock()
        if key not in self._seen:
            if len(self._seen) >= MAX_REMEMBERED:
                del self._seen[next(iter(self._seen))]
            self._seen[key] = now
        first_ns = self._seen[key]
        if first_ns is None or now - first_ns < self._patience_ns or not self._limit.allows(now):
            return
        self._seen[key] = None
        log.warning(
            "peer %d refuses datagrams from %s: %s",
            self._me,
            format_address(address),
            self._drop_reason(header, datagram, address),
        )

    def _drop_reason(self, header: Header | None, datagram: bytes | memoryview, address: Address) -> str:
        if header is None:
            fault = wire.find_fault(datagram)
            if fault is None:
                return "they ask for addresses or groups, and this peer serves only its neighbours"
            return f"the sender is unknown, and it sent {wire.explain_fault(fault, datagram)}"
        sender, receiver, _ = header
        if receiver != self._me:
            return f"peer {sender} sends them to peer {receiver}, and this is peer {self._me}"
        if sender == self._me:
            return "they are from another peer that has this peer's id"
        owner = self._book.find_owner(address)
        if owner == sender:
            return (
                f"they are from an earlier incarnation of peer {sender}; the clock of its host was set back and the "
                "peer has no store, or an old process of it still runs"
            )
        if owner is not None:
            return f"they are from peer {sender}, and this address is that of peer {owner}"
        if (known := self._book.reachable.get(sender)) is not None:
            return f"they are from peer {sender}, whose address is {format_address(known)} here"
        if sender in self._links:
            return f"they are from peer {sender}, whose name has no address yet"
        return f"they are from peer {sender}, which is no neighbour of this peer"
