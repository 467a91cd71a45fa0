"""The logs of a peer, as its delivery sees them: subscriptions whose events the driver stores.

A log gets an event before the record of its delivery, so a crash in between loses nothing: the event comes again, and
the log knows it. Like a durable subscription, a log is there from the start of the peer and waits for no client.
"""

from collections.abc import Container

from wend.model.events import Event, SubscriptionId
from wend.model.units import Nanos
from wend.protocol.delivery.durable import Backlog
from wend.protocol.plugins import Notify
from wend.protocol.ports import Deliver, LocalSubscription
from wend.protocol.timers import Effects


class LoggedSubscriptions:
    """The subscriptions of this peer's logs."""

    __slots__ = ("_by_number",)

    def __init__(self) -> None:
        self._by_number: dict[int, LocalSubscription] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def subscribe(self, wanted: LocalSubscription) -> None:
        """Add a subscription, if it is one of a log."""
        if wanted.logged:
            self._by_number[wanted.number] = wanted

    def unsubscribe(self, number: int) -> None:
        self._by_number.pop(number, None)

    def subscriptions(self) -> tuple[LocalSubscription, ...]:
        return tuple(self._by_number.values())

    def union(self, durable: dict[int, Backlog]) -> Container[int]:
        """The numbers of the subscriptions that never wait for clients: these, and durable ones."""
        if not self._by_number:
            return durable
        return {*durable, *self._by_number}

    def deliver(self, now: Nanos, event: Event, born: Nanos, wanted: Notify, effects: Effects) -> tuple[Notify, bool]:
        """Deliver an event to the logs among these subscriptions. Return the others, and whether there are logs."""
        if not self._by_number:
            return wanted, False
        others: list[tuple[SubscriptionId, Nanos | None]] = []
        for subscription, deadline in wanted:
            if subscription.number in self._by_number:
                effects.append(Deliver(subscription, event, now - born, deadline))
            else:
                others.append((subscription, deadline))
        return tuple(others), len(others) < len(wanted)
