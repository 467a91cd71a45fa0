"""`rendezvous`: events meet subscriptions at the peer that owns their region of an attribute's values.

An entry of a subscription lives in one attribute's regions: those of the attribute whose values it narrows the most. An
event goes to the region of each of its attributes, where it is matched with whole filters, and from there straight to
the subscribers' peers. So it takes two hops once the publisher's peer knows the owners of its regions.

- A publisher's or subscriber's peer remembers the owners of regions that answered (`directory.py`). If it knows none,
  it routes the message by key to the whole range of the attribute. A peer that is no longer the owner routes a message
  on by key, and the owner corrects the sender.
- A subscriber's peer places its entries at the owners, and renews them with a digest (`placement.py`).
- A region with too many events or entries splits into halves. Its owner passes on later messages for it
  (`owned_regions.py`), and takes the entries back when the load has gone (`merging.py`). Each region has replicas at
  the owner's neighbours on the ring (`replicas.py`).
- With persistence the publisher's peer stores an event until every region has settled it (`stored_events.py`), and a
  region settles an event when each of its subscribers' peers has it (`notifications.py`).
- An event that may expire waits until the round trip to its sender is measured (`round_trips.py`).
"""

from collections.abc import Iterable
from typing import Any, ClassVar

from msgspec.structs import replace

from wend.matching.filters import Filter
from wend.matching.order_cells import Interval
from wend.model.events import Event, EventId, PeerId
from wend.model.keys import distance, make_key, node_id
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.plugins import (
    NO_ROOM,
    DeliverHere,
    DeliverySettings,
    Drop,
    Notice,
    PeerConfig,
    Refuse,
    Remember,
    SendTo,
    Timer,
)
from wend.strategies.rendezvous.directory import RegionDirectory
from wend.strategies.rendezvous.messages import (
    UNKNOWN_OWNER,
    ActiveHalf,
    CopyEntries,
    EventSettled,
    HalfEntries,
    HalfReport,
    MatchEvent,
    MergeHalf,
    NotifyPeer,
    Output,
    OwnerMessage,
    PeerReturned,
    PlaceEntries,
    Reached,
    RegionOwners,
    RemoveEntries,
    RendezvousMessage,
    RenewCopy,
    RenewEntries,
    RequestCopy,
    RequestEntries,
    StoredEvent,
    ToPeer,
    TripReply,
    TripRequest,
)
from wend.strategies.rendezvous.notifications import RETRY, RETRY_NS, Notifications
from wend.strategies.rendezvous.owned_regions import LOAD_CHECK, OwnedRegions
from wend.strategies.rendezvous.placement import EntryPlacement
from wend.strategies.rendezvous.regions import RegionId, event_regions, is_valid, key_text
from wend.strategies.rendezvous.replicas import RegionReplicas, hand_over
from wend.strategies.rendezvous.round_trips import TRIPS, EventMessage, OwnerRoundTrips
from wend.strategies.rendezvous.settings import RendezvousSettings
from wend.strategies.rendezvous.stored_events import StoredEvents
from wend.strategies.ring.key_based import MAX_HOPS, Entry, KeyBasedInterest


