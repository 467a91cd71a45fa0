"""Publisher order: subscriptions that ask for it get the events of each publisher in the order of their publication.

An event names, for each peer with ordered subscribers, the sequence number of the previous event for that peer
(`Event.previous`). Sequence numbers alone are not enough, because a peer gets only the events that its subscribers
want. An event whose predecessor is missing is held. If the predecessor does not arrive in time, ordered subscriptions
skip it, and do not get it later either. Other subscriptions of the same event do not wait.

Durable subscriptions are patient: other peers may keep the predecessor until a route returns. They wait longer, and as
long as earlier events of the publisher arrive. They do not wait longer if the publisher sets a ttl, because the
predecessor may have expired, or if late events are useless to them.

Events that were published before the publisher's peer knew the subscription name no predecessor. They are not held, and
are dropped if the subscription already got a later one. If the interest does not know the subscribers of an event (on a
DHT), no event names a predecessor, and all are delivered on arrival.

The order holds within an incarnation of the publisher's peer. It survives a restart of this peer: held events are held
again, even if one had to leave a full backlog meanwhile, and a record names the events that were skipped.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from wend.model.events import Event, EventId, PeerId, SubscriptionId
from wend.model.units import Nanos
from wend.protocol.delivery.durable import BacklogEntry
from wend.protocol.ports import LocalSubscription, Notice, Persist
from wend.protocol.records import SkippedRecord
from wend.protocol.timers import Effects, Timers

MAX_HELD = 10_000
"""The most events that wait for predecessors. Beyond it, the one that has waited longest is released."""
MAX_HELD_DURABLE = 100_000
"""The same for durable subscriptions."""
PATIENCE = 12
"""How many times longer a durable subscription waits."""
MAX_COUNTED = 4096
"""The most missing events of a publisher's incarnation that are remembered as counted."""
MAX_STREAMS = 4096
"""The least number of publishers' incarnations whose order is remembered."""


class HeldDelivery(NamedTuple):
    """An event for one subscription that may have to wait for earlier events, or for its client."""

    event: Event
    born_ns: Nanos
    subscription: SubscriptionId
    deadline_ns: Nanos | None
    entry: BacklogEntry | None = None
    """The entry in the backlog of a durable subscription."""
    is_patient: bool = False


Release = Callable[[Nanos, HeldDelivery, Effects], None]


class _Stream:
    """The events of one incarnation of a publisher."""

    __slots__ = ("counted", "held", "last", "moved_ns", "reached", "sets_ttl")

    def __init__(self) -> None:
        self.last = -1
        """The sequence number of the last event released."""
        self.moved_ns: Nanos = 0
        """When an event last arrived after its predecessor."""
        self.sets_ttl = False
        """Whether an event had a ttl."""
        self.counted: dict[tuple[int, int], None] = {}
        """The missing events that were counted, each as its sequence number and the number of the subscription."""
        self.held: dict[int, tuple[int, list[HeldDelivery]]] = {}
        """By sequence number: the number of the predecessor, and the waiting deliveries."""
        self.reached: dict[int, int] = {}
        """By subscription: the sequence number of the last event that it got."""


