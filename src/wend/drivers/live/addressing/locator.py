"""The locator: finds addresses of peers in an open overlay, where peers join that no file names.

It is a state machine without a socket or a clock, as the peer is. It holds three parts:

- **Contacts.** The peer joins by one or more addresses. The locator asks each of them who is there, until somebody
  answers. Before it tells the protocol, it looks up its own id: if another process has it, this one must not join.
- **Lookups.** Peers hear of other peers by id. A message to a peer whose address is unknown waits, while the locator
  asks for the address: first the peer whose message came last, then whoever it learns of that is closer to the id on
  the ring, and peers that know many, as the membership says.
- **Claims.** A peer's address enters the book only after that address has answered a question with a random number, so
  neither a datagram with a forged source nor what other peers say changes anything. If the id is known at another
  address, the locator asks that one, too. If the peer there still answers, it keeps the id: neither a late datagram nor
  a second process moves it.

If links are given, a peer that joins asks its contacts for a link, and asks again while the link does not work. The
other end makes the link once the asker's address has answered. So only the peer that joins must remember the link.
"""

import secrets
from collections.abc import Callable, Iterator

from wend.drivers.live.addressing import address_messages
from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.address_claims import AddressClaim, AddressClaims
from wend.drivers.live.addressing.address_lookups import AddressLookup, AddressLookups
from wend.drivers.live.addressing.address_messages import (
    ANYONE,
    MAX_PEER_ID,
    AddressQuery,
    AddressQuestions,
    AddressReply,
)
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.addressing.contacts import ContactAddress, Contacts
from wend.drivers.live.addressing.learned_addresses import LearnedAddresses
from wend.drivers.live.addressing.locator_user import LocatorUser
from wend.drivers.live.counters import Counters
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.wire import InnerDatagram
from wend.model.errors import WireError
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.ports import Send


