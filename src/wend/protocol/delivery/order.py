"""Publisher order: subscriptions that ask for it get the events of each publisher in the order of their publication.

An event names, for each peer with ordered subscribers, the sequence number of the previous event for that peer
(`Event.previous`). Sequence numbers alone are not enough, because a peer gets only the events that its subscribers
want. An event whose predecessor is missing is held. If the predecessor does not arrive in time, ordered subscriptions
skip it, and do not get it later either. Other subscriptions of the same event do not wait.

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
from wend.protocol.ports import Notice, Persist
from wend.protocol.records import SkippedRecord
from wend.protocol.timers import Effects, Timers

MAX_HELD = 10_000
"""The most events that wait for predecessors. Beyond it, the one that has waited longest is released."""
MAX_STREAMS = 4096
"""The least number of publishers' incarnations whose order is remembered."""


class HeldDelivery(NamedTuple):
    """An event for one subscription that may have to wait for earlier events, or for its client."""

    event: Event
    born_ns: Nanos
    subscription: SubscriptionId
    deadline_ns: Nanos | None
    entry: BacklogEntry | None
    """The entry in the backlog of a durable subscription."""


Release = Callable[[Nanos, HeldDelivery, Effects], None]


class _Stream:
    """The events of one incarnation of a publisher."""

    __slots__ = ("held", "last", "reached")

    def __init__(self) -> None:
        self.last = -1
        """The sequence number of the last event released."""
        self.held: dict[int, tuple[int, list[HeldDelivery]]] = {}
        """By sequence number: the number of the predecessor, and the waiting deliveries."""
        self.reached: dict[int, int] = {}
        """By subscription: the sequence number of the last event that it got."""


class PublisherOrder:
    """Holds events until their predecessors have arrived, at most for `wait_ns`."""

    __slots__ = ("_came", "_held", "_me", "_overtaken", "_release", "_skipped", "_streams", "_timers", "_wait_ns")

    def __init__(
        self,
        me: PeerId,
        wait_ns: Nanos,
        timers: Timers,
        came: Callable[[EventId], bool],
        release: Release,
        skipped: Release,
        overtaken: Release,
    ) -> None:
        """`came` returns whether an event was delivered to subscriptions, now or before a restart. `skipped` is called
        just before a delivery is released without its predecessor; `overtaken` with a delivery that is too late."""
        self._me = me
        self._wait_ns = wait_ns
        self._timers = timers
        self._came = came
        self._release = release
        self._skipped = skipped
        self._overtaken = overtaken
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
        stream = self._stream(id_[:2])
        stream.last = max(stream.last, id_.sequence)

    def on_event(self, now: Nanos, event: Event, held: list[HeldDelivery], effects: Effects) -> None:
        """Release the deliveries of an event now or later. The caller first checks `is_overtaken`."""
        previous = event.previous_at(self._me)
        publisher, incarnation, sequence = event.id
        stream = self._stream((publisher, incarnation))
        if previous is None:  # the publisher's peer did not know that a subscription here wants the order
            self._release_all(now, stream, held, effects)
            return
        if self._has_come(event.id, previous, stream):
            stream.last = max(stream.last, sequence)
            self._release_all(now, stream, held, effects)
            self._release_followers(now, event.id, stream, effects)
            return
        stream.held[sequence] = (previous, held)
        self._held[event.id] = None
        self._timers.at(now + self._wait_ns, self._end_wait, event.id)
        if len(self._held) > MAX_HELD:
            self._end_wait(now, next(iter(self._held)), effects)

    def _has_come(self, id_: EventId, previous: int, stream: _Stream) -> bool:
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

    def _end_wait(self, now: Nanos, id_: EventId, effects: Effects) -> None:
        """Release an event that has waited long enough, and the held ones before it."""
        stream = self._streams.get(id_[:2])
        if stream is None or id_.sequence not in stream.held:
            return
        for sequence in sorted(s for s in stream.held if s <= id_.sequence):
            previous, held = stream.held.pop(sequence)
            self._held.pop(EventId(id_.publisher, id_.incarnation, sequence), None)
            if previous > stream.last:
                effects.append(Notice("order-skipped", id_.publisher))
                if any(one.entry is not None for one in held):
                    effects.append(Persist(SkippedRecord(EventId(id_.publisher, id_.incarnation, sequence))))
                for one in held:
                    self._skipped(now, one, effects)
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

    def _stream(self, key: tuple[PeerId, int]) -> _Stream:
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= 2 * MAX_STREAMS:
                for old in [k for k, s in self._streams.items() if not s.held][:MAX_STREAMS]:
                    del self._streams[old]
            stream = self._streams[key] = _Stream()
        return stream


def in_publishers_order(ids: Iterable[EventId]) -> list[EventId]:
    """Sort the events of each publisher by publication, within the places that its events have in the list."""
    places = list(ids)
    of: dict[tuple[PeerId, int], list[EventId]] = {}
    for id_ in places:
        of.setdefault(id_[:2], []).append(id_)
    ordered = {who: iter(sorted(theirs)) for who, theirs in of.items()}
    return [next(ordered[id_[:2]]) for id_ in places]
