"""The base of interest plug-ins on a DHT: messages that travel hop by hop to the peer that owns a key.

Each hop asks the membership (`pastry`) for the next one. With `hop_acks` a hop that does not answer is avoided, and the
message takes another; without them it may get lost, as in the dmm paper. A subclass says what happens at the owner.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, TypeVar

import msgspec

from wend.matching.filters import Filter, parse
from wend.model.events import Event, EventId, PeerId, Subscription, SubscriptionId
from wend.model.random_stream import peer_stream
from wend.model.settings import Settings, setting
from wend.model.units import FOREVER, MS, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.interest.subscriptions import SubscriptionTable, deadline_of
from wend.protocol.keys import key_of
from wend.protocol.plugins import (
    Arrived,
    Begun,
    Changed,
    DeliverHere,
    Due,
    Heard,
    Needs,
    Notify,
    PluginEffect,
    PluginInput,
    Recalled,
    SendTo,
    SubscriptionsChanged,
    Timer,
    Undelivered,
    View,
)
from wend.protocol.ports import Drop, LocalSubscription, Notice, Refuse, Stopping

T = TypeVar("T")
SEEN = 4096
"""How many events a peer remembers to recognise duplicates among them."""
HOP_TRIES = 2
"""How often a message is sent to a hop before another hop is tried."""
LAST_TRIES = 4
"""How often it is sent to a peer that no other can stand in for."""
BATCH = 16
"""Entries in one message, so that it fits a datagram unless its filters are very long."""
FARTHEST_HOPS = 4096
"""No message has gone farther, over all of its routes."""
MOST_HOPS = 64
"""A message that has come this far goes round in a circle."""
_BEACON = "beacon"


class KeyBasedSettings(Settings, frozen=True, kw_only=True):
    """How messages reach the owner of a key, and how long the owner remembers."""

    title: ClassVar[str] = "Rendezvous"

    hop_acks: Annotated[
        bool,
        setting("Whether each hop on the way to a key acknowledges, so that senders avoid a dead one."),
    ] = True
    beacon_ns: Annotated[
        Nanos,
        setting("How often peers renew subscriptions at the owners of keys.", unit="s", low=0.1, high=1e6),
    ] = 30 * SECOND
    expiry_ns: Annotated[
        Nanos,
        setting("How long the owner of a key keeps a subscription that nobody renews.", unit="s", low=0.2, high=1e7),
    ] = 60 * SECOND


class EntryId(NamedTuple):
    """One conjunction of a subscription."""

    peer: PeerId
    number: int
    part: int
    leaf: str = ""
    """Of an entry that a region of an attribute space passes on to another space: the region's place."""


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A conjunction that a subscription wants, as text."""

    id: EntryId
    filter: str


def entries_of(subscription: Subscription) -> list[tuple[Entry, Filter]]:
    """The conjunctions of a subscription, each a filter of its own."""
    wanted = parse(subscription.filter)
    peer, number = subscription.id
    if len(wanted.conjunctions) == 1:
        return [(Entry(EntryId(peer, number, 0), subscription.filter), wanted)]
    parts = [Filter((one,)) for one in wanted.conjunctions]
    return [(Entry(EntryId(peer, number, at), str(part)), part) for at, part in enumerate(parts)]


def batches(all_of_them: Sequence[T]) -> list[tuple[T, ...]]:
    """What goes into one message each."""
    return [tuple(all_of_them[at : at + BATCH]) for at in range(0, len(all_of_them), BATCH)]


class Ring(Protocol):
    """What a DHT offers, as `pastry` does."""

    joined: bool

    def next_hop(self, key: int, avoid: Iterable[PeerId] = ()) -> PeerId: ...
    def owns(self, key: int) -> bool: ...
    def leaf_set(self) -> tuple[PeerId, ...]: ...
    def replicas(self, count: int) -> tuple[PeerId, ...]: ...
    def round_trip_ns(self, peer: PeerId) -> Nanos: ...
    def has_measured(self, peer: PeerId) -> bool: ...
    def forgets(self, peer: PeerId) -> bool: ...


class Seen:
    """The last things of a kind that happened, to recognise a repetition."""

    __slots__ = ("_known", "_room")

    def __init__(self, room: int = SEEN) -> None:
        self._known: dict[Any, None] = {}
        self._room = room

    def __contains__(self, one: Any) -> bool:
        return one in self._known

    def add(self, one: Any) -> bool:
        """Whether it is new."""
        known = self._known
        if one in known:
            return False
        known[one] = None
        if len(known) > self._room:
            del known[next(iter(known))]
        return True


class KeyBasedInterest(SubscriptionTable):
    """Sends subscriptions and events to the owners of their keys. A subclass implements the methods below."""

    needs: ClassVar[Needs] = Needs()
    settings: ClassVar[type[Settings]] = KeyBasedSettings
    hears_anyone: ClassVar[bool] = True
    names_everyone: ClassVar[bool] = False
    durable: ClassVar[bool] = False

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._keyed = config.of(KeyBasedSettings)
        draw = peer_stream(config.seed, "interest", config.peer, config.incarnation)
        self._first_beacon_ns = round(draw.random() * self._keyed.beacon_ns)
        self._wanted: dict[int, list[tuple[Entry, Filter]]] = {}
        """The entries of this peer's own subscriptions, by number, as they were told."""
        self._touched: dict[int, None] = {}
        """The subscriptions that changed since."""
        self._last: tuple[EventId | None, tuple[int, ...]] = (None, ())
        """The event that was matched last, and this peer's subscriptions that want it."""
        self._out: list[PluginEffect] = []
        self._ring: Ring
        self._stopping = False

    # ---------------------------------------------------------------- for subclasses

    def _begin(self, now: Nanos) -> None:
        """The peer has started."""

    def _subscribed(self, now: Nanos, entry: Entry, wanted: Filter) -> None:
        raise NotImplementedError

    def _unsubscribed(self, now: Nanos, entry: Entry, wanted: Filter) -> None:
        raise NotImplementedError

    def _publish(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        raise NotImplementedError

    def _heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        raise NotImplementedError

    def _undelivered(self, now: Nanos, peer: PeerId, message: Any) -> None:
        raise NotImplementedError

    def _renew(self, now: Nanos) -> None:
        """The time of the beacon: renew what this peer wants, and forget what nobody renews."""
        raise NotImplementedError

    def _ownership_changed(self, now: Nanos) -> None:
        """The peer may own other keys, or have other next hops."""
        raise NotImplementedError

    def _due(self, now: Nanos, name: str) -> None:
        """The time of a timer of the subclass."""

    def _recalled(self, now: Nanos, message: Any) -> None:
        """What a former incarnation remembered."""

    # ---------------------------------------------------------------- this peer's own subscriptions

    def targets(self, event: Event) -> tuple[PeerId, ...]:
        """This peer, if it wants the event. It knows no other's subscriptions by their peer."""
        return (self._me,) if self._matching(event) else ()

    def local(self, event: Event, view: View) -> Notify:
        publisher, me, graph, qos = event.id[0], self._me, view.graph, self._local.qos
        # there are no queue groups here whose members pass events on
        wanted = self._matching(event) if event.origin is None else ()
        return tuple([(SubscriptionId(me, n), deadline_of(qos(n), publisher, me, graph)) for n in wanted])

    def subscribe(self, wanted: LocalSubscription, me: PeerId) -> None:
        super().subscribe(wanted, me)
        self._touched[wanted.number] = None

    def unsubscribe(self, number: int) -> None:
        super().unsubscribe(number)
        self._touched[number] = None

    def withdraw(self) -> None:
        super().withdraw()
        self._touched.update(dict.fromkeys(self._wanted))

    def _matching(self, event: Event) -> tuple[int, ...]:
        """The subscriptions that want an event. A peer asks twice, and hardly ever again: a copy of an event comes
        after many others, so nothing but the last answer is remembered."""
        id_, found = self._last
        if id_ != event.id:
            found = self._local.match(event.attributes)
            self._last = (event.id, found)
        return found

    # ---------------------------------------------------------------- inputs

    def advertises(self, event: Event) -> bool:
        return True  # nobody asks who publishes

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        self._ring = view.membership
        match event:
            case Heard(sender, message):
                if 0 <= getattr(message, "hops", 0) <= FARTHEST_HOPS:
                    self._heard(now, sender, message)
                else:
                    self._refuse(sender, "a number of hops that cannot be")
            case Arrived():
                self._publish(now, event.event, event.born_ns)
            case Undelivered(peer, message):
                self._undelivered(now, peer, message)
            case SubscriptionsChanged():
                self._subscriptions_changed(now)
            case Due("beacon"):
                if not self._stopping:
                    self._renew(now)
                    self._out.append(Timer(now + self._keyed.beacon_ns, _BEACON))
            case Due(name):
                self._due(now, name)
            case Changed("ownership"):
                self._ownership_changed(now)
            case Begun():
                self._begin(now)
                self._out.append(Timer(now + self._first_beacon_ns, _BEACON))
            case Recalled(message):
                self._recalled(now, message)
            case Stopping():
                self._stopping = True
        out, self._out = self._out, []
        return out

    def _subscriptions_changed(self, now: Nanos) -> None:
        self._last = (None, ())
        touched, self._touched = sorted(self._touched), {}
        new: list[tuple[Entry, Filter]] = []
        for number in touched:
            subscription = self._local.get(number)
            wanted = [] if subscription is None else entries_of(subscription)
            before = self._wanted.pop(number, [])
            if wanted:
                self._wanted[number] = wanted
            for entry, parsed in before:
                if all(entry != other for other, _ in wanted):
                    self._unsubscribed(now, entry, parsed)
            new += [(entry, parsed) for entry, parsed in wanted if all(entry != other for other, _ in before)]
        for entry, parsed in new:
            self._subscribed(now, entry, parsed)

    # ---------------------------------------------------------------- sending

    def _send(self, peer: PeerId, message: Any, tries: int = HOP_TRIES) -> None:
        """Send a message to a peer, acknowledged where the settings say so."""
        if self._keyed.hop_acks:
            self._out.append(SendTo(peer, message, True, self._wait_ns(peer), tries))
        else:
            self._out.append(SendTo(peer, message))

    def _wait_ns(self, peer: PeerId) -> Nanos:
        return self._ring.round_trip_ns(peer) * 3 // 2 + 20 * MS

    def _born(self, now: Nanos, sender: PeerId, age_ns: Nanos) -> Nanos:
        """When an event was published, in this peer's time."""
        return now - min(max(0, age_ns), FOREVER) - self._ring.round_trip_ns(sender) // 2

    def _deliver(self, event: Event, born_ns: Nanos) -> None:
        self._out.append(DeliverHere(event, born_ns))

    def _unreached(self, id_: EventId, peer: PeerId) -> None:
        """A peer that no other can stand in for does not answer."""
        self._out.append(Drop(id_, (peer,), "link does not answer"))

    def _too_early(self, id_: EventId) -> None:
        """An event was published before this peer has joined."""
        self._out.append(Notice("published-early", self._me))
        self._out.append(Drop(id_, (self._me,), "not joined yet"))

    def _circling(self, id_: EventId, hop: PeerId) -> None:
        self._out.append(Drop(id_, (hop,), "routing loop"))

    def _timer(self, time_ns: Nanos, name: str) -> None:
        self._out.append(Timer(time_ns, name))

    def _refuse(self, sender: PeerId, reason: Any) -> None:
        self._out.append(Refuse(sender, reason))

    def _rerouted(self, peer: PeerId) -> None:
        self._out.append(Notice("reroute", peer))

    def _next(self, place: str, avoid: Iterable[PeerId] = ()) -> PeerId | None:
        """The next hop towards a place; None where this peer owns it."""
        hop = self._ring.next_hop(key_of(place), avoid)
        return None if hop == self._me else hop
