"""Local delivery: the application's side of a peer, with its publications, advertisements and subscriptions.

A peer delivers an event once per incarnation of the publisher and of itself. It drops duplicates, and events without a
subscriber. An event that arrives before its subscribers have reconnected waits (`pending.py`). Subscriptions may be
durable (`durable.py`), ask for publisher order (`order.py`), and let events expire. If the application sends an invalid
filter, the peer refuses and counts it, as for any other sender. Blocks of coded events wait until they make an event
(`block_reassembly.py`).
"""

from collections.abc import Callable

import msgspec

from wend.model.errors import FilterError
from wend.model.events import Event, EventId, PeerId, SubscriptionId
from wend.model.publication import Publication
from wend.model.units import FOREVER, Nanos
from wend.protocol.config import DeliverySettings, PeerConfig
from wend.protocol.delivery.automatic_offers import automatic_offer
from wend.protocol.delivery.block_reassembly import BlockReassembly
from wend.protocol.delivery.durable import BacklogEntry, DurableSubscriptions
from wend.protocol.delivery.logged import LoggedSubscriptions
from wend.protocol.delivery.order import HeldDelivery, PublisherOrder, PublisherOrders, is_patient, sort_per_publisher
from wend.protocol.delivery.pending import PendingDeliveries
from wend.protocol.delivery.published_keys import PublishedKeys
from wend.protocol.delivery.queue_groups import QueueGroups
from wend.protocol.delivery.store_and_forward import StoreAndForward
from wend.protocol.link.window import DuplicateFilter
from wend.protocol.notices import MissedCode
from wend.protocol.plugins import Arrived, Notify, SubscriptionQueries, View
from wend.protocol.ports import Deliver, Drop, LocalSubscription, Missed, Notice, Persist, Refuse
from wend.protocol.records import DeliveredRecord, GapRecord, QueuedRecord, Record, SkippedRecord
from wend.protocol.timers import Effects, Timers

Route = Callable[[Nanos, Arrived, Effects], None]
"""Passes an event to the routing."""


