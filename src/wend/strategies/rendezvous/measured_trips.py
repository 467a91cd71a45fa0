"""Round trips to peers that the membership has not measured, and the events from them that wait for it.

The age of an event grows by half of the round trip to its sender. A DHT measures the round trips to its neighbours and
to the entries of its table; of others, and of those that restarted, it knows only a guess. An event that may expire
must not be judged by a guess: the receiver asks the sender for a round trip first, once, and holds the event meanwhile.
"""

from typing import Any

from wend.model.events import PeerId
from wend.model.units import MS, SECOND, Nanos

TRIES = 4
"""Questions to a sender, each after twice the wait. Then its events go on with the guess."""
FIRST_WAIT_NS: Nanos = 200 * MS
VALID_NS: Nanos = 300 * SECOND
"""How long a measurement is used."""
MOST_TRIPS = 4096
MOST_HELD = 1024
"""Events that wait, of all senders. Beyond that they go on with the guess."""


class _Asked:
    __slots__ = ("due_ns", "held", "sent_ns", "tries")

    def __init__(self) -> None:
        self.held: list[tuple[Nanos, Any]] = []
        """The messages that wait, each with the time of its arrival."""
        self.sent_ns: dict[int, Nanos] = {}
        """When each question was sent, by its number."""
        self.tries = 0
        self.due_ns: Nanos = 0


class MeasuredTrips:
    def __init__(self) -> None:
        self._trips: dict[PeerId, tuple[Nanos, Nanos]] = {}
        """By peer: the round trip, and when it was measured."""
        self._asked: dict[PeerId, _Asked] = {}
        self._number = 0
        self._held = 0

    def trip_ns(self, now: Nanos, peer: PeerId) -> Nanos | None:
        trip, measured_ns = self._trips.get(peer, (None, 0))
        return trip if now - measured_ns < VALID_NS else None

    def hold(self, now: Nanos, peer: PeerId, message: Any) -> bool:
        """Let a message wait until the round trip to its sender is known; whether there is room."""
        if self._held >= MOST_HELD:
            return False
        self._held += 1
        self._asked.setdefault(peer, _Asked()).held.append((now, message))
        return True

    def questions(self, now: Nanos) -> list[tuple[PeerId, int]]:
        """The questions to send now: whom to ask, and the number of each."""
        found = []
        for peer, asked in self._asked.items():
            if asked.due_ns <= now and asked.tries < TRIES:
                self._number += 1
                asked.sent_ns[self._number] = now
                asked.due_ns = now + (FIRST_WAIT_NS << asked.tries)
                asked.tries += 1
                found.append((peer, self._number))
        return found

    def answered(self, now: Nanos, peer: PeerId, number: int) -> list[tuple[Nanos, Any]]:
        """A peer has answered. Returns its messages that waited, each with the time of its arrival."""
        asked = self._asked.get(peer)
        if asked is None or number not in asked.sent_ns:
            return []
        self._trips.pop(peer, None)
        self._trips[peer] = (now - asked.sent_ns[number], now)
        if len(self._trips) > MOST_TRIPS:
            del self._trips[next(iter(self._trips))]
        return self._release(peer)

    def given_up(self, now: Nanos) -> list[tuple[PeerId, Nanos, Any]]:
        """The messages of senders that do not answer, each with its sender and the time of its arrival."""
        silent = [peer for peer, asked in self._asked.items() if asked.tries == TRIES and asked.due_ns <= now]
        return [(peer, arrived_ns, message) for peer in silent for arrived_ns, message in self._release(peer)]

    def next_ns(self) -> Nanos | None:
        """When to ask again, or to give up."""
        return min((asked.due_ns for asked in self._asked.values()), default=None)

    def _release(self, peer: PeerId) -> list[tuple[Nanos, Any]]:
        held = self._asked.pop(peer).held
        self._held -= len(held)
        return held
