"""Round trips to peers that the membership has not measured, and the events from them that wait for it.

The age of an event grows by half of the round trip to its sender. A DHT measures the round trips to its neighbours and
to the entries of its routing table. For other peers, and for those that restarted, it has only an estimate. No peer may
drop an event because of an estimate: the receiver holds the event and measures the round trip first.
"""

import msgspec

from wend.model.events import PeerId
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.plugins import PluginEffect, SendTo, Timer
from wend.strategies.rendezvous.messages import MatchEvent, NotifyPeer, TripRequest
from wend.strategies.ring.bounded import put_newest

TRIES = 4
"""Requests to a sender, each after twice the wait. Then its events proceed with the estimate."""
FIRST_WAIT_NS: Nanos = 200 * MS
VALID_NS: Nanos = 300 * SECOND
"""How long a measurement is used."""
MAX_TRIPS = 4096
MAX_WAITING = 1024
"""Events that wait, from all senders. Others proceed with the estimate."""
TRIPS = "trips"
"""The timer for unanswered requests."""

EventMessage = MatchEvent | NotifyPeer


class _Measurement(msgspec.Struct, eq=False):
    waiting: list[tuple[Nanos, EventMessage]] = []
    """The messages that wait, each with the time of its arrival."""
    sent_ns: dict[int, Nanos] = {}
    """When this peer sent each request, by its number."""
    tries: int = 0
    due_ns: Nanos = 0


class OwnerRoundTrips:
    """Measures round trips to the senders of events, and holds the events until it knows them."""

    def __init__(self) -> None:
        self._trips: dict[PeerId, tuple[Nanos, Nanos]] = {}
        """By peer: the round trip, and when it was measured."""
        self._measurements: dict[PeerId, _Measurement] = {}
        self._number = 0
        self._waiting = 0
        self._timer_ns: Nanos | None = None

    def trip_ns(self, now: Nanos, peer: PeerId) -> Nanos | None:
        trip, measured_ns = self._trips.get(peer, (None, 0))
        return trip if now - measured_ns < VALID_NS else None

    def hold(self, now: Nanos, peer: PeerId, message: EventMessage) -> bool:
        """Hold a message until the round trip to its sender is known. Returns whether there is room."""
        if self._waiting >= MAX_WAITING:
            return False
        self._waiting += 1
        self._measurements.setdefault(peer, _Measurement()).waiting.append((now, message))
        return True

    def ask(self, now: Nanos) -> list[PluginEffect]:
        """Send the requests that are due, and set the timer for the next ones."""
        effects: list[PluginEffect] = []
        for peer, measurement in self._measurements.items():
            if measurement.due_ns <= now and measurement.tries < TRIES:
                self._number += 1
                measurement.sent_ns[self._number] = now
                measurement.due_ns = now + (FIRST_WAIT_NS << measurement.tries)
                measurement.tries += 1
                effects.append(SendTo(peer, TripRequest(self._number)))
        due_ns = min((measurement.due_ns for measurement in self._measurements.values()), default=None)
        if due_ns is not None and (self._timer_ns is None or due_ns < self._timer_ns):
            self._timer_ns = due_ns
            effects.append(Timer(due_ns, TRIPS))
        return effects

    def measure(self, now: Nanos, peer: PeerId, number: int) -> list[tuple[Nanos, EventMessage]]:
        """Record a peer's answer. Returns its waiting messages, each with the time of its arrival."""
        measurement = self._measurements.get(peer)
        if measurement is None or number not in measurement.sent_ns:
            return []
        put_newest(self._trips, peer, (now - measurement.sent_ns[number], now), MAX_TRIPS)
        return self._pop_waiting(peer)

    def give_up(self, now: Nanos) -> list[tuple[PeerId, Nanos, EventMessage]]:
        """Stop waiting for senders that do not answer, after the timer has expired. Returns their messages, each with
        its sender and the time of its arrival."""
        self._timer_ns = None
        silent = [peer for peer, m in self._measurements.items() if m.tries == TRIES and m.due_ns <= now]
        return [(peer, arrived_ns, message) for peer in silent for arrived_ns, message in self._pop_waiting(peer)]

    def _pop_waiting(self, peer: PeerId) -> list[tuple[Nanos, EventMessage]]:
        waiting = self._measurements.pop(peer).waiting
        self._waiting -= len(waiting)
        return waiting
