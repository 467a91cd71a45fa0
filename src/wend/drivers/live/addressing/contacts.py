"""The addresses by which a peer joins an overlay, and whether a peer answers there.

The protocol learns of a contact only after the peer has looked up its own id, so that two peers with one id do not both
join.
"""

from collections.abc import Iterable

from wend.drivers.live.addressing.address_messages import AddressQuestions, AddressReply
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.addressing.locator_user import LocatorUser
from wend.model.events import PeerId
from wend.model.units import MS, SECOND, Nanos

FIRST_RETRY_NS: Nanos = 200 * MS
LAST_RETRY_NS: Nanos = 5 * SECOND
RECHECK_NS: Nanos = 10 * SECOND
"""How often the peer asks a contact whether it is still the same process."""


class ContactAddress:
    """An address by which the peer joins, with the state of the search for a peer there."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.due_ns: Nanos = 0
        self.retry_ns = FIRST_RETRY_NS
        self.instance: int | None = None
        self.peer: PeerId | None = None
        """The peer that has answered there."""


class Contacts:
    """The contacts of one peer."""

    def __init__(self, me: PeerId, questions: AddressQuestions, user: LocatorUser, asks_links: bool) -> None:
        """`asks_links`: whether it asks contacts for links."""
        self._me = me
        self._questions = questions
        self._user = user
        self._asks_links = asks_links
        self._contacts: list[ContactAddress] = []
        self._greeting: dict[PeerId, None] = {}
        """Contacts of which the protocol learns once the peer has looked up its own id."""
        self.has_own_id = False
        """Whether the peer has looked up its own id, and no other peer has it."""

    def add_addresses(self, addresses: tuple[Address, ...]) -> None:
        self._contacts = [ContactAddress(address) for address in addresses]
        self.has_own_id = self._asks_links and not addresses  # other peers know it already, so it keeps its id

    def move(self, former: Address | None, address: Address) -> None:
        """Contact this address instead of the former one."""
        self._contacts = [contact for contact in self._contacts if contact.address not in (former, address)]
        self._contacts.append(ContactAddress(address))

    def ask_soon(self, now: Nanos, peer: PeerId) -> None:
        """Ask a peer soon if it is a contact, because the link with it has failed."""
        for contact in self._contacts:
            if contact.peer == peer:
                contact.due_ns, contact.retry_ns = now, FIRST_RETRY_NS

    def forget(self, peer: PeerId) -> None:
        self._contacts = [contact for contact in self._contacts if contact.peer != peer]

    def clear(self) -> None:
        self._contacts.clear()
        self._greeting.clear()

    def due_times(self) -> Iterable[Nanos]:
        """When `tick` has something to do."""
        return [contact.due_ns for contact in self._contacts]

    def tick(self, now: Nanos) -> None:
        for contact in self._contacts:
            if now >= contact.due_ns:
                self._ask(now, contact)

    def is_unanswered(self, address: Address) -> bool:
        """Whether no peer answers at an address to join by."""
        return not any(
            contact.address == address and contact.instance is not None and not self._is_silent(contact)
            for contact in self._contacts
        )

    @property
    def silent_addresses(self) -> tuple[Address, ...]:
        """The addresses to join by that have not answered yet."""
        return tuple(contact.address for contact in self._contacts if contact.instance is None)

    def _is_silent(self, contact: ContactAddress) -> bool:
        """Whether the link with a contact does not work, if it asks for links."""
        return self._asks_links and contact.peer is not None and self._user.is_silent(contact.peer)

    def _ask(self, now: Nanos, contact: ContactAddress) -> None:
        link = self._asks_links and (contact.peer is None or self._user.wants_link(contact.peer))
        if contact.instance is not None and not (link and self._is_silent(contact)):
            contact.retry_ns, wait_ns = FIRST_RETRY_NS, RECHECK_NS
        else:
            wait_ns, contact.retry_ns = contact.retry_ns, min(contact.retry_ns * 3 // 2, LAST_RETRY_NS)
        contact.due_ns = now + wait_ns
        self._questions.ask(now, contact.address, contact, self._me, link and self.has_own_id)

    # ---------------------------------------------------------------- answers

    def __contains__(self, contact: ContactAddress) -> bool:
        return contact in self._contacts

    def remove_own_address(self, contact: ContactAddress) -> None:
        """Remove a contact whose address is this peer's own."""
        self._contacts.remove(contact)
        if not self._contacts and not self._greeting and not self.has_own_id:
            self._user.on_contact(self._me)

    def on_reply(self, contact: ContactAddress, sender: PeerId, reply: AddressReply) -> bool:
        """Handle the reply of another peer. Returns whether its process is a new contact."""
        contact.peer = sender
        if self._asks_links and not reply.admits:
            contact.instance = reply.instance
            self._user.on_not_admitted(sender, contact.address)
            return False
        if reply.instance == contact.instance:
            if self._asks_links and self.has_own_id:
                self._user.on_contact(sender)
            return False
        contact.instance = reply.instance
        return True

    def report_contact(self, peer: PeerId) -> None:
        """Report a contact to the protocol, once this peer's own id is confirmed."""
        if self.has_own_id:
            self._user.on_contact(peer)
        else:
            self._greeting[peer] = None

    def confirm_own_id(self) -> None:
        """Join, because no other peer is known to have this peer's id."""
        self.has_own_id = True
        if self._asks_links:
            for contact in self._contacts:
                contact.due_ns = 0  # ask for links
        else:
            for peer in self._greeting:
                self._user.on_contact(peer)
        self._greeting.clear()
