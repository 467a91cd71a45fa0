"""The base of interest plug-ins on a DHT: messages that travel hop by hop to the peer that owns a key.

Each hop asks the membership (`pastry`) for the next one. With `hop_acks` a sender avoids a hop that does not answer and
sends the message by another; without them the message may get lost, as in the dmm paper. A subclass defines what the
owner does.
"""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

import msgspec

from wend.matching.filters import Filter, parse
from wend.model.events import Event, EventId, PeerId, Subscription, SubscriptionId
from wend.model.keys import make_key
from wend.model.random_stream import peer_stream
from wend.model.settings import Settings, setting
from wend.model.units import FOREVER, MS, SECOND, Nanos
from wend.protocol.plugins import (
    Arrived,
    Begun,
    Changed,
    Drop,
    Due,
    Heard,
    Interest,
    LocalSubscription,
    Notice,
    Notify,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Recalled,
    Refuse,
    SendTo,
    Stopping,
    SubscriptionsChanged,
    Timer,
    Undelivered,
    View,
)
from wend.strategies.subscriptions.table import SubscriptionTable, effective_deadline


class OwnSubscriptions(SubscriptionTable):
    """This peer's subscriptions, and which of them have changed since `take_touched`."""

    def __init__(self, me: PeerId) -> None:
        super().__init__(me, asks_publishers=False)
        self._peer = me
        self._touched: dict[int, None] = {}
        """The subscriptions that were added, replaced or removed since `take_touched`."""
        self._last: tuple[EventId | None, tuple[int, ...]] = (None, ())
        """The last event matched, and the subscriptions that match it."""

    def targets(self, event: Event) -> tuple[PeerId, ...]:
        return (self._peer,) if self.find_matches(event) else ()

    def local(self, event: Event, view: View) -> Notify:
        publisher, me, graph, qos = event.id[0], self._peer, view.graph, self.own.qos
        # there are no queue groups here whose members pass events on
        numbers = self.find_matches(event) if event.origin is None else ()
        return tuple([(SubscriptionId(me, n), effective_deadline(qos(n), publisher, me, graph)) for n in numbers])

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

    def find_matches(self, event: Event) -> tuple[int, ...]:
        """The subscriptions that match an event. Callers ask twice in a row and hardly ever again, so only the last
        result is cached."""
        id_, numbers = self._last
        if id_ != event.id:
            numbers = self.own.match(event.attributes)
            self._last = (event.id, numbers)
        return numbers


