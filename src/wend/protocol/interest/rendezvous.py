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
"""

from typing import Annotated, Any, ClassVar

from wend.matching.filters import Filter
from wend.matching.order_cells import Interval, meet, region
from wend.model.errors import FilterError
from wend.model.events import Event, EventId, PeerId
from wend.model.settings import Settings, setting
from wend.model.units import SECOND, Nanos
from wend.protocol.config import DeliverySettings, PeerConfig
from wend.protocol.interest.key_based import (
    LAST_TRIES,
    MOST_HOPS,
    WAITED,
    Entry,
    EntryId,
    KeyBasedInterest,
    KeyBasedSettings,
    Seen,
)
from wend.protocol.interest.regions import (
    EntryTable,
    Load,
    RegionCache,
    can_be,
    cells_in,
    digest,
    home_of,
    names_of,
    place,
    splits,
)
from wend.protocol.interest.rendezvous_messages import (
    UNKNOWN_OWNER,
    CopyEntries,
    EventSettled,
    HalfIsActive,
    MatchEvent,
    NotifyPeer,
    PlaceEntries,
    Reached,
    RegionsAre,
    RemoveEntries,
    RendezvousMessage,
    RenewCopy,
    RenewEntries,
    StoredEvent,
    TellCopy,
    TellEntries,
)
from wend.protocol.interest.stored_events import StoredEvents, Unsettled
from wend.protocol.keys import distance, key_of, node_id
from wend.protocol.notices import NO_ROOM
from wend.protocol.plugins import Remember, Timer
from wend.protocol.ports import Drop, Notice

BATCH = 16
"""Entries in one message, so that it fits a datagram unless its filters are very long."""
LOOK_NS: Nanos = 5 * SECOND
"""How often the owner of regions looks at their load."""
RETRY_NS: Nanos = 2 * SECOND
"""How often events that are not settled are looked at again."""
SETTLE_NS: Nanos = 2 * SECOND
"""How long after its neighbours on the ring changed a peer settles no event: entries may be on their way to it."""
_LOOK, _RETRY = "look", "retry"
Name = tuple[str, str]
"""The name and the code of a region."""


class RendezvousSettings(KeyBasedSettings, frozen=True, kw_only=True):
    """How regions are shared among peers."""

    fan_out: Annotated[
        int, setting("Peers that the owner of a region notifies itself; others pass the event on.", low=1)
    ] = 256
    replicas: Annotated[int, setting("Neighbours on the ring that hold a copy of each region.", low=0, high=8)] = 2
    split_rate_hz: Annotated[float, setting("Events per second above which a region splits.", unit="hz", above=0.0)] = (
        500.0
    )
    split_entries: Annotated[int, setting("Subscriptions above which a region splits.", low=2)] = 50_000


class Rendezvous(KeyBasedInterest):
    """Matches events with subscriptions at the owners of regions."""

    messages: ClassVar[Any] = RendezvousMessage
    settings: ClassVar[type[Settings]] = RendezvousSettings
    durable: ClassVar[bool] = True

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._settings = config.of(RendezvousSettings)
        self._persistency = config.of(DeliverySettings).persistency
        self.regions: dict[Name, EntryTable] = {}
        """Those that this peer owns."""
        self._copies: dict[Name, EntryTable] = {}
        """Those of which it is a replica."""
        self._loads: dict[Name, Load] = {}
        self._replicas: tuple[PeerId, ...] = ()
        self.caches: dict[str, RegionCache] = {}
        """What it knows of others' regions, by name."""
        self._homes: dict[EntryId, tuple[Entry, str, list[Interval]]] = {}
        """This peer's own entries, each with the name of its regions and its cells there."""
        self._placed: dict[Name, dict[EntryId, Entry]] = {}
        """This peer's own entries, by the region where they were placed."""
        self._matched = Seen()
        self._stored = StoredEvents(config.of(DeliverySettings).retry_limit)
        """Events of this peer's publishers that are not settled."""
        self._unsettled: dict[tuple[Name, EventId], Unsettled] = {}
        """Events in regions of this peer that subscribers' peers have not all got."""
        self._settled = Seen()
        self._retrying = False
        self._near: tuple[PeerId, ...] = ()
        """The neighbours on the ring, between which the keys of this peer lie."""
        self._settles_ns: Nanos = 0
        """When this peer surely has the entries of its regions."""
        self._splits = self._taken_over = 0

    def status(self) -> dict[str, int]:
        """`regions` that this peer owns, their `entries`, `copies` of others' regions, `cached` owners of regions, and
        `unsettled` events; how often a region `splits` here, and how many regions were `taken over`. For each region
        that has some: `entries/NAME|CODE`, and `events/NAME|CODE`, those of the last seconds."""
        full = {f"entries/{place(*name)}": len(table) for name, table in sorted(self.regions.items()) if len(table)}
        busy = {f"events/{place(*name)}": load.events for name, load in sorted(self._loads.items()) if load.events}
        return {
            "regions": len(self.regions),
            "entries": sum(map(len, self.regions.values())),
            "copies": len(self._copies),
            "cached": sum(len(cache.owners) for cache in self.caches.values()),
            "unsettled": len(self._stored) + len(self._unsettled),
            "splits": self._splits,
            "taken over": self._taken_over,
            **full,
            **busy,
        }

    def _due(self, now: Nanos, name: str) -> None:
        if name == _LOOK:
            self._look(now)
        elif name == _RETRY:
            self._retrying = False
            self._retry(now)

    # ---------------------------------------------------------------- the subscriber's side

    def _subscribed(self, now: Nanos, entry: Entry, wanted: Filter) -> None:
        self._homes[entry.id] = (entry, *home_of(wanted))
        self._place(now, entry)

    def _unsubscribed(self, now: Nanos, entry: Entry, wanted: Filter) -> None:
        _, name, _ = self._homes.pop(entry.id)
        for (of, code), placed in list(self._placed.items()):
            if of == name and placed.pop(entry.id, None) is not None:
                self._to_region(now, RemoveEntries(name, code, (entry.id,)))
                if not placed:
                    del self._placed[of, code]

    def _place(self, now: Nanos, entry: Entry) -> None:
        """Place an entry in every region that its values meet, as far as this peer knows the regions."""
        _, name, cells = self._homes[entry.id]
        for code in self._codes(name, cells):
            placed = self._placed.setdefault((name, code), {})
            if placed.get(entry.id) != entry:
                placed[entry.id] = entry
                self._to_region(now, PlaceEntries(name, code, (entry,), self._me))

    def _codes(self, name: str, cells: list[Interval]) -> list[str]:
        cache = self.caches.get(name)
        return [""] if cache is None else [code for code, _ in cache.meeting(cells)]

    def _regions_are(self, now: Nanos, sender: PeerId, told: RegionsAre) -> None:
        name = told.name
        for code, owner in told.regions:
            if not can_be(name, code) or not code.startswith(told.code) or owner not in (sender, UNKNOWN_OWNER):
                self._refuse(sender, "a region that cannot be")
                return
            if owner == sender and not self._may_own(sender, place(name, code)):
                self._refuse(sender, "a region that its sender does not own")
                return
        self._learn(now, name, told.regions)

    def _learn(self, now: Nanos, name: str, regions: tuple[tuple[str, PeerId], ...]) -> None:
        if self.caches.setdefault(name, RegionCache()).learn(now, regions):
            self._place_anew(name)

    def _may_own(self, peer: PeerId, where: str) -> bool:
        """Whether no peer that this one knows is closer to the key."""
        key = key_of(where)
        hop = self._ring.next_hop(key)
        return hop == peer or distance(node_id(peer), key) <= distance(node_id(hop), key)

    def _place_anew(self, name: str) -> None:
        """The regions of this name are others. Their owners have passed on this peer's entries; if one has not, the
        next beacon shows it."""
        cache = self.caches[name]
        for key in [key for key in self._placed if key[0] == name and key[1] not in cache.owners]:
            del self._placed[key]
        for entry, of, cells in self._homes.values():
            if of == name:
                for code in self._codes(name, cells):
                    self._placed.setdefault((name, code), {})[entry.id] = entry

    def _renew_entries(self, now: Nanos) -> None:
        for (name, code), placed in list(self._placed.items()):
            self._to_region(now, RenewEntries(name, code, self._me, digest(placed.values())))

    def _tell_entries(self, now: Nanos, told: TellEntries) -> None:
        placed = self._placed.get((told.name, told.code), {})
        for entries in _batches(list(placed.values())):
            self._to_region(now, PlaceEntries(told.name, told.code, entries, self._me))

    # ---------------------------------------------------------------- on the way to the owner of a region

    def _to_region(self, now: Nanos, message: Any, avoid: tuple[PeerId, ...] = ()) -> None:
        """Send a message to the owner of a region: the one that is known, or hop by hop."""
        name, code = message.name, message.code
        if message.hops == 0 and not avoid:
            cache = self.caches.get(name)
            owner = UNKNOWN_OWNER if cache is None else cache.owners.get(code, UNKNOWN_OWNER)
            if owner not in (UNKNOWN_OWNER, self._me) and cache is not None and self._fresh(cache.age_ns(code, now)):
                self._send(owner, _hopped(message))
                return
        hop = self._next(place(name, code), avoid)
        if hop is None:
            self._at_region(now, self._me, message)
        elif message.hops >= MOST_HOPS:
            self._out.append(Notice("undelivered", hop))
        else:
            self._send(hop, _hopped(message))

    def _fresh(self, age_ns: Nanos) -> bool:
        """Whether an owner that was named this long ago may be asked without asking for the owner again."""
        return age_ns < self._settings.beacon_ns * 3 // 2

    def _at_region(self, now: Nanos, sender: PeerId, message: Any) -> None:
        """A message has reached the owner of its region."""
        match message:
            case PlaceEntries():
                self._add(now, sender, message)
            case RemoveEntries(name, code, ids):
                self._remove(now, (name, code), ids)
            case RenewEntries(name, code, peer, told):
                self._renewed(now, (name, code), peer, told)
            case HalfIsActive(name, code):
                table = self._table(name, code)
                if not table.split:
                    self._split(now, (name, code), table)

    def _table(self, name: str, code: str) -> EntryTable:
        return self.regions.setdefault((name, code), EntryTable())

    def _add(self, now: Nanos, sender: PeerId, told: PlaceEntries) -> None:
        key = (told.name, told.code)
        table = self._table(*key)
        if table.split:
            self._pass_down(now, key, told.entries)
        else:
            added = []
            for entry in told.entries:
                try:
                    if table.add(entry, now + self._settings.expiry_ns):
                        added.append(entry)
                except FilterError:
                    self._refuse(sender, "a filter that cannot be read")
            if added:
                self._copy(CopyEntries(*key, tuple(added)))
        if told.hops != 1 or table.split:  # it did not come straight here, so its sender knows no better
            self._correct(now, told.asker, key, table)

    def _pass_down(self, now: Nanos, key: Name, entries: tuple[Entry, ...]) -> None:
        name, code = key
        for half in (f"{code}0", f"{code}1"):
            table = EntryTable()
            for entry in entries:
                table.add(entry, now)
            for batch in _batches(table.in_half(half)):
                self._to_region(now, PlaceEntries(name, half, batch, self._me))

    def _correct(self, now: Nanos, peer: PeerId, key: Name, table: EntryTable) -> None:
        """Tell a peer which regions there are at a place of this one."""
        name, code = key
        known = (
            tuple((half, UNKNOWN_OWNER) for half in (f"{code}0", f"{code}1")) if table.split else ((code, self._me),)
        )
        if peer == self._me:
            self._learn(now, name, known)
        elif peer != UNKNOWN_OWNER:
            self._send(peer, RegionsAre(name, code, known))

    def _remove(self, now: Nanos, key: Name, ids: tuple[EntryId, ...]) -> None:
        table = self.regions.get(key)
        if table is None:
            return
        if table.split:
            for half in (f"{key[1]}0", f"{key[1]}1"):
                self._to_region(now, RemoveEntries(key[0], half, ids))
            return
        gone = tuple([id_ for id_ in ids if table.remove(id_)])
        if gone:
            self._copy(CopyEntries(*key, (), gone))

    def _renewed(self, now: Nanos, key: Name, peer: PeerId, told: int) -> None:
        table = self._table(*key)
        self._correct(now, peer, key, table)
        if table.split:
            return
        if table.digest_of(peer) == told:
            table.expires[peer] = now + self._settings.expiry_ns
        elif peer == self._me:
            self._tell_entries(now, TellEntries(*key))
        else:
            self._send(peer, TellEntries(*key))

    # ---------------------------------------------------------------- splitting

    def _look(self, now: Nanos) -> None:
        for key, load in list(self._loads.items()):
            table = self.regions.get(key)
            if table is None:
                del self._loads[key]
                continue
            rate = load.events * SECOND / max(1, now - load.since_ns)
            hot = rate > self._settings.split_rate_hz and load.divisible
            full = len(table) > self._settings.split_entries and table.divisible
            if splits(*key) and not table.split and (hot or full):
                self._split(now, key, table)
                for publisher in load.asked:
                    self._correct(now, publisher, key, table)
            if load.events and not table.split:
                self._loads[key] = Load(now)
            else:
                del self._loads[key]
        if self._loads:
            self._out.append(Timer(now + LOOK_NS, _LOOK))

    def _split(self, now: Nanos, key: Name, table: EntryTable) -> None:
        if not splits(*key):
            return
        self._splits += 1
        table.split = True
        entries = tuple(table.entries.values())
        for entry in entries:
            table.remove(entry.id)
        self._copy(CopyEntries(*key, (), tuple(entry.id for entry in entries), True))
        name, code = key
        for half in (f"{code}0", f"{code}1"):
            self._to_region(now, PlaceEntries(name, half, (), self._me))
        for batch in _batches(list(entries)):
            self._pass_down(now, key, batch)

    # ---------------------------------------------------------------- replicas and owners that change

    def _copy(self, message: CopyEntries) -> None:
        for peer in self._replicas:
            if message.added:
                for batch in _batches(list(message.added)):
                    self._send(peer, CopyEntries(message.name, message.code, batch, (), message.split))
            if message.removed or message.split:
                self._send(peer, CopyEntries(message.name, message.code, (), message.removed[:BATCH], message.split))
                for at in range(BATCH, len(message.removed), BATCH):
                    gone = message.removed[at : at + BATCH]
                    self._send(peer, CopyEntries(message.name, message.code, (), gone, message.split))

    def _copied(self, now: Nanos, sender: PeerId, told: CopyEntries) -> None:
        key = (told.name, told.code)
        table = self.regions[key] if key in self.regions else self._copies.setdefault(key, EntryTable())
        table.split = table.split or told.split
        for entry in told.added:
            try:
                table.add(entry, now + 2 * self._settings.expiry_ns)
            except FilterError:
                self._refuse(sender, "a filter that cannot be read")
        if key not in self.regions:  # an owner knows better than one that was
            for id_ in told.removed:
                table.remove(id_)

    def _renew_copies(self) -> None:
        for (name, code), table in self.regions.items():
            for peer in self._replicas:
                self._send(peer, RenewCopy(name, code, table.digest, table.split))

    def _copy_renewed(self, now: Nanos, sender: PeerId, told: RenewCopy) -> None:
        key = (told.name, told.code)
        if key in self.regions:
            return
        table = self._copies.setdefault(key, EntryTable())
        table.split = told.split
        if table.digest != told.digest:
            for id_ in list(table.entries):
                table.remove(id_)
            self._send(sender, TellCopy(*key))
        for peer in table.expires:
            table.expires[peer] = now + 2 * self._settings.expiry_ns

    def _send_copy(self, peer: PeerId, key: Name) -> None:
        table = self.regions.get(key)
        if table is not None:
            for batch in _batches(list(table.entries.values())) or [()]:
                self._send(peer, CopyEntries(*key, batch, (), table.split))

    def _ownership_changed(self, now: Nanos) -> None:
        ring, me = self._ring, self._me
        for key in [key for key in self._copies if ring.owns(key_of(place(*key)))]:
            self._take_over(now, key)
        for key in [key for key in self.regions if not ring.owns(key_of(place(*key)))]:
            self._hand_over(now, key)
        replicas = tuple(peer for peer in ring.replicas(self._settings.replicas) if peer != me)
        fresh = [peer for peer in replicas if peer not in self._replicas]
        self._replicas = replicas
        near = ring.replicas(2)
        if near != self._near:
            self._near, self._settles_ns = near, now + SETTLE_NS
        for peer in fresh:
            for key in self.regions:
                self._send_copy(peer, key)

    def _take_over(self, now: Nanos, key: Name) -> None:
        """This peer owns a region of which it was a replica."""
        self._taken_over += 1
        copy = self._copies.pop(key)
        table = self.regions.get(key)
        if table is None:
            table = self.regions[key] = copy
        else:
            table.split = table.split or copy.split
            for entry in copy.entries.values():
                table.add(entry, now)
        for peer in table.expires:
            table.expires[peer] = now + self._settings.expiry_ns
        for peer in self._replicas:
            self._send_copy(peer, key)

    def _hand_over(self, now: Nanos, key: Name) -> None:
        """Another peer owns the region now. This one stays a replica until that one says otherwise."""
        table = self.regions.pop(key)
        self._copies[key] = table
        self._loads.pop(key, None)
        name, code = key
        if table.split:
            self._to_region(now, HalfIsActive(name, code))
        for batch in _batches(list(table.entries.values())):
            self._to_region(now, PlaceEntries(name, code, batch, UNKNOWN_OWNER, 1))

    def _renew(self, now: Nanos) -> None:
        self._renew_entries(now)
        for key, table in list(self.regions.items()):
            gone = tuple(table.expire(now))
            if gone:
                self._copy(CopyEntries(*key, (), gone))
            name, code = key
            if code:
                self._to_region(now, HalfIsActive(name, code[:-1]))
            elif not table.entries and not table.split:
                del self.regions[key]
        for key, copy in list(self._copies.items()):
            copy.expire(now)
            if not copy.entries and not copy.split:
                del self._copies[key]
        self._renew_copies()

    # ---------------------------------------------------------------- events

    def _publish(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        if self._persistency:
            self._store(now, event, born_ns)
        if not self._ring.joined:
            self._out.append(Notice("published-early", self._me))
            return
        for name, cells in names_of(event):
            self._ask(now, name, cells, event, born_ns)

    def _ask(self, now: Nanos, name: str, cells: Interval, event: Event, born_ns: Nanos) -> None:
        """Send an event to the regions of this name that its value is in."""
        cache = self.caches.get(name)
        stored = self._persistency
        for code, owner in [("", UNKNOWN_OWNER)] if cache is None else cache.meeting([cells]):
            age = 0 if cache is None or owner == UNKNOWN_OWNER else cache.age_ns(code, now)
            if owner not in (UNKNOWN_OWNER, self._me) and self._fresh(age):
                asks = age > self._settings.beacon_ns // 2
                self._send(owner, MatchEvent(name, code, event, now - born_ns, 1, asks, stored))
            else:
                self._match(now, self._me, MatchEvent(name, code, event, 0, 0, True, stored), born_ns)

    def _match(
        self, now: Nanos, sender: PeerId, message: MatchEvent, born_ns: Nanos, avoid: tuple[PeerId, ...] = ()
    ) -> None:
        """Match an event with the entries of its region, here or at the owner."""
        name, code, event = message.name, message.code, message.event
        hop = self._next(place(name, code), avoid)
        if hop is not None:
            if message.hops >= MOST_HOPS:
                self._circling(event.id, hop)
            else:
                self._send(hop, MatchEvent(name, code, event, now - born_ns, message.hops + 1, True, message.stored))
            return
        key = (name, code)
        table = self.regions.get(key)
        if avoid and not self._owns(key):
            self._stand_in(now, key, message, born_ns)
            return
        if table is None and code:  # it was split and forgotten, or never was: begin with the whole range
            again = MatchEvent(name, "", event, now - born_ns, message.hops + 1, True, message.stored)
            self._match(now, sender, again, born_ns)
            return
        publisher = event.id.publisher
        if message.asks and (table is None or not table.split) and (publisher != self._me or message.hops == 0):
            self._correct(now, publisher, key, table or EntryTable())
        if table is not None and table.split:
            self._match_halves(now, message, born_ns)
        elif message.stored:
            self._match_stored(now, key, table, event, born_ns, message.hops)
        elif self._matched.add((key, event.id)):
            if table is not None:
                self._loaded(now, key, event)
                self._notify_peers(now, table.subscribers(event), event, born_ns, message.hops)
        else:
            self._out.append(Notice("duplicate", sender))

    def _owns(self, key: Name) -> bool:
        return self._ring.owns(key_of(place(*key)))

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
                self._match(now, self._me, asked, born_ns)

    def _loaded(self, now: Nanos, key: Name, event: Event) -> None:
        load = self._loads.get(key)
        if load is None:
            if not self._loads:
                self._out.append(Timer(now + LOOK_NS, _LOOK))
            load = self._loads[key] = Load(now)
        cells = cells_in(key[0], event)
        if cells is not None:
            load.count(cells, event.id.publisher)

    def _notify_peers(self, now: Nanos, peers: list[PeerId], event: Event, born_ns: Nanos, hops: int) -> None:
        """Send an event to its subscribers' peers. Above the fan-out limit some of them pass it on to others."""
        publisher = event.id.publisher  # its own subscribers have it already
        peers = [peer for peer in peers if peer != publisher]
        if self._me in peers:
            self._deliver(event, born_ns)
            peers.remove(self._me)
        limit, age = self._settings.fan_out, now - born_ns
        parts = min(limit, len(peers))
        for at in range(parts):
            first, *others = peers[at::parts]
            self._send(first, NotifyPeer(event, age, hops + 1, tuple(others)), LAST_TRIES)

    def _notified(self, now: Nanos, sender: PeerId, told: NotifyPeer) -> None:
        born = self._born(now, sender, told.age_ns)
        event = told.event
        if self.targets(event):
            self._deliver(event, born)
        else:
            self._out.append(Notice("no-subscriber", self._me))
        if told.others:
            self._notify_peers(now, list(told.others), event, born, told.hops)
        if told.region is not None:
            self._send(sender, Reached(*told.region, event.id))

    # ---------------------------------------------------------------- events that are stored until they are settled

    def _store(self, now: Nanos, event: Event, born_ns: Nanos) -> None:
        slot, lost = self._stored.add(now, event, born_ns, names_of(event))
        if lost is not None:
            self._out.append(Drop(lost, (), NO_ROOM))
        self._out.append(Remember(slot, StoredEvent(slot, event, born_ns)))
        self._retry_later(now)

    def _recalled(self, now: Nanos, message: Any) -> None:
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
        sure = now >= self._settles_ns
        if not waiting and sure:
            self._settle(now, key, event.id)
            return
        self._unsettled[key, event.id] = Unsettled(event, born_ns, hops, waiting, now, sure)
        self._retry_later(now)

    def _notify_stored(
        self, now: Nanos, key: Name, peers: list[PeerId], event: Event, born_ns: Nanos, hops: int
    ) -> list[PeerId]:
        """Send a stored event to subscribers' peers; those that are to answer."""
        if self._me in peers and event.id.publisher != self._me:
            self._deliver(event, born_ns)
        others = [peer for peer in peers if peer not in (event.id.publisher, self._me)]
        for peer in others:
            self._send(peer, NotifyPeer(event, now - born_ns, hops + 1, (), key))
        return others

    def _reached(self, now: Nanos, sender: PeerId, told: Reached) -> None:
        key = (told.name, told.code)
        unsettled = self._unsettled.get((key, told.id))
        if unsettled is not None and unsettled.reached(sender) and unsettled.sure:
            del self._unsettled[key, told.id]
            self._settle(now, key, told.id)

    def _settle(self, now: Nanos, key: Name, id_: EventId) -> None:
        self._settled.add((key, id_))
        if id_.publisher == self._me:
            self._settled_by(now, self._me, EventSettled(*key, id_))
        else:
            self._send(id_.publisher, EventSettled(*key, id_))

    def _settled_by(self, now: Nanos, sender: PeerId, told: EventSettled) -> None:
        slot = self._stored.settled(told.id, told.name, told.code)
        if slot is not None:
            self._out.append(Remember(slot, StoredEvent(slot, None)))

    def _retry_later(self, now: Nanos) -> None:
        if not self._retrying:
            self._retrying = True
            self._out.append(Timer(now + RETRY_NS, _RETRY))

    def _retry(self, now: Nanos) -> None:
        for event, born, name, cells in self._stored.due(now) if self._ring.joined else ():
            self._ask(now, name, cells, event, born)
        for (key, id_), unsettled in list(self._unsettled.items()):
            table = self.regions.get(key)
            if not self._owns(key) or (table is not None and table.split):
                del self._unsettled[key, id_]  # the publisher's peer asks whoever has the entries now
                continue
            if not unsettled.sure:
                self._match_again(now, key, unsettled)
                if not unsettled.sure:
                    continue
            live = () if table is None else table.expires
            gone = [peer for peer in unsettled.waiting if peer not in live]
            if gone:
                self._out.append(Drop(id_, tuple(gone), "no subscriber reconnected"))
            for peer in gone:
                unsettled.reached(peer)
            if not unsettled.waiting:
                del self._unsettled[key, id_]
                self._settle(now, key, id_)
                continue
            for peer in unsettled.again(now):
                event, born = unsettled.event, unsettled.born_ns
                self._send(peer, NotifyPeer(event, now - born, unsettled.hops + 1, (), key))
        if len(self._stored) or self._unsettled:
            self._retry_later(now)

    def _match_again(self, now: Nanos, key: Name, unsettled: Unsettled) -> None:
        """Notify the subscribers' peers whose entries came after the event."""
        table = self.regions.get(key)
        fresh = [] if table is None else unsettled.fresh(table.subscribers(unsettled.event))
        told = self._notify_stored(now, key, fresh, unsettled.event, unsettled.born_ns, unsettled.hops)
        unsettled.add(told, now >= self._settles_ns)

    # ---------------------------------------------------------------- messages

    def _heard(self, now: Nanos, sender: PeerId, message: Any) -> None:
        match message:
            case NotifyPeer():
                self._notified(now, sender, message)
            case Reached():
                self._reached(now, sender, message)
            case EventSettled():
                self._settled_by(now, sender, message)
            case _ if not can_be(message.name, message.code):
                self._refuse(sender, "a region that cannot be")
            case MatchEvent():
                self._match(now, sender, message, self._born(now, sender, message.age_ns))
            case PlaceEntries() | RemoveEntries() | RenewEntries() | HalfIsActive():
                if self._ring.owns(key_of(place(message.name, message.code))):
                    self._at_region(now, sender, message)
                else:
                    self._to_region(now, message)
            case RegionsAre():
                self._regions_are(now, sender, message)
            case TellEntries():
                self._tell_entries(now, message)
            case CopyEntries():
                self._copied(now, sender, message)
            case RenewCopy():
                self._copy_renewed(now, sender, message)
            case TellCopy(name, code):
                self._send_copy(sender, (name, code))

    def _undelivered(self, now: Nanos, peer: PeerId, message: Any) -> None:
        for cache in self.caches.values():
            cache.forget(peer)
        match message:
            case MatchEvent():
                self._rerouted(peer)
                self._match(now, self._me, message, now - message.age_ns - WAITED * self._wait_ns(peer), (peer,))
            case NotifyPeer(event=event, others=others, region=None):
                self._unreached(event.id, peer)
                if others:
                    born = now - message.age_ns - WAITED * self._wait_ns(peer)
                    self._notify_peers(now, list(others), event, born, message.hops - 1)
            case PlaceEntries() | RemoveEntries() | RenewEntries() | HalfIsActive():
                self._rerouted(peer)
                self._to_region(now, message, (peer,))


def _hopped(message: Any) -> Any:
    """The same message one hop further."""
    match message:
        case PlaceEntries(name, code, entries, asker, hops):
            return PlaceEntries(name, code, entries, asker, hops + 1)
        case RemoveEntries(name, code, ids, hops):
            return RemoveEntries(name, code, ids, hops + 1)
        case RenewEntries(name, code, peer, told, hops):
            return RenewEntries(name, code, peer, told, hops + 1)
    return HalfIsActive(message.name, message.code, message.hops + 1)


def _batches(entries: list[Entry]) -> list[tuple[Entry, ...]]:
    return [tuple(entries[at : at + BATCH]) for at in range(0, len(entries), BATCH)]
