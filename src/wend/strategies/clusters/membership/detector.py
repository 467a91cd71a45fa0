"""The failure detector of a cluster: who is silent, whom to probe, who is dead.

Detection time D: members send heartbeats every D/4. A peer that is silent for 0.55 D is suspected and gets four probes,
D/10 apart. If it answers none, it is dead after 0.95 D, unless its round trip is longer than D/10. A tenth of a
detection time is left for messages on their way.
"""

from collections.abc import Iterable

from wend.model.events import PeerId
from wend.model.units import MS, Nanos

FIRST_TRIP: Nanos = 100 * MS
"""The round trip that a peer assumes where it has measured none."""
TRIES = 4
MOST_PROBES = 256
"""Probes whose answers still measure a round trip."""
MOST_TRIPS = 4096


def beat_period(detection: Nanos) -> Nanos:
    return detection // 4


class _Tracked:
    __slots__ = ("due_ns", "heard_ns", "tries")

    def __init__(self, heard_ns: Nanos, due_ns: Nanos) -> None:
        self.heard_ns = heard_ns
        self.due_ns = due_ns
        self.tries = 0


class ClusterDetector:
    """Tracks the peers that it is told to, and measures round trips to any."""

    def __init__(self, detection: Nanos) -> None:
        self.silence_ns = detection * 11 // 20
        self._wait_ns = detection // 10
        self._tracked: dict[PeerId, _Tracked] = {}
        self.dead: dict[PeerId, None] = {}
        """Of the tracked peers."""
        self.sooner = False
        """Whether a peer may be due before the time that `next_ns` said last."""
        self._sent: dict[int, tuple[PeerId, Nanos]] = {}
        self._trips: dict[PeerId, Nanos] = {}
        self._number = 0

    def track(self, now: Nanos, peers: Iterable[PeerId], suspected: bool = False) -> None:
        """Track these peers and no others. New ones count as heard now, or as silent if they are suspected."""
        before, self._tracked = self._tracked, {}
        for peer in peers:
            known = before.get(peer)
            if known is None:
                known = _Tracked(now, now if suspected else now + self.silence_ns)
                self.sooner = True
            self._tracked[peer] = known
        self.dead = {peer: None for peer in self.dead if peer in self._tracked}

    def tracks(self, peer: PeerId) -> bool:
        return peer in self._tracked

    def heard(self, now: Nanos, peer: PeerId, age_ns: Nanos = 0) -> None:
        """A sign of life of a peer, which is so old."""
        tracked = self._tracked.get(peer)
        at = now - age_ns
        if tracked is None or at < tracked.heard_ns or at + self.silence_ns <= now:
            return
        tracked.heard_ns, tracked.tries = at, 0
        tracked.due_ns = at + self.silence_ns
        self.dead.pop(peer, None)

    def silent(self, now: Nanos, peer: PeerId) -> bool:
        tracked = self._tracked.get(peer)
        return tracked is None or now - tracked.heard_ns >= self.silence_ns

    def suspect(self, now: Nanos, peer: PeerId) -> None:
        """Probe a tracked peer now."""
        tracked = self._tracked.get(peer)
        if tracked is not None and not tracked.tries and peer not in self.dead:
            tracked.due_ns = now
            self.sooner = True

    def declare(self, peer: PeerId) -> None:
        """A tracked peer is surely gone: it said so, or has restarted."""
        if peer in self._tracked:
            self.dead[peer] = None

    def due(self, now: Nanos) -> tuple[list[PeerId], list[PeerId]]:
        """The peers to probe now, and those that have just been found dead."""
        probed: list[PeerId] = []
        died: list[PeerId] = []
        for peer, tracked in self._tracked.items():
            if tracked.due_ns > now or peer in self.dead:
                continue
            if tracked.tries == TRIES:
                self.dead[peer] = None
                died.append(peer)
                continue
            tracked.tries += 1
            last = self.round_trip_ns(peer) * 5 // 4 if tracked.tries == TRIES else 0
            tracked.due_ns = now + max(self._wait_ns, last if peer in self._trips else 0)
            probed.append(peer)
        return probed, died

    def next_ns(self) -> Nanos | None:
        self.sooner = False
        return min((one.due_ns for peer, one in self._tracked.items() if peer not in self.dead), default=None)

    # ---------------------------------------------------------------- round trips

    def number(self, now: Nanos, peer: PeerId) -> int:
        """A number for a probe to any peer."""
        self._number += 1
        self._sent[self._number] = (peer, now)
        if len(self._sent) > MOST_PROBES:
            del self._sent[next(iter(self._sent))]
        return self._number

    def answered(self, now: Nanos, peer: PeerId, number: int) -> bool:
        """Whether this answers a probe of this peer; it measures the round trip."""
        sent = self._sent.get(number)
        if sent is None or sent[0] != peer:
            return False
        del self._sent[number]
        trip, known = now - sent[1], self._trips.pop(peer, None)
        self._trips[peer] = trip if known is None else (7 * known + trip) // 8
        if len(self._trips) > MOST_TRIPS:
            del self._trips[next(iter(self._trips))]
        return True

    def measured(self, peer: PeerId) -> bool:
        return peer in self._trips

    def round_trip_ns(self, peer: PeerId) -> Nanos:
        return self._trips.get(peer, FIRST_TRIP)
