"""Probes that wait for an answer: when to send each again, when to give a peer up, and what answers measure."""

from wend.model.events import PeerId
from wend.model.units import Nanos

TRIES = 4
"""Transmissions of a probe before its peer counts as dead. With a tenth of all messages lost, one live peer in 800 is
given up by mistake; it comes back when it hears of it."""
CLAIM_TRIES = 2
"""The same for a peer that another one has found dead."""
GIVEN_UP = 32
"""Probes that are remembered after the peer was given up: a late answer shows that the round trip is longer."""


class PendingProbe:
    __slots__ = ("claimed", "due_ns", "last_chance", "leaf", "left", "sent")

    def __init__(self, leaf: bool, claimed: bool, last_chance: bool) -> None:
        self.leaf = leaf
        """Whether it exchanges leaf sets; else it only measures the round trip."""
        self.claimed = claimed
        """Whether another peer said that this one is dead: then that peer has told the others, too."""
        self.last_chance = last_chance
        """Whether the peer is known to be dead, and forgotten if it does not answer now."""
        self.left = 1 if last_chance else CLAIM_TRIES if claimed else TRIES
        self.sent: dict[int, Nanos] = {}
        """When each transmission was sent, by its number."""
        self.due_ns: Nanos = 0


class PendingProbes:
    def __init__(self) -> None:
        self._pending: dict[PeerId, PendingProbe] = {}
        self._given_up: dict[PeerId, PendingProbe] = {}
        self._number = 0
        self.leaf_probes = 0
        """How many of them exchange leaf sets."""

    def __bool__(self) -> bool:
        return bool(self._pending)

    def get(self, peer: PeerId) -> PendingProbe | None:
        return self._pending.get(peer)

    def add(self, peer: PeerId, leaf: bool, claimed: bool, last_chance: bool) -> PendingProbe:
        self.pop(peer)
        probe = self._pending[peer] = PendingProbe(leaf, claimed, last_chance)
        self.leaf_probes += leaf
        return probe

    def number(self, now: Nanos, probe: PendingProbe) -> int:
        """A number for one more transmission."""
        self._number += 1
        probe.sent[self._number] = now
        return self._number

    def pop(self, peer: PeerId) -> None:
        probe = self._pending.pop(peer, None)
        if probe is not None:
            self.leaf_probes -= probe.leaf

    def give_up(self, peer: PeerId) -> None:
        probe = self._pending[peer]
        self.pop(peer)
        self._given_up.pop(peer, None)
        self._given_up[peer] = probe
        if len(self._given_up) > GIVEN_UP:
            del self._given_up[next(iter(self._given_up))]

    def answered(self, now: Nanos, peer: PeerId, number: int) -> Nanos | None:
        """The round trip that an answer took, however late; None if this peer sent no such probe."""
        for probes in (self._pending, self._given_up):
            probe = probes.get(peer)
            if probe is not None and number in probe.sent:
                self.pop(peer)
                self._given_up.pop(peer, None)
                return now - probe.sent[number]
        return None

    def due(self, now: Nanos) -> list[tuple[PeerId, PendingProbe]]:
        return [(peer, probe) for peer, probe in self._pending.items() if probe.due_ns <= now]

    def next_ns(self) -> Nanos | None:
        return min([probe.due_ns for probe in self._pending.values()]) if self._pending else None
