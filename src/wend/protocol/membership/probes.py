"""Probes that wait for an answer: when to send each again, and when to give a peer up."""

from wend.model.events import PeerId
from wend.model.units import Nanos

TRIES = 4
"""Transmissions of a probe before its peer counts as dead. With a tenth of all messages lost, one live peer in 800 is
given up by mistake; it comes back when it hears of it."""


class PendingProbe:
    __slots__ = ("claimed", "due_ns", "last_chance", "leaf", "left", "number", "sent_ns", "wait_ns")

    def __init__(self, number: int, wait_ns: Nanos, leaf: bool, claimed: bool, last_chance: bool) -> None:
        self.number = number
        self.wait_ns = wait_ns
        self.leaf = leaf
        """Whether it exchanges leaf sets; else it only measures the round trip."""
        self.claimed = claimed
        """Whether another peer said that this one is dead: then that peer has told the others, too."""
        self.last_chance = last_chance
        """Whether the peer is known to be dead, and forgotten if it does not answer now."""
        self.left = 1 if last_chance else TRIES
        self.sent_ns: Nanos = 0
        """When it was sent, if it was sent once; else the answer says nothing about the round trip."""
        self.due_ns: Nanos = 0


class PendingProbes:
    def __init__(self) -> None:
        self._pending: dict[PeerId, PendingProbe] = {}
        self._number = 0
        self.leaf_probes = 0
        """How many of them exchange leaf sets."""

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._pending

    def get(self, peer: PeerId) -> PendingProbe | None:
        return self._pending.get(peer)

    def add(self, peer: PeerId, wait_ns: Nanos, leaf: bool, claimed: bool, last_chance: bool) -> PendingProbe:
        self.pop(peer)
        self._number += 1
        probe = self._pending[peer] = PendingProbe(self._number, wait_ns, leaf, claimed, last_chance)
        self.leaf_probes += leaf
        return probe

    def pop(self, peer: PeerId) -> PendingProbe | None:
        probe = self._pending.pop(peer, None)
        if probe is not None:
            self.leaf_probes -= probe.leaf
        return probe

    def answered(self, now: Nanos, peer: PeerId, number: int) -> tuple[bool, Nanos | None]:
        """Whether such a probe was pending, and the round trip that its answer measured."""
        probe = self._pending.get(peer)
        if probe is None or probe.number != number:
            return False, None
        self.pop(peer)
        return True, now - probe.sent_ns if probe.sent_ns else None

    def due(self, now: Nanos) -> list[tuple[PeerId, PendingProbe]]:
        return [(peer, probe) for peer, probe in self._pending.items() if probe.due_ns <= now]

    def next_ns(self) -> Nanos | None:
        return min((probe.due_ns for probe in self._pending.values()), default=None)