class Locator:
    """Keeps the address book of one peer up to date. Call `tick` at `next_ns`."""

    def __init__(
        self,
        me: PeerId,
        here: Address,
        book: AddressBook,
        counters: Counters,
        user: LocatorUser,
        *,
        asks_links: bool = False,
        number: Callable[[], int] = lambda: secrets.randbits(63),
    ) -> None:
        """`asks_links`: whether it asks contacts for links. `number`: draws a random number."""
        self._me = me
        self._here = here
        self._book = book
        self._counters = counters
        self._user = user
        self.instance = number()
        self._learned = LearnedAddresses(book)
        self._questions = AddressQuestions(user.transmit, number)
        self._claims = AddressClaims(book, self._questions.ask, self._on_claim_decided)
        self.contacts = Contacts(me, self._questions, user, asks_links)
        self._lookups = AddressLookups(here, self._questions, self._claims, self._find_candidates, counters)

    # ---------------------------------------------------------------- called by the driver

    def begin(self, now: Nanos, contacts: tuple[Address, ...]) -> None:
        """Start to contact each of these addresses."""
        self.contacts.add_addresses(contacts)
        self.tick(now)

    def move_contact(self, now: Nanos, former: Address | None, address: Address) -> None:
        """Contact this address instead of the former one."""
        self.contacts.move(former, address)
        self.tick(now)

    def forget(self, peer: PeerId) -> None:
        """Forget a contact, or a peer whose address was learned by a claim."""
        self.contacts.forget(peer)
        if peer in self._learned:
            self._forget(peer)

    def find_address(self, now: Nanos, message: Send, mentioned_by: PeerId | None) -> None:
        """Look up the receiver of a message. The message is sent once the address is known."""
        mentioned_at = None if mentioned_by is None else self._book.reachable.get(mentioned_by)
        self._lookups.hold_message(now, message, mentioned_at)

    def recheck_address(self, now: Nanos, peer: PeerId) -> None:
        """Look up the address of a peer again if the peer does not answer: it may have moved."""
        address = self._book.reachable.get(peer)
        if address is not None and self._learned.may_recheck(now, peer):
            self._learned.confirm(now, peer)
            self._lookups.look_up_again(now, peer, address)

    def hold(self, now: Nanos, inner: InnerDatagram, address: Address) -> bool:
        """Keep a datagram of an unknown sender until its claim is decided. Returns False if it must be refused now."""
        peer, receiver, incarnation = inner.header
        is_for_this = receiver == self._me or inner.kind == wire.MULTICAST
        if not is_for_this or peer == self._me or peer > MAX_PEER_ID:
            return False
        if incarnation < self._book.incarnation(peer):
            self._counters.refused["stale"] += 1
            return True
        claim = self._claims.add(now, peer, address)
        return claim is not None and self._claims.hold(now, claim, inner)

    def receive(self, now: Nanos, inner: InnerDatagram, address: Address) -> None:
        """Handle an address query or an address reply."""
        sender, receiver, _ = inner.header
        try:
            message = address_messages.decode_address_message(sender, inner.body)
        except WireError:
            self._counters.refused["garbage"] += 1
            return
        if receiver not in (self._me, ANYONE):
            self._counters.refused["misdirected"] += 1
        elif isinstance(message, AddressQuery):
            self._on_query(now, sender, message, len(inner.body), address)
        else:
            self._on_reply(now, sender, message, address)

    def next_ns(self) -> Nanos | None:
        """When `tick` is due."""
        return min([*self.contacts.due_times(), *self._claims.due_times(), *self._lookups.due_times()], default=None)

    def tick(self, now: Nanos) -> None:
        """Repeat unanswered questions, and give up searches that have taken too long."""
        for asker in self._questions.expire(now):
            if isinstance(asker, AddressLookup):
                asker.open -= 1
        self.contacts.tick(now)
        self._claims.tick(now)
        if self._lookups.tick(now):
            self.contacts.confirm_own_id()

    # ---------------------------------------------------------------- questions and answers

    def _on_query(self, now: Nanos, asker: PeerId, query: AddressQuery, size: int, address: Address) -> None:
        """Answer a question. No answer is longer than the body of its question, which has this size."""
        admits = not query.link or self._user.may_link(asker)
        nearest = () if query.near is None else self._learned.nearest_peers(query.near, address)
        while True:
            body = address_messages.encode_address_message(AddressReply(query.number, self.instance, nearest, admits))
            if len(body) <= size or not nearest:
                break
            nearest = nearest[:-1]
        if len(body) <= size:
            self._user.transmit(address, asker, body)
        else:
            self._counters.refused["short-address-question"] += 1
        if query.link and admits:
            self._on_link_asked(now, asker, address)

    def _on_link_asked(self, now: Nanos, peer: PeerId, address: Address) -> None:
        """Make the link that a peer asks for, once its address has answered."""
        if self._book.reachable.get(peer) == address:
            self._user.on_link_asked(peer)
        elif peer != self._me and (claim := self._claims.add(now, peer, address)) is not None:
            claim.link = True

    def _on_reply(self, now: Nanos, sender: PeerId, reply: AddressReply, address: Address) -> None:
        match self._questions.take_asker(reply.number, address):
            case ContactAddress() as contact:
                self._on_contact_reply(now, contact, sender, reply)
            case AddressClaim() as claim:
                self._claims.on_reply(now, claim, sender, reply, address)
            case AddressLookup() as lookup:
                if self._lookups.on_reply(now, lookup, reply):
                    self.contacts.confirm_own_id()
            case _:
                self._counters.refused["unexpected-addresses"] += 1

    def _on_contact_reply(self, now: Nanos, contact: ContactAddress, sender: PeerId, reply: AddressReply) -> None:
        if contact not in self.contacts:
            return
        if sender == self._me:
            if reply.instance == self.instance:
                self.contacts.remove_own_address(contact)
            else:
                self._on_same_id(contact.address)
            return
        if not self.contacts.on_reply(contact, sender, reply):
            return
        current = self._book.reachable.get(sender)
        if current is None:
            self._learn_address(now, sender, contact.address, moved=False)
        elif current != contact.address:
            self._claims.add(now, sender, contact.address)
        self.contacts.report_contact(sender)
        if not self.contacts.has_own_id and self._lookups.look_up_own_id(now, self._me, reply):
            self.contacts.confirm_own_id()

    def _on_same_id(self, address: Address) -> None:
        """Prevent this peer from joining, because another process has its id. A peer that has joined stays."""
        if not self.contacts.has_own_id:
            self.contacts.clear()
            self._lookups.drop_own_lookup()
            self._user.on_same_id(address)

    def _find_candidates(self, peer: PeerId) -> Iterator[tuple[PeerId, Address]]:
        """Peers that may know the address of another one."""
        for near in self._learned.nearest_peers(peer, self._here):
            if near.peer != peer:
                yield near.peer, (near.host, near.port)
        for informant in self._user.informants():
            address = self._book.reachable.get(informant)
            if address is not None and informant != peer:
                yield informant, address

    # ---------------------------------------------------------------- claims

    def _on_claim_decided(self, now: Nanos, claim: AddressClaim) -> None:
        if claim.instance is None:
            self._counters.refused["stranger"] += len(claim.datagrams)
        elif claim.peer == self._me:
            if claim.instance != self.instance:
                self._on_same_id(claim.address)
        elif claim.rival is not None and claim.rival_instance not in (None, claim.instance):
            self._counters.refused["id-of-other-peer"] += max(1, len(claim.datagrams))
            self._learned.confirm(now, claim.peer)
        else:
            self._learn_address(now, claim.peer, claim.address, moved=claim.rival_instance is None)
            if claim.link:
                self._user.on_link_asked(claim.peer)
            for inner, since in claim.datagrams:
                self._user.on_admitted(inner, claim.address, now - since)

    def _learn_address(self, now: Nanos, peer: PeerId, address: Address, *, moved: bool) -> None:
        self._learned.add(now, peer, address, moved=moved)
        self._user.on_located(peer, address)
        for other in self._learned.outdated_peers():
            self._forget(other)
        for message, since in self._lookups.end_lookup(peer):
            self._user.on_address_found(message, now - since)

    def _forget(self, peer: PeerId) -> None:
        self._learned.forget(peer)
        self._user.on_forgotten(peer)
