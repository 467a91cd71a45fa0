"""The age of events in `rendezvous`: it must be right where an event may expire.

An event that comes from a peer at an unknown distance waits until the round trip is measured (`measured_trips.py`).
"""

from typing import Any

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import PeerConfig, SendTo, Timer
from wend.strategies.rendezvous.entries import RegionEntries
from wend.strategies.rendezvous.measured_trips import MeasuredTrips
from wend.strategies.rendezvous.messages import AnswerTrip, AskTrip, MatchEvent, NotifyPeer

_TRIPS = "trips"


class EventAges(RegionEntries):
    """Knows when an event that has come was published. A subclass says what to do with it."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._measured = MeasuredTrips()
        self._asks_at_ns: Nanos | None = None
        """When the next timer for unanswered questions comes."""

    def _event_came(self, now: Nanos, sender: PeerId, message: MatchEvent | NotifyPeer, born_ns: Nanos) -> None:
        """An event has come that was published at this time."""
        raise NotImplementedError

    def _event_heard(self, now: Nanos, sender: PeerId, message: MatchEvent | NotifyPeer) -> None:
        trip = self._measured.trip_ns(now, sender)
        if self.ring.has_measured(sender):
            self._event_came(now, sender, message, self.born_ns_of(now, sender, message.age_ns))
        elif trip is not None:
            self._event_came(now, sender, message, now - max(0, message.age_ns) - trip // 2)
        elif self._may_expire(message) and self._measured.hold(now, sender, message):
            self._ask_trips(now)
        else:
            self._event_came(now, sender, message, self.born_ns_of(now, sender, message.age_ns))

    def _may_expire(self, message: MatchEvent | NotifyPeer) -> bool:
        """Whether the age must be right: somebody may drop the event for it. The owner of a region does not know what
        subscribers ask for. It is patient with events that are stored."""
        event = message.event
        if event.ttl_ns is not None:
            return True
        if isinstance(message, MatchEvent):
            return message.stored
        return any(self.table.own.qos(number).expire for number in self.table.matching(event))

    def _ask_trips(self, now: Nanos) -> None:
        for peer, number in self._measured.questions(now):
            self.out.append(SendTo(peer, AskTrip(number)))
        due_ns = self._measured.next_ns()
        if due_ns is not None and (self._asks_at_ns is None or due_ns < self._asks_at_ns):
            self._asks_at_ns = due_ns
            self.out.append(Timer(due_ns, _TRIPS))

    def _trip_measured(self, now: Nanos, sender: PeerId, number: int) -> None:
        for arrived_ns, message in self._measured.answered(now, sender, number):
            trip = self._measured.trip_ns(now, sender) or 0
            self._event_came(now, sender, message, arrived_ns - max(0, message.age_ns) - trip // 2)

    def on_due(self, now: Nanos, name: str) -> None:
        super().on_due(now, name)
        if name == _TRIPS:
            self._asks_at_ns = None
            for sender, arrived_ns, message in self._measured.given_up(now):
                self._event_came(now, sender, message, self.born_ns_of(arrived_ns, sender, message.age_ns))
            self._ask_trips(now)

    def on_heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        match message:
            case AskTrip(number):
                self.out.append(SendTo(sender, AnswerTrip(number)))
            case AnswerTrip(number):
                self._trip_measured(now, sender, number)
            case _:
                super().on_heard(now, sender, message)
