"""The failure detector of a ring: probes, the round trips that their answers measure, and the peers that are dead.

A leaf probe exchanges leaf sets. A ping only measures the round trip. A peer repeats a probe until it receives an
answer or gives the other peer up.
"""

from collections.abc import Iterator
from typing import Final

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect, SendTo, Timer
from wend.strategies.ring.bounded import put_newest
from wend.strategies.ring.leaf_set import HALF, LeafSet
from wend.strategies.ring.messages import LeafProbe, TablePing

MAX_NAMED = 8
"""The most dead peers that a probe names."""
MEMORY = 12
"""Detection times after which a peer asks each dead one once more, and forgets it."""
DOUBTED = 2
"""Detection times after which a peer probes a dead peer that others still name: by then they would know of its
death."""


class DeadPeers:
    """The dead peers, with the times at which this peer detected them, and the peers wrongly reported dead."""

    __slots__ = ("_detection_ns", "_since_ns", "refuted_ns")

    def __init__(self, detection_ns: Nanos) -> None:
        self._detection_ns = detection_ns
        self._since_ns: dict[PeerId, Nanos] = {}
        self.refuted_ns: dict[PeerId, Nanos] = {}
        """When each peer that was wrongly reported dead last answered."""

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._since_ns

    def add(self, now: Nanos, peer: PeerId) -> None:
        self._since_ns.pop(peer, None)
        self._since_ns[peer] = now

    def discard(self, peer: PeerId) -> None:
        self._since_ns.pop(peer, None)

    def is_certain(self, now: Nanos, peer: PeerId) -> bool:
        """Whether the peer is surely dead even if others still name it: they may not know yet."""
        since_ns = self._since_ns.get(peer)
        return since_ns is not None and now <= since_ns + DOUBTED * self._detection_ns

    def is_refuted(self, now: Nanos, peer: PeerId) -> bool:
        """Whether the peer recently answered a probe after others reported it dead."""
        answered_ns = self.refuted_ns.get(peer)
        return answered_ns is not None and now < answered_ns + self._detection_ns

    def recent(self, now: Nanos) -> tuple[PeerId, ...]:
        """The peers to name in a probe."""
        if not self._since_ns:
            return ()
        limit_ns = now - 2 * self._detection_ns
        return tuple([peer for peer, since_ns in list(self._since_ns.items())[-MAX_NAMED:] if since_ns >= limit_ns])

    def peers_to_ask(self, now: Nanos) -> list[PeerId]:
        """The peers to ask once more."""
        limit_ns = now - MEMORY * self._detection_ns
        return [peer for peer, since_ns in self._since_ns.items() if since_ns < limit_ns]


class RoundTrips:
    """The measured round trips by peer, and their moving average."""

    __slots__ = ("assumed_ns", "average_ns", "measured")

    def __init__(self, assumed_ns: Nanos) -> None:
        self.assumed_ns = assumed_ns
        """The setting's assumption about peers that were never measured."""
        self.average_ns = assumed_ns
        """The moving average over all answers."""
        self.measured: dict[PeerId, Nanos] = {}
        """The smoothed round trip to each peer of the leaf set and the routing table."""

    def add(self, peer: PeerId, trip_ns: Nanos) -> None:
        """Add a measurement to those of a peer."""
        earlier_ns = self.measured.get(peer)
        self.measured[peer] = trip_ns if earlier_ns is None else (7 * earlier_ns + trip_ns) // 8

    def wait_ns(self, peer: PeerId, is_last: bool) -> Nanos:
        """How long to wait for the answer to the first transmission of a probe, or to the last."""
        trip_ns = self.measured.get(peer)
        return trip_ns * 5 // 4 if trip_ns is not None else self.average_ns * (2 if is_last else 1)


TRIES = 4
"""Transmissions of a probe before its receiver counts as dead. If a tenth of all messages is lost, that is a mistake
for one live peer in 800. Such a peer comes back when it hears of the mistake."""
CLAIM_TRIES = 2
"""The same for a peer that another one has found dead."""
GIVEN_UP = 32
"""Probes that a peer remembers after it gave up: a late answer shows that the round trip is longer."""
PROBE: Final = "probe"