class Rendezvous(KeyBasedInterest):
    """Matches events with subscriptions at the owners of regions."""

    settings: ClassVar[type[Settings]] = RendezvousSettings
    messages: ClassVar[Any] = RendezvousMessage
    durable: ClassVar[bool] = True

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        delivery = config.of(DeliverySettings)
        self._settings = config.of(RendezvousSettings)
        self._stores_events = delivery.persistence
        self.directory = RegionDirectory(self._settings.beacon_ns)
        self._placement = EntryPlacement(config.peer, self.directory)
        self._owned = OwnedRegions(config.peer, self._settings)
        self._replicas = RegionReplicas(self._settings.expiry_ns)
        self._round_trips = OwnerRoundTrips()
        self._stored = StoredEvents(delivery.retry_limit, delivery.store_limit)
        self._notifications = Notifications(config.peer, self._owned, self._settings.fan_out, delivery.retry_limit)
        self._ring_neighbours: tuple[PeerId, ...] = ()
        """The neighbours between which this peer's keys lie."""
        self._is_retrying = False

    def status(self) -> dict[str, int]:
        """`regions` that this peer owns, their `entries`, `copies` of others' regions, `cached` owners of regions, and
        `unsettled` events; how many regions have split (`splits`), merged (`merges`) or were `taken over` here. For
        each region with entries or recent events: `entries/NAME|CODE`, and `events/NAME|CODE`, those of the last
        seconds."""
        return {
            "regions": len(self._owned.tables),
            "entries": sum(map(len, self._owned.tables.values())),
            "copies": len(self._replicas.copies),
            "cached": len(self.directory),
            "splits": self._owned.splits,
            "merges": self._owned.merges,
            "taken over": self._owned.takeovers,
            **self._owned.sizes(),
            "unsettled": len(self._stored) + len(self._notifications),
        }

    # ---------------------------------------------------------------- inputs

    def begin(self, now: Nanos) -> None:
        self._owned.expect_entries(now, self.ring.round_trip_ns(self.me))  # others may know this peer already

    def on_subscribed(self, now: Nanos, entry: Entry, filter_: Filter) -> None:
        self._carry_out(now, self._placement.add(entry, filter_))

    def on_unsubscribed(self, now: Nanos, entry: Entry, filter_: Filter) -> None:
        self._carry_out(now, self._placement.remove(entry.id))

    def on_subscriptions_changed(self, now: Nanos) -> None:
        super().on_subscriptions_changed(now)
        if self.subscriptions.away_ns and self._stores_events:
            self._carry_out(now, self._placement.renew(self.subscriptions.away_ns))

    def on_beacon_due(self, now: Nanos) -> None:
        self._carry_out(now, self._placement.renew())
        self._hand_over_others(now)
        self._carry_out(now, self._owned.beacon(now))
        self._replicas.expire(now)
        self._carry_out(now, self._owned.renew_copies(now))

    def on_due(self, now: Nanos, name: str) -> None:
        if name == LOAD_CHECK:
            self._carry_out(now, self._owned.check_loads(now))
        elif name == TRIPS:
            for sender, arrived_ns, message in self._round_trips.give_up(now):
                self._accept_event(now, sender, message, self.publication_time_ns(arrived_ns, sender, message.age_ns))
            self.out += self._round_trips.ask(now)
        elif name == RETRY:
            self._is_retrying = False
            self._retry_due(now)

    def on_recalled(self, now: Nanos, message: Any) -> None:
        if isinstance(message, StoredEvent):
            self._stored.recall(message)
            self._set_retry_timer(now)

    def on_heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        match message:
            case NotifyPeer():
                self._on_event_message(now, sender, message)
            case Reached(name, code, id_):
                self._carry_out(now, self._notifications.on_reached(sender, (name, code), id_))
            case TripRequest(number):
                self.out.append(SendTo(sender, TripReply(number)))
            case TripReply(number):
                for arrived_ns, event in self._round_trips.measure(now, sender, number):
                    trip = self._round_trips.trip_ns(now, sender) or 0
                    self._accept_event(now, sender, event, arrived_ns - max(0, event.age_ns) - trip // 2)
            case StoredEvent():
                self.out.append(Refuse(sender, "invalid-region"))
            case _ if not is_valid(message.region):
                self.out.append(Refuse(sender, "invalid-region"))
            case MatchEvent():
                self._on_event_message(now, sender, message)
            case EventSettled(name, code, id_):
                self._on_region_settled(id_, name, code)
            case _:
                self._on_entries(now, sender, message)

    def _on_entries(self, now: Nanos, sender: PeerId, message: Any) -> None:
        """Handle a message about the entries of a region."""
        region = message.region
        match message:
            case ActiveHalf(report=HalfReport(half, owner)) if not self._may_own(owner, (message.name, half)):
                self.out.append(Refuse(sender, "region-not-owned"))
            case PlaceEntries() | RemoveEntries() | RenewEntries() | ActiveHalf():
                if self._owns(region):
                    self._carry_out(now, self._owned.handle(now, sender, message))
                else:
                    self._send_to_owner(now, message)
            case RegionOwners():
                self._check_regions(now, sender, message)
            case MergeHalf(name, code) if self._may_own(sender, (name, code[:-1])):
                self._carry_out(now, self._owned.on_merge_half(now, sender, message))
            case HalfEntries():
                self._carry_out(now, self._owned.on_half_entries(now, sender, message))
            case RequestEntries():
                self._carry_out(now, self._placement.place_again(region))
            case RequestCopy():
                self._carry_out(now, self._owned.copy_to(sender, region))
            case CopyEntries() if region in self._owned.tables:
                self.out += self._owned.merge(now, sender, message)
            case RenewCopy() if region in self._owned.tables:
                pass  # this peer owns the region now
            case CopyEntries() | RenewCopy() if self._may_own(sender, region):
                self._carry_out(now, self._replicas.on_copy(now, sender, message))
            case _:
                self.out.append(Refuse(sender, "region-not-owned"))

    def on_undelivered(self, now: Nanos, peer: PeerId, message: Any) -> None:
        self.directory.forget(peer)
        if isinstance(message, OwnerMessage | MatchEvent):
            self.out.append(Notice("reroute", peer))
        match message:
            case PlaceEntries() | RemoveEntries() | RenewEntries() | ActiveHalf():
                self._send_to_owner(now, message, (peer,))
            case MatchEvent():
                self._match_event(now, self.me, message, now - message.age_ns, (peer,))
            case NotifyPeer(event=event, others=others, region=None):
                self.drop_unreached(event.id, peer)
                if others:
                    self._notify_others(now, message, now - message.age_ns, message.hops - 1)

    def on_ownership_changed(self, now: Nanos) -> None:
        ring, owned, replicas = self.ring, self._owned, self._replicas
        neighbours = ring.replicas(2)
        if neighbours != self._ring_neighbours:
            self._ring_neighbours = neighbours
            owned.expect_entries(now, ring.round_trip_ns(self.me))
        for region in [region for region in replicas.copies if self._owns(region)]:
            owned.take_over(now, region, replicas.pop(region))
            for peer in replicas.peers:
                self._carry_out(now, owned.copy_to(peer, region))
        self._hand_over_others(now)
        for region in replicas.orphans(ring.is_dead):
            self._carry_out(now, hand_over(now, region, replicas.copies[region]))
        nearest = ring.replicas(self._settings.replicas)
        for peer in replicas.choose(tuple([peer for peer in nearest if peer != self.me])):
            for region in owned.tables:
                self._carry_out(now, owned.copy_to(peer, region))

    def _hand_over_others(self, now: Nanos) -> None:
        """Hand over the regions that belong to other peers. One that did not answer may have been alive."""
        for region in [region for region in self._owned.tables if not self._owns(region)]:
            self._replicas.put(now, region, self._owned.tables.pop(region))
            self._carry_out(now, hand_over(now, region, self._replicas.copies[region]))

    # ---------------------------------------------------------------- outputs of the parts

    def _carry_out(self, now: Nanos, outputs: Iterable[Output]) -> None:
        for output in outputs:
            match output:
                case ToPeer():
                    if output.peer != self.me:
                        self.send(output.peer, output.message, output.tries)
                    else:
                        self._handle_own(now, output.message)
                case PlaceEntries() | RemoveEntries() | RenewEntries() | ActiveHalf():
                    self._send_to_owner(now, output)
                case CopyEntries() | RenewCopy():
                    self._carry_out(now, self._replicas.share(output))
                case MatchEvent():
                    self._match_event(now, self.me, output, now - output.age_ns)
                case PeerReturned(peer):
                    self._carry_out(now, self._notifications.retry_at_once(now, peer))
                case Timer(_, "retry"):
                    self._set_retry_timer(now)
                case _:
                    self.out.append(output)

    def _handle_own(self, now: Nanos, message: Any) -> None:
        """Handle a message of a part of this peer to the peer itself."""
        match message:
            case RegionOwners():
                self._adopt_regions(now, message.name, message.regions)
            case EventSettled(name, code, id_):
                self._on_region_settled(id_, name, code)
            case RequestEntries() | MergeHalf() | HalfEntries():
                self._on_entries(now, self.me, message)

    def _send_to_owner(self, now: Nanos, message: OwnerMessage, avoid: tuple[PeerId, ...] = ()) -> None:
        """Send a message to the owner of its region: directly if the directory knows the owner, else hop by hop."""
        region = message.region
        if message.hops == 0 and not avoid:
            owner = self.directory.owner(now, region)
            if owner not in (UNKNOWN_OWNER, self.me):
                self.send(owner, replace(message, hops=1))
                return
        hop = self.next_hop_to(key_text(region), avoid)
        if hop is None:
            self._carry_out(now, self._owned.handle(now, self.me, message))
        elif message.hops >= MAX_HOPS:
            self.out.append(Notice("undelivered", hop))
        else:
            self.send(hop, replace(message, hops=message.hops + 1))

    def _owns(self, region: RegionId) -> bool:
        return self.ring.owns(make_key(key_text(region)))

    def _may_own(self, peer: PeerId, region: RegionId) -> bool:
        """Whether no peer that this one knows is closer to the key."""
        key = make_key(key_text(region))
        hop = self.ring.next_hop(key)
        return hop == peer or distance(node_id(peer), key) <= distance(node_id(hop), key)

    def _check_regions(self, now: Nanos, sender: PeerId, message: RegionOwners) -> None:
        name = message.name
        for code, owner in message.regions:
            is_inside = is_valid((name, code)) and code.startswith(message.code)
            if not is_inside or owner not in (sender, UNKNOWN_OWNER):
                self.out.append(Refuse(sender, "invalid-region"))
                return
            if owner == sender and not self._may_own(sender, (name, code)):
                self.out.append(Refuse(sender, "region-not-owned"))
                return
        self._adopt_regions(now, name, message.regions)

    def _adopt_regions(self, now: Nanos, name: str, regions: tuple[tuple[str, PeerId], ...]) -> None:
        """Remember the owners of regions, and move this peer's entries if the regions changed."""
        if name not in self.directory.caches:
            self.directory.open(name, self._placement.names())
        if self.directory.caches[name].adopt(now, regions):
            self._carry_out(now, self._placement.move(name))

    # ---------------------------------------------------------------- events on their way to owners

    def on_published(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        if self._stores_events:
            self._store_event(now, event, born_ns)
        elif not self.ring.has_joined:
            self.drop_too_early(event.id)
        if self.ring.has_joined:
            for name, cells in event_regions(event):
                self._publish_in_regions(now, name, cells, event, born_ns)

    def _publish_in_regions(self, now: Nanos, name: str, cells: Interval, event: Event, born_ns: Nanos) -> None:
        """Send an event to the regions of this name that its value is in."""
        is_stored = self._stores_events
        for code, owner, asks in self.directory.owners(now, name, cells):
            if owner in (UNKNOWN_OWNER, self.me):
                self._match_event(now, self.me, MatchEvent(name, code, event, 0, 0, True, is_stored), born_ns)
            else:
                self.send(owner, MatchEvent(name, code, event, now - born_ns, 1, asks, is_stored))

    def _on_event_message(self, now: Nanos, sender: PeerId, message: EventMessage) -> None:
        """Accept an event from another peer, or hold it until its age is certain."""
        born_ns = self.publication_time_ns(now, sender, message.age_ns)
        if not self.ring.has_measured(sender):
            trip = self._round_trips.trip_ns(now, sender)
            if trip is not None:
                born_ns = now - max(0, message.age_ns) - trip // 2
            elif self._may_expire(message) and self._round_trips.hold(now, sender, message):
                self.out += self._round_trips.ask(now)
                return
        self._accept_event(now, sender, message, born_ns)

    def _may_expire(self, message: EventMessage) -> bool:
        """Whether some peer may drop the event because of its age. The owner of a region does not know the deadlines of
        subscribers, and has time for events that are stored."""
        event = message.event
        if event.ttl_ns is not None:
            return True
        if isinstance(message, MatchEvent):
            return message.stored
        return any(self.subscriptions.own.qos(number).expire for number in self.subscriptions.find_matches(event))

    def _accept_event(self, now: Nanos, sender: PeerId, message: EventMessage, born_ns: Nanos) -> None:
        if isinstance(message, MatchEvent):
            self._match_event(now, sender, message, born_ns)
            return
        event = message.event
        if self.subscriptions.targets(event):
            self.out.append(DeliverHere(event, born_ns))
        else:
            self.out.append(Notice("no-subscriber", self.me))
        if message.others:
            self._notify_others(now, message, born_ns, message.hops)
        if message.region is not None:
            self.send(sender, Reached(*message.region, event.id))

    def _notify_others(self, now: Nanos, message: NotifyPeer, born_ns: Nanos, hops: int) -> None:
        """Notify the other peers that a message names."""
        self._carry_out(now, self._notifications.notify(now, list(message.others), message.event, born_ns, hops))

    # ---------------------------------------------------------------- matching

    def _match_event(
        self, now: Nanos, sender: PeerId, message: MatchEvent, born_ns: Nanos, avoid: tuple[PeerId, ...] = ()
    ) -> None:
        """Match an event with the entries of its region, here or at the owner."""
        name, code, event, hops = message.name, message.code, message.event, message.hops
        region = (name, code)
        hop = self.next_hop_to(key_text(region), avoid)
        if hop is not None:
            if hops >= MAX_HOPS:
                self.drop_circling(event.id, hop)
            else:
                self.send(hop, MatchEvent(name, code, event, now - born_ns, hops + 1, True, message.stored))
        elif avoid and not self._owns(region):
            copy = self._replicas.copies.get(region)
            self._carry_out(now, self._notifications.match_as_replica(now, copy, message, born_ns))
        elif not code or region in self._owned.tables:
            self._match_here(now, sender, region, message, born_ns)
        elif hops >= MAX_HOPS:
            self.drop_circling(event.id, self.me)
        else:  # this peer has forgotten the region, or it never existed: begin with the whole range
            again = MatchEvent(name, "", event, now - born_ns, hops + 1, True, message.stored)
            self._match_event(now, sender, again, born_ns)

    def _match_here(self, now: Nanos, sender: PeerId, region: RegionId, message: MatchEvent, born_ns: Nanos) -> None:
        publisher = message.event.id.publisher
        table = self._owned.tables.get(region)
        if message.asks and (table is None or not table.is_split) and (publisher != self.me or message.hops == 0):
            self._carry_out(now, self._owned.send_current_regions(publisher, region))
        if table is not None and table.is_split:
            self._carry_out(now, self._notifications.match_halves(now, message, born_ns))
        else:
            self._carry_out(now, self._notifications.match(now, sender, table, message, born_ns))

    # ---------------------------------------------------------------- events that are stored until they are settled

    def _store_event(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        slot, lost = self._stored.add(now, event, born_ns)
        for id_, free_slot in lost.items():
            self.out.append(Drop(id_, (self.me,), NO_ROOM))
            if free_slot != slot:
                self.out.append(Remember(free_slot, StoredEvent(free_slot, None)))
        self.out.append(Remember(slot, StoredEvent(slot, event, born_ns)))
        self._set_retry_timer(now)

    def _on_region_settled(self, id_: EventId, name: str, code: str) -> None:
        """Record that a region has settled an event of this peer. After the last region, forget the event."""
        slot = self._stored.settle(id_, name, code)
        if slot is not None:
            self.out.append(Remember(slot, StoredEvent(slot, None)))

    def _set_retry_timer(self, now: Nanos) -> None:
        if not self._is_retrying:
            self._is_retrying = True
            self.out.append(Timer(now + RETRY_NS, RETRY))

    def _retry_due(self, now: Nanos) -> None:
        for event, born_ns, name, cells in self._stored.take_due(now) if self.ring.has_joined else ():
            self._publish_in_regions(now, name, cells, event, born_ns)
        self._carry_out(now, self._notifications.retry(now, self._owns))
        if len(self._stored) or self._notifications.is_busy:
            self._set_retry_timer(now)
