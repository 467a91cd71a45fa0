"""Lookups: searches for the addresses of peers that are known by id, and the messages that wait for them.

A lookup asks the peer whose message came last, then whoever it learns of that is closer to the id on the ring. All
tables are bounded. Messages that exceed them, and those whose peer is not found in time, are dropped and counted.
"""

import ipaddress
from collections.abc import Callable, Iterable

from wend.drivers.live.addressing.address_claims import ANSWER_NS, AddressClaims
from wend.drivers.live.addressing.address_messages import AddressQuestions, AddressReply
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.counters import Counters
from wend.model.events import PeerId
from wend.model.keys import distance, node_id
from wend.model.units import SECOND, Nanos
from wend.protocol.ports import Send

LOOKUP_NS: Nanos = 3 * SECOND
OWN_ID_NS: Nanos = SECOND
"""How long a peer looks for another one with its own id before it joins."""
MAX_LOOKUPS = 256
MAX_ASKED = 24
"""The most addresses that one lookup asks."""
MAX_WAITING = 1024
"""The most messages that wait for addresses."""
WAITING_PER_PEER = 32
MAX_SCOPE_CHARS = 16
"""The longest name of an interface in an address."""


class AddressLookup:
    """The search for one peer."""

    def __init__(self, peer: PeerId, ends_ns: Nanos) -> None:
        self.peer = peer
        self.place = node_id(peer)
        self.ends_ns = ends_ns
        self.due_ns: Nanos = 0
        self.waiting: list[tuple[Send, Nanos]] = []
        """Messages, with the time since which each waits."""
        self.candidates: dict[Address, PeerId] = {}
        """The peers that it has not asked yet, by address."""
        self.tried: set[Address] = set()
        self.open = 0
        """The number of its questions without an answer."""
        self.doubted: Address | None = None
        self.mentioned_at: Address | None = None
        """The address of the peer that seems to have mentioned this one."""

    def add(self, peer: PeerId, address: Address) -> None:
        if address not in self.tried and len(self.tried) + len(self.candidates) < MAX_ASKED:
            self.candidates[address] = peer

    def next_candidate(self) -> Address | None:
        """The candidate that is closest to the id on the ring."""
        nearest = min(
            self.candidates, key=lambda at: (distance(node_id(self.candidates[at]), self.place), at), default=None
        )
        if nearest is not None:
            del self.candidates[nearest]
            self.tried.add(nearest)
        return nearest


