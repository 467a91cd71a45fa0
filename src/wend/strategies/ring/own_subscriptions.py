"""The subscriptions of a peer on a ring: it knows its own, and no other peer's."""

from wend.model.events import Event, EventId, PeerId, SubscriptionId
from wend.protocol.plugins import LocalSubscription, Notify, View
from wend.strategies.subscriptions.table import SubscriptionTable, deadline_of


class OwnSubscriptions(SubscriptionTable):
    """This peer's subscriptions, and which of them changed since somebody asked."""

    def __init__(self, me: PeerId) -> None:
        super().__init__(me, asks_publishers=False)
        self._peer = me
        self._touched: dict[int, None] = {}
        """The subscriptions that were added, replaced or ended since."""
        self._last: tuple[EventId | None, tuple[int, ...]] = (None, ())
        """The event that was matched last, and the subscriptions that want it."""

    def targets(self, event: Event) -> tuple[PeerId, ...]:
        """This peer, if it wants the event."""
        return (self._peer,) if self.matching(event) else ()

    def local(self, event: Event, view: View) -> Notify:
        publisher, me, graph, qos = event.id[0], self._peer, view.graph, self.own.qos
        # there are no queue groups here whose members pass events on
        numbers = self.matching(event) if event.origin is None else ()
        return tuple([(SubscriptionId(me, n), deadline_of(qos(n), publisher, me, graph)) for n in numbers])

    def subscribe(self, wanted: LocalSubscription, me: PeerId) -> None:
        super().subscribe(wanted, me)
        self._touched[wanted.number] = None

    def unsubscribe(self, number: int) -> None:
        super().unsubscribe(number)
        self._touched[number] = None

    def withdraw(self) -> None:
        self._touched.update(dict.fromkeys(subscription.id.number for subscription in self.own))
        super().withdraw()

    def take_touched(self) -> list[int]:
        """The numbers of the subscriptions that changed since the last call, sorted."""
        self._last = (None, ())
        touched, self._touched = sorted(self._touched), {}
        return touched

    def matching(self, event: Event) -> tuple[int, ...]:
        """The subscriptions that want an event. A peer asks twice, and hardly ever again: a copy of an event comes
        after many others, so only the last answer is remembered."""
        id_, numbers = self._last
        if id_ != event.id:
            numbers = self.own.match(event.attributes)
            self._last = (event.id, numbers)
        return numbers