class PublisherOrder:
    """Holds events until their predecessors have arrived, at most for `wait_ns`.

    Those for durable subscriptions wait `PATIENCE` times as long after the last predecessor has arrived."""

    __slots__ = (
        "_came", "_held", "_is_patient", "_me", "_overtaken", "_release", "_skipped", "_streams", "_timers", "_wait_ns",
    )  # fmt: skip

    def __init__(
        self,
        me: PeerId,
        wait_ns: Nanos,
        timers: Timers,
        came: Callable[[EventId], bool],
        release: Release,
        skipped: Release,
        overtaken: Release,
        *,
        is_patient: bool,
    ) -> None:
        """`came` returns whether an event was delivered to subscriptions, now or before a restart. `skipped` is called
        just before a delivery is released without its predecessor; `overtaken` with a delivery that is too late.
        `is_patient`: whether the subscriptions are durable, and want late events, too."""
        self._me = me
        self._wait_ns = wait_ns
        self._timers = timers
        self._came = came
        self._release = release
        self._skipped = skipped
        self._overtaken = overtaken
        self._is_patient = is_patient
        self._streams: dict[tuple[PeerId, int], _Stream] = {}
        self._held: dict[EventId, None] = {}

    def __len__(self) -> int:
        """How many events are held."""
        return len(self._held)

    def is_overtaken(self, event: Event) -> bool:
        """Whether ordered subscriptions skipped this event, which has just arrived."""
        stream = self._streams.get(event.id[:2])
        return stream is not None and event.id.sequence <= stream.last and event.previous_at(self._me) is not None

    def restore(self, id_: EventId) -> None:
        """Restore that an earlier incarnation skipped events up to this one."""
        stream = self._get_or_make_stream(id_[:2])
        stream.last = max(stream.last, id_.sequence)

    def has_counted_skip(self, id_: EventId, number: int) -> bool:
        """Whether a subscription has counted an event as skipped when a later one was released."""
        stream = self._streams.get(id_[:2])
        return stream is not None and (id_.sequence, number) in stream.counted

    def on_event(self, now: Nanos, event: Event, held: list[HeldDelivery], effects: Effects) -> None:
        """Release the deliveries of an event now or later. The caller first checks `is_overtaken`."""
        previous = event.previous_at(self._me)
        publisher, incarnation, sequence = event.id
        stream = self._get_or_make_stream((publisher, incarnation))
        stream.sets_ttl = stream.sets_ttl or event.ttl_ns is not None
        if previous is None:  # the publisher's peer did not know that a subscription here wants the order
            self._release_all(now, stream, held, effects)
            return
        if self._has_predecessor(event.id, previous, stream):
            stream.last = max(stream.last, sequence)
            stream.moved_ns = now
            self._release_all(now, stream, held, effects)
            self._release_followers(now, event.id, stream, effects)
            return
        if sequence in stream.held:  # it reaches other subscriptions, which have reconnected
            stream.held[sequence][1].extend(held)
            return
        stream.held[sequence] = (previous, held)
        self._held[event.id] = None
        self._timers.set_timer(now + self._longest_wait(stream), self._end_wait, event.id)
        if len(self._held) > (MAX_HELD_DURABLE if self._is_patient else MAX_HELD):
            self._skip_to(now, next(iter(self._held)), effects)

    def _has_predecessor(self, id_: EventId, previous: int, stream: _Stream) -> bool:
        """Whether the predecessor was released, in this stream or before it was known."""
        if previous <= max(stream.last, 0):
            return True
        return previous not in stream.held and self._came(EventId(id_.publisher, id_.incarnation, previous))

    def _release_followers(self, now: Nanos, id_: EventId, stream: _Stream, effects: Effects) -> None:
        """Release held events whose predecessors have been released."""
        while stream.held:
            sequence = min(stream.held)
            previous, held = stream.held[sequence]
            if previous > stream.last:
                return
            del stream.held[sequence]
            self._held.pop(EventId(id_.publisher, id_.incarnation, sequence), None)
            stream.last = max(stream.last, sequence)
            self._release_all(now, stream, held, effects)

    def _longest_wait(self, stream: _Stream) -> Nanos:
        return self._wait_ns * (PATIENCE if self._is_patient and not stream.sets_ttl else 1)

    def _end_wait(self, now: Nanos, id_: EventId, effects: Effects) -> None:
        """Release an event that has waited long enough. A patient one waits on while earlier events arrive."""
        stream = self._streams.get(id_[:2])
        if self._is_patient and stream is not None and id_.sequence in stream.held:
            until = stream.moved_ns + self._longest_wait(stream)
            if now < until and not stream.sets_ttl:
                self._timers.set_timer(until, self._end_wait, id_)
                return
        self._skip_to(now, id_, effects)

    def _skip_to(self, now: Nanos, id_: EventId, effects: Effects) -> None:
        """Release an event, and the held ones before it, without the missing ones."""
        stream = self._streams.get(id_[:2])
        if stream is None or id_.sequence not in stream.held:
            return
        for sequence in sorted(s for s in stream.held if s <= id_.sequence):
            previous, held = stream.held.pop(sequence)
            self._held.pop(EventId(id_.publisher, id_.incarnation, sequence), None)
            if previous > stream.last:
                effects.append(Notice("order-skipped", id_.publisher))
                if any(one.entry is not None for one in held):
                    skipped = EventId(id_.publisher, id_.incarnation, sequence)
                    effects.append(Persist(SkippedRecord(skipped, self._is_patient)))
                for one in held:
                    stream.counted[previous, one.subscription.number] = None
                    self._skipped(now, one, effects)
                while len(stream.counted) > MAX_COUNTED:
                    del stream.counted[next(iter(stream.counted))]
            stream.last = max(stream.last, sequence)
            self._release_all(now, stream, held, effects)
        self._release_followers(now, id_, stream, effects)

    def _release_all(self, now: Nanos, stream: _Stream, held: list[HeldDelivery], effects: Effects) -> None:
        reached = stream.reached
        for one in held:
            number, sequence = one.subscription.number, one.event.id.sequence
            last = reached.get(number, 0)
            if sequence < last and stream.last >= 0:
                self._overtaken(now, one, effects)
            else:
                reached[number] = max(last, sequence)
                self._release(now, one, effects)

    def _get_or_make_stream(self, key: tuple[PeerId, int]) -> _Stream:
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= 2 * MAX_STREAMS:
                for old in [k for k, s in self._streams.items() if not s.held][:MAX_STREAMS]:
                    del self._streams[old]
            stream = self._streams[key] = _Stream()
        return stream