class AddressLookups:
    """The lookups of one peer."""

    def __init__(
        self,
        here: Address,
        questions: AddressQuestions,
        claims: AddressClaims,
        candidates: Callable[[PeerId], Iterable[tuple[PeerId, Address]]],
        counters: Counters,
    ) -> None:
        """`candidates` returns other peers that may know the address of a peer."""
        self._here = here
        self._questions = questions
        self._claims = claims
        self._candidates = candidates
        self._counters = counters
        self._lookups: dict[PeerId, AddressLookup] = {}
        self._own: AddressLookup | None = None
        """The search for another peer with the own id."""
        self._waiting = 0

    def hold_message(self, now: Nanos, message: Send, mentioned_at: Address | None) -> None:
        """Look up the address of a message's receiver. The message waits until the address is known."""
        lookup = self._find_or_start(now, message.peer, mentioned_at)
        if lookup is not None and any(message == other for other, _ in lookup.waiting):
            return
        if lookup is None or self._waiting >= MAX_WAITING or len(lookup.waiting) >= WAITING_PER_PEER:
            self._counters.refused["no-address"] += 1
            return
        lookup.waiting.append((message, now))
        self._waiting += 1

    def look_up_again(self, now: Nanos, peer: PeerId, address: Address) -> None:
        """Look up a peer again that does not answer at its known address."""
        if peer not in self._lookups and (lookup := self._find_or_start(now, peer, None)) is not None:
            lookup.doubted = address

    def end_lookup(self, peer: PeerId) -> list[tuple[Send, Nanos]]:
        """End the lookup of a peer whose address has become known. Returns the messages that wait for the peer."""
        lookup = self._lookups.pop(peer, None)
        if lookup is None:
            return []
        self._waiting -= len(lookup.waiting)
        return lookup.waiting

    def look_up_own_id(self, now: Nanos, me: PeerId, reply: AddressReply) -> bool:
        """Search for another peer with this peer's id. Returns whether the search has ended."""
        if self._own is None:
            self._own = AddressLookup(me, now + OWN_ID_NS)
        self._process_reply(now, self._own, reply)
        return self._advance(now, self._own)

    def drop_own_lookup(self) -> None:
        self._own = None

    def on_reply(self, now: Nanos, lookup: AddressLookup, reply: AddressReply) -> bool:
        """Returns whether the search for the own id has ended."""
        lookup.open -= 1
        if lookup is not self._own and self._lookups.get(lookup.peer) is not lookup:
            return False
        self._process_reply(now, lookup, reply)
        return (lookup is self._own or self._lookups.get(lookup.peer) is lookup) and self._advance(now, lookup)

    def due_times(self) -> list[Nanos]:
        """When `tick` has something to do."""
        due = [lookup.due_ns for lookup in self._lookups.values()]
        return due if self._own is None else [*due, self._own.due_ns]

    def tick(self, now: Nanos) -> bool:
        """Returns whether the search for the own id has ended."""
        for lookup in [lookup for lookup in self._lookups.values() if now >= lookup.due_ns]:
            self._advance(now, lookup)
        return self._own is not None and now >= self._own.due_ns and self._advance(now, self._own)

    def _find_or_start(self, now: Nanos, peer: PeerId, mentioned_at: Address | None) -> AddressLookup | None:
        """The lookup of a peer, which may be new; None if there are too many."""
        lookup = self._lookups.get(peer)
        if lookup is not None or len(self._lookups) >= MAX_LOOKUPS:
            return lookup
        lookup = self._lookups[peer] = AddressLookup(peer, now + LOOKUP_NS)
        if mentioned_at is not None:
            lookup.mentioned_at = mentioned_at
            lookup.tried.add(mentioned_at)
            self._ask(now, lookup, mentioned_at)
        self._add_candidates(lookup)
        lookup.due_ns = now if not lookup.open else now + ANSWER_NS
        return lookup

    def _ask(self, now: Nanos, lookup: AddressLookup, address: Address) -> None:
        lookup.open += 1
        self._questions.ask(now, address, lookup, lookup.peer)

    def _add_candidates(self, lookup: AddressLookup) -> None:
        for peer, address in self._candidates(lookup.peer):
            lookup.add(peer, address)

    def _advance(self, now: Nanos, lookup: AddressLookup) -> bool:
        """Ask the next candidate, or end. Returns whether the search for the own id has ended."""
        if now >= lookup.ends_ns:
            return self._fail_lookup(lookup)
        is_claimed = self._claims.is_claimed(lookup.peer)
        address = None if is_claimed and lookup is not self._own else lookup.next_candidate()
        if address is not None:
            self._ask(now, lookup, address)
        elif not lookup.open and not is_claimed:
            if lookup is self._own or not lookup.waiting:
                return self._fail_lookup(lookup)
            self._restart(lookup)
        lookup.due_ns = min(now + ANSWER_NS, lookup.ends_ns)
        return False

    def _restart(self, lookup: AddressLookup) -> None:
        """Restart a lookup that found no peer, with all candidates known by now: the peer may be joining."""
        lookup.tried.clear()
        if lookup.mentioned_at is not None:
            lookup.add(lookup.peer, lookup.mentioned_at)  # as the closest of all
        self._add_candidates(lookup)

    def _fail_lookup(self, lookup: AddressLookup) -> bool:
        if lookup is self._own:
            self._own = None
            return True
        del self._lookups[lookup.peer]
        self._waiting -= len(lookup.waiting)
        self._counters.refused["no-address"] += len(lookup.waiting)
        return False

    def _process_reply(self, now: Nanos, lookup: AddressLookup, reply: AddressReply) -> None:
        """Claim the address that a reply names, and add the closer peers as candidates."""
        for neighbour in reply.nearest:
            address = (neighbour.host, neighbour.port)
            if not self._is_usable(address):
                continue
            if neighbour.peer != lookup.peer:
                lookup.add(neighbour.peer, address)
            elif address not in (lookup.doubted, self._here):
                self._claims.add(now, lookup.peer, address)

    def _is_usable(self, address: Address) -> bool:
        """Whether this is a numeric address of this peer's family: the system would resolve any other text as a name.
        The scope of an address must be a possible name of an interface."""
        try:
            numeric = ipaddress.ip_address(address[0])
        except ValueError:
            return False
        scope = address[0].partition("%")[2]
        is_scope = scope.isascii() and scope.isprintable() and len(scope) < MAX_SCOPE_CHARS
        return is_scope and numeric.version == (6 if ":" in self._here[0] else 4)
