"""The locator: finds addresses of peers in an open overlay, where peers join that no file names.

It is a state machine without a socket or a clock, as the peer is. It does three things:

- **Contacts.** It asks each address that the peer is to join by who is there, until somebody answers. Before it tells
  the protocol, it looks up its own id: if another process answers with it, this one must not join.
- **Lookups.** Peers hear of other peers by id. A message to a peer whose address is unknown waits, while the locator
  asks for it: first the peer whose message came last, then whoever it learns of that is closer to the id on the ring,
  and peers of which the membership says that they know many.
- **Claims.** A peer's address enters the book only after that address has answered a question with a random number, so
  a datagram with a forged source changes nothing, nor does what others say. If the id is known at another address,
  that one is asked, too. If it still answers, it keeps the id: neither a late datagram nor a second peer moves it.

Where links are given, a peer that joins asks its contacts for a link, and asks again while the link does not work. The
other end makes the link once the asker's address has answered. So only the peer that joins needs to remember it.

All tables are bounded. What exceeds them, and what is not found in time, is dropped and counted.
"""

import ipaddress
import secrets
from collections.abc import Callable
from typing import Any

from wend.drivers.live.addressing import address_messages
from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.address_claims import ANSWER_NS, AddressClaim, AddressClaims
from wend.drivers.live.addressing.address_messages import (
    ANYONE,
    MAX_PEER_ID,
    AddressMessage,
    AddressQuery,
    AddressReply,
)
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.addressing.learned_addresses import LearnedAddresses
from wend.drivers.live.addressing.locator_state import (
    FIRST_RETRY,
    AddressLookup,
    AddressQuestion,
    ContactAddress,
    LocatorUser,
)
from wend.drivers.live.counters import Counters
from wend.drivers.live.transport.wire import Header
from wend.model.errors import WireError
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.ports import Send

LOOKUP_NS: Nanos = 3 * SECOND
OWN_ID_NS: Nanos = SECOND
"""How long the lookup of the own id may take before the peer joins."""
MOST_SCOPE_CHARS = 16
"""Of the name of an interface in an address."""
MOST_LOOKUPS = 256
MOST_WAITING = 1024
"""Messages that wait for addresses, in all."""
WAITING_PER_PEER = 32
LAST_RETRY: Nanos = 5 * SECOND
RECHECK_NS: Nanos = 10 * SECOND
"""How often it asks a contact whether it is still the same process."""


