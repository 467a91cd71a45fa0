"""How a peer finds its cluster: by multicast, by contacts of any cluster, and by others that look for it, too.

A peer without a cluster searches in rounds, one per heartbeat period. A contact answers with the coordinators of its
own cluster; if it is one itself, it knows the directory and says who coordinates the cluster that is asked for. If
nobody knows the cluster, the peer begins it; of several that search at once, the one with the lowest id. Some may begin
it twice: such clusters merge as after a partition.
"""

from collections.abc import Container, Iterable

from wend.model.events import PeerId

MOST_CONTACTS = 64
ASKED = 3
"""Contacts that a peer asks in one round."""
MULTICAST_ROUNDS = 3
MOST_TARGETS = 16
MOST_SEEKERS = 64
MOST_NAMES = 256
ALONE, USUAL, BEHIND, AWAITED, HOPEFUL = 1, 3, 6, 16, 24
"""Rounds before a peer begins a cluster: without contacts; with some; if a peer with a lower id searches, too; if
contacts are still to come; if the cluster is known, but does not answer."""


class Search:
    def __init__(self, me: PeerId) -> None:
        self._me = me
        self._contacts: list[PeerId] = []
        self._place = 0
        self._rounds = 0
        self._awaits_contacts = False
        self.targets: dict[PeerId, None] = {}
        """Peers that can admit this one to its cluster."""
        self._seekers: dict[str, dict[PeerId, None]] = {}
        """By the name of a cluster, those that looked for it here."""

    # ---------------------------------------------------------------- contacts

    def begin(self, contacts: Iterable[PeerId], contacts_follow: bool) -> None:
        for peer in contacts:
            self.add_contact(peer)
        self._awaits_contacts = contacts_follow and not self._contacts

    def add_contact(self, peer: PeerId, first: bool = False) -> None:
        """A peer of any cluster; `first`: it is the next to ask."""
        if peer == self._me:
            self._awaits_contacts = False
        elif first:
            self._contacts = [peer, *(one for one in self._contacts if one != peer)][:MOST_CONTACTS]
            self._place = 0
        elif peer not in self._contacts and len(self._contacts) < MOST_CONTACTS:
            self._contacts.append(peer)

    def prefer_contact(self, peer: PeerId) -> None:
        """The driver found a contact, which may be this peer itself."""
        self._awaits_contacts = False
        self.add_contact(peer, first=True)

    def next_contacts(self, count: int, but: Container[PeerId] = ()) -> list[PeerId]:
        """The next contacts in turn, without some."""
        chosen: list[PeerId] = []
        for _ in self._contacts:
            if len(chosen) == count:
                break
            contact = self._contacts[self._place % len(self._contacts)]
            self._place += 1
            if contact not in but:
                chosen.append(contact)
        return chosen

    @property
    def contacts(self) -> tuple[PeerId, ...]:
        return tuple(self._contacts)

    # ---------------------------------------------------------------- rounds

    def aim(self, peer: PeerId) -> None:
        """Ask this peer in the next rounds, which belongs to the cluster."""
        if peer != self._me and len(self.targets) < MOST_TARGETS:
            self.targets[peer] = None

    def restart(self) -> None:
        """Search from the beginning."""
        self._rounds = 0
        self.targets = {}

    def next_round(self, cluster: str) -> bool:
        """Count a round; whether to begin the cluster now."""
        self._rounds += 1
        if self.targets:
            limit = HOPEFUL
        elif lower := sum(peer < self._me for peer in self._seekers.get(cluster, ())):
            limit = BEHIND + min(lower, USUAL)
        elif self._awaits_contacts:
            limit = AWAITED
        else:
            limit = USUAL if self._contacts else ALONE
        if self._rounds % (HOPEFUL // 2) == 0:
            self.targets = {}  # they may be gone: find others
        return self._rounds > limit

    @property
    def multicasts(self) -> bool:
        """Whether to search by multicast in this round, too: if many begin at once, all of them hear it."""
        return self._rounds % MULTICAST_ROUNDS == 1

    # ---------------------------------------------------------------- others that search

    def add_seeker(self, cluster: str, peer: PeerId) -> None:
        known = self._seekers.setdefault(cluster, {})
        known.pop(peer, None)
        known[peer] = None
        if len(known) > MOST_SEEKERS:
            del known[next(iter(known))]
        if len(self._seekers) > MOST_NAMES:
            del self._seekers[next(iter(self._seekers))]

    def seekers(self, cluster: str, but: PeerId) -> tuple[PeerId, ...]:
        return tuple(peer for peer in self._seekers.get(cluster, ()) if peer != but)

    def forget_seekers(self, cluster: str) -> None:
        self._seekers.pop(cluster, None)