class LocalDelivery:
    """Delivers events to local subscriptions, and handles publications, advertisements and subscriptions."""

    __slots__ = (
        "_blocks", "_config", "_doubtful_ns", "_earliest_ns", "_interest", "_last", "_me", "_orders", "_reliability",
        "_remembers", "_route", "_seen", "_sequence", "_special", "_store", "_timers", "_unannounced", "_view",
        "durable", "groups", "keys", "logs", "pending",
    )  # fmt: skip

    def __init__(
        self,
        config: PeerConfig,
        interest: SubscriptionQueries,
        view: View,
        timers: Timers,
        store: StoreAndForward | None,
        route: Route,
        waiting: int = 0,
    ) -> None:
        """`store`: None without persistence. `waiting`: how many events may wait for a link while later ones overtake
        them."""
        self._me = config.peer
        self._config = config
        self._reliability = config.of(DeliverySettings).reliability
        self._interest = interest
        self._view = view
        self._store = store
        self._route = route
        self._remembers = store is not None and config.stores
        self._sequence = 0
        self._earliest_ns: Nanos = -FOREVER if self._remembers else 0
        """The earliest publication that this peer delivers. An earlier incarnation may have delivered older events
        without a record. Ages are right if hosts add the time that a packet waited in their queues
        (`messages.increase_age`)."""
        self._doubtful_ns: Nanos = -FOREVER
        """An earlier incarnation may have delivered events published before this time, and lost the record of it."""
        stored = 0 if store is None else 4 * config.of(DeliverySettings).retry_limit
        self._seen = DuplicateFilter(max(stored, waiting))
        self.groups = QueueGroups(self._me, interest, self)
        self.pending: PendingDeliveries | None = None
        """Set if persistence is on."""
        if store is not None:
            self.pending = PendingDeliveries(
                config, timers, store.queue, self._seen, interest, view, self._hand_to_subscriptions, self.groups
            )
        self.keys = PublishedKeys(persistence=store is not None)
        self.durable = DurableSubscriptions(config, timers)
        self.logs = LoggedSubscriptions()
        self._special: dict[int, LocalSubscription] = {}
        """Subscriptions that are durable, logged, ordered, or let events expire, by number."""
        self._unannounced: frozenset[int] = frozenset()
        self._timers = timers
        self._blocks: BlockReassembly | None = None
        """Set when the first block of a coded event arrives."""
        self._orders = PublisherOrders(self._make_order)
        self._last: dict[PeerId, int] | None = None
        """By peer with ordered subscribers: the sequence number of the last event for it; None before the first one."""

    def begin(self, now: Nanos, *, restarted: bool, lost_records: bool) -> None:
        if lost_records:
            self._doubtful_ns = self.durable.doubtful_ns = now
        if not self._remembers:
            self._earliest_ns = now
        if self.pending is not None:
            self.pending.begin(now, restarted=restarted)

    def restore(self, id_: EventId) -> None:
        """Mark an event that an earlier incarnation delivered as a duplicate."""
        self._seen.add(id_)

    # ---------------------------------------------------------------- from the application; True if interest changed

    @property
    def next_id(self) -> EventId:
        """The id of the next event that is published here."""
        return EventId(self._me, self._config.incarnation, self._sequence + 1)

    def number_event(self, published: Publication) -> Event:
        number = self.next_id
        self._sequence += 1
        direct = published.to is not None
        return Event(
            number, published.attributes, published.payload, published.headers, published.ttl_ns, direct=direct
        )

    def add_predecessors(self, event: Event) -> Event:
        """Add the predecessors of an event, for peers whose subscribers ask for publisher order."""
        ordered = self._interest.ordered(event)
        if not ordered:
            return event
        if self._last is None:
            self._last = {}
        previous = tuple([(peer, self._last.get(peer, 0)) for peer in ordered])
        for peer in ordered:
            self._last[peer] = event.id.sequence
        return msgspec.structs.replace(event, previous=previous)

    def choose_group_peers(self, event: Event, effects: Effects) -> Event:
        """Add a peer to an event for each queue group that wants it."""
        members = self._interest.members(event)
        return self.groups.choose_peers(event, members, effects) if members else event

    def send_to_one_peer(self, now: Nanos, event: Event, born: Nanos, peer: PeerId, effects: Effects) -> None:
        """Send an event of this peer to one other peer only."""
        if self._store is not None:
            self._store.publish_to(event, born, peer, effects)
        self._route(now, Arrived(self._me, event, born, (peer,)), effects)

    def announce(self, event: Event, effects: Effects) -> bool:
        """Advertise the topic of an event that no advertisement covers, within the limits."""
        if self._interest.advertises(event):
            return False
        offer = automatic_offer(event, self._interest.advertised)
        if offer is None:
            effects.append(Notice("not-advertised", self._me))
            return False
        return self.advertise(offer, effects)

    def advertise(self, offer: str, effects: Effects) -> bool:
        try:
            self._interest.advertise(offer)
        except FilterError as error:
            effects.append(Refuse(self._me, "filter-syntax", str(error)))
            return False
        return True

    def subscribe(self, wanted: LocalSubscription, effects: Effects) -> bool:
        if wanted.qos.reliability is None and self._reliability is not None:
            qos = msgspec.structs.replace(wanted.qos, reliability=self._reliability)
            wanted = msgspec.structs.replace(wanted, qos=qos)
        try:
            self._interest.subscribe(wanted, self._me)
        except FilterError as error:
            effects.append(Refuse(self._me, "filter-syntax", str(error)))
            return False
        self.logs.subscribe(wanted)
        if wanted.durable is not None:
            self.durable.subscribe(wanted, effects)
        if wanted.durable is not None or wanted.qos.order or wanted.qos.expire or wanted.logged:
            self._special[wanted.number] = wanted
        else:
            self._special.pop(wanted.number, None)
        self.groups.subscribe(wanted.number, wanted.qos.group)
        if not wanted.announced:
            self._unannounced |= {wanted.number}
        return wanted.announced

    def unsubscribe(self, number: int, effects: Effects) -> bool:
        self._interest.unsubscribe(number)
        self.groups.unsubscribe(number)
        if self._special.pop(number, None) is not None:
            self.durable.unsubscribe(number, effects)
        self.logs.unsubscribe(number)
        if number in self._unannounced:
            self._unannounced -= {number}
            return False
        return True

    def withdraw(self, *, but_durable: bool) -> None:
        """End all subscriptions, except durable ones and logs if `but_durable`."""
        self._interest.withdraw()
        if but_durable:
            for wanted in (*self.durable.subscriptions(), *self.logs.subscriptions()):
                self._interest.subscribe(wanted, self._me)

    # ---------------------------------------------------------------- to the application

    @property
    def incomplete_ids(self) -> tuple[EventId, ...]:
        """Coded events of which blocks are missing."""
        return () if self._blocks is None else self._blocks.ids

    def deliver(self, now: Nanos, event: Event, born: Nanos, effects: Effects) -> None:
        if event.block is not None:
            self._deliver_block(now, event, born, effects)
            return
        if not self._seen.add(event.id):
            self._report_repetition(event.id, effects)
            return
        is_plain = not event.headers and event.ttl_ns is None and born >= self._earliest_ns
        if not is_plain and self._is_refused(now, event, born, effects):
            return
        pending = self.pending
        wanted = self._interest.local(event, self._view)
        if event.groups and self.groups.send_to_other_members(now, event, born, wanted, effects):
            self._mark_delivered(event, effects)
            return
        if pending is not None:
            at_once = pending.hold_if_early(now, event, born, wanted, self.logs.union(self.durable.backlogs), effects)
            if at_once is None:
                return
            wanted = at_once
        if self._special or event.previous or not wanted:
            self._hand_to_subscriptions(now, event, born, wanted, effects)
            return
        self._mark_delivered(event, effects)  # most events take this shorter path
        for subscription, deadline in wanted:
            effects.append(Deliver(subscription, event, now - born, deadline, 0, born < self._doubtful_ns))

    def _deliver_block(self, now: Nanos, block: Event, born: Nanos, effects: Effects) -> None:
        """Deliver the event that a block completes, if any."""
        if self._blocks is None:
            self._blocks = BlockReassembly(self._me, self._timers, self._seen)
        event = self._blocks.add(now, block, effects)
        if event is not None:
            self.deliver(now, event, born, effects)

    def _report_repetition(self, id_: EventId, effects: Effects) -> None:
        too_old = Drop(id_, (self._me,), "beyond-duplicate-filter")
        effects.append(too_old if self._seen.is_too_old(id_) else Notice("duplicate", self._me))

    def _is_refused(self, now: Nanos, event: Event, born: Nanos, effects: Effects) -> bool:
        """Whether this incarnation does not deliver an event that is new to it, and report why."""
        if event.headers and not self.keys.add(now, event, born, effects):
            effects.append(Notice("repeated-key", event.id.publisher))
            self._mark_delivered(event, effects)
            self._release_in_order(now, event, [], effects)
            return True
        if born < self._earliest_ns:
            effects.append(Drop(event.id, (self._me,), "before-incarnation"))
            return True
        if event.ttl_ns is not None and event.is_expired(now - born):
            self._hand_to_subscriptions(now, event, born, (), effects)
            return True
        return False

    def _mark_delivered(self, event: Event, effects: Effects) -> None:
        """Record the delivery of an event, if persistence is on."""
        if self.pending is not None:
            effects.append(Persist(DeliveredRecord(event.id)))

    def _hand_to_subscriptions(self, now: Nanos, event: Event, born: Nanos, wanted: Notify, effects: Effects) -> None:
        """Deliver an event to local subscriptions, unless it expired while it waited for them."""
        expired = event.ttl_ns is not None and event.is_expired(now - born)
        if expired:
            effects.append(Drop(event.id, (self._me,), "expired"))
            wanted = ()
        later: list[HeldDelivery] = []
        wanted, is_logged = self.logs.deliver(now, event, born, wanted, effects)
        if self._special:
            wanted, later = self._split_by_wait(now, event, born, wanted, effects)
        self._mark_delivered(event, effects)  # after the record of a backlog: a crash in between loses nothing
        if not wanted and not later and not expired and not is_logged:
            is_wider = self._interest.widened(event)
            effects.append(Notice("false-positive" if is_wider else "no-subscriber", self._me))
        for subscription, deadline in wanted:
            effects.append(Deliver(subscription, event, now - born, deadline, 0, born < self._doubtful_ns))
        self._release_in_order(now, event, later, effects)

    def _release_in_order(self, now: Nanos, event: Event, later: list[HeldDelivery], effects: Effects) -> None:
        """Release deliveries of an event: unordered ones at once, ordered ones after their predecessors."""
        ordered = [held for held in later if self._special[held.subscription.number].qos.order]
        self._orders.on_event(now, event, ordered, effects)
        for held in later:
            if not self._special[held.subscription.number].qos.order:
                self._release_delivery(now, held, effects)

    def _split_by_wait(
        self, now: Nanos, event: Event, born: Nanos, wanted: Notify, effects: Effects
    ) -> tuple[Notify, list[HeldDelivery]]:
        """Split subscriptions into those that get the event at once and those that may have to wait. Add the event to
        the backlogs of the latter if they are durable."""
        at_once, durable, later = [], [], []
        for subscription, deadline in wanted:
            special = self._special.get(subscription.number)
            if special is None:
                at_once.append((subscription, deadline))
            elif special.qos.expires(deadline, now - born):
                effects.append(Drop(event.id, (self._me,), "expired"))
                self._count_missed(subscription, "expired", effects)
            elif special.qos.order and self._orders.is_overtaken(event, special):
                effects.append(Drop(event.id, (self._me,), "overtaken"))
                if not self._orders.has_counted_skip(event.id, special):
                    self._count_missed(subscription, "skipped", effects)
            elif special.durable is not None:
                durable.append((subscription, deadline))
            elif special.qos.order:
                later.append(HeldDelivery(event, born, subscription, deadline))
            else:
                at_once.append((subscription, deadline))
        if durable:
            entries = self.durable.add_to_backlogs(now, event, born, durable, effects)
            for (subscription, deadline), entry in zip(durable, entries, strict=True):
                patient = is_patient(self._special[subscription.number])
                later.append(HeldDelivery(event, born, subscription, deadline, entry, patient))
        return tuple(at_once), later

    def deliver_after_wait(self, now: Nanos, effect: Deliver, effects: Effects) -> None:
        """Deliver an event that has waited in the driver, unless it has expired meanwhile."""
        number, position, age_ns = effect.subscription.number, effect.position, effect.age_ns
        special = self._special.get(number)
        if position and not self.durable.is_in_flight(number, position):
            return  # the client has left, and the event waits for the next one
        if not effect.event.is_expired(age_ns) and not (special and special.qos.expires(effect.deadline_ns, age_ns)):
            effects.append(effect)
        elif position:
            self.durable.expire(now, number, position, effects)
        else:
            effects.append(Drop(effect.event.id, (self._me,), "expired"))
            effects.append(Missed(effect.subscription, {"expired": 1}))

    def _make_order(self, is_patient: bool) -> PublisherOrder:
        wait_ns = self._config.of(DeliverySettings).order_wait_ns
        acts = (self._has_arrived, self._release_delivery, self._on_skipped, self._on_overtaken)
        return PublisherOrder(self._me, wait_ns, self._timers, *acts, is_patient=is_patient)

    def _has_arrived(self, id_: EventId) -> bool:
        return id_ in self._seen and not (self.pending is not None and self.pending.holds(id_))

    def _release_delivery(self, now: Nanos, held: HeldDelivery, effects: Effects) -> None:
        subscription, event, age_ns = held.subscription, held.event, now - held.born_ns
        if held.entry is not None:
            self.durable.release(now, subscription.number, held.entry, effects)
            return
        special = self._special.get(subscription.number)
        if special is None:  # the subscription ended while the event waited
            return
        if event.is_expired(age_ns) or special.qos.expires(held.deadline_ns, age_ns):
            effects.append(Drop(event.id, (self._me,), "expired"))
            self._count_missed(subscription, "expired", effects)
        else:
            is_doubtful = held.born_ns < self._doubtful_ns
            effects.append(Deliver(subscription, event, age_ns, held.deadline_ns, 0, is_doubtful))

    def _on_skipped(self, now: Nanos, held: HeldDelivery, effects: Effects) -> None:
        if held.subscription.number in self._special:
            self._count_missed(held.subscription, "skipped", effects)

    def _on_overtaken(self, now: Nanos, held: HeldDelivery, effects: Effects) -> None:
        effects.append(Drop(held.event.id, (self._me,), "overtaken"))
        if held.entry is not None:
            self.durable.remove_skipped(held.subscription.number, held.entry, effects)
        elif held.subscription.number in self._special:
            effects.append(Missed(held.subscription, {"skipped": 1}))

    def _count_missed(self, subscription: SubscriptionId, reason: MissedCode, effects: Effects) -> None:
        if not self.durable.count_missed(subscription, reason, effects):
            effects.append(Missed(subscription, {reason: 1}))

    # ---------------------------------------------------------------- after a restart

    def restore_durable(self, now: Nanos, records: list[Record], effects: Effects) -> None:
        """Restore durable subscriptions with their backlogs, and announce them."""
        gaps = [record for record in records if type(record) is GapRecord]
        for record in records:
            self.durable.restore(now, record)
            if type(record) is QueuedRecord:
                self._seen.add(record.event.id)
            elif type(record) is SkippedRecord:
                self._orders.restore(record)
        for wanted in self.durable.subscriptions():
            self._interest.subscribe(wanted, self._me)
            self._special[wanted.number] = wanted
        waiting: dict[EventId, list[HeldDelivery]] = {}
        for number, entry in self.durable.finish_restore(now, effects):
            subscription, patient = SubscriptionId(self._me, number), is_patient(self._special[number])
            held = HeldDelivery(entry.event, entry.born_ns, subscription, entry.deadline_ns, entry, patient)
            waiting.setdefault(entry.event.id, []).append(held)
        for gap in gaps:
            if gap.number in self._special:
                waiting.setdefault(gap.id, []).append(self._make_placeholder(now, gap))
        for id_ in sort_per_publisher(waiting):
            self._release_in_order(now, waiting[id_][0].event, waiting[id_], effects)

    def _make_placeholder(self, now: Nanos, gap: GapRecord) -> HeldDelivery:
        """Make a placeholder for an event that left its backlog, so that later ones still wait for its predecessor."""
        event = Event(gap.id, {}, previous=((self._me, gap.previous),))
        entry = BacklogEntry(event, now, None, 0)
        patient = is_patient(self._special[gap.number])
        return HeldDelivery(event, now, SubscriptionId(self._me, gap.number), None, entry, patient)
