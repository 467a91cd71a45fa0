"""The failure detector of a cluster: which peers are silent, which to probe, and which are dead.

Detection time D: members send heartbeats every D/4. A peer that is silent for 0.55 D is suspected and gets four probes,
D/10 apart. If it answers none, it is dead after 0.95 D, unless its round trip is longer than D/10. A tenth of a
detection time remains for messages in transit.
"""

from collections.abc import Iterable

from wend.model.events import PeerId
from wend.model.units import MS, Nanos
from wend.strategies.ring.bounded import put_newest

FIRST_TRIP: Nanos = 100 * MS
"""The round trip that a peer assumes until it has measured one."""
TRIES = 4
MAX_PROBES = 256
"""Probes whose answers still measure a round trip."""
MAX_TRIPS = 4096


def beat_period(detection_ns: Nanos) -> Nanos:
    return detection_ns // 4


def silence_limit(detection_ns: Nanos) -> Nanos:
    """How long a peer may be silent before others suspect it."""
    return detection_ns * 11 // 20


class _Record:
    __slots__ = ("due_ns", "heard_ns", "tries")

    def __init__(self, heard_ns: Nanos, due_ns: Nanos) -> None:
        self.heard_ns = heard_ns
        self.due_ns = due_ns
        self.tries = 0


class ClusterDetector:
    """Tracks the peers that `track` names, and measures round trips to any peer."""

    def __init__(self, detection_ns: Nanos) -> None:
        self._silence_ns = silence_limit(detection_ns)
        self._wait_ns = detection_ns // 10
        self._records: dict[PeerId, _Record] = {}
        self.dead: dict[PeerId, None] = {}
        self._timer_ns: Nanos | None = None
        self._is_timer_late = False
        """Whether a peer may be due before the timer."""
        self._probes: dict[int, tuple[PeerId, Nanos]] = {}
        self._trips: dict[PeerId, Nanos] = {}
        self._number = 0

    def track(self, now: Nanos, peers: Iterable[PeerId], suspected: bool = False) -> None:
        """Track these peers and no others. New ones count as heard now, or as silent if they are suspected."""
        before, self._records = self._records, {}
        for peer in peers:
            record = before.get(peer)
            if record is None:
                record = _Record(now, now if suspected else now + self._silence_ns)
                self._is_timer_late = True
            self._records[peer] = record
        self.dead = {peer: None for peer in self.dead if peer in self._records}

    def record_life_sign(self, now: Nanos, peer: PeerId, age_ns: Nanos = 0) -> bool:
        """Record a sign of life that is `age_ns` old. Returns whether the peer is not silent."""
        record = self._records.get(peer)
        if record is None:
            return False
        heard_ns = now - age_ns
        if heard_ns >= record.heard_ns and age_ns < self._silence_ns:
            record.heard_ns, record.tries = heard_ns, 0
            record.due_ns = heard_ns + self._silence_ns
            self.dead.pop(peer, None)
        return now - record.heard_ns < self._silence_ns

    def suspect(self, now: Nanos, peer: PeerId) -> None:
        """Probe a tracked peer now."""
        record = self._records.get(peer)
        if record is not None and not record.tries and peer not in self.dead:
            record.due_ns = now
            self._is_timer_late = True

    def mark_dead(self, peer: PeerId) -> bool:
        """Count a peer that leaves or has restarted as dead. Returns whether this peer tracks it."""
        if peer in self._records:
            self.dead[peer] = None
        return peer in self._records

    def probe(self, now: Nanos) -> tuple[list[PeerId], list[PeerId]]:
        """The peers to probe now, and those that have just died."""
        silent: list[PeerId] = []
        died: list[PeerId] = []
        for peer, record in self._records.items():
            if record.due_ns > now or peer in self.dead:
                continue
            if record.tries == TRIES:
                self.dead[peer] = None
                died.append(peer)
                continue
            record.tries += 1
            last = self.round_trip_ns(peer) * 5 // 4 if record.tries == TRIES else 0
            record.due_ns = now + max(self._wait_ns, last if peer in self._trips else 0)
            silent.append(peer)
        return silent, died

    def next_timer_ns(self, now: Nanos) -> Nanos | None:
        """When to set a timer for the next probe; None if an earlier timer runs."""
        if self._timer_ns is not None and not self._is_timer_late:
            return None
        self._is_timer_late = False
        due = min((one.due_ns for peer, one in self._records.items() if peer not in self.dead), default=None)
        if due is None or (self._timer_ns is not None and due >= self._timer_ns):
            return None
        self._timer_ns = max(due, now + 1)
        return self._timer_ns

    def is_due(self, now: Nanos) -> bool:
        """Whether the latest timer has expired; earlier timers do not count."""
        if self._timer_ns is None or now < self._timer_ns:
            return False
        self._timer_ns = None
        return True

    def next_number(self, now: Nanos, peer: PeerId) -> int:
        """A number for a probe to any peer."""
        self._number += 1
        put_newest(self._probes, self._number, (peer, now), MAX_PROBES)
        return self._number

    def record_answer(self, now: Nanos, peer: PeerId, number: int) -> bool:
        """Measure a round trip by an answer. Returns False if the answer belongs to no probe."""
        probe = self._probes.get(number)
        if probe is None or probe[0] != peer:
            return False
        del self._probes[number]
        trip, mean = now - probe[1], self._trips.get(peer)
        put_newest(self._trips, peer, trip if mean is None else (7 * mean + trip) // 8, MAX_TRIPS)
        return True

    def has_measured(self, peer: PeerId) -> bool:
        return peer in self._trips

    def round_trip_ns(self, peer: PeerId) -> Nanos:
        return self._trips.get(peer, FIRST_TRIP)