class Locator:
    """Keeps the address book of one peer up to date. `tick` is due at `next_ns`."""

    def __init__(
        self,
        me: PeerId,
        incarnation: int,
        here: Address,
        book: AddressBook,
        counters: Counters,
        user: LocatorUser,
        *,
        asks_links: bool = False,
        number: Callable[[], int] = lambda: secrets.randbits(63),
    ) -> None:
        self._me = me
        self._incarnation = incarnation
        self._here = here
        self._book = book
        self._counters = counters
        self._user = user
        self._asks_links = asks_links
        """Whether it asks contacts for links."""
        self._number = number
        self.instance = number()
        self._contacts: list[ContactAddress] = []
        self._lookups: dict[PeerId, AddressLookup] = {}
        self._questions: dict[int, AddressQuestion] = {}
        self._own: AddressLookup | None = None
        self._joining: dict[PeerId, None] = {}
        """Contacts that the protocol is told of once the own id has been looked up."""
        self._looked_up = False
        self._learned = LearnedAddresses(book)
        self._claims = AddressClaims(book, self._ask_claimed, self._decided)
        self._waiting = 0

    # ---------------------------------------------------------------- what the driver tells

    def begin(self, now: Nanos, contacts: tuple[Address, ...]) -> None:
        """Start to look for somebody at each of these addresses."""
        self._contacts = [ContactAddress(address) for address in contacts]
        self._looked_up = self._asks_links and not contacts  # a peer that others know already keeps its id
        self.tick(now)

    def move_contact(self, now: Nanos, former: Address | None, address: Address) -> None:
        """Look for somebody at this address, and no longer at the former one."""
        self._contacts = [contact for contact in self._contacts if contact.address not in (former, address)]
        self._contacts.append(ContactAddress(address))
        self.tick(now)

    def hurry(self, now: Nanos, peer: PeerId) -> None:
        """The link with a peer has failed: if it is a contact, ask it soon."""
        for contact in self._contacts:
            if contact.peer == peer:
                contact.due_ns, contact.wait_ns = now, FIRST_RETRY

    def forget(self, peer: PeerId) -> None:
        """Forget a contact, or a peer whose address was learned by a claim."""
        self._contacts = [contact for contact in self._contacts if contact.peer != peer]
        if peer in self._learned:
            self._forget(peer)

    def find(self, now: Nanos, waiting: Send, mentioned_by: PeerId | None) -> None:
        """Send this message once the address of its peer is known."""
        lookup = self._lookup(now, waiting.peer, mentioned_by)
        if lookup is None or any(waiting == other for other, _ in lookup.waiting):
            if lookup is None:
                self._counters.refused["no address"] += 1
            return
        if self._waiting >= MOST_WAITING or len(lookup.waiting) >= WAITING_PER_PEER:
            self._counters.refused["no address"] += 1
            return
        lookup.waiting.append((waiting, now))
        self._waiting += 1

    def doubt(self, now: Nanos, peer: PeerId) -> None:
        """A peer does not answer: it may have moved."""
        address = self._book.reachable.get(peer)
        if address is None or not self._learned.may_be_doubted(now, peer):
            return
        self._learned.confirm(now, peer)
        if peer not in self._lookups and (lookup := self._lookup(now, peer, None)) is not None:
            lookup.doubted = address

    def hold(self, now: Nanos, header: Header, datagram: bytes | memoryview, address: Address) -> bool:
        """Keep a datagram of an unknown sender until its claim is decided. False where it is refused at once."""
        peer = header.sender
        if header.receiver != self._me or peer == self._me or peer > MAX_PEER_ID:
            return False
        if header.incarnation < self._book.incarnation(peer):
            self._counters.refused["stale"] += 1
            return True
        claim = self._claims.add(now, peer, address)
        return claim is not None and self._claims.hold(now, claim, datagram)

    def receive(self, now: Nanos, datagram: memoryview, address: Address) -> None:
        """A question about addresses or an answer came."""
        try:
            header, message = address_messages.decode(datagram)
        except WireError:
            self._counters.refused["garbage"] += 1
            return
        if header.receiver not in (self._me, ANYONE):
            self._counters.refused["misdirected"] += 1
        elif isinstance(message, AddressQuery):
            self._answer(now, header, message, len(datagram), address)
        else:
            question = self._questions.get(message.number)
            if question is None or question.address != address:
                self._counters.refused["an answer about addresses that nobody asked for"] += 1
                return
            del self._questions[message.number]
            self._answered(now, question.about, header.sender, message, address)

    def next_ns(self) -> Nanos | None:
        """When `tick` is due."""
        due = [contact.due_ns for contact in self._contacts]
        due += self._claims.due_ns()
        due += [lookup.due_ns for lookup in self._lookups.values()]
        due += [] if self._own is None else [self._own.due_ns]
        return min(due, default=None)

    def tick(self, now: Nanos) -> None:
        """Ask again, and give up what took too long."""
        while self._questions and now >= next(iter(self._questions.values())).ends_ns:
            self._unanswered(self._questions.pop(next(iter(self._questions))))
        for contact in self._contacts:
            if now >= contact.due_ns:
                self._ask_contact(now, contact)
        self._claims.tick(now)
        for lookup in [lookup for lookup in self._lookups.values() if now >= lookup.due_ns]:
            self._advance(now, lookup)
        if self._own is not None and now >= self._own.due_ns:
            self._advance(now, self._own)

    def is_lost(self, address: Address) -> bool:
        """Whether nobody is heard at an address to join by."""
        return not any(
            contact.address == address and contact.instance is not None and not self._is_silent(contact)
            for contact in self._contacts
        )

    def _is_silent(self, contact: ContactAddress) -> bool:
        """Whether the link with a contact does not work, where links are asked for."""
        return self._asks_links and contact.peer is not None and self._user.is_silent(contact.peer)

    @property
    def silent(self) -> tuple[Address, ...]:
        """The addresses to join by at which nobody has answered yet."""
        return tuple(contact.address for contact in self._contacts if contact.instance is None)

    # ---------------------------------------------------------------- questions and answers

    def _ask(
        self,
        now: Nanos,
        address: Address,
        receiver: PeerId,
        about: Any,
        near: PeerId | None = None,
        link: bool = False,
    ) -> None:
        number = self._number()
        self._questions[number] = AddressQuestion(address, now + LOOKUP_NS, about)
        self._say(address, receiver, address_messages.query(number, near, link))

    def _ask_claimed(self, now: Nanos, address: Address, claim: AddressClaim) -> None:
        self._ask(now, address, ANYONE, claim)

    def _say(self, address: Address, receiver: PeerId, message: AddressMessage) -> None:
        self._user.transmit(address, address_messages.encode(self._me, receiver, self._incarnation, message))

    def _answer(self, now: Nanos, header: Header, message: AddressQuery, size: int, address: Address) -> None:
        admits = not message.link or self._user.admits(header.sender)
        nearest = () if message.near is None else self._learned.nearest(message.near, address)
        while True:
            reply = AddressReply(message.number, self.instance, nearest, admits)
            datagram = address_messages.encode(self._me, header.sender, self._incarnation, reply)
            if len(datagram) <= size or not nearest:
                break
            nearest = nearest[:-1]
        if len(datagram) <= size:
            self._user.transmit(address, datagram)
        else:
            self._counters.refused["a question about addresses that is shorter than its answer"] += 1
        if message.link and admits:
            self._link_asked(now, header.sender, address)

    def _link_asked(self, now: Nanos, peer: PeerId, address: Address) -> None:
        """Make the link that a peer wants, once its address has answered."""
        if self._book.reachable.get(peer) == address:
            self._user.on_link_asked(peer)
        elif peer != self._me and (claim := self._claims.add(now, peer, address)) is not None:
            claim.link = True

    def _answered(self, now: Nanos, about: Any, sender: PeerId, reply: AddressReply, address: Address) -> None:
        if isinstance(about, ContactAddress):
            self._contact_answered(now, about, sender, reply)
        elif isinstance(about, AddressClaim):
            self._claims.answered(now, about, sender, reply, address)
        else:
            self._lookup_answered(now, about, sender, reply, address)

    def _unanswered(self, question: AddressQuestion) -> None:
        if isinstance(question.about, AddressLookup):
            question.about.open -= 1

    # ---------------------------------------------------------------- contacts

    def _ask_contact(self, now: Nanos, contact: ContactAddress) -> None:
        link = self._asks_links and (contact.peer is None or self._user.wants(contact.peer))
        if contact.instance is not None and not (link and self._is_silent(contact)):
            contact.wait_ns, wait_ns = FIRST_RETRY, RECHECK_NS
        else:
            wait_ns, contact.wait_ns = contact.wait_ns, min(contact.wait_ns * 3 // 2, LAST_RETRY)
        contact.due_ns = now + wait_ns
        self._ask(now, contact.address, ANYONE, contact, self._me, link and self._looked_up)

    def _contact_answered(self, now: Nanos, contact: ContactAddress, sender: PeerId, reply: AddressReply) -> None:
        if contact not in self._contacts:
            return
        if sender == self._me:
            if reply.instance == self.instance:  # the address is this peer's own
                self._contacts.remove(contact)
                if not self._contacts and not self._looked_up and self._own is None:
                    self._user.on_contact(self._me)
            else:
                self._same_id(contact.address)
            return
        contact.peer = sender
        if self._asks_links and not reply.admits:
            contact.instance = reply.instance
            self._user.on_not_admitted(sender, contact.address)
            return
        if reply.instance == contact.instance:
            if self._asks_links and self._looked_up:
                self._user.on_contact(sender)
            return
        contact.instance = reply.instance
        known = self._book.reachable.get(sender)
        if known is None:
            self._adopt(now, sender, contact.address, moved=False)
        elif known != contact.address:
            self._claims.add(now, sender, contact.address)
        if self._looked_up:
            self._user.on_contact(sender)
            return
        self._joining[sender] = None
        if self._own is None:
            self._own = AddressLookup(self._me, now + OWN_ID_NS)
        self._learn(now, self._own, reply)
        self._advance(now, self._own)

    def _same_id(self, address: Address) -> None:
        """Another process has this peer's id: do not join. A peer that has joined stays."""
        if not self._looked_up:
            self._contacts.clear()
            self._joining.clear()
            self._own = None
            self._user.on_same_id(address)

    # ---------------------------------------------------------------- lookups

    def _lookup(self, now: Nanos, peer: PeerId, mentioned_by: PeerId | None) -> AddressLookup | None:
        lookup = self._lookups.get(peer)
        if lookup is not None:
            return lookup
        if len(self._lookups) >= MOST_LOOKUPS:
            return None
        lookup = self._lookups[peer] = AddressLookup(peer, now + LOOKUP_NS)
        reachable = self._book.reachable
        if mentioned_by is not None and mentioned_by in reachable:
            lookup.mentioned_at = reachable[mentioned_by]
            lookup.asked.add(lookup.mentioned_at)
            self._ask_about(now, lookup, lookup.mentioned_at)
        self._add_candidates(lookup)
        lookup.due_ns = now if not lookup.open else now + ANSWER_NS
        return lookup

    def _ask_about(self, now: Nanos, lookup: AddressLookup, address: Address) -> None:
        lookup.open += 1
        self._ask(now, address, ANYONE, lookup, lookup.peer)

    def _advance(self, now: Nanos, lookup: AddressLookup) -> None:
        """Ask the next candidate, or end."""
        if now >= lookup.ends_ns:
            self._end(lookup)
            return
        claimed = self._claims.is_claimed(lookup.peer)
        address = None if claimed and lookup is not self._own else lookup.next()
        if address is not None:
            self._ask_about(now, lookup, address)
        elif not lookup.open and not claimed:
            if lookup is not self._own and lookup.waiting:
                self._ask_more(lookup)
            else:
                self._end(lookup)
                return
        lookup.due_ns = min(now + ANSWER_NS, lookup.ends_ns)

    def _ask_more(self, lookup: AddressLookup) -> None:
        """Nobody knew the peer. It may be joining: begin again with those that are known by now."""
        lookup.asked.clear()
        if lookup.mentioned_at is not None:
            lookup.add(lookup.peer, lookup.mentioned_at)  # as the closest of all
        self._add_candidates(lookup)

    def _add_candidates(self, lookup: AddressLookup) -> None:
        for known in self._learned.nearest(lookup.peer, self._here):
            if known.peer != lookup.peer:
                lookup.add(known.peer, (known.host, known.port))
        for peer in self._user.informants():
            address = self._book.reachable.get(peer)
            if address is not None and peer != lookup.peer:
                lookup.add(peer, address)

    def _lookup_answered(
        self, now: Nanos, lookup: AddressLookup, sender: PeerId, reply: AddressReply, address: Address
    ) -> None:
        lookup.open -= 1
        if lookup is not self._own and self._lookups.get(lookup.peer) is not lookup:
            return
        self._learn(now, lookup, reply)
        if lookup is self._own or self._lookups.get(lookup.peer) is lookup:
            self._advance(now, lookup)

    def _learn(self, now: Nanos, lookup: AddressLookup, reply: AddressReply) -> None:
        """Claim the address that the answer names, and ask those that are closer."""
        for known in reply.nearest:
            address = (known.host, known.port)
            if not self._can_be(address):
                continue
            if known.peer != lookup.peer:
                lookup.add(known.peer, address)
            elif address not in (lookup.doubted, self._here):
                self._claims.add(now, lookup.peer, address)

    def _can_be(self, address: Address) -> bool:
        """Whether this is a numeric address of this peer's family: others would make the system ask for names. The
        scope of an address must be able to name an interface."""
        try:
            found = ipaddress.ip_address(address[0])
        except ValueError:
            return False
        scope = address[0].partition("%")[2]
        is_scope = scope.isascii() and scope.isprintable() and len(scope) < MOST_SCOPE_CHARS
        return is_scope and found.version == (6 if ":" in self._here[0] else 4)

    def _end(self, lookup: AddressLookup) -> None:
        if lookup is self._own:
            self._own, self._looked_up = None, True
            for peer in () if self._asks_links else self._joining:
                self._user.on_contact(peer)
            self._joining.clear()
            for contact in self._contacts if self._asks_links else ():
                contact.due_ns = 0  # ask for links, now that no other peer is known to have this id
            return
        del self._lookups[lookup.peer]
        self._waiting -= len(lookup.waiting)
        self._counters.refused["no address"] += len(lookup.waiting)

    # ---------------------------------------------------------------- claims

    def _decided(self, now: Nanos, claim: AddressClaim) -> None:
        if claim.instance is None:
            self._counters.refused["stranger"] += len(claim.held)
        elif claim.peer == self._me:
            if claim.instance != self.instance:
                self._same_id(claim.address)
        elif claim.rival is not None and claim.rival_instance not in (None, claim.instance):
            self._counters.refused["an id that another peer has"] += max(1, len(claim.held))
            self._learned.confirm(now, claim.peer)
        else:
            self._adopt(now, claim.peer, claim.address, moved=claim.rival_instance is None)
            if claim.link:
                self._user.on_link_asked(claim.peer)
            for datagram, since in claim.held:
                self._user.on_admitted(datagram, claim.address, now - since)

    def _adopt(self, now: Nanos, peer: PeerId, address: Address, *, moved: bool) -> None:
        self._learned.add(now, peer, address, moved=moved)
        self._user.on_located(peer, address)
        for other in self._learned.outdated():
            self._forget(other)
        lookup = self._lookups.pop(peer, None)
        if lookup is not None:
            self._waiting -= len(lookup.waiting)
            for waiting, since in lookup.waiting:
                self._user.on_found(waiting, now - since)

    def _forget(self, peer: PeerId) -> None:
        self._learned.forget(peer)
        self._user.on_forgotten(peer)