class PendingProbe:
    """A probe that waits for its answer."""

    __slots__ = ("due_ns", "is_claim", "is_last_chance", "is_leaf", "sent_ns", "tries_left")

    def __init__(self, is_leaf: bool, is_claim: bool, is_last_chance: bool) -> None:
        self.is_leaf = is_leaf
        self.is_claim = is_claim
        """Whether another peer reported the receiver dead. That peer has informed the others, too."""
        self.is_last_chance = is_last_chance
        """Whether the receiver counts as dead already, and is forgotten if it does not answer now."""
        self.tries_left = 1 if is_last_chance else CLAIM_TRIES if is_claim else TRIES
        self.sent_ns: dict[int, Nanos] = {}
        """When each transmission was sent, by its number."""
        self.due_ns: Nanos = 0


class Probes:
    """The pending probes of one peer, one for each peer that it asks, and the timer for all of them."""

    def __init__(
        self, leaf_set: LeafSet, dead: DeadPeers, trips: RoundTrips, incarnation: int, shortest_wait_ns: Nanos
    ) -> None:
        self._leaf_set = leaf_set
        self._dead = dead
        self._trips = trips
        self._incarnation = incarnation
        self._shortest_wait_ns = shortest_wait_ns
        self._pending: dict[PeerId, PendingProbe] = {}
        self._given_up: dict[PeerId, PendingProbe] = {}
        self._number = 0
        self._timer_ns: Nanos | None = None
        self.leaf_probes = 0
        """How many leaf probes are pending."""

    # ---------------------------------------------------------------- questions

    def exchange(self, now: Nanos, peer: PeerId, is_claim: bool = False) -> list[PluginEffect]:
        """Send a leaf probe, unless one is pending or the peer is this one."""
        pending = self._pending.get(peer)
        if peer == self._leaf_set.me or (pending is not None and pending.is_leaf):
            return []
        self.cancel(peer)
        self.leaf_probes += 1
        return self._start_probe(now, peer, PendingProbe(True, is_claim, False))

    def ping(self, now: Nanos, peer: PeerId, is_last_chance: bool = False) -> list[PluginEffect]:
        """Send a ping, unless a probe is pending."""
        return [] if peer in self._pending else self._start_probe(now, peer, PendingProbe(False, False, is_last_chance))

    def exchange_with_all(self, now: Nanos) -> Iterator[PluginEffect]:
        """Send a leaf probe to each member. If one is pending, send it again: it did not name the latest dead peer."""
        for member in self._leaf_set.peers:
            pending = self._pending.get(member)
            if pending is not None and pending.is_leaf:
                yield self._make_probe(now, member, pending)
            else:
                yield from self.exchange(now, member)

    def _start_probe(self, now: Nanos, peer: PeerId, probe: PendingProbe) -> list[PluginEffect]:
        self._pending[peer] = probe
        return self._transmit(now, peer, probe)

    def _transmit(self, now: Nanos, peer: PeerId, probe: PendingProbe) -> list[PluginEffect]:
        """The first and the last transmission wait for a round trip, those between them less."""
        is_last = probe.tries_left == 1
        wait_ns = self._trips.wait_ns(peer, is_last) if is_last or probe.due_ns == 0 else 0
        probe.due_ns = due_ns = now + max(wait_ns, self._shortest_wait_ns)
        probe.tries_left -= 1
        send = self._make_probe(now, peer, probe)
        if self._timer_ns is not None and self._timer_ns <= due_ns:
            return [send]
        self._timer_ns = due_ns
        return [Timer(due_ns, PROBE), send]

    def _make_probe(self, now: Nanos, peer: PeerId, probe: PendingProbe) -> SendTo:
        self._number += 1
        probe.sent_ns[self._number] = now
        if not probe.is_leaf:
            return SendTo(peer, TablePing(self._number))
        return SendTo(peer, LeafProbe(self._number, self._incarnation, self._leaf_set.peers, self._dead.recent(now)))

    # ---------------------------------------------------------------- answers

    def answer(self, now: Nanos, peer: PeerId, number: int) -> Nanos | None:
        """End a probe by its answer, and return the round trip, even of a late one; None if there was no such probe."""
        for probes in (self._pending, self._given_up):
            probe = probes.get(peer)
            if probe is not None and number in probe.sent_ns:
                self.cancel(peer)
                self._given_up.pop(peer, None)
                return now - probe.sent_ns[number]
        return None

    def is_claim(self, peer: PeerId) -> bool:
        """Whether a probe is pending because another peer reported this one dead."""
        pending = self._pending.get(peer)
        return pending is not None and pending.is_claim

    def cancel(self, peer: PeerId) -> None:
        probe = self._pending.pop(peer, None)
        if probe is not None:
            self.leaf_probes -= probe.is_leaf

    # ---------------------------------------------------------------- time

    def take_due(self, now: Nanos) -> list[tuple[PeerId, PendingProbe]]:
        """Return the probes to repeat or to give up, after the timer has expired."""
        if self._timer_ns is None or now < self._timer_ns:
            return []
        self._timer_ns = None
        return [(peer, probe) for peer, probe in self._pending.items() if probe.due_ns <= now]

    def repeat(self, now: Nanos, peer: PeerId, probe: PendingProbe) -> Iterator[PluginEffect]:
        """Send a probe again. If all successors up to this one are late, probe the next: many may have crashed."""
        yield from self._transmit(now, peer, probe)
        near = self._leaf_set.peers[:HALF]
        after = near.index(peer) + 1 if peer in near else len(near)
        if after < len(near) and all(other in self._pending for other in near[:after]):
            yield from self.exchange(now, near[after])

    def give_up(self, peer: PeerId) -> None:
        probe = self._pending[peer]
        self.cancel(peer)
        put_newest(self._given_up, peer, probe, GIVEN_UP)

    def set_timer(self) -> list[PluginEffect]:
        """The timer for the next probe that is due, unless one runs."""
        if self._timer_ns is not None or not self._pending:
            return []
        self._timer_ns = min([probe.due_ns for probe in self._pending.values()])
        return [Timer(self._timer_ns, PROBE)]


