"""`rendezvous`: events meet subscriptions at the peer that owns their region of an attribute's values.

An entry of a subscription lives in one attribute's regions: those of the attribute whose values it narrows the most. An
event goes to the region of each of its attributes, where it is matched with whole filters, and from there straight to
the subscribers' peers. So it takes two hops once the publisher's peer knows the owners of its regions.

- A publisher's or subscriber's peer remembers the owners of regions that answered. On a miss the message is routed by
  key to the whole range of the attribute. A message for a peer that is no longer the owner goes on by key, and the
  owner corrects the sender.
- A region with too many events or entries splits into halves. Its owner passes on what still comes for it.
- Each region has replicas at the owner's neighbours on the ring. Subscribers renew their entries with a digest.
- With persistency the publisher's peer stores an event until every region has settled it, and a region settles an
  event when each of its subscribers' peers has it (`stored_events.py`).
- An event that may expire waits until the round trip to its sender is measured (`event_ages.py`).
"""

from typing import Any, ClassVar

from wend.matching.order_cells import Interval, meet, region
from wend.model.events import Event, EventId, PeerId
from wend.model.keys import key_of
from wend.model.units import SECOND, Nanos
from wend.protocol.plugins import NO_ROOM, DeliverySettings, Drop, Notice, PeerConfig, Remember, Timer
from wend.strategies.rendezvous.ages import EventAges
from wend.strategies.rendezvous.messages import (
    UNKNOWN_OWNER,
    EventSettled,
    MatchEvent,
    NotifyPeer,
    Reached,
    RendezvousMessage,
    StoredEvent,
)
from wend.strategies.rendezvous.regions import (
    EntryTable,
    Name,
    can_be,
    cells_in,
    names_of,
    place,
)
from wend.strategies.rendezvous.stored_events import SecondLook, StoredEvents, Unsettled
from wend.strategies.ring.key_based import (
    LAST_TRIES,
    MOST_HOPS,
    Seen,
)

RETRY_NS: Nanos = 2 * SECOND
"""How often events that are not settled are looked at again."""
_RETRY = "retry"