class PublisherOrders:
    """The publisher order of the patient subscriptions, and that of the others, once a subscription asks for it."""

    __slots__ = ("_make", "_orders")

    def __init__(self, make: Callable[[bool], PublisherOrder]) -> None:
        """`make` makes the order of the patient subscriptions, or of the others."""
        self._make = make
        self._orders: dict[bool, PublisherOrder] = {}

    def is_overtaken(self, event: Event, wanted: LocalSubscription) -> bool:
        """Whether a subscription skipped this event, which has just arrived."""
        return self._get_or_make_order(is_patient(wanted)).is_overtaken(event)

    def has_counted_skip(self, id_: EventId, wanted: LocalSubscription) -> bool:
        """Whether a subscription has counted an event as skipped when a later one was released."""
        return self._get_or_make_order(is_patient(wanted)).has_counted_skip(id_, wanted.number)

    def restore(self, record: SkippedRecord) -> None:
        self._get_or_make_order(record.is_patient).restore(record.id)

    def on_event(self, now: Nanos, event: Event, held: list[HeldDelivery], effects: Effects) -> None:
        """Release the deliveries of an event now or later. Other events may wait for it, even if there are none."""
        kinds = {one.is_patient for one in held}
        if event.previous:
            kinds.update(self._orders)
        for kind in sorted(kinds):
            self._get_or_make_order(kind).on_event(now, event, [one for one in held if one.is_patient is kind], effects)

    def _get_or_make_order(self, kind: bool) -> PublisherOrder:
        order = self._orders.get(kind)
        if order is None:
            order = self._orders[kind] = self._make(kind)
        return order


def is_patient(wanted: LocalSubscription) -> bool:
    """Whether an ordered subscription would rather wait for a missing event than skip it."""
    return wanted.durable is not None and not wanted.qos.expire


def sort_per_publisher(ids: Iterable[EventId]) -> list[EventId]:
    """Sort the events of each publisher by publication, within the places that its events have in the list."""
    places = list(ids)
    of: dict[tuple[PeerId, int], list[EventId]] = {}
    for id_ in places:
        of.setdefault(id_[:2], []).append(id_)
    ordered = {who: iter(sorted(theirs)) for who, theirs in of.items()}
    return [next(ordered[id_[:2]]) for id_ in places]