SILENCE: Final = "silence"


class SuccessorCheck:
    """The last heartbeat of the successor: when it arrived, and the leaf set that it carried."""

    __slots__ = ("_has_timer", "_heard_ns", "_leaves", "_silence_ns", "_successor")

    def __init__(self, silence_ns: Nanos) -> None:
        self._silence_ns = silence_ns
        self._successor: PeerId | None = None
        self._heard_ns: Nanos = 0
        self._leaves: tuple[PeerId, ...] | None = None
        """The successor's leaf set, if it was compared with this peer's and neither has changed since."""
        self._has_timer = False

    def is_repetition(self, now: Nanos, sender: PeerId, leaves: tuple[PeerId, ...]) -> bool:
        """Whether a heartbeat of the successor carries nothing new, so that it needs no further handling."""
        if leaves != self._leaves or sender != self._successor:
            return False
        self._heard_ns = now
        return True

    def record(self, now: Nanos, sender: PeerId, leaves: tuple[PeerId, ...]) -> None:
        """Record a heartbeat whose leaf set this peer compares."""
        if sender == self._successor:
            self._heard_ns = now
            self._leaves = leaves

    def compare_again(self) -> None:
        """Compare the next heartbeat even if it carries nothing new: messages after the last comparison may be lost."""
        self._leaves = None

    def follow(self, now: Nanos, successor: PeerId | None) -> list[PluginEffect]:
        """Watch this successor, after the leaf set has changed."""
        if successor != self._successor:
            self._successor = successor
            self._heard_ns = now
        self._leaves = None
        return self.set_timer()

    def suspect(self, now: Nanos) -> PeerId | None:
        """Return the successor if it has been silent for too long, after the timer has expired."""
        self._has_timer = False
        if now < self._heard_ns + self._silence_ns:
            return None
        self._heard_ns = now
        return self._successor

    def set_timer(self) -> list[PluginEffect]:
        """The timer for the next check of the successor, unless one runs."""
        if self._has_timer or self._successor is None:
            return []
        self._has_timer = True
        return [Timer(self._heard_ns + self._silence_ns, SILENCE)]
