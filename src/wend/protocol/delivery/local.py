"""The application's side of a peer: what it publishes, offers and wants, and what it is handed.

An event is handed over once per life of its publisher and of this peer: duplicates end here, and so does what nobody
wants any more; what came too early for its subscribers waits (`returning.py`). A filter that cannot be read is its
author's mistake, counted like any other's.
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
"""What a peer offers that publishes events without a topic and has not said which."""
AUTO_OFFERS = 256
"""Topics that are advertised just because they were published: every change floods all offers of a peer."""
AUTO_OFFERS_CHARS = 64_000
"""The same for how long they are together."""


class LocalDelivery:
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
        """Where persistency is on."""

    def begin(self, now: Nanos) -> None:
        self._began = now
        if self.pending is not None:
            self.pending.begin(now)

    def recall(self, id_: EventId) -> None:
        """A former life was handed it."""
        self._seen.add(id_)

    # ---------------------------------------------------------------- what it says; True if the interest changed

    def number(self, published: Published) -> Event:
        self._sequence += 1
        number = EventId(self._me, self._config.incarnation, self._sequence)
        return Event(number, published.attributes, published.payload, published.headers)

    def announce(self, event: Event, effects: Effects) -> bool:
        """Offer what is published without an offer, as long as there are not too many."""
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

    # ---------------------------------------------------------------- what it is handed

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
            # a former life may have notified it, and nothing remembers: at most once, so not again. Ages
            # are right as far as hosts add what a packet waited in their queues (`messages.older`)
            effects.append(Drop(id_, (self._me,), "published before this incarnation"))
            return
        wanted = self._interest.local(event, self._view)
        if pending is not None:
            if pending.waits(now, event, born, bool(wanted), effects):
                return
            effects.append(Persist(DeliveredRecord(id_)))
        if not wanted:
            effects.append(Notice("no-subscriber", self._me))
        for subscription, deadline in wanted:
            effects.append(Deliver(subscription, event, now - born, deadline))
