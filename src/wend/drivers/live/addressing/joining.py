"""How a live peer joins an overlay, and admits others: its locator, on the peer's socket and clock.

If a membership decides who is linked, the peer needs no more than a contact. If links are given, the peer and its
contacts make links with each other.
"""

import asyncio
import logging
from collections.abc import Callable

from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.addresses import Address, format_address
from wend.drivers.live.addressing.locator import Locator
from wend.drivers.live.clock import Clock
from wend.drivers.live.counters import Counters
from wend.drivers.live.pipes import PeerPipes
from wend.drivers.live.transport.wire import InnerDatagram
from wend.drivers.live.wake_timer import WakeTimer
from wend.model.events import PeerId
from wend.model.units import MS, Nanos
from wend.protocol.messages import increase_age
from wend.protocol.peer import Peer
from wend.protocol.ports import ContactFound, Effect, Input, LinkAdded, Neighbour, Send, WakeAt

log = logging.getLogger("wend.peer")

MAX_LINKS = 256
"""A peer with this many links admits no more peers."""
LINK_DELAY_NS: Nanos = 20 * MS
"""The expected delay of a link that is made by joining; measurements correct it."""
PATIENCE_S = 5.0
"""How long it waits for an answer before it logs that no peer answers."""


class Joining:
    """Passes inputs and effects between a peer and its locator."""

    def __init__(
        self,
        peer: Peer,
        here: Address,
        contacts: tuple[Address, ...],
        book: AddressBook,
        pipes: PeerPipes,
        counters: Counters,
        clock: Clock,
        *,
        admit: bool = True,
        tell: Callable[[Input], None],
        perform: Callable[[list[Effect]], None],
        receive: Callable[[InnerDatagram, Address, Nanos], None],
        is_silent: Callable[[PeerId], bool],
    ) -> None:
        """`peer`: the state machine; `tell` passes changes to it. `perform` carries out effects that have waited, and
        `receive` handles datagrams that have waited. `is_silent`: whether the link with a peer does not work."""
        self.contacts = tuple(address for address in contacts if address != here)
        """The addresses to join by."""
        self.unresolved: set[Address] = set()
        """Names to join by that have no address yet."""
        self._named: dict[Address, Address] = {}
        """By name to join by: its address."""
        self.transmit = pipes.send_addresses
        self.is_silent = is_silent
        self.on_located: Callable[[PeerId, Address], None] = pipes.add
        self.on_forgotten = pipes.remove
        self.on_admitted = receive
        self.same_id: Callable[[Address], None] = self._log_same_id
        """Called if another process has this peer's id, before this one has joined."""
        self._me = peer.config.peer
        self._peer = peer
        self._here = here
        self._tell = tell
        self._perform = perform
        self._clock = clock
        self.makes_links = peer.config.membership is None
        """Whether links are given: then the peer joins by links with its contacts."""
        self.removed: set[PeerId] = set()
        """Peers whose links the operator removed. Joining does not link them again."""
        self._refused_by: set[Address] = set()
        self._admit = admit
        self._locator = Locator(self._me, here, book, counters, self, asks_links=self.makes_links)
        self._timer = WakeTimer(clock, lambda: 0, self._tick)
        self._complaint: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer.open(loop)
        self._locator.begin(self._clock(), self.contacts)
        self._wake()
        if self.contacts:
            self._complaint = loop.call_later(PATIENCE_S, self._warn_of_silent_contacts)

    def close(self) -> None:
        self._timer.close()
        if self._complaint is not None:
            self._complaint.cancel()

    @property
    def has_contacts(self) -> bool:
        return bool(self.contacts or self.unresolved)

    # ---------------------------------------------------------------- names to join by

    def on_resolved(self, name: Address, address: Address) -> None:
        """Replace the address of a name to join by."""
        self.unresolved.discard(name)
        former = self._named.get(name)
        self._named[name] = address
        if address == self._here or address in self.contacts:
            return
        self.contacts = (*(one for one in self.contacts if one != former), address)
        if self._timer.is_open:
            self._locator.move_contact(self._clock(), former, address)
            self._wake()

    def is_unanswered(self, name: Address) -> bool:
        """Whether no peer answers at the address of a name."""
        address = self._named.get(name)
        return address is None or (address != self._here and self._locator.contacts.is_unanswered(address))

    def request_link(self, former: Address | None, address: Address) -> None:
        """Ask the peer at an address for a link while this peer runs, instead of the peer at the former address."""
        if self.makes_links and self._timer.is_open and address != self._here:
            self._locator.move_contact(self._clock(), former, address)
            self._wake()

    # ---------------------------------------------------------------- called by the peer

    def find_address(self, waiting: Send, mentioned_by: PeerId | None) -> None:
        self._locator.find_address(self._clock(), waiting, mentioned_by)
        self._wake()

    def recheck_address(self, peer: PeerId) -> None:
        self._locator.recheck_address(self._clock(), peer)
        self._wake()

    def on_link_down(self, peer: PeerId) -> None:
        self._locator.contacts.ask_soon(self._clock(), peer)
        self._wake()

    def on_link_removed(self, peer: PeerId) -> None:
        """Forget a peer whose link the operator removed, and do not link it again."""
        self.removed.add(peer)
        self._locator.forget(peer)

    def hold(self, inner: InnerDatagram, address: Address) -> bool:
        """Keep a datagram of an unknown sender until its address is confirmed. False if links are given: then a peer is
        known only after it has asked for a link."""
        if self.makes_links:
            return False
        is_held = self._locator.hold(self._clock(), inner, address)
        self._wake()
        return is_held

    def receive(self, inner: InnerDatagram, address: Address) -> None:
        """Handle an address query or an address reply."""
        self._locator.receive(self._clock(), inner, address)
        self._wake()

    # ---------------------------------------------------------------- called by the locator (`LocatorUser`)

    def informants(self) -> tuple[PeerId, ...]:
        return self._peer.informants

    def on_address_found(self, waiting: Send, waited_ns: Nanos) -> None:
        self._perform([Send(waiting.peer, increase_age(waiting.message, waited_ns))])

    def on_contact(self, peer: PeerId) -> None:
        if self.makes_links:
            self.on_link_asked(peer)
        else:
            self._tell(ContactFound(peer))

    def may_link(self, peer: PeerId) -> bool:
        links = self._peer.links
        if not self.makes_links or not self.wants_link(peer):
            return False
        return peer in links or (self._admit and len(links) < MAX_LINKS)

    def wants_link(self, peer: PeerId) -> bool:
        return peer not in self.removed and peer != self._me

    def on_link_asked(self, peer: PeerId) -> None:
        if peer not in self._peer.links and self.wants_link(peer):
            self._tell(LinkAdded(Neighbour(peer, LINK_DELAY_NS)))

    def on_not_admitted(self, peer: PeerId, address: Address) -> None:
        if address not in self._refused_by:
            self._refused_by.add(address)
            log.warning(
                "peer %d: peer %d at %s makes no link with it: its file says admit = false, a membership decides "
                "there, or the link was removed",
                self._me, peer, format_address(address),
            )  # fmt: skip

    def on_same_id(self, address: Address) -> None:
        self.same_id(address)

    # ---------------------------------------------------------------- time

    def _tick(self) -> None:
        self._locator.tick(self._clock())
        self._wake()

    def _wake(self) -> None:
        due_ns = self._locator.next_ns()
        if due_ns is not None and due_ns != self._timer.wake_ns:
            self._timer.wake_at(WakeAt(due_ns))

    def _warn_of_silent_contacts(self) -> None:
        silent = self._locator.contacts.silent_addresses
        if len(silent) == len(self.contacts):
            at = " or ".join(format_address(address) for address in silent)
            log.warning("peer %d: nobody listens at %s; it keeps trying, and serves its clients", self._me, at)

    def _log_same_id(self, address: Address) -> None:
        log.error("peer %d has the id of the peer at %s", self._me, format_address(address))
