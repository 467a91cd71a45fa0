"""Local delivery: the application's side of a peer, with its publications, advertisements and subscriptions.

A peer delivers an event once per incarnation of the publisher and of itself. It drops duplicates, and events without a
subscriber. An event that arrives before its subscribers have reconnected waits (`pending.py`). If the application
sends a filter that does not parse, the peer refuses it and counts it, as for any other sender.
"""

import msgspec

from wend.matching.filters import topic_filter
from wend.model.errors import FilterError
from wend.model.events import Event, EventId
from wend.model.units import Nanos
from wend.protocol.config import DeliverySettings, PeerConfig
from wend.protocol.delivery.pending import PendingDeliveries
from wend.protocol.delivery.retry_queue import RetryQueue
from wend.protocol.link.window import DuplicateFilter
from wend.protocol.notices import ComposedReason
from wend.protocol.plugins import Interest, View
from wend.protocol.ports import Deliver, Drop, LocalSubscription, Notice, Persist, Published, Refuse
from wend.protocol.records import DeliveredRecord
from wend.protocol.timers import Effects, Timers

ANYTHING = "true"
"""The advertisement of a peer that publishes events without a topic and has advertised none."""
AUTO_OFFERS = 256
"""At most so many topics are advertised automatically: every change floods all advertisements of a peer."""
AUTO_OFFERS_CHARS = 64_000
"""The same limit for their total length."""


class LocalDelivery:
    """Delivers events to local subscriptions, and handles publications, advertisements and subscriptions."""

    def __init__(
        self,
        config: PeerConfig,
        interest: Interest,
        view: View,
        timers: Timers,
        queue: RetryQueue | None,
    ) -> None:
        self._me = config.peer
        self._config = config
        self._reliability = config.of(DeliverySettings).reliability
        self._interest = interest
        self._view = view
        self._remembers = queue is not None and config.stores
        self._sequence = 0
        self._began: Nanos = 0
        self._seen = DuplicateFilter(4 * config.of(DeliverySettings).retry_limit if queue is not None else 0)
        self.pending = None if queue is None else PendingDeliveries(config, timers, queue, self._seen, interest, view)
        """Set where persistency is on."""

    def begin(self, now: Nanos) -> None:
        self._began = now
        if self.pending is not None:
            self.pending.begin(now)

    def recall(self, id_: EventId) -> None:
        """Mark an event that an earlier incarnation delivered as a duplicate."""
        self._seen.add(id_)

    # ---------------------------------------------------------------- from the application; True if interest changed

    def number(self, published: Published) -> Event:
        self._sequence += 1
        number = EventId(self._me, self._config.incarnation, self._sequence)
        return Event(number, published.attributes, published.payload, published.headers)

    def announce(self, event: Event, effects: Effects) -> bool:
        """Advertise the topic of an event that no advertisement covers, up to the limits."""
        if self._interest.advertises(event):
            return False
        topic = event.attributes.get("topic")
        offer = topic_filter(topic) if isinstance(topic, str) else ANYTHING
        count, chars = self._interest.advertised
        if count >= AUTO_OFFERS or chars + len(offer) > AUTO_OFFERS_CHARS:
            effects.append(Notice("not-advertised", self._me))
            return False
        return self.advertise(offer, effects)

    def advertise(self, offer: str, effects: Effects) -> bool:
        try:
            self._interest.advertise(offer)
        except FilterError as error:
            effects.append(Refuse(self._me, ComposedReason(str(error))))
            return False
        return True

    def subscribe(self, wanted: LocalSubscription, effects: Effects) -> bool:
        if wanted.qos.reliability is None and self._reliability is not None:
            qos = msgspec.structs.replace(wanted.qos, reliability=self._reliability)
            wanted = LocalSubscription(wanted.number, wanted.filter, qos)
        try:
            self._interest.subscribe(wanted, self._me)
        except FilterError as error:
            effects.append(Refuse(self._me, ComposedReason(str(error))))
            return False
        return True

    # ---------------------------------------------------------------- to the application

    def deliver(self, now: Nanos, event: Event, born: Nanos, effects: Effects) -> None:
        id_ = event.id
        if not self._seen.add(id_):
            if self._seen.too_old(id_):
                effects.append(Drop(id_, (self._me,), "older than the duplicate filter"))
            else:
                effects.append(Notice("duplicate", self._me))
            return
        pending = self.pending
        if born < self._began and not self._remembers:
            # an earlier incarnation may have delivered it, and no record says so: deliver at most once, so drop it.
            # The age is right if hosts add the time that a packet waited in their queues (`messages.older`)
            effects.append(Drop(id_, (self._me,), "published before this incarnation"))
            return
        wanted = self._interest.local(event, self._view)
        if pending is not None:
            if pending.waits(now, event, born, bool(wanted), effects):
                return
            effects.append(Persist(DeliveredRecord(id_)))
        if not wanted:
            unwanted = self._interest.widened(event)
            effects.append(Notice("false-positive" if unwanted else "no-subscriber", self._me))
        for subscription, deadline in wanted:
            effects.append(Deliver(subscription, event, now - born, deadline))