HOP_TRIES = 2
"""How often a message is sent to a hop before another hop is tried."""
LAST_TRIES = 4
"""How often a message is sent to a peer that no other peer can replace."""
FARTHEST_HOPS = 4096
"""The most hops that a message may have made, over all of its routes."""
MAX_HOPS = 64
"""A message with this many hops is in a loop."""
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
    """The place of the region that passed the entry on to another attribute space; empty if none did."""


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A conjunction of a subscription, as text."""

    id: EntryId
    filter: str


def make_entries(subscription: Subscription) -> list[tuple[Entry, Filter]]:
    """The conjunctions of a subscription, each a filter of its own."""
    filter_ = parse(subscription.filter)
    peer, number = subscription.id
    if len(filter_.conjunctions) == 1:
        return [(Entry(EntryId(peer, number, 0), subscription.filter), filter_)]
    parts = [Filter((one,)) for one in filter_.conjunctions]
    return [(Entry(EntryId(peer, number, at), str(part)), part) for at, part in enumerate(parts)]


class Ring(Protocol):
    """What a DHT offers, as `pastry` does."""

    has_joined: bool

    def next_hop(self, key: int, avoid: Iterable[PeerId] = ()) -> PeerId: ...
    def owns(self, key: int) -> bool: ...
    def replicas(self, count: int) -> tuple[PeerId, ...]: ...
    def round_trip_ns(self, peer: PeerId) -> Nanos: ...
    def has_measured(self, peer: PeerId) -> bool: ...
    def is_dead(self, peer: PeerId) -> bool: ...


class KeyBasedInterest(Interest):
    """Sends subscriptions and events to the owners of their keys. A subclass implements the methods below."""

    settings: ClassVar[type[Settings]] = KeyBasedSettings
    hears_anyone: ClassVar[bool] = True
    knows_all_subscribers: ClassVar[bool] = False
    durable: ClassVar[bool] = False

    def __init__(self, config: PeerConfig) -> None:
        self.subscriptions = OwnSubscriptions(config.peer)
        super().__init__(config, self.subscriptions)
        self.me = config.peer
        self.key_settings = config.of(KeyBasedSettings)
        draw = peer_stream(config.seed, "interest", config.peer, config.incarnation)
        self._first_beacon_ns = round(draw.random() * self.key_settings.beacon_ns)
        self.own_entries: dict[int, list[tuple[Entry, Filter]]] = {}
        """The entries of this peer's own subscriptions, by number."""
        self.out: list[PluginEffect] = []
        self.ring: Ring
        self.is_stopping = False

    # ---------------------------------------------------------------- for subclasses

    def begin(self, now: Nanos) -> None:
        """Start the subclass, after the peer has started."""

    def on_subscribed(self, now: Nanos, entry: Entry, filter_: Filter) -> None:
        raise NotImplementedError

    def on_unsubscribed(self, now: Nanos, entry: Entry, filter_: Filter) -> None:
        raise NotImplementedError

    def on_published(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        raise NotImplementedError

    def on_heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        raise NotImplementedError

    def on_undelivered(self, now: Nanos, peer: PeerId, message: Any) -> None:
        raise NotImplementedError

    def on_beacon_due(self, now: Nanos) -> None:
        """Renew this peer's entries, and forget entries that were not renewed. Called once per beacon period."""
        raise NotImplementedError

    def on_ownership_changed(self, now: Nanos) -> None:
        """Move entries and events if the peer owns other keys now, or has other next hops."""
        raise NotImplementedError

    def on_due(self, now: Nanos, name: str) -> None:
        """Handle an expired timer of the subclass."""

    def on_recalled(self, now: Nanos, message: Any) -> None:
        """Restore a record that an earlier incarnation stored."""

    # ---------------------------------------------------------------- inputs

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        self.ring = view.membership
        match event:
            case Heard(sender, message):
                if 0 <= getattr(message, "hops", 0) <= FARTHEST_HOPS:
                    self.on_heard(now, sender, message)
                else:
                    self.out.append(Refuse(sender, "invalid-hops"))
            case Arrived():
                self.on_published(now, event.event, event.born_ns)
            case Undelivered(peer, message):
                self.on_undelivered(now, peer, message)
            case SubscriptionsChanged():
                self.on_subscriptions_changed(now)
            case Due("beacon"):
                if not self.is_stopping:
                    self.on_beacon_due(now)
                    self.out.append(Timer(now + self.key_settings.beacon_ns, _BEACON))
            case Due(name):
                self.on_due(now, name)
            case Changed("ownership"):
                self.on_ownership_changed(now)
            case Begun():
                self.begin(now)
                self.out.append(Timer(now + self._first_beacon_ns, _BEACON))
            case Recalled(message):
                self.on_recalled(now, message)
            case Stopping():
                self.is_stopping = True
        out, self.out = self.out, []
        return out

    def on_subscriptions_changed(self, now: Nanos) -> None:
        new: list[tuple[Entry, Filter]] = []
        for number in self.subscriptions.take_touched():
            subscription = self.subscriptions.own.get(number)
            entries = [] if subscription is None else make_entries(subscription)
            before = self.own_entries.pop(number, [])
            if entries:
                self.own_entries[number] = entries
            for entry, filter_ in before:
                if all(entry != other for other, _ in entries):
                    self.on_unsubscribed(now, entry, filter_)
            new += [(entry, filter_) for entry, filter_ in entries if all(entry != other for other, _ in before)]
        for entry, filter_ in new:
            self.on_subscribed(now, entry, filter_)

    # ---------------------------------------------------------------- sending

    def send(self, peer: PeerId, message: Any, tries: int = HOP_TRIES) -> None:
        """Send a message to a peer, acknowledged if the settings say so."""
        if self.key_settings.hop_acks:
            timeout_ns = self.ring.round_trip_ns(peer) * 3 // 2 + 20 * MS
            self.out.append(SendTo(peer, message, True, timeout_ns, tries))
        else:
            self.out.append(SendTo(peer, message))

    def publication_time_ns(self, now: Nanos, sender: PeerId, age_ns: Nanos) -> Nanos:
        """When an event was published, in this peer's time."""
        return now - min(max(0, age_ns), FOREVER) - self.ring.round_trip_ns(sender) // 2

    def drop_unreached(self, id_: EventId, peer: PeerId) -> None:
        """Drop an event for a peer that does not answer and that no other peer can replace."""
        self.out.append(Drop(id_, (peer,), "no-answer"))

    def drop_too_early(self, id_: EventId) -> None:
        """Drop an event that was published before this peer had joined."""
        self.out.append(Notice("published-early", self.me))
        self.out.append(Drop(id_, (self.me,), "not-joined"))

    def drop_circling(self, id_: EventId, hop: PeerId) -> None:
        self.out.append(Drop(id_, (hop,), "routing-loop"))

    def next_hop_to(self, place: str, avoid: Iterable[PeerId] = ()) -> PeerId | None:
        """The next hop towards a place; None if this peer owns it."""
        hop = self.ring.next_hop(make_key(place), avoid)
        return None if hop == self.me else hop