class Rendezvous(EventAges):
    """Matches events with subscriptions at the owners of regions."""

    messages: ClassVar[Any] = RendezvousMessage
    durable: ClassVar[bool] = True

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._persistency = config.of(DeliverySettings).persistency
        self._matched = Seen()
        self._most_unsettled = config.of(DeliverySettings).retry_limit
        limits = config.of(DeliverySettings)
        self._stored = StoredEvents(limits.retry_limit, limits.store_limit)
        """Events of this peer's publishers that are not settled."""
        self._unsettled: dict[tuple[Name, EventId], Unsettled] = {}
        """Events in regions of this peer that subscribers' peers have not all got."""
        self._settled = Seen()
        self._second_looks: dict[tuple[Name, EventId], SecondLook] = {}
        """Events that came while this peer may not have had all entries of its regions."""
        self._retrying = False

    def status(self) -> dict[str, int]:
        """`regions` that this peer owns, their `entries`, `copies` of others' regions, `cached` owners of regions, and
        `unsettled` events; how often a region `splits` here, and how many regions were `taken over`. For each region
        that has some: `entries/NAME|CODE`, and `events/NAME|CODE`, those of the last seconds."""
        return {**super().status(), "unsettled": len(self._stored) + len(self._unsettled)}

    def on_due(self, now: Nanos, name: str) -> None:
        super().on_due(now, name)
        if name == _RETRY:
            self._retrying = False
            self._retry(now)

    # ---------------------------------------------------------------- events

    def on_published(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        if self._persistency:
            self._store(now, event, born_ns)
        if not self.ring.joined:
            if not self._persistency:
                self.drop_too_early(event.id)
            return
        for name, cells in names_of(event):
            self._ask(now, name, cells, event, born_ns)

    def _ask(self, now: Nanos, name: str, cells: Interval, event: Event, born_ns: Nanos) -> None:
        """Send an event to the regions of this name that its value is in."""
        cache = self.caches.get(name)
        stored = self._persistency
        for code, owner in [("", UNKNOWN_OWNER)] if cache is None else cache.meeting([cells]):
            age = 0 if cache is None or owner == UNKNOWN_OWNER else cache.age_ns(code, now)
            if owner not in (UNKNOWN_OWNER, self.me) and self._fresh(age):
                asks = age > self._settings.beacon_ns // 2
                self.send(owner, MatchEvent(name, code, event, now - born_ns, 1, asks, stored))
            else:
                self._match(now, self.me, MatchEvent(name, code, event, 0, 0, True, stored), born_ns)

    def _match(
        self, now: Nanos, sender: PeerId, message: MatchEvent, born_ns: Nanos, avoid: tuple[PeerId, ...] = ()
    ) -> None:
        """Match an event with the entries of its region, here or at the owner."""
        name, code, event = message.name, message.code, message.event
        hop = self.next_hop_to(place(name, code), avoid)
        if hop is not None:
            if message.hops >= MOST_HOPS:
                self.drop_circling(event.id, hop)
            else:
                self.send(hop, MatchEvent(name, code, event, now - born_ns, message.hops + 1, True, message.stored))
            return
        key = (name, code)
        table = self.regions.get(key)
        if avoid and not self._owns(key):
            self._stand_in(now, key, message, born_ns)
            return
        if table is None and code:  # it was split and forgotten, or never was: begin with the whole range
            if message.hops >= MOST_HOPS:
                self.drop_circling(event.id, self.me)
                return
            again = MatchEvent(name, "", event, now - born_ns, message.hops + 1, True, message.stored)
            self._match(now, sender, again, born_ns)
            return
        publisher = event.id.publisher
        if message.asks and (table is None or not table.split) and (publisher != self.me or message.hops == 0):
            self._correct(now, publisher, key, table or EntryTable())
        if table is not None and table.split:
            self._match_halves(now, message, born_ns)
        elif message.stored:
            self._match_stored(now, key, table, event, born_ns, message.hops)
        elif self._matched.add((key, event.id)):
            wanting = [] if table is None else table.subscribers(event)
            if table is not None:
                self._loaded(now, key, event)
                self._notify_peers(now, wanting, event, born_ns, message.hops)
            if now < self._unsure_ns:
                look = SecondLook(event, born_ns, message.hops, set(wanting), self._unsure_ns)
                self._second_looks[key, event.id] = look
                self._retry_later(now)
        else:
            self.out.append(Notice("duplicate", sender))

    def _owns(self, key: Name) -> bool:
        return self.ring.owns(key_of(place(*key)))

    def _stand_in(self, now: Nanos, key: Name, message: MatchEvent, born_ns: Nanos) -> None:
        """The owner does not answer, and this peer is the next. Until it is the owner it has at most a copy of the
        entries, so it settles nothing: the publisher's peer asks again."""
        copy, event = self._copies.get(key), message.event
        if copy is None or copy.split or not self._matched.add((key, event.id)):
            return
        if message.stored:
            self._notify_stored(now, key, copy.subscribers(event), event, born_ns, message.hops)
        else:
            self._notify_peers(now, copy.subscribers(event), event, born_ns, message.hops)

    def _match_halves(self, now: Nanos, message: MatchEvent, born_ns: Nanos) -> None:
        name, event = message.name, message.event
        cells = cells_in(name, event)
        for half in (f"{message.code}0", f"{message.code}1"):
            if cells is not None and meet(region(half), [cells]):
                asked = MatchEvent(name, half, event, now - born_ns, message.hops, True, message.stored)
                self._match(now, self.me, asked, born_ns)

    def _notify_peers(self, now: Nanos, peers: list[PeerId], event: Event, born_ns: Nanos, hops: int) -> None:
        """Send an event to its subscribers' peers. Above the fan-out limit some of them pass it on to others."""
        publisher = event.id.publisher  # its own subscribers have it already
        peers = [peer for peer in peers if peer != publisher]
        if self.me in peers:
            self.deliver(event, born_ns)
            peers.remove(self.me)
        limit, age = self._settings.fan_out, now - born_ns
        parts = min(limit, len(peers))
        for at in range(parts):
            first, *others = peers[at::parts]
            self.send(first, NotifyPeer(event, age, hops + 1, tuple(others)), LAST_TRIES)

    def _notified(self, now: Nanos, sender: PeerId, told: NotifyPeer, born: Nanos) -> None:
        event = told.event
        if self.table.targets(event):
            self.deliver(event, born)
        else:
            self.out.append(Notice("no-subscriber", self.me))
        if told.others:
            self._notify_peers(now, list(told.others), event, born, told.hops)
        if told.region is not None:
            self.send(sender, Reached(*told.region, event.id))

    # ---------------------------------------------------------------- events that are stored until they are settled

    def _store(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        slot, lost = self._stored.add(now, event, born_ns, names_of(event))
        for id_, freed in lost.items():
            self.out.append(Drop(id_, (self.me,), NO_ROOM))
            if freed != slot:
                self.out.append(Remember(freed, StoredEvent(freed, None)))
        self.out.append(Remember(slot, StoredEvent(slot, event, born_ns)))
        self._retry_later(now)

    def on_recalled(self, now: Nanos, message: Any) -> None:
        if isinstance(message, StoredEvent):
            self._stored.recall(now, message, None if message.event is None else names_of(message.event))
            self._retry_later(now)

    def _match_stored(
        self, now: Nanos, key: Name, table: EntryTable | None, event: Event, born_ns: Nanos, hops: int
    ) -> None:
        """Notify subscribers' peers, again until each has the event or has expired; then settle it."""
        if (key, event.id) in self._unsettled:
            return
        if (key, event.id) in self._settled:
            self._settle(now, key, event.id)
            return
        if self._matched.add((key, event.id)) and table is not None:
            self._loaded(now, key, event)
        wanting = [] if table is None else table.subscribers(event)
        waiting = self._notify_stored(now, key, wanting, event, born_ns, hops)
        sure = self._is_complete(now, table)
        if not waiting and sure:
            self._settle(now, key, event.id)
            return
        if len(self._unsettled) >= self._most_unsettled:  # the publisher's peer still has it, and asks again
            del self._unsettled[next(iter(self._unsettled))]
            self.out.append(Notice("queued", self.me))
        self._unsettled[key, event.id] = Unsettled(event, born_ns, hops, waiting, now, sure)
        self._retry_later(now)

    def _notify_stored(
        self, now: Nanos, key: Name, peers: list[PeerId], event: Event, born_ns: Nanos, hops: int
    ) -> list[PeerId]:
        """Send a stored event to subscribers' peers; those that are to answer."""
        if self.me in peers and event.id.publisher != self.me:
            self.deliver(event, born_ns)
        others = [peer for peer in peers if peer not in (event.id.publisher, self.me)]
        for peer in others:
            self.send(peer, NotifyPeer(event, now - born_ns, hops + 1, (), key))
        return others

    def _reached(self, now: Nanos, sender: PeerId, told: Reached) -> None:
        key = (told.name, told.code)
        unsettled = self._unsettled.get((key, told.id))
        if unsettled is not None and unsettled.reached(sender) and unsettled.sure:
            del self._unsettled[key, told.id]
            self._settle(now, key, told.id)

    def _settle(self, now: Nanos, key: Name, id_: EventId) -> None:
        self._settled.add((key, id_))
        if id_.publisher == self.me:
            self._settled_by(now, self.me, EventSettled(*key, id_))
        else:
            self.send(id_.publisher, EventSettled(*key, id_))

    def _settled_by(self, now: Nanos, sender: PeerId, told: EventSettled) -> None:
        slot = self._stored.settled(told.id, told.name, told.code)
        if slot is not None:
            self.out.append(Remember(slot, StoredEvent(slot, None)))

    def on_subscriptions_changed(self, now: Nanos) -> None:
        super().on_subscriptions_changed(now)
        if self.table.away_ns and self._persistency:
            self._will_be_back(now, self.table.away_ns)

    def _returned(self, now: Nanos, peer: PeerId) -> None:
        for unsettled in self._unsettled.values():
            if peer in unsettled.waiting:
                unsettled.until_ns = now
        if self._unsettled:
            self._retry_later(now)

    def _retry_later(self, now: Nanos) -> None:
        if not self._retrying:
            self._retrying = True
            self.out.append(Timer(now + RETRY_NS, _RETRY))

    def _retry(self, now: Nanos) -> None:
        for event, born, name, cells in self._stored.due(now) if self.ring.joined else ():
            self._ask(now, name, cells, event, born)
        for (key, id_), look in list(self._second_looks.items()):
            if look.time_ns <= now:
                del self._second_looks[key, id_]
                self._look_again(now, key, look)
        for (key, id_), unsettled in list(self._unsettled.items()):
            table = self.regions.get(key)
            if not self._owns(key) or (table is not None and table.split):
                del self._unsettled[key, id_]  # the publisher's peer asks whoever has the entries now
                continue
            if not unsettled.sure:
                self._match_again(now, key, unsettled)
            if unsettled.sure and self._all_reached(table, unsettled):
                del self._unsettled[key, id_]
                self._settle(now, key, id_)
                continue
            for peer in unsettled.again(now):
                event, born = unsettled.event, unsettled.born_ns
                self.send(peer, NotifyPeer(event, now - born, unsettled.hops + 1, (), key))
        if len(self._stored) or self._unsettled or self._second_looks:
            self._retry_later(now)

    def _all_reached(self, table: EntryTable | None, unsettled: Unsettled) -> bool:
        """Whether nobody is left to wait for. Peers whose entries have expired count as gone."""
        live = () if table is None else table.expires
        gone = [peer for peer in unsettled.waiting if peer not in live]
        if gone:
            self.out.append(Drop(unsettled.event.id, tuple(gone), "no subscriber reconnected"))
        for peer in gone:
            unsettled.reached(peer)
        return not unsettled.waiting

    def _match_again(self, now: Nanos, key: Name, unsettled: Unsettled) -> None:
        """Notify the subscribers' peers whose entries came after the event."""
        table = self.regions.get(key)
        fresh = [] if table is None else unsettled.fresh(table.subscribers(unsettled.event))
        told = self._notify_stored(now, key, fresh, unsettled.event, unsettled.born_ns, unsettled.hops)
        unsettled.add(told, self._is_complete(now, table))

    def _look_again(self, now: Nanos, key: Name, look: SecondLook) -> None:
        """The same for an event that nobody stores."""
        table = self.regions.get(key)
        if table is None:
            return
        if table.split:
            self._match_halves(now, MatchEvent(*key, look.event, 0, look.hops), look.born_ns)
            return
        fresh = [peer for peer in table.subscribers(look.event) if peer not in look.notified]
        self._notify_peers(now, fresh, look.event, look.born_ns, look.hops)

    # ---------------------------------------------------------------- messages

    def _event_came(self, now: Nanos, sender: PeerId, message: MatchEvent | NotifyPeer, born_ns: Nanos) -> None:
        if isinstance(message, NotifyPeer):
            self._notified(now, sender, message, born_ns)
        else:
            self._match(now, sender, message, born_ns)

    def on_heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        match message:
            case NotifyPeer():
                self._event_heard(now, sender, message)
            case Reached():
                self._reached(now, sender, message)
            case EventSettled(name=name, code=code) if can_be(name, code):
                self._settled_by(now, sender, message)
            case StoredEvent():
                self.refuse(sender, "a region that cannot be")
            case MatchEvent(name, code) if can_be(name, code):
                self._event_heard(now, sender, message)
            case _:
                super().on_heard(now, sender, message)

    def on_undelivered(self, now: Nanos, peer: PeerId, message: Any) -> None:
        super().on_undelivered(now, peer, message)
        match message:
            case MatchEvent():
                self.note_reroute(peer)
                self._match(now, self.me, message, now - message.age_ns, (peer,))
            case NotifyPeer(event=event, others=others, region=None):
                self.drop_unreached(event.id, peer)
                if others:
                    born = now - message.age_ns
                    self._notify_peers(now, list(others), event, born, message.hops - 1)
