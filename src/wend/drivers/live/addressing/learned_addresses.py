"""The peers whose addresses a locator has learned, beside those of files, and their places on the ring.

The locator answers questions with the peers that are closest to an id, so that a lookup comes closer with each answer.
It forgets the oldest address first; a lookup finds it again.
"""

from bisect import bisect_left, insort

from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.address_messages import MAX_NEAREST, KnownAddress
from wend.drivers.live.addressing.addresses import Address
from wend.model.events import PeerId
from wend.model.keys import distance, node_id
from wend.model.units import SECOND, Nanos

MAX_LEARNED = 4096
DOUBT_NS: Nanos = 2 * SECOND
"""How long an address that was confirmed or doubted cannot be doubted again."""


class LearnedAddresses:
    """Learned peers, oldest first. Their addresses are in the book."""

    def __init__(self, book: AddressBook) -> None:
        self._book = book
        self._confirmed_ns: dict[PeerId, Nanos] = {}
        """When each was last confirmed or doubted."""
        self._places: list[tuple[int, PeerId]] = []
        """The learned peers by their places on the ring."""

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._confirmed_ns

    def add(self, now: Nanos, peer: PeerId, address: Address, *, moved: bool) -> None:
        """`moved`: the peer no longer answers at its former address."""
        (self._book.move if moved else self._book.add)(peer, address)
        if peer not in self:
            insort(self._places, (node_id(peer), peer))
        self._confirmed_ns.pop(peer, None)
        self._confirmed_ns[peer] = now

    def confirm(self, now: Nanos, peer: PeerId) -> None:
        if peer in self:
            self._confirmed_ns[peer] = now

    def may_recheck(self, now: Nanos, peer: PeerId) -> bool:
        return peer in self and now >= self._confirmed_ns[peer] + DOUBT_NS

    def outdated_peers(self) -> list[PeerId]:
        """The peers to forget: those whose address another peer now has, and the oldest one if there are too many."""
        reachable = self._book.reachable
        outdated = [peer for peer in self._confirmed_ns if peer not in reachable]
        if len(self._confirmed_ns) - len(outdated) > MAX_LEARNED:
            outdated.append(next(peer for peer in self._confirmed_ns if peer in reachable))
        return outdated

    def forget(self, peer: PeerId) -> None:
        del self._confirmed_ns[peer]
        self._places.remove((node_id(peer), peer))
        self._book.remove(peer)

    def nearest_peers(self, peer: PeerId, asker: Address) -> tuple[KnownAddress, ...]:
        """The peers of the book that are closest to this id, without the asker."""
        places, reachable = self._places, self._book.reachable
        at = bisect_left(places, (node_id(peer), 0))
        around = (
            [places[(at + step) % len(places)][1] for step in range(-MAX_NEAREST - 1, MAX_NEAREST + 1)]
            if places
            else []
        )
        around += [peer] if peer in reachable else []
        key = node_id(peer)
        # another peer may now have the address of a learned one
        others = [one for one in set(around) if one in reachable and reachable[one] != asker]
        others.sort(key=lambda one: (distance(node_id(one), key), one))
        return tuple(KnownAddress(one, *reachable[one]) for one in others[:MAX_NEAREST])
