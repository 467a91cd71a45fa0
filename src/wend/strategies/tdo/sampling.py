"""Peer sampling: a small random view of the other peers, refreshed by shuffles (as in Cyclon).

Each period a peer removes its oldest entry and sends that peer a subset of the view, with itself as the freshest entry.
The other answers with a subset of its own. A peer that is up returns to the view with later shuffles. A peer that is
down has been removed, so it disappears from all views. A peer shuffles with its contacts if its view is empty, and
periodically.
"""

from wend.model.events import PeerId
from wend.model.random_stream import RandomStream

VIEW = 25
SHUFFLED = 8
TOO_OLD = 30
"""Periods after which an entry expires."""
CONTACT_EVERY = 8

Entries = tuple[tuple[PeerId, int], ...]


class Sampling:
    """The view of one peer: other peers with the ages of their entries."""

    def __init__(self, me: PeerId, size: int, draw: RandomStream) -> None:
        self._me = me
        self._size = size
        self._draw = draw
        self._ages: dict[PeerId, int] = {}
        self._contacts: tuple[PeerId, ...] = ()
        self._sent: tuple[PeerId, ...] = ()
        self._rounds = 0

    @property
    def view(self) -> tuple[PeerId, ...]:
        return tuple(sorted(self._ages))

    def begin(self, contacts: tuple[PeerId, ...]) -> None:
        self._contacts = tuple(sorted(set(contacts) - {self._me}))
        self._ages = dict.fromkeys(self._contacts[: self._size], 0)

    def add_contact(self, peer: PeerId) -> None:
        """Add a peer to join by, found while this one runs."""
        if peer != self._me and peer not in self._contacts:
            self._contacts = tuple(sorted((*self._contacts, peer)))
            self._add_entries(((peer, 0),), ())

    @property
    def acquaintances(self) -> tuple[PeerId, ...]:
        """Contacts first, then the view."""
        return tuple(dict.fromkeys((*self._contacts, *self.view)))

    def sample(self, count: int, without: frozenset[PeerId] = frozenset()) -> list[PeerId]:
        """Return up to `count` different peers, at random."""
        others = [peer for peer in self.view if peer not in without]
        return self._draw.sample(others, min(count, len(others)))

    def shuffle(self) -> tuple[PeerId, Entries] | None:
        """Start the shuffle of a period. Return the partner and the entries to send."""
        self._rounds += 1
        self._ages = {peer: age + 1 for peer, age in self._ages.items() if age < TOO_OLD}
        contacts = self._contacts
        if contacts and (not self._ages or self._rounds % CONTACT_EVERY == 0):
            partner = self._draw.choice(contacts)
        elif self._ages:
            partner = min(self._ages, key=lambda peer: (-self._ages[peer], peer))
            del self._ages[partner]
        else:
            return None
        entries = self._sample_entries(SHUFFLED - 1)
        self._sent = tuple(peer for peer, _ in entries)
        return partner, ((self._me, 0), *entries)

    def merge(self, sender: PeerId, entries: Entries, answer: bool) -> Entries | None:
        """Merge the entries of a shuffle. Return the answer to send, or None if this is an answer."""
        mine = None if answer else self._sample_entries(SHUFFLED)
        sent = self._sent if mine is None else tuple(peer for peer, _ in mine)
        # do not add a peer that answers: else all views would hold the contacts and few others
        self._add_entries(entries if answer else ((sender, 0), *entries), sent)
        return mine

    def forget(self, peer: PeerId) -> None:
        self._ages.pop(peer, None)

    def _add_entries(self, entries: Entries, sent: tuple[PeerId, ...]) -> None:
        for peer, age in entries:
            if peer != self._me and 0 <= age <= TOO_OLD:
                self._ages[peer] = min(age, self._ages.get(peer, age))
        given = set(sent) - {peer for peer, _ in entries}
        while len(self._ages) > self._size:
            # remove the entries that the other side has now first, then the oldest
            del self._ages[max(self._ages, key=lambda peer: (peer in given, self._ages[peer], peer))]

    def _sample_entries(self, count: int) -> Entries:
        return tuple((peer, self._ages[peer]) for peer in self.sample(count))
