"""Who sent an open datagram: a known peer, a peer that joins, or a stranger, whose datagram is refused.

The address book says who is where. A datagram of a peer that may be joining waits at the locator. Refusals are counted,
and the first of each sender are logged, because the log is all that shows that two peers have wrong addresses.
"""

import logging
from collections.abc import Callable

from wend.drivers.live.addressing.address_book import AddressBook, Unidentified
from wend.drivers.live.addressing.addresses import Address, format_address
from wend.drivers.live.addressing.joining import Joining
from wend.drivers.live.clock import Clock
from wend.drivers.live.counters import Counters
from wend.drivers.live.paths.probes import make_probe_answer
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.link_log import LinkLog
from wend.drivers.live.transport.strangers import StrangerLog
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.link.link import Link, NeighbourState

log = logging.getLogger("wend.peer")

STALE_NS: Nanos = 5 * SECOND
SILENT_NS = 30 * SECOND
"""After so long without a packet, the address of a neighbour may have changed, even if nobody sends hellos."""
JOIN_NS = 2 * SECOND
"""How long it may take until a peer that joins is known."""
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
        """The header of an open datagram from a known peer; None if the datagram is refused, must wait, or is about
        addresses."""
        fault = wire.find_fault(datagram)
        inner = None if fault is not None else wire.unframe_datagram(datagram)
        if inner is not None and inner.kind == wire.ADDRESSES and self._joining is not None:
            self._joining.receive(inner, address)
            return None
        if inner is not None and inner.kind not in wire.MESSAGES:
            inner = None
        header = None if inner is None else inner.header
        sender = self._book.identify(header, address)
        if not isinstance(sender, str):
            return header
        if inner is None or sender not in _UNKNOWN_SENDER or not self._should_wait(inner, address):
            self._refuse(sender, fault, header, datagram, address)
        return None

    def _should_wait(self, inner: wire.InnerDatagram, address: Address) -> bool:
        return self._joining is not None and self._joining.hold(inner, address)

    def _refuse(
        self,
        reason: Unidentified,
        fault: wire.Fault | None,
        header: wire.Header | None,
        datagram: memoryview,
        address: Address,
    ) -> None:
        """Count a datagram from an unknown sender, and log the first of each."""
        is_overlay_open = self._joining is not None and not self._joining.makes_links
        if fault is not None and fault != "garbage" and (reason != "stranger" or is_overlay_open):
            self.refuse_unreadable(fault, datagram, address)
        elif reason != "stranger" or not self.answer_probe(datagram, address):
            self._counters.refused[reason] += 1
            if reason in _UNKNOWN_SENDER:
                self._strangers.log_refused(header, datagram, address)
            elif reason == "stale" and header is not None:
                self._log_stale(header, address)

    def admit(self, header: wire.Header, address: Address) -> bool:
        """Whether to handle a datagram that has waited until the address of its sender was confirmed."""
        sender = self._book.identify(header, address)
        if isinstance(sender, str):
            self._counters.refused[sender] += 1
            self._log_stale(header, address)
            return False
        return True

    def _log_stale(self, header: wire.Header, address: Address) -> None:
        if self.is_silent(header.sender):
            self._stale.log_refused(header, b"", address)

    def identify_multicast(self, inner: wire.InnerDatagram, address: Address) -> bool:
        """Whether the sender of an open multicast is known; if not, the datagram is refused, or waits until it is."""
        header = inner.header._replace(receiver=self._me)
        sender = self._book.identify(header, address)
        if not isinstance(sender, str):
            self._book.record_incarnation(header)
            return True
        if sender == "stale" or not self._should_wait(inner, address):
            self._counters.refused[sender] += 1
        return False

    def confirm(self, header: wire.Header, address: Address, head: bytes) -> None:
        """Record a sender, and log its incarnation, when its first datagram with this header arrives."""
        self.record_incarnation(header)
        self._book.confirm(header, address, head)

    def record_incarnation(self, header: wire.Header) -> None:
        """Record the incarnation of a known sender. Logs a new one."""
        former = self._book.incarnation(header.sender)
        self._book.record_incarnation(header)
        if former != header.incarnation and header.sender in self._links:
            self._link_log.log_incarnation(header.sender, restarted=former > 0)

    def refuse_stranger(self, header: wire.Header, address: Address) -> None:
        self._counters.refused["stranger"] += 1
        self._strangers.log_refused(header, b"", address)

    def refuse_unreadable(self, fault: wire.Fault, datagram: bytes | memoryview, address: Address) -> None:
        """Count a datagram that cannot be read."""
        self._counters.refused[fault] += 1
        if fault == "other-version" and self._counters.refused[fault] <= _LOGGED_VERSIONS:
            log.warning(
                "peer %d refuses %s, from %s", self._me, wire.explain_fault(fault, datagram), format_address(address)
            )

    def answer_probe(self, datagram: memoryview, address: Address) -> bool:
        """Answer a probe by which the host of a known peer measures the path to this one. False if it is no probe."""
        answer = make_probe_answer(datagram) if self._book.has_host(address) else None
        if answer is None:
            return False
        self._counters.paths["probes-answered"] += 1
        self._transmit(address, answer)
        return True

    def is_silent(self, peer: PeerId) -> bool:
        """Whether a peer has no working link, or has not been heard over it for long."""
        link = self._links.get(peer)
        return link is None or link.state is not NeighbourState.UP or self._clock() - link.heard_ns > SILENT_NS
