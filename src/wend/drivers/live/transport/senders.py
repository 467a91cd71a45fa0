"""Who sent an open datagram: a known peer, one that joins, or a stranger whose datagram is refused.

The address book says who is where. A datagram of somebody who may be joining waits at the locator. What is refused is
counted, and the first few of each kind are logged, because two peers that are wired wrongly hear nothing else.
"""

import logging
from collections.abc import Callable

from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.addresses import Address, show
from wend.drivers.live.addressing.joining import Joining
from wend.drivers.live.clock import Clock
from wend.drivers.live.counters import Counters
from wend.drivers.live.paths.probes import answer_to
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.link_log import LinkLog
from wend.drivers.live.transport.strangers import StrangerLog
from wend.model.errors import WireError
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.link.link import Link, NeighbourState

log = logging.getLogger("wend.peer")

STALE_NS: Nanos = 5 * SECOND
SILENT_NS = 30 * SECOND
"""After so long without a packet the address of a neighbour may have changed, also where nobody sends hellos."""
JOIN_NS = 2 * SECOND
"""A peer that joins may take so long until it is known."""
_UNKNOWN_SENDER = ("stranger", "misdirected")
_LOGGED_VERSIONS = 20


class Senders:
    """Identifies the senders of datagrams to one peer."""

    def __init__(
        self,
        me: PeerId,
        book: AddressBook,
        links: dict[PeerId, Link],
        link_log: LinkLog,
        joining: Joining | None,
        counters: Counters,
        transmit: Callable[[Address, bytes], None],
        clock: Clock,
    ) -> None:
        self._me = me
        self._book = book
        self._links = links
        self._link_log = link_log
        self._joining = joining
        self._counters = counters
        self._transmit = transmit
        self._clock = clock
        self._strangers = StrangerLog(me, book, links, clock, 0 if joining is None else JOIN_NS)
        # A copy that was delayed is stale for a moment only.
        self._stale = StrangerLog(me, book, links, clock, STALE_NS)

    def identify(self, datagram: memoryview, address: Address) -> wire.Header | None:
        """The header of a datagram from a known peer; None where the datagram is refused, or must wait."""
        wrong = wire.fault(datagram)
        if self._joining is not None and wrong is None and wire.is_about_addresses(datagram):
            self._joining.receive(datagram, address)
            return None
        try:
            header = wire.decode_header(datagram)
        except WireError:
            header = None
        sender = self._book.identify(header, address)
        if not isinstance(sender, str):
            return header
        if (
            self._joining is not None
            and header is not None
            and sender in _UNKNOWN_SENDER
            and self._joining.hold(header, datagram, address)
        ):
            return None
        is_open = self._joining is not None and not self._joining.makes_links
        if wrong is not None and wrong != "garbage" and (sender != "stranger" or is_open):
            self.refuse_unreadable(wrong, datagram, address)
        elif sender != "stranger" or not self.answer_probe(datagram, address):
            self._counters.refused[sender] += 1
            if sender in _UNKNOWN_SENDER:
                self._strangers.refused(header, datagram, address)
            elif sender == "stale" and header is not None and self.is_silent(header.sender):
                self._stale.refused(header, datagram, address)
        return None

    def confirm(self, header: wire.Header, address: Address, head: bytes) -> None:
        """Note the first datagram with this header: mostly that of a new incarnation."""
        former = self._book.incarnation(header.sender)
        self._book.confirm(header, address, head)
        if former != header.incarnation and header.sender in self._links:
            self._link_log.heard(header.sender, restarted=former > 0)

    def refuse_stranger(self, header: wire.Header, datagram: memoryview, address: Address) -> None:
        self._counters.refused["stranger"] += 1
        self._strangers.refused(header, datagram, address)

    def refuse_unreadable(self, wrong: wire.Fault, datagram: bytes | memoryview, address: Address) -> None:
        """Count a datagram of a version or with a fault that cannot be read."""
        self._counters.refused[wrong] += 1
        if wrong == "another version" and self._counters.refused[wrong] <= _LOGGED_VERSIONS:
            log.warning("peer %d refuses %s, from %s", self._me, wire.explain(wrong, datagram), show(address))

    def answer_probe(self, datagram: memoryview, address: Address) -> bool:
        """Answer a probe that a known peer's host sends to measure the path to this one, and no other."""
        answer = answer_to(datagram) if self._book.has_host(address) else None
        if answer is None:
            return False
        self._counters.paths["probes answered"] += 1
        self._transmit(address, answer)
        return True

    def is_silent(self, peer: PeerId) -> bool:
        """Whether a peer has no link that works, or has not been heard over it for long."""
        link = self._links.get(peer)
        return link is None or link.state is not NeighbourState.UP or self._clock() - link.heard_ns > SILENT_NS
