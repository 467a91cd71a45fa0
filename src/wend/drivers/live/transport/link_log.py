"""The log of link changes: one line each, with the neighbour's address; and when each link last changed.

On an overloaded host, or in a network that flaps, links may change many times a second. So the number of lines per
period is bounded, and the next line says how many are missing.
"""

import logging
from collections.abc import Iterable, Mapping

import msgspec

from wend.drivers.live.addressing.addresses import Address, format_address
from wend.drivers.live.clock import Clock
from wend.drivers.live.log_limit import LogLimit
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos, duration_text
from wend.protocol.link.link import Link
from wend.protocol.notices import LINK_DOWN, LINK_UP
from wend.protocol.ports import Notice
from wend.protocol.status import LinkStatus

log = logging.getLogger("wend.peer")

LINES, PERIOD_NS = 20, 10 * SECOND


class LinkLog:
    """Logs the changes of the links of one peer."""

    def __init__(
        self, me: PeerId, links: Mapping[PeerId, Link], addresses: Mapping[PeerId, Address], clock: Clock
    ) -> None:
        self._me = me
        self._links = links
        self._addresses = addresses
        self._clock = clock
        self._limit = LogLimit(LINES, PERIOD_NS)
        self._begun_ns = clock()
        self._changed_ns: dict[PeerId, Nanos] = {}

    def link_age_ns(self, peer: PeerId) -> Nanos:
        """How long ago the link last changed."""
        return self._clock() - self._changed_ns.get(peer, self._begun_ns)

    def add_addresses(self, links: Iterable[LinkStatus]) -> tuple[LinkStatus, ...]:
        """The status of links, with their addresses and ages, which only the driver knows."""
        return tuple(
            msgspec.structs.replace(
                link, address=self._peer_with_address(link.neighbour), changed_ns=self.link_age_ns(link.neighbour)
            )
            for link in links
        )

    def _peer_with_address(self, peer: PeerId) -> str:
        address = self._addresses.get(peer)
        return "" if address is None else format_address(address)

    def log_incarnation(self, peer: PeerId, restarted: bool) -> None:
        """Log a packet with a new incarnation of the neighbour."""
        if restarted:
            self._log("restarted", peer, "")
        elif self._links[peer].is_up:  # otherwise the peer will notice that the link is up
            self._log(LINK_UP, peer, "heard for the first time")

    def log_change(self, notice: Notice) -> None:
        """Log a change of a link that the peer has noticed."""
        peer, link, why = notice.peer, self._links.get(notice.peer), ""
        if notice.what == LINK_DOWN and link is not None:
            silent = f"silent for {duration_text(self._clock() - link.heard_ns)}"
            why = silent if link.heard_by_neighbour else "it does not hear this peer"
        elif notice.what == LINK_UP:
            why = f"after {duration_text(self.link_age_ns(peer))}"
        self._log(notice.what, peer, why)
        if link is None:
            self._changed_ns.pop(peer, None)

    def _log(self, what: str, peer: PeerId, why: str) -> None:
        now = self._changed_ns[peer] = self._clock()
        if not self._limit.allows(now):
            return
        if missing := self._limit.take_suppressed():
            log.info("peer %d: %d more link changes were not logged", self._me, missing)
        at = self._peer_with_address(peer)
        log.info("peer %d: %s %d%s%s", self._me, what, peer, at and f" ({at})", f", {why}" if why else "")
